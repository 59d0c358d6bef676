//! The tables of a recording. Each column is declared here once; the writer, the reader and the
//! schema in the files all come from the declaration.
//!
//! Parquet's plain signed integers hold our unsigned ones bit by bit: DuckDB then shows `BIGINT`
//! and `INTEGER`, whose differences may be negative without an error, and -100 for the descriptor
//! `AT_FDCWD` rather than 2^64 - 100.

use std::ops::Range;

use super::column::{
    AnyColumn, Flag, FlagOrNull, Int, IntOrNull, Kind, Layout, Long, LongOrNull, Spec, Text,
};
use crate::{
    Busy, Frame, FutexSum, Module, ModuleKind, Ns, Part, Parts, Preempted, Request, Sample, Symbol,
    ThreadChange, ThreadEvent, Wait, WakeContext,
};

/// The columns of a table.
pub(crate) trait Columns: Default {
    const SPECS: &'static [Spec];

    /// Calls `visit` with each column, in the order of `SPECS`.
    fn each<E>(
        &mut self,
        visit: impl FnMut(usize, &mut dyn AnyColumn) -> Result<(), E>,
    ) -> Result<(), E>;
}

/// A table: how its rows become columns and back.
pub(crate) trait Table {
    /// The file's name is this and `.parquet`.
    const NAME: &'static str;
    /// The column with a row's start, and those whose sum is its length; NULL in the last of them:
    /// it has no end yet.
    const SPAN: Option<(&'static str, &'static [&'static str])>;
    /// Recordings from before there was this table do not have it, and miss nothing.
    const LATER: bool = false;
    type Row;
    type Columns: Columns;

    fn put(columns: &mut Self::Columns, row: &Self::Row);

    /// The next row; `None` when it holds something that this version does not understand.
    fn take(columns: &mut Self::Columns) -> Option<Self::Row>;

    /// How much text of the target's choosing the row has.
    fn text_bytes(_row: &Self::Row) -> usize {
        0
    }

    /// Whether the row overlaps with the time range.
    fn overlaps(_row: &Self::Row, _range: &Range<Ns>) -> bool {
        true
    }
}

macro_rules! columns {
    ($name:ident { $($column:ident: $type:ident $layout:ident $($bounds:ident)?),+ $(,)? }) => {
        #[derive(Default)]
        pub(crate) struct $name {
            $($column: $type),+
        }

        impl Columns for $name {
            const SPECS: &'static [Spec] = &[$(Spec {
                name: stringify!($column),
                physical: <$type as Kind>::PHYSICAL,
                nullable: <$type as Kind>::NULLABLE,
                layout: Layout::$layout,
                bounds: columns!(@bounds $($bounds)?),
            }),+];

            fn each<E>(
                &mut self,
                mut visit: impl FnMut(usize, &mut dyn AnyColumn) -> Result<(), E>,
            ) -> Result<(), E> {
                let mut index = 0;
                $(
                    visit(index, &mut self.$column)?;
                    index += 1;
                )+
                let _ = index;
                Ok(())
            }
        }
    };
    (@bounds) => { false };
    (@bounds bounds) => { true };
}
pub(super) use columns;

/// A later time as the distance from an earlier one: small numbers pack well and are what queries
/// ask for.
pub(super) fn after(start: Ns, later: Option<Ns>) -> Option<i64> {
    later.map(|later| later.wrapping_sub(start) as i64)
}

pub(super) fn at(start: Ns, after: Option<i64>) -> Option<Ns> {
    after.map(|after| start.wrapping_add(after as u64))
}

pub(super) fn spans(start: Ns, end: Option<Ns>, range: &Range<Ns>) -> bool {
    start < range.end && end.is_none_or(|end| end > range.start)
}

columns!(ThreadColumns {
    at_ns: Long Delta bounds,
    tid: Int Dictionary,
    tgid: Int Dictionary,
    parent_tid: Int Dictionary,
    change: Text Dictionary,
    comm: Text Dictionary,
});

