"""Holds what other tools read of a recording against those tools: Go's pprof, Perfetto's trace
processor, OpenTelemetry's definitions and its Collector."""

import base64
import functools
import importlib
import json
import re
import subprocess
import threading
from dataclasses import dataclass, field
from pathlib import Path

import collector
import jsonschema
from collector import Collector
from google.protobuf import json_format
from opentelemetry import semconv
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2
from perfetto.protos.perfetto.trace import perfetto_trace_pb2
from trace_processor import TraceProcessor

# So many requests have a track, or are a trace.
MAX_TRACKS, MAX_TRACES = 2_000, 1_000


@dataclass
class Tools:
    """What reads the formats. One at a time: those that are one process."""

    whywait: str
    pprof: str
    trace_processor: TraceProcessor
    collector: Collector | None = None
    one: threading.Lock = field(default_factory=threading.Lock)


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


@functools.cache
def conventions():
    """The names of attributes that OpenTelemetry's semantic conventions have."""
    names = set()
    for folder in ("attributes", "_incubating/attributes"):
        for file in (Path(semconv.__file__).parent / folder).glob("*_attributes.py"):
            module = ".".join(["opentelemetry.semconv", *folder.split("/"), file.stem])
            constants = vars(importlib.import_module(module)).values()
            names.update(value for value in constants if isinstance(value, str))
    return names


def folded_ns(text):
    return sum(int(line.rsplit(" ", 1)[1]) for line in text.splitlines())


def check(checks, what, tools, recording, report, scratch):
    whywait = tools.whywait
    pprof(checks, what, tools, recording, scratch)
    slow = json.loads(run(whywait, recording, "--requests", "--format", "json"))["requests"]
    slow = {request["id"]: request for request in slow}
    perfetto(checks, what, tools, recording, report, slow)
    otlp(checks, what, tools, recording, slow)
    errors = [error.message for error in schema(whywait).iter_errors(report)]
    checks.hold(f"{what}: JSON is what its schema says", not errors, "; ".join(errors[:5]))
    text = run(whywait, recording, "--format", "markdown").decode()
    checks.hold(f"{what}: markdown is short enough", len(text) <= 65_536, str(len(text)))


