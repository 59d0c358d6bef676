//! Requests that are open when the recording ends, on scripts of events.

use whywait_events::Part;
use whywait_model::Model;
use whywait_model::requests::{OpenReader, OpenRequests, OpenState, Percentile};
use whywait_model::script::Script;

const EPOLL: u32 = 1;
const MS: u64 = 1_000_000;
/// System calls.
const RECVFROM: u32 = 45;
const POLL: u32 = 7;
const EPOLL_WAIT: u32 = 232;
const CLOCK_NANOSLEEP: u32 = 230;

fn open(model: &Model) -> OpenRequests {
    model.open_requests().expect("there are open requests")
}

/// Two workers that each answer ten requests in 5 ms, of which they wait 4 ms for a peer.
fn two_workers() -> (Script, u32, u32) {
    let mut script = Script::new();
    script.thread(1, "worker").thread(2, "worker").ends(3000);
    let idle = script.stack(&["start_thread", "serve", "recv"]);
    let fetch = script.stack(&["start_thread", "serve", "answer", "fetch", "recv"]);
    for tid in [1, 2] {
        for at in (0..100).step_by(10) {
            let socket = u64::from(tid);
            script
                .wait(tid, RECVFROM, at + 6, at + 10)
                .stack(idle)
                .by_softirq()
                .done();
            script
                .wait(tid, RECVFROM, at + 1, at + 5)
                .stack(fetch)
                .by_softirq()
                .done();
            let request = script.request(socket).ready(at).read(at + 1, tid);
            request.answered(at + 5, tid);
        }
    }
    (script, idle, fetch)
}

#[test]
fn a_request_counts_with_its_age_from_unread_or_in_work() {
    let (mut script, _, fetch) = two_workers();
    script
        .wait(1, RECVFROM, 1001, 0)
        .stack(fetch)
        .forever()
        .done();
    script.request(7).ready(1000).read(1001, 1).unanswered();
    script.request(8).ready(2000).unanswered();
    let model = script.model();
    let found = open(&model);
    assert_eq!(
        (found.count, found.unread, found.in_work, found.late),
        (2, 1, 1, 2)
    );
    assert_eq!(found.oldest_late_ns, 2000 * MS);
    assert_eq!(found.in_work_by[0].tid, 1);

    let requests = model.requests_summary();
    assert_eq!(requests.count, 20, "only those that were answered");
    assert_eq!(requests.slow, 22);
    assert_eq!(requests.time.network, Some((20 * 4 + 1999) * MS));
    assert_eq!(
        requests.time.ready_unserved.pool_busy,
        Some((20 + 1 + 1000) * MS)
    );
    assert_eq!(requests.closure, Some(1.0));
    let latency = requests.latency_ns.expect("there were requests");
    assert_eq!((latency.p50, latency.max), (5 * MS, 2000 * MS));
    assert_eq!(latency.at_least_from, Some(Percentile::P99));
    assert!(!latency.at_least(Percentile::P50) && latency.at_least(Percentile::Max));
    assert!(requests.slowest[0].open && !requests.slowest[2].open);
    assert_eq!(model.latency_quantile_ns(1.0), Some(2000.0 * MS as f64));
}

/// What is open for no longer than answered ones took is as it should be.
#[test]
fn of_those_that_are_late_it_is_known_who_has_them() {
    let (mut script, _, fetch) = two_workers();
    for (tid, from) in [(1, 2000), (2, 2998)] {
        script
            .wait(tid, RECVFROM, from + 1, 0)
            .stack(fetch)
            .forever()
            .done();
        let request = script.request(6 + u64::from(tid)).ready(from);
        request.read(from + 1, tid).unanswered();
    }
    script.request(9).ready(2500).unanswered();
    script.request(10).ready(2999).unanswered();
    let found = open(&script.model());
    assert_eq!((found.unread, found.in_work), (2, 2));
    assert_eq!((found.late, found.late_unread), (2, 1));
    let tids = |readers: &[OpenReader]| readers.iter().map(|it| it.tid).collect::<Vec<_>>();
    assert_eq!(tids(&found.in_work_by), [1, 2]);
    assert_eq!(tids(&found.late_in_work_by), [1]);
}

