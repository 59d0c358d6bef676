"""What watching io_uring costs: real fio as fast as it gets, on a file that is in the page cache,
and the lab `relay`."""

import json
import os
import shutil
import signal
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

from . import bpf
from .process import Failed, end, last_words, start, wait_for
from .watchers import HERE

# Fast enough that nothing but the ring's own work is measured: many operations a call, small
# blocks, no clock reading.
FIO = [
    "--name=bench",
    "--ioengine=io_uring",
    "--rw=randread",
    "--bs=512",
    "--size=64m",
    "--norandommap",
    "--invalidate=0",
    "--iodepth=128",
    "--iodepth_batch_submit=64",
    "--iodepth_batch_complete_min=64",
    "--iodepth_batch_complete_max=128",
    "--gtod_reduce=1",
    "--thread",
    "--time_based",
    "--output-format=json",
]
# What a load and the tool take to start and to end, besides the load.
PATIENCE_S = 60
LABS = HERE.parent / "labs"
# So many packets a second come in, of which the relay passes on what it can.
OFFERED = 500_000
# The relay's own, until pool and queue are as full as they will be.
RELAY_WARM_UP_S = 0.5
# Of the relay, pairs of runs: one takes as long as the load and some seconds more.
RELAY_PAIRS = 5
RELAY_VARIANTS = ("all-fixed", "published")


class Fio:
    """Rates are operations a second."""

    name = "fio"
    about = (
        "real fio at the highest rate that this machine gives: random reads of 512 bytes from "
        "the page cache, 64 a call, 128 under way"
    )
    # Until it is attached and fio under way.
    settle_s = 3

    def __init__(self, folder):
        self.folder = folder
        # Whole: bpftrace refuses a name that it finds in two places, and /bin is /usr/bin on most
        # systems.
        self.program = shutil.which("fio")
        if not self.program:
            raise Failed("fio: not found")
        self.rate("nothing (control)", {}, 1)  # makes the file

    def rate(self, name, tools, seconds, while_it_runs=None):
        """With this tool around it."""
        tmp = Path(tempfile.mkdtemp(prefix="uring-", dir=self.folder))
        result = tmp / "fio.json"
        command = [
            self.program,
            *FIO,
            f"--filename={self.folder / 'fio.dat'}",
            f"--runtime={max(1, round(seconds))}",
            f"--output={result}",
        ]
        process = start(TOOLS[name][1](tools, tmp, command), tmp / "log")
        try:
            if while_it_runs:
                while_it_runs(process)
            process.wait(timeout=seconds + PATIENCE_S)
            if process.returncode != 0:
                raise Failed(f"{name}: {last_words(tmp / 'log')}")
            return json.loads(result.read_text())["jobs"][0]["read"]["iops"]
        finally:
            end(process, signal.SIGKILL)
            shutil.rmtree(tmp, ignore_errors=True)


