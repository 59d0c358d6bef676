//! Scripts of events that must, or must not, be `unfinished-wait`.

use whywait_model::script::Script;

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
