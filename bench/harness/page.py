"""docs/performance.md out of the figures. No figure is typed in here but the targets."""

import sys
from pathlib import Path

from . import burst, uring
from .measure import FEW_PAIRS, TOGGLED, cpu_a_request, lost, median_bounds, spread
from .servers import SERVERS, Redis, Threads
from .watchers import WATCHERS, Bpftrace, Empty, Nothing, Whywait

HERE = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(HERE.parent / "scripts"))
from markdown import wrap  # noqa: E402

MISSING = "not measured"


def table(head, rows):
    lines = [
        "| " + " | ".join(head) + " |",
        "|" + "|".join("---" if i == 0 else "---:" for i in range(len(head))) + "|",
    ]
    return (
        "\n".join(lines + ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows])
        + "\n"
    )


def losses(figures, server, watcher):
    result = figures["overhead"].get(server, {}).get(watcher, {"pairs": []})
    return spread([lost(pair) for pair in result["pairs"]]) if result["pairs"] else None


def median(values):
    return spread(list(values))["median"]


def dearer(pair):
    """How much more CPU time the server took for a request while it was watched, a part of one."""
    return cpu_a_request(pair["watched"]) / cpu_a_request(pair["bare"]) - 1


def overhead_table(figures, server):
    rows = []
    for watcher in WATCHERS:
        result = figures["overhead"].get(server, {}).get(watcher.name)
        if not result or not result["pairs"]:
            why = (result or {}).get("failed") or MISSING
            rows.append([f"{watcher.name}", why.replace("|", "/"), *[""] * 7])
            continue
        percent = losses(figures, server, watcher.name)
        pairs = result["pairs"]
        rows.append(
            [
                f"`{watcher.shown}`" if watcher is not Nothing else watcher.name,
                f"**{percent['median']:.1f} %**",
                f"{percent['q1']:.1f} … {percent['q3']:.1f}",
                f"{percent['min']:.1f} … {percent['max']:.1f}",
                f"{median(pair['bare']['rps'] for pair in pairs):,.0f}",
                f"{median(pair['watched']['rps'] for pair in pairs):,.0f}",
                f"{median(p['watched']['p99_us'] / p['bare']['p99_us'] for p in pairs):.2f} x",
                f"{100 * median(dearer(pair) for pair in pairs):+.1f} %",
                f"{100 * median(pair['watched']['tool_cpu_share'] for pair in pairs):.0f} %",
            ]
        )
    return table(
        [
            "watched by",
            "throughput lost, median",
            "quartiles, %",
            "extremes, %",
            "bare, 1/s",
            "watched, 1/s",
            "p99 latency",
            "server's CPU time a request",
            "tool's own CPU",
        ],
        rows,
    )


TOGGLED_SHOWN = {
    "whywait": "`whywait record -p PID`",
    "empty": "of that: the same hooks, which do nothing",
    "control": "nothing (control)",
}


def toggled_lost(figures, server, what="whywait"):
    """Percent of its throughput that a server lost, or None."""
    found = (figures["toggled"].get(server) or {}).get(what)
    return median(found["lost"]) if found else None


def toggled_table(figures):
    rows = []
    for server in SERVERS:
        found = figures["toggled"].get(server.name) or {}
        for what in TOGGLED:
            if what not in found:
                rows.append([server.name, TOGGLED_SHOWN[what], MISSING, *[""] * 6])
                continue
            percent, one = spread(found[what]["lost"]), found[what]
            low, high = median_bounds(one["lost"])
            rows.append(
                [
                    server.name,
                    TOGGLED_SHOWN[what],
                    f"**{percent['median']:.1f} %**",
                    f"{low:.1f} … {high:.1f}",
                    f"{percent['q1']:.1f} … {percent['q3']:.1f}",
                    f"{one['packets'] / 2:,.0f}",
                    f"{median(one['dearer']):+.1f} %",
                    f"{1e6 * one['cpu_a_packet_s']:.2f} us",
                    f"{100 * one['tool_cpu_share']:.1f} %" if what != "control" else "–",
                ]
            )
    return table(
        [
            "server",
            "watched by",
            "throughput lost, median",
            "95 % bounds of the median",
            "quartiles of the rounds, %",
            "bare, 1/s",
            "server's CPU time a packet",
            "bare",
            "whywait's own thread, of one CPU",
        ],
        rows,
    )


