use whywait_events::Exchange;
use whywait_model::script::Script;

use super::*;
use crate::shared::queues::script::{Closed, LOOP, Serves, call, peer};
use crate::shared::task_places::script::passing;

/// Eight clients with a connection each, and a lock around the call.
const HELD: Closed = Closed {
    clients: 8,
    rounds: 8,
    at_a_time: 1,
    own_connections: true,
    peer: Serves::All(20),
    gap_ms: 0,
    from_ms: 0,
    attached: false,
    random: false,
    login_ms: 0,
    calls: 1,
    pause_ms: 0,
    connects: false,
};

#[test]
fn calls_that_never_overlap_though_they_could() {
    let findings = detect(&Facts::of(&HELD.script().model()));
    assert_eq!(findings.len(), 1, "{findings:#?}");
    let finding = &findings[0];
    assert_eq!(finding.severity, Severity::Error);
    assert!(
        finding
            .title
            .contains("others' calls to 127.0.0.1:7001 (python3)"),
        "{}",
        finding.title
    );
    assert!(finding.evidence[1].text.contains("8 connections are open"));
    let replay = &finding.subject["replay"][0];
    assert_eq!(replay["at_a_time"], 2);
    let ns = replay["p50_ns"].as_u64().expect("a number");
    assert!(ns.abs_diff(80_000_000) < 8_000_000, "{ns}");
}

#[test]
fn without_the_lock_they_overlap() {
    let fixed = Closed {
        at_a_time: 8,
        ..HELD
    };
    assert_eq!(detect(&Facts::of(&fixed.script().model())), []);
}

#[test]
fn two_at_a_time_or_one_connection_is_a_pool() {
    let two = Closed {
        at_a_time: 2,
        ..HELD
    };
    assert_eq!(detect(&Facts::of(&two.script().model())), []);
    let only = Closed {
        own_connections: false,
        ..HELD
    };
    assert_eq!(detect(&Facts::of(&only.script().model())), []);
}

#[test]
fn a_client_that_asks_alone_waits_for_nobody() {
    let alone = Closed {
        clients: 1,
        rounds: 60,
        ..HELD
    };
    assert_eq!(detect(&Facts::of(&alone.script().model())), []);
}

#[test]
fn the_only_connection_of_each_of_many_processes_is_theirs() {
    let only = Closed {
        own_connections: false,
        ..HELD
    };
    assert_eq!(
        detect(&Facts::of(&only.in_processes(16).model())),
        [],
        "it is a pool of one"
    );
    let held = detect(&Facts::of(&HELD.in_processes(16).model()));
    assert_eq!(held.len(), 1, "{held:#?}");
}

/// A lock that is held while a value is fetched over the only connection, for 30 ms each time.
/// After each fetch so many requests find theirs, or one or two more. All were read 200 ms before
/// it, and are answered so long after it, in milliseconds.
fn fetches_under_a_lock(find: u64, answered_after_ms: u64) -> Script {
    let mut script = Script::new();
    script.thread(LOOP, "loop");
    for n in 0..40_u64 {
        let (from, to) = (300 + 31 * n, 330 + 31 * n);
        script.exchange(&Exchange {
            bytes_out: 60,
            ..call(0, n as u32 + 1, from, to)
        });
        for one in 0..=find + n % 3 {
            let request = script.request(10 * n + one + 1).epoll(7).ready(from - 201);
            request
                .read(from - 200, LOOP)
                .answered(to + answered_after_ms, LOOP);
        }
    }
    script.peer(&peer(40, 1));
    script.ends(1_600);
    script
}

#[test]
fn who_would_find_its_value_waits_for_the_fetches_of_others() {
    for find in [0, 1, 3] {
        let findings = detect(&Facts::of(&fetches_under_a_lock(find, 0).model()));
        let titles: Vec<&str> = findings.iter().map(|one| &*one.title).collect();
        let of_calls = |title: &&str| title.contains("others' calls to 127.0.0.1:7001 (python3)");
        assert!(titles.iter().any(of_calls), "{find}: {titles:?}");
    }
}

#[test]
fn answers_that_follow_on_no_fetch_wait_for_none() {
    // Fetches that a program makes on its own account look like that.
    let findings = detect(&Facts::of(&fetches_under_a_lock(1, 14).model()));
    let of_calls = |one: &Finding| one.title.contains("others' calls");
    assert!(!findings.iter().any(of_calls), "{findings:#?}");
}

#[test]
fn goroutines_that_pass_one_at_a_time() {
    let model = passing(1, false).model();
    let findings = detect(&Facts::of(&model));
    // Their answers are in step as well: that one has no name, and becomes a line of this one.
    let mut named = findings
        .iter()
        .filter(|one| one.subject.contains_key("waits_in"));
    let finding = named.next().expect("it is found");
    assert_eq!(finding.severity, Severity::Error);
    let wait = "chan receive in main.withThing, which lets one through at a time";
    assert!(finding.title.contains(wait), "{}", finding.title);
}
