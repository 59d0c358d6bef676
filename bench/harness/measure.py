"""What is measured. Each function gives figures only; what to call them is the page's business."""

import json
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from . import bpf, parquet
from .process import Failed, cpu_seconds, end, run, timed
from .watchers import WATCHERS, Bpftrace, Empty, PerfSched, Whywait, iterators

ROOT = Path(__file__).resolve().parent.parent.parent
MILLION = 1_000_000
# For tools that cost so much that more would not say more.
FEW_PAIRS = 3


def say(text):
    print(f"bench: {text}", file=sys.stderr, flush=True)


def spread(values):
    """Median, quartiles and extremes."""
    ordered = sorted(values)
    quartiles = (
        statistics.quantiles(ordered, n=4, method="inclusive") if len(ordered) > 1 else ordered * 3
    )
    return {
        "median": statistics.median(ordered),
        "q1": quartiles[0],
        "q3": quartiles[2],
        "min": ordered[0],
        "max": ordered[-1],
        "n": len(ordered),
    }


class Load:
    """A server's load, which remembers how fast it went with each watcher."""

    def __init__(self, server, seconds, warm_up_s=0.0):
        self.server, self.seconds, self.warm_up_s, self.rates = server, seconds, warm_up_s, {}

    def warm_up(self, watcher_name):
        """Load that is not measured: the server's caches, and the stacks that a tool meets for the
        first time."""
        if self.warm_up_s:
            self.server.load(self.warm_up_s, self.rates.get(watcher_name, 3000))

    def bare(self):
        self.warm_up("bare")
        return self("bare")

    def __call__(self, watcher_name):
        # At first the rate is a guess, low enough for the slowest tool.
        cpu_s = cpu_seconds(self.server.pid)
        result = self.server.load(self.seconds, self.rates.get(watcher_name, 3000))
        result["server_cpu_s"] = cpu_seconds(self.server.pid) - cpu_s
        self.rates[watcher_name] = result["rps"]
        return result


def overhead(server_class, programs, tools, tmp, pairs, seconds, warm_up_s, rng):
    """For each watcher: pairs of runs, bare and watched, one after the other; the order within a
    pair alternates."""
    server = server_class(tmp, programs)
    load = Load(server, seconds, warm_up_s)
    results = {watcher.name: {"pairs": [], "failed": None} for watcher in WATCHERS}
    try:
        for watcher in WATCHERS:  # the rates, not counted
            try:
                watched_run(watcher, server, load, tools, tmp)
            except Failed as error:
                results[watcher.name]["failed"] = str(error)
                say(f"{server.name}: {watcher.name}: {error}")
        load("bare")
        load("bare")
        for pair in range(pairs):
            for watcher in rng.sample(WATCHERS, len(WATCHERS)):
                result = results[watcher.name]
                if result["failed"] or watcher.few_pairs and pair >= FEW_PAIRS:
                    continue
                try:
                    if pair % 2 == 0:
                        bare, watched = load.bare(), watched_run(watcher, server, load, tools, tmp)
                    else:
                        watched, bare = watched_run(watcher, server, load, tools, tmp), load.bare()
                except Failed as error:
                    result["failed"] = str(error)
                    say(f"{server.name}: {watcher.name}: {error}")
                    continue
                result["pairs"].append({"bare": bare, "watched": watched})
            say(
                f"{server.name}: pair {pair + 1} of {pairs}: "
                + ", ".join(
                    f"{name} {lost(result['pairs'][-1]):+.1f} %"
                    for name, result in results.items()
                    if len(result["pairs"]) > pair
                )
            )
    finally:
        server.end()
    return results


def lost(pair):
    return 100 * (1 - pair["watched"]["rps"] / pair["bare"]["rps"])


def cpu_a_request(result):
    """CPU seconds of the server. Other programs' CPU time, which takes throughput, is not in it."""
    return result["server_cpu_s"] / result["requests"]


def watched_run(watcher_class, server, load, tools, tmp):
    with watcher_class(server.pid, tmp, tools) as watcher:
        load.warm_up(watcher.name)
        begun, cpu_s = time.monotonic(), watcher.cpu_s()
        result = load(watcher.name)
        result["tool_cpu_share"] = (watcher.cpu_s() - cpu_s) / (time.monotonic() - begun)
    return result


# What is put on and taken off by turns; see bench/toggle.
TOGGLED = ("whywait", "empty", "control")


