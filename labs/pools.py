"""Part e of labs/accuracy: what the replay says of pools with more connections, against such pools.

What is predicted comes from the report on the variant with too few connections; what is measured
are the clients' own latencies with a pool of that size.
"""

import statistics
from dataclasses import dataclass

CODE = "pool-exhausted"
# What the prediction may be off by.
MOST_OFF = 0.10


@dataclass
class Pool:
    """A variant with too few connections, and by how many they are: those that have more."""

    lab: str
    few: str
    more: dict


POOLS = [
    Pool("upstream", "asyncio-pool", {3: "asyncio-pool-3", 4: "asyncio-pool-4"}),
    Pool("upstream", "tokio-pool", {3: "tokio-pool-3", 4: "tokio-pool-4"}),
    Pool("database", "go-pool", {3: "go-pool-3", 4: "go-pool-4"}),
    Pool("proxies", "haproxy-pool", {3: "haproxy-pool-3", 4: "haproxy-pool-4"}),
]


def predictions(report):
    """By how many connections: the latency in ms, as the report has it; and which one that is, the
    middle one or, where requests are not served in their order, the mean."""
    found = [finding for finding in report["findings"] if finding["code"] == CODE]
    rows = (found[0]["subject"].get("replay") or []) if found else []
    middle = bool(rows) and all("p50_ns" in row for row in rows)
    key = "p50_ns" if middle else "mean_ns"
    return middle, {row["connections"]: row[key] / 1e6 for row in rows}


def part(tools, labs, repeat):
    """Returns the page's part, and what is wrong. `tools`: labs/accuracy."""
    rows, wrong = [], []
    numbers = range(1, repeat + 1)
    for pool in POOLS:
        name = f"{pool.lab} {pool.few}"
        try:
            runs = [labs.run(pool.lab, pool.few, number=number) for number in numbers]
            said = [predictions(run.report()) for run in runs]
            middle = all(middle for middle, _ in said)
            # All of one kind, or they cannot be compared.
            said = [rows for of_middle, rows in said if of_middle == middle]
            before = latency((run.truth for run in runs), middle)
            which = "p50" if middle else "mean"
            rows.append([pool.lab, pool.few, "", which, before, "", "", ""])
            for connections, variant in pool.more.items():
                truths = [labs.run(pool.lab, variant, number=number).truth for number in numbers]
                measured = latency(truths, middle)
                missing = not said or any(connections not in one for one in said)
                predicted = (
                    None if missing else statistics.median(one[connections] for one in said)
                )
                off = None if missing else predicted / measured - 1
                holds = off is not None and abs(off) <= MOST_OFF
                if not holds:
                    got = "nothing predicted" if missing else f"{predicted:.0f} ms predicted"
                    wrong.append(
                        f"pools, {name}: {got} with {connections}, {measured:.0f} ms measured"
                    )
                rows.append(
                    [
                        pool.lab,
                        pool.few,
                        connections,
                        which,
                        measured,
                        tools.number(predicted),
                        "" if off is None else f"{100 * off:+.1f} %",
                        "yes" if holds else "**no**",
                    ]
                )
        except (tools.Failed, KeyError, TypeError) as error:
            wrong.append(f"pools, {name}: not measured: {error}")
            rows.append([pool.lab, pool.few, "", "", "not measured", *[""] * 3])
    page = f"""## Larger pools

Twenty clients share two connections whose calls take 50 ms. `{CODE}` says what the median request
would take with more of them, by replay; or the mean one, where requests are not served in the order
in which they come. Here that is held against pools of that size: the latency as the clients saw it,
in milliseconds, with whywait recording in both; each side ran {tools.times(repeat)}, and the median
of these is given. A row **holds** when the prediction is off by {tools.percent(MOST_OFF)} at most.
The first row of each is the pool of two.

"""
    head = ["lab", "variant", "connections", "of", "measured", "predicted", "off by", "holds"]
    return page + tools.table(head, rows, left=2), wrong


def latency(truths, middle):
    """The median of the clients' median latencies, or of their mean ones, ms."""
    loads = [truth["load"] for truth in truths]
    each = [load["p50_ms"] if middle else load["sum_ms"] / load["count"] for load in loads]
    return round(statistics.median(each), 1)
