//! `whywait diff`: two sides, what differs, and what that means.

use std::collections::BTreeSet;

use serde::Serialize;
use whywait_words::{count, counted, duration};

use crate::changes::{self, Change, ChangeOptions, Changes, Trend};
use crate::effect::median;
use crate::explain::{self, Explanation};
use crate::measures::{Found, Group, Run};
use crate::side::Side;

/// The name of the test.
pub const TEST: &str = "permutation test of the runs, two-sided; family-wise error by Westfall \
                        and Young's step-down max-T";

/// The comparison of two sides.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Diff {
    /// The version of the JSON's shape: [`Diff::SCHEMA`].
    pub schema: u32,
    /// All in a word.
    pub verdict: Overall,
    /// What came before.
    pub base: SideAbout,
    /// What is held against it.
    pub head: SideAbout,
    /// How differences were tested against chance.
    pub test: Test,
    /// What makes the sides hard to compare, in words. May contain hostile names.
    pub notes: Vec<String>,
    /// What became of findings, the worst first.
    pub findings: Vec<FindingChange>,
    /// Why the requests' time changed; `None` without requests.
    pub explanation: Option<Explanation>,
    /// All that was compared, headlines first.
    pub changes: Vec<Change>,
}

/// All in a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Overall {
    /// Something got worse, nothing better.
    Worse,
    /// Something got better, nothing worse.
    Better,
    /// Some got worse, some better.
    Mixed,
    /// No difference that chance would not make, or that matters.
    NotToldApart,
    /// Too few runs to say.
    TooFewRuns,
}

/// A side, in a few figures.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SideAbout {
    /// The paths, as they were given. Hostile.
    pub name: String,
    /// Its runs.
    pub runs: Vec<RunAbout>,
}

/// A run, in a few figures.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RunAbout {
    /// Its path. Hostile.
    pub name: String,
    /// Requests that were answered.
    pub requests: u64,
    /// How long it was watched, nanoseconds.
    pub duration_ns: u64,
    /// What is missing from it, in words. Hostile.
    pub missing: Vec<String>,
}

/// How differences were tested against chance.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Test {
    /// Its name.
    pub name: &'static str,
    /// What was asked for.
    #[serde(flatten)]
    pub options: ChangeOptions,
    /// How many measures were tested together.
    pub measures: usize,
    /// How many permutations of the runs were compared.
    pub ways: u64,
    /// Whether these were all.
    pub exact: bool,
    /// The smallest p-value that so many runs can give.
    pub least_p: f64,
}

/// What became of a finding.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FindingChange {
    /// Its code.
    pub code: String,
    /// The role of the thread at fault; may be empty. Hostile.
    pub thread: String,
    /// What became of it.
    pub status: FindingStatus,
    /// Whether that is called a difference.
    pub called: bool,
    /// In how many of the base's runs it is.
    pub base_runs: usize,
    /// In how many of the head's.
    pub head_runs: usize,
    /// Its worst severity in the base; `None`: not there.
    pub base_severity: Option<String>,
    /// In the head.
    pub head_severity: Option<String>,
    /// The title in a run that has it, of the head if one does. Hostile.
    pub title: String,
    /// What a fix saves at most, nanoseconds per request of all requests, median of the base's runs
    /// that have it.
    pub base_at_most_ns: Option<f64>,
    /// The same of the head.
    pub head_at_most_ns: Option<f64>,
    /// What kind of saving that is.
    pub saving: String,
    /// The adjusted p-value.
    pub adjusted_p: Option<f64>,
}

/// What became of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs)]
pub enum FindingStatus {
    New,
    Worse,
    Gone,
    Better,
    Same,
}

impl Diff {
    /// The version of the JSON's shape.
    pub const SCHEMA: u32 = 1;

