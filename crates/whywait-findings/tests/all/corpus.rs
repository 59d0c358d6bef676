//! What is found in the recordings that are kept of all labs (`tests/corpus`): held against the
//! labels, and against what was found before, which is `tests/corpus/findings.md`.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;

use whywait_events::recording::Recording;
use whywait_findings::{Facts, Finding, SavingKind, Verdict, find, verdict};
use whywait_model::requests::{AtBest, Latency};
use whywait_model::{Input, Model};
use whywait_testkit::{Kept, blessing, check_file, in_parallel, kept_recordings, repository};

use crate::conservation::{said_twice, unconserved, wrongly_nothing};

const MS: f64 = 1e6;

/// Two runs differ by one part in so many of what a fix saves (`NOISE_OF_ONE_RUN` of
/// labs/corpus.py).
const NOISE_OF_ONE_RUN: u64 = 10;

const HEAD: &str = "| variant | first finding | saves at most, ms | p50, ms | p99, ms | besides |";

#[test]
fn the_kept_recordings_have_the_findings_that_they_should_have() {
    let kept = kept_recordings();
    let found = in_parallel(&kept, Found::of);
    let by_name: ByName<'_> = kept.iter().map(Kept::name).zip(found.iter()).collect();
    let (mut rows, mut wrong) = (BTreeMap::new(), String::new());
    let mut faults = 0;
    for (one, found) in kept.iter().zip(&found) {
        let name = one.name();
        for text in found.violations(one) {
            writeln!(wrong, "{name}: {text}").expect("text grows");
        }
        for text in at_best_and_better(one, found, &by_name) {
            writeln!(wrong, "{name}: {text}").expect("text grows");
        }
        faults += usize::from(!one.labels.must.is_empty());
        rows.insert(name, found.row.clone());
    }
    let page = repository("tests/corpus/findings.md");
    let before = fs::read_to_string(&page).unwrap_or_default();
    let changes = changes(&before, &rows);
    if !changes.is_empty() {
        println!("{changes}");
    }
    assert!(wrong.is_empty(), "labels that do not hold:\n{wrong}");
    if !blessing() {
        assert!(
            changes.is_empty(),
            "not as in {}:\n{changes}",
            page.display()
        );
    }
    check_file(&page, &in_words(&rows, faults));
}

/// What was found in one recording.
struct Found {
    findings: Vec<Finding>,
    /// Whether the verdict is that requests are late.
    late: bool,
    /// How many requests were answered, or are late.
    requests: u64,
    /// Where the report contradicts itself.
    contradictions: Vec<String>,
    /// What its requests took.
    latency: Option<Latency>,
    /// Its line in the table, without the variant.
    row: String,
}

/// What was found, by the variant's name.
type ByName<'a> = BTreeMap<String, &'a Found>;

/// Where a fix does better than it can at best: a fixed twin has a lower percentile, by more than
/// runs differ.
fn at_best_and_better(kept: &Kept, found: &Found, all: &ByName<'_>) -> Vec<String> {
    let mut wrong = Vec::new();
    for saving in &kept.labels.savings {
        let twin = all.get(&format!("{} {}", kept.lab, saving.against));
        let own = |finding: &&Finding| finding.code.name() == saving.code;
        let first = found.findings.iter().find(own);
        let Some((latency, effect)) = twin
            .and_then(|twin| twin.latency)
            .zip(first.and_then(|first| first.saving.effect))
        else {
            continue;
        };
        let percentiles = [(effect.p50, latency.p50), (effect.p99, latency.p99)];
        for (figure, twin_ns) in percentiles {
            let Some(AtBest { now_ns, at_best_ns }) = figure else {
                continue;
            };
            let noise_ns = now_ns.saturating_sub(twin_ns) / NOISE_OF_ONE_RUN;
            if at_best_ns.is_some_and(|ns| ns > twin_ns.saturating_add(noise_ns)) {
                wrong.push(format!(
                    "{}: {} ms with {}, and at best {figure:?}",
                    saving.code,
                    in_ms(twin_ns),
                    saving.against,
                ));
            }
        }
    }
    wrong
}

