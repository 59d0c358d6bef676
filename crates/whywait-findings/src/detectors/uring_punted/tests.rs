use whywait_events::uring::Sum;

use crate::shared::rings::script::*;

#[test]
fn reads_that_are_punted_and_syncs_that_must_be() {
    let punted = |opcode| Sum {
        punted: 9_000,
        punted_timed: 9_000,
        punted_ns: 9 * S,
        ..sum(opcode)
    };
    assert_eq!(codes(&script(ring(), punted(READ))), ["uring-punted"]);
    assert_eq!(codes(&script(ring(), punted(FSYNC))), NOTHING);
    // Workers take the CPU from the program that is to take the completions: how long those lay is
    // in the bound.
    let lay = Sum {
        marks: 1_000,
        mark_high_ns: S,
        ..punted(READ)
    };
    let findings = found(&script(ring(), lay));
    assert_eq!(findings[0].saving.at_most_ns, 18 * S);
}

#[test]
fn no_more_than_all_that_operations_took() {
    let lay = Sum {
        punted: 9_000,
        punted_timed: 9_000,
        punted_ns: 9 * S,
        marks: 1_000,
        mark_high_ns: S,
        ..sum(READ)
    };
    let slots = whywait_events::uring::Ring {
        slot_ns: 12 * S,
        ..ring()
    };
    assert_eq!(found(&script(slots, lay))[0].saving.at_most_ns, 12 * S);
}
