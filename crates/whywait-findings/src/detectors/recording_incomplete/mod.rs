//! `recording-incomplete`: something that a finding may rest on was lost.
//!
//! **Invariant.** Nothing was lost that a finding rests on. It is about the tool, and never fails a
//! gate.
//!
//! **Evidence.** The recording's loss counters, by reason; damage; a recording that was not
//! finished.

use serde_json::Map;
use whywait_model::Model;

use crate::declaration::{Code, Declaration};
use crate::finding::{Confidence, Evidence, Finding, Saving, SavingKind, Severity};
use crate::shared::text::count;

/// What it is.
pub(crate) static DECLARATION: Declaration = Declaration {
    code: "recording-incomplete",
    meaning: "something that a finding may rest on was lost, or the recording was cut off",
    severities: &[
        (
            Severity::Warning,
            "where a finding may be missing or too small",
        ),
        (Severity::Note, "otherwise"),
    ],
    invariant: "nothing was lost that a finding rests on",
    explain: include_str!("explain.md"),
    detect,
};

/// Losses below one in so many events leave every figure as it is, for what a report shows.
const HARMLESS_SHARE: u64 = 1000;

fn detect(model: &Model) -> Vec<Finding> {
    let coverage = model.coverage();
    let mut evidence: Vec<Evidence> = coverage
        .lost_by_reason
        .iter()
        .map(|(reason, n)| Evidence {
            text: format!("lost, {reason}: {n}"),
            ns: None,
        })
        .collect();
    evidence.extend(model.damaged.iter().take(5).map(|damage| Evidence {
        text: format!("damaged: {damage}"),
        ns: None,
    }));
    if !model.meta.complete {
        evidence.push(Evidence {
            text: "the recording was not finished: it was cut off, or is still being made"
                .to_owned(),
            ns: None,
        });
    }
    if evidence.is_empty() {
        return Vec::new();
    }
    let matters =
        coverage.lost.saturating_mul(HARMLESS_SHARE) > coverage.events || !model.damaged.is_empty();
    let title = match (coverage.lost, model.meta.complete) {
        (0, true) => "parts of the recording cannot be read: findings may be missing".to_owned(),
        (0, false) => "the recording was cut off: its last seconds are missing".to_owned(),
        (lost, _) => format!(
            "{} lost: findings may be missing",
            count(lost as usize, "event was", "events were")
        ),
    };
    vec![Finding {
        code: Code::of(&DECLARATION),
        severity: if matters {
            Severity::Warning
        } else {
            Severity::Note
        },
        confidence: Confidence::High,
        title,
        subject: Map::new(),
        saving: Saving {
            kind: SavingKind::Latency,
            at_most_ns: 0,
            requests: 0,
            each_at_most_ns: Vec::new(),
        },
        evidence,
        cause: None,
        fix: "record again: for a shorter time, or with a higher --threshold when events were lost"
            .to_owned(),
    }]
}

#[cfg(test)]
mod tests {
    use whywait_model::script::Script;

    use super::*;

    #[test]
    fn a_whole_recording_is_not_mentioned() {
        assert_eq!(
            detect(&Script::new().counter("lost.ring-full", 0).model()),
            []
        );
    }

    #[test]
    fn a_recording_that_was_cut_off_is_a_note() {
        let findings = detect(&Script::new().cut_off().model());
        assert_eq!(findings.len(), 1);
        assert_eq!(findings[0].severity, Severity::Note);
    }

    #[test]
    fn losses_that_may_matter_are_a_warning() {
        let findings = detect(
            &Script::new()
                .counter("events", 1000)
                .counter("lost.ring-full", 10)
                .model(),
        );
        assert_eq!(findings[0].severity, Severity::Warning);
        assert!(
            findings[0].evidence[0].text.contains("ring-full"),
            "{:?}",
            findings[0].evidence
        );
    }
}
