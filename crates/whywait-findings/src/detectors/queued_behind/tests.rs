use serde_json::json;
use whywait_events::Cpu;
use whywait_model::script::{Script, TGID};

use super::*;

const RECV: u32 = 45;
const PORT: u16 = 8080;

/// A thread that reads, and two others that sleep for 200 ms a request and answer; eight clients.
/// `answers`: who answers which request.
fn handed(answers: fn(u64) -> u32) -> Script {
    let mut script = Script::new();
    script.thread(1, "reader").thread(2, "one").thread(3, "two");
    let work = script.stack(&["main", "job", "fetch_price", "recv"]);
    for number in 0..48_u64 {
        let from = 10 + number / 2 * 200 + number % 2 * 10;
        script
            .wait(2 + (number % 2) as u32, RECV, from, from + 200)
            .stack(work)
            .by_softirq()
            .done();
        let read = (from + 200).saturating_sub(800).max(10);
        script
            .request(number + 1)
            .port(PORT)
            .ready(read)
            .read(read, 1)
            .answered(from + 200, answers(number));
    }
    script.ends(6000);
    script
}

#[test]
fn those_who_answer_what_another_one_reads_are_workers() {
    let found = detect(&Facts::of(
        &handed(|number| 2 + (number % 2) as u32).model(),
    ));
    let [finding] = &found[..] else {
        panic!("expected one finding, got {found:?}");
    };
    assert_eq!(finding.subject["workers"], json!([2, 3]));
    assert_eq!(finding.subject["readers"], json!([1]));
}

#[test]
fn who_reads_and_answers_has_handed_nothing_on() {
    let all: fn(u64) -> u32 = |_| 1;
    let a_third: fn(u64) -> u32 = |number| match number % 3 {
        0 => 1,
        _ => 2 + (number % 2) as u32,
    };
    for answers in [all, a_third] {
        let found = detect(&Facts::of(&handed(answers).model()));
        assert_eq!(found, []);
    }
}

/// A loop, thread 1, and two threads that its answers follow. Eight clients; two jobs end at a
/// time, 10 ms apart; the loop sleeps in between.
fn executor() -> Script {
    executor_of(&[1])
}

/// A loop, thread 1, and two threads, never at rest, whose sleeps of 200 ms end at the same time:
/// then the loop answers so many of the clients, who ask again at once.
fn in_step(clients: u64, answered: u64) -> Script {
    const READ: u32 = 0;
    let mut script = Script::new();
    script.thread(1, "loop");
    script.thread(2, "executor_0").thread(3, "executor_1");
    let poll = script.stack(&["main", "run", "epoll_wait"]);
    let work = script.stack(&["main", "job", "fetch_price", "read"]);
    for turn in 0..16_u64 {
        let (from, done) = (10 + turn * 200, 210 + turn * 200);
        for tid in [2, 3] {
            let sleeps = script.wait(tid, READ, from, done).stack(work);
            sleeps.by_softirq().done();
        }
        let polls = script.wait(1, 232, from, done).epoll(7).stack(poll);
        polls.by(2).done();
        for which in 0..answered {
            let read = done.saturating_sub(clients / answered * 200).max(10);
            script
                .request(turn * answered + which + 1)
                .port(PORT)
                .epoll(7)
                .ready(read)
                .read(read, 1)
                .answered(done, 1);
        }
    }
    script.ends(6000);
    script
}

/// Two that sleep, and a third one that has next to nothing to do.
#[test]
fn jobs_that_end_together_leave_others_in_the_queue() {
    let found = detect(&Facts::of(&in_step(12, 3).model()));
    let [finding] = &found[..] else {
        panic!("expected one finding, got {found:?}");
    };
    assert_eq!(finding.subject["at_a_time"], 2);
}

#[test]
fn requests_that_are_told_all_at_once_wait_for_no_job() {
    for clients in [8, 16] {
        let found = detect(&Facts::of(&in_step(clients, 8).model()));
        assert_eq!(found, [], "{clients} wait, and 8 are told");
    }
    let few = detect(&Facts::of(&in_step(5, 5).model()));
    assert_eq!(few, [], "all five that wait are told");
}

