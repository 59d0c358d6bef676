//! Scripts of rings, for the tests of the detectors that are about io_uring.

use whywait_events::uring::{Lag, LagKind, Ring, Sum};
use whywait_model::script::{Script, TGID, ms};

use crate::facts::Facts;
use crate::{Finding, find};

pub(crate) const TID: u32 = 7;
pub(crate) const S: u64 = 1_000_000_000;
pub(crate) const MS: u64 = 1_000_000;
pub(crate) const READ: u32 = 22;
pub(crate) const SEND: u32 = 26;
pub(crate) const FSYNC: u32 = 3;
/// The system call.
pub(crate) const FSYNC_CALL: u32 = 74;
pub(crate) const PPOLL: u32 = 271;

/// Ten seconds of a ring whose operations take the kernel a millisecond, and whose thread sees to
/// them at once.
pub(crate) fn ring() -> Ring {
    Ring {
        id: 1,
        tgid: TGID,
        user_tid: TID,
        fd: 3,
        sq_entries: 8,
        cq_entries: 16,
        submitted: 10_000,
        batches: 2_000,
        completed: 10_000,
        finished: 10_000,
        reaped: 10_000,
        waits: 2_000,
        max_slots: 8,
        observed_ns: 10 * S,
        slot_ns: 20 * S,
        flight_ns: 19 * S,
        unreaped_high_ns: S / 10,
        ..Ring::default()
    }
}

pub(crate) fn sum(opcode: u32) -> Sum {
    Sum {
        ring: 1,
        opcode,
        completed: 10_000,
        timed: 10_000,
        kernel_ns: 10 * S,
        ..Sum::default()
    }
}

pub(crate) fn script(ring: Ring, sum: Sum) -> Script {
    let mut script = Script::new();
    script
        .thread(TID, "loop")
        .ring(ring, vec![sum])
        .ends(10_000);
    script
}

/// The codes of a ring in which nothing is wrong.
pub(crate) const NOTHING: [&str; 0] = [];

pub(crate) fn found(script: &Script) -> Vec<Finding> {
    find(&Facts::of(&script.model()))
}

pub(crate) fn codes(script: &Script) -> Vec<&'static str> {
    found(script)
        .into_iter()
        .map(|finding| finding.code.name())
        .collect()
}

pub(crate) fn lags(script: &mut Script, kind: LagKind, times: u64, each_ms: u64) {
    for time in 0..times {
        script.ring_lag(&Lag {
            ring: 1,
            kind,
            from_ns: ms(time * 100),
            low_ns: each_ms * MS,
            high_ns: (each_ms + 5) * MS,
            tid: TID,
            ..Lag::default()
        });
    }
}

/// Entries lie published for a while.
pub(crate) fn unsubmitted() -> Ring {
    Ring {
        queued_low_ns: 2_000 * S,
        queued_high_ns: 2_100 * S,
        ..ring()
    }
}

/// Sends that wait for a millisecond each for room in their socket's buffer.
pub(crate) fn blocked() -> Sum {
    Sum {
        polled: 10_000,
        polled_timed: 10_000,
        polled_ns: 10 * S,
        ..sum(SEND)
    }
}

#[test]
fn a_healthy_ring_is_not_mentioned() {
    assert_eq!(codes(&script(ring(), sum(READ))), NOTHING);
}
