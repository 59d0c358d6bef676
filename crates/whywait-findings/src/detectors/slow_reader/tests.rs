use whywait_events::TailReason;
use whywait_model::script::Script;

use super::*;

const MS: u64 = 1_000_000;

fn tail(reason: TailReason, late_ms: u64, window_ms: u64) -> Tail {
    Tail {
        socket: 1,
        seq: 1,
        tgid: 1,
        tid: 1,
        local_port: 80,
        written_ns: 11 * MS,
        sent_ns: (11 + late_ms) * MS,
        latency_ns: MS,
        bytes_out: 1_000_000,
        bytes: 600_000,
        reason,
        window_ns: window_ms * MS,
        peer: "10.0.0.3".to_owned(),
        ..Tail::default()
    }
}

fn findings(tail: &Tail) -> Vec<Finding> {
    let mut script = Script::new();
    script.thread(1, "worker");
    script.request(1).ready(10).read(10, 1).answered(11, 1);
    script.tail(tail).ends(2_000);
    detect(&Facts::of(&script.model()))
}

#[test]
fn a_client_that_does_not_read_is_a_note() {
    let found = findings(&tail(TailReason::Window, 700, 690));
    assert_eq!(found.len(), 1, "{found:#?}");
    assert_eq!(
        found[0].title,
        "1 response of 1 on port 80 waited for their clients to read, for 700 ms (median): these \
         had no room for more"
    );
    assert_eq!(found[0].severity, Severity::Note);
    assert_eq!(
        found[0].evidence[0].text,
        "the longest stood still for 700 ms: worker (1) wrote 1,000,000 bytes in 1 ms, and \
         600,000 of that were sent after the last was written"
    );
}

#[test]
fn what_the_server_waited_for_while_it_wrote_counts() {
    let found = findings(&tail(TailReason::None, 0, 300));
    assert_eq!(found.len(), 1, "{found:#?}");
}

#[test]
fn other_reasons_and_moments_are_none() {
    assert_eq!(findings(&tail(TailReason::Nagle, 700, 0)), []);
    assert_eq!(findings(&tail(TailReason::Window, 20, 20)), []);
}

#[test]
fn of_streams_the_client_says_how_much_it_allows() {
    let mut script = Script::new();
    script.thread(1, "worker");
    script
        .request(1)
        .stream()
        .ready(10)
        .read(10, 1)
        .answered(311, 1);
    script.tail(&tail(TailReason::None, 0, 300)).ends(2_000);
    let found = detect(&Facts::of(&script.model()));
    assert_eq!(
        found[0].title,
        "1 response of 1 on port 80 waited for their clients to make room (HTTP/2), for 300 ms \
         (median): these had no room for more"
    );
    let help = &found[0].fix;
    assert!(help.contains("initial window"), "{help}");
}
