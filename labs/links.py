"""Part f of labs/accuracy: which call is whose, and where requests' time went, against the servers'
own word.

Servers of the lab `upstream` forward the path of each request to the other service. Each path has
another length, so that the recording itself has the truth: how many bytes were read of a request,
and how many a call sent. The servers say when each call began and ended and when they began to
work, the other service when it gave its answer.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent
LAB = HERE / "upstream"
KIT = HERE / "kit"
TARGET = HERE / "target"
GO, JAVA = TARGET / "builds/upstream/go", TARGET / "builds/upstream/java"
MS = 1e6
READY_S = 20
RUN_S = 120

# A part's sum may be beyond its range by so much of the time.
MOST_BEYOND = 0.05
# So much of a request's moments is said at other places than where the kernel has them.
SLACK_MS = 1.0

RUNTIMES = {
    "threads": "Python, a thread for each connection",
    "asyncio": "asyncio",
    "go": "Go, net/http",
    "go-direct": "Go, as a driver of a database",
    "node": "node, http",
    "tokio": "tokio",
    "java-virtual": "Java, virtual threads",
    "java-threads": "Java, a thread for each connection",
}
CONCURRENCY = [1, 10, 100, 1000]


@dataclass
class Kind:
    """What the server does, and what its clients ask."""

    name: str
    server: tuple = ()
    load: tuple = ()
    # Connections to the other service for so many clients each.
    shared_by: int = 0
    concurrency: tuple = tuple(CONCURRENCY)


KINDS = [
    Kind("slow"),
    Kind("mixed", load=("--ms", "20-80", "--pause-ms", "20")),
    Kind("pool", shared_by=4, concurrency=(10, 100, 1000)),
    Kind("held", server=("held",), concurrency=(10,)),
    Kind("serial", server=("calls", "3"), concurrency=(1, 10)),
    Kind("busy", server=("work-ms", "2"), concurrency=(1, 10)),
]
ROUNDS = {1: 60, 10: 30, 100: 6, 1000: 2}


def build():
    """The servers that have to be, where the lab's own runs have them."""
    for folder in (GO, JAVA):
        folder.mkdir(parents=True, exist_ok=True)
    subprocess.run(["go", "build", "-o", GO / "server", "."], cwd=LAB / "go-server", check=True)
    sources = sorted(LAB.glob("*.java"))
    subprocess.run(["javac", "--release", "17", "-d", JAVA, *sources], check=True)
    subprocess.run([KIT / "virtual-java.sh", JAVA], check=True)
    cargo = ["cargo", "build", "--quiet", "--release", "--locked", "--package", "upstream"]
    subprocess.run([*cargo, "--target-dir", TARGET], cwd=HERE, check=True)


