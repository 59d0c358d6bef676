"""What bursts of system-call tracing cost, and that healthy servers get none unless asked for.

Two runs of a server differ by more than bursts cost. So both sides come from one run: with
`--detail full` a burst comes every two seconds or so, and the server's own count of commands, read
every few milliseconds, says what it did in each burst and what it did in the second before. When
tracing is on is known from the kernel's count of the program's runs.
"""

import json
import random
import re
import socket
import statistics
import threading
import time

from . import bpf
from .process import Failed, run
from .watchers import Whywait

EVERY_S = 0.004
# What a burst leaves behind for whywait to work on is part of its cost.
AFTER_S = 0.2
# The server's own rate: this long before each burst.
BEFORE_S = 0.8
# Enough for an interval, and what a measurement may take.
MOST_BURSTS, FEWEST_BURSTS = 30, 4
MIN_LOAD_S = 15


class Full(Whywait):
    """A burst as often as is allowed, whether there is something to see or not: the most that
    bursts can cost."""

    name = "whywait, detail full"
    shown = "whywait record --detail full -p PID"
    options = ["--detail", "full"]


class Looks(threading.Thread):
    """Reads, every few milliseconds: the time, the commands that the server has done, runs and
    nanoseconds of the program."""

    def __init__(self, port, counters):
        super().__init__(daemon=True)
        self.counters = counters
        self.link = socket.create_connection(("127.0.0.1", port))
        self.over = threading.Event()
        self.rows = []

    def commands(self):
        self.link.sendall(b"INFO stats\r\n")
        text = b""
        while not (
            found := re.search(rb"total_commands_processed:(\d+)\r", text)
        ) or not text.endswith(b"\r\n"):
            more = self.link.recv(65536)
            if not more:
                raise Failed("the server closed the connection")
            text += more
        return int(found[1])

    def run(self):
        try:
            while not self.over.wait(EVERY_S):
                fields = dict(
                    re.findall(r"^(run_\w+):\s*(\d+)", self.counters.read_text(), re.MULTILINE)
                )
                self.rows.append(
                    (
                        time.monotonic(),
                        self.commands(),
                        int(fields["run_cnt"]),
                        int(fields["run_time_ns"]),
                    )
                )
        except (OSError, KeyError, Failed):
            pass  # the tool has ended, or the server has: what was read is there

    def __exit__(self, *_):
        self.over.set()
        self.join(5)
        self.link.close()

    def __enter__(self):
        self.start()
        return self


def bursts_in(rows):
    """Of the rows, the intervals in which the program ran: (first, last), with no gap of 50 ms in
    between."""
    intervals = []
    for at in range(1, len(rows)):
        if rows[at][2] == rows[at - 1][2]:
            continue
        if intervals and rows[at][0] - rows[intervals[-1][1]][0] < 0.05:
            intervals[-1][1] = at
        else:
            intervals.append([at - 1, at])
    return intervals


def cost_of(rows, first, last):
    """What a burst cost: for how long it traced, the share of its rate that the server lost
    meanwhile, and how many seconds of its work it lost in all. None when the server was not watched
    for long enough around it."""

    def nearest(seconds):
        return next((at for at in range(len(rows)) if rows[at][0] >= seconds), None)

    begin, end = rows[first], rows[last]
    before, after = nearest(begin[0] - BEFORE_S), nearest(end[0] + AFTER_S)
    if before is None or after is None or before >= first or rows[before][0] < rows[0][0] + EVERY_S:
        return None
    own = (begin[1] - rows[before][1]) / (begin[0] - rows[before][0])
    if own <= 0 or rows[before][2] != begin[2]:
        return None
    traced = (end[1] - begin[1]) / (end[0] - begin[0])
    behind = rows[after]
    return {
        "traced_s": end[0] - begin[0],
        "slower": 1 - traced / own,
        "lost_s": (behind[0] - begin[0]) - (behind[1] - begin[1]) / own,
        "calls": end[2] - begin[2],
        "ns": end[3] - begin[3],
        "began_s": begin[0],
    }


