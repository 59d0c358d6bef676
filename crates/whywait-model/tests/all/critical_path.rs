//! The critical path against an independent reference: on schedules that programs can have, it is
//! the longest of all paths from the request to its response, found by trying every one.

use proptest::prelude::*;
use whywait_events::{Ns, Part, StackId};
use whywait_model::script::{Script, ms};
use whywait_model::{Model, PathStep, RequestRef};

const POLL: u32 = 7;
const FUTEX: u32 = 202;
const NANOSLEEP: u32 = 230;
const MS: u64 = 1_000_000;

/// What a program does next. Threads are numbered from 1; thread 1 reads the request and answers
/// it.
#[derive(Debug, Clone, Copy)]
enum Act {
    /// The thread computes, for so many milliseconds.
    Compute(u32, u64),
    /// It sleeps until a time comes.
    Sleep(u32, u64),
    /// It waits for something until its time runs out.
    TimeOut(u32, u64),
    /// It wakes another thread, if that waits.
    Wake(u32, u32),
    /// It waits until somebody wakes it.
    Wait(u32),
}

fn act() -> impl Strategy<Value = Act> {
    let tid = 1u32..5;
    prop_oneof![
        3 => (tid.clone(), 1u64..30).prop_map(|(tid, ms)| Act::Compute(tid, ms)),
        1 => (tid.clone(), 2u64..30).prop_map(|(tid, ms)| Act::Sleep(tid, ms)),
        1 => (tid.clone(), 2u64..30).prop_map(|(tid, ms)| Act::TimeOut(tid, ms)),
        3 => (tid.clone(), 1u32..5).prop_map(|(from, to)| Act::Wake(from, to)),
        2 => tid.prop_map(Act::Wait),
    ]
}

/// A sleep as it happened: who, from, to, and who ended it (0: the clock).
#[derive(Debug, Clone, Copy)]
struct Slept {
    tid: u32,
    from: u64,
    to: u64,
    by: u32,
    /// It waited for something else, and the clock ended that.
    timed_out: bool,
}

/// Plays what the threads do: each at its own clock, where a wake carries the waker's time to the
/// sleeper.
fn play(acts: &[Act]) -> (Vec<Slept>, u64) {
    let mut clock = [0u64; 5];
    let mut waits_since: [Option<u64>; 5] = [None; 5];
    // The helpers wait for work.
    waits_since[2..].fill(Some(0));
    // Its own clock at 1, so that nothing happens at the very moment of the request.
    clock[1] = 1;
    let mut slept = Vec::new();
    for act in acts {
        match *act {
            Act::Compute(tid, ms) if waits_since[tid as usize].is_none() => {
                clock[tid as usize] += ms
            }
            Act::Sleep(tid, ms) | Act::TimeOut(tid, ms) if waits_since[tid as usize].is_none() => {
                let from = clock[tid as usize];
                clock[tid as usize] += ms;
                slept.push(Slept {
                    tid,
                    from,
                    to: from + ms,
                    by: 0,
                    timed_out: matches!(act, Act::TimeOut(..)),
                });
                clock[tid as usize] += 1;
            }
            Act::Wake(from, to) if from != to && waits_since[from as usize].is_none() => {
                let at = clock[from as usize];
                if let Some(since) = waits_since[to as usize]
                    && since < at
                {
                    slept.push(Slept {
                        tid: to,
                        from: since,
                        to: at,
                        by: from,
                        timed_out: false,
                    });
                    waits_since[to as usize] = None;
                    // It runs for a moment at least, and so does the waker.
                    clock[to as usize] = at + 1;
                    clock[from as usize] += 1;
                }
            }
            // The first thread waits only where somebody is there to wake it; who is left waiting
            // waits on.
            Act::Wait(tid) if waits_since[tid as usize].is_none() => {
                let others =
                    (1..5).filter(|other| *other != tid && waits_since[*other as usize].is_none());
                if others.count() > 0 {
                    waits_since[tid as usize] = Some(clock[tid as usize]);
                }
            }
            _ => {}
        }
    }
    // If the first thread still waits, one that runs wakes it in the end.
    if let Some(since) = waits_since[1] {
        let by = (2..5).find(|tid| waits_since[*tid as usize].is_none());
        if let Some(by) = by {
            let at = clock[by as usize].max(since + 1);
            clock[by as usize] = at + 1;
            slept.push(Slept {
                tid: 1,
                from: since,
                to: at,
                by,
                timed_out: false,
            });
            clock[1] = at + 1;
        } else {
            clock[1] = since;
        }
    }
    (slept, clock[1] + 1)
}

