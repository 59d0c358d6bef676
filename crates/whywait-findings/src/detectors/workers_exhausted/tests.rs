use serde_json::json;
use whywait_model::script::Script;

use super::*;

const RECV: u32 = 45;
const ACCEPT: u32 = 43;
const POLL: u32 = 7;
const PORT: u16 = 8080;

/// Clients that each wait for their answer, and workers that sleep for 200 ms a request in
/// `syscall`.
fn pool(workers: u32, clients: u64, rounds: u64, syscall: u32) -> Script {
    let mut script = Script::new();
    for tid in 1..=workers {
        script.thread(tid, "worker");
    }
    let stack = script.stack(&["main", "serve", "fetch_price", "recv"]);
    let accept = script.stack(&["main", "serve", "accept"]);
    let mut ready: Vec<u64> = vec![10; clients as usize];
    let mut free: Vec<u64> = vec![10; workers as usize];
    for number in 0..clients * rounds {
        let client = (0..ready.len()).min_by_key(|at| ready[*at]).expect("one");
        let worker = (0..free.len()).min_by_key(|at| free[*at]).expect("one");
        let tid = worker as u32 + 1;
        let taken = ready[client].max(free[worker]);
        if taken > free[worker] {
            script
                .wait(tid, ACCEPT, free[worker], taken)
                .stack(accept)
                .by_softirq()
                .done();
        }
        script
            .wait(tid, syscall, taken, taken + 200)
            .stack(stack)
            .by_softirq()
            .done();
        script
            .request(number + 1)
            .port(PORT)
            .ready(ready[client])
            .read(taken, tid)
            .answered(taken + 200, tid);
        ready[client] = taken + 201;
        free[worker] = taken + 200;
    }
    script.ends(20_000);
    script
}

#[test]
fn two_workers_that_sleep_while_six_wait_are_too_few() {
    let found = detect(&Facts::of(&pool(2, 8, 6, RECV).model()));
    let [finding] = &found[..] else {
        panic!("expected one finding, got {found:?}");
    };
    assert_eq!(finding.severity, Severity::Error);
    assert_eq!(
        finding.title,
        "46 requests waited unread for up to 600 ms while both workers sleep in recvfrom \
         (fetch_price)"
    );
    let replay = finding.subject["replay"].as_array().expect("a replay");
    let with = |workers: u64| {
        let row = replay.iter().find(|row| row["workers"] == workers);
        row.expect("a row")["p50_ns"].as_u64().expect("a number") / 1_000_000
    };
    assert!((500..=601).contains(&with(3)), "3 workers: {} ms", with(3));
    assert!((390..410).contains(&with(4)), "4 workers: {} ms", with(4));
    assert!((200..210).contains(&with(8)), "8 workers: {} ms", with(8));
}

#[test]
fn two_that_waited_for_a_moment_may_have_had_bad_luck() {
    assert_eq!(detect(&Facts::of(&pool(2, 4, 1, RECV).model())), []);
}

/// What a fix saves is over all that it helps, the slow ones or not.
#[test]
fn the_bound_has_those_that_waited_for_a_moment() {
    let mut script = pool(2, 8, 6, RECV);
    let request = script.request(1_000).port(PORT);
    request.ready(205).read(210, 1).answered(211, 1);
    let found = detect(&Facts::of(&script.model()));
    let [finding] = &found[..] else {
        panic!("expected one finding, got {found:?}");
    };
    assert!(
        finding.title.starts_with("46 requests waited"),
        "{}",
        finding.title
    );
    assert_eq!(finding.saving.requests, 47);
    assert_eq!(finding.saving.each_at_most_ns.last(), Some(&5_000_000));
}

/// As PHP's are: a process each, on one unix socket.
#[test]
fn processes_on_a_unix_socket_are_one_crew() {
    let mut script = Script::new();
    let stack = script.stack(&["main", "serve", "fetch_price", "recv"]);
    for worker in 0..4_u32 {
        let pid = 100 + worker;
        script.thread_of(pid, pid, "worker");
        for round in 0..6_u64 {
            let taken = 10 + 200 * round;
            script
                .wait(pid, RECV, taken, taken + 200)
                .stack(stack)
                .by_softirq()
                .done();
            let request = script.request(1_000 + u64::from(pid) * 100 + round);
            let request = request.of(pid).ready(10 + 200 * round.saturating_sub(3));
            request.read(taken, pid).answered(taken + 200, pid);
        }
    }
    script.ends(5_000);
    let found = detect(&Facts::of(&script.model()));
    let [finding] = &found[..] else {
        panic!("expected one finding, got {found:?}");
    };
    assert_eq!(finding.severity, Severity::Error);
    assert!(finding.title.contains("all 4 workers"), "{}", finding.title);
}

