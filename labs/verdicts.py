"""Part h of labs/accuracy: what reports on the kept recordings say first, what their bounds are
against what fixed twins saved, and where the guard of the replays refuses. It needs neither root
nor runs.

A verdict is certain where it names a cause, says where the time is, or that nothing is wrong. It
is not where the report says that it cannot tell, or that requests cannot be told apart.
"""

import json
import os
import re
import subprocess
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import corpus

# The first line of a report, by the verdict's kind in the JSON report, in the page's order.
KINDS = {
    "findings": "findings: a cause is named",
    "notes": "only notes, and what fixing them saves",
    "as-ever": "it takes as long each time: the notes say what",
    "awaits-events": "requests wait for what comes from outside",
    "awaits-clients": "responses wait for their clients to read",
    "nothing-wrong": "nothing wrong",
    "stopped": "it was stopped from outside",
    "open": "requests are open that should have been answered",
    "operations": "no requests; operations of io_uring",
    "run": "no requests; a run, with its critical path",
    "under-way": "no requests; responses were under way",
    "no-requests": "no requests",
    "cannot-tell": "**cannot tell**: most of the time is where nothing explains it",
    "multiplexed": "**requests cannot be told apart**",
    "handed-on": "**who works on jobs cannot be told**",
}
UNCERTAIN = ("cannot-tell", "multiplexed", "handed-on")
REFUSED = re.compile(r"a replay of what was is off by (\d+) %")


def report_of(tool, label):
    with tempfile.TemporaryDirectory(prefix="whywait-verdicts-") as folder:
        corpus.unpack(label["lab"], label["variant"], Path(folder))
        done = subprocess.run(
            [tool, "report", f"{folder}/recording", "--format", "json"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
    if done.returncode != 0:
        raise RuntimeError(f"expected a report, got exit code {done.returncode}: {done.stderr}")
    return json.loads(done.stdout)


def refusals(report):
    """Of the findings whose fix saves requests time: how many there are, and of each whose bound
    rests on no replay its code and by how much that is off."""
    bounds = [
        finding
        for finding in report["findings"]
        if finding["saving"]["kind"] == "latency" and finding["saving"]["at_most_ns"]
    ]
    refused = [
        (finding["code"], int(off.group(1)))
        for finding in bounds
        for off in [REFUSED.search(json.dumps(finding["evidence"]))]
        if off
    ]
    return len(bounds), refused


def part(tools, tool):
    """Returns the page's part, and what is wrong. `tools`: labs/accuracy."""
    labels = json.loads(corpus.LABELS.read_text())
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        reports = list(pool.map(lambda label: report_of(tool, label), labels))
    wrong, counts = [], {True: Counter(), False: Counter()}
    open_ones, rows, bounds = [], [], 0
    for label, report in zip(labels, reports):
        kind, name = report["verdict"]["kind"], f"`{label['lab']} {label['variant']}`"
        if kind not in KINDS:
            wrong.append(f"verdicts, {name}: expected one that labs/verdicts.py knows, got {kind}")
        counts[bool(label["must"])][kind] += 1
        if kind in UNCERTAIN:
            open_ones.append(name)
        of, refused = refusals(report)
        bounds += of
        rows += [[name, f"`{code}`", f"{off} %"] for code, off in refused]
    twins, too_low = savings_page(tools, labels, reports)
    return page(tools, counts, open_ones, bounds, rows) + twins, wrong + too_low


def savings_page(tools, labels, reports):
    """All variants with a fixed twin: what the finding's bound is, and what the twin saved; and
    which bounds do not hold."""
    listed = [
        {"name": label["lab"], "variant": label["variant"], "must": label["must"]}
        for label in labels
    ]
    kept, rows, ratios, wrong = corpus.all_kept(listed), [], [], []
    for label, report in zip(labels, reports):
        name = (label["lab"], label["variant"])
        for saving in corpus.savings(name, kept, tools):
            found = [one for one in report["findings"] if one["code"] == saving["code"]]
            at_most_ns = (found[0]["saving"]["at_most_ns"] or 0) if found else 0
            saved_ns, noise_ns = saving["saved_ns"], saving["noise_ns"]
            holds = saved_ns - noise_ns <= at_most_ns
            ratio = saved_ns / at_most_ns if at_most_ns else 0
            ratios.append(ratio)
            rows.append(
                [
                    f"`{' '.join(name)}`",
                    f"`{saving['code']}`",
                    f"{at_most_ns / 1e6:.0f}",
                    f"{saved_ns / 1e6:.0f}",
                    f"{ratio:.2f}",
                    "yes" if holds else "**no**",
                ]
            )
            if not holds:
                wrong.append(
                    f"bounds, `{' '.join(name)}`: `{saving['code']}` saves {at_most_ns / 1e6:.0f} "
                    f"ms at most, its twin saved {saved_ns / 1e6:.0f} ms"
                )
    held = sum(row[-1] == "yes" for row in rows)
    text = f"""
## Bounds of the kept recordings

Each kept recording with a fault whose fixed twin is kept, too: what the finding says that a fix
saves at most, and what the twin's requests took less, by their clients' clocks, in milliseconds
altogether; one run a side, so that the noise is 10 % at least. {held} of {len(rows)} bounds hold,
as `cargo test -p whywait-findings` has it; the median of the ratios is
{tools.statistics.median(ratios):.2f}.

"""
    head = ["recording", "finding", "at most", "saved", "ratio", "holds"]
    return text + tools.table(head, rows, left=2), wrong


def page(tools, counts, open_ones, bounds, rows):
    faults, others = counts[True].total(), counts[False].total()
    certain = sum(
        n for count in counts.values() for kind, n in count.items() if kind not in UNCERTAIN
    )
    text = f"""## Verdicts

What the first line of a report on each of the {faults + others} kept recordings says ("a fault":
something must be found, in most a fault; "none": fixed twins, healthy servers, and what shows a
report's tables). {certain} of them, {100 * certain / (faults + others):.1f} %, are certain.

"""
    text += tools.table(
        ["verdict", f"a fault ({faults})", f"none ({others})"],
        [
            [said, str(counts[True][kind] or ""), str(counts[False][kind] or "")]
            for kind, said in KINDS.items()
            if counts[True][kind] or counts[False][kind]
        ],
    )
    if open_ones:
        text += f"\nNot certain: {', '.join(open_ones)}.\n"
    text += f"""
## Bounds without a replay

A replay that changes nothing must be what was recorded, within 10 % of the time that requests took
(`docs/design/judgement.md`). Where it is not, a bound has all that requests wait for each other,
which is looser, and the finding says so. That is so for {len(rows)} of {bounds} findings whose fix
saves requests time.

"""
    return text + tools.table(["recording", "finding", "the replay is off by"], rows, left=2)
