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
    let findings = detect(&Facts::of(&snapshot().model()));
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
fn that_nobody_waits_for_a_lock_is_said_only_if_it_is_known_of_all() {
    let title = |waiting: &[&str]| {
        let mut script = snapshot();
        let stack = script.stack(waiting);
        script.thread(5, "helper");
        script
            .wait(5, FUTEX, 1, 600)
            .stack(stack)
            .word(0x500)
            .done();
        let findings = detect(&Facts::of(&script.model()));
        assert_eq!(findings.len(), 1, "{findings:#?}");
        (findings[0].title.clone(), findings[0].confidence)
    };
    let told = |threads: &str| {
        format!(
            "large waits, 1.79 s in all: api (1) waits for the result; what {threads} wait for \
             does not show"
        )
    };
    let (with_helper, confidence) = title(&["main", "app::next_job", "pthread_cond_wait"]);
    assert_eq!(with_helper, told("helper (5), vcpu-0 (2) and vcpu-1 (3)"));
    assert_eq!(confidence, Confidence::Medium);
    // A thread that joins another one waits for no lock; the others still may.
    let (joining, _) = title(&["main", "app::stop", "pthread_join"]);
    assert!(
        joining.starts_with("large waits, 1.79 s in all: "),
        "{joining}"
    );
    assert!(!joining.contains("not for a lock"), "{joining}");
}

/// Those who wait for a result are named first, and no more are than there is room for.
#[test]
fn of_those_that_are_not_named_it_is_said_how_many_they_are() {
    let mut script = Script::new();
    let waiting = script.stack(&["main", "app::next_job", "pthread_cond_wait"]);
    let working = script.stack(&["main", "app::handle"]);
    script.thread(20, "worker").thread(21, "helper").ends(200);
    for tid in 1..=6 {
        script.thread(tid, "api");
        let wait = script.wait(tid, FUTEX, 1, 100).stack(waiting);
        wait.by(20).word(0x500 + 8 * u64::from(tid)).done();
        let request = script.request(tid.into()).ready(0).read(0, tid);
        request.answered(101, tid);
    }
    script.burns(20, working, 1, 100);
    script
        .wait(21, FUTEX, 1, 150)
        .stack(waiting)
        .word(0x900)
        .done();
    let findings = detect(&Facts::of(&script.model()));
    let title = &findings[0].title;
    assert!(
        title.ends_with("for the result; what 1 more thread waits for does not show"),
        "{title}"
    );
}

#[test]
fn threads_at_channels_wait_for_no_lock() {
    let title = |recv: &str| {
        let mut script = Script::new();
        let waiting = script.stack(&["main", "app::run", recv, "std::thread::park"]);
        let working = script.stack(&["main", "app::handle"]);
        script.thread(1, "api").thread(2, "vcpu");
        script.wait(2, FUTEX, 0, 100).stack(waiting).by(1).done();
        script.burns(1, working, 1, 100);
        script.request(1).ready(0).read(0, 1).answered(101, 1);
        script.ends(200);
        let findings = detect(&Facts::of(&script.model()));
        findings
            .iter()
            .map(|finding| finding.title.clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(
        title("<std::sync::mpsc::Receiver<Go>>::recv"),
        [
            "a large wait is harmless, 100 ms in all: vcpu (2) waits for work or a sign to go on, \
             not for a lock"
        ]
    );
    assert_eq!(
        title("app::wait"),
        ["a large wait, 100 ms in all: what vcpu (2) waits for does not show"]
    );
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
    assert_eq!(detect(&Facts::of(&script.model())), []);
}

#[test]
fn where_all_is_fast_idle_threads_are_no_news() {
    let mut script = Script::new();
    let waiting = script.stack(&["main", "app::next_job", "pthread_cond_wait"]);
    script.thread(1, "api").thread(2, "worker");
    script.wait(2, FUTEX, 0, 500).stack(waiting).by(1).done();
    script.request(1).ready(1).read(1, 1).answered(4, 1);
    script.ends(600);
    assert_eq!(detect(&Facts::of(&script.model())), []);
}