/// A server that is short of workers and closes idle connections reads what comes on them, and
/// drops it.
#[test]
fn requests_that_are_dropped_are_not_in_hand() {
    let mut script = pool(2, 8, 6, RECV);
    for number in 0..10 {
        let at = 30 + 100 * number;
        script
            .request(1_000 + number)
            .port(PORT)
            .ready(at)
            .read(at, 1)
            .gone(at + 1);
    }
    let found = detect(&Facts::of(&script.model()));
    assert_eq!(found.len(), 1, "expected one finding, got {found:?}");
    assert_eq!(found[0].severity, Severity::Error);
}

#[test]
fn enough_workers_are_no_finding() {
    assert_eq!(detect(&Facts::of(&pool(8, 8, 6, RECV).model())), []);
}

#[test]
fn workers_that_compute_are_no_finding() {
    let mut script = Script::new();
    script.thread(1, "worker").thread(2, "worker");
    let stack = script.stack(&["main", "serve", "render"]);
    for number in 0..20_u64 {
        let tid = (number % 2) as u32 + 1;
        let taken = 10 + number / 2 * 200;
        script.burns(tid, stack, taken, taken + 200);
        script
            .request(number + 1)
            .port(PORT)
            .ready(10)
            .read(taken, tid)
            .answered(taken + 200, tid);
    }
    script.ends(5000);
    assert_eq!(detect(&Facts::of(&script.model())), []);
}

/// Four workers wait for a peer that takes 50 ms for each, in order. `before`: how many of them
/// are skipped, as by a recording that begins later.
fn one_at_a_time(before: usize) -> Script {
    let mut script = Script::new();
    let stack = script.stack(&["main", "serve", "fetch_price", "recv"]);
    for tid in 1..=4 {
        script.thread(tid, "worker");
    }
    let mut free = [10_u64; 4];
    let mut peer = 10;
    for number in 0..60_usize {
        let worker = (0..4).min_by_key(|at| free[*at]).expect("one");
        let taken = free[worker];
        peer = peer.max(taken) + 50;
        let tid = worker as u32 + 1;
        if number >= before {
            script
                .wait(tid, RECV, taken, peer)
                .stack(stack)
                .by_softirq()
                .done();
            script
                .request(number as u64 + 1)
                .port(PORT)
                .ready(taken.saturating_sub(200).max(10))
                .read(taken, tid)
                .answered(peer, tid);
        }
        free[worker] = peer;
    }
    script.ends(5000);
    script
}

#[test]
fn where_the_peer_answers_one_at_a_time_more_workers_would_queue_there() {
    assert_eq!(
        detect(&Facts::of(&one_at_a_time(0).model())),
        [],
        "seen from its start"
    );
    assert_eq!(
        detect(&Facts::of(&one_at_a_time(10).model())),
        [],
        "seen later"
    );
}

#[test]
fn a_loop_that_serves_several_at_a_time_is_no_worker() {
    let mut script = Script::new();
    script.thread(1, "loop");
    for number in 0..20_u64 {
        script
            .wait(1, RECV, 100 + number * 100, 190 + number * 100)
            .by_softirq()
            .done();
        script
            .request(number + 1)
            .port(PORT)
            .ready(number * 100)
            .read(90 + number * 100, 1)
            .answered(500 + number * 100, 1);
    }
    script.ends(5000);
    assert_eq!(detect(&Facts::of(&script.model())), []);
}

/// Carriers of tasks, two, and eight clients. With `left`, the first two tasks that have read their
/// requests leave their carrier to others before they go on, on this carrier.
fn carriers(left: Option<u32>) -> Script {
    let mut script = Script::new();
    let stack = script.stack(&["run", "book", "park"]);
    let mut number = 0;
    for tid in 1..=2 {
        script.thread(tid, "carrier");
        for turn in 0..40 {
            let from = 10 + turn * 50;
            script
                .wait(tid, RECV, from, from + 50)
                .stack(stack)
                .by_softirq()
                .done();
            number += 1;
            if left == Some(tid) && (6..8).contains(&turn) {
                continue;
            }
            let (answered, on) = match left {
                Some(on) if tid == 1 && turn < 2 => (360 + turn * 50, on),
                _ => (from + 50, tid),
            };
            script
                .request(number)
                .port(PORT)
                .ready(from.saturating_sub(150).max(9))
                .read(from, tid)
                .answered(answered, on);
        }
    }
    script.ends(3_000);
    script
}