/// The same of several loops, of which each has an epoll instance.
fn executor_of(loops: &[u32]) -> Script {
    executor_that(loops, "fetch_price")
}

/// The same, whose jobs sleep in a function of that name.
fn executor_that(loops: &[u32], function: &str) -> Script {
    let mut script = Script::new();
    script.thread(2, "executor_0").thread(3, "executor_1");
    for tid in loops {
        script.thread(*tid, "loop");
    }
    executor_in_calls(script, loops, function)
}

/// … of one loop, whose threads all have this name.
fn executor_named(name: &str) -> Script {
    let mut script = Script::new();
    for tid in 1..=3 {
        script.thread(tid, name);
    }
    executor_in_calls(script, &[1], "fetch_price")
}

fn executor_in_calls(mut script: Script, loops: &[u32], function: &str) -> Script {
    const READ: u32 = 0;
    let work = script.stack(&["main", "job", function, "read"]);
    executor_in(script, loops, |script, tid, from| {
        let sleeps = script.wait(tid, READ, from, from + 200).stack(work);
        sleeps.by_softirq().done();
    })
}

/// … whose jobs of 200 ms sleep in such a way.
fn executor_in(
    mut script: Script,
    loops: &[u32],
    sleeps: impl Fn(&mut Script, u32, u64),
) -> Script {
    let poll = script.stack(&["main", "run", "epoll_wait"]);
    let mut polled = vec![10; loops.len()];
    for number in 0..48_u64 {
        let tid = 2 + (number % 2) as u32;
        let at = (number / 2) as usize % loops.len();
        let reader = loops[at];
        let from = 10 + number / 2 * 200 + number % 2 * 10;
        let done = from + 200;
        sleeps(&mut script, tid, from);
        script
            .wait(reader, 232, polled[at], done)
            .epoll(7 + at as u32)
            .stack(poll)
            .by(tid)
            .done();
        polled[at] = done;
        let read = done.saturating_sub(800).max(10);
        script
            .request(number + 1)
            .port(PORT)
            .epoll(7 + at as u32)
            .ready(read)
            .read(read, reader)
            .answered(done, reader);
    }
    script.ends(6000);
    script
}

#[test]
fn several_loops_may_hand_jobs_to_one_executor() {
    let found = detect(&Facts::of(&executor_of(&[1, 4, 5]).model()));
    let [finding] = &found[..] else {
        panic!("expected one finding, got {found:?}");
    };
    assert_eq!(finding.subject["workers"], json!([2, 3]));
    assert_eq!(finding.subject["readers"], json!([1, 4, 5]));
}

#[test]
fn jobs_that_queue_for_an_executor_are_found() {
    let found = detect(&Facts::of(&executor().model()));
    let [finding] = &found[..] else {
        panic!("expected one finding, got {found:?}");
    };
    assert!(
        finding
            .title
            .ends_with("behind the jobs of others, which sleep in the only 2 threads"),
        "{}",
        finding.title
    );
    assert_eq!(finding.subject["workers"], json!([2, 3]));
}

/// Who accepts a loop's connections ends its sleeps, too, and hands it no answers.
#[test]
fn who_accepts_connections_does_no_jobs() {
    const ACCEPT: u32 = 43;
    let mut script = executor();
    script.thread(9, "main");
    let poll = script.stack(&["main", "run", "epoll_wait"]);
    let accept = script.stack(&["main", "accept"]);
    for at in 0..3 {
        let (from, to) = (3 * at, 3 * at + 3);
        let polls = script.wait(1, 232, from, to).epoll(7).stack(poll);
        polls.by(9).done();
    }
    let accepts = script.wait(9, ACCEPT, 10, 5_990).stack(accept);
    accepts.by_softirq().done();
    let found = detect(&Facts::of(&script.model()));
    let [finding] = &found[..] else {
        panic!("expected one finding, got {found:?}");
    };
    assert_eq!(finding.subject["workers"], json!([2, 3]));
    assert_eq!(finding.subject["at_a_time"], 2);
}