def noise(figures):
    """How wide the control is: what lies within it cannot be told from nothing."""
    found = []
    for server in SERVERS:
        percent = losses(figures, server.name, Nothing.name)
        if percent:
            found.append(f"{percent['q1']:.1f} to {percent['q3']:.1f} % for {server.name}")
    return "; ".join(found) or MISSING


def cost_tables(figures):
    rows, programs = [], []
    for server in SERVERS:
        for watcher in (Whywait, Bpftrace, Empty):
            cost = figures["cost"].get(server.name, {}).get(watcher.name)
            if not cost or "failed" in cost:
                rows.append(
                    [server.name, watcher.name, (cost or {}).get("failed", MISSING), "", "", "", ""]
                )
                continue
            rows.append(
                [
                    server.name,
                    watcher.name,
                    f"{cost['ns_per_event']:.0f} ns",
                    f"{cost['events_per_request'] * cost['requests'] / cost['seconds']:,.0f}",
                    f"{cost['events_per_request']:.1f}",
                    f"{cost['ns_per_event'] * cost['events_per_request']:.0f} ns",
                    f"{100 * cost['cpu_share']:.1f} %",
                ]
            )
            for name, program in sorted(cost["programs"].items(), key=lambda item: -item[1]["ns"]):
                kind = "reads state" if name in cost["no_hooks"] else "hook"
                programs.append(
                    [
                        server.name,
                        watcher.name,
                        f"`{name}`",
                        kind,
                        f"{program['runs'] / cost['seconds']:,.0f}",
                        f"{program['ns'] / program['runs']:,.0f}",
                    ]
                )
    return (
        table(
            [
                "server",
                "tool",
                "an event",
                "events/s",
                "events a request",
                "a request",
                "of the machine's CPU time",
            ],
            rows,
        ),
        table(["server", "tool", "program", "kind", "runs/s", "ns a run"], programs),
    )


def floor(figures):
    """What of an event's cost is the statistics' own."""
    pairs = []
    for server in SERVERS:
        cost = figures["cost"].get(server.name, {})
        ours, empty = (
            cost.get(watcher.name, {}).get("ns_per_event") for watcher in (Whywait, Empty)
        )
        if ours and empty:
            pairs.append(
                f"{server.name}: {empty:.0f} ns, which leaves {ours - empty:.0f} ns of whywait's"
            )
    return f": that much the statistics count of any program ({'; '.join(pairs)})" if pairs else ""


def recording_tables(figures):
    rows, parts = [], []
    for title, entry in figures["recordings"]:
        if "failed_to_record" in entry:
            rows.append([title, entry["failed_to_record"], "", "", "", ""])
            continue
        count = sum(one["rows"] for one in entry["tables"].values())
        events = entry.get("events")
        rows.append(
            [
                title,
                f"{entry['bytes']:,}",
                f"{count:,}",
                f"{entry['bytes'] / max(1, count):.1f}",
                f"{events:,}" if events else MISSING,
                f"{entry['bytes'] / events:.2f}" if events else MISSING,
            ]
        )
        for name, one in sorted(entry["tables"].items()):
            if one["rows"]:
                parts.append(
                    [
                        title,
                        f"`{name}`",
                        f"{one['rows']:,}",
                        f"{one['bytes']:,}",
                        f"{one['bytes'] / one['rows']:.1f}",
                    ]
                )
    for entry in figures["analysis"]:
        rows.append(
            [
                f"made up, {entry['rows'] / 1e6:.0f} M rows",
                f"{entry['bytes']:,}",
                f"{entry['rows']:,}",
                f"{entry['bytes'] / entry['rows']:.1f}",
                f"{kernel_events(entry):,}",
                f"{entry['bytes'] / kernel_events(entry):.2f}",
            ]
        )
    return (
        table(
            ["recording", "bytes", "rows", "bytes a row", "kernel events", "bytes a kernel event"],
            rows,
        ),
        table(["recording", "table", "rows", "bytes", "bytes a row"], parts),
    )


