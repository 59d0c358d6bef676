"""Part d of labs/accuracy: the switches of the lab `relay`, each repaired alone, and all of them; and other programs on
io_uring whose fault costs them their rate.

What is measured is the rate; what is predicted is the saving of the finding that blames what is repaired, in the reports on
the variant before.
"""

import statistics
from dataclasses import dataclass

# A repair that raises the rate by less did not matter.
LITTLE = 0.10
# What is blamed must be worth at least this part of what was promised.
LEAST_RATIO = 0.5
# What two runs of the same may differ by, even if those that were made did not.
LEAST_NOISE = 0.03


@dataclass
class Switch:
    """A repair, and the findings on the variant before it that blame what it repairs."""

    fixed: str
    what: str
    # Codes, each with a function that must be in the cause's stack, if it is not to be just any.
    blamed_by: tuple = ()
    before: str = "published"
    lab: str = "relay"


# What the load calls the rate that counts. The relay's egress never has nothing to do: its CPU time is what limits it, and
# does not depend on what else the machine does.
RATE = {"relay": "packets_per_cpu_s", "uring-file": "ops_per_s"}

EVERYTHING = (
    ("serial-work", "prepare_batch"), ("serial-work", "drain_ingress"), ("uring-unreaped", None), ("uring-unsubmitted", None),
    ("uring-slots-exhausted", None),
)
SWITCHES = [
    Switch("deque", "`Vec::remove(0)` becomes a deque", (("serial-work", "prepare_batch"),)),
    Switch("reap-at-once", "reaping behind each submission", (("uring-unreaped", None),)),
    Switch("submit-at-once", "submitting behind each preparation", (("uring-unsubmitted", None),)),
    Switch("drain-bounded", "256 packets drained a round at most", (("serial-work", "drain_ingress"),)),
    Switch("depth-1024", "1024 entries instead of 64", (("uring-slots-exhausted", None),)),
    Switch("sndbuf-4m", "SO_SNDBUF 4 MB instead of 208 KB"),
    Switch("batch-64", "batches of 64 instead of 32"),
    Switch("all-fixed", "all of these", EVERYTHING),
    Switch("all-fixed", "no line formatted for each packet", (("serial-work", "format_log_line"),), before="logged"),
]
OTHERS = [
    Switch("reap-lag-fixed", "another thread compresses", (("uring-unreaped", "compress_segment"),), "reap-lag", "uring-file"),
    Switch("reap-lag-rust-fixed", "another thread compresses", (("uring-unreaped", "compress_segment"),), "reap-lag-rust",
           "uring-file"),
    Switch("unsubmitted-rust-fixed", "another thread compresses", (("uring-unsubmitted", "compress_segment"),),
           "unsubmitted-rust", "uring-file"),
    Switch("slots-exhausted-fixed", "64 entries instead of 4, for 3000 jobs a second", (("uring-slots-exhausted", None),),
           "slots-exhausted", "uring-file"),
    Switch("punt-storm-fixed", "nothing is forced to a worker", (("uring-punted", None),), "punt-storm", "uring-file"),
    Switch("punt-storm-rust-fixed", "nothing is forced to a worker", (("uring-punted", None),), "punt-storm-rust",
           "uring-file"),
]


def blames(finding, code, function):
    stack = (finding.get("cause") or {}).get("stack") or []
    return finding["code"] == code and (function is None or any(function in frame for frame in stack))


def predicted(report, switch):
    """By what part the rate rises at most when all is repaired that the findings blame: `None` when none does."""
    # What remains of an operation's time, when the share of each is gone.
    rest, found = 1.0, False
    for code, function in switch.blamed_by:
        gains = [gain_of(finding) for finding in report["findings"] if blames(finding, code, function)]
        gains = [gain for gain in gains if gain is not None]
        if gains:
            found = True
            rest -= max(gains) / (1 + max(gains))
    return 1 / max(rest, 0.01) - 1 if found else None


def gain_of(finding):
    saving = finding.get("saving") or {}
    if saving.get("kind") != "throughput" or saving.get("at_most_percent") is None:
        return None
    return saving["at_most_percent"] / 100


@dataclass
class Measured:
    """A switch, measured: medians of pairs of runs. The gains are parts of the rate before."""

    before: float
    rate: float
    wall_rate: float
    gain: float
    noise: float
    predicted: float | None

    @property
    def wrong(self):
        """Why it does not hold, in words, or nothing."""
        low, high = self.gain - self.noise, self.gain + self.noise
        if self.predicted is None:
            return "it matters, and nothing blamed it" if low > LITTLE else ""
        if low > self.predicted:
            return "it is worth more than the bound"
        if self.predicted > LITTLE and high < LEAST_RATIO * self.predicted:
            return "it is worth less than half of the bound"
        return ""


