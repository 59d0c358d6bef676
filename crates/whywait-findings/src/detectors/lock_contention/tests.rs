//! Scripts of events that must, or must not, be `lock-contention`.

use whywait_events::{StackId, TaskLook, TaskState};
use whywait_model::script::{Script, TGID};

use super::*;
use crate::finding::SavingKind;
use serde_json::json;

const FUTEX: u32 = 202;
const FSYNC: u32 = 74;

/// Where a thread waits for a mutex.
fn locking(script: &mut Script) -> StackId {
    script.stack(&[
        "main",
        "app::handle",
        "pthread_mutex_lock",
        "__lll_lock_wait",
    ])
}

/// Four handlers write a log, each with the mutex in its hands while it syncs: 20 ms each, one
/// after another.
fn convoy(across: bool) -> Script {
    convoy_at(across, locking)
}

/// … or with the lock that is waited for in this stack.
fn convoy_at(across: bool, locking: fn(&mut Script) -> StackId) -> Script {
    let mut script = Script::new();
    let locking = locking(&mut script);
    let syncing = script.stack(&["main", "app::handle", "app::append_log", "fsync"]);
    for tid in 1..=4 {
        script.thread(tid, "handler");
    }
    for tid in 1..=4u32 {
        let from = u64::from(tid - 1) * 20;
        if tid > 1 {
            script
                .wait(tid, FUTEX, 1, from + 1)
                .stack(locking)
                .word(0x1000)
                .by(tid - 1)
                .done();
        }
        if across {
            script
                .wait(tid, FSYNC, from + 2, from + 20)
                .stack(syncing)
                .done();
        } else {
            script.burns(tid, syncing, from + 2, from + 20);
        }
        script
            .request(u64::from(tid))
            .ready(0)
            .read(0, tid)
            .answered(from + 22, tid);
    }
    script.ends(200);
    script
}

#[test]
fn a_lock_that_is_held_across_a_sync_is_a_convoy() {
    let findings = detect(&Facts::of(&convoy(true).model()));
    assert_eq!(findings.len(), 1, "{findings:#?}");
    let finding = &findings[0];
    assert_eq!(finding.severity, Severity::Warning);
    assert_eq!(finding.subject["across"], json!(true));
    assert_eq!(finding.subject["address"], json!("0x1000"));
    assert_eq!(finding.saving.requests, 3, "the first one did not wait");
    assert_eq!(
        finding.saving.each_at_most_ns,
        [60_000_000, 40_000_000, 20_000_000]
    );
    let cause = finding.cause.as_ref().expect("somebody held it");
    assert!(
        cause.stack.iter().any(|name| name == "app::append_log"),
        "{cause:?}"
    );
    assert!(cause.doing.contains("fsync"), "{}", cause.doing);
}

#[test]
fn a_lock_whose_holders_wait_for_another_one_is_part_of_that() {
    // Whoever has the lock of the log waits for the lock that thread 9 has, or computes.
    let found = |waits_inside: bool| {
        let mut script = Script::new();
        let locking = locking(&mut script);
        let computing = script.stack(&["main", "app::compute"]);
        script.thread(9, "other");
        for tid in 1..=4u32 {
            script.thread(tid, "handler");
            let from = u64::from(tid - 1) * 20;
            if tid > 1 {
                let outer = script.wait(tid, FUTEX, 1, from + 1).stack(locking);
                outer.word(0x1000).by(tid - 1).done();
            }
            if waits_inside {
                let inner = script.wait(tid, FUTEX, from + 2, from + 20).stack(locking);
                inner.word(0x2000).by(9).done();
                script.burns(9, computing, from + 2, from + 20);
            } else {
                script.burns(tid, computing, from + 2, from + 20);
            }
            let request = script.request(u64::from(tid)).ready(0).read(0, tid);
            request.answered(from + 22, tid);
        }
        script.ends(200);
        detect(&Facts::of(&script.model()))
    };
    for (waits_inside, address) in [(true, "0x2000"), (false, "0x1000")] {
        let findings = found(waits_inside);
        assert_eq!(findings.len(), 1, "{findings:#?}");
        assert_eq!(findings[0].subject["address"], json!(address));
        let texts: Vec<_> = findings[0].evidence.iter().map(|one| &one.text).collect();
        let spreads = texts.iter().any(|text| text.contains("how it spreads"));
        assert_eq!(spreads, waits_inside, "{texts:?}");
    }
}

/// Of 120 ms at a lock each.
#[test]
fn a_small_part_of_a_request_is_what_locks_are_for() {
    let found = |latency: u64| {
        let mut script = Script::new();
        let locking = locking(&mut script);
        script.thread(1, "handler").thread(2, "other");
        for n in 0..3 {
            let from = n * 3_000;
            script
                .wait(1, FUTEX, from + 1, from + 121)
                .stack(locking)
                .word(0x1000)
                .by(2)
                .done();
            let request = script.request(1).ready(from).read(from, 1);
            request.answered(from + latency, 1);
        }
        script.ends(10_000);
        detect(&Facts::of(&script.model())).len()
    };
    assert_eq!(found(600), 1);
    assert_eq!(found(2_900), 0);
}