def stacks_table(figures):
    rows = []
    for title, entry in figures["recordings"]:
        stacks = entry.get("stacks")
        if not stacks:
            rows.append([title, MISSING] + [""] * 6)
            continue
        waits, counters = stacks["waits"], stacks["counters"]
        read = waits - stacks["none"]
        # One word for one reason, as the recording has them; what was lost altogether is no wait
        # that is counted here.
        reasons = ", ".join(
            f"`{name}` {value:,}"
            for name, value in sorted(counters.items())
            if value and name.startswith(("stacks.", "lost."))
        )
        rows.append(
            [
                title,
                f"{waits:,}",
                percent(stacks["complete"], waits),
                percent(stacks["complete"], read),
                f"{stacks['cut_short']:,}",
                f"{stacks['none']:,}",
                f"{counters.get('waits.without-stack', 0):,} of {counters['waits.ended']:,}"
                if "waits.ended" in counters
                else MISSING,
                reasons or "–",
            ]
        )
    return table(
        [
            "recording",
            "long waits",
            "stack complete",
            "of those read",
            "stack cut short",
            "no stack",
            "no stack, as whywait counts",
            "counters",
        ],
        rows,
    )


def percent(part, whole):
    return f"{100 * part / whole:.1f} %" if whole else "–"


def kernel_events(entry):
    """What the rows of a made-up recording stand for, at least: a wait is out, wake and in; a
    request read and write."""
    tables = entry["tables"]
    return 3 * tables["waits"] + tables["samples"] + 3 * tables["requests"] + 2 * tables["busy"]


def best(entry):
    return min(entry["runs"], key=lambda one: one["cpu_s"]) if entry.get("runs") else None


# The kinds of bench/generate that are analysed.
KINDS = {"mixed": "as most servers'", "long": "long requests", "process": "a call in each request"}


def analysis_table(figures):
    rows = []
    for entry in figures["analysis"] + figures["shapes"]:
        one, kind = best(entry), KINDS[entry["kind"]]
        if not one:
            why = entry.get("failed", MISSING)
            rows.append([kind, f"{entry['rows']:,}", why, "", "", "", ""])
            continue
        events = kernel_events(entry) if entry["kind"] == "mixed" else None
        rows.append(
            [
                kind,
                f"{entry['rows']:,}",
                f"{one['wall_s']:.2f} s",
                f"{one['cpu_s']:.2f} s",
                f"{entry['rows'] / one['cpu_s'] / 1e6:.2f} M",
                f"{events / one['cpu_s'] / 1e6:.2f} M" if events else "–",
                f"{one['rss_kib'] / 1024:.0f} MiB",
            ]
        )
    return table(["requests", "rows", "wall", "CPU", "rows/s", "events/s", "most memory"], rows)


def verdict(value, target, unit, digits=1, at_least=False):
    """What a target came to."""
    if value is None:
        return [MISSING, "?"]
    shown = f"{value:.{digits}f}{unit}"
    if (value >= target) if at_least else (value <= target):
        return [shown, "met"]
    return [shown, f"**missed** by {abs(value - target):.{digits}f}{unit}"]


# What watching may cost at most, as a multiple of what hooks that do nothing cost.
RATIOS = {"redis GET": 1.4, "tokio echo": 1.6, "threads": 3.3, "nginx proxy": 1.5}


def ratios(figures):
    """A row for each server. Where hooks that do nothing cost nothing there is no ratio."""
    rows = []
    for name, target in RATIOS.items():
        ours, empty = toggled_lost(figures, name), toggled_lost(figures, name, "empty")
        ratio_here = ours / empty if ours is not None and empty and empty > 0 else None
        what = f"throughput lost, as a multiple of what hooks that do nothing cost: {name}"
        rows.append([what, f"<= {target}", *verdict(ratio_here, target, "")])
    return rows