    /// Compares two sides.
    pub fn new(base: &Side, head: &Side, options: ChangeOptions) -> Self {
        let mut all = changes::compare(base, head, options);
        let explanation = explain::explain(&all, base, head);
        let findings = findings(base, head, &all);
        all.changes.sort_by(|a, b| {
            let rank = |change: &Change| (change.group, !change.is_called());
            rank(a)
                .cmp(&rank(b))
                .then(b.relative.abs().total_cmp(&a.relative.abs()))
                .then(a.name.cmp(&b.name))
        });
        Diff {
            schema: Self::SCHEMA,
            verdict: overall(&all, options),
            base: about(base),
            head: about(head),
            test: Test {
                name: TEST,
                options,
                measures: all.tested,
                ways: all.ways,
                exact: all.exact,
                least_p: all.least_p,
            },
            notes: notes(base, head, &all, options),
            findings,
            explanation,
            changes: all.changes,
        }
    }

    /// A change by its measure's name.
    pub fn change(&self, name: &str) -> Option<&Change> {
        self.changes.iter().find(|change| change.name == name)
    }

    /// Changes for the worse that users or operators feel, and findings that are new or worse.
    pub fn regressions(&self) -> impl Iterator<Item = &Change> {
        self.changes.iter().filter(|change| change.is_regression())
    }
}

fn overall(all: &Changes, options: ChangeOptions) -> Overall {
    if all.least_p > options.alpha {
        return Overall::TooFewRuns;
    }
    let counted = || all.changes.iter().filter(|change| change.counts());
    let worse = counted().any(|change| change.verdict == Trend::Worse);
    let better = counted().any(|change| change.verdict == Trend::Better);
    match (worse, better) {
        (true, false) => Overall::Worse,
        (false, true) => Overall::Better,
        (true, true) => Overall::Mixed,
        (false, false) => Overall::NotToldApart,
    }
}

fn about(side: &Side) -> SideAbout {
    SideAbout {
        name: side.name.clone(),
        runs: side
            .runs
            .iter()
            .map(|run| RunAbout {
                name: run.name.clone(),
                requests: run.about.requests,
                duration_ns: run.about.duration_ns,
                missing: run.missing.clone(),
            })
            .collect(),
    }
}

/// What makes two sides hard to compare.
fn notes(base: &Side, head: &Side, all: &Changes, options: ChangeOptions) -> Vec<String> {
    let mut notes = Vec::new();
    let (n, m) = (base.runs.len(), head.runs.len());
    if all.least_p > options.alpha {
        let need = (2..100)
            .find(|runs| crate::permutation::least_p(*runs, *runs) <= options.alpha)
            .map_or("more".to_owned(), |runs| runs.to_string());
        notes.push(format!(
            "no verdict: with {} against {} chance cannot be ruled out at alpha {}; record at \
             least {need} a side, better five, and alternate the sides",
            counted(n, "run"),
            counted(m, "run"),
            options.alpha
        ));
    }
    let mut differs = |what: &str, of: &dyn Fn(&Run) -> String| {
        let seen = |side: &Side| side.runs.iter().map(of).collect::<BTreeSet<String>>();
        let (base, head) = (seen(base), seen(head));
        if base != head {
            let list =
                |set: BTreeSet<String>| set.into_iter().take(3).collect::<Vec<_>>().join(", ");
            notes.push(format!(
                "the sides were recorded with another {what}: {} against {}",
                list(base),
                list(head)
            ));
        }
    };
    differs("machine", &|run| {
        format!("{} ({} CPUs)", run.about.host, run.about.cpus)
    });
    differs("kernel", &|run| run.about.kernel.clone());
    differs("threshold", &|run| duration(run.about.threshold_ns));
    differs("version of whywait", &|run| run.about.whywait.clone());
    let lacking = base
        .runs
        .iter()
        .chain(&head.runs)
        .filter(|run| !run.missing.is_empty());
    for run in lacking.take(5) {
        notes.push(format!(
            "{} is incomplete: {}",
            run.name,
            run.missing.join("; ")
        ));
    }
    let without = |side: &Side| {
        let runs = side.runs.iter();
        runs.filter(|run| run.about.requests == 0).count()
    };
    let consequence = "latency, its parts and costs per request are not compared";
    match (without(base), without(head)) {
        (0, 0) => {}
        (a, b) if a == n && b == m => notes.push(format!("there are no requests: {consequence}")),
        (a, b) => notes.push(format!(
            "without requests: {} of the base, {} of the head: {consequence}",
            counted(a, "run"),
            counted(b, "run")
        )),
    }
    let named = |side: &Side| side.runs.iter().filter(|run| run.has_routes).count();
    let (with, all_runs) = (named(base) + named(head), n + m);
    if with > 0 && with < all_runs {
        notes.push(format!(
            "{} of {} have names of requests (--names routes): routes are not compared",
            count(with as u64),
            counted(all_runs, "run")
        ));
    }
    if base.runs.iter().chain(&head.runs).any(|run| run.untold) {
        notes.push(format!(
            "requests on connections that carry several at once cannot be told apart: {consequence}"
        ));
    }
    notes
}

