//! The tables `cpu`, `bursts` and `calls`.

use std::ops::Range;

use super::column::{AnyColumn, Int, Kind, Layout, Long, Spec, Text};
use super::tables::{Columns, Table, columns};
use crate::{Burst, BurstCall, Cpu, Ns};

columns!(CpuColumns {
    at_ns: Long Delta bounds,
    tgid: Int Dictionary,
    tid: Int Dictionary,
    port: Int Dictionary,
    on_cpu_ns: Long Delta,
    runnable_ns: Long Delta,
    futile_ns: Long Delta,
    requests: Long Delta,
    bytes_in: Long Delta,
    bytes_out: Long Delta,
    user_samples: Long Delta,
    system_samples: Long Delta,
    poll_sleeps: Long Delta,
    dry_sleeps: Long Delta,
});

pub(crate) struct CpuTable;

impl Table for CpuTable {
    const NAME: &'static str = "cpu";
    const LATER: bool = true;
    const SPAN: Option<(&'static str, &'static [&'static str])> = Some(("at_ns", &[]));
    type Row = Cpu;
    type Columns = CpuColumns;

    fn put(columns: &mut CpuColumns, row: &Cpu) {
        columns.at_ns.put(row.at_ns as i64);
        columns.tgid.put(row.tgid as i32);
        columns.tid.put(row.tid as i32);
        columns.port.put(row.port);
        columns.on_cpu_ns.put(row.on_cpu_ns as i64);
        columns.runnable_ns.put(row.runnable_ns as i64);
        columns.futile_ns.put(row.futile_ns as i64);
        columns.requests.put(row.requests as i64);
        columns.bytes_in.put(row.bytes_in as i64);
        columns.bytes_out.put(row.bytes_out as i64);
        columns.user_samples.put(row.user_samples as i64);
        columns.system_samples.put(row.system_samples as i64);
        columns.poll_sleeps.put(row.poll_sleeps as i64);
        columns.dry_sleeps.put(row.dry_sleeps as i64);
    }

    fn take(columns: &mut CpuColumns) -> Option<Cpu> {
        Some(Cpu {
            at_ns: columns.at_ns.take() as u64,
            tgid: columns.tgid.take() as u32,
            tid: columns.tid.take() as u32,
            port: columns.port.take(),
            on_cpu_ns: columns.on_cpu_ns.take() as u64,
            runnable_ns: columns.runnable_ns.take() as u64,
            futile_ns: columns.futile_ns.take() as u64,
            requests: columns.requests.take() as u64,
            bytes_in: columns.bytes_in.take() as u64,
            bytes_out: columns.bytes_out.take() as u64,
            user_samples: columns.user_samples.take() as u64,
            system_samples: columns.system_samples.take() as u64,
            poll_sleeps: columns.poll_sleeps.take() as u64,
            dry_sleeps: columns.dry_sleeps.take() as u64,
        })
    }

    fn overlaps(row: &Cpu, range: &Range<Ns>) -> bool {
        range.contains(&row.at_ns)
    }
}

columns!(BurstColumns {
    burst: Int Delta,
    start_ns: Long Delta bounds,
    duration_ns: Long Delta bounds,
    tid: Int Dictionary,
    tgid: Int Dictionary,
    counted_ns: Long Delta,
    on_cpu_ns: Long Delta,
    calls: Long Delta,
    polls: Long Delta,
    overhead_ns: Long Delta,
    turns: Long Delta,
    spins: Long Delta,
    lost_races: Long Delta,
    progress: Long Delta,
    cycle_turns: Long Delta,
    cycle_length: Long Delta,
    user_stack: Int Dictionary,
});

pub(crate) struct BurstTable;

impl Table for BurstTable {
    const NAME: &'static str = "bursts";
    const LATER: bool = true;
    const SPAN: Option<(&'static str, &'static [&'static str])> =
        Some(("start_ns", &["duration_ns"]));
    type Row = Burst;
    type Columns = BurstColumns;

    fn put(columns: &mut BurstColumns, row: &Burst) {
        columns.burst.put(row.burst as i32);
        columns.start_ns.put(row.start_ns as i64);
        columns
            .duration_ns
            .put(row.end_ns.wrapping_sub(row.start_ns) as i64);
        columns.tid.put(row.tid as i32);
        columns.tgid.put(row.tgid as i32);
        columns.counted_ns.put(row.counted_ns as i64);
        columns.on_cpu_ns.put(row.on_cpu_ns as i64);
        columns.calls.put(row.calls as i64);
        columns.polls.put(row.polls as i64);
        columns.overhead_ns.put(row.overhead_ns as i64);
        columns.turns.put(row.turns as i64);
        columns.spins.put(row.spins as i64);
        columns.lost_races.put(row.lost_races as i64);
        columns.progress.put(row.progress as i64);
        columns.cycle_turns.put(row.cycle_turns as i64);
        columns.cycle_length.put(row.cycle_length as i64);
        columns.user_stack.put(row.user_stack as i32);
    }

    fn take(columns: &mut BurstColumns) -> Option<Burst> {
        let start_ns = columns.start_ns.take() as u64;
        Some(Burst {
            burst: columns.burst.take() as u32,
            start_ns,
            end_ns: start_ns.wrapping_add(columns.duration_ns.take() as u64),
            tid: columns.tid.take() as u32,
            tgid: columns.tgid.take() as u32,
            counted_ns: columns.counted_ns.take() as u64,
            on_cpu_ns: columns.on_cpu_ns.take() as u64,
            calls: columns.calls.take() as u64,
            polls: columns.polls.take() as u64,
            overhead_ns: columns.overhead_ns.take() as u64,
            turns: columns.turns.take() as u64,
            spins: columns.spins.take() as u64,
            lost_races: columns.lost_races.take() as u64,
            progress: columns.progress.take() as u64,
            cycle_turns: columns.cycle_turns.take() as u64,
            cycle_length: columns.cycle_length.take() as u64,
            user_stack: columns.user_stack.take() as u32,
        })
    }

    fn overlaps(row: &Burst, range: &Range<Ns>) -> bool {
        row.start_ns < range.end && row.end_ns > range.start
    }
}

columns!(CallColumns {
    burst: Int Delta,
    tid: Int Dictionary,
    step: Int Delta,
    syscall: Int Dictionary,
    fd: Int Dictionary,
    op: Int Dictionary,
    events: Int Dictionary,
    armed: Int Dictionary,
    value: Long Dictionary,
    ret: Long Dictionary,
    kind: Text Dictionary,
    local_port: Int Dictionary,
    peer_port: Int Dictionary,
});

pub(crate) struct CallTable;

impl Table for CallTable {
    const NAME: &'static str = "calls";
    const LATER: bool = true;
    const SPAN: Option<(&'static str, &'static [&'static str])> = None;
    type Row = BurstCall;
    type Columns = CallColumns;

    fn put(columns: &mut CallColumns, row: &BurstCall) {
        columns.burst.put(row.burst as i32);
        columns.tid.put(row.tid as i32);
        columns.step.put(row.step as i32);
        columns.syscall.put(row.syscall as i32);
        columns.fd.put(row.fd);
        columns.op.put(row.op as i32);
        columns.events.put(row.events as i32);
        columns.armed.put(row.armed as i32);
        columns.value.put(row.value as i64);
        columns.ret.put(row.ret);
        columns.kind.put_text(&row.kind);
        columns.local_port.put(i32::from(row.local_port));
        columns.peer_port.put(i32::from(row.peer_port));
    }

    fn text_bytes(row: &BurstCall) -> usize {
        row.kind.len()
    }

    fn take(columns: &mut CallColumns) -> Option<BurstCall> {
        let row = BurstCall {
            burst: columns.burst.take() as u32,
            tid: columns.tid.take() as u32,
            step: columns.step.take() as u32,
            syscall: columns.syscall.take() as u32,
            fd: columns.fd.take(),
            op: columns.op.take() as u32,
            events: columns.events.take() as u32,
            armed: columns.armed.take() as u32,
            value: columns.value.take() as u64,
            ret: columns.ret.take(),
            ..BurstCall::default()
        };
        let kind = columns.kind.take_text(str::to_owned);
        let local_port = u16::try_from(columns.local_port.take());
        let peer_port = u16::try_from(columns.peer_port.take());
        Some(BurstCall {
            kind: kind?,
            local_port: local_port.ok()?,
            peer_port: peer_port.ok()?,
            ..row
        })
    }
}
