//! Scripts of events that must, or must not, be `unfinished-wait`.

use whywait_events::{TaskLook, TaskState};
use whywait_model::script::{Script, TGID, ms};

use super::*;

const FUTEX: u32 = 202;

/// A healthy request, and one whose thread goes to sleep and is never woken.
fn hanging() -> Script {
    let mut script = Script::new();
    let waiting = script.stack(&["main", "app::wait_for_result", "pthread_cond_wait"]);
    script.thread(1, "conn-0").thread(2, "worker");
    script.request(1).ready(0).read(0, 1).answered(2, 1);
    script.request(2).ready(10).read(10, 1).unanswered();
    script
        .wait(1, FUTEX, 11, 11)
        .stack(waiting)
        .word(0x1000)
        .forever()
        .done();
    // The worker waits for its next job, as it should.
    script
        .wait(2, FUTEX, 9, 9)
        .stack(waiting)
        .word(0x2000)
        .forever()
        .done();
    script
}

#[test]
fn a_request_whose_thread_nobody_wakes_hangs() {
    let findings = detect(&Facts::of(&hanging().ends(2000).model()));
    assert_eq!(findings.len(), 1, "only the one that serves: {findings:#?}");
    let cause = findings[0].cause.as_ref().expect("the thread that waits");
    assert_eq!(cause.tid, 1);
    assert!(
        cause
            .stack
            .iter()
            .any(|name| name == "app::wait_for_result")
    );
    assert_eq!(findings[0].confidence, Confidence::Medium);
}

#[test]
fn one_that_only_began_to_wait_may_be_answered_soon() {
    assert_eq!(detect(&Facts::of(&hanging().ends(500).model())), []);
}

#[test]
fn where_answers_take_long_a_wait_is_no_hang() {
    let mut script = hanging();
    script.thread(3, "conn-1");
    script.request(3).ready(0).read(0, 3).answered(1500, 3);
    assert_eq!(detect(&Facts::of(&script.ends(2000).model())), []);
}

#[test]
fn a_timeout_ends_it() {
    let mut script = Script::new();
    script.thread(1, "conn-0");
    script.request(2).ready(10).read(10, 1).unanswered();
    script
        .wait(1, FUTEX, 11, 11)
        .word(0x1000)
        .timeout()
        .forever()
        .done();
    assert_eq!(detect(&Facts::of(&script.ends(5000).model())), []);
}

#[test]
fn a_thread_that_sleeps_where_it_idles_waits_for_work() {
    let mut script = Script::new();
    let idling = script.stack(&["main", "app::run_worker", "pthread_cond_wait"]);
    script.thread(1, "exec-1").thread(2, "poller");
    // It idles between two requests, and again when a client has sent only the half of the next
    // one.
    script.request(1).ready(0).read(0, 1).answered(2, 1);
    script
        .wait(1, FUTEX, 3, 8)
        .stack(idling)
        .word(0x1000)
        .by(2)
        .done();
    script.request(2).ready(8).read(9, 1).unanswered();
    script
        .wait(1, FUTEX, 11, 11)
        .stack(idling)
        .word(0x1000)
        .forever()
        .done();
    assert_eq!(detect(&Facts::of(&script.ends(2000).model())), []);
}

#[test]
fn a_short_sleep_there_may_have_been_for_a_request_that_has_no_row() {
    let mut script = hanging();
    let waiting = script.stack(&["main", "app::wait_for_result", "pthread_cond_wait"]);
    script
        .wait(1, FUTEX, 5, 5)
        .stack(waiting)
        .word(0x1000)
        .by(2)
        .done();
    assert_eq!(detect(&Facts::of(&script.ends(2000).model())).len(), 1);
}

#[test]
fn who_waited_there_for_earlier_requests_does_not_idle_there() {
    let mut script = hanging();
    let waiting = script.stack(&["main", "app::wait_for_result", "pthread_cond_wait"]);
    script.thread(3, "conn-1");
    script.request(3).ready(0).read(0, 3).answered(20, 3);
    script
        .wait(3, FUTEX, 1, 19)
        .stack(waiting)
        .word(0x3000)
        .by(2)
        .done();
    script.request(4).ready(21).read(21, 3).unanswered();
    script
        .wait(3, FUTEX, 22, 22)
        .stack(waiting)
        .word(0x3000)
        .forever()
        .done();
    let findings = detect(&Facts::of(&script.ends(2000).model()));
    assert_eq!(findings.len(), 2, "{findings:#?}");
}

/// Two goroutines that wait for locks, one in each function, and are looked at until then.
fn transfers(until_ms: u64) -> Script {
    let mut script = Script::new();
    script.thread(10, "server");
    let lock = ["main.transfer", "sync.(*Mutex).lockSlow", "runtime.gopark"];
    let places = ["main.transferAB", "main.transferBA"].map(|caller| {
        let calls: Vec<&str> = std::iter::once(caller).chain(lock).collect();
        script.stack(&calls)
    });
    for socket in [1, 2] {
        script.request(socket).ready(5).read(5, 10).unanswered();
        for at in (10..until_ms).step_by(500) {
            script.task_look(&TaskLook {
                at_ns: ms(at),
                read_ns: ms(at),
                tgid: TGID,
                task: socket as u32,
                socket,
                seq: 1,
                state: TaskState::Waiting,
                stack: places[socket as usize - 1],
                ..TaskLook::default()
            });
        }
    }
    script.ends(until_ms);
    script
}

#[test]
fn goroutines_that_wait_for_locks_to_the_end_hang() {
    let findings = detect(&Facts::of(&transfers(2000).model()));
    let [finding] = &findings[..] else {
        panic!("one is expected: {findings:#?}");
    };
    let what = "2 tasks wait in sync.Mutex.Lock in main.transfer to the end";
    assert!(finding.title.contains(what), "{}", finding.title);
    assert_eq!(finding.saving.requests, 2);
    assert_eq!(detect(&Facts::of(&transfers(900).model())), []);
}