#[test]
fn of_those_who_read_under_a_lock_only_the_last_one_shows() {
    // A handler waits in this function of a lock that two other threads have, at times; the last
    // one lets go of it in another one.
    let found_at = |function: &str, letting_go: &str| {
        let mut script = Script::new();
        let locking = script.stack(&["main", "app::handle", function]);
        let unlocking = script.stack(&["main", "app::stats", letting_go]);
        script.thread(1, "handler").thread(2, "stats");
        let sleeping = script.stack(&["main", "app::stats", "sleep"]);
        for n in 0..3 {
            let from = n * 100;
            script
                .wait(1, FUTEX, from + 1, from + 60)
                .stack(locking)
                .word(0x1000)
                .by(2)
                .in_its(unlocking)
                .done();
            script.sleeps(2, sleeping, from + 2, from + 59);
            script
                .request(1)
                .ready(from)
                .read(from, 1)
                .answered(from + 62, 1);
        }
        script.ends(400);
        let findings = detect(&Facts::of(&script.model()));
        assert_eq!(findings.len(), 1, "{findings:#?}");
        (findings[0].title.clone(), findings[0].cause.is_some())
    };
    let (title, caused) = found_at("pthread_rwlock_rdlock", "pthread_rwlock_unlock");
    assert!(
        title.contains("stats (2) held for up to") && caused,
        "who waits to read waits for one that writes: {title}"
    );
    let exclusive = "parking_lot::raw_rwlock::RawRwLock";
    let of_std = "std::sys::sync::rwlock::futex::RwLock";
    // As Rust mangled names, and as it does now.
    let ways =
        |of: &str, function: &str| [format!("{of}::{function}"), format!("<{of}>::{function}")];
    let to_write = [
        [
            "pthread_rwlock_wrlock".to_owned(),
            "pthread_rwlock_clockwrlock".to_owned(),
        ],
        ways(exclusive, "lock_exclusive_slow"),
        ways(of_std, "write_contended"),
    ];
    for function in to_write.concat() {
        let (title, caused) = found_at(&function, "app::unlock");
        assert!(
            title.ends_with("for a read-write lock") && !caused,
            "several may have read while it waited in {function}: {title}"
        );
    }
    let written = [
        ways(exclusive, "unlock_exclusive_slow"),
        ways(of_std, "write_unlock"),
        [
            "drop_in_place<std::sync::RwLockWriteGuard<T>>".to_owned(),
            "<std::sync::RwLockWriteGuard<T>>::drop".to_owned(),
        ],
    ];
    for function in written.concat() {
        let (title, caused) = found_at("pthread_rwlock_wrlock", &function);
        assert!(
            title.contains("stats (2) held for up to") && caused,
            "who lets go in {function} has written: {title}"
        );
    }
}

#[test]
fn who_got_a_lock_to_write_held_it_alone() {
    let to_write = |script: &mut Script| script.stack(&["main", "pthread_rwlock_wrlock"]);
    let findings = detect(&Facts::of(&convoy_at(true, to_write).model()));
    assert_eq!(findings.len(), 1, "{findings:#?}");
    assert!(
        findings[0].title.contains("held for up to"),
        "{}",
        findings[0].title
    );
}

#[test]
fn who_takes_a_free_lock_had_not_got_it_while_others_had() {
    let mut script = Script::new();
    let locking = locking(&mut script);
    let working = script.stack(&["main", "app::handle", "app::append_log"]);
    let receiving = script.stack(&["main", "app::converse", "recv"]);
    for tid in 1..=5 {
        script.thread(tid, "handler");
    }
    let mut waits = |tid: u32, from: u64, to: u64, by: u32| {
        script
            .wait(tid, FUTEX, from, to)
            .stack(locking)
            .word(0x1000)
            .by(by)
            .done();
    };
    waits(2, 1, 21, 1);
    waits(5, 1, 41, 2);
    // The third one comes from its socket when the lock happens to be free: the fifth one was too
    // late, and waits again.
    waits(5, 42, 81, 4);
    waits(4, 1, 61, 3);
    script
        .wait(3, 45, 0, 40)
        .stack(receiving)
        .by_softirq()
        .done();
    script.burns(1, working, 0, 21);
    script.burns(2, working, 22, 41);
    script.burns(3, working, 41, 61);
    script.burns(4, working, 62, 81);
    for (tid, answered) in [(1, 22), (2, 42), (3, 62), (4, 82), (5, 90)] {
        script
            .request(u64::from(tid))
            .ready(0)
            .read(if tid == 3 { 40 } else { 0 }, tid)
            .answered(answered, tid);
    }
    script.ends(200);
    let findings = detect(&Facts::of(&script.model()));
    assert_eq!(findings.len(), 1, "{findings:#?}");
    let cause = findings[0].cause.as_ref().expect("somebody held it");
    assert!(
        cause.stack.iter().any(|name| name == "app::append_log"),
        "nobody held it while receiving: {cause:?}"
    );
    assert_eq!(findings[0].subject["across"], json!(false));
    let held = findings[0].subject["hold_ns"]
        .as_u64()
        .expect("for so long");
    assert!(held <= 21_000_000, "held for {held} ns, and not for 60 ms");
}

#[test]
fn a_lock_that_is_held_while_computing_is_not_held_across_a_wait() {
    let findings = detect(&Facts::of(&convoy(false).model()));
    assert_eq!(findings.len(), 1, "{findings:#?}");
    assert_eq!(findings[0].subject["across"], json!(false));
    let cause = findings[0].cause.as_ref().expect("somebody held it");
    assert!(
        cause.stack.iter().any(|name| name == "app::append_log"),
        "{cause:?}"
    );
}

/// Six handlers take turns at a mutex for a millisecond each; 40 ms each time of which the holder
/// has no CPU, or works.
fn turns(preempted: bool) -> Script {
    let mut script = Script::new();
    let locking = locking(&mut script);
    let working = script.stack(&["main", "app::handle", "app::update_table"]);
    for tid in 1..=6u32 {
        script.thread(tid, "handler");
    }
    for tid in 1..=6u32 {
        let from = u64::from(tid - 1) * 41;
        if tid > 1 {
            script
                .wait(tid, FUTEX, 1, from + 1)
                .stack(locking)
                .word(0x1000)
                .by(tid - 1)
                .done();
        }
        if preempted {
            script.preempted(tid, from + 1, from + 41);
        } else {
            script.burns(tid, working, from + 1, from + 41);
        }
        script
            .request(u64::from(tid))
            .ready(0)
            .read(0, tid)
            .answered(from + 43, tid);
    }
    script.ends(400);
    script
}

