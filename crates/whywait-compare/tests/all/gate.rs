//! Budgets held against made-up servers.

use std::path::Path;

use crate::common::{QUICK, Server, run, run_of, side};
use whywait_compare::Run;
use whywait_compare::gate::{
    Baseline, Budget, Date, Judgement, LineOutcome, github, init, judge, junit, text,
};
use whywait_events::NameKind;
use whywait_report::text::TextOptions;

const FAULTY: Server = Server {
    blocked_ms: 400,
    ..QUICK
};

fn budget(lines: &str) -> Budget {
    Budget::parse(&format!("schema = 1\n{lines}"), Path::new("b.toml")).expect("a budget")
}

fn today() -> Date {
    Date::parse("2026-11-21").expect("a day")
}

fn judged(lines: &str, runs: &[Run]) -> Judgement {
    judge(&budget(lines), runs, None, today())
}

#[test]
fn limits_are_held_against_the_median() {
    let runs = side("base", QUICK, 5).runs;
    let held = judged(
        "limits = ['latency p99 < 200ms', 'requests count > 10', 'timer mean < 10ms']",
        &runs,
    );
    assert!(!held.failed, "{held:?}");
    assert_eq!(held.with(LineOutcome::Held).count(), 3);
    let broken = judged(
        "limits = ['latency p99 < 200ms',\n'on-cpu p50 < 10ms', 'requests count > 30']",
        &runs,
    );
    assert!(broken.failed);
    let lines: Vec<usize> = broken
        .with(LineOutcome::Broken)
        .map(|line| line.line)
        .collect();
    assert_eq!(lines, [3, 3]);
}

#[test]
fn limits_of_routes_are_held_against_their_requests() {
    let named = |requests: u64| {
        run_of(QUICK, 1, 0, |script| {
            script.counter("requests.count", requests);
            for socket in 1..=20 {
                script.name((socket, 1), NameKind::Route, "GET /a/{id}");
            }
        })
    };
    // Each takes 28 ms.
    let outcome = |limit: &str, requests| {
        let lines = format!("limits = ['route \"GET /{limit}']");
        assert!(budget(&lines).is_of_routes());
        judged(&lines, &[named(requests)]).lines[0].outcome
    };
    assert_eq!(outcome("a/{id}\" p99 < 30ms", 0), LineOutcome::Held);
    assert_eq!(outcome("a/{id}\" p99 < 20ms", 0), LineOutcome::Broken);
    assert_eq!(outcome("a/{id}\" max < 20ms", 10_000), LineOutcome::Broken);
    // Others may be of that route, too.
    assert_eq!(
        outcome("a/{id}\" p99 < 20ms", 10_000),
        LineOutcome::Undecided
    );
    assert_eq!(outcome("b\" p99 < 20ms", 0), LineOutcome::Undecided);
    assert!(!budget("limits = ['latency p99 < 1s']").is_of_routes());
}

#[test]
fn what_is_not_measured_is_undecided() {
    let runs = side("base", QUICK, 2).runs;
    let lines = "limits = ['futile-wakeups rate < 1/s']";
    let passed = judged(lines, &runs);
    assert!(!passed.failed && passed.lines[0].outcome == LineOutcome::Undecided);
    assert!(judged(&format!("fail-when-undecided = true\n{lines}"), &runs).failed);
}

#[test]
fn requests_that_cannot_be_told_apart_decide_nothing() {
    let runs = [run_of(QUICK, 1, 0, |script| {
        script.counter("connections.http2", 1);
        script.counter("requests.multiplexed", 10);
    })];
    let lines = "limits = ['latency p99 < 200ms', 'requests count > 10', 'requests late < 1']";
    let judgement = judged(lines, &runs);
    let outcomes: Vec<LineOutcome> = judgement.lines.iter().map(|line| line.outcome).collect();
    let undecided = LineOutcome::Undecided;
    assert_eq!(outcomes, [undecided, undecided, LineOutcome::Held]);
    let why = &judgement.lines[0].why;
    assert!(why.contains("cannot be told apart"), "{why}");
    let strict = format!("fail-when-undecided = true\n{lines}");
    assert!(judged(&strict, &runs).failed);
}

#[test]
fn a_percentile_below_the_threshold_is_a_bound() {
    let fast = run_of(QUICK, 1, 0, |script| {
        script.counter("requests.count", 10_000);
        script.counter("requests.total-ns", 10_000 * 300_000);
        script.counter("latency.bucket.150", 10_000);
    });
    let outcome = |limit: &str| {
        judged(
            &format!("limits = ['{limit}']"),
            std::slice::from_ref(&fast),
        )
        .lines[0]
            .outcome
    };
    assert_eq!(outcome("timer p99 < 1ms"), LineOutcome::Held);
    assert_eq!(outcome("timer p99 < 500us"), LineOutcome::Undecided);
    assert_eq!(outcome("timer max < 5ms"), LineOutcome::Broken);
}

#[test]
fn findings_break_a_budget_unless_they_are_allowed() {
    let runs = [run(QUICK, 1, 0), run(FAULTY, 2, 0)];
    let findings = "[findings]\nmax-severity = 'note'\n";
    let allow = |more: &str| {
        format!("{findings}allow = [{{ code = 'blocked-loop', reason = 'known'{more} }}]")
    };
    assert!(!judged(findings, &runs[..1]).failed);
    assert!(judged(findings, &runs).failed);
    assert!(!judged("[findings]\nmax-severity = 'error'", &runs).failed);
    let allowed = judged(&allow(""), &runs);
    assert!(!allowed.failed, "{allowed:?}");
    assert_eq!(allowed.with(LineOutcome::Allowed).count(), 1);
    assert!(
        !judged(&allow(", until = 2026-11-21"), &runs).failed,
        "the last day"
    );
    let past = judged(&allow(", until = 2026-11-20"), &runs);
    assert!(
        past.failed && past.lines[0].why.contains("until 2026-11-20"),
        "{past:?}"
    );
    assert!(judged(&allow(", thread = 'main'"), &runs).failed);
    assert!(!judged(&allow(", thread = 'loop-N'"), &runs).failed);
    assert!(judged(&allow(", max-severity = 'warning'"), &runs).failed);
    let most = judged("[findings]\nmax-severity = 'note'\nin-runs = 'most'", &runs);
    assert!(
        !most.failed && most.notes.iter().any(|note| note.contains("1 of 2")),
        "{most:?}"
    );
    let unused = judged(&allow(""), &runs[..1]);
    assert!(
        unused
            .notes
            .iter()
            .any(|note| note.contains("was not found"))
    );
}

