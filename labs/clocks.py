"""Part g of labs/accuracy: requests' latency as whywait has it, against the clients' own clock.

The clients' clock is their kernel's, over the same requests: from when it sent the first packet of
a request until it had the last of the response. A client that gets its CPU late has it later, and
that is none of the server's time. Of datagrams and jobs it is what the programs' own logs say.
"""

from dataclasses import dataclass

# What latency may be off by: that share of it, or that much where it is more.
MOST_OFF = 0.02
LEAST_OFF_MS = 0.2
MS = 1e6
FIGURES = ("mean", "p50", "p99", "max")
# Of works, whose clock is their program's, and has its wakes: of single ones nothing is held.
TYPICAL, MOST_OFF_TYPICAL = ("mean", "p50"), 0.05

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
# Work that is no request of a stream's, with the series of the ground truth that is about the same
# time: of a question until its answer is there, of a job from when its library has it, or from when
# it is taken where each is asked for by itself, until it is done. Not those that take less than the
# wake of who measures them does, nor Kafka's, whose libraries have a message for long before the
# program has.
WORKS = [
    *(
        ("datagrams", name, "load")
        for name in (
            "one",
            "one-fixed",
            "one-unix",
            "one-unix-fixed",
            "one-go",
            "one-go-fixed",
            "dnsmasq",
            "unbound",
        )
    ),
    *(("nats", name, "load") for name in ("workers", "workers-fixed", "fetch")),
    *(("broker", name, "work") for name in ("alone", "locked")),
]
# Where packets that make connections are dropped it is not known whose they are: of the clients'
# time together there is a range.
RANGES = [("wire", "backlog")]


@dataclass
class Clock:
    """How many requests, and what they took, in milliseconds."""

    count: int
    figures: dict


def client(truth, series="wire"):
    own = truth[series]
    figures = {name: own[f"{name}_ms"] for name in FIGURES[1:]}
    return Clock(own["count"], {"mean": own["sum_ms"] / own["count"], **figures})


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


def off(seen, true, most):
    """How far off, and whether that is too much."""
    return seen - true, abs(seen - true) <= max(true * most, LEAST_OFF_MS)


def row(accuracy, lab, variant, true, seen, held=FIGURES, most=MOST_OFF):
    """A row of the table, and what is wrong of the figures that are held."""
    wrong = []
    cells = [lab, variant, true.count]
    if seen.count != true.count:
        wrong.append(f"{seen.count} requests, of {true.count}")
        cells[-1] = f"{true.count} (**{seen.count}**)"
    for name in FIGURES:
        by, holds = off(seen.figures[name], true.figures[name], most)
        text = f"{accuracy.number(true.figures[name])} ({by:+.3f})"
        if not holds and name in held:
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


def measure(accuracy, labs, lab, variant, series="wire"):
    run = labs.run(lab, variant)
    how = () if series == "wire" else (TYPICAL, MOST_OFF_TYPICAL)
    return row(accuracy, lab, variant, client(run.truth, series), whywait(run.report()), *how)


def part(accuracy, labs, match=""):
    """Returns the page's part, and what is wrong."""
    rows, works, ranges, wrong = [], [], [], []
    all_of_it = [(SERVERS, rows), (WORKS, works), (RANGES, ranges)]
    for place, table in ((place, table) for places, table in all_of_it for place in places):
        name = " ".join(place[:2])
        if match not in name:
            continue
        try:
            if table is ranges:
                cells, found = range_row(*place, labs.run(*place))
            else:
                cells, found = measure(accuracy, labs, *place)
        except (accuracy.Failed, KeyError, TypeError) as error:
            cells, found = [*place[:2], "not measured", *[""] * 5], [f"not measured: {error!r}"]
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
    head = ["lab", "variant", "works", *FIGURES, "holds"]
    page += f"""
Questions in datagrams and jobs from brokers, held in the same way against what the programs log
themselves. That has the program's own wakes, so of single ones, p99 and max, it is no truth: held
are mean and p50, to {accuracy.percent(MOST_OFF_TYPICAL)} or {1000 * LEAST_OFF_MS:.0f} us. A program
that waits for the answer to its last call before it calls a job done has more than whywait, for
which the job is done when that call is made. What a library takes until the program has a message
is part of whywait's figure only.

"""
    page += accuracy.table(head, works, left=2)
    head = ["lab", "variant", "requests", "server", "client", "at least", "at most", "holds"]
    page += """
Where packets that make connections are dropped it is not known whose they are. Then there is a
range for what all clients waited together, in milliseconds:

"""
    return page + accuracy.table(head, ranges, left=2), wrong