#[test]
fn a_lock_whose_holders_have_no_cpu_is_not_to_blame() {
    let worked = detect(&Facts::of(&turns(false).model()));
    assert_eq!(worked.len(), 1, "{worked:#?}");
    assert_eq!(worked[0].severity, Severity::Error);
    assert!(!worked[0].title.contains("CPU"), "{}", worked[0].title);
    let findings = detect(&Facts::of(&turns(true).model()));
    assert_eq!(findings, [], "a millisecond of 41 is what locks are for");
}

/// A handler takes a mutex and waits for a thread of its runtime, which does its part within a
/// millisecond once it has a CPU: after `late_ms`, or it works until then.
fn waits_for_a_helper(late_ms: u64, preempted: bool) -> Script {
    let mut script = Script::new();
    let locking = locking(&mut script);
    let collecting = script.stack(&[
        "main",
        "vm::allocate",
        "vm::wait_until_executed",
        "futex_wait",
    ]);
    let pause = script.stack(&["vm::thread", "vm::collect"]);
    script
        .thread(1, "handler")
        .thread(2, "handler")
        .thread(3, "VM Thread");
    script
        .wait(1, FUTEX, 1, late_ms + 2)
        .stack(collecting)
        .word(0x2000)
        .by(3)
        .done();
    if preempted {
        script.preempted(3, 1, late_ms + 1);
    } else {
        script.burns(3, pause, 1, late_ms + 1);
    }
    script
        .wait(2, FUTEX, 1, late_ms + 3)
        .stack(locking)
        .word(0x1000)
        .by(1)
        .done();
    script
        .request(2)
        .ready(0)
        .read(0, 2)
        .answered(late_ms + 4, 2);
    script.ends(400);
    script
}

#[test]
fn a_holder_that_waits_for_a_thread_without_a_cpu_is_not_to_blame_either() {
    let worked = detect(&Facts::of(&waits_for_a_helper(70, false).model()));
    assert_eq!(worked.len(), 1, "{worked:#?}");
    assert_eq!(worked[0].severity, Severity::Warning);
    let findings = detect(&Facts::of(&waits_for_a_helper(70, true).model()));
    assert_eq!(
        findings,
        [],
        "two milliseconds of 72 are what locks are for"
    );
}

#[test]
fn what_a_holder_lacked_a_cpu_for_is_reported_and_not_held_against_the_lock() {
    let mut script = turns(false);
    // Of each other hold's 40 ms, 30 are without a CPU.
    for tid in [1, 3, 5] {
        let from = u64::from(tid - 1) * 41;
        script.preempted(tid, from + 5, from + 35);
    }
    let findings = detect(&Facts::of(&script.model()));
    assert_eq!(findings.len(), 1, "{findings:#?}");
    let finding = &findings[0];
    // The last one waits for 205 ms, 90 of them for a holder without a CPU.
    assert_eq!(finding.severity, Severity::Error);
    assert_eq!(finding.saving.each_at_most_ns[0], 205_000_000);
    assert!(
        finding
            .evidence
            .iter()
            .any(|evidence| evidence.text.contains("without a CPU for 90 ms")),
        "{:#?}",
        finding.evidence
    );
    let subject = &finding.subject;
    assert_eq!(
        (&subject["holder_tid"], &subject["hold_ns"]),
        (&json!(2), &json!(41_000_000)),
        "the one that kept it for itself, not the one that had no CPU"
    );
}

#[test]
fn threads_that_wait_for_a_result_do_not_contend() {
    let mut script = Script::new();
    let waiting = script.stack(&["main", "app::branch", "pthread_cond_wait"]);
    script
        .thread(1, "api")
        .thread(2, "vcpu")
        .thread(3, "worker");
    for tid in [1, 2] {
        script
            .wait(tid, FUTEX, 1, 150)
            .stack(waiting)
            .word(u64::from(tid) * 64)
            .by(3)
            .done();
    }
    script.request(1).ready(0).read(0, 1).answered(151, 1);
    script.ends(200);
    assert_eq!(detect(&Facts::of(&script.model())), []);
}

#[test]
fn a_short_wait_in_a_long_request_is_what_locks_are_for() {
    let mut script = Script::new();
    let locking = locking(&mut script);
    script.thread(1, "handler").thread(2, "other");
    script
        .wait(1, FUTEX, 10, 12)
        .stack(locking)
        .word(0x1000)
        .by(2)
        .done();
    script.request(1).ready(0).read(0, 1).answered(900, 1);
    script.ends(1000);
    assert_eq!(detect(&Facts::of(&script.model())), []);
}

#[test]
fn a_program_without_requests_may_contend_too() {
    let mut script = Script::new();
    let locking = script.stack(&["main", "app::work", "pthread_mutex_lock", "__lll_lock_wait"]);
    script.thread(1, "one").thread(2, "two");
    for at in (0..1000).step_by(100) {
        script
            .wait(1, FUTEX, at, at + 45)
            .stack(locking)
            .word(0x1000)
            .by(2)
            .done();
        script
            .wait(2, FUTEX, at + 50, at + 95)
            .stack(locking)
            .word(0x1000)
            .by(1)
            .done();
    }
    script.ends(1000);
    let findings = detect(&Facts::of(&script.model()));
    assert_eq!(findings.len(), 1, "{findings:#?}");
    assert_eq!(findings[0].saving.requests, 0);
    assert_eq!(findings[0].saving.kind, SavingKind::Throughput);
}

