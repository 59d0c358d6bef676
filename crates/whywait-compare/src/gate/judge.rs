//! Holds runs against a budget, line by line.
//!
//! A recording that lacks something that matters (see docs/coverage.md) proves what it shows,
//! not what it does not show. So where there are others, incomplete ones are left out; where there
//! are none, what would be held is undecided. Undecided lines fail a gate only when the budget says
//! so. That a recording is incomplete never fails one by itself.

use std::collections::BTreeMap;

use serde::Serialize;
use whywait_findings::Severity;
use whywait_words::counted;

use super::baseline::Baseline;
use super::budget::{Allow, At, Budget};
use super::date::Date;
use super::limit::Limit;
use super::regression;
use crate::effect::median;
use crate::measures::{Found, Run, is_of_requests};
use crate::text::value;

/// What came of a gate.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Judgement {
    /// The version of the JSON's shape: [`Judgement::SCHEMA`].
    pub schema: u32,
    /// Whether the gate fails.
    pub failed: bool,
    /// How many runs were judged.
    pub runs: usize,
    /// How many of them lack something.
    pub incomplete_runs: usize,
    /// One for each line of the budget, and for each finding and regression that breaks one.
    pub lines: Vec<GateLine>,
    /// What the reader should know besides. May contain hostile names.
    pub notes: Vec<String>,
}

impl Judgement {
    /// The version of the JSON's shape.
    pub const SCHEMA: u32 = 1;

    /// The lines of that outcome.
    pub fn with(&self, outcome: LineOutcome) -> impl Iterator<Item = &GateLine> {
        self.lines
            .iter()
            .filter(move |line| line.outcome == outcome)
    }
}

/// What came of a line.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct GateLine {
    /// The budget's line, from 1.
    pub line: usize,
    /// What is asked for, in a few words.
    pub what: String,
    /// What came of it.
    pub outcome: LineOutcome,
    /// What was measured, in words. May contain hostile names.
    pub why: String,
}

/// What came of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum LineOutcome {
    /// It was kept to.
    Held,
    /// It was not.
    Broken,
    /// It was not, and that is allowed.
    Allowed,
    /// The recordings cannot decide it.
    Undecided,
}

/// Judges runs. `baseline`: what the budget's regressions are held against; `today`: for what is
/// allowed until a day.
pub fn judge(budget: &Budget, runs: &[Run], baseline: Option<&Baseline>, today: Date) -> Judgement {
    let complete: Vec<&Run> = runs.iter().filter(|run| run.missing.is_empty()).collect();
    let all: Vec<&Run> = runs.iter().collect();
    let judged = Judged {
        // Rather incomplete ones than none.
        runs: if complete.is_empty() { &all } else { &complete },
        all: &all,
        lacking: complete.is_empty(),
    };
    let mut lines = Vec::new();
    let mut notes = Vec::new();
    findings(budget, &judged, today, &mut lines, &mut notes);
    for limit in &budget.limits {
        lines.push(judged.limit(limit));
    }
    if let Some(regressions) = &budget.regressions {
        let (more, remarks) = regression::judge(regressions, judged.runs, judged.lacking, baseline);
        lines.extend(more);
        notes.extend(remarks);
    }
    for run in runs.iter().filter(|run| !run.missing.is_empty()).take(5) {
        notes.push(format!(
            "{} is incomplete: {}",
            run.name,
            run.missing.join("; ")
        ));
    }
    if !complete.is_empty() && complete.len() < runs.len() {
        let left_out = runs.len() - complete.len();
        notes.push(format!(
            "{left_out} of {} runs are incomplete: limits and regressions leave them out",
            runs.len()
        ));
    }
    let failed = lines.iter().any(|line| {
        line.outcome == LineOutcome::Broken
            || (line.outcome == LineOutcome::Undecided && budget.fail_when_undecided)
    });
    Judgement {
        schema: Judgement::SCHEMA,
        failed,
        runs: runs.len(),
        incomplete_runs: runs.len() - complete.len(),
        lines,
        notes,
    }
}

struct Judged<'a> {
    /// What limits are held against.
    runs: &'a [&'a Run],
    /// All: a finding in an incomplete recording is one.
    all: &'a [&'a Run],
    /// None is complete.
    lacking: bool,
}