/// What a millisecond of a sleep counts, in half milliseconds.
fn halves(slept: &Slept) -> u64 {
    match slept {
        Slept { by: 1.., .. } => 0,
        Slept {
            timed_out: true,
            tid: 2..,
            ..
        } => 1,
        _ => 2,
    }
}

/// The most that is done on any path from thread 1 at time 0 to `tid` at `at`, in half
/// milliseconds: tries every path. A sleep that a thread ended counts nothing, and another thread's
/// wait that timed out half.
fn longest(slept: &[Slept], tid: u32, at: u64) -> Option<u64> {
    let last = slept
        .iter()
        .filter(|one| one.tid == tid && one.to <= at)
        .max_by_key(|one| one.to);
    let Some(last) = last else {
        // Helpers wait from the start, so a thread without a sleep behind it is the one that read
        // the request.
        return (tid == 1).then_some(2 * at);
    };
    let ran = 2 * (at - last.to);
    let through_sleep = (last.to - last.from) * halves(last);
    let stay = if last.from == 0 && tid != 1 {
        None
    } else {
        longest(slept, tid, last.from).map(|done| done + through_sleep)
    };
    let through_waker = (last.by != 0)
        .then(|| longest(slept, last.by, last.to))
        .flatten();
    stay.max(through_waker).map(|done| done + ran)
}

fn model(slept: &[Slept], end: u64) -> Model {
    let mut script = Script::new();
    for tid in 1..5 {
        script.thread(tid, "t");
    }
    for one in slept {
        let sleeps = one.by == 0 && !one.timed_out;
        let call = if sleeps { NANOSLEEP } else { FUTEX };
        let line = script
            .wait(one.tid, call, one.from, one.to)
            .word(u64::from(one.tid) * 64);
        if one.by == 0 {
            line.done()
        } else {
            line.by(one.by).done()
        };
    }
    script.request(1).ready(0).read(0, 1).answered(end, 1);
    script.ends(end + 1);
    script.model()
}

/// What a path's own steps did, in half milliseconds: what stands for sleeps of its threads does
/// not count.
/// The request that came first.
fn first(model: &Model) -> RequestRef<'_> {
    model.requests().next().expect("there is a request")
}

fn done_on(slept: &[Slept], steps: &[&PathStep]) -> u64 {
    let halves_of = |step: &PathStep| {
        let within = |one: &&Slept| {
            one.tid == step.tid && ms(one.from) <= step.from_ns && step.to_ns <= ms(one.to)
        };
        slept.iter().find(within).map_or(2, halves)
    };
    let done_ns = |step: &PathStep| match step.part {
        Some(Part::Thread) => 0,
        Some(Part::Timer) => halves_of(step) * step.ns(),
        _ => 2 * step.ns(),
    };
    let own = steps.iter().filter(|step| step.waiting == 0);
    own.map(|step| done_ns(step)).sum::<u64>() / MS
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn it_is_the_longest_of_all_ways(acts in prop::collection::vec(act(), 0..40)) {
        let (slept, end) = play(&acts);
        let model = model(&slept, end);
        let path = first(&model).path();
        prop_assert!(!path.truncated);
        let mut now: Ns = ms(0);
        for step in &path.steps {
            prop_assert_eq!(step.from_ns, now, "neither gap nor overlap: {:?}", path.steps);
            now = step.to_ns;
        }
        prop_assert_eq!(now, ms(end));
        let reference = longest(&slept, 1, end).expect("thread 1 is the one that read it");
        prop_assert_eq!(done_on(&slept, &path.steps), reference, "{:?}\n{:#?}", slept, path.steps);
    }
}

/// Where a thread waits for a mutex.
fn locking(script: &mut Script) -> StackId {
    script.stack(&[
        "main",
        "app::handle",
        "pthread_mutex_lock",
        "__lll_lock_wait",
    ])
}

