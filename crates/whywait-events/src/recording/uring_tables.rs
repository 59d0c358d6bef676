//! The tables about io_uring.

use std::ops::Range;

use super::column::{AnyColumn, Flag, Int, Kind, Layout, Long, LongOrNull, Spec, Text};
use super::tables::{Columns, Table, after, at, columns, spans};
use crate::Ns;
use crate::uring::{Lag, LagKind, Op, Ring, RingOrigin, RingSample, Sum};

columns!(RingColumns {
    ring: Int Dictionary,
    tgid: Int Dictionary,
    creator_tid: Int Dictionary,
    user_tid: Int Dictionary,
    users_changed: Long Delta,
    sqpoll_tid: Int Dictionary,
    origin: Text Dictionary,
    fd: Int Dictionary,
    sq_entries: Int Dictionary,
    cq_entries: Int Dictionary,
    flags: Int Dictionary,
    files: Int Dictionary,
    buffers: Int Dictionary,
    first_ns: Long Delta,
    last_ns: Long Delta,
    submitted: Long Delta,
    batches: Long Delta,
    full_batches: Long Delta,
    completed: Long Delta,
    finished: Long Delta,
    failed: Long Delta,
    reaped: Long Delta,
    overflows: Long Delta,
    waits: Long Delta,
    max_slots: Int Delta,
    max_unreaped: Int Delta,
    observed_ns: Long Delta,
    idle_ns: Long Delta,
    slot_ns: Long Delta,
    flight_ns: Long Delta,
    at_max_ns: Long Delta,
    at_depth_ns: Long Delta,
    queued_low_ns: Long Delta,
    queued_high_ns: Long Delta,
    unreaped_low_ns: Long Delta,
    unreaped_high_ns: Long Delta,
    asleep_ns: Long Delta,
    stalled_waits: Long Delta,
    memory_limits: LongOrNull Delta,
    held_back_ns: LongOrNull Delta,
});

pub(crate) struct Rings;