def toggled(server_class, programs, tmp, rounds, window_ms):
    """For each of TOGGLED what part of its throughput the server lost in each round, while hooks
    were put on and taken off by turns."""
    server = server_class(tmp, programs)
    found = {}
    try:
        for what in TOGGLED:
            load = server.endless_load()
            try:
                time.sleep(0.5)  # it has connected by then, or the first rounds are slower
                with tempfile.TemporaryDirectory(dir=tmp) as folder:
                    printed = run(
                        [
                            programs / "bench-toggle",
                            server.pid,
                            rounds,
                            window_ms,
                            Path(folder, "recording"),
                            what,
                        ]
                    )
            finally:
                end(load, signal.SIGKILL)
            windows = [json.loads(line) for line in printed.splitlines()]
            found[what] = {
                "lost": [lost_in(windows, number) for number in range(rounds)],
                "dearer": [dearer_in(windows, number) for number in range(rounds)],
                "cpu_a_packet_s": statistics.median(
                    one["server_cpu_s"] / one["packets"] for one in windows if not one["on"]
                ),
                "packets": statistics.median(
                    one["packets"] / one["seconds"] for one in windows if not one["on"]
                ),
                "tool_cpu_share": sum(one["tool_cpu_s"] for one in windows if one["on"])
                / sum(one["seconds"] for one in windows if one["on"]),
            }
            say(f"{server.name}: {what}: lost {statistics.median(found[what]['lost']):+.1f} %")
    finally:
        server.end()
    return found


def a_packet(windows, number, on, what):
    """How much of something there was for each packet, in a round, with the hooks on or off."""
    chosen = [one for one in windows if one["round"] == number and one["on"] == on]
    return sum(one[what] for one in chosen) / sum(one["packets"] for one in chosen)


def lost_in(windows, number):
    """Percent fewer packets with the hooks on than with them off, in a round."""
    off, on = (a_packet(windows, number, on, "seconds") for on in (False, True))
    return 100 * (1 - off / on)


def dearer_in(windows, number):
    """Percent more CPU time of the server for each packet with the hooks on, in a round."""
    off, on = (a_packet(windows, number, on, "server_cpu_s") for on in (False, True))
    return 100 * (on / off - 1)


def median_bounds(values):
    """Between which of the values the median lies with 95 % confidence: from the binomial
    distribution, as many lie below it as above."""
    ordered = sorted(values)
    aside = int((len(ordered) - 1.96 * len(ordered) ** 0.5) / 2)
    return (ordered[max(0, aside)], ordered[min(len(ordered), len(ordered) - aside) - 1])


def kernel_cost(server_class, programs, tools, tmp, runs, seconds):
    """What each BPF tool's programs cost, with the kernel's statistics on, which themselves cost
    some of it."""
    server = server_class(tmp, programs)
    load = Load(server, seconds)
    found = {}
    no_hooks = iterators()
    try:
        for watcher_class in (Whywait, Bpftrace, Empty):
            total, requests, took = {}, 0, 0.0
            try:
                with watcher_class(server.pid, tmp, tools) as watcher, bpf.Statistics():
                    load(watcher.name)  # the rate, not counted
                    for _ in range(runs):
                        before, begun = bpf.costs(watcher.process.pid), time.monotonic()
                        requests += load(watcher.name)["requests"]
                        took += time.monotonic() - begun
                        for name, cost in bpf.difference(
                            before, bpf.costs(watcher.process.pid)
                        ).items():
                            entry = total.setdefault(name, {"ns": 0, "runs": 0})
                            entry["ns"] += cost["ns"]
                            entry["runs"] += cost["runs"]
            except (Failed, OSError) as error:
                found[watcher_class.name] = {"failed": str(error)}
                say(f"{server.name}: cost of {watcher_class.name}: {error}")
                continue
            hooks = [cost for name, cost in total.items() if name not in no_hooks]
            found[watcher_class.name] = {
                "programs": total,
                "requests": requests,
                "seconds": took,
                "no_hooks": sorted(no_hooks & total.keys()),
                "ns_per_event": sum(cost["ns"] for cost in hooks)
                / max(1, sum(cost["runs"] for cost in hooks)),
                "events_per_request": sum(cost["runs"] for cost in hooks) / requests,
                "cpu_share": sum(cost["ns"] for cost in total.values())
                / 1e9
                / took
                / os.cpu_count(),
            }
            say(
                f"{server.name}: {watcher_class.name}: "
                f"{found[watcher_class.name]['ns_per_event']:.0f} ns an event"
            )
    finally:
        server.end()
    return found


def recording(server_class, programs, tools, tmp, seconds, options):
    """A recording of a saturated server: its size, and what whywait says of itself."""
    server = server_class(tmp, programs)
    load = Load(server, seconds)
    try:
        load("bare")

        class Told(Whywait):
            pass

        Told.options = options
        with Told(server.pid, tmp, tools) as watcher:
            result = load("bare")
            watcher.stop()
            tables = parquet.tables(watcher.recording)
            found = {
                "requests": result["requests"],
                "bytes": sum(
                    f.stat().st_size for f in watcher.recording.rglob("*.*") if f.is_file()
                ),
                "tables": tables,
                "options": options,
            }
            found["stacks"] = json.loads(run([programs / "bench-stacks", watcher.recording]))
            try:
                report = json.loads(
                    run([tools["whywait"], "report", watcher.recording, "--format", "json"])
                )
                found["events"] = report["coverage"]["events"]
                found["lost"] = report["coverage"]["lost"]
                found["closure"] = report["requests"]["closure"]
                found["requests_seen"] = report["requests"]["count"]
            except (Failed, ValueError, KeyError) as error:
                found["failed"] = str(error)
                say(f"{server.name}: report: {error}")
        return found
    finally:
        server.end()


