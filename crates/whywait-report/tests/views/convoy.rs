//! What a convoy behind a lock looks like: requests wait for a lock whose holder syncs a file.

use serde_json::json;
use whywait_findings::{Cause, Code, Confidence, Evidence, Finding, Saving, SavingKind, Severity};
use whywait_model::path::Step;
use whywait_model::requests::Slow;
use whywait_model::waits::WaitClass;
use whywait_model::waits::{WaitRow, WaitThread, WaitWaker};
use whywait_report::Report;

use crate::reports::{self, HOSTILE, MS, code, evidence, step, strings};

const SAVE: &[&str] = &[
    "fdatasync",
    "std::sys::fs::unix::File::datasync",
    "std::fs::File::sync_data",
    "convoy::Store::save",
    "convoy::snapshot",
    "std::sys::backtrace::__rust_begin_short_backtrace",
    "start_thread",
    "clone3",
];
const LOCK: &[&str] = &[
    "syscall",
    "std::sys::sync::mutex::futex::Mutex::lock_contended",
    "convoy::Store::get",
    "convoy::handle",
    "std::sys::backtrace::__rust_begin_short_backtrace",
    "start_thread",
    "clone3",
];
const SYNC: &[&str] = &[
    "__schedule",
    "schedule",
    "jbd2_log_wait_commit",
    "ext4_sync_file",
    "do_fsync",
    "__x64_sys_fdatasync",
    "do_syscall_64",
    "entry_SYSCALL_64_after_hwframe",
];

/// A request that waited for a lock, whose holder synced a file.
pub(crate) fn slow() -> Slow {
    let save = Step {
        function: Some("convoy::Store::save".to_owned()),
        stack: strings(SAVE),
        kind: Some("fsync (journal commit)".to_owned()),
        kernel: strings(SYNC),
        ..step("disk", 40, "saver", 180 * MS)
    };
    let lock = Step {
        function: Some("convoy::Store::get".to_owned()),
        stack: strings(LOCK),
        kernel: strings(&["__schedule", "schedule", "futex_wait_queue", "futex_wait"]),
        woken_by: Some(40),
        meanwhile: vec![
            step("on-cpu", 40, "saver", 400_000),
            save,
            step("runnable", 40, "saver", 100_000),
            Step {
                function: Some("convoy::Store::compact".to_owned()),
                stack: strings(&["convoy::Store::compact", "convoy::snapshot"]),
                ..step("on-cpu", 40, "saver", 19_500_000)
            },
        ],
        ..step("lock", 12, "worker", 200 * MS)
    };
    Slow {
        id: "31:7".to_owned(),
        name: None,
        port: Some(7000),
        broker: None,
        at_ns: 1_250 * MS,
        latency_ns: 420 * MS,
        open: false,
        time: whywait_model::requests::Time {
            lock: Some(400 * MS),
            on_cpu: Some(12 * MS),
            runnable: Some(8 * MS),
            ..Default::default()
        },
        path: vec![
            Step {
                woken_by: Some(11),
                ..step("ready-unserved", 12, "worker", 2 * MS)
            },
            step("on-cpu", 12, "worker", 6 * MS),
            lock.clone(),
            step("on-cpu", 12, "worker", 4 * MS),
            lock,
            step("runnable", 12, "worker", 8 * MS),
        ],
        calls: None,
        tasks: None,
        task_waits: None,
        sending: None,
    }
}

fn finding(code: Code, severity: Severity, title: &str) -> Finding {
    Finding {
        code,
        severity,
        confidence: Confidence::Medium,
        title: title.to_owned(),
        subject: json!({"pid": 1234, "address": "0x7f12a8000c40", "threads": [12, 13, 14, 15]})
            .as_object()
            .expect("an object")
            .clone(),
        saving: Saving {
            kind: SavingKind::Latency,
            at_most_ns: 0,
            requests: 0,
            each_at_most_ns: vec![],
            effect: None,
        },
        evidence: vec![],
        cause: None,
        fix: "give each thread its own, or hold it for less".to_owned(),
        same_waits: Vec::new(),
        explains: Vec::new(),
        not_by_all_fixes_ns: 0,
        as_ever: None,
        requests: Default::default(),
    }
}