#[test]
fn what_a_task_waits_for_its_thread_after_it_has_read_counts() {
    let title = |left| {
        let found = detect(&Facts::of(&carriers(left).model()));
        found.first().map(|finding| finding.title.clone())
    };
    let unread = title(None).expect("a finding");
    assert!(
        unread.contains("waited unread for up to 150 ms"),
        "{unread}"
    );
    let left = title(Some(1)).expect("a finding");
    assert!(left.contains("waited unserved for up to 351 ms"), "{left}");
}

#[test]
fn a_carrier_that_goes_on_with_what_another_one_read_is_taken() {
    // In the last 50 ms nobody waits.
    for on in 1..=2 {
        let finding = &detect(&Facts::of(&carriers(Some(on)).model()))[0];
        let taken = finding
            .evidence
            .iter()
            .find_map(|one| one.text.split_once(" carrier (1)"));
        assert_eq!(
            taken.map(|(long, _)| long),
            Some("for 1.95 s"),
            "on carrier {on}"
        );
    }
}

/// Two workers that accept, and then each wait in `call` for the next request of their connection,
/// until it goes after a second. Others come meanwhile, and lie in the accept queue.
fn kept_in(call: u32, args: [u64; 2]) -> Script {
    const LISTENER_FD: u32 = 3;
    let mut script = Script::new();
    let accept = script.stack(&["main", "serve", "accept"]);
    let wait = script.stack(&["main", "serve", "wait_for_client"]);
    for worker in 1..=2_u32 {
        script.thread(worker, "worker");
        let number = u64::from(worker);
        script
            .wait(worker, ACCEPT, 5, 10)
            .args([u64::from(LISTENER_FD), 0])
            .stack(accept)
            .by_softirq()
            .done();
        script
            .request(number)
            .port(PORT)
            .ready(9)
            .read(10, worker)
            .answered(14, worker);
        script
            .wait(worker, call, 20, 1_000)
            .args(args)
            .stack(wait)
            .by_softirq()
            .done();
    }
    for number in 0..8_u64 {
        let (came, read) = (100 + number, 1_001 + 10 * number);
        script
            .request(100 + number)
            .port(PORT)
            .ready(came)
            .before_accept()
            .read(read, 1 + (number % 2) as u32)
            .answered(read + 1, 1 + (number % 2) as u32);
    }
    for at_ms in [0, 3_000] {
        script.accept_queue(whywait_events::AcceptQueue {
            at_ns: whywait_model::script::ms(at_ms),
            tgid: whywait_model::script::TGID,
            fd: LISTENER_FD,
            listener: 7,
            local_port: PORT,
            limit: 128,
            ..whywait_events::AcceptQueue::default()
        });
    }
    script.ends(3_000);
    script
}

/// The address of what is polled.
const PLACE: u64 = 0x7fff_0000_1000;

#[test]
fn a_poll_that_sleeps_on_while_connections_come_waits_for_none() {
    const SELECT: u32 = 23;
    for (call, args) in [(POLL, [PLACE, 1]), (POLL, [PLACE, 3]), (SELECT, [9, PLACE])] {
        let found = detect(&Facts::of(&kept_in(call, args).model()));
        let [finding] = &found[..] else {
            panic!("expected one finding, got {found:?}");
        };
        assert!(
            finding.title.starts_with("8 requests waited unread")
                && finding.title.contains("both workers sleep in"),
            "{}",
            finding.title
        );
    }
}

#[test]
fn of_several_listeners_at_a_port_a_poll_may_watch_another() {
    const SELECT: u32 = 23;
    let mut script = kept_in(SELECT, [9, PLACE]);
    script.accept_queue(whywait_events::AcceptQueue {
        tgid: whywait_model::script::TGID,
        fd: 4,
        listener: 8,
        local_port: PORT,
        limit: 128,
        ..whywait_events::AcceptQueue::default()
    });
    assert_eq!(detect(&Facts::of(&script.model())), []);
}

/// One worker is certainly kept. Of the other's poll the descriptor was not read: it is neither
/// free nor kept.
#[test]
fn a_poll_whose_descriptor_was_not_read_is_not_free() {
    let found = |second: [u64; 2]| {
        let mut script = pool(1, 4, 6, RECV);
        let wait = script.stack(&["main", "serve", "wait_for_client"]);
        script.thread(2, "worker");
        script
            .request(900)
            .port(PORT)
            .ready(1)
            .read(1, 2)
            .answered(2, 2);
        script
            .wait(2, POLL, 3, 15_000)
            .args(second)
            .stack(wait)
            .by_softirq()
            .done();
        detect(&Facts::of(&script.model())).len()
    };
    assert_eq!(found([PLACE, 1]), 1, "not known");
    assert_eq!(
        found([9, 1]),
        0,
        "something that is not its own: free, as far as known"
    );
}