#[test]
fn an_incomplete_recording_proves_what_it_shows_only() {
    let lossy = |number, server| {
        run_of(server, number, 0, |script| {
            script.counter("lost.ring-full", 1000);
            script.counter("events", 2000);
        })
    };
    let lines = "limits = ['latency p99 < 200ms', 'latency p50 < 1ms', 'requests count > 100']\n\
                 [findings]\nmax-severity = 'note'";
    let runs = [lossy(1, QUICK)];
    assert!(!runs[0].missing.is_empty());
    let judgement = judged(lines, &runs);
    let outcomes: Vec<LineOutcome> = judgement.lines.iter().map(|line| line.outcome).collect();
    let (undecided, broken) = (LineOutcome::Undecided, LineOutcome::Broken);
    assert_eq!(
        outcomes,
        [undecided, undecided, broken, undecided],
        "{judgement:?}"
    );
    assert!(
        !judged("[findings]\nmax-severity = 'note'", &runs).failed,
        "by itself it fails nothing"
    );
    assert!(
        judged(
            "fail-when-undecided = true\n[findings]\nmax-severity = 'note'",
            &runs
        )
        .failed
    );
    assert!(judged("[findings]\nmax-severity = 'note'", &[lossy(1, FAULTY)]).failed);
    // Next to a complete one it is left out.
    let both = judged(lines, &[lossy(1, QUICK), run(QUICK, 2, 0)]);
    assert_eq!(both.with(LineOutcome::Undecided).count(), 0, "{both:?}");
    assert_eq!(both.incomplete_runs, 1);
}

#[test]
fn regressions_are_held_against_a_baseline() {
    let base = Baseline::new(side("base", QUICK, 5).runs);
    let text = whywait_compare::json::to_json(&base).expect("JSON");
    let base: Baseline = serde_json::from_str(&text).expect("what was written is read");
    let regressions = budget("[regressions]\nbaseline = 'base.json'");
    let against = |server: Server, runs| {
        judge(
            &regressions,
            &side("head!", server, runs).runs,
            Some(&base),
            today(),
        )
    };
    assert!(!against(QUICK, 5).failed);
    let worse = against(
        Server {
            sleep_ms: 30,
            ..QUICK
        },
        5,
    );
    assert!(
        worse.failed
            && worse
                .lines
                .iter()
                .any(|line| line.why.starts_with("mean latency")),
        "{worse:?}"
    );
    assert!(
        against(FAULTY, 5)
            .lines
            .iter()
            .any(|line| line.why.contains("blocked-loop"))
    );
    let few = against(
        Server {
            sleep_ms: 30,
            ..QUICK
        },
        1,
    );
    assert!(
        !few.failed && few.lines[0].outcome == LineOutcome::Undecided,
        "{few:?}"
    );
    assert!(!judge(&regressions, &[run(QUICK, 1, 0)], None, today()).failed);
}

#[test]
fn a_first_budget_is_kept_to_by_what_it_was_made_from() {
    let mut runs = side("base", FAULTY, 3).runs;
    for run in &mut runs {
        for found in &mut run.findings {
            found.thread.push_str("\"\n'");
        }
    }
    let text = init::render(&runs, Date::parse("2027-02-19").expect("a day"));
    let budget =
        Budget::parse(&text, Path::new("b.toml")).unwrap_or_else(|error| panic!("{error}: {text}"));
    assert!(!budget.limits.is_empty() && !budget.allow.is_empty());
    let judgement = judge(&budget, &runs, None, today());
    assert!(!judgement.failed, "{text}\n{judgement:?}");
}

#[test]
fn views_are_safe_and_well_formed() {
    let mut runs = vec![run(FAULTY, 1, 0)];
    for found in &mut runs[0].findings {
        found.title = "a\n::error::b % <x> \"&' \x1b[2J \u{202e}\u{ffff}".to_owned();
    }
    runs[0].name = "x\n::warning::y".to_owned();
    let judgement = judged(
        "limits = ['futile-wakeups rate < 1/s']\n[findings]\nmax-severity = 'note'",
        &runs,
    );
    assert!(judgement.failed);
    let annotations = github::render(&judgement, "a,b:c.toml", false);
    assert_eq!(annotations.lines().count(), 2);
    for line in annotations.lines() {
        assert!(
            line.starts_with("::error file=a%2Cb%3Ac.toml,line=")
                || line.starts_with("::warning file="),
            "{line}"
        );
    }
    let xml = junit::render(&judgement, "b.toml", false);
    assert!(xml.contains("failures=\"1\" skipped=\"1\""), "{xml}");
    assert!(
        !xml.contains("<x>") && !xml.contains('\x1b') && !xml.contains("\" &"),
        "{xml}"
    );
    let text = text::render(&judgement, "b.toml", TextOptions::default());
    assert!(text.starts_with("gate: failed"), "{text}");
    assert!(!text.contains(|c: char| c.is_control() && c != '\n'));
}
