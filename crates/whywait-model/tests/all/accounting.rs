//! Where requests' time goes, on scripts of events.

use proptest::prelude::*;
use whywait_events::Part;
use whywait_events::uring::{Lag, LagKind, Ring};
use whywait_model::script::{Script, ms};

const EPOLL: u32 = 1;
const MS: u64 = 1_000_000;

#[test]
fn work_that_was_handed_to_a_helper_is_what_the_helper_waited_for() {
    let mut script = Script::new();
    script.thread(1, "worker").thread(2, "helper").ends(3000);
    let idle = script.stack(&["start_thread", "pool::run", "Condvar::wait"]);
    let work = script.stack(&["start_thread", "pool::run", "app::render", "nanosleep"]);
    // The worker reads, wakes the helper and polls; the helper sleeps for two seconds and wakes the
    // worker, which answers.
    script.parks(2, idle, 0, 11, 1);
    script.sleeps(2, work, 12, 2012);
    script.wait(1, 232, 11, 2013).epoll(EPOLL).by(2).done();
    script
        .request(1)
        .epoll(EPOLL)
        .ready(10)
        .read(11, 1)
        .spent(Part::Thread, 2002)
        .spent(Part::OnCpu, 1)
        .answered(2014, 1);
    let model = script.model();
    let request = model.requests().next().expect("one request");
    let account = request.account();
    assert_eq!(
        account.service[Part::Timer],
        2000 * MS,
        "the helper slept: {account:?}"
    );
    assert_eq!(account.service[Part::Thread], 0, "{account:?}");
    assert_eq!(account.total_ns(), 2004 * MS);

    let path = &model.requests_summary().slowest[0].path;
    let told: Vec<(&str, u32)> = path
        .iter()
        .map(|step| (step.state.as_str(), step.tid))
        .collect();
    assert_eq!(told[0], ("ready-unserved", 1));
    assert!(told.contains(&("timer", 2)), "{told:?}");
    assert_eq!(told.last(), Some(&("on-cpu", 1)));
    let sleep = path
        .iter()
        .find(|step| step.state == "timer")
        .expect("the sleep");
    assert_eq!(sleep.function.as_deref(), Some("app::render"));
}

#[test]
fn what_a_loop_does_for_others_meanwhile_is_not_what_the_request_waited_for() {
    let mut script = Script::new();
    script.thread(1, "loop").thread(2, "helper").ends(1000);
    // While the helper computes, packets of other connections wake the loop again and again.
    for at in [20, 40, 60, 80] {
        script.polls(1, EPOLL, at - 18, at);
    }
    script.wait(1, 232, 82, 100).epoll(EPOLL).by(2).done();
    script
        .request(1)
        .epoll(EPOLL)
        .ready(1)
        .read(2, 1)
        .spent(Part::Network, 72)
        .spent(Part::Thread, 18)
        .spent(Part::OnCpu, 9)
        .answered(101, 1);
    let model = script.model();
    let request = model.requests().next().expect("one request");
    let account = request.account();
    assert_eq!(
        account.service[Part::Network],
        0,
        "the helper was what it waited for: {account:?}"
    );
    assert!(
        account.service[Part::OnCpu] > 90 * MS,
        "the helper ran: {account:?}"
    );
}

#[test]
fn a_request_that_nobody_answered_counts_with_its_age() {
    let mut script = Script::new();
    script.thread(1, "loop").ends(500);
    script.request(1).epoll(EPOLL).ready(10).unanswered();
    script
        .request(2)
        .epoll(EPOLL)
        .ready(10)
        .read(11, 1)
        .answered(20, 1);
    let requests = script.model().requests_summary();
    assert_eq!(requests.count, 1);
    assert_eq!(
        requests.latency_ns.map(|latency| latency.max),
        Some(490 * MS)
    );
    assert_eq!(
        requests.open.map(|open| (open.count, open.late)),
        Some((1, 1))
    );
}

#[test]
fn what_lies_in_a_ring_while_the_loop_does_something_else_is_uring() {
    let mut script = Script::new();
    script.thread(1, "loop").ends(500);
    // Served: another request, until 60. Then the loop takes what came meanwhile, and answers it.
    script.wait(1, 230, 12, 60).done();
    script
        .request(1)
        .ready(20)
        .read(20, 1)
        .spent(Part::Timer, 40)
        .spent(Part::OnCpu, 5)
        .answered(65, 1);
    let ring = Ring {
        id: 1,
        ..Ring::default()
    };
    script.ring(ring, Vec::new());
    script.ring_lag(&Lag {
        ring: 1,
        kind: LagKind::Unreaped,
        from_ns: ms(15),
        low_ns: 45 * MS,
        high_ns: 46 * MS,
        tid: 1,
        ..Lag::default()
    });
    let requests = script.model().requests_summary();
    assert_eq!(requests.time.uring, Some(40 * MS));
    assert_eq!(requests.time.timer, Some(0));
    assert_eq!(requests.closure, Some(1.0));
    let path: Vec<&str> = requests.slowest[0]
        .path
        .iter()
        .map(|step| &*step.state)
        .collect();
    assert_eq!(path, ["uring", "on-cpu"]);
}

