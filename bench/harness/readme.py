"""README's section on what whywait costs, between its markers. No figure is typed in here."""

import json
from pathlib import Path

from . import page, uring
from .measure import median_bounds, spread
from .servers import FRONT, Threads
from .watchers import WATCHERS, Bpftrace, Empty, Nothing, Whywait

BEGIN, END = "<!-- cost -->\n", "<!-- /cost -->\n"
# What was measured on other machines: by hand, from the performance pages that were made there.
ELSEWHERE = Path(__file__).resolve().parent.parent / "elsewhere.json"
OURS, EMPTY = page.TOGGLED_SHOWN["whywait"], "the same hooks, which do nothing"
RATIO = "ratio of the two"


def shown(server):
    return "thread-per-connection" if server is Threads else server.name


def percent(value):
    return page.MISSING if value is None else f"{value:.1f} %"


def ratio(ours, empty):
    return f"{ours / empty:.1f}" if ours is not None and empty and empty > 0 else page.MISSING


def listed(cells):
    cells = list(cells)
    return f"{'; '.join(cells[:-1])}; and {cells[-1]}" if len(cells) > 1 else "".join(cells)


def here(figures):
    """The table of this machine: one column a server."""
    lost = {
        what: [page.toggled_lost(figures, server.name, what) for server in FRONT]
        for what in ("control", "whywait", "empty")
    }
    rows = [
        [page.TOGGLED_SHOWN["control"], *map(percent, lost["control"])],
        [OURS, *map(percent, lost["whywait"])],
        [EMPTY, *map(percent, lost["empty"])],
        [RATIO, *map(ratio, lost["whywait"], lost["empty"])],
    ]
    for watcher in WATCHERS:
        if watcher not in (Nothing, Whywait):
            found = (page.losses(figures, server.name, watcher.name) for server in FRONT)
            rows.append([f"`{watcher.shown}`", *(percent(one and one["median"]) for one in found)])
    return page.table(["throughput lost while watched by", *map(shown, FRONT)], rows)


def elsewhere(machines):
    """The table of the other processors: three rows each."""
    rows = []
    for machine in machines:
        lost = {
            what: [machine[server.name][what] for server in FRONT]
            for what in ("whywait", "empty")
        }
        rows += [
            [machine["processor"], OURS, *map(percent, lost["whywait"])],
            ["", EMPTY, *map(percent, lost["empty"])],
            ["", RATIO, *map(ratio, lost["whywait"], lost["empty"])],
        ]
    return page.table(["processor", "watched by", *map(shown, FRONT)], rows)


def bounds(figures, what):
    """95 % bounds of the medians, by server."""
    cells = []
    for server in FRONT:
        found = (figures["toggled"].get(server.name) or {}).get(what)
        low, high = median_bounds(found["lost"]) if found else (None, None)
        cells.append(f"{low:.1f} to {high:.1f} %" if found else page.MISSING)
    return listed(cells)


def quartiles(figures):
    found = [page.losses(figures, server.name, Nothing.name) for server in FRONT]
    return listed(f"{one['q1']:.1f} to {one['q3']:.1f} %" if one else page.MISSING for one in found)


def event(figures):
    """What an event costs in the kernel, by server."""
    cells, floors = [], []
    for server in FRONT:
        costs = figures["cost"].get(server.name) or {}
        ours, theirs, empty = (
            costs.get(watcher.name, {}).get("ns_per_event")
            for watcher in (Whywait, Bpftrace, Empty)
        )
        cells.append(
            f"{ours:.0f} ns for {shown(server)} (bpftrace {theirs:.0f})"
            if ours and theirs
            else f"{shown(server)} {page.MISSING}"
        )
        floors += [empty] if empty else []
    floor = (
        f" Of that {spread(floors)['median']:.0f} ns are counted for any program, even an empty "
        "one."
        if floors
        else ""
    )
    return f"In the kernel an event costs {listed(cells)}.{floor}"


def operation(figures):
    """What an operation of io_uring costs."""
    found = figures.get("uring")
    if not found:
        return f"An io_uring operation: {page.MISSING}."
    lost = {
        name: f"{spread([100 * pair['lost'] for pair in result['pairs']])['median']:.0f} %"
        if result["pairs"]
        else page.MISSING
        for name, result in found["overhead"].items()
    }
    return (
        f"An io_uring operation costs {found['cost']['ns']:.0f} ns at "
        f"{found['cost']['operations_per_s']:,.0f} a second. "
        f"fio at its highest rate loses {lost['whywait']}; under bpftrace {lost['bpftrace']}; "
        "under "
        f"`{uring.TOOLS['perf record'][0].removesuffix(' -- CMD')}` {lost['perf record']}."
    )


def block(figures, machines):
    """What stands between the markers."""
    machine, settings, startup = figures["machine"], figures["settings"], figures["startup"]
    kind = "a virtual machine with " if machine["virtual"] else ""
    few = " and ".join(f"`{watcher.shown}`" for watcher in WATCHERS if watcher.few_pairs)
    return page.wrap(f"""\
On {kind}{machine["cpus"]} CPUs, {machine["cpu"]}, that server, load and tool share. The servers are
saturated.

{here(figures)}
Processors differ, most of all in what they take for hooks that do nothing. Measured elsewhere:

{elsewhere(machines)}
- `whywait -- true` takes {f"{startup['median']:.2f} s" if startup else page.MISSING} longer than
  `true`.
- The first three rows are medians of {settings["rounds"]} rounds. In each, hooks are put on and
  taken off under one load. 95 % bounds, in the order of the columns: whywait
  {bounds(figures, "whywait")}. Hooks that do nothing, with whywait's thread running:
  {bounds(figures, "empty")}. Control: {bounds(figures, "control")}.
- The other tools cannot be taken off. Theirs are medians of {settings["pairs"]} pairs of whole
  runs, 3 for {few}. The control's quartiles of such runs are {quartiles(figures)}.
- {event(figures)}
- {operation(figures)}
- A server that does next to nothing but switch and wake threads pays most, and so do small requests
  by the hundred thousand.
- On a host whose other guests want its CPUs everything costs more. When the control alone varied by
  10 %, redis lost 3 to 6 % to earlier versions.

See docs/performance.md.
""")


def put(text, figures):
    """README's text with the section made anew."""
    before, marker, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not marker or not end:
        raise ValueError(f"README has no {BEGIN.strip()} … {END.strip()}")
    return before + marker + block(figures, json.loads(ELSEWHERE.read_text())) + end + after