/// A finding with much evidence, one without a bound, and notes on what is harmless.
pub(crate) fn report() -> Report {
    let mut report = reports::stranded();
    report.requests.slowest = vec![slow()];
    let note = |title: &str, texts: &[&str]| Finding {
        evidence: texts.iter().map(|text| evidence(text, None)).collect(),
        ..finding(code("idle-waiters"), Severity::Note, title)
    };
    let long = "the lock was held while its holder slept in fdatasync, which took 180 ms of the \
                200 ms for which the others waited; the device was busy with the pages of a \
                snapshot that the same thread had written before, and which the kernel had not \
                begun to write back until then";
    let held: Vec<Evidence> = (0..9)
        .map(|n| evidence(&format!("{n}: {long}"), Some(200 * MS)))
        .collect();
    report.findings = vec![
        note(
            "4 threads waited 31.2 s for work: harmless",
            &[
                "no slow request's path has any of it; they sleep where idle workers of the pool \
                 do",
                "more that nobody needs here",
            ],
        ),
        Finding {
            saving: Saving {
                kind: SavingKind::Latency,
                at_most_ns: 1_200 * MS,
                requests: 4,
                each_at_most_ns: vec![400 * MS, 390 * MS, 210 * MS, 200 * MS],
                effect: None,
            },
            evidence: held,
            cause: Some(Cause {
                tid: 40,
                thread: "saver".to_owned(),
                doing: "held the lock and slept in fdatasync (journal commit)".to_owned(),
                stack: strings(SAVE),
                own: Vec::new(),
                spells: None,
                naming: None,
            }),
            ..finding(
                code("lock-contention"),
                Severity::Error,
                "4 requests waited for a lock that saver held for 200 ms",
            )
        },
        Finding {
            evidence: vec![evidence("it waited for 4.8 s until the end", None)],
            ..finding(
                code("deadlock"),
                Severity::Error,
                "2 threads wait for each other for ever",
            )
        },
        note("2 threads sleep by the clock: harmless", &[]),
    ];
    report
}

/// A healthy server with notes.
pub(crate) fn harmless() -> Report {
    let mut report = reports::nothing_wrong();
    report.findings = self::report().findings;
    report
        .findings
        .retain(|finding| finding.severity == Severity::Note);
    report
}

fn waiters(count: u32) -> Vec<WaitThread> {
    (0..count)
        .map(|index| WaitThread {
            tid: 12 + index,
            thread: "worker".to_owned(),
            count: 7,
            total_ns: (90 - u64::from(index)) * MS,
        })
        .collect()
}

fn waker(who: &str, tid: Option<u32>, count: u64) -> Option<WaitWaker> {
    Some(WaitWaker {
        who: who.to_owned(),
        tid,
        count,
    })
}