/// Clients' threads ask another process, one job of 200 ms at a time. A thread of theirs takes its
/// answers, and tells them. Or that thread does the jobs, and asks the other process for it.
fn told_by_another(asks: bool) -> Script {
    const POLL: u32 = 7;
    const FUTEX: u32 = 202;
    let mut script = Script::new();
    script.thread_of(2, 2, "other").thread(3, "tells");
    let rest = script.stack(&["main", "serve", "result", "futex"]);
    let take = script.stack(&["main", "take_answer", "poll"]);
    let next = script.stack(&["main", "next", "recv"]);
    let work = script.stack(&["main", "job", "fetch_price", "recv"]);
    for client in 0..8 {
        script.thread(11 + client, "client");
    }
    for number in 0..24_u64 {
        let client = 11 + (number % 8) as u32;
        let (from, done) = (10 + number * 200, 210 + number * 200);
        if asks {
            let asked = script.wait(2, RECV, from, from + 2).stack(next);
            asked.by(3).done();
        }
        let job = script.wait(2, RECV, from + 3, done - 1).stack(work);
        job.by_softirq().done();
        let takes = script.wait(3, POLL, from + 1, done).stack(take);
        takes.by(2).done();
        let read = done.saturating_sub(1_600).max(10);
        let waits = script.wait(client, FUTEX, read + 1, done + 1).stack(rest);
        waits.word(0x1000).by(3).done();
        let request = script.request(number + 1).port(PORT).ready(read);
        request.read(read, client).answered(done + 1, client);
    }
    script.ends(6_000);
    script
}

#[test]
fn who_takes_answers_for_others_does_no_jobs() {
    for (asks, worker, who) in [
        (false, 2, "in the only helper process"),
        (true, 3, "in the only thread"),
    ] {
        let found = detect(&Facts::of(&told_by_another(asks).model()));
        let [finding] = &found[..] else {
            panic!("expected one finding, got {found:?}");
        };
        assert_eq!(finding.subject["workers"], json!([worker]), "{asks}");
        assert!(finding.title.ends_with(who), "{}", finding.title);
    }
}

/// Who keeps looked-up names spares a request its own look-up, and not only others'.
#[test]
fn a_cache_spares_own_look_ups_too() {
    let bound = |function: &str| {
        let found = detect(&Facts::of(&executor_that(&[1], function).model()));
        let [finding] = &found[..] else {
            panic!("expected one finding, got {found:?}");
        };
        finding.saving.at_most_ns / 1_000_000
    };
    let (calls, look_ups) = (bound("fetch_price"), bound("getaddrinfo"));
    // The first one was read with the job under way: 10 ms of it are before.
    assert!((48 * 199..48 * 202).contains(&(look_ups - calls)));
}

/// A runtime's compiler works for the loop now and then, and ends sleeps of it that are no poll.
#[test]
fn who_works_for_a_loop_need_not_do_its_jobs() {
    const FUTEX: u32 = 202;
    let mut script = Script::new();
    script.thread(1, "loop").thread(9, "compiler");
    script.thread(2, "executor_0").thread(3, "executor_1");
    let poll = script.stack(&["main", "run", "epoll_wait"]);
    let work = script.stack(&["main", "job", "fetch_price", "read"]);
    let take = script.stack(&["main", "take", "futex"]);
    let rest = script.stack(&["compiler", "take", "futex"]);
    let compiled = script.stack(&["main", "run", "call_compiled", "futex"]);
    for tid in 2..=3 {
        script.wait(tid, FUTEX, 0, 10).stack(take).by(1).done();
    }
    for number in 0..24 {
        let from = 10 + number * 200;
        for tid in 2..=3 {
            let done = from + 190 + u64::from(tid) * 2;
            let job = script.wait(tid, 0, from, done).stack(work);
            job.by_softirq().done();
            let read = done.saturating_sub(800).max(10);
            let request = script.request(number * 2 + u64::from(tid)).port(PORT);
            request.epoll(7).ready(read).read(read, 1).answered(done, 1);
        }
        // For half of the time it compiles.
        let rests = script.wait(9, FUTEX, from, from + 60).stack(rest);
        rests.by(1).done();
        let waits = script.wait(1, FUTEX, from + 61, from + 160).stack(compiled);
        waits.by(9).done();
        for (tid, from, to) in [(2, from + 170, from + 194), (3, from + 195, from + 196)] {
            let polls = script.wait(1, 232, from, to).epoll(7).stack(poll);
            polls.by(tid).done();
        }
    }
    script.ends(6_000);
    let found = detect(&Facts::of(&script.model()));
    let [finding] = &found[..] else {
        panic!("expected one finding, got {found:?}");
    };
    assert_eq!(finding.subject["workers"], json!([2, 3]));
}

