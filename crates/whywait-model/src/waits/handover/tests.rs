//! Scripts of threads that hand something on to each other, and of those that only seem to.

use super::InHand;
use crate::model::Model;
use crate::script::{Script, WaitLine};
use crate::waits::futex::{Primitive, WaitClass};

const FUTEX: u32 = 202;
/// What everybody works for, milliseconds.
const WORK: u64 = 10;

/// Threads of a JVM that are parked.
const PARKED: &[&str] = &["[jit]", "Unsafe_Park", "Parker::park", "pthread_cond_wait"];

struct Server {
    script: Script,
    stack: u32,
}

impl Server {
    fn new(calls: &[&str], threads: u32) -> Self {
        let mut script = Script::new();
        let stack = script.stack(calls);
        for tid in 1..=threads {
            script.thread(tid, "worker");
        }
        Self { script, stack }
    }

    /// A thread sleeps on its own word.
    fn sleep(&mut self, tid: u32, from: u64, to: u64) -> WaitLine<'_> {
        let stack = self.stack;
        let line = self.script.wait(tid, FUTEX, from, to);
        line.stack(stack).word(u64::from(tid) * 0x100)
    }

    fn request(&mut self, tid: u32, from: u64, to: u64) {
        let socket = u64::from(tid) << 32 | from;
        let line = self.script.request(socket);
        line.ready(from).read(from, tid).answered(to, tid);
    }

    fn model(&mut self) -> Model {
        self.script.ends(10_000).model()
    }
}

/// What the sleeps that were ended by threads that serve are taken for, how many are.
fn found(model: &Model) -> Vec<(Primitive, u64)> {
    let locks = model
        .objects
        .iter()
        .filter(|(_, sums)| sums.class == Some(WaitClass::Lock));
    locks
        .filter_map(|(key, sums)| Some((key.object.primitive()?, sums.seen.count)))
        .collect()
}

/// Each of three threads has a request, waits until the one before it is done, works for its own
/// and lets the next one have it.
fn convoy(calls: &[&str]) -> Server {
    let mut server = Server::new(calls, 3);
    for turn in 0..12u64 {
        let tid = |turn: u64| (turn % 3) as u32 + 1;
        let at = turn * WORK;
        // It came when it had its last answer.
        let came = (at + 3).saturating_sub(2 * WORK);
        if turn > 0 {
            server.sleep(tid(turn), came, at).by(tid(turn - 1)).done();
        }
        server.request(tid(turn), came.saturating_sub(1), at + WORK + 1);
    }
    server
}

#[test]
fn what_threads_that_serve_hand_on_one_after_the_other_is_a_lock() {
    let cases: [(&[&str], _); 3] = [
        (PARKED, Primitive::JavaLock),
        (&["app::handle", "pthread_cond_wait"], Primitive::OwnLock),
        (&["app::handle", "sem_wait"], Primitive::OwnLock),
    ];
    for (calls, lock) in cases {
        let model = convoy(calls).model();
        assert_eq!(found(&model), [(lock, 11)], "{calls:?}");
    }
}

#[test]
fn the_same_words_are_idle_words_when_no_request_is_open() {
    let mut server = convoy(PARKED);
    for tid in 1..=3 {
        server.sleep(tid, 200, 300).by(4).done();
    }
    let model = server.model();
    let idle = model.objects.iter().filter(|(key, sums)| {
        key.object.primitive() == Some(Primitive::JavaPark)
            && sums.seen.count == 1
            && sums.class != Some(WaitClass::Lock)
    });
    assert_eq!(idle.count(), 3);
    assert_eq!(found(&model), [(Primitive::JavaLock, 11)]);
}

#[test]
fn idle_threads_that_wake_each_other_hold_nothing() {
    // The same sleeps, and the requests are read only afterwards.
    let mut server = Server::new(PARKED, 3);
    for turn in 0..12u64 {
        let tid = |turn: u64| (turn % 3) as u32 + 1;
        let at = turn * WORK;
        server
            .sleep(tid(turn), at.saturating_sub(19), at)
            .by(tid(turn + 2))
            .done();
        server.request(tid(turn), at + 1, at + WORK);
    }
    assert_eq!(found(&server.model()), []);
}

#[test]
fn who_makes_results_for_others_holds_nothing() {
    // Four threads serve; a fifth one, which reads no requests, does what they ask for.
    let mut server = Server::new(PARKED, 5);
    for turn in 0..12u64 {
        let (tid, at) = ((turn % 4) as u32 + 1, turn * WORK);
        server.sleep(tid, at + 1, at + 9).by(5).done();
        server.request(tid, at, at + WORK);
    }
    assert_eq!(found(&server.model()), []);
}

#[test]
fn one_that_does_it_for_all_who_wait_holds_nothing() {
    // A group commit: who comes first syncs, the others wait until it has, and then one of them
    // syncs for those that came meanwhile.
    let mut server = Server::new(PARKED, 6);
    for turn in 0..8u64 {
        let at = turn * WORK;
        let first = (turn % 2) as u32 * 3 + 1;
        for tid in first..first + 3 {
            if turn > 0 {
                let leader = ((turn + 1) % 2) as u32 * 3 + 1;
                server
                    .sleep(tid, at.saturating_sub(8), at)
                    .by(leader)
                    .done();
            }
            server.request(tid, at.saturating_sub(9), at + WORK);
        }
    }
    assert_eq!(found(&server.model()), []);
}