#[test]
fn many_threads_that_wait_a_little_are_no_contention() {
    let mut script = Script::new();
    let locking = script.stack(&["main", "app::work", "pthread_mutex_lock", "__lll_lock_wait"]);
    for tid in 1..=20u32 {
        script.thread(tid, "worker");
    }
    // A fiftieth of each thread's time; 400 ms of a second in all.
    for tid in 1..=20u32 {
        let at = u64::from(tid) * 40;
        script
            .wait(tid, FUTEX, at, at + 20)
            .stack(locking)
            .word(0x1000)
            .by(tid % 20 + 1)
            .done();
    }
    script.ends(1000);
    assert_eq!(detect(&Facts::of(&script.model())), []);
}

#[test]
fn where_nothing_was_answered_a_little_waiting_is_nothing() {
    let mut script = Script::new();
    let locking = script.stack(&["main", "app::work", "pthread_mutex_lock", "__lll_lock_wait"]);
    script.thread(1, "one").thread(2, "two");
    script
        .wait(1, FUTEX, 10, 12)
        .stack(locking)
        .word(0x1000)
        .by(2)
        .done();
    // As in a protocol without answers.
    script.request(1).ready(5).read(5, 1).unanswered();
    script.ends(1000);
    assert_eq!(detect(&Facts::of(&script.model())), []);
}

#[test]
fn waiting_for_a_cpu_after_the_lock_is_not_waiting_for_the_lock() {
    let mut script = Script::new();
    let locking = locking(&mut script);
    script.thread(1, "handler").thread(2, "other");
    script
        .wait(1, FUTEX, 10, 14)
        .on_cpu_at(34)
        .stack(locking)
        .word(0x1000)
        .by(2)
        .done();
    script.request(1).ready(10).read(10, 1).answered(40, 1);
    script.ends(100);
    let findings = detect(&Facts::of(&script.model()));
    assert_eq!(findings.len(), 1, "{findings:#?}");
    assert_eq!(findings[0].severity, Severity::Note);
    assert!(
        findings[0].title.contains("1 request waited up to 4 ms"),
        "{}",
        findings[0].title
    );
    assert_eq!(
        findings[0].saving.at_most_ns, 24_000_000,
        "without the wait it would not have lost its CPU"
    );
}

#[test]
fn the_one_long_hold_of_another_kind_is_not_what_is_reported() {
    let mut script = convoy(false);
    let locking = locking(&mut script);
    let rotating = script.stack(&["main", "app::handle", "app::rotate"]);
    script.thread(5, "handler").thread(6, "handler");
    script
        .wait(6, FUTEX, 101, 131)
        .stack(locking)
        .word(0x1000)
        .by(5)
        .done();
    script.burns(5, rotating, 101, 131);
    let findings = detect(&Facts::of(&script.model()));
    assert_eq!(findings.len(), 1, "{findings:#?}");
    let title = &findings[0].title;
    assert!(
        title.contains("in app::append_log"),
        "held for 120 ms there, and for 30 ms elsewhere: {title}"
    );
}

const EPOLL_WAIT: u32 = 232;

/// Processes of a database that update one row, 20 ms each, one after another; who waits sleeps in
/// epoll_wait, in these functions. The last one is woken when the first one is done, finds the
/// second one faster and waits again.
fn one_row(waiting: &[&str]) -> Script {
    let mut script = Script::new();
    let waiting = script.stack(waiting);
    let working = script.stack(&[
        "main",
        "PostgresMain",
        "pg_sleep",
        "WaitLatch",
        "epoll_wait",
    ]);
    for pid in 1..=3 {
        script.thread_of(pid, pid, "postgres");
    }
    let mut waits = |pid: u32, from: u64, to: u64, by: u32| {
        script
            .wait(pid, EPOLL_WAIT, from, to)
            .stack(waiting)
            .epoll(pid)
            .by(by)
            .done();
    };
    waits(2, 1, 21, 1);
    waits(3, 1, 21, 1);
    waits(3, 23, 41, 2);
    for pid in 1..=3u32 {
        let from = u64::from(pid - 1) * 20 + 2;
        script
            .wait(pid, EPOLL_WAIT, from + 1, from + 18)
            .stack(working)
            .epoll(pid)
            .done();
        script
            .request(u64::from(pid))
            .ready(0)
            .read(0, pid)
            .answered(from + 20, pid);
    }
    script.ends(200);
    script
}

#[test]
fn processes_that_wait_for_a_row_contend_though_they_sleep_in_a_poll() {
    let script = one_row(&[
        "main",
        "PostgresMain",
        "XactLockTableWait",
        "LockAcquireExtended",
        "ProcSleep",
        "WaitLatch",
        "epoll_wait",
    ]);
    let findings = detect(&Facts::of(&script.model()));
    assert_eq!(findings.len(), 1, "{findings:#?}");
    let finding = &findings[0];
    assert_eq!(finding.subject["lock"], json!("lock of the database"));
    assert_eq!(finding.subject["waiters"], json!([2, 3]));
    assert_eq!(finding.subject["across"], json!(true));
    assert!(!finding.subject.contains_key("pid"), "of several processes");
    assert_eq!(
        finding.saving.each_at_most_ns,
        [40_000_000, 20_000_000],
        "what the last one did to try again is the lock's, too"
    );
    let cause = finding.cause.as_ref().expect("somebody held it");
    assert!(
        cause.stack.iter().any(|name| name == "pg_sleep"),
        "{cause:?}"
    );
}

#[test]
fn an_advisory_lock_of_a_database_is_no_row() {
    let script = one_row(&[
        "main",
        "PostgresMain",
        "pg_advisory_lock_int8",
        "LockAcquireExtended",
        "ProcSleep",
        "WaitLatch",
        "epoll_wait",
    ]);
    let findings = detect(&Facts::of(&script.model()));
    assert_eq!(findings.len(), 1, "{findings:#?}");
    let lock = &findings[0].subject["lock"];
    assert_eq!(*lock, json!("advisory lock of the database"));
    let said = format!("{} {:?}", findings[0].fix, findings[0].evidence);
    assert!(!said.contains("row") && said.contains("number"), "{said}");
}

