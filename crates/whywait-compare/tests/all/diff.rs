//! Comparisons of made-up servers.

use crate::common::{HEALTHY, Server, run_of, side};
use whywait_compare::changes::Trend;
use whywait_compare::diff::{FindingStatus, Overall};
use whywait_compare::{ChangeOptions, Diff, Run, Side, json, text};
use whywait_events::NameKind::Route;
use whywait_model::script::Script;
use whywait_report::text::TextOptions;
use whywait_words::Charset;

fn diff(base: &Side, head: &Side) -> Diff {
    Diff::new(base, head, ChangeOptions::default())
}

#[test]
fn a_tenth_more_computing_is_found_and_named() {
    let slower = Server {
        compute_ms: 112,
        ..HEALTHY
    };
    let diff = diff(&side("base", HEALTHY, 5), &side("head!", slower, 5));
    assert_eq!(diff.verdict, Overall::Worse);
    for name in [
        "latency.mean",
        "cpu.serving",
        "cpu.per-request",
        "latency.p50",
    ] {
        let change = diff
            .change(name)
            .unwrap_or_else(|| panic!("{name} is compared"));
        assert_eq!(change.verdict, Trend::Worse, "{name}: {change:?}");
        assert!(change.adjusted_p.is_some_and(|p| p <= 0.05));
    }
    let explanation = diff.explanation.as_ref().expect("there are requests");
    let part = &explanation.parts[0];
    assert_eq!(part.part, "on-cpu");
    assert!((part.ns() - 12e6).abs() < 1.5e6, "{part:?}");
    assert_eq!(part.places[0].thread, "worker-N");
    assert_eq!(explanation.functions[0].function, "app::handle::render");
    assert!(
        explanation.parts.iter().all(|part| part.part != "timer"),
        "it did not change"
    );
}

#[test]
fn sides_that_are_the_same_are_not_told_apart() {
    let diff = diff(&side("base", HEALTHY, 5), &side("head!", HEALTHY, 5));
    assert_eq!(diff.verdict, Overall::NotToldApart);
    assert!(
        diff.changes.iter().all(|change| !change.is_called()),
        "{diff:?}"
    );
}

#[test]
fn too_few_runs_are_shown_and_not_called() {
    let slower = Server {
        compute_ms: 300,
        ..HEALTHY
    };
    for (base, head) in [(1, 1), (3, 3), (1, 5)] {
        let diff = diff(&side("base", HEALTHY, base), &side("head!", slower, head));
        assert_eq!(diff.verdict, Overall::TooFewRuns);
        let change = diff.change("latency.mean").expect("it is shown");
        assert!(change.relative > 0.5 && change.verdict == Trend::TooFewRuns);
        assert!(
            diff.notes[0].contains("at least 4 a side"),
            "{:?}",
            diff.notes
        );
        let text = text::render(&diff, TextOptions::default());
        let (first, rest) = text.split_once('\n').expect("lines");
        assert!(
            first.contains("too few runs; large: p99 latency "),
            "{first}"
        );
        assert!(rest.contains("  large\n"), "{text}");
        let untested = ["1.000", "95 % interval", "no verdict\n"];
        assert!(!untested.iter().any(|said| rest.contains(said)), "{text}");
    }
}

#[test]
fn what_changes_by_less_than_matters_is_no_regression() {
    let slower = Server {
        compute_ms: 103,
        sleep_ms: 53,
        ..HEALTHY
    };
    let diff = diff(&side("base", HEALTHY, 6), &side("head!", slower, 6));
    let change = diff.change("latency.mean").expect("it is compared");
    assert_eq!(change.verdict, Trend::Small, "{change:?}");
    assert_eq!(diff.regressions().count(), 0);
}

#[test]
fn findings_come_and_go() {
    let faulty = Server {
        blocked_ms: 400,
        ..HEALTHY
    };
    let (good, bad) = (side("base", HEALTHY, 5), side("head!", faulty, 5));
    for (base, head, status) in [
        (&good, &bad, FindingStatus::New),
        (&bad, &good, FindingStatus::Gone),
    ] {
        let diff = diff(base, head);
        let finding = diff
            .findings
            .iter()
            .find(|finding| finding.code == "blocked-loop")
            .unwrap_or_else(|| panic!("{:?}", diff.findings));
        assert_eq!(
            (finding.status, finding.called),
            (status, true),
            "{finding:?}"
        );
        assert_eq!(finding.thread, "loop-N");
        assert_eq!(
            diff.regressions().any(|c| c.name.contains("blocked-loop")),
            status == FindingStatus::New
        );
    }
}

