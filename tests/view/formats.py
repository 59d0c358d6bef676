"""Holds what other tools read of a recording against those tools, or the definitions that they
publish: Go's pprof, Perfetto's and OpenTelemetry's protocol buffers."""

import base64
import functools
import itertools
import json
import re
import subprocess
from collections import defaultdict

import jsonschema
from google.protobuf import json_format
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2
from perfetto.protos.perfetto.trace import perfetto_trace_pb2

# Tracks of threads.
THREAD_NUMBERS = 1 << 32, 2 << 32


def run(whywait, recording, *flags):
    """A recording in a format, as bytes."""
    command = [whywait, "report", recording, *flags]
    return subprocess.run(command, check=True, timeout=120, stdout=subprocess.PIPE).stdout


@functools.cache
def schema(whywait):
    """What validates reports in JSON."""
    command = [whywait, "report", "--format", "json-schema"]
    text = subprocess.run(command, check=True, timeout=60, stdout=subprocess.PIPE).stdout
    document = json.loads(text)
    jsonschema.Draft202012Validator.check_schema(document)
    return jsonschema.Draft202012Validator(document)


def folded_ns(text):
    return sum(int(line.rsplit(" ", 1)[1]) for line in text.splitlines())


def check(checks, what, whywait, recording, report, scratch):
    pprof(checks, what, whywait, recording, scratch)
    perfetto(checks, what, whywait, recording, report)
    otlp(checks, what, whywait, recording, report)
    errors = [error.message for error in schema(whywait).iter_errors(report)]
    checks.hold(f"{what}: JSON is what its schema says", not errors, "; ".join(errors[:5]))
    text = run(whywait, recording, "--format", "markdown").decode()
    checks.hold(f"{what}: markdown is short enough", len(text) <= 65_536, str(len(text)))


def pprof(checks, what, whywait, recording, scratch):
    """What Go's pprof says of a profile is what the folded stacks say."""
    for of in ("critical", "waits", "cpu"):
        stacks = run(whywait, recording, "--format", "folded", "--of", of).decode()
        wanted = folded_ns(stacks)
        profile = scratch / f"{of}.pb.gz"
        run(whywait, recording, "--format", "pprof", "--of", of, "-o", str(profile))
        read = subprocess.run(
            ["go", "tool", "pprof", "-raw", profile],
            check=True,
            timeout=120,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ).stdout
        kind = "cpu" if of == "cpu" else "wall"
        checks.hold(f"{what}: pprof of {of} has a type", f"{kind}/nanoseconds" in read, read[:300])
        samples = read.split("Samples:")[1].split("Locations")[0]
        found = sum(int(ns) for ns in re.findall(r"^\s*(\d+):", samples, re.MULTILINE))
        checks.hold(f"{what}: pprof of {of} sums up", found == wanted, f"{found} for {wanted}")
        if stacks:
            leaf = stacks.splitlines()[0].rsplit(" ", 1)[0].split(";")[-1]
            known = leaf.split("\\")[0][:20] in read
            checks.hold(f"{what}: pprof of {of} knows functions", known, leaf)


def perfetto(checks, what, whywait, recording, report):
    """Each thread's slices follow each other without a gap; each request's sum to its latency."""
    data = run(whywait, recording, "--format", "perfetto")
    trace = perfetto_trace_pb2.Trace.FromString(data)
    # What the published definition does not know is not there after a round trip of known fields.
    trace.DiscardUnknownFields()
    checks.hold(f"{what}: perfetto knows all fields", trace.ByteSize() == len(data), str(len(data)))
    tracks, slices, open_slices = {}, defaultdict(list), defaultdict(list)
    flows, ends = set(), set()
    for packet in trace.packet:
        if packet.HasField("track_descriptor"):
            tracks[packet.track_descriptor.uuid] = packet.track_descriptor
            continue
        event = packet.track_event
        if event.track_uuid not in tracks:
            checks.hold(f"{what}: perfetto's tracks are declared", False, str(event.track_uuid))
            return
        flows.update(event.flow_ids)
        ends.update(event.terminating_flow_ids)
        if event.type == event.TYPE_SLICE_BEGIN:
            open_slices[event.track_uuid].append((packet.timestamp, event.name))
        elif event.type == event.TYPE_SLICE_END:
            stack = open_slices[event.track_uuid]
            begun, name = stack.pop()
            slices[event.track_uuid].append((begun, packet.timestamp, name, len(stack)))
    checks.hold(f"{what}: perfetto's slices end", not any(open_slices.values()))
    checks.hold(f"{what}: perfetto's arrows end", flows == ends, f"{len(flows)}, {len(ends)}")
    threads = {
        uuid: pieces
        for uuid, pieces in slices.items()
        if THREAD_NUMBERS[0] <= uuid < THREAD_NUMBERS[1]
    }
    gaps = 0
    for pieces in threads.values():
        pieces.sort()
        gaps += sum(a[1] != b[0] for a, b in itertools.pairwise(pieces))
    checks.hold(f"{what}: perfetto's threads have no gaps", gaps == 0, str(gaps))
    wrong = 0
    slowest = []
    for pieces in slices.values():
        whole = [piece for piece in pieces if piece[2].startswith("request ") and piece[3] == 0]
        for begun, end, _, _ in whole:
            steps = sum(to - at for at, to, _, depth in pieces if depth == 1)
            wrong += steps != end - begun
            slowest.append(end - begun)
    checks.hold(f"{what}: perfetto's steps sum to requests", wrong == 0, str(wrong))
    wanted = [request["latency_ns"] for request in report["requests"]["slowest"]]
    slowest = sorted(slowest, reverse=True)[: len(wanted)]
    checks.hold(f"{what}: perfetto has the slowest requests", slowest == wanted, str(slowest))


def otlp(checks, what, whywait, recording, report):
    """OpenTelemetry's own definition takes the traces."""
    document = json.loads(run(whywait, recording, "--format", "otlp"))
    took = []
    for resource in document["resourceSpans"]:
        for scope in resource["scopeSpans"]:
            for span in scope["spans"]:
                # OTLP's JSON has these in hexadecimal, protocol buffers' own in base64.
                for key, size in (("traceId", 16), ("spanId", 8), ("parentSpanId", 8)):
                    raw = bytes.fromhex(span[key])
                    if len(raw) not in ((0, size) if key == "parentSpanId" else (size,)):
                        checks.hold(f"{what}: otlp's identifiers", False, span[key])
                    span[key] = base64.b64encode(raw).decode()
                if not span["parentSpanId"]:
                    took.append(int(span["endTimeUnixNano"]) - int(span["startTimeUnixNano"]))
    try:
        json_format.ParseDict(document, trace_service_pb2.ExportTraceServiceRequest())
        checks.hold(f"{what}: otlp is what collectors take", True)
    except json_format.ParseError as error:
        checks.hold(f"{what}: otlp is what collectors take", False, str(error))
    wanted = [request["latency_ns"] for request in report["requests"]["slowest"]]
    took = sorted(took, reverse=True)[: len(wanted)]
    checks.hold(f"{what}: otlp has the slowest requests", took == wanted, str(took))
