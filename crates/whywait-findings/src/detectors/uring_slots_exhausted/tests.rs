use whywait_events::uring::{Ring, RingSample, Sum};
use whywait_model::script::{Script, ms};

use crate::shared::rings::script::*;

#[test]
fn slots_are_exhausted_only_for_a_thread_that_has_more_to_submit() {
    let full = Ring {
        at_depth_ns: 9 * S,
        stalled_waits: 1_500,
        ..ring()
    };
    assert_eq!(
        codes(&script(full.clone(), sum(READ))),
        ["uring-slots-exhausted"]
    );
    // One that is just being completed is counted twice, of each eight.
    let twice = Ring {
        max_slots: 10,
        ..full.clone()
    };
    assert_eq!(codes(&script(twice, sum(READ))), ["uring-slots-exhausted"]);
    // A few of its many waits were in vain.
    let seldom = Ring {
        waits: 20_000,
        ..full.clone()
    };
    assert_eq!(codes(&script(seldom, sum(READ))), NOTHING);
    // As many under way as there are slots, one more for each that completes: a benchmark.
    let closed = Ring {
        stalled_waits: 0,
        ..full.clone()
    };
    assert_eq!(codes(&script(closed, sum(READ))), NOTHING);
    let synchronous = Ring {
        sq_entries: 1,
        ..full.clone()
    };
    assert_eq!(codes(&script(synchronous, sum(READ))), NOTHING);
    // It had twice as many under way: the submission queue's entries are not what it stops at.
    let beyond = Ring {
        max_slots: 16,
        ..full
    };
    assert_eq!(codes(&script(beyond, sum(READ))), NOTHING);
}

#[test]
fn more_slots_save_no_more_than_the_ring_was_full_for() {
    let full = Ring {
        at_depth_ns: 9 * S,
        stalled_waits: 1_500,
        ..ring()
    };
    let mut script = script(full, sum(READ));
    let gain = |script: &Script| found(script)[0].subject["throughput_at_most_percent"].clone();
    // Nine tenths of the time are gone.
    assert_eq!(gain(&script), 900);
    assert_eq!(found(&script)[0].saving.at_most_ns, 9 * S);
    // The thread had a CPU for a quarter of the time: four times as much is all that it can do.
    let stack = script.stack(&["main", "serve"]);
    let first = RingSample {
        ring: 1,
        tid: TID,
        at_ns: ms(0),
        ..RingSample::default()
    };
    let last = RingSample {
        at_ns: ms(10_000),
        on_cpu_ns: 5 * S / 2,
        ..first.clone()
    };
    script
        .ring_samples((stack, 0), &first, 1)
        .ring_samples((stack, 0), &last, 1);
    assert_eq!(gain(&script), 300);
}

#[test]
fn slots_that_a_socket_holds_are_not_the_loops() {
    let full = Ring {
        at_depth_ns: 9 * S,
        stalled_waits: 1_500,
        memory_limits: 3,
        ..ring()
    };
    let findings = found(&script(full.clone(), blocked()));
    assert_eq!(findings.len(), 1, "{findings:#?}");
    assert_eq!(findings[0].code.name(), "uring-slots-exhausted");
    assert_eq!(findings[0].subject["held_by"], "socket");
    let said = |text: &str| {
        findings[0]
            .evidence
            .iter()
            .any(|item| item.text.contains(text))
    };
    assert!(said("held by the socket, not by the loop"), "{findings:#?}");
    assert!(said("3 sends met a limit"), "{findings:#?}");
    // Receiving waits for readiness as well; that is not a send buffer's matter.
    let receiving = Sum {
        opcode: 27,
        ..blocked()
    };
    let findings = found(&script(full, receiving));
    assert_eq!(findings[0].subject["held_by"], "kernel");
}
