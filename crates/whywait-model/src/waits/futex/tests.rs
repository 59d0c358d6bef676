//! Sleeps on futexes, and what they must and must not be taken for.

use whywait_events::ModuleKind;

use super::*;
use crate::maps::HashSet;
use crate::script::Script;
use crate::stacks::{Label, StackText};

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

/// A thread of the target ended it after 10 ms.
const ENDED: Ended = Ended {
    slept_ns: 10_000_000,
    serving: false,
    by_target: true,
    by_peer: false,
    letting_go: None,
};
/// The same, and it had a request in hand.
const SERVING: Ended = Ended {
    serving: true,
    ..ENDED
};

fn seen(sleeps: &[Wait]) -> Seen {
    seen_of(sleeps, &ENDED)
}

fn seen_of(sleeps: &[Wait], ended: &Ended) -> Seen {
    let mut seen = Seen::default();
    for wait in sleeps {
        seen.add(wait, ended);
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
    let serving = seen_of(&vec![sleep(1, 2); 5], &SERVING);
    assert_eq!(
        classify(&serving, Some(Primitive::Park)).0,
        WaitClass::Result
    );
    // One that serves nobody, and after which others get their answers, idles.
    let mut idle = seen(&vec![sleep(2, 1); 5]);
    idle.led_to_answers = 5;
    assert_eq!(classify(&idle, Some(Primitive::Park)).0, WaitClass::Idle);
}

#[test]
fn parked_workers_of_an_event_loop_idle_also_while_requests_are_open() {
    let mut seen = seen_of(&vec![sleep(1, 2); 5], &SERVING);
    seen.parked_in_pool = 5;
    assert_eq!(classify(&seen, Some(Primitive::Park)).0, WaitClass::Idle);
}

#[test]
fn two_that_hand_work_to_and_fro_on_a_bare_word_hold_no_lock() {
    let sleeps = vec![sleep(1, 2), sleep(2, 1), sleep(1, 2), sleep(2, 1)];
    assert_eq!(classify(&seen(&sleeps), None).0, WaitClass::Unknown);
}

#[test]
fn the_functions_of_runtimes_say_what_their_condition_variables_are_for() {
    let mut script = Script::new();
    let condvar = ["___pthread_cond_wait", "__futex_abstimed_wait_common64"];
    let mut at = |calls: &[&str]| script.stack(&[calls, &condvar].concat());
    let cases = [
        // JDK 17, JDK 25, and after a wait() for which somebody called notify().
        (
            at(&[
                "ObjectMonitor::enter(JavaThread*)",
                "ObjectMonitor::EnterI(JavaThread*)",
            ]),
            Primitive::Monitor,
        ),
        (
            at(&[
                "ObjectMonitor::enter_internal(JavaThread*)",
                "PlatformEvent::park()",
            ]),
            Primitive::Monitor,
        ),
        (
            at(&[
                "ObjectMonitor::wait(long, bool, JavaThread*)",
                "ObjectMonitor::ReenterI(JavaThread*, ObjectWaiter*)",
                "os::PlatformEvent::park()",
            ]),
            Primitive::Monitor,
        ),
        // Waits for notify(), also with a monitor around it.
        (
            at(&[
                "ObjectMonitor::enter(JavaThread*)",
                "JVM_MonitorWait",
                "ObjectMonitor::wait(long, bool, JavaThread*)",
                "os::PlatformEvent::park()",
            ]),
            Primitive::Condvar,
        ),
        (
            at(&["Unsafe_Park", "Parker::park(bool, long)"]),
            Primitive::JavaPark,
        ),
        (
            at(&[
                "JVM_Sleep",
                "JavaThread::sleep(long)",
                "os::PlatformEvent::park(long)",
            ]),
            Primitive::Sleep,
        ),
        (
            at(&[
                "MDL_context::acquire_lock(MDL_request*)",
                "MDL_wait::timed_wait(timespec*)",
            ]),
            Primitive::Metadata,
        ),
        (
            at(&[
                "Item_func_get_lock::val_int()",
                "MDL_context::acquire_lock(MDL_request*, double)",
                "MDL_wait::timed_wait(timespec*)",
            ]),
            Primitive::Named,
        ),
        (
            at(&["mysql_lock_tables(THD*)", "thr_multi_lock"]),
            Primitive::WholeTable,
        ),
        (
            at(&[
                "handler::ha_index_read_map(unsigned char*)",
                "lock_wait(que_thr_t*)",
            ]),
            Primitive::Row,
        ),
        // The engine's functions have names, and this one is no lock's.
        (
            at(&[
                "handler::ha_index_read_map(unsigned char*)",
                "buf_LRU_get_free_block()",
            ]),
            Primitive::Condvar,
        ),
        (
            at(&["thread_sched_to_running", "rb_native_cond_wait"]),
            Primitive::Gvl,
        ),
        (
            at(&[
                "thread_sched_to_waiting_until_wakeup",
                "thread_sched_wait_running_turn",
                "rb_native_cond_wait",
            ]),
            Primitive::Condvar,
        ),
        (at(&["app::next_job"]), Primitive::Condvar),
        (
            at(&["app::next_job", "<std::sync::mpsc::Receiver<Job>>::recv"]),
            Primitive::Channel,
        ),
    ];
    let model = script.model();
    for (stack, wanted) in cases {
        let text = model.stacks.get(stack).expect("the stack is there");
        let found = primitive(text, model.stacks.gvl_frames());
        assert_eq!(found, Some(wanted), "{:?}", text.names());
    }
}

const LIBRUBY: &str = "/usr/lib/libruby-3.1.so.3.1.2";

/// Stacks of a Ruby without names: a thread that wants the lock after a system call, another one
/// that does after something else, and one that waits for a queue.
fn stripped_ruby(script: &mut Script, slices: bool) -> [StackId; 3] {
    let region = "rb_thread_io_blocking_region";
    let wait = ["rb_native_cond_wait", "___pthread_cond_wait"];
    let mut at = |calls: &[&str]| script.stack_in(LIBRUBY, calls);
    let taking = at(&[region, "libruby.so+0x20f772", wait[0], wait[1]]);
    if slices {
        at(&[
            region,
            "libruby.so+0x20f7b9",
            "libruby.so+0x20a2ac",
            "___pthread_cond_timedwait64",
        ]);
    }
    let running = at(&[
        "rb_vm_exec",
        "libruby.so+0x20feed",
        "libruby.so+0x20f772",
        wait[0],
        wait[1],
    ]);
    let queueing = at(&[
        "rb_vm_exec",
        "libruby.so+0x20fee0",
        "libruby.so+0x20f001",
        wait[0],
        wait[1],
    ]);
    [taking, running, queueing]
}

#[test]
fn where_a_ruby_without_names_takes_its_lock_is_learnt_from_its_system_calls() {
    for slices in [true, false] {
        let mut script = Script::new();
        let stacks = stripped_ruby(&mut script, slices);
        let model = script.model();
        let found = stacks.map(|stack| {
            let text = model.stacks.get(stack).expect("the stack is there");
            primitive(text, model.stacks.gvl_frames())
        });
        let taking = Some(if slices {
            Primitive::Gvl
        } else {
            Primitive::Condvar
        });
        assert_eq!(
            found,
            [taking, taking, Some(Primitive::Condvar)],
            "time slices: {slices}"
        );
    }
}

#[test]
fn the_waits_for_rubys_lock_are_one_whatever_their_words() {
    let mut script = Script::new();
    let [taking, running, queueing] = stripped_ruby(&mut script, true);
    for (tid, stack) in [(1, taking), (2, running), (3, queueing)] {
        script
            .thread(tid, "worker")
            .wait(tid, 202, 10, 20)
            .stack(stack)
            .word(u64::from(tid) * 0x100)
            .by(4)
            .done();
    }
    let model = script.ends(100).model();
    let waits = |primitive| {
        let mut all = model.objects.iter();
        all.find(|(key, _)| key.object.primitive() == Some(primitive))
            .map(|(_, sums)| (sums.seen.count, sums.class))
    };
    assert_eq!(waits(Primitive::Gvl), Some((2, Some(WaitClass::Lock))));
    let queue = waits(Primitive::Condvar).expect("a queue is no lock");
    assert_eq!((queue.0, queue.1 == Some(WaitClass::Lock)), (1, false));
}

#[test]
fn who_lets_go_of_a_mutex_of_musl_ends_waits_for_it() {
    let unlocks = |sleeps: &[Wait]| {
        let ended = Ended {
            letting_go: Some(false),
            ..SERVING
        };
        classify(&seen_of(sleeps, &ended), None).0
    };
    let locked = |tid, by| Wait {
        args: [0x1000, 128, 0x8000_0010],
        ..sleep(tid, by)
    };
    assert_eq!(unlocks(&[locked(1, 2), locked(1, 2)]), WaitClass::Lock);
    let bare = |tid, by| Wait {
        args: [0x1000, 128, 7],
        ..sleep(tid, by)
    };
    assert_eq!(unlocks(&[bare(1, 2), bare(2, 1)]), WaitClass::Lock);
    // musl moves those who wait for a condition variable to the mutex; each sleeps on its own word.
    assert_ne!(unlocks(&[bare(1, 2), bare(1, 2)]), WaitClass::Lock);
    // Only some of them.
    let mut some = seen(&vec![sleep(1, 2); 8]);
    some.released = 4;
    assert_ne!(classify(&some, None).0, WaitClass::Lock);
}

#[test]
fn who_signals_a_condition_variable_lets_go_of_nothing() {
    let mut script = Script::new();
    let cases = [
        (vec!["pthread_mutex_unlock"], Some(false)),
        (
            vec!["app::push", "___pthread_cond_signal", "futex_wake"],
            None,
        ),
        (
            vec!["app::push", "pthread_cond_signal", "__pthread_mutex_unlock"],
            Some(false),
        ),
        (vec!["pthread_mutex_unlock", "pthread_cond_broadcast"], None),
        (
            vec![
                "InterpreterRuntime::monitorexit(BasicObjectLock*)",
                "___pthread_cond_signal",
            ],
            Some(true),
        ),
        (vec!["app::handle", "app::finish"], None),
    ];
    for (calls, wanted) in cases {
        let stack = script.stack(&calls);
        let model = script.model();
        let text = model.stacks.get(stack).expect("the stack is there");
        assert_eq!(release(text), wanted, "{calls:?}");
    }
}

#[test]
fn a_request_whose_thread_another_one_that_serves_wakes_may_wait_for_a_lock() {
    let sleeps = vec![sleep(1, 2); 5];
    let by_peer = Ended {
        by_peer: true,
        ..SERVING
    };
    for primitive in [Primitive::JavaPark, Primitive::Condvar] {
        let (class, _) = classify(&seen_of(&sleeps, &by_peer), Some(primitive));
        assert_eq!(class, WaitClass::Unknown, "{primitive:?}");
        let (class, _) = classify(&seen_of(&sleeps, &SERVING), Some(primitive));
        assert_eq!(class, WaitClass::Result, "{primitive:?}");
    }
}

#[test]
fn a_wait_that_goes_on_after_its_timeout_is_no_timer() {
    let mut wait = sleep(1, 0);
    wait.wake_context = WakeContext::Hardirq;
    wait.timeout = true;
    let sleeps = vec![wait; 18];
    for primitive in [Primitive::Metadata, Primitive::Gvl, Primitive::Monitor] {
        let (class, _) = classify(&seen(&sleeps), Some(primitive));
        assert_eq!(class, WaitClass::Lock, "{primitive:?}");
    }
    let (class, _) = classify(&seen(&sleeps), Some(Primitive::JavaPark));
    assert_eq!(class, WaitClass::Timer);
}

/// A thread of Python that sleeps in `Lock.acquire`, called by a function of this file.
fn acquires_in(file: &str) -> Option<Primitive> {
    acquires_for("handle", file)
}

/// The same, where that function's caller in this file is another one.
fn acquires_for(caller: &str, file: &str) -> Option<Primitive> {
    let label = |name: &str, file: &str, kind| Label {
        name: name.into(),
        named: true,
        file: file.into(),
        line: 1,
        module: "/usr/bin/python3".into(),
        kind,
    };
    let stack = StackText {
        labels: vec![
            label("__new_sem_wait_slow64", "", ModuleKind::Elf),
            label("PyThread_acquire_lock_timed", "", ModuleKind::Elf),
            label("lock_PyThread_acquire_lock", "", ModuleKind::Elf),
            label("acquire_with_timeout", file, ModuleKind::Python),
            label(caller, file, ModuleKind::Python),
            label("run", "/usr/lib/python3/threading.py", ModuleKind::Python),
        ],
        truncated: false,
    };
    primitive(&stack, &HashSet::default())
}

#[test]
fn a_lock_that_python_code_takes_is_a_lock() {
    assert_eq!(acquires_in("/srv/app.py"), Some(Primitive::PythonLock));
    // A condition, a queue, the end of a thread.
    let waits = acquires_in("/usr/lib/python3/threading.py");
    assert_eq!(waits, Some(Primitive::Semaphore));
    assert_eq!(acquires_in(""), Some(Primitive::Semaphore), "not known");
    // Another library's condition.
    let waits = acquires_for("_Condition.wait", "/srv/lib/_threading.py");
    assert_eq!(waits, Some(Primitive::Semaphore));
    let awaits = acquires_for("await_turn", "/srv/app.py");
    assert_eq!(awaits, Some(Primitive::PythonLock));
}
