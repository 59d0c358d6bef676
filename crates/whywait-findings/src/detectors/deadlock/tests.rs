//! Scripts of events that must, or must not, be `deadlock`.

use serde_json::json;
use whywait_events::{TaskLook, TaskState};
use whywait_model::script::{Script, TGID, ms};

use super::*;

const FUTEX: u32 = 202;

fn two(script: &mut Script) -> (u32, u32) {
    script.thread(1, "conn-0").thread(2, "conn-1");
    let of = |script: &mut Script, function| {
        script.stack(&["main", function, "pthread_mutex_lock", "__lll_lock_wait"])
    };
    (
        of(script, "app::transfer_ab"),
        of(script, "app::transfer_ba"),
    )
}

#[test]
fn owners_that_wait_for_each_other_are_deadlocked() {
    let mut script = Script::new();
    let (ab, ba) = two(&mut script);
    script
        .wait(1, FUTEX, 10, 10)
        .stack(ab)
        .word(0x2000)
        .owner(2)
        .forever()
        .done();
    script
        .wait(2, FUTEX, 11, 11)
        .stack(ba)
        .word(0x1000)
        .owner(1)
        .forever()
        .done();
    script.request(1).ready(5).read(5, 1).unanswered();
    script.ends(2000);
    let findings = detect(&Facts::of(&script.model()));
    assert_eq!(findings.len(), 1, "{findings:#?}");
    let finding = &findings[0];
    assert_eq!(
        (finding.severity, finding.confidence),
        (Severity::Error, Confidence::High)
    );
    assert_eq!(finding.subject["threads"], json!([1, 2]));
    assert!(
        finding.evidence[0].text.contains("app::transfer_ab"),
        "{:?}",
        finding.evidence
    );
    assert_eq!(finding.saving.requests, 1);
}

#[test]
fn guards_on_the_stacks_close_the_circle_where_locks_name_no_owner() {
    let mut script = Script::new();
    let (ab, ba) = two(&mut script);
    script
        .wait(1, FUTEX, 10, 10)
        .stack(ab)
        .word(0x2000)
        .holds(0x1000)
        .forever()
        .done();
    script
        .wait(2, FUTEX, 11, 11)
        .stack(ba)
        .word(0x1000)
        .holds(0x2000)
        .forever()
        .done();
    script.ends(2000);
    let findings = detect(&Facts::of(&script.model()));
    assert_eq!(findings.len(), 1, "{findings:#?}");
    assert_eq!(findings[0].confidence, Confidence::Medium);
}

#[test]
fn a_thread_that_waits_for_its_own_mutex_is_deadlocked_alone() {
    let mut script = Script::new();
    let (ab, _) = two(&mut script);
    script
        .wait(1, FUTEX, 10, 10)
        .stack(ab)
        .word(0x2000)
        .owner(1)
        .forever()
        .done();
    script.ends(2000);
    let findings = detect(&Facts::of(&script.model()));
    assert_eq!(findings.len(), 1, "{findings:#?}");
    assert!(
        findings[0].title.contains("itself"),
        "{}",
        findings[0].title
    );
}

#[test]
fn a_lock_whose_holder_sleeps_elsewhere_is_no_circle() {
    let mut script = Script::new();
    let (ab, ba) = two(&mut script);
    script.thread(3, "writer");
    script
        .wait(1, FUTEX, 10, 10)
        .stack(ab)
        .word(0x2000)
        .owner(3)
        .forever()
        .done();
    script
        .wait(2, FUTEX, 11, 11)
        .stack(ba)
        .word(0x1000)
        .owner(3)
        .forever()
        .done();
    script.wait(3, 74, 5, 5).forever().done();
    script.ends(2000);
    assert_eq!(detect(&Facts::of(&script.model())), []);
}

#[test]
fn waits_that_only_began_are_none() {
    let mut script = Script::new();
    let (ab, ba) = two(&mut script);
    script
        .wait(1, FUTEX, 10, 10)
        .stack(ab)
        .word(0x2000)
        .owner(2)
        .forever()
        .done();
    script
        .wait(2, FUTEX, 11, 11)
        .stack(ba)
        .word(0x1000)
        .owner(1)
        .forever()
        .done();
    script.ends(100);
    assert_eq!(detect(&Facts::of(&script.model())), []);
}

/// Coroutines that wait for locks: which one each waits for, and which it has.
fn coroutines(locks: &[(u64, u64)], until_ms: u64) -> Script {
    let mut script = Script::new();
    script.thread(10, "server");
    let file = "/usr/lib/python3.13/asyncio/locks.py";
    let frames = [
        ("transfer", "/srv/app/bank.py", 40),
        ("Lock.acquire", file, 111),
    ];
    let stack = script.coroutines(&frames);
    for (task, (lock, held)) in locks.iter().enumerate() {
        let socket = task as u64 + 1;
        script.request(socket).ready(5).read(5, 10).unanswered();
        for at in (10..until_ms).step_by(200) {
            script.task_look(&TaskLook {
                at_ns: ms(at),
                read_ns: ms(at),
                tgid: TGID,
                task: task as u32 + 1,
                state: TaskState::Waiting,
                stack,
                lock: *lock,
                held: *held,
                ..TaskLook::default()
            });
        }
    }
    script.ends(until_ms);
    script
}

#[test]
fn coroutines_that_have_what_the_other_waits_for_are_deadlocked() {
    let locks = [(0x2000, 0x1000), (0x1000, 0x2000), (0x1000, 0), (0x1000, 0)];
    let findings = detect(&Facts::of(&coroutines(&locks, 1000).model()));
    let [finding] = &findings[..] else {
        panic!("one is expected: {findings:#?}");
    };
    let place = "asyncio.Lock.acquire in transfer (bank.py:40)";
    assert!(finding.title.starts_with("2 tasks"), "{}", finding.title);
    assert!(finding.title.contains(place), "{}", finding.title);
    assert_eq!(finding.saving.requests, 4);
    assert_eq!(detect(&Facts::of(&coroutines(&locks, 400).model())), []);
}

#[test]
fn coroutines_behind_one_that_waits_for_nothing_are_in_no_circle() {
    let locks = [(0x2000, 0x1000), (0x3000, 0x2000)];
    assert_eq!(detect(&Facts::of(&coroutines(&locks, 1000).model())), []);
}