def targets(figures):
    """A row for each target."""
    lost_here, lost_by_threads = (
        toggled_lost(figures, Redis.name),
        toggled_lost(figures, Threads.name),
    )
    # Below a hundred waits a share says nothing.
    with_waits = [
        entry["stacks"]
        for _, entry in figures["recordings"]
        if (entry.get("stacks") or {}).get("waits", 0) >= 100 and not entry["options"]
    ]
    complete = [one["complete"] / one["waits"] for one in with_waits]
    taken = [
        one["complete"] / (one["waits"] - one["none"])
        for one in with_waits
        if one["waits"] > one["none"]
    ]
    cost, costliest = max(
        (
            (one["ns_per_event"], server.name)
            for server in SERVERS
            if "ns_per_event" in (one := figures["cost"].get(server.name, {}).get(Whywait.name, {}))
        ),
        default=(None, ""),
    )
    recorded = [
        (entry["bytes"], entry["events"])
        for _, entry in figures["recordings"]
        if entry.get("events")
    ]
    made_up = [entry["bytes"] / kernel_events(entry) for entry in figures["analysis"]]
    sizes = [size / events for size, events in recorded] + made_up
    longest = max(figures["analysis"], key=lambda entry: entry["rows"], default=None)
    shortest = min(figures["analysis"], key=lambda entry: entry["rows"], default=None)
    speed = (
        kernel_events(longest) / best(longest)["cpu_s"] / 1e6 if longest and best(longest) else None
    )
    rows_speed = (
        longest["rows"] / best(longest)["cpu_s"] / 1e6 if longest and best(longest) else None
    )
    growth = (
        best(longest)["rss_kib"] / best(shortest)["rss_kib"] if speed and best(shortest) else None
    )
    long = next((best(entry) for entry in figures["shapes"] if entry["kind"] == "long"), None)
    closures = [
        entry["closure"] for _, entry in figures["recordings"] if entry.get("closure") is not None
    ]
    startup = figures["startup"] and figures["startup"]["median"]
    build = figures["build_s"]
    size = figures["binary"] and figures["binary"]["bytes"] / (1 << 20)
    rows = [
        [
            "throughput lost by a saturated redis (GET, 50 connections), median",
            "<= 3 %",
            *verdict(lost_here, 3, " %"),
        ],
        ["the same, as it is to become", "<= 2 %", *verdict(lost_here, 2, " %")],
        [
            "throughput lost by a saturated thread-per-connection server, median",
            "<= 3 %",
            *verdict(lost_by_threads, 3, " %"),
        ],
        *ratios(figures),
        [
            "in-kernel cost of an event, the costliest of the "
            f"servers{costliest and f' ({costliest})'}",
            "<= 150 ns",
            *verdict(cost, 150, " ns", 0),
        ],
        ["the same, as it is to become", "<= 100 ns", *verdict(cost, 100, " ns", 0)],
        [
            "in-kernel cost of an operation of io_uring, at fio's highest rate",
            "<= 300 ns",
            *verdict((figures.get("uring") or {}).get("cost", {}).get("ns"), 300, " ns", 0),
        ],
        [
            "in-kernel cost of a packet of the lab `relay`, all programs for io_uring, the more "
            "expensive of two variants",
            "<= 300 ns",
            *verdict(uring.costliest_relay(figures.get("uring")), 300, " ns", 0),
        ],
        [
            "bytes of recording for an event, the largest of all recordings below",
            "<= 10",
            *verdict(max(sizes, default=None), 10, "", 2),
        ],
        [
            "analysis on one core: kernel events",
            ">= 5 M/s",
            *verdict(speed, 5, " M/s", 2, at_least=True),
        ],
        [
            "analysis on one core: rows",
            ">= 5 M/s",
            *verdict(rows_speed, 5, " M/s", 2, at_least=True),
        ],
        [
            "memory of the analysis, longest against shortest recording "
            f"({ratio(longest, shortest)} x the rows)",
            "no growth (<= 1.1 x)",
            *verdict(growth, 1.1, " x", 2),
        ],
        [
            "analysis of long requests (300,000 rows), CPU time",
            "<= 2 s",
            *verdict(long and long["cpu_s"], 2, " s", 2),
        ],
        [
            "the same, memory",
            "<= 200 MiB",
            *verdict(long and long["rss_kib"] / 1024, 200, " MiB", 0),
        ],
        [
            "`whywait -- true` beyond the command, median",
            "<= 0.5 s",
            *verdict(startup, 0.5, " s", 2),
        ],
        ["clean build of the tool", "<= 300 s", *verdict(build, 300, " s", 0)],
        ["the binary", "<= 25 MiB", *verdict(size, 25, " MiB")],
        [
            "requests' time attributed, the least of the recordings below",
            ">= 99 %",
            *verdict(100 * min(closures) if closures else None, 99, " %", 2, at_least=True),
        ],
        [
            "long waits with a complete user stack, the least of the recordings below with the "
            "usual threshold and 100 long waits or more",
            ">= 95 %",
            *verdict(100 * min(complete) if complete else None, 95, " %", 1, at_least=True),
        ],
        [
            "the same, of those whose stack was read",
            ">= 95 %",
            *verdict(100 * min(taken) if taken else None, 95, " %", 1, at_least=True),
        ],
    ]
    return rows