#[test]
fn a_table_that_is_locked_is_no_row() {
    let asks = |statement: &str| {
        let script = one_row(&[
            "main",
            "PostgresMain",
            statement,
            "RangeVarGetRelidExtended",
            "LockRelationOid",
            "LockAcquireExtended",
            "ProcSleep",
            "WaitLatch",
            "epoll_wait",
        ]);
        let findings = detect(&Facts::of(&script.model()));
        assert_eq!(findings.len(), 1, "{findings:#?}");
        let lock = &findings[0].subject["lock"];
        assert_eq!(*lock, json!("table lock of the database"));
        assert!(
            findings[0].fix.contains("whole table"),
            "{}",
            findings[0].fix
        );
    };
    asks("LockTableCommand");
    asks("parserOpenTable");
}

#[test]
fn processes_that_wait_for_each_other_in_a_poll_do_not_contend_for_that_alone() {
    let script = one_row(&[
        "main",
        "PostgresMain",
        "WaitForSync",
        "WaitLatch",
        "epoll_wait",
    ]);
    assert_eq!(detect(&Facts::of(&script.model())), []);
}

/// Workers that take a lock one after the other and hold it while they sleep for 20 ms, each in a
/// process of its own or all in one; `waits` makes one sleep for the lock.
fn one_at_a_time(
    processes: bool,
    waits: fn(&mut Script, StackId, u32, (u64, u64), u32),
    locking: &[&str],
) -> Script {
    let mut script = Script::new();
    let locking = script.stack(locking);
    let working = script.stack(&["main", "app::render", "nanosleep"]);
    for tid in 1..=3u32 {
        script.thread_of(if processes { 100 + tid } else { TGID }, tid, "worker");
    }
    for turn in 0..9u64 {
        let tid = |turn: u64| (turn % 3) as u32 + 1;
        let at = turn * 20;
        let came = (at + 3).saturating_sub(40);
        if turn > 0 {
            waits(&mut script, locking, tid(turn), (came, at), tid(turn - 1));
        }
        script.sleeps(tid(turn), working, at + 1, at + 20);
        let socket = u64::from(tid(turn)) << 32 | turn;
        script
            .request(socket)
            .ready(came.saturating_sub(1))
            .read(came.saturating_sub(1), tid(turn))
            .answered(at + 21, tid(turn));
    }
    script.ends(300);
    script
}

fn of_kind(script: &Script, kind: &str) -> Finding {
    let mut findings = detect(&Facts::of(&script.model()));
    assert_eq!(findings.len(), 1, "{findings:#?}");
    let finding = findings.remove(0);
    assert_eq!(finding.subject["lock"], json!(kind));
    assert_eq!(finding.saving.requests, 8, "all but the first one waited");
    let told = format!("{kind} that worker (");
    assert!(finding.title.contains(&told), "{}", finding.title);
    assert!(
        finding
            .title
            .ends_with("held for up to 20 ms in app::render, across clock_nanosleep"),
        "{}",
        finding.title
    );
    finding
}

#[test]
fn a_file_that_a_process_has_locked_has_a_holder() {
    const FLOCK: u32 = 73;
    let flock = |script: &mut Script, stack, tid, (from, to), by| {
        script.wait(tid, FLOCK, from, to).stack(stack).by(by).done();
    };
    let script = one_at_a_time(true, flock, &["main", "app::with_session", "flock"]);
    let finding = of_kind(&script, "advisory file lock");
    assert!(
        finding.title.contains("for an advisory"),
        "{}",
        finding.title
    );
    assert_eq!(finding.subject.get("pid"), None, "of several processes");
    assert!(finding.fix.contains("file"), "{}", finding.fix);
}

/// A thread that wants to map, and whose kernel stack says that it waits for `function`, innermost
/// first: in mmap, or in no call, which is a page fault.
fn maps<const IN_CALL: bool>(
    script: &mut Script,
    stack: StackId,
    tid: u32,
    (from, to): (u64, u64),
    by: u32,
) {
    const MMAP: u32 = 9;
    let kernel: &[&str] = match IN_CALL {
        true => &["ksys_mmap_pgoff", "vm_mmap_pgoff"],
        false => &["asm_exc_page_fault", "lock_mm_and_find_vma"],
    };
    let kernel = script.stack(kernel);
    let wait = script.wait(tid, MMAP, from, to).stack(stack).kernel(kernel);
    let wait = wait.uninterruptible();
    let wait = if IN_CALL { wait } else { wait.in_no_call() };
    wait.by(by).done();
}

#[test]
fn the_memory_map_has_a_holder_for_those_that_map_and_those_that_touch() {
    const NAME: &str = "lock of the process's memory map (mmap_lock)";
    for script in [
        one_at_a_time(false, maps::<true>, &["main", "app::fill", "mmap"]),
        one_at_a_time(false, maps::<false>, &["main", "app::fill"]),
    ] {
        let finding = of_kind(&script, NAME);
        assert!(finding.title.contains("for the lock"), "{}", finding.title);
        assert!(finding.fix.contains("posix_spawn"), "{}", finding.fix);
    }
}

#[test]
fn a_file_that_another_thread_writes_has_a_holder() {
    const WRITE: u32 = 1;
    let writes = |script: &mut Script, stack, tid, (from, to), by| {
        let kernel = script.stack(&["vfs_write", "ext4_buffered_write_iter"]);
        let wait = script.wait(tid, WRITE, from, to).stack(stack);
        wait.kernel(kernel).uninterruptible().by(by).done();
    };
    let script = one_at_a_time(false, writes, &["main", "app::append", "write"]);
    let finding = of_kind(&script, "kernel's lock of a file (inode)");
    assert!(
        finding.title.contains("for the kernel's"),
        "{}",
        finding.title
    );
}