/// A loop, thread 1, and two threads whose jobs each sleep so many times, for 200 ms in all.
fn whose_jobs_sleep(times: usize) -> Finding {
    let mut script = Script::new();
    script.thread(2, "executor_0").thread(3, "executor_1");
    script.thread(1, "loop");
    let sleeps = script.stack(&["main", "job", "unixSleep", "clock_nanosleep"]);
    let each = 200 / times as u64;
    let script = executor_in(script, &[1], |script, tid, from| {
        for at in (from..from + 200).step_by(each as usize) {
            script.sleeps(tid, sleeps, at, at + each);
        }
    });
    let found = detect(&Facts::of(&script.model()));
    let [finding] = &found[..] else {
        panic!("expected one finding, got {found:?}");
    };
    finding.clone()
}

#[test]
fn jobs_that_sleep_again_and_again_try_for_something() {
    let finding = whose_jobs_sleep(8);
    assert!(
        finding.fix.contains("what the jobs try for"),
        "{}",
        finding.fix
    );
    assert!(
        finding
            .title
            .ends_with("which sleep again and again in the only 2 threads"),
        "{}",
        finding.title
    );
    let finding = whose_jobs_sleep(1);
    assert!(!finding.fix.contains("try for"), "{}", finding.fix);
}

/// Of threads that all have one name, two do the loop's jobs and wait for them at one word; two
/// others work for the runtime, and wait for that at another one. One of these ends a sleep of the
/// loop now and then, too, and slept for a moment otherwise.
#[test]
fn who_waits_for_work_at_another_word_is_of_another_executor() {
    const FUTEX: u32 = 202;
    const JOBS: u64 = 0x1000;
    const OTHER_WORK: u64 = 0x2000;
    let mut script = executor_named("node");
    script.thread(8, "node").thread(9, "node");
    let take = script.stack(&["pthread_cond_wait"]);
    let work = script.stack(&["main", "job", "fetch_price", "read"]);
    for tid in 2..=3 {
        let rests = script.wait(tid, FUTEX, 0, 9).word(JOBS).stack(take);
        rests.by(1).done();
    }
    let told = script.stack(&["main", "run", "call_compiled", "futex"]);
    for number in 0..6 {
        let at = 995 + number * 1000;
        for tid in 8..=9 {
            let rests = script.wait(tid, FUTEX, at - 992, at).word(OTHER_WORK);
            rests.stack(take).by(1).done();
        }
        let sleeps = script.wait(9, 0, at + 1, at + 3).stack(work);
        sleeps.by_softirq().done();
        let waits = script.wait(1, FUTEX, at + 1, at + 4).stack(told);
        waits.by(9).done();
    }
    let found = detect(&Facts::of(&script.model()));
    let [finding] = &found[..] else {
        panic!("expected one finding, got {found:?}");
    };
    assert_eq!(finding.subject["workers"], json!([2, 3]));
    assert!(
        finding.title.ends_with("which sleep in the only 2 threads"),
        "{}",
        finding.title
    );
}

