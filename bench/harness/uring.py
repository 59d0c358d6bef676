"""What watching io_uring costs: real fio as fast as it gets, on a file that is in the page cache."""

import json
import shutil
import statistics
import tempfile
import time
from pathlib import Path

from . import bpf
from .process import Failed, end, last_words, start
from .watchers import HERE

# Fast enough that nothing but the ring's own work is measured: many operations a call, small blocks, no clock reading.
FIO = ["fio", "--name=bench", "--ioengine=io_uring", "--rw=randread", "--bs=512", "--size=64m", "--norandommap",
       "--invalidate=0", "--iodepth=128", "--iodepth_batch_submit=64", "--iodepth_batch_complete_min=64",
       "--iodepth_batch_complete_max=128", "--gtod_reduce=1", "--thread", "--time_based", "--output-format=json"]
# What fio and the tool take to start and to end, besides the load.
PATIENCE_S = 60


def fio(folder, seconds):
    return [*FIO, f"--filename={folder / 'fio.dat'}", f"--runtime={max(1, round(seconds))}", f"--output={folder / 'fio.json'}"]


# How each tool is called around a command.
TOOLS = {
    "nothing (control)": ("–", lambda tools, tmp, command: command),
    "whywait": ("whywait record -- fio", lambda tools, tmp, command: [tools["whywait"], "record", "-o", tmp / "rec", "--", *command]),
    "bpftrace": ("bpftrace bench/uring.bt -c fio", lambda tools, tmp, command: [
        "bpftrace", "-c", " ".join(map(str, command)), HERE / "uring.bt"]),
    "perf record": ("perf record -e 'io_uring:*' -- fio", lambda tools, tmp, command: [
        tools["perf"], "record", "-q", "-e", "io_uring:*", "-o", tmp / "perf.data", "--", *command]),
}


def rate(name, tools, folder, seconds, while_it_runs=None):
    """Operations a second of fio with this tool around it."""
    tmp = Path(tempfile.mkdtemp(prefix="uring-", dir=folder))
    (folder / "fio.json").unlink(missing_ok=True)
    process = start(TOOLS[name][1](tools, tmp, fio(folder, seconds)), tmp / "log")
    try:
        if while_it_runs:
            while_it_runs(process)
        process.wait(timeout=seconds + PATIENCE_S)
        if process.returncode != 0:
            raise Failed(f"{name}: {last_words(tmp / 'log')}")
        job = json.loads((folder / "fio.json").read_text())["jobs"][0]
        return job["read"]["iops"]
    finally:
        end(process, 9)
        shutil.rmtree(tmp, ignore_errors=True)


def kernel_cost(tools, folder, runs, seconds):
    """Nanoseconds an operation, all programs together, and of each program; the median of the runs by the sum."""
    results = []
    rate("nothing (control)", tools, folder, 1)  # makes the file
    for _ in range(runs):
        found = {}

        def watch(process):
            time.sleep(5)
            before = bpf.costs(process.pid)
            time.sleep(seconds)
            found.update(bpf.difference(before, bpf.costs(process.pid)))
        with bpf.Statistics():
            rate("whywait", tools, folder, seconds + 6, watch)
        operations = found.get("io_uring_comple", found.get("io_uring_complete", {})).get("runs", 0)
        if not operations:
            raise Failed("fio completed nothing while it was watched")
        own = {name: cost for name, cost in found.items() if name.startswith("io_uring") or name.startswith("look_at_uring")}
        results.append({
            "operations_per_s": operations / seconds,
            "ns": sum(cost["ns"] for cost in own.values()) / operations,
            "all_ns": sum(cost["ns"] for cost in found.values()) / operations,
            "programs": {name: {"ns": cost["ns"] / cost["runs"], "runs": cost["runs"] / operations}
                         for name, cost in sorted(own.items())},
        })
    results.sort(key=lambda result: result["ns"])
    return {**results[len(results) // 2], "least_ns": results[0]["ns"], "most_ns": results[-1]["ns"], "runs": runs}


def overhead(tools, folder, pairs, seconds, rng):
    """For each tool: pairs of runs side by side in time, bare and watched; the order within a pair alternates."""
    results = {name: {"pairs": [], "failed": None} for name in TOOLS}
    rate("nothing (control)", tools, folder, 1)
    for pair in range(pairs):
        for name in rng.sample(list(TOOLS), len(TOOLS)):
            if results[name]["failed"]:
                continue
            order = ["nothing (control)", name] if pair % 2 == 0 else [name, "nothing (control)"]
            try:
                first, second = (rate(one, tools, folder, seconds) for one in order)
            except (Failed, OSError, ValueError, KeyError) as error:
                results[name]["failed"] = str(error)
                continue
            bare, watched = (first, second) if pair % 2 == 0 else (second, first)
            results[name]["pairs"].append({"bare": bare, "watched": watched, "lost": 1 - watched / bare})
    return results


def measure(tools, tmp, runs, pairs, seconds, rng):
    folder = Path(tempfile.mkdtemp(prefix="fio-", dir=tmp))
    return {"cost": kernel_cost(tools, folder, runs, max(2, seconds)),
            "overhead": overhead(tools, folder, pairs, max(2, seconds), rng)}


def render(figures):
    """Markdown, for the page."""
    if not figures:
        return []
    lines = ["## io_uring", "",
             "Real fio at the highest rate that this machine gives: random reads of 512 bytes from the page cache, 64 a call, "
             "128 under way.", ""]
    cost = figures["cost"]
    lines += [f"In the kernel, all of whywait's programs for io_uring together: **{cost['ns']:.0f} ns an operation** "
              f"({cost['least_ns']:.0f} to {cost['most_ns']:.0f} in {cost['runs']} runs) at {cost['operations_per_s']:,.0f} "
              "operations a second, with the kernel's run-time statistics on.", "",
              "| program | runs an operation | ns a run |", "|---|---:|---:|"]
    lines += [f"| `{name}` | {one['runs']:.3f} | {one['ns']:.0f} |" for name, one in cost["programs"].items()]
    lines += ["", "Throughput lost, paired:", "", "| tool | median | quartiles | pairs |", "|---|---:|---:|---:|"]
    for name, result in figures["overhead"].items():
        shown = TOOLS[name][0]
        lost = [pair["lost"] * 100 for pair in result["pairs"]]
        if not lost:
            lines.append(f"| {name} (`{shown}`) | {result['failed'] or 'not measured'} | | |")
            continue
        quartiles = statistics.quantiles(lost, n=4, method="inclusive") if len(lost) > 1 else lost * 3
        lines.append(f"| {name} (`{shown}`) | {statistics.median(lost):.1f} % | {quartiles[0]:.1f} to {quartiles[2]:.1f} % "
                     f"| {len(lost)} |")
    return [*lines, ""]