def server(runtime, kind, clients, peer):
    """The command that serves."""
    words = ["forward", *kind.server]
    if kind.shared_by:
        words += ["pool", str(max(clients // kind.shared_by, 2))]
    if runtime.startswith("go"):
        flags = [word if word[0].isdigit() else f"-{word}" for word in words]
        direct = ["-direct"] if runtime == "go-direct" else []
        return [GO / "server", *flags, *direct, peer]
    flags = [word if word[0].isdigit() else f"--{word}" for word in words]
    if runtime == "node":
        return ["node", LAB / "server.mjs", peer, *flags]
    if runtime == "tokio":
        return [TARGET / "release/upstream", peer, *flags]
    if runtime.startswith("java"):
        _, threads = runtime.split("-")
        java = [JAVA / "java", "-XX:+UseSerialGC", "-cp", JAVA, "UpstreamServer"]
        return [*java, threads, peer, *flags]
    return [sys.executable, LAB / "server.py", runtime, peer, *flags]


class Failed(Exception):
    """A run that could not be made, in words."""


def wait_for(file, process):
    end = time.monotonic() + READY_S
    while not (file.exists() and file.read_text().endswith("\n")):
        if process.poll() is not None or time.monotonic() > end:
            raise Failed("a server did not begin")
        time.sleep(0.01)
    pid, address = file.read_text().split()
    return int(pid), address


@contextlib.contextmanager
def running(command, ready):
    """A program that says in a file that it is ready. It is ended in the end."""
    process = subprocess.Popen(
        command,
        env=os.environ | {"READY_FILE": str(ready)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield process, *wait_for(ready, process)
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait(READY_S)


def record(tool, runtime, kind, clients, folder):
    """One run: the list of its slow requests, and what became of all of them."""
    peer = [sys.executable, KIT / "upstream.py", "--ms", "50", "--answered"]
    with running(peer, folder / "peer") as (_, _, peer_address):
        serve = server(runtime, kind, clients, peer_address)
        recorded = [tool, "record", "-o", folder / "recording", "--", *serve]
        with running(recorded, folder / "server") as (process, pid, address):
            load = [sys.executable, KIT / "unequal.py", address, "--clients", str(clients)]
            load += ["--rounds", str(ROUNDS[clients]), *kind.load]
            done = subprocess.run(load, capture_output=True, text=True, timeout=RUN_S)
            os.kill(pid, signal.SIGTERM)
            process.wait(READY_S)
    if done.returncode != 0:
        raise Failed((done.stderr.strip().splitlines() or ["the load failed"])[-1])
    said = [json.loads(line) for line in done.stdout.splitlines()]
    return report(tool, folder, "--requests")["requests"], report(tool, folder), said


def report(tool, folder, *more):
    command = [tool, "report", folder / "recording", *more, "--format", "json"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise Failed((done.stderr.strip().splitlines() or ["no report"])[-1])
    return json.loads(done.stdout)


@dataclass
class Sums:
    """What links and parts came to."""

    requests: int = 0
    calls: int = 0
    certain: int = 0
    wrong: int = 0
    # How many would be if the truth were that of the next request: that the judge can see it.
    wrong_if_exchanged: int = 0
    by: Counter = field(default_factory=Counter)
    time_ms: float = 0
    # By part: what lies beyond its range, and how wide that is.
    beyond_ms: dict = field(default_factory=lambda: defaultdict(float))
    width_ms: dict = field(default_factory=lambda: defaultdict(float))

    def add(self, other):
        counts = ("requests", "calls", "certain", "wrong", "wrong_if_exchanged", "time_ms")
        for name in counts:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.by += other.by
        for name in ("beyond_ms", "width_ms"):
            for part, ms in getattr(other, name).items():
                getattr(self, name)[part] += ms

    def share(self, ms):
        return ms / self.time_ms if self.time_ms else 0


PARTS = ("peers", "work", "waiting")


def truth_of(said):
    """How a request's time split, as the server and the other service have it, in milliseconds."""
    _, sent, story, _ = said
    calls = story["calls"]
    total = story["answered"] - sent
    peers = sum(replied - begun for begun, _, replied in calls)
    work = story["answered"] - story["work"]
    return {"peers": peers, "work": work, "waiting": total - peers - work, "total": total}


def ranges_of(tasks):
    """The same as whywait has it: from, to."""

    def both(part):
        return [part["at_least"] / MS, part["at_most"] / MS]

    waiting = [both(tasks[part]) for part in ("reply_unserved_ns", "queued_ns")]
    unserved = tasks["unserved_ns"] / MS
    return {
        "peers": both(tasks["upstream_ns"]),
        "work": both(tasks["own_ns"]),
        "waiting": [unserved + sum(ends) for ends in zip(*waiting, strict=True)],
    }


def beyond(value, ends):
    outside = max(ends[0] - value, value - ends[1], 0)
    return outside if outside > SLACK_MS else 0


def judge(rows, whole, said):
    """Holds a recording against what was said. Returns the sums, and of all requests together."""
    sums, together = Sums(), Sums()
    told = {length: one for length, *one in said}
    overhead = len("GET  HTTP/1.1\r\nHost: lab\r\n\r\n")
    by_length = {row["bytes_in"] - overhead: row for row in rows}
    first = min(told)
    alone = by_length.get(first, {}).get("calls") or {"longest": []}
    if not alone["longest"]:
        raise Failed("the first request's call was not seen")
    call_overhead = alone["longest"][0]["bytes_out"] - first
    everything = Counter()
    for length, row in by_length.items():
        if length == first or length not in told:
            continue
        sums.requests += 1
        true = truth_of([length, *told[length]])
        sums.time_ms += true["total"]
        everything.update(true)
        sums.calls += len(told[length][1]["calls"])
        for call in (row.get("calls") or {"longest": []})["longest"]:
            if "link" not in call:
                continue
            sums.certain += 1
            sums.by[call["link"]] += 1
            sums.wrong += call["bytes_out"] - call_overhead != length
            sums.wrong_if_exchanged += call["bytes_out"] - call_overhead != length + 1
        if "tasks" not in row:
            raise Failed("a request has no tasks")
        for part, ends in ranges_of(row["tasks"]).items():
            sums.beyond_ms[part] += beyond(true[part], ends)
            sums.width_ms[part] += ends[1] - ends[0]
    if not sums.requests:
        raise Failed("no request was found again")
    # The first request is in the report's sums, too.
    everything.update(truth_of([first, *told[first]]))
    together.time_ms = everything["total"]
    for part, ends in ranges_of(whole["requests"]["tasks"]).items():
        slack = SLACK_MS * (sums.requests + 1)
        outside = max(ends[0] - everything[part], everything[part] - ends[1], 0)
        together.beyond_ms[part] = outside if outside > slack else 0
        together.width_ms[part] = ends[1] - ends[0]
    return sums, together


def part(accuracy, labs, match=""):
    """Returns the page's part, and what is wrong."""
    rows, times, wrong = [], [], []
    with tempfile.TemporaryDirectory(prefix="whywait-links-") as tmp:
        out = Path(tmp)
        build()
        for runtime in RUNTIMES:
            for clients in CONCURRENCY:
                measured = {}
                for kind in KINDS:
                    name = f"{runtime} {kind.name} {clients}"
                    if clients not in kind.concurrency or match not in name:
                        continue
                    accuracy.say(name)
                    folder = out / name.replace(" ", "-")
                    folder.mkdir()
                    try:
                        seen = record(labs.tool, runtime, kind, clients, folder)
                        measured[kind.name] = judge(*seen)
                    except (Failed, KeyError, subprocess.TimeoutExpired) as error:
                        wrong.append(f"links, {name}: not measured: {error!r}")
                        continue
                    keep(labs.folder, folder)
                found = summary(accuracy, runtime, clients, measured)
                rows += found[0]
                times += found[1]
                wrong += found[2]
    return page(accuracy, rows, times), wrong


def keep(kept, folder):
    """Beside the recordings of the other parts, if those are kept."""
    kept.mkdir(parents=True, exist_ok=True)
    to = kept / f"links-{folder.name}"
    if not to.exists():
        folder.rename(to)


def summary(accuracy, runtime, clients, measured):
    """The rows of a runtime at a concurrency, and what is wrong."""
    rows, times, wrong = [], [], []
    every = Sums()
    for kind, (sums, together) in measured.items():
        name = f"links, {runtime} {kind} {clients}"
        every.add(sums)
        if sums.wrong:
            wrong.append(f"{name}: {sums.wrong} of {sums.certain} certain links are wrong")
        if sums.wrong_if_exchanged < sums.certain:
            wrong.append(f"{name}: links to the next request would not have been noticed")
        for what, of in (("each request", sums), ("all together", together)):
            for part in PARTS:
                share = of.share(of.beyond_ms[part])
                if share > MOST_BEYOND:
                    wrong.append(f"{name}: {part} of {what} is {share:.1%} beyond its range")
        times.append(
            [runtime, kind, clients]
            + [
                f"{of.share(of.beyond_ms[part]):.1%} ({of.share(of.width_ms[part]):.1%})"
                for of in (sums, together)
                for part in PARTS
            ]
        )
    if every.calls:
        by = "; ".join(f"{kind} {count}" for kind, count in every.by.most_common())
        rows.append(
            [
                RUNTIMES[runtime],
                clients,
                every.requests,
                every.calls,
                every.certain,
                every.wrong,
                accuracy.share(every.certain / every.calls),
                by,
            ]
        )
    return rows, times, wrong


def page(accuracy, rows, times):
    kinds = "`, `".join(kind.name for kind in KINDS)
    return (
        f"""## Calls and their requests

Servers of the lab `upstream`, several kinds each (`{kinds}`), forward the path of each request to
the other service. Each path has another length: so a recording shows which call was made for which
request, without whywait knowing. A link that is certain may never be wrong; how many calls have one
depends on the runtime and on how many requests are under way at a time.

"""
        + accuracy.table(
            [
                "runtime",
                "clients",
                "requests",
                "calls",
                "certain",
                "wrong",
                "share",
                "by",
            ],
            rows,
        )
        + f"""
Where links are undecided, the parts of a request's time are ranges. Against what the server and the
other service say of each request: what lies beyond the range, summed up, of all their time; and in
brackets how wide the ranges are. *Peers*: the other service had the call; *work*: the server
computed; *waiting*: all else, in the server. First for each request by itself, then for the sums of
the report. What differs by {SLACK_MS:g} ms or less a request does not count: the server does not
say it at the moment at which the kernel has it.

"""
        + accuracy.table(
            [
                "runtime",
                "kind",
                "clients",
                "peers",
                "work",
                "waiting",
                "peers, all",
                "work, all",
                "waiting, all",
            ],
            times,
            left=2,
        )
    )