def measure(server_class, programs, tools, tmp, load_class, pairs, seconds, warm_up_s):
    """As many bursts as come in the time that so many pairs of runs would take."""
    server = server_class(tmp, programs)
    load = load_class(server, seconds, warm_up_s)
    found = {"bursts": [], "default_bursts": 0, "watched_s": 0.0}
    try:
        with Whywait(server.pid, tmp, tools) as watcher:
            load.warm_up(watcher.name)
            load(watcher.name)
            watcher.stop()
            report = json.loads(
                run([tools["whywait"], "report", watcher.recording, "--format", "json"])
            )
            found["default_bursts"] = report["coverage"].get("bursts", 0)
        while found["watched_s"] < 2 * pairs * seconds and len(found["bursts"]) < MOST_BURSTS:
            with Full(server.pid, tmp, tools) as watcher, bpf.Statistics():
                with Looks(server.port, bpf.counters_of(watcher.process.pid, "burst")) as looks:
                    begun = time.monotonic()
                    # In one go: where a load ends and the next one starts the server has less to
                    # do.
                    server.load(max(5 * seconds, MIN_LOAD_S), load.rates[Whywait.name])
                found["watched_s"] += time.monotonic() - begun
            costs = [cost_of(looks.rows, *burst) for burst in bursts_in(looks.rows)]
            found["bursts"] += [cost for cost in costs if cost]
    finally:
        server.end()
    return found


def interval(values, of=statistics.median, times=2000):
    """Between which values the figure lies in 95 of 100 samples that are drawn from these."""
    rng = random.Random(1)
    drawn = sorted(of(rng.choices(values, k=len(values))) for _ in range(times))
    return drawn[times // 40], drawn[-(times // 40) - 1]


# At most one part in so many of the time is traced (SHARE of the collector of bursts).
SHARE = 20


def section(title, found, table):
    """The page's part on bursts."""
    if not found or len(found.get("bursts", [])) < FEWEST_BURSTS:
        return "## Bursts of system-call tracing\n\nNot measured in this run."
    bursts = found["bursts"]

    def median(of, percent=100, digits=1):
        values = [percent * of(burst) for burst in bursts]
        low, high = interval(values)
        return f"{statistics.median(values):.{digits}f}", f"{low:.{digits}f} to {high:.{digits}f}"

    slower, slower_in = median(lambda burst: burst["slower"])
    lost, lost_in = median(lambda burst: burst["lost_s"], 1000)
    traced, traced_in = median(lambda burst: burst["traced_s"], 1000, 0)
    share, share_in = median(lambda burst: burst["lost_s"] / burst["traced_s"] / SHARE, digits=2)
    per_call, per_call_in = median(lambda burst: burst["ns"] / max(burst["calls"], 1), 1, 0)
    rows = [
        ["bursts on this server without `--detail full`", str(found["default_bursts"]), ""],
        ["a burst traces for, ms", traced, traced_in],
        ["throughput lost while it traces, %", slower, slower_in],
        [
            f"the server's work lost to a burst, with the {AFTER_S * 1e3:.0f} ms after it, ms",
            lost,
            lost_in,
        ],
        [
            f"of the throughput, where as much is traced as is allowed (1/{SHARE} of the time), %",
            share,
            share_in,
        ],
        ["a traced call, in the program itself, ns", per_call, per_call_in],
    ]
    return (
        f"## Bursts of system-call tracing\n\n{title} under `--detail full`, which makes bursts as "
        "often as they are allowed: "
        f"{len(bursts)} of them, each held against the {BEFORE_S * 1e3:.0f} ms before it in the "
        "same run. Medians, and between "
        "which values they lie (95 %, by resampling). The kernel's statistics are on meanwhile, "
        "which makes each traced call some "
        "20 ns more expensive than it is. By itself whywait makes bursts only where a thread polls "
        "without moving a byte.\n\n" + table(["what", "median", "95 %"], rows)
    )
