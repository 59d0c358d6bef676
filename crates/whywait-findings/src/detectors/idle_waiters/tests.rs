//! Scripts of events that must, or must not, be `idle-waiters`.

use serde_json::json;
use whywait_model::script::Script;

use super::*;

const FUTEX: u32 = 202;

/// Case 2: the API thread and two virtual CPUs wait for the worker, which sleeps in fsync.
fn snapshot() -> Script {
    let mut script = Script::new();
    let waiting = script.stack(&["main", "app::branch", "std::thread::park", "Parker::park"]);
    let writing = script.stack(&["main", "app::write_snapshot", "fsync"]);
    script
        .thread(1, "api")
        .thread(2, "vcpu-0")
        .thread(3, "vcpu-1")
        .thread(4, "worker");
    for episode in 0..3 {
        let from = episode * 200;
        script
            .wait(4, FUTEX, from, from + 2)
            .stack(waiting)
            .word(0x400)
            .by(1)
            .done();
        script
            .wait(4, 74, from + 3, from + 150)
            .stack(writing)
            .done();
        for tid in [1, 2, 3] {
            script
                .wait(tid, FUTEX, from + 3, from + 151)
                .stack(waiting)
                .word(u64::from(tid) * 64)
                .by(4)
                .done();
        }
        script
            .request(episode + 1)
            .ready(from + 1)
            .read(from + 1, 1)
            .answered(from + 152, 1);
    }
    script.ends(700);
    script
}

#[test]
fn those_who_wait_for_the_result_cost_nothing() {
    let findings = detect(&snapshot().model());
    assert_eq!(findings.len(), 1);
    let finding = &findings[0];
    assert_eq!(
        (finding.severity, finding.saving.at_most_ns),
        (Severity::Note, 0)
    );
    assert_eq!(
        finding.subject["threads"],
        json!([1, 2, 3]),
        "{}",
        finding.title
    );
    assert!(
        finding.evidence[1].text.contains("result"),
        "{:?}",
        finding.evidence
    );
    assert!(!finding.title.contains("worker"), "{}", finding.title);
}

#[test]
fn those_who_wait_for_a_lock_are_not_harmless() {
    let mut script = Script::new();
    let locking = script.stack(&[
        "main",
        "app::branch",
        "pthread_mutex_lock",
        "__lll_lock_wait",
    ]);
    script.thread(1, "api").thread(4, "worker");
    script
        .wait(1, FUTEX, 3, 151)
        .stack(locking)
        .word(0x1000)
        .by(4)
        .done();
    script.request(1).ready(1).read(1, 1).answered(152, 1);
    script.ends(300);
    assert_eq!(detect(&script.model()), []);
}

#[test]
fn where_all_is_fast_idle_threads_are_no_news() {
    let mut script = Script::new();
    let waiting = script.stack(&["main", "app::next_job", "pthread_cond_wait"]);
    script.thread(1, "api").thread(2, "worker");
    script.wait(2, FUTEX, 0, 500).stack(waiting).by(1).done();
    script.request(1).ready(1).read(1, 1).answered(4, 1);
    script.ends(600);
    assert_eq!(detect(&script.model()), []);
}