#[test]
fn of_two_ways_the_longer_is_taken() {
    // Thread 1 hands work to 2 and computes on; 2 takes longer.
    let slept = [
        Slept {
            tid: 2,
            from: 0,
            to: 10,
            by: 1,
            timed_out: false,
        },
        Slept {
            tid: 1,
            from: 40,
            to: 100,
            by: 2,
            timed_out: false,
        },
    ];
    let model = model(&slept, 110);
    let told: Vec<(u32, u64)> = first(&model)
        .path()
        .steps
        .iter()
        .map(|step| (step.tid, step.ns() / MS))
        .collect();
    assert_eq!(told, [(1, 10), (2, 90), (1, 10)]);
}

/// The steps of a request of thread 1's, which gives thread 2 work at 10 ms and waits for it for 10
/// ms in the end. Thread 2 sleeps, for a time to come, until just before it wakes thread 1.
fn with_a_helper_that_sleeps(asleep_ms: u64, timed_out: bool) -> Vec<(u32, &'static str, u64)> {
    let end = 12 + asleep_ms;
    let slept = [
        Slept {
            tid: 2,
            from: 0,
            to: 10,
            by: 1,
            timed_out: false,
        },
        Slept {
            tid: 2,
            from: 11,
            to: end - 1,
            by: 0,
            timed_out,
        },
        Slept {
            tid: 1,
            from: end - 10,
            to: end,
            by: 2,
            timed_out: false,
        },
    ];
    let model = model(&slept, end + 1);
    let steps = first(&model).path().steps;
    steps
        .iter()
        .map(|step| (step.tid, step.state, step.ns() / MS))
        .collect()
}

/// The steps of a request of thread 1's, which waits for thread 2 from 10 ms on. Thread 2 sleeps in
/// this function until just before it wakes thread 1.
fn woken_from(function: &str) -> Vec<(u32, &'static str, u64)> {
    let mut script = Script::new();
    script.thread(1, "t").thread(2, "t");
    let asleep = script.stack(&[function, "runtime.usleep"]);
    script.wait(1, FUTEX, 10, 100).word(64).by(2).done();
    script.wait(2, NANOSLEEP, 5, 99).stack(asleep).done();
    script.request(1).ready(0).read(0, 1).answered(101, 1);
    let model = script.ends(200).model();
    let steps = first(&model).path().steps;
    steps
        .iter()
        .map(|step| (step.tid, step.state, step.ns() / MS))
        .collect()
}

#[test]
fn who_is_woken_by_gos_monitor_has_not_waited_for_its_sleep() {
    let others = woken_from("main.tries");
    assert!(others.contains(&(2, "timer", 89)), "{others:?}");
    let monitors = woken_from("runtime.sysmon");
    assert!(monitors.contains(&(2, "thread", 89)), "{monitors:?}");
}

#[test]
fn work_of_its_own_says_more_than_a_helpers_timer() {
    // 91 ms of work, while the helper slept for 100 ms: the helper would have had it wait at
    // another time.
    let told = with_a_helper_that_sleeps(100, true);
    assert_eq!(
        told,
        [
            (1, "on-cpu", 102),
            (2, "timer", 9),
            (2, "on-cpu", 1),
            (1, "on-cpu", 1)
        ]
    );
    // Next to no work: the helper's wait is what it waited for.
    let through_helper = |asleep_ms| {
        [
            (1, "on-cpu", 10),
            (2, "on-cpu", 1),
            (2, "timer", asleep_ms),
            (2, "on-cpu", 1),
            (1, "on-cpu", 1),
        ]
    };
    assert_eq!(with_a_helper_that_sleeps(14, true), through_helper(14));
    // A pause that it makes in its work.
    assert_eq!(with_a_helper_that_sleeps(100, false), through_helper(100));
}