#[test]
fn a_side_without_requests_is_compared_for_what_it_has() {
    let none = Side {
        name: "none".to_owned(),
        runs: vec![Run::default(); 5],
    };
    let diff = diff(&none, &side("head!", HEALTHY, 5));
    assert!(diff.explanation.is_none());
    assert!(
        diff.notes
            .iter()
            .any(|note| note.contains("without requests: 5 runs of the base, 0 runs of the head"))
    );
    let _ = text::render(&diff, TextOptions::default());
    let empty = Side::default();
    assert_eq!(
        Diff::new(&empty, &empty, ChangeOptions::default()).verdict,
        Overall::TooFewRuns
    );
}

#[test]
fn hostile_names_are_printed_harmlessly() {
    let evil = |number| {
        run_of(HEALTHY, number, 0, |script| {
            let tid = 900;
            script.thread(tid, "a\x1b[2J\n::error::x");
            let stack = script.stack(&["main", "f\x1b]0;x\u{202e}"]);
            script.sleeps(tid, stack, 5000, 6000 + number);
            script
                .request(99)
                .ready(5000)
                .read(5000, tid)
                .answered(6000 + number, tid);
        })
    };
    let runs = |from: u64| (from..from + 5).map(evil).collect();
    let mut base = Side {
        name: "a\x1b[2J".to_owned(),
        runs: runs(1),
    };
    let head = Side {
        name: "b".to_owned(),
        runs: runs(1000),
    };
    base.runs[0].missing.push("\x1b[31m".to_owned());
    let diff = diff(&base, &head);
    for width in [0, 40, 60, 87, 88, 100, 160] {
        for charset in [Charset::Unicode, Charset::Ascii] {
            let text = text::render(
                &diff,
                TextOptions {
                    width,
                    colour: false,
                    charset,
                    ..TextOptions::default()
                },
            );
            assert!(
                !text.contains(|c: char| c.is_control() && c != '\n'),
                "{text:?}"
            );
            assert!(!text.contains('\u{202e}'), "{text:?}");
            assert!(charset == Charset::Unicode || text.is_ascii());
        }
    }
    assert!(
        serde_json::from_str::<serde_json::Value>(&json::to_json(&diff).expect("JSON")).is_ok()
    );
}

#[test]
fn the_text_says_it_in_its_first_line() {
    let slower = Server {
        compute_ms: 160,
        ..HEALTHY
    };
    let text = text::render(
        &diff(&side("base", HEALTHY, 5), &side("head!", slower, 5)),
        TextOptions::default(),
    );
    let first = text.lines().next().expect("a line");
    assert!(first.starts_with("worse: "), "{text}");
    assert!(text.contains("app::handle::render"), "{text}");
    assert!(text.contains("Westfall"), "{text}");
}

/// A side whose requests have names: of 20, one in four is of the second route, if there is one.
fn with_routes(name: &str, server: Server, routes: [&str; 2]) -> Side {
    let first = name.len() as u64 * 100;
    let named = |script: &mut Script| {
        script.counter("names.not-known", 0);
        for socket in 1..=20 {
            script.name((socket, 1), Route, routes[usize::from(socket % 4 == 0)]);
        }
    };
    let runs = (0..5).map(|n| run_of(server, first + n, n % 3, named));
    Side {
        name: name.to_owned(),
        runs: runs.collect(),
    }
}

#[test]
fn a_new_route_and_a_slower_one_are_named() {
    let base = with_routes("base", HEALTHY, ["GET /a", "GET /a"]);
    let slower = Server {
        compute_ms: 200,
        ..HEALTHY
    };
    let head = with_routes("head!", slower, ["GET /a", "GET /new\x1b[2J"]);
    let diff = diff(&base, &head);
    let explanation = diff.explanation.as_ref().expect("there are requests");
    let [new, slower] = &explanation.routes[..] else {
        panic!("two routes: {:?}", explanation.routes);
    };
    // 5 of 20 requests, of 251 ms each; and the other 15, instead of 20 of 151 ms.
    assert!((new.ns() - 62.8e6).abs() < 1e6, "{new:?}");
    assert_eq!((new.base_ns, new.base_p99_ns), (0.0, None));
    assert!((slower.ns() - 37.3e6).abs() < 1e6, "{slower:?}");
    assert!(new.told_apart && slower.told_apart);
    let text = text::render(&diff, TextOptions::default());
    assert!(text.contains("the same by route"), "{text}");
    assert!(text.contains("no slow one before, 62.8 ms after"), "{text}");
    let p99 = "(their p99 151 ms → 251 ms)";
    assert!(text.replace("\n      ", " ").contains(p99), "{text}");
    assert!(!text.contains('\x1b'), "{text}");
}

#[test]
fn routes_are_not_compared_where_a_side_has_no_names() {
    let base = side("base", HEALTHY, 5);
    let head = with_routes("head!", HEALTHY, ["GET /a", "GET /b"]);
    let diff = diff(&base, &head);
    let explanation = diff.explanation.as_ref().expect("there are requests");
    assert!(explanation.routes.is_empty());
    let said = "5 of 10 runs have names of requests";
    assert!(diff.notes.iter().any(|note| note.contains(said)));
}