#[test]
fn a_record_that_a_process_has_locked_too_but_no_other_fcntl() {
    const FCNTL: u32 = 72;
    const F_SETLKW: u64 = 7;
    const F_GETPIPE_SZ: u64 = 1032;
    fn fcntl<const COMMAND: u64>(
        script: &mut Script,
        stack: StackId,
        tid: u32,
        (from, to): (u64, u64),
        by: u32,
    ) {
        script
            .wait(tid, FCNTL, from, to)
            .stack(stack)
            .args([3, COMMAND])
            .by(by)
            .done();
    }
    let locking = ["main", "app::lock_journal", "fcntl64"];
    let script = one_at_a_time(true, fcntl::<F_SETLKW>, &locking);
    of_kind(&script, "advisory file lock");
    let other = one_at_a_time(true, fcntl::<F_GETPIPE_SZ>, &locking);
    assert_eq!(detect(&Facts::of(&other.model())), []);
}

/// On a word of its own.
fn on_own_word(script: &mut Script, stack: StackId, tid: u32, (from, to): (u64, u64), by: u32) {
    script
        .wait(tid, FUTEX, from, to)
        .stack(stack)
        .word(u64::from(tid) * 0x100)
        .by(by)
        .done();
}

#[test]
fn locks_on_words_of_the_waiters_own_have_the_names_that_people_know() {
    let cases: [(&[&str], &str); 4] = [
        (
            &[
                "ObjectMonitor::enter(JavaThread*)",
                "PlatformEvent::park()",
                "pthread_cond_wait",
            ],
            "Java monitor",
        ),
        (
            &[
                "Unsafe_Park",
                "Parker::park(bool, long)",
                "pthread_cond_wait",
            ],
            "lock of java.util.concurrent",
        ),
        (
            &["app::enter", "pthread_cond_wait"],
            "lock of the program's own",
        ),
        (
            &[
                "open_table(THD*)",
                "MDL_wait::timed_wait(THD*)",
                "pthread_cond_timedwait",
            ],
            "metadata lock (MDL)",
        ),
    ];
    for (locking, kind) in cases {
        let finding = of_kind(&one_at_a_time(false, on_own_word, locking), kind);
        let said = |text: &str| finding.evidence.iter().any(|one| one.text.contains(text));
        assert!(said("does not show"), "{:?}", finding.evidence);
        assert_eq!(finding.subject.get("address"), None);
    }
}

const APP: &str = "/srv/app";

/// Six workers take turns at so many permits, each for 20 ms, and who gives one wakes the next.
fn permits(number: u32, module: &str, waiting: &[&str]) -> Script {
    let mut script = Script::new();
    let waiting = script.stack_in(module, waiting);
    let working = script.stack(&["main", "app::render", "nanosleep"]);
    for tid in 1..=6u32 {
        script.thread(tid, "worker");
    }
    for turn in 0..18u32 {
        let tid = |turn: u32| turn % 6 + 1;
        // They began one after the other.
        let at = u64::from(turn / number * 20 + turn % number * 3);
        let mut came = at;
        if turn >= number {
            came = (at + 3).saturating_sub(40);
            let by = tid(turn - number);
            on_own_word(&mut script, waiting, tid(turn), (came, at), by);
        }
        script.sleeps(tid(turn), working, at + 1, at + 20);
        script
            .request(u64::from(tid(turn)) << 32 | u64::from(turn))
            .ready(came)
            .read(came, tid(turn))
            .answered(at + 21, tid(turn));
    }
    script.ends(300);
    script
}

#[test]
fn permits_of_a_semaphore_are_had_by_several_at_a_time() {
    let of_java: &[&str] = &[
        "Semaphore.acquire",
        "Unsafe_Park",
        "Parker::park(bool, long)",
    ];
    let cases = [
        (of_java, "one of 2 permits of a semaphore"),
        (
            &["app::enter", "pthread_cond_wait"],
            "one of 2 places or locks",
        ),
        (
            &[
                "ObjectMonitor::enter(JavaThread*)",
                "PlatformEvent::park()",
                "pthread_cond_wait",
            ],
            "one of 2 Java monitors",
        ),
    ];
    for (waiting, what) in cases {
        let findings = detect(&Facts::of(&permits(2, APP, waiting).model()));
        assert_eq!(findings.len(), 1, "{findings:#?}");
        let Finding { title, subject, .. } = &findings[0];
        assert!(title.contains(what), "{title}");
        assert!(
            title.contains("held one for up to 20 ms in app::render"),
            "{title}"
        );
        assert_eq!(subject["at_a_time"], json!(2));
    }
    let one = detect(&Facts::of(&permits(1, APP, of_java).model()));
    assert_eq!(one[0].subject.get("at_a_time"), None, "{one:#?}");
}

#[test]
fn a_runtime_whose_locks_are_semaphores_of_the_c_library_has_no_permits() {
    let waiting = ["app::enter", "pthread_cond_wait", "sem_clockwait"];
    let title = |module| {
        let mut findings = detect(&Facts::of(&permits(2, module, &waiting).model()));
        findings.remove(0).title
    };
    let of_program = title(APP);
    assert!(
        of_program.contains("one of 2 permits of a semaphore"),
        "{of_program}"
    );
    let of_python = title("/usr/lib/libpython3.11.so.1.0");
    assert!(
        of_python.contains("one of 2 places or locks"),
        "{of_python}"
    );
}

