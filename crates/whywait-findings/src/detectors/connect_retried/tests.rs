use whywait_events::PeerSums;
use whywait_model::script::Script;

use super::*;

const MS: u64 = 1_000_000;

fn findings(retried: u64) -> Vec<Finding> {
    of(10, 0, retried)
}

/// Of so many connections that were made, and so many that were not.
fn of(made: u64, failed: u64, retried: u64) -> Vec<Finding> {
    let mut script = Script::new();
    script.peer(&PeerSums {
        id: 1,
        address: "10.0.0.7".to_owned(),
        port: 7001,
        count: 10,
        connections: 10,
        connects: made,
        failed,
        connect_ns: retried * 1_000 * MS + (made + failed - retried) * MS,
        retried,
        retried_ns: retried * 1_000 * MS,
        ..PeerSums::default()
    });
    detect(&Facts::of(&script.model()))
}

#[test]
fn a_syn_that_was_sent_again_is_reported() {
    let found = findings(4);
    assert_eq!(found.len(), 1, "{found:#?}");
    assert_eq!(
        found[0].title,
        "4 connections to 10.0.0.7:7001 had a SYN sent again, and took 1 s on average"
    );
    assert_eq!(found[0].severity, Severity::Warning);
    assert_eq!(found[0].saving.at_most_ns, 4_000 * MS);
    let evidence: Vec<&str> = found[0]
        .evidence
        .iter()
        .map(|one| one.text.as_str())
        .collect();
    assert_eq!(
        evidence,
        [
            "10 connections were made meanwhile, 0 failed",
            "the others took 1 ms on average",
        ]
    );
}

#[test]
fn a_few_are_a_note() {
    assert_eq!(findings(2)[0].severity, Severity::Note);
    assert_eq!(findings(0), []);
}

#[test]
fn all_of_a_few_are_no_chance() {
    assert_eq!(of(0, 2, 2)[0].severity, Severity::Warning);
    assert_eq!(of(2, 0, 2)[0].severity, Severity::Warning);
    assert_eq!(of(1, 2, 2)[0].severity, Severity::Note);
    assert_eq!(of(1, 0, 1)[0].severity, Severity::Note, "one may be chance");
}
