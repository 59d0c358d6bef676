use serde_json::json;
use whywait_model::script::Script;

use super::*;

fn findings(connections: u64, extra: u64, dry: u64) -> Vec<Finding> {
    findings_of(connections, extra, dry, 1000)
}

fn findings_of(connections: u64, extra: u64, dry: u64, in_ms: u64) -> Vec<Finding> {
    let mut script = Script::new();
    for (name, value) in [
        ("connections", connections),
        ("extra-wakes", extra),
        ("most-woken", 8),
        ("dry-wakes", dry),
        ("dry-cpu-ns", dry * 10_000),
    ] {
        script.counter(&format!("herd.80.{name}"), value);
    }
    script.ends(in_ms);
    detect(&Facts::of(&script.model()))
}

#[test]
fn a_connection_that_wakes_all_workers_is_a_herd() {
    let found = &findings(800, 5600, 5800)[0];
    assert_eq!(
        found.title,
        "a connection at port 80 wakes up to 8 threads and all but one find nothing: 5,600 \
         wake-ups a second wasted"
    );
    assert_eq!(found.severity, Severity::Warning);
    assert_eq!(found.saving.at_most_ns, 56_000_000);
}

#[test]
fn what_takes_little_of_a_cpu_is_a_note() {
    assert_eq!(findings(200, 1_000, 1_000)[0].severity, Severity::Note);
}

#[test]
fn who_accepts_and_hands_over_is_no_loser() {
    // As many went back to sleep without a byte as were woken at all: the one that accepted
    // reads nothing either.
    let found = &findings(5000, 10_000, 15_000)[0];
    assert_eq!(found.subject["wasted"], json!(10_000));
    assert_eq!(found.saving.at_most_ns, 100_000_000, "of 150 ms in all");
    assert!(
        found.evidence[0].text.contains("at most 10,000 went back"),
        "{}",
        found.evidence[0].text
    );
}

#[test]
fn what_led_to_something_or_is_rare_is_none() {
    assert_eq!(findings(800, 0, 800), [], "one is woken each time");
    assert_eq!(findings(800, 5600, 10), [], "they all found something");
    assert_eq!(findings(8, 56, 56), [], "a few a second");
    assert_eq!(findings_of(8, 40, 40, 100), [], "a few altogether");
}