/// Two threads that poll one instance in turn, and read while the other one sleeps in a request's
/// work, for 200 ms each: eight clients.
fn runtime(unread: bool) -> Script {
    const SLEEP: u32 = 230;
    let mut script = Script::new();
    script.thread(1, "worker").thread(2, "worker");
    let poll = script.stack(&["main", "run", "epoll_wait"]);
    let work = script.stack(&["main", "run", "write_report", "nanosleep"]);
    for tid in 1..=2 {
        let polls = script.wait(tid, 232, 0, 9).epoll(7).stack(poll);
        polls.by_softirq().done();
    }
    for number in 0..48_u64 {
        let tid = 1 + (number % 2) as u32;
        let from = 10 + number / 2 * 200 + number % 2 * 10;
        let done = from + 199;
        let sleeps = script.wait(tid, SLEEP, from, done).stack(work);
        sleeps.by_softirq().done();
        let came = done.saturating_sub(800).max(10);
        let read = if unread { from } else { came };
        let request = script.request(number + 1).port(PORT).epoll(7).ready(came);
        request.read(read, tid).answered(done, tid);
    }
    script.ends(6_000);
    script
}

#[test]
fn threads_that_run_tasks_may_keep_each_others() {
    let found = detect(&Facts::of(&runtime(false).model()));
    let [finding] = &found[..] else {
        panic!("expected one finding, got {found:?}");
    };
    assert_eq!(finding.subject["workers"], json!([1, 2]));
    assert_eq!(finding.subject["readers"], json!([1, 2]));
    assert!(finding.fix.contains("spawn_blocking"), "{}", finding.fix);
}

/// Requests wait for something else while two threads sleep in the work of others.
#[test]
fn a_thread_that_rests_could_take_the_next_task() {
    let mut script = runtime(false);
    script.thread(3, "worker");
    let poll = script.stack(&["main", "run", "epoll_wait"]);
    for number in 0..240 {
        let at = 10 + number * 20;
        let polls = script.wait(3, 232, at, at + 19).epoll(7).stack(poll);
        polls.by_softirq().done();
    }
    assert_eq!(detect(&Facts::of(&script.model())), []);
}

#[test]
fn what_lies_unread_is_no_task() {
    assert_eq!(detect(&Facts::of(&runtime(true).model())), []);
}

/// Behind a thread that reads there is a loop, which has all requests in hand: it was never seen to
/// be told of one, and the recording began long before its first.
#[test]
fn a_loop_has_no_jobs_though_others_read_for_it() {
    const LATER: u64 = 20_000;
    let mut script = Script::new();
    script.thread(1, "reader").thread(2, "loop");
    let poll = script.stack(&["main", "run", "epoll_wait"]);
    let told = script.stack(&["main", "read", "futex"]);
    for number in 0..48_u64 {
        let from = LATER + number * 100;
        let polls = script.wait(2, 232, from, from + 99).epoll(9).stack(poll);
        polls.by_softirq().done();
        let waits = script.wait(1, 202, from + 50, from + 99).stack(told);
        waits.by(2).done();
        let read = from.saturating_sub(700).max(LATER);
        let request = script.request(number + 1).port(PORT).ready(read);
        request.read(read, 1).answered(from + 100, 1);
    }
    script.ends(LATER + 5_000);
    assert_eq!(detect(&Facts::of(&script.model())), []);
}

#[test]
fn loops_that_wake_each_other_are_no_executors() {
    let mut script = executor();
    // They read requests themselves.
    for tid in 2..=3 {
        script
            .request(100 + u64::from(tid))
            .port(PORT)
            .ready(5500)
            .read(5501, tid)
            .answered(5502, tid);
    }
    assert_eq!(detect(&Facts::of(&script.model())), []);
}

