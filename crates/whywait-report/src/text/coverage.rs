//! What the report is based on, in one line.

use super::page::{Page, Style};
use super::units::{count, counted, duration, ratio_percent};
use crate::Report;

/// Less steal time than this harms nobody.
const STOLEN_NS: u64 = 10_000_000;

pub(super) fn render(page: &mut Page, report: &Report) {
    let coverage = &report.coverage;
    let mut facts: Vec<(Style, String)> = Vec::new();
    if let Some(closure) = report.requests.closure {
        facts.push((
            Style::Plain,
            format!(
                "{} of the requests' time accounted for",
                ratio_percent(closure)
            ),
        ));
    }
    facts.push((Style::Plain, counted(coverage.events, "kernel event")));
    facts.push(match coverage.lost {
        0 => (Style::Plain, "none lost".to_owned()),
        lost => (
            Style::Bad,
            format!("{} lost{}", count(lost), reasons(page, report)),
        ),
    });
    if coverage.unmatched_wakes > 0 {
        facts.push((
            Style::Plain,
            format!(
                "{} without a recorded wake",
                counted(coverage.unmatched_wakes, "sleep")
            ),
        ));
    }
    if coverage.farewells > 0 {
        facts.push((
            Style::Plain,
            format!(
                "{} to idle connections not counted as part of a response",
                counted(coverage.farewells, "close_notify or GOAWAY message")
            ),
        ));
    }
    if let Some(share) = coverage.frames_symbolised {
        facts.push((
            Style::Plain,
            format!("{} of the frames named", ratio_percent(share)),
        ));
    }
    if coverage.waits_without_stack > 0 && coverage.waits > 0 {
        let share = coverage.waits_without_stack as f64 / coverage.waits as f64;
        facts.push((
            Style::Plain,
            format!("{} of the long waits without a stack", ratio_percent(share)),
        ));
    }
    if coverage.truncated_stacks > 0 {
        facts.push((
            Style::Plain,
            format!("{} cut short", counted(coverage.truncated_stacks, "stack")),
        ));
    }
    if coverage.truncated_paths > 0 {
        facts.push((
            Style::Plain,
            format!(
                "{} cut short",
                counted(coverage.truncated_paths, "critical path")
            ),
        ));
    }
    if coverage.bursts > 0 {
        facts.push((
            Style::Plain,
            format!(
                "system calls traced for {} in {}",
                duration(coverage.traced_ns),
                counted(coverage.bursts, "burst")
            ),
        ));
    }
    if coverage.stolen_ns >= STOLEN_NS {
        facts.push((
            Style::Plain,
            format!(
                "the virtual machine's host took threads' CPUs away for {}",
                duration(coverage.stolen_ns)
            ),
        ));
    }
    if !coverage.tier.is_empty() {
        facts.push((
            Style::Plain,
            format!("detail: {}", page.cut(&coverage.tier, 20)),
        ));
    }
    if !coverage.complete {
        facts.push((Style::Bad, "the recording was not finished".to_owned()));
    }
    let mut spans = vec![(Style::Strong, "coverage: ")];
    for (index, (style, text)) in facts.iter().enumerate() {
        if index > 0 {
            spans.push((Style::Plain, ", "));
        }
        spans.push((*style, text));
    }
    page.paragraph("", "  ", &spans);
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