/// A worker that sleeps in `call`, at `stack`, on a connection of its own.
fn keep(script: &mut Script, worker: u32, (call, stack): (u32, u32), owe: bool) {
    let fd = 10 + worker;
    let sleep = script.wait(worker, call, 0, 0).args([u64::from(fd), 1]);
    sleep.stack(stack).forever().done();
    for at in [1, 3_000] {
        script.connection(&whywait_events::Connection {
            at_ns: whywait_model::script::ms(at),
            tgid: whywait_model::script::TGID,
            fd,
            socket: u64::from(worker),
            local_port: PORT,
            peer: "10.0.0.3".to_owned(),
            peer_port: 4_000 + worker as u16,
            owes_answer: Some(owe),
        });
    }
}

/// Four workers that have slept in `call` on connections of theirs since before the recording,
/// which `owe` their clients an answer, and a first thread that waits for them. Eight requests lie
/// in the accept queue, or were accepted and lie unread (`accepted`).
fn kept_before(call: u32, owe: bool, accepted: bool) -> Script {
    use whywait_model::script::{TGID, ms};
    let mut script = Script::new();
    let wait = script.stack(&["main", "serve", "wait_for_client"]);
    script.thread(TGID, "server");
    let join = script.stack(&["main", "join"]);
    let main = script.wait(TGID, 202, 0, 0).word(0x10).stack(join);
    main.forever().done();
    for worker in 1..=4_u32 {
        script.thread(worker, "worker");
        keep(&mut script, worker, (call, wait), owe);
        if owe {
            let upload = script.request(u64::from(worker)).port(PORT);
            upload.since_before().ready(0).read(0, 0).unanswered();
        }
    }
    for number in 0..8 {
        let request = script.request(100 + number).port(PORT).ready(10);
        if accepted {
            request.unanswered();
        } else {
            request.unaccepted();
        }
    }
    script.accept_queue(whywait_events::AcceptQueue {
        at_ns: ms(3_000),
        tgid: TGID,
        fd: 3,
        listener: 7,
        local_port: PORT,
        queued: if accepted { 0 } else { 8 },
        limit: 128,
        ..whywait_events::AcceptQueue::default()
    });
    script.ends(3_000);
    script
}

fn title_of(script: &Script) -> Option<String> {
    let found = detect(&Facts::of(&script.model()));
    found.first().map(|finding| finding.title.clone())
}

#[test]
fn workers_kept_since_before_are_found_by_their_connections() {
    for call in [RECV, POLL] {
        let found = detect(&Facts::of(&kept_before(call, false, false).model()));
        let [finding] = &found[..] else {
            panic!("expected one finding, got {found:?}");
        };
        assert_eq!(
            finding.title,
            "8 requests waited unread for up to 2.99 s while all 4 workers are kept by idle \
             connections"
        );
        let says = |text: &str| finding.evidence.iter().any(|one| one.text.contains(text));
        assert!(
            says("4 connections of 10.0.0.3:4001"),
            "{:?}",
            finding.evidence
        );
        assert!(
            says("held 8 connections in the end"),
            "{:?}",
            finding.evidence
        );
        assert_eq!(finding.severity, Severity::Error);
        assert_eq!(
            finding.confidence,
            Confidence::Medium,
            "that they accept is inferred"
        );
    }
}

#[test]
fn a_request_that_is_half_read_since_before_is_in_hand() {
    let title = title_of(&kept_before(RECV, true, false)).expect("a finding");
    assert!(
        title.contains("all 4 workers sleep in recvfrom (wait_for_client)"),
        "{title}"
    );
}

#[test]
fn what_is_accepted_waits_for_the_kept_workers_of_a_pool() {
    let title = title_of(&kept_before(RECV, false, true)).expect("a finding");
    assert!(
        title.contains("all 4 workers are kept by idle connections"),
        "{title}"
    );
}

