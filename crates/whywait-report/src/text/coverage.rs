//! What the report rests on, and what the recording lacks.

use whywait_words::{count, counted, duration, ratio_percent};

use super::page::{Page, Style};
use crate::Report;

/// Less steal time than this harms nobody.
const STOLEN_NS: u64 = 10_000_000;
/// What `--detail` is unless somebody asks for another one.
const USUAL_DETAIL: &str = "waits";

pub(super) fn render(page: &mut Page, report: &Report) {
    facts(page, report);
    for line in lacks(report) {
        page.paragraph("  ", "    ", &[(Style::Plain, &line)]);
    }
}

/// What it rests on, in one sentence.
pub(super) fn facts(page: &mut Page, report: &Report) {
    let mut spans = vec![(Style::Strong, "coverage: ")];
    let facts = known(page, report);
    for (index, (style, text)) in facts.iter().enumerate() {
        if index > 0 {
            spans.push((Style::Plain, ", "));
        }
        spans.push((*style, text));
    }
    page.paragraph("", "  ", &spans);
}

/// What the recording lacks, right after the verdict: what is said may rest on it.
pub(super) fn short(page: &mut Page, report: &Report) {
    if let Some(incomplete) = &report.coverage.incomplete {
        let style = match incomplete.matters {
            true => Style::Warning,
            false => Style::Strong,
        };
        let spans = [(style, "incomplete: "), (Style::Plain, &incomplete.what)];
        page.paragraph("  ", "    ", &spans);
    }
}

/// Each thing that the recording lacks with what may rest on it, and what to do.
pub(super) fn lacks(report: &Report) -> Vec<String> {
    let Some(incomplete) = &report.coverage.incomplete else {
        return Vec::new();
    };
    let lacks = incomplete.lacks.iter();
    let mut lines: Vec<String> = lacks
        .map(|lack| format!("{}: {}", lack.what, lack.affects))
        .collect();
    lines.push(format!(
        "help: {} (whywait explain coverage)",
        incomplete.remedy
    ));
    lines
}

fn known(page: &Page, report: &Report) -> Vec<(Style, String)> {
    let coverage = &report.coverage;
    let mut facts: Vec<(Style, String)> = Vec::new();
    let mut plain = |text: String| facts.push((Style::Plain, text));
    if let Some(closure) = report.requests.closure {
        let closure = ratio_percent(closure);
        plain(format!("{closure} of the requests' time accounted for"));
    }
    if page.verbose() {
        plain(counted(coverage.events, "kernel event"));
    }
    if coverage.lost == 0 {
        plain("nothing lost".to_owned());
    } else {
        let (lost, reasons) = (count(coverage.lost), reasons(page, report));
        facts.push((Style::Bad, format!("{lost} lost{reasons}")));
    }
    let shown = limits(page, report).filter(|(matters, _)| *matters || page.verbose());
    facts.extend(shown.map(|(_, text)| (Style::Plain, text)));
    if !coverage.complete {
        facts.push((Style::Bad, "the recording was not finished".to_owned()));
    }
    facts
}

/// What the recording has less of than it could have, and what it was made with; whether a usual
/// report has to say so, because something in it may be wrong or missing for that.
fn limits(page: &Page, report: &Report) -> impl Iterator<Item = (bool, String)> {
    let coverage = &report.coverage;
    let some = |matters: bool, n: u64, noun: &str, rest: &str| {
        (n > 0).then(|| (matters, format!("{} {rest}", counted(n, noun))))
    };
    let without_stack = || {
        let share = coverage.waits_without_stack as f64 / coverage.waits as f64;
        let text = format!("{} of the long waits without a stack", ratio_percent(share));
        // A few in a thousand lack one on every kernel.
        (share >= 0.01, text)
    };
    let traced = || {
        let (time, bursts) = (
            duration(coverage.traced_ns),
            counted(coverage.bursts, "burst"),
        );
        (true, format!("system calls traced for {time} in {bursts}"))
    };
    let stolen = || {
        let time = duration(coverage.stolen_ns);
        let text = format!("the virtual machine's host took threads' CPUs away for {time}");
        (true, text)
    };
    let unmatched = || {
        let sleeps = counted(coverage.unmatched_wakes, "sleep");
        let unknown = match coverage.unmatched_wakes_ns {
            0 => String::new(),
            ns => format!(" ({} of the requests' time)", duration(ns)),
        };
        let matters = coverage.unmatched_wakes_ns > 0;
        (
            matters,
            format!("{sleeps} without a recorded wake{unknown}"),
        )
    };
    [
        (!coverage.tier.is_empty()).then(|| {
            let text = format!("detail: {}", page.cut(&coverage.tier, 20));
            (coverage.tier != USUAL_DETAIL, text)
        }),
        (coverage.unmatched_wakes > 0).then(unmatched),
        some(
            false,
            coverage.farewells,
            "close_notify or GOAWAY message",
            "to idle connections not counted as part of a response",
        ),
        coverage.frames_symbolised.map(|share| {
            let text = format!("{} of the frames named", ratio_percent(share));
            (false, text)
        }),
        (coverage.waits_without_stack > 0 && coverage.waits > 0).then(without_stack),
        some(false, coverage.truncated_stacks, "stack", "cut short"),
        some(true, coverage.truncated_paths, "critical path", "cut short"),
        some(
            true,
            coverage.calls_without_row,
            "slow call",
            "only counted, which any request may have made",
        ),
        (coverage.bursts > 0).then(traced),
        (coverage.stolen_ns >= STOLEN_NS).then(stolen),
    ]
    .into_iter()
    .flatten()
}

/// Why things were lost, the most frequent reasons first.
fn reasons(page: &Page, report: &Report) -> String {
    const MAX_REASONS: usize = 3;
    let mut reasons: Vec<(&String, &u64)> = report.coverage.lost_by_reason.iter().collect();
    reasons.sort_by_key(|(_, lost)| std::cmp::Reverse(**lost));
    let texts: Vec<String> = reasons
        .iter()
        .take(MAX_REASONS)
        .map(|(reason, lost)| format!("{} {}", page.cut(reason, 30), count(**lost)))
        .collect();
    if texts.is_empty() {
        String::new()
    } else {
        format!(" ({})", texts.join("; "))
    }
}
