//! Arbitrary rows about io_uring.

use std::collections::BTreeMap;

use proptest::collection::btree_map;
use proptest::prelude::*;
use whywait_events::uring::*;

use super::{id, time};

fn ring() -> impl Strategy<Value = Ring> {
    use RingOrigin::*;
    let origin = prop::sample::select(vec![Created, Found, FirstEvent]);
    (
        id(),
        any::<i32>(),
        origin,
        any::<[u32; 11]>(),
        any::<[u64; 26]>(),
    )
        .prop_map(|(id, fd, origin, small, large)| Ring {
            id,
            fd,
            origin,
            tgid: small[0],
            creator_tid: small[1],
            user_tid: small[2],
            sqpoll_tid: small[3],
            sq_entries: small[4],
            cq_entries: small[5],
            flags: small[6],
            files: small[7],
            buffers: small[8],
            max_slots: small[9],
            max_unreaped: small[10],
            users_changed: large[0],
            first_ns: large[1],
            last_ns: large[2],
            submitted: large[3],
            batches: large[4],
            full_batches: large[5],
            completed: large[6],
            finished: large[7],
            failed: large[8],
            reaped: large[9],
            overflows: large[10],
            waits: large[11],
            observed_ns: large[12],
            idle_ns: large[13],
            slot_ns: large[14],
            flight_ns: large[15],
            at_max_ns: large[16],
            at_depth_ns: large[17],
            queued_low_ns: large[18],
            queued_high_ns: large[19],
            unreaped_low_ns: large[20],
            unreaped_high_ns: large[21],
            asleep_ns: large[22],
            stalled_waits: large[23],
            memory_limits: large[24],
            held_back_ns: large[25],
        })
}

fn histogram() -> impl Strategy<Value = BTreeMap<u16, u64>> {
    btree_map(0u16..64, any::<u64>(), 0..5)
}

fn sum() -> impl Strategy<Value = Sum> {
    (
        id(),
        0u32..64,
        any::<u32>(),
        any::<[u64; 16]>(),
        histogram(),
        histogram(),
    )
        .prop_map(|(ring, opcode, kinds, large, kernel, unreaped)| Sum {
            ring,
            opcode,
            kinds,
            kernel,
            unreaped,
            at_ns: large[0],
            completed: large[1],
            failed: large[2],
            punted: large[3],
            polled: large[4],
            more: large[5],
            timed: large[6],
            kernel_ns: large[7],
            kernel_max_ns: large[8],
            punted_timed: large[9],
            punted_ns: large[10],
            marks: large[11],
            mark_low_ns: large[12],
            mark_high_ns: large[13],
            polled_timed: large[14],
            polled_ns: large[15],
        })
}

fn op() -> impl Strategy<Value = Op> {
    (
        (id(), time(), time(), any::<u32>()),
        (any::<i32>(), any::<i32>(), id(), any::<[bool; 3]>()),
    )
        .prop_map(|(a, b)| Op {
            ring: a.0,
            submit_ns: a.1,
            complete_ns: a.2,
            opcode: a.3,
            fd: b.0,
            result: b.1,
            tid: b.2,
            punted: b.3[0],
            polled: b.3[1],
            sampled: b.3[2],
        })
}

fn sample() -> impl Strategy<Value = RingSample> {
    (
        id(),
        time(),
        id(),
        prop::option::of(time()),
        any::<[u32; 3]>(),
        any::<[u64; 2]>(),
    )
        .prop_map(|(ring, at_ns, tid, oldest_ns, small, large)| RingSample {
            ring,
            at_ns,
            tid,
            oldest_ns,
            unreaped: small[0],
            pending: small[1],
            in_flight: small[2],
            on_cpu_ns: large[0],
            runnable_ns: large[1],
        })
}

fn lag() -> impl Strategy<Value = Lag> {
    use LagKind::*;
    let kind = prop::sample::select(vec![Unreaped, Unsubmitted]);
    (id(), kind, time(), any::<[u64; 2]>(), any::<[u32; 3]>()).prop_map(
        |(ring, kind, from_ns, large, small)| Lag {
            ring,
            kind,
            from_ns,
            low_ns: large[0],
            high_ns: large[1],
            opcode: small[0],
            tid: small[1],
            count: small[2],
        },
    )
}

/// Anything about a ring.
pub(crate) fn event() -> impl Strategy<Value = RingEvent> {
    prop_oneof![
        ring().prop_map(RingEvent::Ring),
        sum().prop_map(|sum| RingEvent::Sum(Box::new(sum))),
        op().prop_map(RingEvent::Op),
        sample().prop_map(RingEvent::Sample),
        lag().prop_map(RingEvent::Lag),
    ]
}