fn findings(base: &Side, head: &Side, all: &Changes) -> Vec<FindingChange> {
    let mut found: Vec<FindingChange> = all
        .changes
        .iter()
        .filter(|change| change.group == Group::Finding)
        .map(|change| finding(base, head, change))
        .collect();
    found.sort_by_key(|finding| {
        let rank = |severity: &Option<String>| match severity.as_deref() {
            Some("error") => 3,
            Some("warning") => 2,
            Some("note") => 1,
            _ => 0,
        };
        let worst = rank(&finding.base_severity).max(rank(&finding.head_severity));
        (
            worst == 1,
            !finding.called,
            finding.status,
            std::cmp::Reverse(worst),
            finding.code.clone(),
        )
    });
    found
}

fn finding(base: &Side, head: &Side, change: &Change) -> FindingChange {
    let in_side = |side: &Side| -> Vec<(Found, f64)> {
        let runs = side.runs.iter();
        runs.flat_map(|run| {
            let requests = (run.about.requests as f64).max(1.0);
            run.findings
                .iter()
                .filter(|found| found.key() == change.name)
                .map(move |found| (found.clone(), found.at_most_ns as f64 / requests))
        })
        .collect()
    };
    let in_runs = |values: &[f64]| values.iter().filter(|value| **value > 0.0).count();
    let (in_base, in_head) = (in_side(base), in_side(head));
    let severity = |found: &[(Found, f64)]| {
        found
            .iter()
            .max_by_key(|(found, _)| found.rank())
            .map(|(found, _)| found.severity.clone())
    };
    let at_most =
        |found: &[(Found, f64)]| median(&found.iter().map(|(_, ns)| *ns).collect::<Vec<_>>());
    let (base_runs, head_runs) = (in_runs(&change.base), in_runs(&change.head));
    let status = match (base_runs, head_runs) {
        (0, 1..) => FindingStatus::New,
        (1.., 0) => FindingStatus::Gone,
        _ if change.shift.estimate > 0.0 => FindingStatus::Worse,
        _ if change.shift.estimate < 0.0 => FindingStatus::Better,
        _ => FindingStatus::Same,
    };
    let shown = in_head.first().or(in_base.first());
    FindingChange {
        code: change.subject.part.clone(),
        thread: change.subject.thread.clone(),
        status,
        called: change.is_called(),
        base_runs,
        head_runs,
        base_severity: severity(&in_base),
        head_severity: severity(&in_head),
        title: shown
            .map(|(found, _)| found.title.clone())
            .unwrap_or_default(),
        base_at_most_ns: at_most(&in_base),
        head_at_most_ns: at_most(&in_head),
        saving: shown
            .map(|(found, _)| found.saving.clone())
            .unwrap_or_default(),
        adjusted_p: change.adjusted_p,
    }
}
