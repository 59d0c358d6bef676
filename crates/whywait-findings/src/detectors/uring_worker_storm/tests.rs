use whywait_events::uring::Sum;
use whywait_model::script::Script;

use crate::SavingKind;
use crate::shared::rings::script::*;

/// So many workers, made one after the other and never more than `at_a_time` of them alive.
fn workers(made: u32, at_a_time: u32) -> Script {
    let handed = Sum {
        punted: 4_000,
        punted_timed: 4_000,
        punted_ns: 8 * S,
        ..sum(READ)
    };
    let mut script = script(ring(), handed);
    for worker in 0..made {
        let tid = 1_000 + worker;
        let at_ms = u64::from(worker) * 10;
        script.made(tid, "iou-wrk-7", at_ms, TID);
        script.ends_thread(tid, at_ms + u64::from(at_a_time) * 10);
    }
    script
}

#[test]
fn hundreds_of_workers() {
    let findings = found(&workers(300, 200));
    assert_eq!(findings.len(), 1, "{findings:#?}");
    assert_eq!(findings[0].code.name(), "uring-worker-storm");
    assert_eq!(findings[0].subject["workers"], 200);
    assert_eq!(findings[0].saving.kind, SavingKind::Cpu);
}

#[test]
fn as_many_as_the_kernel_has_for_disks() {
    assert_eq!(codes(&workers(300, 31)), NOTHING);
    let mut large = workers(300, 200);
    large.recorded(|recorded| recorded.meta.host.cpus = 50);
    assert_eq!(codes(&large), NOTHING);
}

#[test]
fn workers_that_did_nothing_for_the_ring() {
    let mut idle = workers(300, 200);
    idle.ring(ring(), vec![sum(READ)]);
    assert_eq!(codes(&idle), NOTHING);
}