#[test]
fn a_wait_that_goes_on_after_its_timeout_is_one() {
    let with_timeouts = |script: &mut Script, stack, tid: u32, (from, to): (u64, u64), by| {
        let word = u64::from(tid) * 0x100;
        let middle = from.midpoint(to);
        let again = |script: &mut Script, from, to| {
            script
                .wait(tid, FUTEX, from, to)
                .stack(stack)
                .word(word)
                .timeout()
                .by_timer()
                .done();
        };
        again(script, from, middle);
        script
            .wait(tid, FUTEX, middle, to)
            .stack(stack)
            .word(word)
            .by(by)
            .done();
    };
    let locking = [
        "open_table(THD*)",
        "MDL_wait::timed_wait(THD*)",
        "pthread_cond_timedwait",
    ];
    let script = one_at_a_time(false, with_timeouts, &locking);
    let finding = of_kind(&script, "metadata lock (MDL)");
    assert_eq!(
        finding.saving.each_at_most_ns[0], 37_000_000,
        "not only the last sleep"
    );
    let model = script.model();
    let locks = model.requests().map(|request| {
        let path = request.path();
        path.steps
            .iter()
            .filter(|step| step.part == Some(Part::Lock))
            .count()
    });
    assert_eq!(locks.max(), Some(1), "the sleeps are one wait");
}

#[test]
fn a_lock_that_worker_processes_share_is_one() {
    let mut script = Script::new();
    let locking = locking(&mut script);
    let syncing = script.stack(&["main", "app::handle", "app::append_log", "fsync"]);
    for pid in 101..=104 {
        script.thread_of(pid, pid, "httpd");
    }
    for pid in 101..=104u32 {
        let from = u64::from(pid - 101) * 20;
        if pid > 101 {
            script
                .wait(pid, FUTEX, 1, from + 1)
                .stack(locking)
                .word(0x1000)
                .by(pid - 1)
                .done();
        }
        script
            .wait(pid, FSYNC, from + 2, from + 20)
            .stack(syncing)
            .done();
        script
            .request(u64::from(pid))
            .of(pid)
            .ready(0)
            .read(0, pid)
            .answered(from + 22, pid);
    }
    script.ends(200);
    let findings = detect(&Facts::of(&script.model()));
    assert_eq!(findings.len(), 1, "{findings:#?}");
    let finding = &findings[0];
    assert_eq!(finding.saving.requests, 3);
    assert_eq!(finding.subject["pids"], json!([102, 103, 104]));
    assert_eq!(finding.subject["pid"], json!(104), "it waited longest");
}

/// Handlers whose interpreter has one lock: a request comes while the handler, done with the one
/// before, waits to have the lock back, and is read only then.
#[test]
fn who_lies_unread_behind_a_lock_is_spared_that_too() {
    let saved = |serves_another: bool| {
        let mut script = Script::new();
        let locking = locking(&mut script);
        let computing = script.stack(&["main", "app::rebuild"]);
        script.thread(1, "handler").thread(2, "index");
        script.burns(2, computing, 0, 300);
        let waits = |script: &mut Script, from: u64, to: u64| {
            script
                .wait(1, FUTEX, from, to)
                .stack(locking)
                .word(0x1000)
                .by(2)
                .done();
        };
        waits(&mut script, 5, 100);
        waits(&mut script, 101, 150);
        if serves_another {
            script.request(2).ready(1).read(1, 1).answered(100, 1);
        }
        script.request(1).ready(10).read(100, 1).answered(151, 1);
        script.ends(400);
        let findings = detect(&Facts::of(&script.model()));
        assert_eq!(findings.len(), 1, "{findings:#?}");
        findings[0].saving.each_at_most_ns.clone()
    };
    assert_eq!(
        saved(false),
        [139_000_000],
        "unread behind the lock for 90 ms, and 49 ms of its own"
    );
    assert_eq!(
        saved(true),
        [139_000_000, 95_000_000],
        "by replay, once: it lay unread behind the other one's wait"
    );
}

/// Requests of goroutines, one after the other in a lock for 20 ms each, and all looked at every
/// 10 ms. In `slow` of 20 the lock is what they wait for.
fn of_goroutines(slow: u64) -> Script {
    let mut script = Script::new();
    script.thread(10, "server");
    let locked = script.stack(&["main.locked", "sync.(*Mutex).lockSlow", "runtime.gopark"]);
    let asleep = script.stack(&["main.locked", "main.store", "time.Sleep", "runtime.gopark"]);
    for socket in 1..=20 {
        let until = if socket <= slow { 20 * socket } else { 20 };
        let request = script.request(socket).ready(0).read(0, 10);
        request.answered(until, 10);
        for at in (5..until).step_by(10) {
            let waits = at + 20 < until;
            script.task_look(&TaskLook {
                at_ns: whywait_model::script::ms(at),
                read_ns: whywait_model::script::ms(at),
                tgid: TGID,
                task: socket as u32,
                socket,
                seq: 1,
                state: TaskState::Waiting,
                stack: if waits { locked } else { asleep },
                ..TaskLook::default()
            });
        }
    }
    script
}

#[test]
fn goroutines_that_wait_for_a_lock_are_on_no_thread() {
    let model = of_goroutines(20).model();
    let findings = detect(&Facts::of(&model));
    let [finding] = &findings[..] else {
        panic!("one is expected: {findings:#?}");
    };
    assert_eq!(finding.severity, Severity::Error);
    assert_eq!(finding.subject["function"], json!("main.locked"));
    assert_eq!(finding.subject["holder_function"], json!("main.store"));
    // Each but the first waits for those before it.
    let waited_ns = (0..20).map(|before| before * 20_000_000).sum::<u64>();
    assert_eq!(finding.saving.at_most_ns, waited_ns);
    assert!(
        finding.title.contains("sync.Mutex.Lock in main.locked"),
        "{}",
        finding.title
    );
}

#[test]
fn goroutines_that_sleep_wait_for_no_lock() {
    assert_eq!(detect(&Facts::of(&of_goroutines(0).model())), []);
}

