//! What differs between two sides, measure by measure: by how much, and how sure that is.
//!
//! All measures that matter make one family (see `permutation`). Which ones matter is decided
//! without looking at which run is on which side: headlines, findings, and of the details those
//! that are at least a fiftieth of the requests' time (functions: of the CPU time) in some run. A
//! difference is called when its adjusted p-value is at most `alpha` and its size is at least
//! `min_effect`, and not by its estimate alone: also by the near end of its interval. That hardly
//! costs anything where a change is twice as large, and keeps accidents of a few per cent, which a
//! twentieth of all comparisons has, from failing anybody's build. Findings are there or not: for
//! them the p-value is all. Everything else is shown as not significant.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::effect::{self, Effect};
use crate::measures::{Better, Group, Measure, Run, Subject, Unit};
use crate::permutation::{self, least_p};
use crate::side::Side;

/// Details below this share of the whole, in all runs, are not compared.
const LEAST_SHARE: f64 = 0.02;

/// How differences are judged.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct ChangeOptions {
    /// The family-wise error: the chance that anything at all is called a difference between two
    /// sides that are the same.
    pub alpha: f64,
    /// Differences below this share are no regressions, however sure they are.
    pub min_effect: f64,
}

impl Default for ChangeOptions {
    fn default() -> Self {
        ChangeOptions {
            alpha: 0.05,
            min_effect: 0.05,
        }
    }
}

/// What became of a measure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Trend {
    /// Changed for the worse.
    Worse,
    /// Changed for the better.
    Better,
    /// Changed, and is neither good nor bad by itself.
    Changed,
    /// The sides differ, by less than matters.
    Small,
    /// The sides differ, perhaps by less than matters.
    Unclear,
    /// No difference that chance would not make.
    NotToldApart,
    /// Too few runs to call anything a difference.
    TooFewRuns,
}

/// A measure on both sides.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Change {
    /// The measure's name.
    pub name: String,
    /// What kind of thing it is about.
    pub group: Group,
    /// What it counts.
    pub unit: Unit,
    /// Which direction is good.
    pub better: Better,
    /// What it is about. Hostile.
    pub subject: Subject,
    /// The value in each run of the base.
    pub base: Vec<f64>,
    /// The value in each run of the head.
    pub head: Vec<f64>,
    /// The median of the base.
    pub base_median: f64,
    /// The median of the head.
    pub head_median: f64,
    /// By how much the head is larger, in the measure's unit.
    pub shift: Effect,
    /// The head as a multiple of the base; `None` when a value is 0.
    pub ratio: Option<Effect>,
    /// The difference as a share: of the base for headlines, of the requests' time for its parts,
    /// of the CPU time for functions. What is held against `min_effect`.
    pub relative: f64,
    /// How large it is at least, by its interval: a share as `relative` is, without its sign.
    pub at_least: f64,
    /// The p-value of this measure alone; `None` when it was not tested.
    pub p: Option<f64>,
    /// The p-value adjusted for all that were tested.
    pub adjusted_p: Option<f64>,
    /// What became of it.
    pub verdict: Trend,
    /// The stack in which most of it was on the side where it is larger, innermost first. Hostile.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub stack: Vec<String>,
}

impl Change {
    /// Whether it is called a difference.
    pub fn is_called(&self) -> bool {
        matches!(self.verdict, Trend::Worse | Trend::Better | Trend::Changed)
    }

    /// Whether chance is ruled out, whatever the size: of what explains a change, each piece may be
    /// small.
    pub fn is_told_apart(&self) -> bool {
        self.is_called() || matches!(self.verdict, Trend::Small | Trend::Unclear)
    }

    /// Whether it is a regression: something that users or operators feel, or a finding, got worse.
    pub fn is_regression(&self) -> bool {
        self.verdict == Trend::Worse && self.counts()
    }