#[test]
fn who_was_at_something_older_stands_for_the_sleep_only() {
    // Thread 2 was not woken for this request: it finishes something older and then answers 1.
    let slept = [Slept {
        tid: 1,
        from: 40,
        to: 100,
        by: 2,
        timed_out: false,
    }];
    let model = model(&slept, 110);
    let steps = first(&model).path().steps;
    let told: Vec<(u32, u32, u64)> = steps
        .iter()
        .map(|step| (step.tid, step.waiting, step.ns() / MS))
        .collect();
    assert_eq!(told, [(1, 0, 40), (2, 1, 60), (1, 0, 10)]);
}

#[test]
fn a_thread_that_the_request_made_leads_back_to_its_maker() {
    let mut script = Script::new();
    script.thread(1, "acceptor").made(2, "handler", 20, 1);
    script.wait(1, FUTEX, 21, 80).by(2).done();
    script.request(1).ready(0).read(10, 1).answered(90, 1);
    script.ends(100);
    let model = script.model();
    let steps = first(&model).path().steps;
    let told: Vec<(u32, u64)> = steps
        .iter()
        .map(|step| (step.tid, step.ns() / MS))
        .collect();
    assert_eq!(told, [(1, 10), (1, 10), (2, 60), (1, 10)]);
}

#[test]
fn a_lock_is_waited_for_and_its_holder_is_not_the_path() {
    let mut script = Script::new();
    script.thread(1, "handler").thread(2, "other");
    let locking = locking(&mut script);
    let syncing = script.stack(&["main", "app::append_log", "fsync"]);
    script.wait(2, 74, 15, 95).stack(syncing).done();
    script
        .wait(1, FUTEX, 20, 100)
        .stack(locking)
        .word(0x1000)
        .by(2)
        .done();
    script.request(1).ready(0).read(10, 1).answered(110, 1);
    script.ends(120);
    let model = script.model();
    let steps = first(&model).path().steps;
    let told: Vec<(&str, u32, u64)> = steps
        .iter()
        .map(|step| (step.state, step.tid, step.ns() / MS))
        .collect();
    assert_eq!(
        told,
        [
            ("ready-unserved", 1, 10),
            ("on-cpu", 1, 10),
            ("lock", 1, 80),
            ("on-cpu", 1, 10)
        ]
    );
    let held: Vec<(&str, u32, u64)> = steps[2]
        .meanwhile
        .iter()
        .map(|step| (step.state, step.tid, step.ns() / MS))
        .collect();
    assert_eq!(held, [("disk", 2, 75), ("on-cpu", 2, 5)]);
    assert_eq!(steps[2].woken_by, 2);
    assert_eq!(first(&model).account().service[Part::Lock], 80 * MS);
}

#[test]
fn threads_that_wait_for_each_others_locks_are_followed_once() {
    let mut script = Script::new();
    script.thread(1, "one").thread(2, "other");
    let locking = locking(&mut script);
    for (tid, word) in [(1, 0x2000), (2, 0x1000)] {
        let wait = script.wait(tid, FUTEX, 10, 10).stack(locking).word(word);
        wait.owner(3 - tid).forever().done();
    }
    script.request(1).ready(5).read(5, 1).unanswered();
    script.ends(2000);
    let model = script.model();
    let mut locks = Vec::new();
    let mut within = first(&model).path().steps;
    while let Some(lock) = within.iter().copied().find(|step| step.state == "lock") {
        locks.push(lock.tid);
        within = lock.meanwhile.iter().collect();
    }
    assert_eq!(locks, [1, 2, 1]);
}

#[test]
fn a_lock_that_went_from_hand_to_hand_shows_each_holder() {
    let mut script = Script::new();
    for (tid, name) in [(1, "last"), (2, "second"), (3, "first")] {
        script.thread(tid, name);
    }
    let locking = locking(&mut script);
    script
        .wait(2, FUTEX, 15, 50)
        .stack(locking)
        .word(0x1000)
        .by(3)
        .done();
    script
        .wait(1, FUTEX, 20, 80)
        .stack(locking)
        .word(0x1000)
        .by(2)
        .done();
    script.request(1).ready(10).read(10, 1).answered(90, 1);
    script.ends(120);
    let model = script.model();
    let steps = first(&model).path().steps;
    let lock = steps
        .iter()
        .find(|step| step.part == Some(Part::Lock))
        .expect("it waited");
    let held: Vec<(u32, u64)> = lock
        .meanwhile
        .iter()
        .map(|step| (step.tid, step.ns() / MS))
        .collect();
    assert_eq!(held, [(3, 30), (2, 30)]);
}

