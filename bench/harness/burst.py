"""What bursts of system-call tracing cost, and that healthy servers get none unless asked for."""

import json
import statistics

from . import bpf
from .process import run
from .watchers import Whywait


class Full(Whywait):
    """A burst as often as is allowed, whether there is something to see or not: the most that bursts can cost."""

    name = "whywait, detail full"
    shown = "whywait record --detail full -p PID"
    options = ["--detail", "full"]


def measure(server_class, programs, tools, tmp, load_class, pairs, seconds, warm_up_s):
    """Pairs of runs with and without bursts; the order within a pair alternates."""
    server = server_class(tmp, programs)
    load = load_class(server, seconds, warm_up_s)
    found = {"pairs": [], "default_bursts": 0, "bursts": [], "traced_share": [], "per_call_ns": None}
    try:
        for pair in range(pairs):
            order = [Whywait, Full] if pair % 2 == 0 else [Full, Whywait]
            rates = {}
            for watcher_class in order:
                # Long enough that the share of the time is what it is in the long run.
                rates[watcher_class.name], coverage, took_s = watched(watcher_class, server, load, tools, tmp)
                if watcher_class is Full:
                    found["bursts"].append(coverage.get("bursts", 0))
                    found["traced_share"].append(coverage.get("traced_ns", 0) / 1e9 / took_s)
                else:
                    found["default_bursts"] += coverage.get("bursts", 0)
            found["pairs"].append({"default": rates[Whywait.name], "full": rates[Full.name]})
        with Full(server.pid, tmp, tools) as watcher, bpf.Statistics():
            before = bpf.costs(watcher.process.pid)
            load(Full.name)
            ran = bpf.difference(before, bpf.costs(watcher.process.pid)).get("burst")
            if ran and ran["runs"]:
                found["per_call_ns"] = ran["ns"] / ran["runs"]
    finally:
        server.end()
    return found


def watched(watcher_class, server, load, tools, tmp):
    """A load's rate, and what the recording says of its coverage."""
    with watcher_class(server.pid, tmp, tools) as watcher:
        load.warm_up(watcher.name)
        rate = load(watcher.name)["rps"]
        watcher.stop()
        report = json.loads(run([tools["whywait"], "report", watcher.recording, "--format", "json"]))
    return rate, report["coverage"], max(report["target"]["duration_ns"] / 1e9, 1e-3)


def section(title, found, table):
    """The page's part on bursts."""
    if not found or not found.get("pairs"):
        return "## Bursts of system-call tracing\n\nNot measured in this run."
    lost = [100 * (1 - pair["full"] / pair["default"]) for pair in found["pairs"]]
    per_call = found["per_call_ns"]
    rows = [
        ["bursts on this server without `--detail full`", str(found["default_bursts"])],
        ["share of the time that `--detail full` traces, median", f"{100 * statistics.median(found['traced_share']):.1f} %"],
        ["throughput that these bursts take on top, median of pairs", f"{statistics.median(lost):.1f} % "
         f"({min(lost):.1f} to {max(lost):.1f})"],
        ["a traced call, in the program itself", f"{per_call:.0f} ns" if per_call else "not measured"],
    ]
    return (f"## Bursts of system-call tracing\n\n{title}: whywait as it is, and with `--detail full`, which makes bursts as often "
            f"as they are allowed; {len(found['pairs'])} pairs. By itself whywait makes them only where a thread polls without "
            "moving a byte.\n\n" + table(["what", "measured"], rows))