def limits(rows):
    """In words, what the table of the targets says."""
    same, missed, unknown = "", [], []
    for what, target, measured, came_to in rows:
        if what.startswith("the same"):
            what = same + what.removeprefix("the same")
        else:
            same = what
        if came_to == "?":
            unknown.append(f"- {what}")
        elif came_to != "met":
            missed.append(f"- {what}: {measured}; the target is {target}")
    lists = [
        f"{head} in this run:\n\n" + "\n".join(lines)
        for head, lines in (("Missed", missed), ("Not measured", unknown))
        if lines
    ]
    return "\n\n".join(lists) or "Every target was met in this run."


def ratio(longest, shortest):
    return f"{longest['rows'] / shortest['rows']:.0f}" if longest and shortest else "?"


def quote_versions(versions):
    return "; ".join(versions[name] for name in versions)


def render(figures):
    machine, settings = figures["machine"], figures["settings"]
    notes = HERE / "notes.md"
    cost, programs = cost_tables(figures)
    recordings, parts = recording_tables(figures)
    rows = targets(figures)
    revision = f"{machine['revision']}{' with uncommitted changes' if machine['dirty'] else ''}"
    kind = "virtual machine, " if machine["virtual"] else ""
    where = (
        f"{kind}{machine['cpus']} CPUs ({machine['cpu']}), {machine['memory_mib']:,} MiB; "
        f"{machine['system']}, Linux {machine['kernel']}"
    )
    sections = [
        f"""\
# Performance

Written by `make bench`{" (BENCH_QUICK=1)" if settings["quick"] else ""}: every figure here comes
out of one run, none is typed in. Do not edit. What is written by hand is in `bench/notes.md`, which
is included below.

| | |
|---|---|
| when | {figures["started"]}, for {figures["took_s"] / 60:.0f} minutes |
| what | whywait at {revision} |
| where | {where} |
| load | load average {machine["load_average"]:.1f} when it began |
| with | {quote_versions(figures["versions"])} |

## Targets

{table(["what", "target", "measured", "verdict"], rows)}
{limits(rows)}

{notes.read_text().strip() if notes.exists() else ""}

## What watching costs a saturated server

Server and load run on, and whywait's hooks are taken off and put on again: {settings["rounds"]}
rounds of four windows of {settings["window_ms"]} ms, off, on, on, off, and in the next round the
other way round (`bench/toggle`). A round gives a ratio of the packets that TCP moved, and one of
the CPU time that the server took for each. What whywait does only once, when it starts, is in none.
Hooks that do nothing cost what the kernel takes to call them, for any tool that hooks the same
events. whywait's thread, which polls meanwhile, has its
share in that row too (the last column). The control takes nothing off and puts nothing on.

{toggled_table(figures)}
## Compared with other tools

{settings["pairs"]} pairs for each tool{fewer(settings)}. A pair is one run of
{settings["seconds"]:g} s bare and one watched, one after the other. Which is first alternates, and
the tools come in a new random order for each pair. The tool is attached before the load starts and
taken off after it ended; {warm_up(settings)} The table has the medians of the pairs' ratios. The
control has no tool at all in either run: it spans {noise(figures)} between its quartiles. What lies
within that cannot be told from nothing. Server, load and tool share the {machine["cpus"]} CPUs, so
a tool's own CPU time costs throughput too."""
    ]
    for server in SERVERS:
        sections.append(
            f"### {server.name}\n\n{server.about}.\n\n{overhead_table(figures, server.name)}"
        )
    sections.append(f"""\
## In the kernel

From the kernel's run-time statistics, in runs of their own, because the statistics cost a share of
what they measure. `bench/offcpu.bt` is what one would write with bpftrace to ask about the same
events. An event is a run of a hook; what reads state (an iterator, run once for each thread that it
looks at) is in the CPU time only. `bench/empty.bt` hooks the same events and does
nothing{floor(figures)}.

{cost}
By program:

{programs}""")
    sections.append("\n".join(uring.render(figures.get("uring"))).strip())
    sections.append(burst.section("redis GET", figures.get("burst"), table))
    sections.append(f"""\
## Recordings

A healthy server's requests and waits stay in the kernel as sums, so its recording has few rows.
With a threshold of 10 us nearly all are slow enough to be recorded one by one, and are as far as
whywait's rate limit allows. Made-up recordings have random durations, which do not compress; the
events that their rows stand for are counted at their least: three for a wait and a request, two for
a busy interval, one for a sample.

{recordings}
{written(figures)}By table:

{parts}""")
    sections.append(f"""\
## Stacks of long waits

Of the same recordings: the waits that were long enough to have a row of their own and that ended,
and whether their user stacks go down to the thread's start. whywait reads so many stacks a second
and no more; `stacks.wait-unreadable` counts those beyond and those that could not be read. The
other counters (see `docs/recording.md`) are of samples and of sleeps that had not ended, too.

{stacks_table(figures)}""")
    sections.append(f"""\
## Analysis

`whywait report DIR --format json`, pinned to one CPU, on made-up recordings; the best of
{settings["analysis_times"]} runs. Two kinds ask more of it: requests of a second each on average,
so that many are under way at a time; and a call in every request.

{analysis_table(figures)}""")
    startup, size = figures["startup"], figures["binary"]
    sections.append(
        "## Start, build, size\n\n"
        + table(
            ["what", "measured"],
            [
                [
                    "`whywait -- true` beyond `true`",
                    f"median {startup['median']:.2f} s, {startup['min']:.2f} to "
                    f"{startup['max']:.2f} s in {startup['n']} runs"
                    if startup
                    else MISSING,
                ],
                [
                    "clean build, dependencies fetched",
                    f"{figures['build_s']:.0f} s"
                    if figures["build_s"]
                    else f"{MISSING} (BENCH_BUILD=1 does)",
                ],
                [
                    "the binary",
                    f"{size['bytes'] / (1 << 20):.1f} MiB; "
                    f"{size['stripped_bytes'] / (1 << 20):.1f} MiB after `strip`"
                    if size
                    else MISSING,
                ],
            ],
        )
    )
    if figures["failures"]:
        sections.append(
            "## What went wrong\n\n" + "\n".join(f"- {one}" for one in figures["failures"]) + "\n"
        )
    return wrap("\n\n".join(section.rstrip() for section in sections)) + "\n"


def fewer(settings):
    few = [f"`{watcher.name}`" for watcher in WATCHERS if watcher.few_pairs]
    return (
        f" ({FEW_PAIRS} for {' and '.join(few)}, which cost far more than differs between pairs)"
        if settings["pairs"] > FEW_PAIRS
        else ""
    )


def warm_up(settings):
    seconds = settings.get("warm_up_s", 0)
    if not seconds:
        return (
            "there is no warm-up in between, so what a tool does only once, at first, is in the "
            "figures."
        )
    return (
        f"{seconds:g} s of the same load come before what is measured, bare or watched: what a "
        "tool does only once is not in it."
    )


def written(figures):
    if not figures["written"]:
        return ""
    return (
        "Bytes on disk for each request of the same load: "
        + ", ".join(f"{name} {size:.2f}" for name, size in figures["written"].items())
        + ".\n\n"
    )