#[test]
fn two_that_hand_work_to_and_fro_within_their_requests_hold_nothing() {
    let mut server = Server::new(&["app::handle", "pthread_cond_wait"], 2);
    for turn in 0..12u64 {
        let at = turn * WORK;
        let (tid, other) = if turn % 2 == 0 { (1, 2) } else { (2, 1) };
        server.sleep(tid, at, at + WORK).by(other).done();
    }
    server.request(1, 0, 200);
    server.request(2, 0, 200);
    assert_eq!(found(&server.model()), []);
}

#[test]
fn clients_that_write_to_each_other_hold_nothing() {
    // A long poll is answered when another client posts; its thread had waited for nothing.
    let mut server = Server::new(&["app::poll", "pthread_cond_wait"], 2);
    for turn in 0..12u64 {
        let at = turn * 2 * WORK;
        let (poller, poster) = if turn % 2 == 0 { (1, 2) } else { (2, 1) };
        server.sleep(poller, at + 1, at + WORK).by(poster).done();
        server.request(poller, at, at + WORK + 1);
        server.request(poster, at + WORK - 2, at + WORK + 2);
    }
    assert_eq!(found(&server.model()), []);
}

#[test]
fn carriers_of_several_requests_hold_nothing() {
    // Virtual threads: each carrier has two requests open when it wakes the other one.
    let mut server = Server::new(PARKED, 3);
    for turn in 0..12u64 {
        let tid = |turn: u64| (turn % 3) as u32 + 1;
        let at = turn * WORK;
        let came = (at + 3).saturating_sub(2 * WORK);
        if turn > 0 {
            server.sleep(tid(turn), came, at).by(tid(turn - 1)).done();
        }
        server.request(tid(turn), came.saturating_sub(1), at + WORK + 1);
        server.request(tid(turn), came, at + WORK + 1);
    }
    assert_eq!(found(&server.model()), []);
}

#[test]
fn carriers_that_answer_what_others_have_read_hold_nothing() {
    let mut server = convoy(PARKED);
    for turn in 0..12u64 {
        let (tid, other) = ((turn % 3) as u32 + 1, ((turn + 1) % 3) as u32 + 1);
        let line = server.script.request(9_000 + turn);
        let at = turn * WORK;
        line.ready(at).read(at, tid).answered(at + 1, other);
    }
    assert_eq!(found(&server.model()), []);
}

#[test]
fn a_pool_that_polls_in_turns_parks_where_it_idles() {
    // The workers of a runtime wake each other when there is more to do.
    let mut server = convoy(&["runtime::park", "pthread_cond_wait"]);
    for tid in 1..=3 {
        let polling = server.script.stack(&["runtime::park", "epoll_wait"]);
        for at in [2_000, 3_000] {
            let from = at + u64::from(tid) * 10;
            server.script.polls_in(tid, 7, polling, from, from + 5);
        }
    }
    assert_eq!(found(&server.model()), []);
}

#[test]
fn waits_in_a_storage_engine_without_names_are_for_rows() {
    let calls = [
        "handler::ha_index_read_map(unsigned char*, unsigned long)",
        "mariadbd+0xd21751",
        "mariadbd+0xd5b023",
        "___pthread_cond_timedwait64",
    ];
    // It is committed in a later request, too short to be known.
    let rows = |by: fn(u64) -> u32| {
        let mut server = Server::new(&calls, 5);
        for turn in 1..12u64 {
            let tid = (turn % 3) as u32 + 1;
            let at = turn * WORK;
            server.sleep(tid, at - 9, at).by(by(turn)).done();
            server.request(tid, at - WORK, at + 1);
        }
        found(&server.model())
    };
    assert_eq!(
        rows(|turn| ((turn + 2) % 3) as u32 + 1),
        [(Primitive::Row, 11)]
    );
    // What a thread of the engine's own ends is no wait for a row.
    assert_eq!(rows(|_| 5), []);
}

#[test]
fn what_a_thread_has_in_hand_does_not_depend_on_what_was_asked_for_before() {
    let mut in_hand = InHand::default();
    for from in [10, 20, 20, 40] {
        in_hand.add(1, from, from + 5);
    }
    in_hand.sort();
    let has = |in_hand: &InHand| -> Vec<u64> {
        let all = (0..50).filter(|at| in_hand.throughout(1, *at, *at));
        all.collect()
    };
    let all: Vec<u64> = [10..=15, 20..=25, 40..=45].into_iter().flatten().collect();
    assert_eq!(has(&in_hand), all);
    for at in [45, 0, 20, 19, 10, 50, 9] {
        in_hand.turn_to(1, at);
        in_hand.turn_to(2, at);
        assert_eq!(has(&in_hand), all, "after {at}");
    }
}