impl Found {
    fn of(kept: &Kept) -> Self {
        let scratch = kept.unpack();
        let recording = Recording::open(&scratch.path().join("recording"));
        let input = recording.and_then(|recording| Input::read(&recording));
        let model = Model::new(input.unwrap_or_else(|error| panic!("{}: {error}", kept.name())));
        let facts = Facts::of(&model);
        let findings = find(&facts);
        let late = verdict(&facts, &findings) == Verdict::Open;
        let mut contradictions = unconserved(&model, &findings);
        contradictions.extend(said_twice(&model, &findings));
        contradictions.extend(wrongly_nothing(&model, &facts, &findings));
        let damaged = model.damaged.iter();
        contradictions.extend(damaged.map(|what| format!("is damaged: {what}")));
        let first = findings.first().map_or("nothing".to_owned(), in_short);
        let bound = match findings.first().map(|first| first.saving.at_most_ns) {
            Some(ns) if ns > 0 => in_ms(ns),
            _ => String::new(),
        };
        let besides: Vec<_> = findings.iter().skip(1).map(in_short).collect();
        let [p50, p99] = model
            .answered_latency()
            .map_or_else(Default::default, |latency| {
                [in_ms(latency.p50), in_ms(latency.p99)]
            });
        let besides = besides.join(", ");
        Self {
            row: format!("{first} | {bound} | {p50} | {p99} | {besides} |"),
            latency: model.answered_latency(),
            requests: model.requests_that_count(),
            findings,
            late,
            contradictions,
        }
    }

    /// Which labels do not hold.
    fn violations(&self, kept: &Kept) -> Vec<String> {
        let found: Vec<_> = self
            .findings
            .iter()
            .flat_map(|finding| {
                finding.codes().map(|code| whywait_testkit::Found {
                    code: code.name(),
                    severity: (code == finding.code).then(|| finding.severity.name()),
                    at_most_ns: finding.saving.at_most_ns,
                })
            })
            .collect();
        let mut wrong = kept.labels.violations(&found, self.late);
        for finding in &self.findings {
            let saving = &finding.saving;
            let each = saving.kind == SavingKind::Latency && !saving.each_at_most_ns.is_empty();
            if each && saving.requests > self.requests {
                let (of, all) = (saving.requests, self.requests);
                wrong.push(format!(
                    "{} is over {of} of {all} requests",
                    in_short(finding)
                ));
            }
        }
        wrong.extend(self.contradictions.iter().cloned());
        wrong
    }
}

fn in_short(finding: &Finding) -> String {
    format!("{} {}", finding.severity.name(), finding.code.name())
}

pub(crate) fn in_ms(ns: u64) -> String {
    format!("{:.1}", ns as f64 / MS)
}

/// The rows that are others than before, each with what it was before.
fn changes(before: &str, now: &BTreeMap<String, String>) -> String {
    let before: BTreeMap<_, _> = before
        .lines()
        .filter_map(|line| line.strip_prefix("| ")?.split_once(" | "))
        .skip(1)
        .collect();
    let mut text = String::new();
    for (name, row) in now {
        let then = before.get(name.as_str()).copied();
        if then != Some(row) {
            let then = then.unwrap_or("nothing was kept |");
            writeln!(text, "| {name} | {then} before\n| {name} | {row} now").expect("text grows");
        }
    }
    for name in before.keys().filter(|name| !now.contains_key(**name)) {
        writeln!(text, "| {name} | is kept no more").expect("text grows");
    }
    match text.is_empty() {
        true => text,
        false => format!("{HEAD}\n{text}"),
    }
}

/// The page.
fn in_words(rows: &BTreeMap<String, String>, faults: usize) -> String {
    let columns = "|---|---|---:|---:|---:|---|";
    let rows: String = rows
        .iter()
        .map(|(name, row)| format!("| {name} | {row}\n"))
        .collect();
    format!(
        "# What is found in the kept recordings\n\n\
         Written by `WHYWAIT_BLESS=1 cargo test -p whywait-findings`. Do not edit.\n\n\
         In all {faults} recordings with a fault the first finding is the fault. Latencies are\n\
         those of answered requests.\n\n\
         {HEAD}\n{columns}\n{rows}"
    )
}
