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
    Pool("proxies", "haproxy-pool", {3: "haproxy-pool-3", 4: "haproxy-pool-4"}),
]


def predictions(report):
    """By how many connections: the middle latency in ms, as the report has it."""
    found = [finding for finding in report["findings"] if finding["code"] == CODE]
    rows = (found[0]["subject"].get("replay") or []) if found else []
    return {row["connections"]: row["p50_ns"] / 1e6 for row in rows}


def part(tools, labs, repeat):
    """Returns the page's part, and what is wrong. `tools`: labs/accuracy."""
    rows, wrong = [], []
    numbers = range(1, repeat + 1)
    for pool in POOLS:
        name = f"{pool.lab} {pool.few}"
        try:
            runs = [labs.run(pool.lab, pool.few, number=number) for number in numbers]
            said = [predictions(run.report()) for run in runs]
            rows.append([pool.lab, pool.few, "", latency(run.truth for run in runs), "", "", ""])
            for connections, variant in pool.more.items():
                truths = [labs.run(pool.lab, variant, number=number).truth for number in numbers]
                measured = latency(truths)
                missing = any(connections not in one for one in said)
                predicted = None if missing else statistics.median(o[connections] for o in said)
                off = None if missing else predicted / measured - 1
                holds = off is not None and abs(off) <= MOST_OFF
                if not holds:
                    wrong.append(f"pools, {name}: with {connections} {measured:.0f} ms, not "
                                 f"{'predicted' if missing else f'{predicted:.0f} ms'}")
                rows.append([
                    pool.lab, pool.few, connections, measured, tools.number(predicted),
                    "" if off is None else f"{100 * off:+.1f} %", "yes" if holds else "**no**",
                ])
        except (tools.Failed, KeyError, TypeError) as error:
            wrong.append(f"pools, {name}: not measured: {error}")
            rows.append([pool.lab, pool.few, "", "not measured", *[""] * 3])
    page = f"""## Larger pools

Twenty clients share two connections whose calls take 50 ms. `{CODE}` says what the median request
would take with more of them, by replay. Here that is held against pools of that size: the median
latency as the clients saw it, in milliseconds, with whywait recording in both; each side ran
{tools.times(repeat)}, and the median of these is given. A row **holds** when the prediction is off
by {tools.percent(MOST_OFF)} at most. The first row of each is the pool of two.

"""
    head = ["lab", "variant", "connections", "measured", "predicted", "off by", "holds"]
    return page + tools.table(head, rows, left=2), wrong


def latency(truths):
    """The median of the clients' median latencies, ms."""
    return round(statistics.median(truth["load"]["p50_ms"] for truth in truths), 1)