/// A loop, thread 1, and ten threads, of whom each hands the next job to another one: twelve
/// clients' jobs of 60 ms, one after another.
fn ordered() -> Script {
    const FUTEX: u32 = 202;
    let mut script = Script::new();
    script.thread(1, "loop");
    let poll = script.stack(&["main", "run", "epoll_wait"]);
    let work = script.stack(&["main", "run_next", "fetch_price", "recv"]);
    let rest = script.stack(&["main", "take", "futex"]);
    let mut rested = [10; 10];
    for tid in 2..12 {
        script.thread(tid, "executor");
    }
    for number in 0..72_u64 {
        let at = (number % 10) as usize;
        let tid = 2 + at as u32;
        let from = 10 + number * 60;
        let before = 2 + (number + 9) as u32 % 10;
        let gives = script.wait(tid, FUTEX, rested[at], from).stack(rest);
        gives.by(if number == 0 { 1 } else { before }).done();
        let job = script.wait(tid, RECV, from, from + 60).stack(work);
        job.by_softirq().done();
        rested[at] = from + 60;
        let polled = script.wait(1, 232, from, from + 60).epoll(7).stack(poll);
        polled.by(tid).done();
        let read = (from + 60).saturating_sub(720).max(10);
        let request = script.request(number + 1).port(PORT).epoll(7).ready(read);
        request.read(read, 1).answered(from + 60, 1);
    }
    for (tid, rested) in (2..).zip(rested) {
        let rests = script.wait(tid, FUTEX, rested, 4_400).stack(rest);
        rests.by(1).done();
    }
    script.ends(4_400);
    script
}

#[test]
fn one_queue_before_many_threads_is_no_lack_of_threads() {
    let found = detect(&Facts::of(&ordered().model()));
    let [finding] = &found[..] else {
        panic!("expected one finding, got {found:#?}");
    };
    assert!(
        finding
            .title
            .ends_with("which sleep one at a time, though 10 threads do them"),
        "{}",
        finding.title
    );
    assert!(
        finding.fix.contains("more threads would not help"),
        "{}",
        finding.fix
    );
    assert_eq!(finding.subject["at_a_time"], json!(1));
}

/// Who waits behind jobs did not wait for what they wait for.
#[test]
fn what_jobs_sleep_in_is_not_what_requests_wait_for() {
    let found = crate::find(&Facts::of(&ordered().model()));
    let codes: Vec<&str> = found.iter().map(|finding| finding.code.name()).collect();
    assert_eq!(codes, ["queued-behind"]);
}

/// Eight threads that read a request each, and sleep in this until one of two others ends that.
fn from_threads(in_what: &[&str]) -> Script {
    const FUTEX: u32 = 202;
    let mut script = Script::new();
    script.thread(2, "executor_0").thread(3, "executor_1");
    let rest = script.stack(in_what);
    let work = script.stack(&["main", "job", "fetch_price", "recv"]);
    for client in 0..8 {
        script.thread(11 + client, "client");
    }
    for number in 0..48_u64 {
        let (tid, client) = (2 + (number % 2) as u32, 11 + (number % 8) as u32);
        let from = 10 + number / 2 * 200 + number % 2 * 10;
        let done = from + 200;
        let job = script.wait(tid, RECV, from, done).stack(work);
        job.by_softirq().done();
        let read = done.saturating_sub(800).max(10);
        let waits = script.wait(client, FUTEX, read + 1, done).stack(rest);
        waits.word(0x1000).by(tid).done();
        let request = script.request(number + 1).port(PORT).ready(read);
        request.read(read, client).answered(done + 1, client);
    }
    script.ends(6000);
    script
}

#[test]
fn threads_that_hand_jobs_to_the_same_executor_wait_in_one_queue() {
    let script = from_threads(&["main", "serve", "result", "futex"]);
    let found = detect(&Facts::of(&script.model()));
    let [finding] = &found[..] else {
        panic!("expected one finding, got {found:#?}");
    };
    assert_eq!(finding.subject["workers"], json!([2, 3]));
    let readers = finding.subject["readers"].as_array().map(Vec::len);
    assert_eq!(readers, Some(8));
}

#[test]
fn who_lets_a_lock_go_has_done_nobodys_job() {
    let script = from_threads(&["main", "serve", "pthread_mutex_lock", "__lll_lock_wait"]);
    assert_eq!(detect(&Facts::of(&script.model())), []);
}