    /// Whether it matters by itself, and does not only say why something else changed: not details,
    /// nor findings that are notes.
    pub fn counts(&self) -> bool {
        match self.group {
            Group::Headline | Group::Section => true,
            Group::Finding => self.base_median.max(self.head_median) > 1.0,
            Group::Part | Group::Path | Group::Wait | Group::Route | Group::Function => false,
        }
    }
}

/// All changes, and what the test was like.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Changes {
    /// One for each measure that was compared.
    pub changes: Vec<Change>,
    /// How many of them were tested together.
    pub tested: usize,
    /// How many permutations of the runs were compared.
    pub ways: u64,
    /// Whether these were all.
    pub exact: bool,
    /// The smallest p-value that so many runs can give.
    pub least_p: f64,
}

/// A measure that both sides have, with its values and what they are held against.
struct Candidate {
    measure: Measure,
    base: Vec<f64>,
    head: Vec<f64>,
    /// What a difference is a share of; `None`: of the base's own value.
    whole: Option<f64>,
    /// Whether it is large enough to be tested.
    tested: bool,
}

/// Compares two sides. Measures that some run lacks are left out, unless lacking means 0 (see
/// [`zero`]).
pub fn compare(base: &Side, head: &Side, options: ChangeOptions) -> Changes {
    let candidates = candidates(base, head);
    let rows: Vec<Vec<f64>> = candidates
        .values()
        .filter(|candidate| candidate.tested)
        .map(Candidate::row)
        .collect();
    let (n, m) = (base.runs.len(), head.runs.len());
    let outcome = permutation::test(&rows, n);
    let least_p = least_p(n, m);
    let callable = least_p <= options.alpha;
    let mut tests = outcome.tests.iter();
    let changes = candidates
        .iter()
        .filter_map(|(name, candidate)| {
            let test = if candidate.tested { tests.next() } else { None };
            let mut change = candidate.change(name)?;
            let larger = if change.shift.estimate >= 0.0 {
                head
            } else {
                base
            };
            change.stack = stack(larger, name);
            change.p = test.map(|test| test.p);
            change.adjusted_p = test.map(|test| test.adjusted);
            change.verdict = match change.adjusted_p {
                _ if !callable => Trend::TooFewRuns,
                Some(p) if p <= options.alpha => called(&change, options),
                _ => Trend::NotToldApart,
            };
            Some(change)
        })
        .collect();
    Changes {
        changes,
        tested: rows.len(),
        ways: outcome.ways,
        exact: outcome.exact,
        least_p,
    }
}

/// The stack of a measure in the run in which it is largest.
fn stack(side: &Side, name: &str) -> Vec<String> {
    let measures = side.runs.iter().filter_map(|run| run.measures.get(name));
    measures
        .max_by(|a, b| a.value.total_cmp(&b.value))
        .map(|measure| measure.stack.clone())
        .unwrap_or_default()
}

fn called(change: &Change, options: ChangeOptions) -> Trend {
    let up = change.shift.estimate > 0.0;
    match change.better {
        _ if change.relative.abs() < options.min_effect => Trend::Small,
        _ if change.at_least < options.min_effect && change.group != Group::Finding => {
            Trend::Unclear
        }
        Better::Neither => Trend::Changed,
        Better::Less if up => Trend::Worse,
        Better::More if !up => Trend::Worse,
        _ => Trend::Better,
    }
}

