"""Part g of labs/accuracy: requests' latency as whywait has it, against the clients' own clock.

The clients' clock is their kernel's, over the same requests: from when it sent the first packet of
a request until it had the last of the response. A client that gets its CPU late has it later, and
that is none of the server's time.
"""

from dataclasses import dataclass

# What latency may be off by: that share of it, or that much where it is more.
MOST_OFF = 0.05
LEAST_OFF_MS = 0.2
MS = 1e6
FIGURES = ("mean", "p50", "p99", "max")

# Not those whose name server is watched as well: its questions are requests, too.
WIRE = [
    "nagle",
    "nagle-java",
    "nagle-java-fixed",
    "nagle-fixed",
    "nagle-nodelay",
    "loss",
    "loss-fixed",
    "zero-window",
    "small-sndbuf",
    "small-sndbuf-fixed",
    "healthy",
    "abandoned",
    "abandoned-fixed",
    "abandoned-go",
    "abandoned-go-fixed",
    "half-closed",
    "syn-flood",
    "connect-retried",
    "connect-retried-fixed",
    "backlog-fixed",
]
CONTROLS = ["redis-get", "nginx-static", "go-http", "node-http", "java-http", "uvicorn"]
# Streams of HTTP/2. Not nginx: Nagle's algorithm holds back the ends of its answers.
STREAMS = [
    "grpc-calls",
    "grpc-go-lock-fixed",
    "grpc-java-pool-fixed",
    "grpc-tonic-blocking-fixed",
    "go-h2c-calls",
    "node-h2c-calls",
]
SERVERS = [
    *(("wire", name) for name in WIRE),
    *(("controls", name) for name in CONTROLS),
    *(("multiplexed", name) for name in STREAMS),
]
# Where packets that make connections are dropped it is not known whose they are: of the clients'
# time together there is a range.
RANGES = [("wire", "backlog")]


@dataclass
class Clock:
    """How many requests, and what they took, in milliseconds."""

    count: int
    figures: dict


def client(truth):
    wire = truth["wire"]
    figures = {name: wire[f"{name}_ms"] for name in FIGURES[1:]}
    return Clock(wire["count"], {"mean": wire["sum_ms"] / wire["count"], **figures})


def total_ns(requests):
    """What all requests took together, with what came after their responses were written."""
    time = requests["time"]
    unserved = time["ready-unserved"]
    parts = [*unserved.values(), *(ns for ns in time.values() if ns is not unserved)]
    sending = (requests.get("wire") or {}).get("sending") or {}
    return sum(ns or 0 for ns in parts) + sending.get("total_ns", 0)


def whywait(report):
    requests = report["requests"]
    latency = (requests.get("wire") or {}).get("latency_ns") or requests["latency_ns"]
    count = requests["count"]
    figures = {name: latency[name] / MS for name in FIGURES[1:]}
    return Clock(count, {"mean": total_ns(requests) / max(count, 1) / MS, **figures})


def off(seen, true):
    """How far off, and whether that is too much."""
    return seen - true, abs(seen - true) <= max(true * MOST_OFF, LEAST_OFF_MS)


def row(accuracy, lab, variant, true, seen):
    """A row of the table, and what is wrong."""
    wrong = []
    cells = [lab, variant, true.count]
    if seen.count != true.count:
        wrong.append(f"{seen.count} requests, of {true.count}")
        cells[-1] = f"{true.count} (**{seen.count}**)"
    for name in FIGURES:
        by, holds = off(seen.figures[name], true.figures[name])
        text = f"{accuracy.number(true.figures[name])} ({by:+.3f})"
        if not holds:
            wrong.append(
                f"a {name} of {seen.figures[name]:.3f} ms, {true.figures[name]:.3f} ms by the "
                "client's clock"
            )
            text = f"**{text}**"
        cells.append(text)
    return [*cells, "**no**" if wrong else "yes"], wrong


def range_row(lab, variant, run):
    """The clients' time together, and the range that whywait has for it."""
    true = client(run.truth)
    requests = run.report()["requests"]
    connecting = requests["wire"]["connecting"]
    server = total_ns(requests) / MS
    least = server + connecting["at_least_ns"] / MS
    most = server + connecting["at_most_ns"] / MS
    together = true.figures["mean"] * true.count
    holds = least <= together <= most
    wrong = [] if holds else [f"{together:.0f} ms together, not {least:.0f} to {most:.0f} ms"]
    cells = [lab, variant, true.count, round(server), round(together), round(least), round(most)]
    return [*cells, "yes" if holds else "**no**"], wrong


def measure(accuracy, labs, lab, variant):
    run = labs.run(lab, variant)
    return row(accuracy, lab, variant, client(run.truth), whywait(run.report()))


def part(accuracy, labs, match=""):
    """Returns the page's part, and what is wrong."""
    rows, ranges, wrong = [], [], []
    for place, table in (*((one, rows) for one in SERVERS), *((one, ranges) for one in RANGES)):
        name = " ".join(place)
        if match not in name:
            continue
        try:
            if table is rows:
                cells, found = measure(accuracy, labs, *place)
            else:
                cells, found = range_row(*place, labs.run(*place))
        except (accuracy.Failed, KeyError, TypeError) as error:
            cells, found = [*place, "not measured", *[""] * 5], [f"not measured: {error!r}"]
        table.append(cells)
        wrong += [f"the clients' clock, {name}: {text}" for text in found]
    head = ["lab", "variant", "requests", *FIGURES, "holds"]
    page = f"""## The clients' clock

Latency as whywait has it, held against the clients' own clock, over the same requests, in
milliseconds: the client's, and in brackets by how much whywait's is above it. The clients' clock is
their kernel's: from when it sent the first packet of a request until it had the last of the
response (`SO_TIMESTAMPING`), so that a client without a CPU does not measure itself. A row
**holds** when each figure is off by {accuracy.percent(MOST_OFF)} or {1000 * LEAST_OFF_MS:.0f} us at
most, and the requests are as many. Of the labs whose clients leave it is the requests of those that
stayed.

"""
    page += accuracy.table(head, rows, left=2)
    head = ["lab", "variant", "requests", "server", "client", "at least", "at most", "holds"]
    page += """
Where packets that make connections are dropped it is not known whose they are. Then there is a
range for what all clients waited together, in milliseconds:

"""
    return page + accuracy.table(head, ranges, left=2), wrong