#[test]
fn who_finds_a_lock_free_has_it_since_another_let_it_go() {
    let mut script = Script::new();
    for (tid, name) in [(1, "last"), (2, "second"), (3, "first"), (4, "other")] {
        script.thread(tid, name);
    }
    let locking = locking(&mut script);
    let receiving = script.stack(&["main", "app::converse", "recv"]);
    let mut waits = |tid: u32, from: u64, to: u64, by: u32| {
        script
            .wait(tid, FUTEX, from, to)
            .stack(locking)
            .word(0x1000)
            .by(by)
            .done();
    };
    // The third lets it go and wakes the fourth, which is too late: the second comes from its
    // socket and takes it.
    waits(1, 20, 80, 2);
    waits(4, 25, 50, 3);
    script
        .wait(2, 45, 10, 48)
        .stack(receiving)
        .by_softirq()
        .done();
    script.request(1).ready(10).read(10, 1).answered(90, 1);
    script.ends(120);
    let model = script.model();
    let steps = first(&model).path().steps;
    let held = meanwhile(&steps);
    assert_eq!(
        held,
        [("on-cpu", 3, 30), ("on-cpu", 2, 30)],
        "nobody had it while receiving"
    );
}

#[test]
fn who_waits_for_its_next_request_holds_no_lock() {
    let mut script = Script::new();
    script.thread(1, "conn-1").thread(2, "conn-2");
    let locking = locking(&mut script);
    let reading = script.stack(&["main", "app::serve", "read"]);
    script
        .wait(1, FUTEX, 20, 100)
        .stack(locking)
        .word(0x1000)
        .by(2)
        .done();
    // The second answers, sleeps until its next request comes, and takes the lock for that one.
    script.wait(2, 0, 30, 60).stack(reading).by_softirq().done();
    script.preempted(2, 70, 95);
    script.request(2).ready(5).read(5, 2).answered(25, 2);
    script.request(3).ready(60).read(61, 2).answered(105, 2);
    script.request(1).ready(10).read(10, 1).answered(110, 1);
    script.ends(120);
    let model = script.model();
    let lock = model
        .threads
        .get(&1)
        .and_then(|thread| thread.timeline.waits().first())
        .and_then(|wait| model.hold(wait))
        .expect("the second let it go");
    assert_eq!((lock.ns() / MS, lock.without_cpu_ns / MS), (40, 25));
    let steps = model
        .requests()
        .map(|request| request.path().steps)
        .find_map(|steps| steps.into_iter().find(|step| step.part == Some(Part::Lock)))
        .expect("the first waited for it");
    let held: Vec<(&str, u32, u64)> = steps
        .meanwhile
        .iter()
        .map(|step| (step.state, step.tid, step.ns() / MS))
        .collect();
    assert_eq!(
        held,
        [
            ("unknown", 2, 40),
            ("on-cpu", 2, 10),
            ("runnable", 2, 25),
            ("on-cpu", 2, 5)
        ]
    );
}

/// Two threads of an interpreter serve a client each, which sends the rest of its request slowly.
/// They wake each other for its lock: as each begins to wait for its client, and in the end.
#[test]
fn a_wait_for_another_requests_client_was_for_that_one() {
    let mut script = Script::new();
    script.thread(1, "conn-1").thread(2, "conn-2");
    script.wait(2, FUTEX, 4, 6).word(0x1000).by(1).done();
    script
        .wait(1, POLL, 7, 96)
        .args([10, 1])
        .by_softirq()
        .done();
    script
        .wait(2, POLL, 7, 98)
        .args([11, 1])
        .by_softirq()
        .done();
    script.wait(1, FUTEX, 97, 100).word(0x1000).by(2).done();
    script.request(1).ready(2).read(2, 1).answered(102, 1);
    script
        .request(2)
        .descriptor(11)
        .ready(3)
        .read(3, 2)
        .answered(101, 2);
    script.ends(120);
    let model = script.model();
    let polls = first(&model)
        .path()
        .steps
        .iter()
        .filter(|step| step.part == Some(Part::Network))
        .map(|step| (step.tid, step.ns() / MS))
        .collect::<Vec<_>>();
    assert_eq!(polls, [(1, 89), (2, 1)]);
}