impl Table for Rings {
    const NAME: &'static str = "rings";
    const LATER: bool = true;
    const SPAN: Option<(&'static str, &'static [&'static str])> = None;
    type Row = Ring;
    type Columns = RingColumns;

    fn put(columns: &mut RingColumns, row: &Ring) {
        columns.ring.put(row.id as i32);
        columns.tgid.put(row.tgid as i32);
        columns.creator_tid.put(row.creator_tid as i32);
        columns.user_tid.put(row.user_tid as i32);
        columns.users_changed.put(row.users_changed as i64);
        columns.sqpoll_tid.put(row.sqpoll_tid as i32);
        columns.origin.put_static(row.origin.name());
        columns.fd.put(row.fd);
        columns.sq_entries.put(row.sq_entries as i32);
        columns.cq_entries.put(row.cq_entries as i32);
        columns.flags.put(row.flags as i32);
        columns.files.put(row.files as i32);
        columns.buffers.put(row.buffers as i32);
        columns.first_ns.put(row.first_ns as i64);
        columns.last_ns.put(row.last_ns as i64);
        columns.submitted.put(row.submitted as i64);
        columns.batches.put(row.batches as i64);
        columns.full_batches.put(row.full_batches as i64);
        columns.completed.put(row.completed as i64);
        columns.finished.put(row.finished as i64);
        columns.failed.put(row.failed as i64);
        columns.reaped.put(row.reaped as i64);
        columns.overflows.put(row.overflows as i64);
        columns.waits.put(row.waits as i64);
        columns.max_slots.put(row.max_slots as i32);
        columns.max_unreaped.put(row.max_unreaped as i32);
        columns.observed_ns.put(row.observed_ns as i64);
        columns.idle_ns.put(row.idle_ns as i64);
        columns.slot_ns.put(row.slot_ns as i64);
        columns.flight_ns.put(row.flight_ns as i64);
        columns.at_max_ns.put(row.at_max_ns as i64);
        columns.at_depth_ns.put(row.at_depth_ns as i64);
        columns.queued_low_ns.put(row.queued_low_ns as i64);
        columns.queued_high_ns.put(row.queued_high_ns as i64);
        columns.unreaped_low_ns.put(row.unreaped_low_ns as i64);
        columns.unreaped_high_ns.put(row.unreaped_high_ns as i64);
        columns.asleep_ns.put(row.asleep_ns as i64);
        columns.stalled_waits.put(row.stalled_waits as i64);
        columns.memory_limits.put(Some(row.memory_limits as i64));
        columns.held_back_ns.put(Some(row.held_back_ns as i64));
    }

    fn take(columns: &mut RingColumns) -> Option<Ring> {
        Some(Ring {
            id: columns.ring.take() as u32,
            tgid: columns.tgid.take() as u32,
            creator_tid: columns.creator_tid.take() as u32,
            user_tid: columns.user_tid.take() as u32,
            users_changed: columns.users_changed.take() as u64,
            sqpoll_tid: columns.sqpoll_tid.take() as u32,
            // One that a newer version may have added says less than the row.
            origin: columns
                .origin
                .take_text(RingOrigin::from_name)
                .flatten()
                .unwrap_or_default(),
            fd: columns.fd.take(),
            sq_entries: columns.sq_entries.take() as u32,
            cq_entries: columns.cq_entries.take() as u32,
            flags: columns.flags.take() as u32,
            files: columns.files.take() as u32,
            buffers: columns.buffers.take() as u32,
            first_ns: columns.first_ns.take() as u64,
            last_ns: columns.last_ns.take() as u64,
            submitted: columns.submitted.take() as u64,
            batches: columns.batches.take() as u64,
            full_batches: columns.full_batches.take() as u64,
            completed: columns.completed.take() as u64,
            finished: columns.finished.take() as u64,
            failed: columns.failed.take() as u64,
            reaped: columns.reaped.take() as u64,
            overflows: columns.overflows.take() as u64,
            waits: columns.waits.take() as u64,
            max_slots: columns.max_slots.take() as u32,
            max_unreaped: columns.max_unreaped.take() as u32,
            observed_ns: columns.observed_ns.take() as u64,
            idle_ns: columns.idle_ns.take() as u64,
            slot_ns: columns.slot_ns.take() as u64,
            flight_ns: columns.flight_ns.take() as u64,
            at_max_ns: columns.at_max_ns.take() as u64,
            at_depth_ns: columns.at_depth_ns.take() as u64,
            queued_low_ns: columns.queued_low_ns.take() as u64,
            queued_high_ns: columns.queued_high_ns.take() as u64,
            unreaped_low_ns: columns.unreaped_low_ns.take() as u64,
            unreaped_high_ns: columns.unreaped_high_ns.take() as u64,
            asleep_ns: columns.asleep_ns.take() as u64,
            stalled_waits: columns.stalled_waits.take() as u64,
            memory_limits: columns.memory_limits.take().unwrap_or_default() as u64,
            held_back_ns: columns.held_back_ns.take().unwrap_or_default() as u64,
        })
    }
}

columns!(SumColumns {
    ring: Int Dictionary,
    opcode: Int Dictionary,
    at_ns: Long Delta,
    completed: Long Delta,
    failed: Long Delta,
    punted: Long Delta,
    polled: Long Delta,
    more: Long Delta,
    kinds: Int Dictionary,
    timed: Long Delta,
    kernel_ns: Long Delta,
    kernel_max_ns: Long Delta,
    punted_timed: Long Delta,
    punted_ns: Long Delta,
    polled_timed: LongOrNull Delta,
    polled_ns: LongOrNull Delta,
    marks: Long Delta,
    mark_low_ns: Long Delta,
    mark_high_ns: Long Delta,
});

/// Without the histograms, which have a table of their own.
pub(crate) struct RingSums;

impl Table for RingSums {
    const NAME: &'static str = "ring_sums";
    const LATER: bool = true;
    const SPAN: Option<(&'static str, &'static [&'static str])> = None;
    type Row = Sum;
    type Columns = SumColumns;

    fn put(columns: &mut SumColumns, row: &Sum) {
        columns.ring.put(row.ring as i32);
        columns.opcode.put(row.opcode as i32);
        columns.at_ns.put(row.at_ns as i64);
        columns.completed.put(row.completed as i64);
        columns.failed.put(row.failed as i64);
        columns.punted.put(row.punted as i64);
        columns.polled.put(row.polled as i64);
        columns.more.put(row.more as i64);
        columns.kinds.put(row.kinds as i32);
        columns.timed.put(row.timed as i64);
        columns.kernel_ns.put(row.kernel_ns as i64);
        columns.kernel_max_ns.put(row.kernel_max_ns as i64);
        columns.punted_timed.put(row.punted_timed as i64);
        columns.punted_ns.put(row.punted_ns as i64);
        columns.polled_timed.put(Some(row.polled_timed as i64));
        columns.polled_ns.put(Some(row.polled_ns as i64));
        columns.marks.put(row.marks as i64);
        columns.mark_low_ns.put(row.mark_low_ns as i64);
        columns.mark_high_ns.put(row.mark_high_ns as i64);
    }

    fn take(columns: &mut SumColumns) -> Option<Sum> {
        Some(Sum {
            ring: columns.ring.take() as u32,
            opcode: columns.opcode.take() as u32,
            at_ns: columns.at_ns.take() as u64,
            completed: columns.completed.take() as u64,
            failed: columns.failed.take() as u64,
            punted: columns.punted.take() as u64,
            polled: columns.polled.take() as u64,
            more: columns.more.take() as u64,
            kinds: columns.kinds.take() as u32,
            timed: columns.timed.take() as u64,
            kernel_ns: columns.kernel_ns.take() as u64,
            kernel_max_ns: columns.kernel_max_ns.take() as u64,
            punted_timed: columns.punted_timed.take() as u64,
            punted_ns: columns.punted_ns.take() as u64,
            polled_timed: columns.polled_timed.take().unwrap_or_default() as u64,
            polled_ns: columns.polled_ns.take().unwrap_or_default() as u64,
            marks: columns.marks.take() as u64,
            mark_low_ns: columns.mark_low_ns.take() as u64,
            mark_high_ns: columns.mark_high_ns.take() as u64,
            ..Sum::default()
        })
    }
}

/// A bucket of a histogram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Bucket {
    pub(crate) ring: u32,
    pub(crate) opcode: u32,
    /// Of how long the kernel took; otherwise of how long the completion waited.
    pub(crate) kernel: bool,
    pub(crate) bucket: u16,
    pub(crate) count: u64,
}

columns!(BucketColumns {
    ring: Int Dictionary,
    opcode: Int Dictionary,
    kernel: Flag Plain,
    bucket: Int Dictionary,
    count: Long Delta,
});

pub(crate) struct RingHistograms;

impl Table for RingHistograms {
    const NAME: &'static str = "ring_histograms";
    const LATER: bool = true;
    const SPAN: Option<(&'static str, &'static [&'static str])> = None;
    type Row = Bucket;
    type Columns = BucketColumns;

    fn put(columns: &mut BucketColumns, row: &Bucket) {
        columns.ring.put(row.ring as i32);
        columns.opcode.put(row.opcode as i32);
        columns.kernel.put(row.kernel);
        columns.bucket.put(i32::from(row.bucket));
        columns.count.put(row.count as i64);
    }

    fn take(columns: &mut BucketColumns) -> Option<Bucket> {
        let (ring, opcode) = (columns.ring.take() as u32, columns.opcode.take() as u32);
        let kernel = columns.kernel.take();
        let bucket = columns.bucket.take();
        let count = columns.count.take() as u64;
        Some(Bucket {
            ring,
            opcode,
            kernel,
            bucket: u16::try_from(bucket).ok().filter(|bucket| *bucket < 64)?,
            count,
        })
    }
}

columns!(OpColumns {
    ring: Int Dictionary,
    submit_ns: Long Delta bounds,
    duration_ns: Long Delta,
    opcode: Int Dictionary,
    fd: Int Dictionary,
    result: Int Dictionary,
    tid: Int Dictionary,
    punted: Flag Plain,
    polled: Flag Plain,
    sampled: Flag Plain,
});

pub(crate) struct RingOps;

impl Table for RingOps {
    const NAME: &'static str = "ring_ops";
    const LATER: bool = true;
    const SPAN: Option<(&'static str, &'static [&'static str])> =
        Some(("submit_ns", &["duration_ns"]));
    type Row = Op;
    type Columns = OpColumns;

    fn put(columns: &mut OpColumns, row: &Op) {
        columns.ring.put(row.ring as i32);
        columns.submit_ns.put(row.submit_ns as i64);
        columns
            .duration_ns
            .put(row.complete_ns.wrapping_sub(row.submit_ns) as i64);
        columns.opcode.put(row.opcode as i32);
        columns.fd.put(row.fd);
        columns.result.put(row.result);
        columns.tid.put(row.tid as i32);
        columns.punted.put(row.punted);
        columns.polled.put(row.polled);
        columns.sampled.put(row.sampled);
    }

    fn take(columns: &mut OpColumns) -> Option<Op> {
        let submit_ns = columns.submit_ns.take() as u64;
        Some(Op {
            ring: columns.ring.take() as u32,
            submit_ns,
            complete_ns: submit_ns.wrapping_add(columns.duration_ns.take() as u64),
            opcode: columns.opcode.take() as u32,
            fd: columns.fd.take(),
            result: columns.result.take(),
            tid: columns.tid.take() as u32,
            punted: columns.punted.take(),
            polled: columns.polled.take(),
            sampled: columns.sampled.take(),
        })
    }

    fn overlaps(row: &Op, range: &Range<Ns>) -> bool {
        spans(row.submit_ns, Some(row.complete_ns), range)
    }
}

columns!(RingSampleColumns {
    ring: Int Dictionary,
    at_ns: Long Delta bounds,
    tid: Int Dictionary,
    oldest_age_ns: LongOrNull Delta,
    unreaped: Int Delta,
    pending: Int Delta,
    in_flight: Int Delta,
    on_cpu_ns: Long Delta,
    runnable_ns: Long Delta,
});

pub(crate) struct RingSamples;

impl Table for RingSamples {
    const NAME: &'static str = "ring_samples";
    const LATER: bool = true;
    const SPAN: Option<(&'static str, &'static [&'static str])> = Some(("at_ns", &[]));
    type Row = RingSample;
    type Columns = RingSampleColumns;

    fn put(columns: &mut RingSampleColumns, row: &RingSample) {
        columns.ring.put(row.ring as i32);
        columns.at_ns.put(row.at_ns as i64);
        columns.tid.put(row.tid as i32);
        columns.oldest_age_ns.put(
            row.oldest_ns
                .and_then(|oldest| after(oldest, Some(row.at_ns))),
        );
        columns.unreaped.put(row.unreaped as i32);
        columns.pending.put(row.pending as i32);
        columns.in_flight.put(row.in_flight as i32);
        columns.on_cpu_ns.put(row.on_cpu_ns as i64);
        columns.runnable_ns.put(row.runnable_ns as i64);
    }

    fn take(columns: &mut RingSampleColumns) -> Option<RingSample> {
        let at_ns = columns.at_ns.take() as u64;
        Some(RingSample {
            ring: columns.ring.take() as u32,
            at_ns,
            tid: columns.tid.take() as u32,
            oldest_ns: columns
                .oldest_age_ns
                .take()
                .map(|age| at_ns.wrapping_sub(age as u64)),
            unreaped: columns.unreaped.take() as u32,
            pending: columns.pending.take() as u32,
            in_flight: columns.in_flight.take() as u32,
            on_cpu_ns: columns.on_cpu_ns.take() as u64,
            runnable_ns: columns.runnable_ns.take() as u64,
        })
    }

    fn overlaps(row: &RingSample, range: &Range<Ns>) -> bool {
        range.contains(&row.at_ns)
    }
}

columns!(LagColumns {
    ring: Int Dictionary,
    kind: Text Dictionary,
    from_ns: Long Delta bounds,
    low_ns: Long Delta,
    high_ns: Long Delta,
    opcode: Int Dictionary,
    tid: Int Dictionary,
    count: Int Delta,
});

pub(crate) struct RingLags;

impl Table for RingLags {
    const NAME: &'static str = "ring_lags";
    const LATER: bool = true;
    const SPAN: Option<(&'static str, &'static [&'static str])> = Some(("from_ns", &["high_ns"]));
    type Row = Lag;
    type Columns = LagColumns;

    fn put(columns: &mut LagColumns, row: &Lag) {
        columns.ring.put(row.ring as i32);
        columns.kind.put_static(row.kind.name());
        columns.from_ns.put(row.from_ns as i64);
        columns.low_ns.put(row.low_ns as i64);
        columns.high_ns.put(row.high_ns as i64);
        columns.opcode.put(row.opcode as i32);
        columns.tid.put(row.tid as i32);
        columns.count.put(row.count as i32);
    }

    fn take(columns: &mut LagColumns) -> Option<Lag> {
        let ring = columns.ring.take() as u32;
        let kind = columns.kind.take_text(LagKind::from_name);
        let lag = Lag {
            ring,
            from_ns: columns.from_ns.take() as u64,
            low_ns: columns.low_ns.take() as u64,
            high_ns: columns.high_ns.take() as u64,
            opcode: columns.opcode.take() as u32,
            tid: columns.tid.take() as u32,
            count: columns.count.take() as u32,
            ..Lag::default()
        };
        Some(Lag {
            kind: kind??,
            ..lag
        })
    }

    fn overlaps(row: &Lag, range: &Range<Ns>) -> bool {
        spans(
            row.from_ns,
            at(row.from_ns, Some(row.high_ns as i64)),
            range,
        )
    }
}
