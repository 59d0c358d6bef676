//! When the causes of findings were at it.

use std::collections::HashMap;

use whywait_events::StackId;
use whywait_findings::{Cause, Finding, Severity};
use whywait_model::{Model, RequestRef, Thread};
use whywait_report::Report;
use whywait_report::text::sentences;

use super::svg::{name, whole};
use crate::palette::{self, Paint};

/// Findings that are marked: those that the text shows.
const MAX_FINDINGS: usize = 5;
/// Spans closer than this part of the recording are drawn as one.
const APART: u64 = 500;

/// The times of a finding's cause.
pub(crate) struct Marks {
    /// The finding's place in the report, from 1.
    pub(crate) number: usize,
    pub(crate) title: String,
    pub(crate) paint: Paint,
    /// From and to, since the recording's start, in order.
    pub(crate) spans: Vec<(u64, u64)>,
}

/// The times at which the cause of each finding was in the stack that the finding shows: waits, and
/// samples on a CPU. Findings without such a cause have none.
pub(crate) fn of_findings(model: &Model, report: &Report) -> Vec<Marks> {
    sentences::ranked(&report.findings)
        .take(MAX_FINDINGS)
        .enumerate()
        .filter_map(|(index, finding)| {
            let cause = finding.cause.as_ref()?;
            let thread = model.threads.get(&cause.tid)?;
            let spans = spans(model, thread, cause);
            let marks = Marks {
                number: index + 1,
                title: format!(
                    "{}: {} {}",
                    finding.code.name(),
                    name(&cause.thread, 40),
                    whole(&cause.doing)
                ),
                paint: paint(finding),
                spans,
            };
            (!marks.spans.is_empty()).then_some(marks)
        })
        .collect()
}

/// The colour of what is a finding's.
fn paint(finding: &Finding) -> Paint {
    match finding.severity {
        Severity::Error => palette::OF_ERROR,
        Severity::Warning => palette::OF_WARNING,
        Severity::Note => palette::OF_NOTE,
    }
}

/// The first finding of which it is known which requests it concerns.
pub(crate) struct Concerned<'r> {
    /// Its place in the report, from 1.
    pub(crate) number: usize,
    pub(crate) paint: Paint,
    finding: &'r Finding,
}

impl<'r> Concerned<'r> {
    pub(crate) fn of(report: &'r Report) -> Option<Self> {
        sentences::ranked(&report.findings)
            .enumerate()
            .find(|(_, finding)| !finding.requests.is_empty())
            .map(|(index, finding)| Self {
                number: index + 1,
                paint: paint(finding),
                finding,
            })
    }

    pub(crate) fn has(&self, request: RequestRef<'_>) -> bool {
        self.finding.is_of(request)
    }
}

fn spans(model: &Model, thread: &Thread, cause: &Cause) -> Vec<(u64, u64)> {
    if cause.stack.is_empty() {
        return Vec::new();
    }
    let mut same: HashMap<StackId, bool> = HashMap::new();
    let mut is_there = |stack: StackId| {
        stack != 0
            && *same
                .entry(stack)
                .or_insert_with(|| model.stacks.names(stack) == cause.stack)
    };
    let mut spans: Vec<(u64, u64)> = Vec::new();
    for wait in thread.timeline.waits() {
        if is_there(wait.user_stack) || is_there(wait.kernel_stack) {
            spans.push((wait.out_ns, wait.in_ns.unwrap_or(model.end_ns)));
        }
    }
    let hz = u64::from(model.meta.options.sample_hz);
    let period_ns = 1_000_000_000_u64.checked_div(hz).unwrap_or(0);
    for sample in &thread.samples {
        if is_there(sample.user_stack) || is_there(sample.kernel_stack) {
            let half_ns = period_ns.saturating_mul(sample.weight()) / 2;
            spans.push((
                sample.at_ns.saturating_sub(half_ns),
                sample.at_ns.saturating_add(half_ns),
            ));
        }
    }
    let started_ns = model.meta.started_ns;
    merged(spans, model.end_ns.saturating_sub(started_ns) / APART)
        .into_iter()
        .map(|(from_ns, to_ns)| {
            (
                from_ns.saturating_sub(started_ns),
                to_ns.saturating_sub(started_ns),
            )
        })
        .collect()
}

/// Spans in order; those that are closer than `apart_ns` are one.
fn merged(mut spans: Vec<(u64, u64)>, apart_ns: u64) -> Vec<(u64, u64)> {
    spans.sort_unstable();
    let mut merged: Vec<(u64, u64)> = Vec::new();
    for (from, to) in spans {
        match merged.last_mut() {
            Some(last) if from <= last.1.saturating_add(apart_ns) => last.1 = last.1.max(to),
            _ => merged.push((from, to)),
        }
    }
    merged
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_spans_are_one() {
        assert_eq!(
            merged(vec![(50, 60), (0, 10), (12, 20), (61, u64::MAX)], 2),
            [(0, 20), (50, u64::MAX)]
        );
    }
}