/// A loop, thread 1, and one thread that computes for 60 ms for each of eight clients.
fn one_that_computes() -> Script {
    let mut script = Script::new();
    script.thread(1, "loop").thread(2, "archiver");
    let poll = script.stack(&["main", "run", "epoll_wait"]);
    for number in 0..72_u64 {
        let (from, done) = (10 + number * 60, 70 + number * 60);
        let polled = script.wait(1, 232, from, done).epoll(7).stack(poll);
        polled.by(2).done();
        let read = done.saturating_sub(480).max(10);
        let request = script.request(number + 1).port(PORT).epoll(7).ready(read);
        request.read(read, 1).answered(done, 1);
    }
    script.ends(4_400);
    script
}

#[test]
fn a_thread_that_computes_for_all_leaves_cpus_idle_where_there_are_more() {
    let mut script = one_that_computes();
    let found = detect(&Facts::of(&script.model()));
    let [finding] = &found[..] else {
        panic!("expected one finding, got {found:#?}");
    };
    let ends = "behind the jobs of others, which compute in the only thread";
    assert!(finding.title.ends_with(ends), "{}", finding.title);
    assert_eq!(finding.confidence, Confidence::Medium);
    // On its only CPU two would compute half as fast each.
    script.recorded(|recorded| recorded.meta.host.cpus = 1);
    assert_eq!(detect(&Facts::of(&script.model())), []);
}

#[test]
fn a_thread_that_lacks_a_cpu_is_no_lack_of_threads() {
    let found = |on_cpu_ns, runnable_ns| {
        let mut script = one_that_computes();
        script.cpu(&Cpu {
            tgid: TGID,
            tid: 2,
            on_cpu_ns,
            runnable_ns,
            ..Cpu::default()
        });
        detect(&Facts::of(&script.model())).len()
    };
    assert_eq!(found(3_000_000_000, 1_000_000_000), 1);
    assert_eq!(found(1_000_000_000, 3_000_000_000), 0);
}

#[test]
fn an_interpreters_lock_forbids_more_at_a_time() {
    let mut script = one_that_computes();
    let taking = script.stack(&["main", "take_gil", "pthread_cond_timedwait"]);
    let waits = script.wait(2, 202, 4_330, 4_340).stack(taking);
    waits.word(0x2000).by(1).done();
    let found = detect(&Facts::of(&script.model()));
    let [finding] = &found[..] else {
        panic!("expected one finding, got {found:#?}");
    };
    assert!(finding.fix.contains("processes"), "{}", finding.fix);
    assert_eq!(finding.subject.get("replay"), None);
}

/// Two workers with a helper each, which take what they fetch in order. One has four jobs of 200 ms
/// at once, the other one job of so long, at the same time.
fn workers(other_ms: u64) -> Script {
    let mut script = Script::new();
    for (tid, name) in [(1, "main"), (2, "main"), (11, "helper"), (12, "helper")] {
        script.thread_of(tid, tid, name);
    }
    for n in 0..4 {
        let from = 10 + 200 * n;
        let job = script.request(n + 1).of(11).ready(10).read(from, 11);
        job.handed(1).answered(from + 200, 11);
    }
    let job = script.request(9).of(12).ready(10).read(10, 12);
    job.handed(2).answered(10 + other_ms, 12);
    script.ends(1_000);
    script
}

#[test]
fn jobs_that_wait_in_one_worker_while_another_idles() {
    let findings = detect(&Facts::of(&workers(50).model()));
    assert_eq!(findings.len(), 1, "{findings:#?}");
    assert_eq!(
        findings[0].title,
        "3 jobs waited 58 % of their time in one worker that had fetched them ahead, while another \
         worker had nothing to do"
    );
    // 150, 350 and 550 ms.
    assert_eq!(findings[0].saving.at_most_ns, 1_050_000_000);
}

#[test]
fn jobs_that_wait_while_all_workers_are_busy() {
    let findings = detect(&Facts::of(&workers(900).model()));
    assert!(findings.is_empty(), "{findings:#?}");
}