/// Somebody else could have taken it, as far as known.
/// Of four workers idle connections have kept two since before the recording. The others answer
/// eight clients in 200 ms each, and never sleep in accept: there is always one in the queue.
/// `rests`: whether the first thread, which waits for them, is seen to do so.
fn kept_and_busy(rests: bool) -> Script {
    use whywait_model::script::TGID;
    const SLEEP: u32 = 35;
    let mut script = Script::new();
    script.thread(TGID, "server");
    if rests {
        let join = script.stack(&["main", "join"]);
        let main = script.wait(TGID, 202, 0, 0).word(0x10).stack(join);
        main.forever().done();
    }
    let idle = script.stack(&["main", "serve", "wait_for_client"]);
    let work = script.stack(&["main", "serve", "ask_the_other"]);
    for worker in 1..=4 {
        script.thread(worker, "worker");
        if worker <= 2 {
            keep(&mut script, worker, (RECV, idle), false);
        }
    }
    for number in 0..28 {
        let (worker, taken) = (3 + (number % 2) as u32, 10 + 200 * (number / 2));
        script
            .wait(worker, SLEEP, taken, taken + 199)
            .stack(work)
            .by_timer()
            .done();
        script
            .request(100 + number)
            .port(PORT)
            .ready(taken.saturating_sub(600).max(10))
            .before_accept()
            .read(taken, worker)
            .answered(taken + 199, worker);
    }
    script.accept_queue(whywait_events::AcceptQueue {
        at_ns: whywait_model::script::ms(3_000),
        tgid: TGID,
        fd: 3,
        listener: 7,
        local_port: PORT,
        queued: 6,
        limit: 128,
        ..whywait_events::AcceptQueue::default()
    });
    script.ends(3_000);
    script
}

#[test]
fn some_are_kept_while_the_others_have_all_the_work() {
    let title = title_of(&kept_and_busy(true)).expect("a finding");
    assert!(
        title
            .contains("while 2 of 4 workers are kept by idle connections, and the others sleep in"),
        "{title}"
    );
    let title = title_of(&kept_and_busy(false)).expect("a finding");
    assert!(
        title.contains("while both workers sleep in"),
        "the first thread may take work, too: {title}"
    );
}

#[test]
fn others_who_may_take_work_are_no_kept_workers() {
    use whywait_model::script::TGID;
    const EPOLL: u32 = 232;
    let with = |tid: u32, name: &str, call: u32, args: [u64; 2]| {
        let mut script = kept_before(RECV, false, false);
        let stack = script.stack(&["main", "other"]);
        script.thread(tid, name);
        let epoll = if call == EPOLL { 7 } else { 0 };
        let sleep = script
            .wait(tid, call, 0, 0)
            .epoll(epoll)
            .args(args)
            .stack(stack);
        sleep.forever().done();
        title_of(&script)
    };
    assert_eq!(
        with(5, "worker", 202, [0x20, 128]),
        None,
        "one that idles in the pool"
    );
    assert_eq!(
        with(5, "consumer", RECV, [40, 0]),
        None,
        "it may accept, and wait for a peer"
    );
    assert_eq!(
        with(5, "loop", EPOLL, [4, 0]),
        None,
        "a loop whose listener was taken out"
    );
    assert_eq!(
        with(5, "acceptor", ACCEPT, [3, 0]),
        None,
        "it accepts, and hands them on"
    );
    assert!(
        with(5, "logger", 202, [0x20, 128]).is_some(),
        "it does something else"
    );
    assert!(with(5, "timer", 230, [0, 0]).is_some(), "the same");
    // A thread that never rested may be the one that accepts.
    let mut script = kept_before(RECV, false, false);
    script.thread(5, "acceptor");
    assert_eq!(title_of(&script), None);
    // Nor is it known where not all connections were looked at.
    let mut script = kept_before(RECV, false, false);
    script.counter("connections.over-limit", 1);
    assert_eq!(title_of(&script), None);
    // The first thread of the process, in a loop.
    let mut script = kept_before(RECV, false, false);
    script.thread_of(TGID + 1, TGID + 1, "other");
    assert!(title_of(&script).is_some(), "another process");
}

/// Those who were seen in accept, and never with a request that took long, are workers.
#[test]
fn who_accepted_and_then_waits_for_a_client_is_kept() {
    const LISTENER_FD: u64 = 3;
    let of = |accepted: bool| {
        let mut script = kept_in(POLL, [PLACE, 1]);
        let wait = script.stack(&["main", "serve", "wait_for_client"]);
        let kernel = script.stack(&["tcp_recvmsg", "inet_recvmsg"]);
        script.counter("exchanges.over-budget", 0);
        script.thread(3, "worker");
        if accepted {
            let accept = script.wait(3, ACCEPT, 5, 30).args([LISTENER_FD, 0]);
            accept.by_softirq().done();
        }
        let sleep = script.wait(3, RECV, 31, 1_000).args([9, 0]);
        sleep.stack(wait).kernel(kernel).by_softirq().done();
        let found = detect(&Facts::of(&script.model()));
        found
            .first()
            .map(|finding| finding.subject["workers"].clone())
    };
    assert_eq!(of(true), Some(json!([1, 2, 3])));
    assert_eq!(of(false), Some(json!([1, 2])));
}
