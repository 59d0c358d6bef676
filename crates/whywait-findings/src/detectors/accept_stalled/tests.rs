use whywait_events::AcceptQueue;
use whywait_model::script::{Script, TGID, ms};

use super::*;

const RECV: u32 = 45;
const ACCEPT: u32 = 43;
const EPOLL_WAIT: u32 = 232;
const PORT: u16 = 8080;
const LISTENER_FD: u64 = 3;
/// The thread that accepts.
const ACCEPTOR: u32 = 2;

fn queue(at_ms: u64, queued: u32) -> AcceptQueue {
    AcceptQueue {
        at_ns: ms(at_ms),
        tgid: TGID,
        fd: LISTENER_FD as u32,
        listener: 7,
        local_port: PORT,
        queued,
        limit: 128,
        ..AcceptQueue::default()
    }
}

/// Ten requests that were answered, and then three whose connections nobody accepts.
fn server() -> Script {
    let mut script = Script::new();
    script.thread(TGID, "server").thread(1, "worker");
    script.thread(ACCEPTOR, "acceptor");
    for number in 0..10 {
        let at = 10 + number * 20;
        script
            .request(number + 1)
            .port(PORT)
            .ready(at)
            .read(at, 1)
            .answered(at + 5, 1);
    }
    for number in 0..3 {
        script
            .request(100 + number)
            .port(PORT)
            .ready(500 + number)
            .unaccepted();
    }
    script
        .accept_queue(queue(0, 0))
        .accept_queue(queue(3_000, 3));
    script.ends(3_000);
    script
}

/// The acceptor waits for connections, and from 480 ms on for something else.
fn sleeps_elsewhere(script: &mut Script) {
    let accepts = script.stack(&["main", "accept_loop", "accept4"]);
    let reads = script.stack(&["main", "accept_loop", "read_greeting", "recv"]);
    script
        .wait(ACCEPTOR, ACCEPT, 10, 470)
        .args([LISTENER_FD, 0])
        .stack(accepts)
        .by_softirq()
        .done();
    script
        .wait(ACCEPTOR, RECV, 480, 500)
        .args([9, 0])
        .stack(reads)
        .forever()
        .done();
}

fn only(script: &Script) -> Finding {
    let mut found = detect(&Facts::of(&script.model()));
    assert_eq!(found.len(), 1, "{found:#?}");
    found.remove(0)
}

#[test]
fn a_thread_that_accepts_and_waits_for_a_client_is_named() {
    let mut script = server();
    sleeps_elsewhere(&mut script);
    let finding = only(&script);
    assert_eq!(
        finding.title,
        "3 requests waited to the end, for 2.5 s, on connections that nobody accepted: acceptor \
         (2), which accepts, sleeps in recvfrom (read_greeting)"
    );
    assert_eq!(
        (finding.severity, finding.confidence),
        (Severity::Error, Confidence::High)
    );
    assert_eq!(finding.saving.requests, 3);
    assert_eq!(
        finding.evidence[0].text,
        "the accept queue of port 8080 held 3 connections in the end and 0 when the recording \
         began; its limit is 128"
    );
    assert_eq!(finding.cause.expect("a cause").tid, ACCEPTOR);
}

#[test]
fn less_than_a_second_is_a_warning() {
    let mut script = server();
    sleeps_elsewhere(&mut script);
    script.accept_queue(queue(1_000, 3)).ends(1_000);
    assert_eq!(only(&script).severity, Severity::Warning);
}

#[test]
fn a_process_without_a_free_descriptor_is_named() {
    let mut script = server();
    let polls = script.stack(&["main", "run", "epoll_wait"]);
    script
        .wait(1, EPOLL_WAIT, 480, 500)
        .epoll(1)
        .stack(polls)
        .forever()
        .done();
    script.accept_queue(AcceptQueue {
        descriptors: 1024,
        descriptors_limit: 1024,
        ..queue(3_001, 3)
    });
    let finding = only(&script);
    assert!(
        finding
            .title
            .ends_with("server (pid 100) has all of its 1024 descriptors open"),
        "{}",
        finding.title
    );
    assert_eq!(finding.confidence, Confidence::High);
}