def written_by(server_class, programs, tools, tmp, seconds):
    """Bytes that a recorder wrote for the same load: `perf sched record` and whywait."""
    server = server_class(tmp, programs)
    load = Load(server, seconds)
    try:
        load("bare")
        found = {}
        for watcher_class in (Whywait, PerfSched):
            with watcher_class(server.pid, tmp, tools) as watcher:
                requests = load("bare")["requests"]
                watcher.stop()
                found[watcher.name] = watcher.bytes_written() / requests
        return found
    finally:
        server.end()


def analysis(programs, tools, tmp, recordings, times):
    """How fast made-up recordings, each of a kind and with so many rows, are analysed on one CPU,
    and in how much memory."""
    found = []
    for kind, count in recordings:
        target = Path(tmp, f"generated-{kind}-{count}")
        try:
            written = json.loads(run([programs / "bench-generate", count, target, kind]))
            entry = {
                "kind": kind,
                "tables": written,
                "rows": sum(written.values()),
                "bytes": sum(f.stat().st_size for f in target.rglob("*.*") if f.is_file()),
            }
            try:
                entry["runs"] = [
                    timed([tools["whywait"], "report", target, "--format", "json"], cpu=0)
                    for _ in range(times)
                ]
                best = min(entry["runs"], key=lambda one: one["cpu_s"])
                say(
                    f"analysis, {kind}: {entry['rows'] / best['cpu_s'] / 1e6:.2f} M rows/s, "
                    f"{best['rss_kib'] / 1024:.0f} MiB"
                )
            except Failed as error:
                entry["failed"] = str(error)
                say(f"analysis: {error}")
            found.append(entry)
            if "failed" in entry:
                break  # a longer one would fail too, later
        finally:
            shutil.rmtree(target, ignore_errors=True)
    return found


def startup(tools, times):
    """Wall time of `whywait -- true` beyond that of `true`."""
    pairs = []
    for _ in range(times):
        bare = timed(["true"])["wall_s"]
        pairs.append(timed([tools["whywait"], "--", "true"])["wall_s"] - bare)
    return spread(pairs)


def binary(tools):
    """The binary's size, and whether there are symbols left in it to strip."""
    with tempfile.NamedTemporaryFile() as stripped:
        subprocess.run(["strip", "-o", stripped.name, tools["whywait"]], check=True)
        return {
            "bytes": os.stat(tools["whywait"]).st_size,
            "stripped_bytes": os.stat(stripped.name).st_size,
        }


def clean_build(tmp):
    """Wall seconds of a build from nothing; sources of dependencies are there already."""
    target = Path(tmp, "target")
    run(["cargo", "fetch", "--locked"], cwd=ROOT)
    begun = time.monotonic()
    run(
        ["cargo", "build", "--release", "--locked", "-p", "whywait", "--target-dir", target],
        cwd=ROOT,
    )
    took = time.monotonic() - begun
    shutil.rmtree(target, ignore_errors=True)
    return took


def machine():
    """What it was measured on."""
    model = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        "unknown",
    )
    memory = int(Path("/proc/meminfo").read_text().split()[1]) // 1024
    release = dict(
        line.partition("=")[::2] for line in Path("/etc/os-release").read_text().splitlines()
    )
    # What is not committed makes a figure hard to repeat; the pages themselves are what a run
    # changes.
    dirty = run(
        [
            "git",
            "status",
            "--porcelain",
            "--untracked-files=no",
            "--",
            ".",
            ":!docs/performance.md",
            ":!README.md",
        ],
        cwd=ROOT,
    )
    return {
        "cpu": model,
        "cpus": os.cpu_count(),
        "memory_mib": memory,
        "kernel": os.uname().release,
        "system": release.get("PRETTY_NAME", "unknown").strip('"'),
        "revision": run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT).strip(),
        "dirty": bool(dirty.strip()),
        "load_average": os.getloadavg()[0],
        "virtual": "hypervisor" in Path("/proc/cpuinfo").read_text(),
    }


def versions(tools):
    def first_line(command):
        try:
            return run(command).strip().splitlines()[0]
        except (Failed, OSError, IndexError):
            return "missing"

    return {
        "whywait": first_line([tools["whywait"], "--version"]),
        "bpftrace": first_line(["bpftrace", "--version"]),
        "perf": first_line([tools["perf"], "--version"]),
        "strace": first_line(["strace", "--version"]),
        "redis": first_line(["redis-server", "--version"]),
        "rustc": first_line(["rustc", "--version"]),
    }


def seeded(seed):
    return random.Random(seed)