def pprof(checks, what, tools, recording, scratch):
    """What Go's pprof says of a profile is what the folded stacks say."""
    whywait = tools.whywait
    for of in ("critical", "waits", "cpu"):
        stacks = run(whywait, recording, "--format", "folded", "--of", of).decode()
        wanted = folded_ns(stacks)
        profile = scratch / f"{what}-{of}.pb.gz"
        run(whywait, recording, "--format", "pprof", "--of", of, "-o", str(profile))
        read = subprocess.run(
            [tools.pprof, "-raw", profile],
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


# The time of each thread, by its track: the sum of its states, from when and until when.
THREADS = """
select thread.tid, thread.name, sum(slice.dur), min(slice.ts), max(slice.ts + slice.dur)
from thread_track join thread using (utid) join slice on slice.track_id = thread_track.id
where slice.category in ('asleep', 'runnable', 'active', 'unseen')
group by thread.utid
"""
# Each request, its latency, and the sum of its steps.
REQUESTS = """
select request.name, request.dur, sum(step.dur)
from slice as request left join slice as step
  on step.parent_id = request.id and step.category = 'step'
where request.category = 'request'
group by request.id
"""
# What it could not make sense of.
ERRORS = """
select name, value from stats where severity in ('error', 'data_loss') and value > 0
"""
# Slices that did not end, and arrows with an end that is nowhere.
LOOSE = """
select (select count(*) from slice where dur < 0),
  (select count(*) from flow where slice_out is null or slice_in is null)
"""


def perfetto(checks, what, tools, recording, report, slow):
    """Each thread's states sum to its time; each request's slices to its latency."""
    data = run(tools.whywait, recording, "--format", "perfetto")
    trace = perfetto_trace_pb2.Trace.FromString(data)
    # What the published definition does not know is not there after a round trip of known fields.
    trace.DiscardUnknownFields()
    checks.hold(f"{what}: perfetto knows all fields", trace.ByteSize() == len(data), str(len(data)))
    with tools.one:
        tools.trace_processor.load(data)
        threads, requests, errors, loose = (
            tools.trace_processor.ask(sql) for sql in (THREADS, REQUESTS, ERRORS, LOOSE)
        )
    checks.hold(f"{what}: perfetto understands all", errors == [], str(errors))
    checks.hold(f"{what}: perfetto's slices and arrows end", loose == [(0, 0)], str(loose))
    wrong = [row for row in threads if row[2] != row[4] - row[3]]
    checks.hold(f"{what}: perfetto's threads' states sum to their time", not wrong, str(wrong[:3]))
    # From the first to the last one's end it is the recording's time, but for threads that came
    # later; no thread has more.
    duration = report["target"]["duration_ns"]
    most = max((row[2] for row in threads), default=0)
    checks.hold(
        f"{what}: perfetto's threads have no more than the recording's time",
        most <= duration,
        f"{most} of {duration}",
    )
    known = {f"request {id}": request["latency_ns"] for id, request in slow.items()}
    # One whose response was not seen has no steps.
    open_ones = {f"request {id}" for id, request in slow.items() if request.get("open")}
    found = {
        name: (took, took if steps is None and name in open_ones else steps)
        for name, took, steps in requests
    }
    wrong = [
        (name, took, steps, known.get(name))
        for name, (took, steps) in found.items()
        if not took == steps == known.get(name)
    ]
    checks.hold(f"{what}: perfetto's steps sum to latencies", not wrong, str(wrong[:3]))
    with_path = sorted(known.values(), reverse=True)[:MAX_TRACKS]
    checks.hold(
        f"{what}: perfetto has the slowest requests",
        sorted((took for took, _ in found.values()), reverse=True) == with_path,
        f"{len(found)} of {len(known)}",
    )


def otlp(checks, what, tools, recording, slow):
    """OpenTelemetry's own definition takes the traces, and its Collector passes them on."""
    data = run(tools.whywait, recording, "--format", "otlp")
    document = json.loads(data)
    if tools.collector:
        with tools.one:
            try:
                came = collector.spans(tools.collector.pass_on(data))
                sent = collector.spans([document])
                checks.hold(
                    f"{what}: a collector gives the same spans back",
                    came == sent,
                    f"{len(came)} of {len(sent)}",
                )
            except ValueError as error:
                checks.hold(f"{what}: a collector takes the traces", False, str(error))
    took = []
    keys = set()
    for resource in document["resourceSpans"]:
        keys.update(attribute["key"] for attribute in resource["resource"]["attributes"])
        for scope in resource["scopeSpans"]:
            for span in scope["spans"]:
                keys.update(attribute["key"] for attribute in span["attributes"])
                # OTLP's JSON has these in hexadecimal, protocol buffers' own in base64.
                for key, size in (("traceId", 16), ("spanId", 8), ("parentSpanId", 8)):
                    raw = bytes.fromhex(span[key])
                    if len(raw) not in ((0, size) if key == "parentSpanId" else (size,)):
                        checks.hold(f"{what}: otlp's identifiers", False, span[key])
                    span[key] = base64.b64encode(raw).decode()
                if not span["parentSpanId"]:
                    took.append(int(span["endTimeUnixNano"]) - int(span["startTimeUnixNano"]))
    strange = {key for key in keys if not key.startswith("whywait.")} - conventions()
    checks.hold(f"{what}: otlp's attributes have their names", not strange, str(strange))
    try:
        json_format.ParseDict(document, trace_service_pb2.ExportTraceServiceRequest())
        checks.hold(f"{what}: otlp is what collectors take", True)
    except json_format.ParseError as error:
        checks.hold(f"{what}: otlp is what collectors take", False, str(error))
    wanted = sorted((request["latency_ns"] for request in slow.values()), reverse=True)
    took.sort(reverse=True)
    checks.hold(
        f"{what}: otlp has the slowest requests",
        took == wanted[:MAX_TRACES],
        f"{len(took)} of {len(wanted)}",
    )