/// Rows of all kinds.
pub(crate) fn waits() -> Vec<WaitRow> {
    vec![
        WaitRow {
            what: "condition variable".to_owned(),
            class: Some(WaitClass::Idle),
            reasons: strings(&[
                "whoever woke it had just queued work",
                "4 threads wait on it, none of them wakes others on it",
            ]),
            address: Some(0x55d0_c8d0_1230),
            mapping: Some("[heap]".to_owned()),
            count: 4_123,
            total_ns: 31_200 * MS,
            longest_ns: 1_200 * MS,
            threads: waiters(4),
            waker: waker("acceptor", Some(11), 4_100),
            critical_share: Some(0.0),
            function: Some("convoy::Pool::next".to_owned()),
            ..WaitRow::default()
        },
        WaitRow {
            what: "epoll".to_owned(),
            fd: Some(5),
            count: 1_204,
            short: 1_200,
            total_ns: 9_800 * MS,
            longest_ns: 410 * MS,
            threads: waiters(1),
            waker: waker("network", None, 1_204),
            critical_share: Some(0.0),
            ..WaitRow::default()
        },
        WaitRow {
            what: "lock".to_owned(),
            class: Some(WaitClass::Lock),
            reasons: strings(&[
                "the futex word says that it is locked and waited for (2)",
                "whoever woke it had held it",
                "a waiter wakes the next one on the same word",
                "a fourth reason that is left out",
            ]),
            address: Some(0x7f12_a800_0c40),
            mapping: Some("/srv/convoy/lib/libstore-2.1.so".to_owned()),
            count: 28,
            total_ns: 5_100 * MS,
            longest_ns: 200 * MS,
            unfinished: 2,
            threads: waiters(3),
            waker: waker("saver", Some(40), 19),
            critical_ns: 4_400 * MS,
            critical_share: Some(0.862_745_098),
            function: Some(
                "<convoy::Store<K,V,S> as convoy::index::Lookup<K>>::get_or_insert_with".to_owned(),
            ),
            ..WaitRow::default()
        },
        WaitRow {
            what: "futex".to_owned(),
            class: Some(WaitClass::Unknown),
            count: 5_000,
            short: 5_000,
            total_ns: 12 * MS,
            critical_share: None,
            ..WaitRow::default()
        },
    ]
}

/// More rows than anybody reads; only the last is of consequence.
pub(crate) fn many_waits(count: usize) -> Vec<WaitRow> {
    let mut rows = vec![waits().swap_remove(1); count];
    for row in &mut rows {
        row.reasons = strings(&["a reason"]);
    }
    if let Some(last) = rows.last_mut() {
        last.what = "the one that counts".to_owned();
        last.critical_ns = MS;
    }
    rows
}

/// Rows whose strings try to do harm.
pub(crate) fn hostile_waits() -> Vec<WaitRow> {
    let mut rows = waits();
    rows.push(WaitRow::default());
    for row in &mut rows {
        row.what = HOSTILE.to_owned();
        row.reasons = vec![HOSTILE.to_owned(), "x".repeat(5_000)];
        row.mapping = Some(HOSTILE.to_owned());
        row.function = Some(format!("{HOSTILE}{}", "very_long::".repeat(300)));
        row.stack = strings(&[HOSTILE]);
        row.waker = waker(HOSTILE, Some(1), 1);
        for thread in &mut row.threads {
            thread.thread = HOSTILE.to_owned();
        }
        (row.count, row.total_ns, row.unfinished) = (u64::MAX, u64::MAX, u64::MAX);
        row.critical_share = Some(f64::NAN);
    }
    rows
}

/// A path whose strings try to do harm, and with holders of holders of holders.
pub(crate) fn hostile_slow() -> Slow {
    let evil = |meanwhile| Step {
        function: Some(HOSTILE.to_owned()),
        stack: vec![HOSTILE.to_owned(), "日本::語".to_owned(), "x".repeat(5_000)],
        kind: Some(HOSTILE.to_owned()),
        kernel: strings(&[HOSTILE, "schedule", ""]),
        woken_by: Some(7),
        meanwhile,
        ..step(HOSTILE, 7, HOSTILE, u64::MAX)
    };
    let mut nested = evil(Vec::new());
    for _ in 0..30 {
        nested = evil(vec![nested]);
    }
    Slow {
        id: HOSTILE.to_owned(),
        latency_ns: u64::MAX,
        path: vec![evil(Vec::new()), nested],
        ..slow()
    }
}

/// A path with very many steps: two that matter.
pub(crate) fn long_slow() -> Slow {
    let mut path = vec![step("on-cpu", 12, "worker", 10); 200];
    path[100].ns = 300 * MS;
    path[150].ns = 120 * MS;
    Slow { path, ..slow() }
}