/// The same, of requests each of which a coroutine answers.
#[test]
fn coroutines_that_wait_for_a_lock_are_on_no_thread() {
    let mut script = Script::new();
    script.thread(10, "server");
    let locks = "/usr/lib/python3.13/asyncio/locks.py";
    let sleeps = "/usr/lib/python3.13/asyncio/tasks.py";
    let own = "/srv/app/server.py";
    let within = ("locked", own, 7);
    let locked = script.coroutines(&[within, ("Lock.acquire", locks, 111)]);
    let asleep = script.coroutines(&[within, ("store", own, 20), ("sleep", sleeps, 639)]);
    for socket in 1..=20 {
        let until = 20 * socket;
        let request = script.request(socket).ready(0).read(0, 10);
        request.task(socket as u32).answered(until, 10);
        for at in (5..until).step_by(10) {
            script.task_look(&TaskLook {
                at_ns: whywait_model::script::ms(at),
                read_ns: whywait_model::script::ms(at),
                tgid: TGID,
                task: socket as u32,
                socket: 0,
                seq: 0,
                state: TaskState::Waiting,
                stack: if at + 20 < until { locked } else { asleep },
                ..TaskLook::default()
            });
        }
    }
    let model = script.model();
    let findings = detect(&Facts::of(&model));
    let [finding] = &findings[..] else {
        panic!("one is expected: {findings:#?}");
    };
    assert_eq!(finding.severity, Severity::Error);
    assert_eq!(finding.subject["function"], json!("locked"));
    assert_eq!(finding.subject["holder_function"], json!("store"));
    let place = "asyncio.Lock.acquire in locked (server.py:7)";
    assert!(finding.title.contains(place), "{}", finding.title);
}

/// The same, where who has the lock keeps its thread: each goroutine writes for 20 ms with the lock
/// in hand, or they write in pairs, and no lock is held meanwhile.
fn of_goroutines_that_write(at_a_time: u64) -> Script {
    let mut script = Script::new();
    script
        .thread(10, "server")
        .thread(11, "server")
        .thread(12, "server");
    let locked = script.stack(&["main.log", "sync.(*Mutex).lockSlow", "runtime.gopark"]);
    let writes = script.stack(&["main.log", "os.(*File).Write", "syscall.write"]);
    for socket in 1..=20_u64 {
        let request = script.request(socket).ready(0).read(0, 10);
        request.answered(20 * socket, 10);
        for at in (5..20 * (socket - 1)).step_by(10) {
            script.task_look(&TaskLook {
                at_ns: whywait_model::script::ms(at),
                read_ns: whywait_model::script::ms(at),
                tgid: TGID,
                task: socket as u32,
                socket,
                seq: 1,
                state: TaskState::Waiting,
                stack: locked,
                ..TaskLook::default()
            });
        }
        for tid in (11..).take(at_a_time as usize) {
            let write = script.wait(tid, FSYNC, 20 * (socket - 1) + 1, 20 * socket);
            write.stack(writes).done();
        }
    }
    script
}

#[test]
fn who_has_a_lock_of_goroutines_may_block_its_thread() {
    for (at_a_time, across) in [(1, Some("fsync")), (2, None)] {
        let model = of_goroutines_that_write(at_a_time).model();
        let findings = detect(&Facts::of(&model));
        let [finding] = &findings[..] else {
            panic!("one is expected: {findings:#?}");
        };
        let said = finding
            .subject
            .get("asleep_in")
            .and_then(|what| what.as_str());
        assert_eq!(said, across, "{}", finding.title);
        let there = finding
            .title
            .ends_with("in main.log, while one slept there in fsync");
        assert_eq!(there, across.is_some(), "{}", finding.title);
    }
}

/// Four workers of a pool. The one that polls takes a request and waits for a lock, and until then
/// the others stay parked: four more requests lie unread, and would wait for nothing.
#[test]
fn who_lies_unread_as_the_poller_waits_for_a_lock_is_spared_that() {
    const WORKER: &[&str] = &[
        "clone3",
        "start_thread",
        "tokio::runtime::pool::run",
        "Context::run",
    ];
    let of = |rest: &[&'static str]| [WORKER, rest].concat();
    let mut script = Script::new();
    let poll = script.stack(&of(&["Context::park", "Driver::turn", "epoll_wait"]));
    let park = script.stack(&of(&[
        "Context::park",
        "Inner::park_condvar",
        "Condvar::wait",
        "syscall",
    ]));
    let locking = script.stack(&of(&[
        "app::look_up",
        "pthread_mutex_lock",
        "__lll_lock_wait",
    ]));
    let computing = script.stack(&["clone3", "app::rebuild"]);
    script.thread(9, "rebuild");
    script.burns(9, computing, 0, 210);
    for tid in 1..=4 {
        script.thread(tid, "tokio-rt-worker");
    }
    script.polls_in(1, 1, poll, 0, 10);
    let request = script.request(1).epoll(1).ready(10).read(10, 1);
    request.answered(212, 1);
    let wait = script.wait(1, FUTEX, 11, 210).stack(locking);
    wait.word(0x1000).by(9).done();
    for tid in 2..=4 {
        script.parks(tid, park, 0, 211, 1);
        script.polls_in(tid, 1, poll, 213, 300);
    }
    for (socket, tid) in [(2, 2), (3, 3), (4, 4), (5, 1)] {
        let request = script.request(socket).epoll(1).ready(20).read(212, tid);
        request.answered(213, tid);
    }
    script.ends(400);
    let model = script.model();
    let findings = detect(&Facts::of(&model));
    let [finding] = &findings[..] else {
        panic!("one is expected: {findings:#?}");
    };
    let saved = &finding.saving.each_at_most_ns;
    assert_eq!(saved.len(), 5, "{saved:?}");
    assert!(saved.iter().all(|ns| *ns >= 180_000_000), "{saved:?}");
    let codes: Vec<_> = crate::find(&Facts::of(&model))
        .into_iter()
        .map(|one| one.code)
        .collect();
    assert!(codes[0].is(&DECLARATION), "{codes:?}");
}
