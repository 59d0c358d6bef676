//! Budgets as people write them, and as nobody should.

use std::path::Path;

use proptest::prelude::*;
use whywait_compare::gate::Budget;

fn parse(text: &str) -> Result<Budget, String> {
    Budget::parse(text, Path::new("b.toml")).map_err(|error| error.to_string())
}

const WHOLE: &str = r#"
schema = 1
fail-when-undecided = true
limits = [
  "latency p99 < 20ms",
  "ready-unserved.stranded p99 < 5ms",
]

[findings]
max-severity = "note"
in-runs = "most"

[[findings.allow]]
code = "blocked-loop"
reason = "the nightly export, ticket 12"
until = 2027-01-31
thread = "main"

[regressions]
baseline = "baseline.json"
alpha = 0.01
min-effect = "10%"
"#;

/// What a recording lacks was a finding once, and budgets may permit it.
#[test]
fn a_permission_of_what_is_no_finding_any_more_is_read() {
    let text = WHOLE.replace("blocked-loop", "recording-incomplete");
    assert_eq!(parse(&text).expect("a budget").allow.len(), 1);
}

#[test]
fn a_budget_is_read() {
    let budget = parse(WHOLE).expect("a budget");
    assert!(budget.fail_when_undecided && !budget.in_any_run);
    assert_eq!(budget.limits[1].line, 6);
    assert_eq!(
        budget.allow[0]
            .what
            .until
            .map(|day| day.to_string())
            .as_deref(),
        Some("2027-01-31")
    );
    let regressions = budget.regressions.expect("a table").what;
    assert_eq!(
        (regressions.options.alpha, regressions.options.min_effect),
        (0.01, 0.1)
    );
    assert!(parse("schema = 1").is_ok());
}

#[test]
fn what_is_wrong_is_told_with_line_and_column() {
    for (text, place, word) in [
        ("", "1:1", "schema"),
        ("schema = 2", "1:10", "schema 2"),
        ("schema = 1\nlimts = []", "2:1", "limts"),
        (
            "schema = 1\nlimits = [\"latency p98 < 1ms\"]",
            "2:20",
            "no p98",
        ),
        (
            "schema = 1\nlimits = [\n  'latency p99 < 1'\n]",
            "3:18",
            "duration",
        ),
        (
            "schema = 1\n[findings]\nmax-severity = \"bad\"",
            "3:16",
            "note",
        ),
        ("schema = 1\n[findings]", "2:1", "max-severity"),
        (
            "schema = 1\n[findings]\nmax-severity = \"note\"\n\
             allow = [{ code = \"x\", reason = \"y\" }]",
            "4:19",
            "no finding x",
        ),
        (
            "schema = 1\n[findings]\nmax-severity = \"note\"\n\
             allow = [{ code = \"deadlock\", reason = \" \" }]",
            "4:40",
            "why",
        ),
        (
            "schema = 1\n[findings]\nmax-severity = \"note\"\n\
             allow = [{ code = \"deadlock\", reason = \"y\", until = \"soon\" }]",
            "4:53",
            "day",
        ),
        (
            "schema = 1\n[regressions]\nbaseline = \"b\"\nalpha = 2.0",
            "4:9",
            "between",
        ),
        (
            "schema = 1\n[regressions]\nbaseline = \"b\"\nmin-effect = \"x\"",
            "4:14",
            "share",
        ),
        ("schema = \"é\" x", "1:", ""),
        ("schema = 1\nschema = 1", "2:1", "duplicate"),
    ] {
        let error = parse(text).expect_err(text);
        assert!(
            error.starts_with(&format!("b.toml:{place}")),
            "{text}: {error}"
        );
        assert!(error.contains(word), "{text}: {error}");
    }
}

proptest! {
    #[test]
    fn no_text_is_too_strange(text in "\\PC{0,200}") {
        let _ = parse(&text);
    }

    #[test]
    fn no_change_of_a_budget_is_too_strange(
        at in 0usize..400,
        text in "[\\x00-\\x7fé]{0,8}",
        cut in 0usize..20,
    ) {
        let mut chars: Vec<char> = WHOLE.chars().collect();
        let at = at.min(chars.len());
        let end = (at + cut).min(chars.len());
        chars.splice(at..end, text.chars());
        let _ = parse(&chars.into_iter().collect::<String>());
    }

    #[test]
    fn no_limit_is_too_strange(
        text in "(latency|lock|x|) ?(p99|p50|max|) ?(<|>|<=|) ?[0-9.é]{0,20} ?(ms|s|/s|%|)",
    ) {
        let _ = whywait_compare::gate::limit::parse(&text);
    }
}
