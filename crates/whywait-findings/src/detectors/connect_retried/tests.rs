use whywait_events::{Exchange, PeerSums};
use whywait_model::script::{Script, ms};

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

const POLL: u32 = 7;
const CONNECTS_TO: i32 = 9;

/// Ten requests that a thread each serves: it connects, sleeps for this descriptor for 250 ms, and
/// gives the connection up.
fn giving_up(sleeps_for: i32, from_ms: u64) -> Script {
    let mut script = Script::new();
    let stack = script.stack(&["start_thread", "serve", "connect_backend", "poll"]);
    script.peer(&PeerSums {
        id: 1,
        address: "10.0.0.7".to_owned(),
        port: 7001,
        failed: 10,
        ..PeerSums::default()
    });
    for n in 0..10 {
        let (tid, at) = (n + 1, 100 + 300 * u64::from(n));
        let began_ns = ms(at + from_ms);
        script
            .thread(tid, "worker")
            .wait(tid, POLL, at + 1, at + 251)
            .args([sleeps_for as u64, 1])
            .stack(stack)
            .by_timer()
            .done();
        script.exchange(&Exchange {
            socket: 100 + u64::from(n),
            seq: 1,
            tgid: 1,
            fd: CONNECTS_TO,
            peer: 1,
            first_send_ns: began_ns,
            last_send_ns: began_ns,
            connect_ns: Some(began_ns),
            gone_ns: Some(ms(at + 252)),
            send_tid: tid,
            ..Exchange::default()
        });
        let request = script.request(n.into()).ready(at).read(at, tid);
        request.answered(at + 254, tid);
    }
    script.ends(4000);
    script
}

#[test]
fn requests_that_sleep_for_a_connection_that_is_given_up_name_its_peer() {
    let model = giving_up(CONNECTS_TO, 0).model();
    let all = crate::find(&Facts::of(&model));
    let [found] = &all[..] else {
        panic!("one cause, one finding: {all:#?}");
    };
    assert_eq!(
        found.title,
        "10 slow requests slept 98 % of their time to connect to 10.0.0.7:7001, which did not \
         answer: 10 connections were given up after 252 ms (median)"
    );
    assert!(found.code.is(&DECLARATION) && found.severity == Severity::Warning);
    assert_eq!(found.subject["peer"], "10.0.0.7:7001");
    assert_eq!(found.saving.each_at_most_ns, [250 * MS; 10]);
    assert_eq!(
        found.evidence[1].text,
        "who slept: 10 threads worker in connect_backend; 0 connections were made to it meanwhile"
    );
    assert!(model.exchanges().is_empty(), "no connection is a call");
}

#[test]
fn a_connection_for_which_nobody_sleeps_is_no_wait() {
    // It is made ahead of time, or while the thread waits for what another peer says.
    let elsewhere = giving_up(CONNECTS_TO + 1, 0).model();
    assert_eq!(detect(&Facts::of(&elsewhere)), []);
    // The sleep was there before: it is another one's descriptor.
    let before = giving_up(CONNECTS_TO, 100).model();
    assert_eq!(detect(&Facts::of(&before)), []);
}

#[test]
fn a_peer_that_refuses_is_not_accused() {
    assert_eq!(of(0, 300, 0), []);
}
