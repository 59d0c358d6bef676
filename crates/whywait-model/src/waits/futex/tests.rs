//! Sleeps on futexes, and what they must and must not be taken for.

use super::*;
use crate::script::Script;

fn sleep(tid: u32, by: u32) -> Wait {
    Wait {
        tid,
        tgid: 1,
        syscall: Some(202),
        args: [0x1000, 128, 0],
        wake_context: WakeContext::Task,
        waker_tid: by,
        ..Wait::default()
    }
}

fn seen(sleeps: &[Wait]) -> Seen {
    let mut seen = Seen::default();
    for wait in sleeps {
        seen.add(wait, 10_000_000, false, true);
    }
    seen
}

#[test]
fn the_function_that_takes_a_mutex_says_so() {
    let (class, reasons) = classify(&seen(&[sleep(1, 2)]), Some(Primitive::Mutex));
    assert_eq!(class, WaitClass::Lock);
    assert_eq!(reasons[0], "the sleeper was taking a mutex");
}

#[test]
fn timeouts_make_a_timer_however_contended_it_looks() {
    let mut wait = sleep(1, 0);
    wait.wake_context = WakeContext::Hardirq;
    wait.timeout = true;
    wait.args[2] = 2;
    let sleeps = vec![wait; 18];
    assert_eq!(classify(&seen(&sleeps), None).0, WaitClass::Timer);
    assert_eq!(
        classify(&seen(&sleeps), Some(Primitive::Condvar)).0,
        WaitClass::Timer
    );
    assert_eq!(
        classify(&seen(&sleeps), Some(Primitive::Gil)).0,
        WaitClass::Lock,
        "CPython asks for its lock again and again"
    );
}

#[test]
fn the_words_of_an_interpreters_lock_are_one() {
    let mut script = Script::new();
    let at_condvar = [
        "main",
        "_PyEval_EvalFrameDefault",
        "take_gil",
        "___pthread_cond_timedwait64",
        "__futex_abstimed_wait_common64",
    ];
    let at_mutex = [
        "main",
        "PyEval_RestoreThread",
        "take_gil",
        "___pthread_mutex_lock",
        "__GI___lll_lock_wait",
    ];
    let again_in_condvar = [
        "main",
        "PyEval_RestoreThread",
        "take_gil",
        "___pthread_cond_timedwait64",
        "__pthread_mutex_cond_lock",
        "__GI___lll_lock_wait",
    ];
    let stacks =
        [at_condvar.as_slice(), &at_mutex, &again_in_condvar].map(|calls| script.stack(calls));
    let [condvar, mutex, again] = stacks;
    // Two words of the condition variable, and the mutex behind it.
    let words = [
        (condvar, 0x16f0),
        (condvar, 0x16f4),
        (mutex, 0x16f8),
        (again, 0x16f8),
    ];
    for (at, (stack, word)) in words.into_iter().enumerate() {
        let (tid, at) = (at as u32 + 1, at as u64 * 10);
        script
            .thread(tid, "python3")
            .wait(tid, 202, at, at + 5)
            .stack(stack)
            .word(word)
            .by(1)
            .done();
    }
    let model = script.ends(100).model();
    let locks: Vec<_> = model
        .objects
        .iter()
        .filter(|(key, _)| key.object.primitive() == Some(Primitive::Gil))
        .collect();
    assert_eq!(locks.len(), 1, "{locks:#?}");
    assert_eq!(locks[0].1.seen.count, 4);
}

#[test]
fn without_a_stack_those_who_wait_and_wake_in_turns_share_a_lock() {
    let mut sleeps = vec![sleep(1, 2), sleep(2, 3), sleep(3, 1)];
    for wait in &mut sleeps {
        wait.args[2] = 2;
    }
    assert_eq!(classify(&seen(&sleeps), None).0, WaitClass::Lock);
}

#[test]
fn the_owner_beside_the_word_makes_it_a_lock() {
    let mut wait = sleep(1, 2);
    wait.args[2] = 2;
    wait.owner_tid = 2;
    assert_eq!(classify(&seen(&[wait]), None).0, WaitClass::Lock);
}

#[test]
fn a_bare_word_with_one_waiter_and_one_waker_is_unknown() {
    let (class, _) = classify(&seen(&[sleep(1, 2), sleep(1, 2)]), None);
    assert_eq!(class, WaitClass::Unknown);
    let mut two = sleep(1, 2);
    two.args[2] = 2;
    let (class, _) = classify(&seen(&[two]), None);
    assert_eq!(
        class,
        WaitClass::Unknown,
        "a value of 2 alone is no evidence"
    );
}

#[test]
fn a_condition_variable_is_no_lock_even_between_equals() {
    let sleeps = vec![sleep(1, 2), sleep(2, 1)];
    let (class, _) = classify(&seen(&sleeps), Some(Primitive::Condvar));
    assert_eq!(class, WaitClass::Unknown);
}

#[test]
fn a_thread_that_serves_waits_for_a_result() {
    let mut seen = Seen::default();
    for _ in 0..5 {
        seen.add(&sleep(1, 2), 10_000_000, true, true);
    }
    assert_eq!(classify(&seen, Some(Primitive::Park)).0, WaitClass::Result);
    // One that serves nobody, and after which others get their answers, idles.
    let mut idle = Seen::default();
    for _ in 0..5 {
        idle.add(&sleep(2, 1), 10_000_000, false, true);
    }
    idle.led_to_answers = 5;
    assert_eq!(classify(&idle, Some(Primitive::Park)).0, WaitClass::Idle);
}

#[test]
fn parked_workers_of_an_event_loop_idle_also_while_requests_are_open() {
    let mut seen = Seen::default();
    for _ in 0..5 {
        seen.add(&sleep(1, 2), 10_000_000, true, true);
    }
    seen.parked_in_pool = 5;
    assert_eq!(classify(&seen, Some(Primitive::Park)).0, WaitClass::Idle);
}

#[test]
fn two_that_hand_work_to_and_fro_on_a_bare_word_hold_no_lock() {
    let sleeps = vec![sleep(1, 2), sleep(2, 1), sleep(1, 2), sleep(2, 1)];
    assert_eq!(classify(&seen(&sleeps), None).0, WaitClass::Unknown);
}
