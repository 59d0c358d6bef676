use whywait_events::uring::{Ring, RingSample, SETUP_SQPOLL};

use whywait_model::script::Script;

use crate::shared::rings::script::*;
use crate::{SavingKind, Severity};

/// Ten seconds of 20,000 operations a second, each by a call of its own, eight under way.
fn unbatched() -> Ring {
    Ring {
        sq_entries: 32,
        submitted: 200_000,
        batches: 200_000,
        completed: 200_000,
        slot_ns: 80 * S,
        ..ring()
    }
}

/// So many samples of a ring's thread in these calls, and elsewhere.
fn samples(script: &mut Script, ring: u32, in_call: u64, elsewhere: u64) {
    let user_stack = script.stack(&["main", "serve", "io_uring_submit"]);
    let enters = script.stack(&["__x64_sys_io_uring_enter", "io_submit_sqes"]);
    let standing = RingSample {
        ring,
        tid: TID,
        ..RingSample::default()
    };
    script.ring_samples((user_stack, enters), &standing, in_call);
    script.ring_samples((user_stack, 0), &standing, elsewhere);
}

#[test]
fn a_call_for_each_operation() {
    let mut script = script(unbatched(), sum(READ));
    samples(&mut script, 1, 400, 600);
    let findings = found(&script);
    assert_eq!(findings.len(), 1, "{findings:#?}");
    let finding = &findings[0];
    assert_eq!(finding.code.name(), "uring-unbatched");
    assert_eq!(finding.severity, Severity::Note);
    assert_eq!(finding.saving.kind, SavingKind::Cpu);
    // 200 samples a second: 400, and twice 20.
    assert_eq!(finding.saving.at_most_ns, 441 * 5 * MS);
    assert!(finding.evidence[0].text.contains("40 % of its CPU time"));
}

#[test]
fn batches_pollers_and_what_is_rare_or_one_by_one() {
    let others = [
        Ring {
            batches: 100_000,
            ..unbatched()
        },
        Ring {
            flags: SETUP_SQPOLL,
            ..unbatched()
        },
        Ring {
            slot_ns: 9 * S,
            ..unbatched()
        },
    ];
    for other in others {
        let mut script = script(other.clone(), sum(READ));
        samples(&mut script, 1, 400, 600);
        assert_eq!(codes(&script), NOTHING, "{other:?}");
    }
}

/// Few operations count as much as many do, if their calls take as long.
#[test]
fn what_the_calls_cost_counts_and_not_how_many_there_are() {
    let few = Ring {
        submitted: 500,
        batches: 500,
        completed: 500,
        ..unbatched()
    };
    let said = |ring: Ring, in_call, elsewhere| {
        let mut script = script(ring, sum(READ));
        samples(&mut script, 1, in_call, elsewhere);
        codes(&script)
    };
    assert_eq!(said(few.clone(), 300, 30), ["uring-unbatched"]);
    assert_eq!(said(few, 50, 0), NOTHING);
    assert_eq!(said(unbatched(), 50, 950), NOTHING);
}

/// A loop that looks for completions all the time, and submits with one call in a hundred.
#[test]
fn calls_that_submit_nothing_do_not_count() {
    let mut script = script(unbatched(), sum(READ));
    let user_stack = script.stack(&["main", "serve", "syscall"]);
    let looks = script.stack(&["__x64_sys_io_uring_enter", "io_cqring_wait"]);
    let standing = RingSample {
        ring: 1,
        tid: TID,
        ..RingSample::default()
    };
    script.ring_samples((user_stack, looks), &standing, 900);
    samples(&mut script, 1, 9, 91);
    assert_eq!(codes(&script), NOTHING);
}

#[test]
fn several_rings_of_a_process_are_one_note() {
    let mut script = script(unbatched(), sum(READ));
    let second = Ring {
        id: 2,
        batches: 210_000,
        submitted: 210_000,
        ..unbatched()
    };
    script.ring(second, vec![sum(READ)]);
    samples(&mut script, 1, 400, 600);
    samples(&mut script, 2, 400, 600);
    let findings = found(&script);
    assert_eq!(findings.len(), 1, "{findings:#?}");
    assert_eq!(findings[0].subject["ring"], 2);
    assert_eq!(findings[0].saving.requests, 410_000);
}