#[test]
fn each_request_of_a_batch_lies_in_the_ring_until_its_own_completion_is_taken() {
    let mut script = Script::new();
    script.thread(1, "loop").ends(500);
    script.wait(1, 230, 21, 120).done();
    for (socket, taken) in [(1, 20), (2, 121), (3, 900)] {
        script
            .request(socket)
            .ready(20)
            .read(20, 1)
            .taken(taken)
            .spent(Part::Timer, 99)
            .spent(Part::OnCpu, 31)
            .answered(150, 1);
    }
    let requests = script.model().requests_summary();
    // The first was taken at once; of the third it cannot be so, and is not believed.
    assert_eq!(requests.time.uring, Some(101 * MS));
    assert_eq!(requests.closure, Some(1.0));
}

#[test]
fn without_requests_nothing_is_made_up() {
    let requests = Script::new().model().requests_summary();
    assert_eq!(
        (requests.count, requests.latency_ns, requests.closure),
        (0, None, None)
    );
    assert_eq!(requests.time.on_cpu, None);
}

/// A sleep in a random schedule: thread, call, gap before it, length, who ended it (0: an
/// interrupt).
type Sleep = (u32, u32, u64, u64, u32);

fn sleep() -> impl Strategy<Value = Sleep> {
    let call = prop::sample::select(vec![202u32, 232, 230, 45, 0, 74]);
    (1u32..4, call, 0u64..40, 1u64..200, 0u32..5)
}

proptest! {
    /// Whatever threads did: the steps of a path neither overlap nor leave gaps, and both they and
    /// the account sum to the request's wall time.
    #[test]
    fn it_closes(
        sleeps in prop::collection::vec(sleep(), 0..60),
        ready in 0u64..500,
        read_after in 0u64..500,
        answered_after in 0u64..2000,
        reader in 1u32..5,
        writer in 1u32..5,
        spent in prop::collection::vec((0usize..10, 0u64..900), 0..5),
    ) {
        let mut script = Script::new();
        let mut now = [0u64; 5];
        for tid in 1..4 {
            script.thread(tid, "t");
        }
        for (tid, call, gap, length, by) in sleeps {
            let from = now[tid as usize] + gap;
            now[tid as usize] = from + length;
            let line = script.wait(tid, call, from, from + length).epoll(EPOLL);
            if by == 0 { line.done() } else { line.by(by).done() };
        }
        let mut line = script.request(1).epoll(EPOLL).ready(ready).read(ready + read_after, reader);
        for (part, ms) in spent {
            line = line.spent(Part::ALL[part], ms);
        }
        let end = ready + read_after + answered_after;
        line.answered(end, writer);
        script.ends(end + 1);
        let model = script.model();
        let wall = ms(end) - ms(ready);
        let request = model.requests().next().expect("one request");
    let account = request.account();
        prop_assert_eq!(account.total_ns(), wall);
        let requests = model.requests_summary();
        let steps: u64 = requests.slowest[0].path.iter().map(|step| step.ns).sum();
        prop_assert_eq!(steps, wall, "{:?}", requests.slowest[0].path);
    }
}

#[test]
fn exchanges_are_no_requests() {
    let script = || {
        let mut script = Script::new();
        script.thread(1, "worker").ends(1000);
        for at in (0..300).step_by(10) {
            script.request(1).ready(at).read(at, 1).answered(at + 5, 1);
        }
        script
    };
    let apart = script().model().requests_summary();
    assert_eq!((apart.multiplexed, apart.closure.is_some()), (None, true));
    // Of those that have no row, too.
    let counted = |count| {
        let mut script = script();
        let request = script.request(2).multiplexed().ready(500);
        request.read(500, 1).answered(600, 1);
        script.counter("connections.http2", 1);
        script.counter("requests.count", count);
        script.counter("requests.multiplexed", 2);
        script.model()
    };
    let model = counted(10);
    let several = model.multiplexed().expect("there is such a connection");
    assert_eq!((several.connections, several.exchanges), (1, 3));
    assert!(several.prevail && !model.tells_requests_apart());
    let requests = model.requests_summary();
    assert_eq!((requests.latency_ns, requests.closure), (None, None));
    assert_eq!((requests.count, requests.slow), (41, 31));
    let several = requests.multiplexed.expect("it is the same model");
    assert_eq!(
        several.exchange_ns.map(|latency| latency.max),
        Some(100_000_000)
    );
    // So few cannot be the slowest hundredth.
    let model = counted(10_000);
    assert!(model.tells_requests_apart());
    let requests = model.requests_summary();
    assert!(requests.latency_ns.is_some() && requests.multiplexed.is_some());
}