#[test]
fn who_accepts_may_not_have_been_seen() {
    let finding = only(&server());
    assert!(
        finding.title.ends_with("server (pid 100) does not accept"),
        "{}",
        finding.title
    );
    assert_eq!(finding.confidence, Confidence::Medium);
}

#[test]
fn threads_that_have_a_connection_each_may_be_what_it_waits_for() {
    let of = |connections: u64| {
        let mut script = Script::new();
        script.thread(TGID, "server").thread(1, "a").thread(2, "b");
        for number in 0..20 {
            let at = 10 + number * 20;
            let tid = (number % 2) as u32 + 1;
            script
                .request(number % connections + 1)
                .port(PORT)
                .ready(at)
                .read(at, tid)
                .answered(at + 5, tid);
        }
        script.request(100).port(PORT).ready(500).unaccepted();
        script
            .accept_queue(queue(0, 1))
            .accept_queue(queue(3_000, 1));
        script.ends(3_000);
        only(&script)
    };
    let said = |finding: &Finding| {
        let mut evidence = finding.evidence.iter();
        evidence.any(|one| one.text.contains("had one connection all the while"))
    };
    let finding = of(2);
    assert!(said(&finding), "{:#?}", finding.evidence);
    assert!(finding.fix.contains("keep-alive"), "{}", finding.fix);
    assert!(
        finding.title.ends_with("does not accept"),
        "what it waits for was not measured: {}",
        finding.title
    );
    assert!(!said(&of(4)), "two each");
}

#[test]
fn who_accepts_and_has_a_request_in_hand_is_another_finding() {
    let mut script = server();
    sleeps_elsewhere(&mut script);
    script
        .request(200)
        .port(PORT)
        .ready(471)
        .read(472, ACCEPTOR)
        .unanswered();
    assert!(detect(&Facts::of(&script.model())).is_empty());
}

#[test]
fn who_accepts_and_runs_may_come_to_it() {
    let mut script = server();
    let accepts = script.stack(&["main", "accept_loop", "accept4"]);
    script
        .wait(ACCEPTOR, ACCEPT, 10, 470)
        .args([LISTENER_FD, 0])
        .stack(accepts)
        .by_softirq()
        .done();
    assert!(
        detect(&Facts::of(&script.model())).is_empty(),
        "it is saturated"
    );
    script.accept_queue(AcceptQueue {
        descriptors: 1024,
        descriptors_limit: 1024,
        ..queue(3_001, 3)
    });
    assert!(only(&script).title.ends_with("descriptors open"), "in vain");
}

#[test]
fn connections_that_have_just_come_are_no_matter() {
    let mut script = server();
    sleeps_elsewhere(&mut script);
    script.ends(580);
    assert!(detect(&Facts::of(&script.model())).is_empty());
}

#[test]
fn a_full_queue_is_said_to_be_full() {
    let mut script = server();
    sleeps_elsewhere(&mut script);
    script.accept_queue(AcceptQueue {
        limit: 2,
        dropped: 5,
        overflows: 5,
        ..queue(3_001, 3)
    });
    let text = only(&script).evidence[0].text.clone();
    assert!(
        text.ends_with(
            "its limit is 2: it is full, and the kernel drops who comes now; meanwhile the kernel \
             dropped 5 packets there"
        ),
        "{text}"
    );
}

#[test]
fn a_target_that_is_stopped_accepts_nobody_for_that_reason() {
    let mut script = server();
    let stop = script.stack(&["get_signal", "do_signal_stop"]);
    for tid in [TGID, 1, ACCEPTOR] {
        script
            .wait(tid, RECV, 480, 3_000)
            .kernel(stop)
            .forever()
            .done();
    }
    assert!(detect(&Facts::of(&script.model())).is_empty());
}
