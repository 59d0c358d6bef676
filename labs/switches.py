"""Part d of labs/accuracy: the switches of the lab `relay`, each repaired alone, and all of them.

What is measured is the rate; what is predicted is the saving of the finding that blames what is
repaired, in the reports on the variant before.
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


LAB = "relay"
# What the load calls the rate that counts. The egress never has nothing to do: its CPU time is what
# limits it, and does not depend on what else the machine does.
RATE, WALL_RATE = "packets_per_cpu_s", "packets_per_s"

EVERYTHING = (
    ("serial-work", "prepare_batch"),
    ("serial-work", "drain_ingress"),
    ("uring-unreaped", None),
    ("uring-unsubmitted", None),
    ("uring-slots-exhausted", None),
)
SWITCHES = [
    Switch("deque", "`Vec::remove(0)` becomes a deque", (("serial-work", "prepare_batch"),)),
    Switch("reap-at-once", "reaping behind each submission", (("uring-unreaped", None),)),
    Switch("submit-at-once", "submitting behind each preparation", (("uring-unsubmitted", None),)),
    Switch(
        "drain-bounded", "256 packets drained a round at most", (("serial-work", "drain_ingress"),)
    ),
    Switch("depth-1024", "1024 entries instead of 64", (("uring-slots-exhausted", None),)),
    Switch("sndbuf-4m", "SO_SNDBUF 4 MB instead of 208 KB"),
    Switch("batch-64", "batches of 64 instead of 32"),
    Switch("all-fixed", "all of these", EVERYTHING),
    Switch(
        "all-fixed",
        "no line formatted for each packet",
        (("serial-work", "format_log_line"),),
        before="logged",
    ),
]


def blames(finding, code, function):
    stack = (finding.get("cause") or {}).get("stack") or []
    return finding["code"] == code and (
        function is None or any(function in frame for frame in stack)
    )


def predicted(report, switch):
    """By what part the rate rises at most when all is repaired that the findings blame: `None` when
    none does."""
    # What remains of an operation's time, when the share of each is gone.
    rest, found = 1.0, False
    for code, function in switch.blamed_by:
        gains = [
            gain_of(finding) for finding in report["findings"] if blames(finding, code, function)
        ]
        gains = [gain for gain in gains if gain is not None]
        if gains:
            found = True
            rest -= max(gains) / (1 + max(gains))
    return 1 / max(rest, 0.01) - 1 if found else None


def gain_of(finding):
    percent = finding["subject"].get("throughput_at_most_percent")
    return None if percent is None else percent / 100


@dataclass
class Measured:
    """A switch, measured: medians of pairs of runs. The gains are parts of the rate before."""

    rate: float
    wall_rate: float
    gain: float
    noise: float
    # None: no finding promises a rate.
    predicted: float | None
    # Whether one is there at all.
    blamed: bool

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


def pair_of(labs, switch, turn):
    """The runs before and after a repair, one right behind the other: machines get faster and
    slower from minute to minute."""
    number = 10 * turn + SWITCHES.index(switch)
    return tuple(labs.run(LAB, name, (), number) for name in (switch.before, switch.fixed))


def measure(labs, switch, repeat):
    pairs = [pair_of(labs, switch, turn) for turn in range(1, repeat + 1)]
    gains = [fixed.truth[RATE] / before.truth[RATE] - 1 for before, fixed in pairs]
    reports = [before.report() for before, _ in pairs]
    bounds = [predicted(report, switch) for report in reports]
    said = [bound for bound in bounds if bound is not None]
    return Measured(
        rate=statistics.median(fixed.truth[RATE] for _, fixed in pairs),
        wall_rate=statistics.median(fixed.truth[WALL_RATE] for _, fixed in pairs),
        gain=statistics.median(gains),
        noise=max(LEAST_NOISE, (max(gains) - min(gains)) / 2),
        # What most runs say.
        predicted=statistics.median(said) if 2 * len(said) > len(bounds) else None,
        blamed=any(
            blames(finding, *by)
            for report in reports
            for finding in report["findings"]
            for by in switch.blamed_by
        ),
    )


def run_in_turns(tools, labs, repeat):
    """All pairs once, then all again: what else the machine does then meets all of them."""
    for turn in range(1, repeat + 1):
        for switch in SWITCHES:
            try:
                pair_of(labs, switch, turn)
            except tools.Failed:
                pass  # it is said again, and reported, when it is wanted


def part(tools, labs, repeat):
    """Returns the page's part, and what is wrong. `tools`: labs/accuracy."""
    rows, wrong = [], []
    run_in_turns(tools, labs, repeat)
    for before in dict.fromkeys(switch.before for switch in SWITCHES):
        try:
            switches = [switch for switch in SWITCHES if switch.before == before]
            runs = [
                pair_of(labs, switch, turn)[0].truth
                for switch in switches
                for turn in range(1, repeat + 1)
            ]
            rate, wall = (
                statistics.median(run[name] for run in runs) for name in (RATE, WALL_RATE)
            )
            rows.append([before, "", f"{rate:,.0f}", f"{wall:,.0f}", "", "", "", ""])
        except (tools.Failed, KeyError, TypeError) as error:
            wrong.append(f"switches, {before}: not measured: {error}")
            continue
        for switch in (switch for switch in SWITCHES if switch.before == before):
            got = try_to_measure(tools, labs, switch, repeat, wrong)
            if got is None:
                rows.append([switch.fixed, switch.what, "not measured", *[""] * 5])
                continue
            rows.append(
                [
                    switch.fixed,
                    switch.what,
                    f"{got.rate:,.0f}",
                    f"{got.wall_rate:,.0f}",
                    *verdict(got),
                ]
            )
    page = f"""## The relay's switches

`relay published` is case 3 as it was published: seven suspects, of which the write-up blamed the
late reaping and submitting. Each is repaired alone, and all are. The rate is packets sent for each
second that the egress thread is on a CPU: it never has nothing to do, so that this is what limits
the relay, and it does not depend on what else the machine does. Packets a second by the clock stand
next to it. **Measured** is by what the rate rose, in the median of runs in pairs (each pair ran
{tools.times(repeat)}, one run right behind the other, whywait recording in both); the **noise** is
half of how far the pairs were apart, and {tools.percent(LEAST_NOISE)} at least. **Predicted** is by
what the rate rises at most, as the findings say that blame what was repaired, in the reports on the
variant before. A row **holds** when what was measured, less the noise, is not above the prediction,
and not below half of it; and where nothing was blamed, or not for a rate, when it rose by
{tools.percent(LITTLE)} at most.

"""
    head = [
        "variant",
        "repaired",
        "packets per CPU second",
        "packets/s",
        "measured",
        "noise",
        "predicted",
        "holds",
    ]
    return page + tools.table(head, rows, left=2), wrong


def try_to_measure(tools, labs, switch, repeat, wrong):
    """What was measured, or `None`. Adds to what is wrong."""
    name = f"switches, {switch.before} to {switch.fixed}"
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
        f"{100 * got.gain:+.0f} %",
        f"{100 * got.noise:.0f} %",
        f"{100 * got.predicted:+.0f} %"
        if got.predicted is not None
        else "no rate"
        if got.blamed
        else "not blamed",
        f"**no**: {got.wrong}" if got.wrong else "yes",
    ]