/// What thread 1 did from 10 to 110 ms, when it read a request and answered it.
fn of_a_thread_without_a_cpu(preempted: impl IntoIterator<Item = (u64, u64)>) -> Model {
    let mut script = Script::new();
    script.thread(1, "handler");
    for (from, to) in preempted {
        script.preempted(1, from, to);
    }
    script.request(1).ready(10).read(10, 1).answered(110, 1);
    script.ends(120);
    script.model()
}

/// What those who held the lock did while it was waited for.
fn meanwhile(steps: &[&PathStep]) -> Vec<(&'static str, u32, u64)> {
    steps
        .iter()
        .find(|step| step.part == Some(Part::Lock))
        .expect("it waited for a lock")
        .meanwhile
        .iter()
        .map(|step| (step.state, step.tid, step.ns() / MS))
        .collect()
}

fn told(steps: &[&PathStep]) -> Vec<(&'static str, u64)> {
    steps
        .iter()
        .map(|step| (step.state, step.ns() / MS))
        .collect()
}

#[test]
fn a_thread_that_was_preempted_was_not_on_a_cpu() {
    // The first one began before the request was read; the last is another request's.
    let model = of_a_thread_without_a_cpu([(5, 15), (40, 90), (112, 118)]);
    assert_eq!(
        told(&first(&model).path().steps),
        [
            ("runnable", 5),
            ("on-cpu", 25),
            ("runnable", 50),
            ("on-cpu", 20)
        ]
    );
    let service = first(&model).account().service;
    assert_eq!(service[Part::Runnable], 55 * MS);
    assert_eq!(service[Part::OnCpu], 45 * MS);
}

#[test]
fn preemptions_by_the_dozen_are_two_steps() {
    let model = of_a_thread_without_a_cpu((10..110).step_by(10).map(|at| (at, at + 7)));
    assert_eq!(
        told(&first(&model).path().steps),
        [("runnable", 70), ("on-cpu", 30)]
    );
}

#[test]
fn preemptions_that_no_kernel_reports_do_not_upset_the_sum() {
    let model = of_a_thread_without_a_cpu([(20, 60), (30, 70), (90, 80), (95, 95), (100, 200)]);
    let steps = first(&model).path().steps;
    assert_eq!(
        told(&steps),
        [
            ("on-cpu", 10),
            ("runnable", 40),
            ("on-cpu", 40),
            ("runnable", 10)
        ]
    );
    assert!(
        steps
            .windows(2)
            .all(|pair| pair[0].to_ns == pair[1].from_ns),
        "the steps should meet: {steps:?}"
    );
}

#[test]
fn a_lock_that_was_given_to_a_thread_without_a_cpu_is_held_by_nobody() {
    let mut script = Script::new();
    for (tid, name) in [(1, "last"), (2, "second"), (3, "first"), (4, "woken")] {
        script.thread(tid, name);
    }
    let locking = locking(&mut script);
    let receiving = script.stack(&["main", "app::converse", "recv"]);
    script
        .wait(1, FUTEX, 20, 80)
        .stack(locking)
        .word(0x1000)
        .by(2)
        .done();
    // Woken at 40, it has a CPU at 55. The second is still in its socket when the lock becomes
    // free, and comes at 60.
    script
        .wait(4, FUTEX, 25, 40)
        .on_cpu_at(55)
        .stack(locking)
        .word(0x1000)
        .by(3)
        .done();
    script
        .wait(2, 45, 10, 60)
        .stack(receiving)
        .by_softirq()
        .done();
    script.request(1).ready(10).read(10, 1).answered(90, 1);
    script.ends(120);
    let model = script.model();
    let steps = first(&model).path().steps;
    let held = meanwhile(&steps);
    // Whether the fourth one had it from 55 to 60, nothing shows.
    assert_eq!(
        held,
        [
            ("on-cpu", 3, 20),
            ("runnable", 4, 15),
            ("unknown", 2, 5),
            ("on-cpu", 2, 20)
        ]
    );
}