#[test]
fn a_helper_that_has_ended_is_not_idle() {
    let mut script = workers(50);
    script.ends_thread(12, 60);
    let findings = detect(&Facts::of(&script.model()));
    assert!(findings.is_empty(), "{findings:#?}");
}

/// Streams of a loop keep no thread of its executor.
#[test]
fn streams_of_a_loop_wait_for_no_thread() {
    let mut script = executor();
    for stream in 0..5 {
        script
            .request(100 + stream)
            .port(PORT)
            .epoll(7)
            .ready(10)
            .read(10, 1)
            .goes_on_until(5900)
            .answered(12, 1);
    }
    let found = detect(&Facts::of(&script.model()));
    let [finding] = &found[..] else {
        panic!("expected one finding, got {found:?}");
    };
    let what = "behind the jobs of others, which sleep in the only 2 threads";
    assert!(finding.title.ends_with(what), "{}", finding.title);
}

/// Two threads with a stream each, which its client ends after 900 ms while its thread sleeps for
/// another 100, and short calls that wait for one of them to end.
#[test]
fn streams_that_go_on_keep_their_threads() {
    let mut script = Script::new();
    script.thread(1, "reader").thread(2, "one").thread(3, "two");
    let work = script.stack(&["main", "send_events", "sleep"]);
    for round in 0..4_u64 {
        let from = 10 + round * 1000;
        for tid in 2..4 {
            script
                .request(round * 10 + u64::from(tid))
                .port(PORT)
                .ready(from)
                .read(from, 1)
                .goes_on_until(from + 900)
                .answered(from + 5, tid);
            for sleep in 0..4 {
                let from = from + 5 + sleep * 248;
                script.wait(tid, 230, from, from + 248).stack(work).done();
            }
        }
        for call in 0..4 {
            let read = from + 100 + call;
            script
                .request(round * 10 + 4 + call)
                .port(PORT)
                .ready(read)
                .read(read, 1)
                .answered(from + 998 + call / 2, 2 + (call % 2) as u32);
        }
    }
    script.ends(4100);
    let found = detect(&Facts::of(&script.model()));
    let [finding] = &found[..] else {
        panic!("expected one finding, got {found:?}");
    };
    let what = "behind the jobs of others, which are streams that go on, in the only 2 threads";
    assert!(finding.title.ends_with(what), "{}", finding.title);
    // Each waited for the end of the sleep, which is 97 ms after that of the stream.
    let each = &finding.saving.each_at_most_ns;
    assert_eq!(each.len(), 16);
    assert!(each.iter().all(|ns| *ns >= 890_000_000), "{each:?}");
}

/// Two clients, and a worker for each: no job waits for another one. But the loop is late with its
/// answers, and has a request more than there are jobs for as long.
#[test]
fn a_loop_that_is_late_with_answers_has_no_queue() {
    const READ: u32 = 0;
    let mut script = Script::new();
    script.thread(1, "loop").thread(2, "one").thread(3, "two");
    let poll = script.stack(&["main", "run", "epoll_wait"]);
    let rest = script.stack(&["main", "next_job", "wait"]);
    let work = script.stack(&["main", "job", "fetch_price", "read"]);
    let mut ends = Vec::new();
    for number in 0..24_u64 {
        let worker = 2 + (number % 2) as u32;
        let read = 10 + number / 2 * 230 + number % 2 * 70;
        script
            .wait(worker, READ, read + 5, read + 205)
            .stack(work)
            .by_softirq()
            .done()
            .wait(worker, 202, read + 206, read + 234)
            .stack(rest)
            .by(1)
            .done();
        script
            .request(number + 1)
            .port(PORT)
            .epoll(7)
            .ready(read)
            .read(read, 1)
            .answered(read + 220, 1);
        ends.push((read + 205, worker));
    }
    let mut polled = 10;
    for (end, worker) in ends {
        script
            .wait(1, 232, polled, end)
            .epoll(7)
            .stack(poll)
            .by(worker)
            .done();
        polled = end + 1;
    }
    script.ends(4000);
    assert_eq!(detect(&Facts::of(&script.model())), []);
}