#[test]
fn the_path_of_an_open_request_is_what_its_thread_did_to_the_end() {
    let (mut script, _, fetch) = two_workers();
    script
        .wait(1, RECVFROM, 1501, 0)
        .stack(fetch)
        .forever()
        .done();
    script.request(7).ready(1000).read(1001, 1).unanswered();
    let model = script.model();
    let request = model.request("7:1").expect("it is there");
    let steps: Vec<(&str, u64)> = request
        .path()
        .steps
        .iter()
        .map(|step| (step.state, step.ns() / MS))
        .collect();
    assert_eq!(
        steps,
        [("ready-unserved", 1), ("on-cpu", 500), ("network", 1499)]
    );
    assert_eq!(request.account().service[Part::Network], 1499 * MS);
}

/// Before the recording began two threads have read requests: what they sleep in is no place to
/// wait for work, wherever they come to answer; nor is a pause between two tries, whoever makes it.
#[test]
fn what_threads_do_before_they_are_seen_with_a_request_is_no_rest() {
    for call in [RECVFROM, CLOCK_NANOSLEEP] {
        let (mut script, _, fetch) = two_workers();
        script.thread(3, "worker").thread(4, "worker");
        for tid in [3, 4] {
            let wait = script.wait(tid, call, 1, 900).stack(fetch);
            wait.done();
        }
        if call == CLOCK_NANOSLEEP {
            // One that nobody knows to have something in hand.
            script.sleeps(1, fetch, 200, 900);
        }
        script.request(4).ready(901).read(901, 4).answered(905, 4);
        script.wait(1, call, 1001, 0).stack(fetch).forever().done();
        script.request(7).ready(1000).read(1001, 1).unanswered();
        let found = open(&script.model());
        assert_eq!((found.in_work, found.late), (1, 1), "{call}");
    }
}

#[test]
fn one_whose_thread_rests_may_wait_for_an_event() {
    // One thread waits for its client again; another polls.
    for call in [RECVFROM, EPOLL_WAIT] {
        let (mut script, idle, _) = two_workers();
        script
            .wait(1, call, 1001, 0)
            .stack(idle)
            .epoll(EPOLL)
            .forever()
            .done();
        script.request(7).ready(1000).read(1001, 1).unanswered();
        let model = script.model();
        let found = open(&model);
        assert_eq!((found.set_aside, found.late), (1, 0), "{call}");
        assert_eq!(found.oldest_set_aside_ns, 2000 * MS);
        let requests = model.requests_summary();
        let latency = requests.latency_ns.expect("there were requests");
        assert_eq!((latency.max, latency.at_least_from), (5 * MS, None));
        assert_eq!(requests.slow, 20);
    }
}

#[test]
fn a_poll_of_one_other_descriptor_is_work() {
    let (mut script, idle, _) = two_workers();
    let query = script.stack(&["start_thread", "serve", "query", "poll"]);
    assert_ne!(idle, query);
    let wait = script.wait(1, POLL, 1001, 0).stack(query).args([9, 1]);
    wait.forever().done();
    script.request(7).ready(1000).read(1001, 1).unanswered();
    let model = script.model();
    let request = model.request("7:1").expect("it is there");
    assert_eq!(request.open_state(), Some(OpenState::InWork));
}

#[test]
fn one_as_young_as_answered_ones_is_under_way() {
    let (mut script, _, fetch) = two_workers();
    script
        .wait(1, RECVFROM, 2998, 0)
        .stack(fetch)
        .forever()
        .done();
    script.request(7).ready(2997).read(2998, 1).unanswered();
    let model = script.model();
    let found = open(&model);
    assert_eq!((found.count, found.in_work, found.late), (1, 1, 0));
    assert_eq!(model.requests_that_count(), 20);
}

#[test]
fn one_whose_connection_ended_is_not_open() {
    let (mut script, _, fetch) = two_workers();
    script
        .wait(1, RECVFROM, 1001, 0)
        .stack(fetch)
        .forever()
        .done();
    script.request(7).ready(1000).read(1001, 1).gone(1500);
    let model = script.model();
    assert_eq!(model.open_requests(), None);
    assert_eq!(model.requests_that_count(), 20);
}

#[test]
fn without_any_answer_open_requests_are_all_there_is() {
    let mut script = Script::new();
    script.thread(1, "worker").ends(3000);
    script.request(7).ready(1000).unanswered();
    let requests = script.model().requests_summary();
    assert_eq!((requests.count, requests.slow), (0, 1));
    let latency = requests.latency_ns.expect("its age");
    assert_eq!(latency.at_least_from, Some(Percentile::P50));
    assert_eq!(requests.time.ready_unserved.pool_busy, Some(2000 * MS));
}
