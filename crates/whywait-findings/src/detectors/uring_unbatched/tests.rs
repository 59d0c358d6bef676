use whywait_events::uring::{Ring, RingSample, SETUP_SQPOLL};

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

#[test]
fn a_call_for_each_operation() {
    let mut script = script(unbatched(), sum(READ));
    let user_stack = script.stack(&["main", "serve", "io_uring_submit"]);
    let enters = script.stack(&["__x64_sys_io_uring_enter", "io_submit_sqes"]);
    let standing = RingSample {
        ring: 1,
        tid: TID,
        ..RingSample::default()
    };
    script.ring_samples((user_stack, enters), &standing, 400);
    script.ring_samples((user_stack, 0), &standing, 600);
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
            submitted: 40_000,
            batches: 40_000,
            ..unbatched()
        },
        Ring {
            submitted: 4_000,
            batches: 4_000,
            observed_ns: S / 2,
            ..unbatched()
        },
        Ring {
            slot_ns: 9 * S,
            ..unbatched()
        },
    ];
    for other in others {
        assert_eq!(
            codes(&script(other.clone(), sum(READ))),
            NOTHING,
            "{other:?}"
        );
    }
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
    let findings = found(&script);
    assert_eq!(findings.len(), 1, "{findings:#?}");
    assert_eq!(findings[0].subject["ring"], 2);
    assert_eq!(findings[0].saving.requests, 410_000);
}