fn candidates(base: &Side, head: &Side) -> BTreeMap<String, Candidate> {
    let runs = || base.runs.iter().chain(&head.runs);
    let mean = |name: &str| {
        let values: Vec<f64> = runs().filter_map(|run| run.value(name)).collect();
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        (mean.is_finite() && mean > 0.0).then_some(mean)
    };
    let latency = mean("latency.mean");
    let cpu = mean("cpu.per-request")
        .or_else(|| mean("cpu.per-operation"))
        .or_else(|| mean("cpu.cores").map(|cores| cores * 1e9));
    let mut candidates = BTreeMap::new();
    for (name, measure) in runs().flat_map(|run| &run.measures) {
        if candidates.contains_key(name) {
            continue;
        }
        let (Some(base), Some(head)) = (
            values(&base.runs, name, measure.group),
            values(&head.runs, name, measure.group),
        ) else {
            continue;
        };
        let whole = match measure.group {
            Group::Headline | Group::Section => None,
            Group::Finding => Some(1.0),
            Group::Part | Group::Path | Group::Wait | Group::Route => latency,
            Group::Function => cpu,
        };
        let largest = base
            .iter()
            .chain(&head)
            .fold(0.0f64, |max, value| max.max(*value));
        let tested = match measure.group {
            Group::Headline | Group::Finding => true,
            Group::Section => measure.better != Better::Neither,
            _ => whole.is_some_and(|whole| largest >= whole * LEAST_SHARE),
        };
        candidates.insert(
            name.clone(),
            Candidate {
                measure: measure.clone(),
                base,
                head,
                whole,
                tested,
            },
        );
    }
    candidates
}

/// A measure's value in each run. What a run does not mention took no time there, if it measured
/// that kind of thing at all; what it did not measure is not known.
fn values(runs: &[Run], name: &str, group: Group) -> Option<Vec<f64>> {
    runs.iter()
        .map(|run| run.value(name).or_else(|| zero(run, name, group)))
        .map(|value| value.filter(|value| value.is_finite() && *value >= 0.0))
        .collect()
}

fn zero(run: &Run, name: &str, group: Group) -> Option<f64> {
    let measured = match group {
        Group::Headline | Group::Section => false,
        Group::Finding => true,
        Group::Part | Group::Path | Group::Wait => run.measures.contains_key("latency.mean"),
        Group::Route => run.has_routes,
        Group::Function => {
            // `function/request|…`: per what it is.
            let per = name.split('|').next().unwrap_or_default();
            let mut from = run.measures.range(per.to_owned()..);
            from.next().is_some_and(|(name, _)| name.starts_with(per))
        }
    };
    measured.then_some(0.0)
}

impl Candidate {
    /// The values as they are tested: differences are relative ones.
    fn row(&self) -> Vec<f64> {
        let all = || self.base.iter().chain(&self.head);
        if let Some(whole) = self.whole {
            return all().map(|value| value / whole).collect();
        }
        if all().all(|value| *value > 0.0) {
            return all().map(|value| value.ln()).collect();
        }
        let mean = all().sum::<f64>() / all().count().max(1) as f64;
        let unit = if mean > 0.0 { mean } else { 1.0 };
        all().map(|value| value / unit).collect()
    }

    fn change(&self, name: &str) -> Option<Change> {
        let shift = effect::shift(&self.base, &self.head)?;
        let ratio = effect::ratio(&self.base, &self.head);
        let base_median = effect::median(&self.base)?;
        let share = |shift: f64| match self.whole {
            Some(whole) => shift / whole,
            None if base_median > 0.0 => shift / base_median,
            None if shift == 0.0 => 0.0,
            // From nothing to something is as much as can be.
            None => shift.signum(),
        };
        let (relative, interval) = match (self.whole, ratio) {
            (None, Some(ratio)) => (
                ratio.estimate - 1.0,
                ratio.interval.map(|(low, high)| (low - 1.0, high - 1.0)),
            ),
            _ => (
                share(shift.estimate),
                shift.interval.map(|(low, high)| (share(low), share(high))),
            ),
        };
        let at_least = interval.map_or(relative.abs(), |(low, high)| {
            // An interval on both sides of nothing says nothing of the size.
            if low * high > 0.0 {
                low.abs().min(high.abs())
            } else {
                0.0
            }
        });
        Some(Change {
            name: name.to_owned(),
            group: self.measure.group,
            unit: self.measure.unit,
            better: self.measure.better,
            subject: self.measure.subject.clone(),
            base: self.base.clone(),
            head: self.head.clone(),
            base_median,
            head_median: effect::median(&self.head)?,
            shift,
            ratio,
            relative,
            at_least,
            p: None,
            adjusted_p: None,
            verdict: Trend::NotToldApart,
            stack: Vec::new(),
        })
    }
}
