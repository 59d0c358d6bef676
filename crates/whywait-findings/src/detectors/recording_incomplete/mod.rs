//! `recording-incomplete`: something that a finding may rest on was lost.
//!
//! **Invariant.** Nothing was lost that a finding rests on. It is about the tool, and never fails a
//! gate.
//!
//! **Evidence.** The recording's loss counters, by reason; damage; a recording that was not
//! finished.

use whywait_events::recording::CUT_SHORT;
use whywait_model::Model;
use whywait_words::counted_as;

use crate::declaration::Declaration;
use crate::facts::Facts;
use crate::finding::{Evidence, Finding, Severity};

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
/// Damages that are named one by one.
const DAMAGES_SHOWN: usize = 5;

/// What is said of a full disk ([`whywait_events::recording::WriteError::DiskFull`]).
const DISK_FULL: &str = "the disk is full";

fn detect(facts: &Facts<'_>) -> Vec<Finding> {
    let model = facts.model;
    let coverage = model.coverage();
    let lost = coverage.lost_by_reason.iter();
    let damaged = model.damaged.iter().take(DAMAGES_SHOWN);
    let why = cut_short(model);
    let unfinished = (!model.meta.complete).then(|| {
        Evidence::new(match why {
            Some(why) => format!("the recording was cut off: {why}"),
            None => "the recording was not finished: it was cut off, or is still being made".into(),
        })
    });
    let full = why.is_some_and(|why| why.contains(DISK_FULL));
    let evidence: Vec<Evidence> = lost
        .map(|(reason, n)| Evidence::new(format!("lost, {reason}: {n}")))
        .chain(damaged.map(|damage| Evidence::new(format!("damaged: {damage}"))))
        .chain(unfinished)
        .collect();
    if evidence.is_empty() {
        return Vec::new();
    }
    let matters =
        coverage.lost.saturating_mul(HARMLESS_SHARE) > coverage.events || !model.damaged.is_empty();
    let severity = if matters {
        Severity::Warning
    } else {
        Severity::Note
    };
    let title = match (coverage.lost, model.meta.complete) {
        (0, true) => "parts of the recording cannot be read: findings may be missing".to_owned(),
        (0, false) if full => {
            "the recording was cut off because the disk was full: what came after is missing"
                .to_owned()
        }
        (0, false) => "the recording was cut off: its last seconds are missing".to_owned(),
        (lost, _) => format!(
            "{} lost: findings may be missing",
            counted_as(lost, "event was", "events were")
        ),
    };
    let finding = Finding::new(&DECLARATION, severity, title)
        .evidence(evidence)
        .fix(if full {
            "free some space, or record to another disk; a higher --threshold makes recordings \
             smaller"
        } else {
            "record again: for a shorter time, or with a higher --threshold when events were lost"
        });
    vec![finding]
}

/// Why the recording ended before its time, as far as whywait could say.
fn cut_short(model: &Model) -> Option<&str> {
    let mut notes = model.meta.notes.iter();
    notes.find_map(|note| note.strip_prefix(CUT_SHORT))
}

#[cfg(test)]
mod tests;