class Relay:
    """A variant of the lab `relay`. Rates are packets for each second that its egress thread is on
    a CPU, as in docs/accuracy.md: it never has nothing to do, and what else the machine does
    changes that less than packets a second."""

    settle_s = RELAY_WARM_UP_S + 0.3

    def __init__(self, folder, variant):
        self.folder, self.variant = folder, variant
        self.name = f"relay {variant}"
        subprocess.run(
            [
                "cargo",
                "build",
                "--quiet",
                "--release",
                "--locked",
                "--manifest-path",
                LABS / "Cargo.toml",
                "--target-dir",
                LABS / "target",
                "-p",
                "relay",
                "-p",
                "lab-load",
            ],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        self.release = LABS / "target/release"
        self.options = self.options_of(variant)

    @staticmethod
    def options_of(variant):
        """The server's arguments, as the lab has them."""
        try:
            import tomllib
        except ImportError:
            raise Failed("this needs python 3.11 or newer") from None
        lab = tomllib.loads((LABS / "relay/lab.toml").read_text())
        return (lab["variant"][variant].get("server") or lab["common"]["server"])[1:]

    def rate(self, name, tools, seconds, while_it_runs=None):
        """With this tool around it."""
        tmp = Path(tempfile.mkdtemp(prefix="uring-", dir=self.folder))
        ready = tmp / "ready"
        process = start(
            TOOLS[name][1](tools, tmp, [self.release / "relay", *self.options]),
            tmp / "log",
            env={**os.environ, "READY_FILE": str(ready)},
        )
        load, relay = None, None

        def announced():
            if process.poll() is not None:
                raise Failed(f"{name}: {last_words(tmp / 'log')}")
            line = ready.read_text() if ready.exists() else ""
            return line.split() if line.endswith("\n") else None

        try:
            pid, address = wait_for(f"{name}: the relay", announced)
            relay = int(pid)
            load = subprocess.Popen(
                [
                    self.release / "lab-load",
                    "relay",
                    address,
                    "--rate",
                    str(OFFERED),
                    "--seconds",
                    str(max(1, round(seconds))),
                ],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            if while_it_runs:
                while_it_runs(process)
            said, _ = load.communicate(timeout=seconds + PATIENCE_S)
            truth = next(
                (line for line in said.splitlines() if line.startswith("ground-truth: ")), None
            )
            if load.returncode != 0 or not truth:
                raise Failed(
                    f"{name}: the load: {(said.strip().splitlines() or ['silence'])[-1][:200]}"
                )
            return json.loads(truth.removeprefix("ground-truth: "))["packets_per_cpu_s"]
        finally:
            if load and load.poll() is None:
                load.kill()
                load.wait()
            if relay and process.poll() is None:
                # The tool ends with it.
                stop(relay)
            try:
                process.wait(timeout=PATIENCE_S)
            except subprocess.TimeoutExpired:
                end(process, signal.SIGKILL)
            shutil.rmtree(tmp, ignore_errors=True)


def stop(pid):
    try:
        os.kill(pid, signal.SIGTERM)
    except ProcessLookupError:
        pass


# How each tool is called around a command, and how that is shown.
TOOLS = {
    "nothing (control)": ("–", lambda tools, tmp, command: command),
    "whywait": (
        "whywait record -- CMD",
        lambda tools, tmp, command: [tools["whywait"], "record", "-o", tmp / "rec", "--", *command],
    ),
    "bpftrace": (
        "bpftrace bench/uring.bt -c CMD",
        lambda tools, tmp, command: [
            "bpftrace",
            "-c",
            " ".join(map(str, command)),
            HERE / "uring.bt",
        ],
    ),
    "perf record": (
        "perf record -e 'io_uring:*' -- CMD",
        lambda tools, tmp, command: [
            tools["perf"],
            "record",
            "-q",
            "-e",
            "io_uring:*",
            "-o",
            tmp / "perf.data",
            "--",
            *command,
        ],
    ),
}


def kernel_cost(load, tools, runs, seconds):
    """Nanoseconds an operation, all programs together, and of each program; the median of the runs
    by the sum."""
    results = []
    for _ in range(runs):
        found = {}

        def watch(process):
            time.sleep(load.settle_s)
            before = bpf.costs(process.pid)
            time.sleep(seconds)
            found.update(bpf.difference(before, bpf.costs(process.pid)))

        with bpf.Statistics():
            load.rate("whywait", tools, seconds + load.settle_s + 2, watch)
        operations = found.get("io_uring_comple", found.get("io_uring_complete", {})).get("runs", 0)
        if not operations:
            raise Failed(f"{load.name} completed nothing while it was watched")
        own = {
            name: cost
            for name, cost in found.items()
            if name.startswith("io_uring") or name.startswith("look_at_uring")
        }
        results.append(
            {
                "operations_per_s": operations / seconds,
                "ns": sum(cost["ns"] for cost in own.values()) / operations,
                "all_ns": sum(cost["ns"] for cost in found.values()) / operations,
                "programs": {
                    name: {"ns": cost["ns"] / cost["runs"], "runs": cost["runs"] / operations}
                    for name, cost in sorted(own.items())
                },
            }
        )
    results.sort(key=lambda result: result["ns"])
    return {
        **results[len(results) // 2],
        "least_ns": results[0]["ns"],
        "most_ns": results[-1]["ns"],
        "runs": runs,
    }


def overhead(load, tools, pairs, seconds, rng):
    """For each tool: pairs of runs one after the other, bare and watched; the order within a pair
    alternates."""
    results = {name: {"pairs": [], "failed": None} for name in TOOLS}
    for pair in range(pairs):
        for name in rng.sample(list(TOOLS), len(TOOLS)):
            if results[name]["failed"]:
                continue
            order = ["nothing (control)", name] if pair % 2 == 0 else [name, "nothing (control)"]
            try:
                first, second = (load.rate(one, tools, seconds) for one in order)
            except (Failed, OSError, ValueError, KeyError, subprocess.SubprocessError) as error:
                results[name]["failed"] = str(error)
                continue
            bare, watched = (first, second) if pair % 2 == 0 else (second, first)
            results[name]["pairs"].append(
                {"bare": bare, "watched": watched, "lost": 1 - watched / bare}
            )
    return results


def measure(tools, tmp, runs, pairs, seconds, rng):
    seconds = max(2, seconds)
    with tempfile.TemporaryDirectory(prefix="fio-", dir=tmp) as folder:
        folder = Path(folder)
        fio = Fio(folder)
        figures = {
            "cost": kernel_cost(fio, tools, runs, seconds),
            "overhead": overhead(fio, tools, pairs, seconds, rng),
            "relay": {},
        }
        for variant in RELAY_VARIANTS:
            try:
                relay = Relay(folder, variant)
                figures["relay"][variant] = {
                    "cost": kernel_cost(relay, tools, runs, seconds),
                    "overhead": overhead(relay, tools, min(pairs, RELAY_PAIRS), seconds, rng)
                    if variant == "all-fixed"
                    else {},
                }
            except (Failed, OSError, ValueError, KeyError, subprocess.SubprocessError) as error:
                figures["relay"][variant] = {"failed": str(error)}
        return figures


def costliest_relay(figures):
    """What a packet costs in the variant of the relay in which it costs most; `None` unless all
    were measured."""
    relay = (figures or {}).get("relay") or {}
    costs = {variant: one["cost"]["ns"] for variant, one in relay.items() if one.get("cost")}
    return max(costs.values()) if len(costs) == len(RELAY_VARIANTS) else None


def cost_lines(cost, operation):
    lines = [
        f"In the kernel, all of whywait's programs for io_uring together: **{cost['ns']:.0f} ns "
        f"{operation}** "
        f"({cost['least_ns']:.0f} to {cost['most_ns']:.0f} in {cost['runs']} runs) at "
        f"{cost['operations_per_s']:,.0f} "
        "operations a second, with the kernel's run-time statistics on. All of whywait's programs, "
        "those for threads, sockets and samples "
        f"too: {cost['all_ns']:.0f} ns.",
        "",
        "| program | runs an operation | ns a run |",
        "|---|---:|---:|",
    ]
    return (
        lines
        + [
            f"| `{name}` | {one['runs']:.3f} | {one['ns']:.0f} |"
            for name, one in cost["programs"].items()
        ]
        + [""]
    )


def overhead_lines(overhead):
    lines = [
        "Throughput lost, paired:",
        "",
        "| tool | median | quartiles | pairs |",
        "|---|---:|---:|---:|",
    ]
    for name, result in overhead.items():
        shown = TOOLS[name][0]
        lost = [pair["lost"] * 100 for pair in result["pairs"]]
        if not lost:
            why = (result["failed"] or "not measured").replace("|", "/")
            lines.append(f"| {name} (`{shown}`) | {why} | | |")
            continue
        quartiles = (
            statistics.quantiles(lost, n=4, method="inclusive") if len(lost) > 1 else lost * 3
        )
        lines.append(
            f"| {name} (`{shown}`) | {statistics.median(lost):.1f} % | {quartiles[0]:.1f} to "
            f"{quartiles[2]:.1f} % "
            f"| {len(lost)} |"
        )
    return [*lines, ""]


def render(figures):
    """Markdown, for the page."""
    if not figures:
        return ["## io_uring", "", "Not measured."]
    lines = [
        "## io_uring",
        "",
        "### fio",
        "",
        f"{Fio.about[0].upper()}{Fio.about[1:]}.",
        "",
        *cost_lines(figures["cost"], "an operation"),
        *overhead_lines(figures["overhead"]),
    ]
    for variant, one in (figures.get("relay") or {}).items():
        lines += [f"### The lab `relay`, `{variant}`", ""]
        if one.get("failed"):
            lines += [f"Not measured: {one['failed']}", ""]
            continue
        lines += [
            "Packets of 1400 bytes, each sent by an operation of its own.",
            "",
            *cost_lines(one["cost"], "a packet"),
        ]
        if one["overhead"]:
            lines += [
                "A rate here is packets for each second that the egress thread is on a CPU, which "
                "includes what the programs take there.",
                "",
                *overhead_lines(one["overhead"]),
            ]
    return lines