pub(crate) struct Threads;

impl Table for Threads {
    const NAME: &'static str = "threads";
    const SPAN: Option<(&'static str, &'static [&'static str])> = Some(("at_ns", &[]));
    type Row = ThreadEvent;
    type Columns = ThreadColumns;

    fn put(columns: &mut ThreadColumns, row: &ThreadEvent) {
        columns.at_ns.put(row.at_ns as i64);
        columns.tid.put(row.tid as i32);
        columns.tgid.put(row.tgid as i32);
        columns.parent_tid.put(row.parent_tid as i32);
        columns.change.put_static(row.change.name());
        columns.comm.put_text(&row.comm);
    }

    fn text_bytes(row: &ThreadEvent) -> usize {
        row.comm.len()
    }

    fn take(columns: &mut ThreadColumns) -> Option<ThreadEvent> {
        let (at_ns, tid, tgid) = (
            columns.at_ns.take(),
            columns.tid.take(),
            columns.tgid.take(),
        );
        let parent_tid = columns.parent_tid.take();
        let change = columns.change.take_text(ThreadChange::from_name);
        let comm = columns.comm.take_text(str::to_owned);
        Some(ThreadEvent {
            at_ns: at_ns as u64,
            tid: tid as u32,
            tgid: tgid as u32,
            parent_tid: parent_tid as u32,
            change: change??,
            comm: comm?,
        })
    }

    fn overlaps(row: &ThreadEvent, range: &Range<Ns>) -> bool {
        range.contains(&row.at_ns)
    }
}

columns!(WaitColumns {
    tid: Int Dictionary,
    tgid: Int Dictionary,
    seq: Int Delta,
    out_ns: Long Delta bounds,
    slept_ns: LongOrNull Delta bounds,
    queued_ns: LongOrNull Delta bounds,
    since_before: Flag Plain,
    syscall: IntOrNull Dictionary,
    arg0: Long Dictionary,
    arg1: Long Dictionary,
    arg2: Long Dictionary,
    timeout: FlagOrNull Plain,
    owner_tid: IntOrNull Dictionary,
    lock: LongOrNull Dictionary,
    holds: LongOrNull Dictionary,
    uninterruptible: Flag Plain,
    io_wait: Flag Plain,
    wake_context: Text Dictionary,
    waker_tid: Int Dictionary,
    waker_tgid: Int Dictionary,
    epoll: Int Dictionary,
    user_stack: Int Dictionary,
    kernel_stack: Int Dictionary,
    waker_stack: IntOrNull Dictionary,
    segment_on_cpu_ns: Long Delta,
    segment_runnable_ns: Long Delta,
    segment_lock_ns: Long Delta,
    segment_thread_ns: Long Delta,
    segment_disk_ns: Long Delta,
    segment_network_ns: Long Delta,
    segment_timer_ns: Long Delta,
    segment_uring_ns: Long Delta,
    segment_page_fault_ns: Long Delta,
    segment_unknown_ns: Long Delta,
});

pub(crate) struct Waits;

impl Table for Waits {
    const NAME: &'static str = "waits";
    const SPAN: Option<(&'static str, &'static [&'static str])> =
        Some(("out_ns", &["slept_ns", "queued_ns"]));
    type Row = Wait;
    type Columns = WaitColumns;

    fn put(columns: &mut WaitColumns, row: &Wait) {
        columns.tid.put(row.tid as i32);
        columns.tgid.put(row.tgid as i32);
        columns.seq.put(row.seq as i32);
        columns.out_ns.put(row.out_ns as i64);
        columns.slept_ns.put(after(row.out_ns, row.wake_ns));
        columns
            .queued_ns
            .put(after(row.wake_ns.unwrap_or(row.out_ns), row.in_ns));
        columns.since_before.put(row.since_before);
        columns.syscall.put(row.syscall.map(|number| number as i32));
        columns.arg0.put(row.args[0] as i64);
        columns.arg1.put(row.args[1] as i64);
        columns.arg2.put(row.args[2] as i64);
        // 0 is "none" in these, as NULL is in recordings from before there were any.
        columns.timeout.put(Some(row.timeout));
        columns.owner_tid.put(Some(row.owner_tid as i32));
        columns.lock.put(Some(row.lock as i64));
        columns.holds.put(Some(row.holds as i64));
        columns.uninterruptible.put(row.uninterruptible);
        columns.io_wait.put(row.io_wait);
        columns.wake_context.put_static(row.wake_context.name());
        columns.waker_tid.put(row.waker_tid as i32);
        columns.waker_tgid.put(row.waker_tgid as i32);
        columns.epoll.put(row.epoll as i32);
        columns.user_stack.put(row.user_stack as i32);
        columns.kernel_stack.put(row.kernel_stack as i32);
        columns.waker_stack.put(Some(row.waker_stack as i32));
        columns.put_segment(&row.segment);
    }

    fn take(columns: &mut WaitColumns) -> Option<Wait> {
        let out_ns = columns.out_ns.take() as u64;
        let wake_ns = at(out_ns, columns.slept_ns.take());
        Some(Wait {
            tid: columns.tid.take() as u32,
            tgid: columns.tgid.take() as u32,
            seq: columns.seq.take() as u32,
            out_ns,
            wake_ns,
            in_ns: at(wake_ns.unwrap_or(out_ns), columns.queued_ns.take()),
            since_before: columns.since_before.take(),
            syscall: columns.syscall.take().map(|number| number as u32),
            args: [
                columns.arg0.take() as u64,
                columns.arg1.take() as u64,
                columns.arg2.take() as u64,
            ],
            timeout: columns.timeout.take().unwrap_or_default(),
            owner_tid: columns.owner_tid.take().unwrap_or_default() as u32,
            lock: columns.lock.take().unwrap_or_default() as u64,
            holds: columns.holds.take().unwrap_or_default() as u64,
            uninterruptible: columns.uninterruptible.take(),
            io_wait: columns.io_wait.take(),
            // A context that a newer version may have added is unknown to this one.
            wake_context: columns
                .wake_context
                .take_text(WakeContext::from_name)
                .flatten()
                .unwrap_or_default(),
            waker_tid: columns.waker_tid.take() as u32,
            waker_tgid: columns.waker_tgid.take() as u32,
            epoll: columns.epoll.take() as u32,
            user_stack: columns.user_stack.take() as u32,
            kernel_stack: columns.kernel_stack.take() as u32,
            waker_stack: columns.waker_stack.take().unwrap_or_default() as u32,
            segment: columns.take_segment(),
        })
    }

    fn overlaps(row: &Wait, range: &Range<Ns>) -> bool {
        spans(row.out_ns, row.in_ns, range)
    }
}

columns!(BusyColumns {
    tid: Int Dictionary,
    tgid: Int Dictionary,
    start_ns: Long Delta bounds,
    duration_ns: Long Delta bounds,
    on_cpu_ns: Long Delta,
    runnable_ns: Long Delta,
});

pub(crate) struct BusyTable;

impl Table for BusyTable {
    const NAME: &'static str = "busy";
    const SPAN: Option<(&'static str, &'static [&'static str])> =
        Some(("start_ns", &["duration_ns"]));
    type Row = Busy;
    type Columns = BusyColumns;

    fn put(columns: &mut BusyColumns, row: &Busy) {
        columns.tid.put(row.tid as i32);
        columns.tgid.put(row.tgid as i32);
        columns.start_ns.put(row.start_ns as i64);
        columns
            .duration_ns
            .put(row.end_ns.wrapping_sub(row.start_ns) as i64);
        columns.on_cpu_ns.put(row.on_cpu_ns as i64);
        columns.runnable_ns.put(row.runnable_ns as i64);
    }

    fn take(columns: &mut BusyColumns) -> Option<Busy> {
        let start_ns = columns.start_ns.take() as u64;
        Some(Busy {
            tid: columns.tid.take() as u32,
            tgid: columns.tgid.take() as u32,
            start_ns,
            end_ns: start_ns.wrapping_add(columns.duration_ns.take() as u64),
            on_cpu_ns: columns.on_cpu_ns.take() as u64,
            runnable_ns: columns.runnable_ns.take() as u64,
        })
    }

    fn overlaps(row: &Busy, range: &Range<Ns>) -> bool {
        spans(row.start_ns, Some(row.end_ns), range)
    }
}

columns!(PreemptedColumns {
    tid: Int Dictionary,
    tgid: Int Dictionary,
    out_ns: Long Delta bounds,
    duration_ns: Long Delta bounds,
});

pub(crate) struct PreemptedTable;

impl Table for PreemptedTable {
    const NAME: &'static str = "preempted";
    const LATER: bool = true;
    const SPAN: Option<(&'static str, &'static [&'static str])> =
        Some(("out_ns", &["duration_ns"]));
    type Row = Preempted;
    type Columns = PreemptedColumns;

    fn put(columns: &mut PreemptedColumns, row: &Preempted) {
        columns.tid.put(row.tid as i32);
        columns.tgid.put(row.tgid as i32);
        columns.out_ns.put(row.out_ns as i64);
        columns
            .duration_ns
            .put(row.in_ns.wrapping_sub(row.out_ns) as i64);
    }

    fn take(columns: &mut PreemptedColumns) -> Option<Preempted> {
        let out_ns = columns.out_ns.take() as u64;
        Some(Preempted {
            tid: columns.tid.take() as u32,
            tgid: columns.tgid.take() as u32,
            out_ns,
            in_ns: out_ns.wrapping_add(columns.duration_ns.take() as u64),
        })
    }

    fn overlaps(row: &Preempted, range: &Range<Ns>) -> bool {
        spans(row.out_ns, Some(row.in_ns), range)
    }
}

columns!(FutexColumns {
    tgid: Int Dictionary,
    address: Long Dictionary,
    count: Long Delta,
    total_ns: Long Delta,
    longest_ns: Long Delta,
    mapping: Text Dictionary,
});

pub(crate) struct FutexTable;

impl Table for FutexTable {
    const NAME: &'static str = "futexes";
    const LATER: bool = true;
    const SPAN: Option<(&'static str, &'static [&'static str])> = None;
    type Row = FutexSum;
    type Columns = FutexColumns;

    fn put(columns: &mut FutexColumns, row: &FutexSum) {
        columns.tgid.put(row.tgid as i32);
        columns.address.put(row.address as i64);
        columns.count.put(row.count as i64);
        columns.total_ns.put(row.total_ns as i64);
        columns.longest_ns.put(row.longest_ns as i64);
        columns.mapping.put_text(&row.mapping);
    }

    fn text_bytes(row: &FutexSum) -> usize {
        row.mapping.len()
    }

    fn take(columns: &mut FutexColumns) -> Option<FutexSum> {
        Some(FutexSum {
            tgid: columns.tgid.take() as u32,
            address: columns.address.take() as u64,
            count: columns.count.take() as u64,
            total_ns: columns.total_ns.take() as u64,
            longest_ns: columns.longest_ns.take() as u64,
            mapping: columns.mapping.take_text(str::to_owned)?,
        })
    }
}

columns!(RequestColumns {
    socket: Long Dictionary,
    seq: Int Delta,
    tgid: Int Dictionary,
    ready_ns: Long Delta bounds,
    recv_after_ns: LongOrNull Delta,
    first_send_after_ns: LongOrNull Delta,
    latency_ns: LongOrNull Delta bounds,
    recv_tid: Int Dictionary,
    send_tid: Int Dictionary,
    bytes_in: Long Dictionary,
    bytes_out: Long Dictionary,
    fd: Int Dictionary,
    epoll: Int Dictionary,
    read_armed: FlagOrNull Plain,
    before_accept: Flag Plain,
    accept_tid: Int Dictionary,
    local_port: Int Dictionary,
    unserved_wakeup_ns: Long Delta,
    service_on_cpu_ns: Long Delta,
    service_runnable_ns: Long Delta,
    service_lock_ns: Long Delta,
    service_thread_ns: Long Delta,
    service_disk_ns: Long Delta,
    service_network_ns: Long Delta,
    service_timer_ns: Long Delta,
    service_uring_ns: Long Delta,
    service_page_fault_ns: Long Delta,
    service_unknown_ns: Long Delta,
    taken_after_ns: LongOrNull Delta,
});

/// Columns that hold a duration for each [`Part`].
macro_rules! parts {
    ($columns:ty, $put:ident, $take:ident, $($part:ident $column:ident),* $(,)?) => {
        impl $columns {
            fn $put(&mut self, parts: &Parts) {
                $(self.$column.put(parts[Part::$part] as i64);)*
            }

            fn $take(&mut self) -> Parts {
                let mut parts = Parts::default();
                $(parts[Part::$part] = self.$column.take() as u64;)*
                parts
            }
        }
    };
}

parts!(
    RequestColumns, put_service, take_service,
    OnCpu service_on_cpu_ns,
    Runnable service_runnable_ns,
    Lock service_lock_ns,
    Thread service_thread_ns,
    Disk service_disk_ns,
    Network service_network_ns,
    Timer service_timer_ns,
    Uring service_uring_ns,
    PageFault service_page_fault_ns,
    Unknown service_unknown_ns,
);
parts!(
    WaitColumns, put_segment, take_segment,
    OnCpu segment_on_cpu_ns,
    Runnable segment_runnable_ns,
    Lock segment_lock_ns,
    Thread segment_thread_ns,
    Disk segment_disk_ns,
    Network segment_network_ns,
    Timer segment_timer_ns,
    Uring segment_uring_ns,
    PageFault segment_page_fault_ns,
    Unknown segment_unknown_ns,
);

pub(crate) struct Requests;

impl Table for Requests {
    const NAME: &'static str = "requests";
    const SPAN: Option<(&'static str, &'static [&'static str])> =
        Some(("ready_ns", &["latency_ns"]));
    type Row = Request;
    type Columns = RequestColumns;

    fn put(columns: &mut RequestColumns, row: &Request) {
        columns.socket.put(row.socket as i64);
        columns.seq.put(row.seq as i32);
        columns.tgid.put(row.tgid as i32);
        columns.ready_ns.put(row.ready_ns as i64);
        columns.recv_after_ns.put(after(row.ready_ns, row.recv_ns));
        columns
            .first_send_after_ns
            .put(after(row.ready_ns, row.first_send_ns));
        columns
            .latency_ns
            .put(after(row.ready_ns, row.last_send_ns));
        columns.recv_tid.put(row.recv_tid as i32);
        columns.send_tid.put(row.send_tid as i32);
        columns.bytes_in.put(row.bytes_in as i64);
        columns.bytes_out.put(row.bytes_out as i64);
        columns.fd.put(row.fd);
        columns.epoll.put(row.epoll as i32);
        columns.read_armed.put(row.read_armed);
        columns.before_accept.put(row.before_accept);
        columns.accept_tid.put(row.accept_tid as i32);
        columns.local_port.put(i32::from(row.local_port));
        columns
            .unserved_wakeup_ns
            .put(row.unserved_wakeup_ns as i64);
        columns.put_service(&row.service);
        columns
            .taken_after_ns
            .put(after(row.ready_ns, row.taken_ns));
    }

    fn take(columns: &mut RequestColumns) -> Option<Request> {
        let ready_ns = columns.ready_ns.take() as u64;
        let service = columns.take_service();
        let row = Request {
            socket: columns.socket.take() as u64,
            seq: columns.seq.take() as u32,
            tgid: columns.tgid.take() as u32,
            ready_ns,
            recv_ns: at(ready_ns, columns.recv_after_ns.take()),
            first_send_ns: at(ready_ns, columns.first_send_after_ns.take()),
            last_send_ns: at(ready_ns, columns.latency_ns.take()),
            recv_tid: columns.recv_tid.take() as u32,
            send_tid: columns.send_tid.take() as u32,
            bytes_in: columns.bytes_in.take() as u64,
            bytes_out: columns.bytes_out.take() as u64,
            fd: columns.fd.take(),
            epoll: columns.epoll.take() as u32,
            read_armed: columns.read_armed.take(),
            before_accept: columns.before_accept.take(),
            accept_tid: columns.accept_tid.take() as u32,
            local_port: 0,
            unserved_wakeup_ns: columns.unserved_wakeup_ns.take() as u64,
            service,
            taken_ns: at(ready_ns, columns.taken_after_ns.take()),
        };
        let local_port = u16::try_from(columns.local_port.take()).ok()?;
        Some(Request { local_port, ..row })
    }

    fn overlaps(row: &Request, range: &Range<Ns>) -> bool {
        spans(row.ready_ns, row.last_send_ns, range)
    }
}

columns!(SampleColumns {
    at_ns: Long Delta bounds,
    tid: Int Dictionary,
    tgid: Int Dictionary,
    cpu: Int Dictionary,
    user_stack: Int Dictionary,
    kernel_stack: Int Dictionary,
    periods: IntOrNull Dictionary,
});

pub(crate) struct Samples;

impl Table for Samples {
    const NAME: &'static str = "samples";
    const SPAN: Option<(&'static str, &'static [&'static str])> = Some(("at_ns", &[]));
    type Row = Sample;
    type Columns = SampleColumns;

    fn put(columns: &mut SampleColumns, row: &Sample) {
        columns.at_ns.put(row.at_ns as i64);
        columns.tid.put(row.tid as i32);
        columns.tgid.put(row.tgid as i32);
        columns.cpu.put(row.cpu as i32);
        columns.user_stack.put(row.user_stack as i32);
        columns.kernel_stack.put(row.kernel_stack as i32);
        columns.periods.put(Some(row.periods as i32));
    }

    fn take(columns: &mut SampleColumns) -> Option<Sample> {
        Some(Sample {
            at_ns: columns.at_ns.take() as u64,
            tid: columns.tid.take() as u32,
            tgid: columns.tgid.take() as u32,
            cpu: columns.cpu.take() as u32,
            user_stack: columns.user_stack.take() as u32,
            kernel_stack: columns.kernel_stack.take() as u32,
            // Recordings from before there were two rates have none.
            periods: columns.periods.take().map_or(1, |periods| periods as u32),
        })
    }

    fn overlaps(row: &Sample, range: &Range<Ns>) -> bool {
        range.contains(&row.at_ns)
    }
}

/// A frame of a stack. A stack without frames has one row, whose `frame` is `None`.
pub(crate) struct StackRow {
    pub(crate) stack: u32,
    pub(crate) depth: u32,
    pub(crate) frame: Option<Frame>,
    pub(crate) truncated: bool,
}

columns!(StackColumns {
    stack: Int Delta,
    depth: Int Delta,
    module: IntOrNull Dictionary,
    address: LongOrNull Dictionary,
    truncated: Flag Plain,
});

pub(crate) struct StackTable;

impl Table for StackTable {
    const NAME: &'static str = "stacks";
    const SPAN: Option<(&'static str, &'static [&'static str])> = None;
    type Row = StackRow;
    type Columns = StackColumns;

    fn put(columns: &mut StackColumns, row: &StackRow) {
        columns.stack.put(row.stack as i32);
        columns.depth.put(row.depth as i32);
        columns
            .module
            .put(row.frame.map(|frame| frame.module as i32));
        columns
            .address
            .put(row.frame.map(|frame| frame.address as i64));
        columns.truncated.put(row.truncated);
    }

    fn take(columns: &mut StackColumns) -> Option<StackRow> {
        let (module, address) = (columns.module.take(), columns.address.take());
        let frame = module.zip(address).map(|(module, address)| Frame {
            module: module as u32,
            address: address as u64,
        });
        Some(StackRow {
            stack: columns.stack.take() as u32,
            depth: columns.depth.take() as u32,
            frame,
            truncated: columns.truncated.take(),
        })
    }
}

columns!(ModuleColumns {
    module: Int Delta,
    kind: Text Dictionary,
    build_id: Text Plain,
    path: Text Plain,
});

pub(crate) struct Modules;

impl Table for Modules {
    const NAME: &'static str = "modules";
    const SPAN: Option<(&'static str, &'static [&'static str])> = None;
    type Row = Module;
    type Columns = ModuleColumns;

    fn put(columns: &mut ModuleColumns, row: &Module) {
        columns.module.put(row.id as i32);
        columns.kind.put_static(row.kind.name());
        columns.build_id.put_text(&row.build_id);
        columns.path.put_text(&row.path);
    }

    fn text_bytes(row: &Module) -> usize {
        row.path.len() + row.build_id.len()
    }

    fn take(columns: &mut ModuleColumns) -> Option<Module> {
        let id = columns.module.take() as u32;
        let kind = columns
            .kind
            .take_text(ModuleKind::from_name)
            .flatten()
            .unwrap_or(ModuleKind::Unknown);
        let build_id = columns.build_id.take_text(str::to_owned);
        let path = columns.path.take_text(str::to_owned);
        Some(Module {
            id,
            kind,
            build_id: build_id?,
            path: path?,
        })
    }
}

columns!(SymbolColumns {
    module: Int Dictionary,
    address: Long Dictionary,
    depth: Int Dictionary,
    name: Text Dictionary,
    file: Text Dictionary,
    line: Int Dictionary,
});

pub(crate) struct Symbols;

impl Table for Symbols {
    const NAME: &'static str = "symbols";
    const SPAN: Option<(&'static str, &'static [&'static str])> = None;
    type Row = Symbol;
    type Columns = SymbolColumns;

    fn put(columns: &mut SymbolColumns, row: &Symbol) {
        columns.module.put(row.frame.module as i32);
        columns.address.put(row.frame.address as i64);
        columns.depth.put(i32::from(row.depth));
        columns.name.put_text(&row.name);
        columns.file.put_text(&row.file);
        columns.line.put(row.line as i32);
    }

    fn text_bytes(row: &Symbol) -> usize {
        row.name.len() + row.file.len()
    }

    fn take(columns: &mut SymbolColumns) -> Option<Symbol> {
        let frame = Frame {
            module: columns.module.take() as u32,
            address: columns.address.take() as u64,
        };
        let depth = u16::try_from(columns.depth.take());
        let name = columns.name.take_text(str::to_owned);
        let file = columns.file.take_text(str::to_owned);
        let line = columns.line.take() as u32;
        Some(Symbol {
            frame,
            depth: depth.ok()?,
            name: name?,
            file: file?,
            line,
        })
    }
}

columns!(CounterColumns {
    name: Text Plain,
    value: Long Plain,
});

pub(crate) struct Counters;

impl Table for Counters {
    const NAME: &'static str = "counters";
    const SPAN: Option<(&'static str, &'static [&'static str])> = None;
    type Row = (String, u64);
    type Columns = CounterColumns;

    fn put(columns: &mut CounterColumns, (name, value): &(String, u64)) {
        columns.name.put_text(name);
        columns.value.put(*value as i64);
    }

    fn text_bytes(row: &(String, u64)) -> usize {
        row.0.len()
    }

    fn take(columns: &mut CounterColumns) -> Option<(String, u64)> {
        let name = columns.name.take_text(str::to_owned);
        let value = columns.value.take() as u64;
        Some((name?, value))
    }
}
