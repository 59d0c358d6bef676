//! The table `findings`.

use whywait_events::recording::ReadError;
use whywait_findings::{Cause, Finding};

use crate::Source;
use crate::table::{WallClock, published};
use crate::text::{folded, joined, name};

published! {
    /// A finding of a recording's report.
    "findings": struct FindingRow {
        /// When the recording began.
        ts: WallClock,
        /// Its place in the report, from 1: the most severe first.
        place: u64,
        /// What it is: `whywait explain CODE` says what that means.
        code: String,
        /// `error`, `warning` or `note`.
        severity: String,
        /// `high`, `medium` or `low`.
        confidence: String,
        /// What happened, in one line.
        title: String,
        /// What a fix saves: `latency`, `cpu` or `throughput`.
        saving_kind: String,
        /// … at most.
        saving_at_most_ns: u64,
        /// How many requests that concerns.
        saving_requests: u64,
        /// What it is about: a JSON object.
        subject: String,
        /// The function at fault: the innermost one of the application's own; NULL: not known.
        function: Option<String>,
        /// The thread at fault, each number in its name as `N`; NULL: not known.
        thread: Option<String>,
        /// What that thread did; NULL: not known.
        doing: Option<String>,
        /// Where it did that: its stack, folded, outermost first; empty: not known.
        stack: String,
        /// What the finding rests on, ` | ` between the pieces.
        evidence: String,
        /// What to do about it.
        fix: String,
    }
}

pub(super) fn rows(source: &Source<'_>) -> Result<Vec<FindingRow>, ReadError> {
    let findings = source.report.findings.iter().zip(1..);
    Ok(findings
        .map(|(finding, place)| row(source, finding, place))
        .collect())
}

fn row(source: &Source<'_>, finding: &Finding, place: u64) -> FindingRow {
    let cause = finding.cause.as_ref();
    let text = |value: serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    let stack = cause.map_or(&[][..], |cause| &cause.stack);
    FindingRow {
        ts: source.identity.started(),
        place,
        code: finding.code.name().to_owned(),
        severity: finding.severity.name().to_owned(),
        confidence: text(serde_json::to_value(finding.confidence).unwrap_or_default()),
        title: finding.title.clone(),
        saving_kind: text(serde_json::to_value(finding.saving.kind).unwrap_or_default()),
        saving_at_most_ns: finding.saving.at_most_ns,
        saving_requests: finding.saving.requests,
        subject: serde_json::to_string(&finding.subject).unwrap_or_default(),
        function: cause.and_then(function),
        thread: cause.map(|cause| source.model.role_name(cause.tid)),
        doing: cause.map(|cause| cause.doing.clone()),
        stack: folded(stack.iter().map(String::as_str)),
        evidence: joined(finding.evidence.iter().map(|piece| piece.text.as_str())),
        fix: finding.fix.clone(),
    }
}

/// The innermost function of the application's own, or else the innermost one.
fn function(cause: &Cause) -> Option<String> {
    let own = cause.own.iter().position(|own| *own).unwrap_or(0);
    cause.stack.get(own).map(|function| name(function))
}
