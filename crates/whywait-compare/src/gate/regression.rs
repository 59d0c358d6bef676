//! The part of a budget that says what must not get worse than a stored baseline.

use whywait_words::percent_change;

use super::baseline::Baseline;
use super::budget::{At, Regressions};
use super::judge::{GateLine, LineOutcome, UNTOLD};
use crate::diff::{Diff, Overall};
use crate::measures::Run;
use crate::side::Side;
use crate::text::{p_value, title, value};

pub(super) fn judge(
    regressions: &At<Regressions>,
    runs: &[&Run],
    lacking: bool,
    baseline: Option<&Baseline>,
) -> (Vec<GateLine>, Vec<String>) {
    let what = format!("not worse than {}", regressions.what.baseline.display());
    let line = |outcome, why: String| GateLine {
        line: regressions.line,
        what: what.clone(),
        outcome,
        why,
    };
    let Some(baseline) = baseline else {
        return (
            vec![line(
                LineOutcome::Undecided,
                "there is no baseline yet".to_owned(),
            )],
            Vec::new(),
        );
    };
    let base = Side {
        name: regressions.what.baseline.display().to_string(),
        runs: baseline
            .runs
            .iter()
            .filter(|run| run.missing.is_empty())
            .cloned()
            .collect(),
    };
    let head = Side {
        name: "these runs".to_owned(),
        runs: runs.iter().map(|run| (*run).clone()).collect(),
    };
    let untold = base.runs.iter().chain(&head.runs).any(|run| run.untold);
    let diff = Diff::new(&base, &head, regressions.what.options);
    let mut lines: Vec<GateLine> = diff
        .regressions()
        .map(|change| {
            let why = format!(
                "{}: {} before, {} now ({}, adjusted p {})",
                title(
                    change
                        .name
                        .trim_start_matches("finding/")
                        .trim_end_matches('|')
                ),
                value(change.unit, change.base_median),
                value(change.unit, change.head_median),
                percent_change(change.relative),
                p_value(change.adjusted_p.unwrap_or(1.0))
            );
            line(LineOutcome::Broken, why)
        })
        .collect();
    if lines.is_empty() {
        let compared = format!("{} against {} runs", runs.len(), base.runs.len());
        lines.push(match diff.verdict {
            Overall::TooFewRuns => line(
                LineOutcome::Undecided,
                format!("{compared}: too few to rule out chance"),
            ),
            _ if untold => line(
                LineOutcome::Undecided,
                format!("{compared}: nothing else got worse{UNTOLD}"),
            ),
            _ if lacking => line(
                LineOutcome::Undecided,
                format!("{compared}, all of them incomplete"),
            ),
            Overall::Better => line(LineOutcome::Held, format!("{compared}: better")),
            _ => line(LineOutcome::Held, format!("{compared}: nothing got worse")),
        });
    }
    let notes = if diff.verdict == Overall::TooFewRuns {
        Vec::new()
    } else {
        diff.notes
    };
    (lines, notes)
}