impl Judged<'_> {
    fn limit(&self, limit: &At<Limit>) -> GateLine {
        let line = limit.line;
        let limit = &limit.what;
        let (outcome, why) = self.measured(limit);
        GateLine {
            line,
            what: limit.text.clone(),
            outcome,
            why,
        }
    }

    fn measured(&self, limit: &Limit) -> (LineOutcome, String) {
        let values: Vec<(f64, f64)> = self
            .runs
            .iter()
            .filter_map(|run| run.measures.get(&limit.measure))
            .filter(|measure| measure.value.is_finite())
            .map(|measure| (measure.value, measure.at_most.unwrap_or(measure.value)))
            .collect();
        if values.len() < self.runs.len() || values.is_empty() {
            let n = self.runs.len();
            let mut why = format!("not measured in {} of {n} recordings", n - values.len());
            if is_of_requests(&limit.measure) && self.runs.iter().any(|run| run.untold) {
                why.push_str(UNTOLD);
            }
            return (LineOutcome::Undecided, why);
        }
        let ends = |end: fn(&(f64, f64)) -> f64| values.iter().map(end).collect::<Vec<_>>();
        let (Some(low), Some(high)) = (median(&ends(|v| v.0)), median(&ends(|v| v.1))) else {
            return (LineOutcome::Undecided, "not measured".to_owned());
        };
        let shown = |v: f64| value(limit.unit, v);
        let mut why = if high > low {
            format!("between {} and {}", shown(low), shown(high))
        } else {
            shown(low)
        };
        if values.len() > 1 {
            why = format!("{why} (median of {} runs)", values.len());
        }
        let held = limit.op.holds(low, limit.value) && limit.op.holds(high, limit.value);
        let broken = !limit.op.holds(low, limit.value) && !limit.op.holds(high, limit.value);
        match (held, broken) {
            // What was lost can only have made it more.
            (true, _) if self.lacking && limit.op.is_upper() => (
                LineOutcome::Undecided,
                format!("{why}, but all recordings are incomplete"),
            ),
            (_, true) if self.lacking && !limit.op.is_upper() => (
                LineOutcome::Undecided,
                format!("{why}, but all recordings are incomplete"),
            ),
            (true, _) => (LineOutcome::Held, why),
            (_, true) => (LineOutcome::Broken, why),
            _ => (
                LineOutcome::Undecided,
                format!(
                    "{why}: below the threshold only sums are recorded; record with a lower \
                     --threshold"
                ),
            ),
        }
    }
}

/// Why there may be no figures of requests.
pub(super) const UNTOLD: &str =
    ": requests on connections that carry several at once cannot be told apart";

/// A finding's runs.
struct FindingRuns<'a> {
    worst: &'a Found,
    runs: usize,
}

fn findings(
    budget: &Budget,
    judged: &Judged<'_>,
    today: Date,
    lines: &mut Vec<GateLine>,
    notes: &mut Vec<String>,
) {
    let Some(max) = &budget.max_severity else {
        return;
    };
    let mut seen: BTreeMap<String, FindingRuns<'_>> = BTreeMap::new();
    for run in judged.all {
        let mut in_run: BTreeMap<String, &Found> = BTreeMap::new();
        for found in &run.findings {
            let worst = in_run.entry(found.key()).or_insert(found);
            if found.rank() > worst.rank() {
                *worst = found;
            }
        }
        for (key, found) in in_run {
            if found.rank() <= rank(max.what) {
                continue;
            }
            let seen = seen.entry(key).or_insert(FindingRuns {
                worst: found,
                runs: 0,
            });
            seen.runs += 1;
            if found.rank() > seen.worst.rank() {
                seen.worst = found;
            }
        }
    }
    let n = judged.all.len();
    let what = format!("no finding above {}", severity(max.what));
    let mut broken = false;
    let mut used = vec![false; budget.allow.len()];
    for seen in seen.values() {
        if !budget.in_any_run && seen.runs * 2 <= n {
            notes.push(format!(
                "{} {} is in {} of {n} runs only: not counted",
                seen.worst.severity, seen.worst.code, seen.runs
            ));
            continue;
        }
        let line = finding(budget, seen, n, max.line, &what, today, &mut used);
        broken |= line.outcome != LineOutcome::Allowed;
        lines.push(line);
    }
    for (allow, used) in budget.allow.iter().zip(used) {
        if !used {
            notes.push(format!(
                "line {}: {} is allowed but was not found: the line may go",
                allow.line, allow.what.code
            ));
        }
    }
    if !broken {
        let (outcome, why) = if judged.lacking {
            (
                LineOutcome::Undecided,
                "none, but all recordings are incomplete".to_owned(),
            )
        } else {
            (LineOutcome::Held, format!("none in {}", counted(n, "run")))
        };
        lines.push(GateLine {
            line: max.line,
            what,
            outcome,
            why,
        });
    }
}

fn finding(
    budget: &Budget,
    seen: &FindingRuns<'_>,
    runs: usize,
    line: usize,
    what: &str,
    today: Date,
    used: &mut [bool],
) -> GateLine {
    let found = seen.worst;
    let why = format!(
        "{} {} in {} of {}: {}",
        found.severity,
        found.code,
        seen.runs,
        counted(runs, "run"),
        found.title
    );
    let mut past = None;
    for (allow, used) in budget.allow.iter().zip(used.iter_mut()) {
        if !covers(&allow.what, found) {
            continue;
        }
        *used = true;
        match allow.what.until.filter(|until| *until < today) {
            Some(until) => past = Some((allow.line, until)),
            None => {
                return GateLine {
                    line: allow.line,
                    what: what.to_owned(),
                    outcome: LineOutcome::Allowed,
                    why: format!("{why}; allowed: {}", allow.what.reason),
                };
            }
        }
    }
    let (line, why) = match past {
        Some((line, until)) => (line, format!("{why}; it was allowed until {until}")),
        None => (line, why),
    };
    GateLine {
        line,
        what: what.to_owned(),
        outcome: LineOutcome::Broken,
        why,
    }
}

fn covers(allow: &Allow, found: &Found) -> bool {
    allow.code == found.code
        && allow
            .thread
            .as_ref()
            .is_none_or(|thread| *thread == found.thread)
        && found.rank() <= rank(allow.max_severity)
}

fn rank(severity: Severity) -> u32 {
    match severity {
        Severity::Note => 1,
        Severity::Warning => 2,
        Severity::Error => 3,
    }
}

fn severity(severity: Severity) -> &'static str {
    match severity {
        Severity::Note => "note",
        Severity::Warning => "warning",
        Severity::Error => "error",
    }
}