def measure(labs, switch, repeat):
    pairs = []
    for number in range(1, repeat + 1):
        pairs.append(tuple(labs.run(switch.lab, name, (), number) for name in (switch.before, switch.fixed)))
    rate = RATE[switch.lab]
    gains = [fixed.truth[rate] / before.truth[rate] - 1 for before, fixed in pairs]
    bounds = [predicted(before.report(), switch) for before, _ in pairs]
    said = [bound for bound in bounds if bound is not None]
    return Measured(
        before=statistics.median(before.truth[rate] for before, _ in pairs),
        rate=statistics.median(fixed.truth[rate] for _, fixed in pairs),
        wall_rate=statistics.median(fixed.truth.get("packets_per_s", 0) for _, fixed in pairs),
        gain=statistics.median(gains),
        noise=max(LEAST_NOISE, (max(gains) - min(gains)) / 2),
        # What most runs say.
        predicted=statistics.median(said) if 2 * len(said) > len(bounds) else None,
    )


def run_in_turns(tools, labs, repeat):
    """All variants once, then all again: what else the machine does then meets both sides of a pair."""
    variants = dict.fromkeys((switch.lab, name) for switch in SWITCHES + OTHERS for name in (switch.before, switch.fixed))
    for number in range(1, repeat + 1):
        for lab, variant in variants:
            try:
                labs.run(lab, variant, (), number)
            except tools.Failed:
                pass  # it is said again, and told, when it is wanted


def part(tools, labs, repeat):
    """Returns the page's part, and what is wrong. `tools`: labs/accuracy."""
    run_in_turns(tools, labs, repeat)
    page, wrong = relay(tools, labs, repeat)
    more, found = others(tools, labs, repeat)
    return page + more, wrong + found


def relay(tools, labs, repeat):
    rows, wrong = [], []
    for before in dict.fromkeys(switch.before for switch in SWITCHES):
        try:
            runs = [labs.run("relay", before, (), number).truth for number in range(1, repeat + 1)]
            rate, wall = (statistics.median(run[name] for run in runs) for name in (RATE["relay"], "packets_per_s"))
            rows.append([before, "", f"{rate:,.0f}", f"{wall:,.0f}", "", "", "", ""])
        except (tools.Failed, KeyError, TypeError) as error:
            wrong.append(f"switches, {before}: not measured: {error}")
            continue
        for switch in (switch for switch in SWITCHES if switch.before == before):
            got = try_to_measure(tools, labs, switch, repeat, wrong)
            if got is None:
                rows.append([switch.fixed, switch.what, "not measured", *[""] * 5])
                continue
            rows.append([switch.fixed, switch.what, f"{got.rate:,.0f}", f"{got.wall_rate:,.0f}", *verdict(got)])
    page = f"""## The relay's switches

`relay published` is case 3 as it was published: seven suspects, of which the write-up blamed the late reaping and
submitting. Each is repaired alone, and all are. The rate is packets sent for each second that the egress thread is on a
CPU: it never has nothing to do, so that this is what limits the relay, and it does not depend on what else the machine
does. Packets a second by the clock stand beside it. **Measured** is by what the rate rose, in the median of runs in pairs
(each ran {tools.times(repeat)}, whywait recording in all); the **noise** is half of how far the pairs were apart, and
{tools.percent(LEAST_NOISE)} at least. **Predicted** is by what the rate rises at most, as the findings say that blame what
was repaired, in the reports on the variant before. A row **holds** when what was measured, less the noise, is not above the
prediction, and not below half of it; and where nothing was blamed, when the rate rose by {tools.percent(LITTLE)} at most.

"""
    head = ["variant", "repaired", "packets per CPU second", "packets/s", "measured", "noise", "predicted", "holds"]
    return page + tools.table(head, rows, left=2), wrong


def others(tools, labs, repeat):
    rows, wrong = [], []
    for switch in OTHERS:
        got = try_to_measure(tools, labs, switch, repeat, wrong)
        if got is None:
            rows.append([switch.before, switch.what, "not measured", *[""] * 5])
            continue
        rows.append([switch.before, switch.what, f"{got.before:,.0f}", f"{got.rate:,.0f}", *verdict(got)])
    page = """
### Other programs on io_uring

Those of `uring-file` whose fault costs them operations: a second before, and repaired. The rest as above.

"""
    head = ["variant", "repaired", "ops/s", "repaired, ops/s", "measured", "noise", "predicted", "holds"]
    return page + tools.table(head, rows, left=2), wrong


def try_to_measure(tools, labs, switch, repeat, wrong):
    """What was measured, or `None`. Adds to what is wrong."""
    name = f"switches, {switch.lab} {switch.before} to {switch.fixed}"
    try:
        got = measure(labs, switch, repeat)
    except (tools.Failed, KeyError, TypeError, ZeroDivisionError) as error:
        wrong.append(f"{name}: not measured: {error}")
        return None
    if got.wrong:
        wrong.append(f"{name}: {got.wrong}")
    return got


def verdict(got):
    return [
        f"{100 * got.gain:+.0f} %", f"{100 * got.noise:.0f} %",
        "not blamed" if got.predicted is None else f"{100 * got.predicted:+.0f} %",
        f"**no**: {got.wrong}" if got.wrong else "yes",
    ]
