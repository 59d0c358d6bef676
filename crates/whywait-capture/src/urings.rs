//! io_uring: what this kernel can tell of it, the rings that are there already, and what the BPF
//! programs have summed up.
#![allow(unsafe_code)]

use std::collections::BTreeMap;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use libbpf_rs::btf::{Btf, types as btf_types};
use libbpf_rs::{MapCore, MapFlags, ProgramInput};
use whywait_events::uring::{Lag, LagKind, Op, Ring, RingOrigin, RingSample, Sum};

use crate::iterate::{self, Scope};
use crate::kernel;
use crate::programs::Programs;
use crate::records::view;
use crate::skel::types::{self, uring_key, uring_lag, uring_op_flag, uring_origin};

/// What stands in `uring_keys` where there is no ring.
const FREE: u64 = uring_key::URING_FREE.0 as u64;
const CLOSED: u64 = uring_key::URING_CLOSED.0 as u64;

/// The tracepoints, and what cannot be told without them.
const TRACEPOINTS: [(&str, &str); 9] = [
    ("io_uring_submit_req", "operations of io_uring are not seen"),
    ("io_uring_complete", "completions of io_uring are not seen"),
    (
        "io_uring_create",
        "rings are known from their first operation on, without their creator",
    ),
    (
        "io_uring_cqring_wait",
        "waits for completions are not counted",
    ),
    (
        "io_uring_queue_async_work",
        "operations that are punted to workers are not told from others",
    ),
    (
        "io_uring_poll_arm",
        "operations that wait for readiness are not told from others",
    ),
    (
        "io_uring_cqe_overflow",
        "overflows of completion queues are not seen",
    ),
    (
        "io_uring_register",
        "registered files and buffers are not seen",
    ),
    (
        "sock_exceed_buf_limit",
        "sends through io_uring that met a limit of the memory for sockets are not counted",
    ),
];

/// The tracepoints that this kernel does not have.
pub(crate) fn lacking(btf: &Btf<'_>) -> Vec<(&'static str, &'static str)> {
    TRACEPOINTS
        .into_iter()
        .filter(|(tracepoint, _)| !kernel::has_tracepoint(btf, tracepoint))
        .collect()
}

/// Whether `io_uring_complete` passes the completion as it is in the queue.
pub(crate) fn complete_passes_cqe(btf: &Btf<'_>) -> bool {
    use libbpf_rs::btf::ReferencesType;
    let parameters = || {
        let prototype =
            btf.type_by_name::<btf_types::Typedef<'_>>("btf_trace_io_uring_complete")?;
        let pointer =
            btf.type_by_id::<btf_types::Ptr<'_>>(prototype.referenced_type().type_id())?;
        let function =
            btf.type_by_id::<btf_types::FuncProto<'_>>(pointer.referenced_type().type_id())?;
        Some(function.iter().count())
    };
    // The first parameter is the tracepoint's private data; then come ring, request and completion.
    parameters().is_none_or(|count| count == 4)
}

/// Takes the rings of these processes into the target that are open already.
pub(crate) fn find(programs: &mut Programs, processes: &[u32]) -> std::io::Result<()> {
    // Where rings are forbidden, or there are none, the target has none.
    let Some(own) = own_ring() else {
        return Ok(());
    };
    let mut buffer = Vec::new();
    programs.set_own_ring(own.as_raw_fd());
    let program = &programs.skel.progs.open_urings;
    let link = iterate::attach(program, Scope::Process(std::process::id()))?;
    iterate::read(&link, &mut buffer)?;
    drop(own);
    for tgid in processes {
        // It may have ended by now.
        if let Ok(link) = iterate::attach(program, Scope::Process(*tgid)) {
            iterate::read(&link, &mut buffer)?;
        }
    }
    Ok(())
}

/// A ring of whywait's own: its file tells how to know others.
fn own_ring() -> Option<OwnedFd> {
    /// The size of `struct io_uring_params`.
    const PARAMETERS: usize = 120;
    let mut parameters = [0u64; PARAMETERS / 8];
    // SAFETY: the kernel reads and writes the parameters, which are as large as it takes them for.
    let fd = unsafe { libc::syscall(libc::SYS_io_uring_setup, 1, parameters.as_mut_ptr()) };
    // SAFETY: the call returned a descriptor that nobody else has.
    (fd >= 0).then(|| unsafe { OwnedFd::from_raw_fd(fd as libc::c_int) })
}

/// Whether the target has rings.
pub(crate) fn used(programs: &Programs) -> bool {
    let used = |keys: &[u64]| keys.iter().any(|key| !matches!(*key, FREE | CLOSED));
    let bss = programs.skel.maps.bss_data.as_deref();
    bss.is_some_and(|bss| used(&bss.uring_keys))
}

/// Has the kernel look at all rings, if there are any.
pub(crate) fn look(programs: &mut Programs) {
    if !used(programs) {
        return;
    }
    // It cannot fail but for a lack of memory; then there is one look fewer.
    let _ = programs
        .skel
        .progs
        .look_at_urings
        .test_run(ProgramInput::default());
}

/// The rings and their sums.
#[derive(Default)]
pub(crate) struct Known {
    /// With the operations whose submission was not seen.
    pub(crate) rings: Vec<(Ring, u64)>,
    pub(crate) sums: Vec<Sum>,
    /// Where they are kept.
    places: Vec<u32>,
}

/// Reads what the BPF programs have summed up so far, of all rings that are in use.
pub(crate) fn read(programs: &Programs) -> Known {
    read_where(programs, |key| key != FREE && key != CLOSED)
}

fn read_where(programs: &Programs, wanted: impl Fn(u64) -> bool) -> Known {
    let mut known = Known::default();
    let Some(keys) = programs
        .skel
        .maps
        .bss_data
        .as_deref()
        .map(|bss| bss.uring_keys)
    else {
        return known;
    };
    let sums_of_rings = &programs.skel.maps.uring_sums;
    let opcodes = sums_of_rings.max_entries() / keys.len() as u32;
    for (index, _) in (0..).zip(keys).filter(|(_, key)| wanted(*key)) {
        let Some(state) = value::<types::uring_state>(&programs.skel.maps.urings, index) else {
            continue;
        };
        known.places.push(index);
        known.rings.push((ring(&state), state.lost_ops));
        for opcode in (0..opcodes).filter(|opcode| state.opcodes >> opcode & 1 == 1) {
            let at = index * opcodes + opcode;
            if let Some(sum) = value::<types::uring_sum>(sums_of_rings, at) {
                known.sums.push(sums(&state, opcode, &sum));
            }
        }
    }
    known
}

/// How many rings have been closed so far.
pub(crate) fn closed(programs: &Programs) -> u32 {
    let bss = programs.skel.maps.bss_data.as_deref();
    bss.map_or(0, |bss| bss.urings_closed)
}

/// Reads the sums of the rings that were closed, and makes their places free.
pub(crate) fn take_closed(programs: &mut Programs) -> Known {
    let known = read_where(programs, |key| key == CLOSED);
    if let Some(bss) = programs.skel.maps.bss_data.as_deref_mut() {
        for index in known.places.iter().map(|index| *index as usize) {
            bss.uring_keys[index] = FREE;
        }
    }
    known
}

/// Makes room: forgets the rings of processes that have ended. `alive` costs a look into /proc.
pub(crate) fn forget_ended(programs: &mut Programs, alive: impl Fn(u32) -> bool) {
    let keys = programs
        .skel
        .maps
        .bss_data
        .as_deref()
        .map(|bss| bss.uring_keys);
    for (index, key) in (0..).zip(keys.into_iter().flatten()) {
        let ended = !matches!(key, FREE | CLOSED)
            && value::<types::uring_state>(&programs.skel.maps.urings, index)
                .is_some_and(|state| state.id != 0 && !alive(state.tgid));
        if ended && let Some(bss) = programs.skel.maps.bss_data.as_deref_mut() {
            bss.uring_keys[index as usize] = FREE;
        }
    }
}

fn value<T: crate::records::Plain>(map: &libbpf_rs::Map<'_>, index: u32) -> Option<T> {
    view(&map.lookup(&index.to_ne_bytes(), MapFlags::ANY).ok()??)
}

fn ring(state: &types::uring_state) -> Ring {
    Ring {
        id: state.id,
        tgid: state.tgid,
        creator_tid: state.creator_tid,
        user_tid: state.user_tid,
        users_changed: state.users_changed,
        sqpoll_tid: state.sqpoll_tid,
        origin: match uring_origin(state.origin) {
            uring_origin::URING_CREATED => RingOrigin::Created,
            uring_origin::URING_FOUND => RingOrigin::Found,
            _ => RingOrigin::FirstEvent,
        },
        fd: state.fd,
        sq_entries: state.sq_entries,
        cq_entries: state.cq_entries,
        flags: state.flags,
        files: state.files,
        buffers: state.buffers,
        first_ns: state.first_ns,
        last_ns: state.look_ns,
        submitted: state.submitted,
        batches: state.batches,
        full_batches: state.full_batches,
        completed: state.completed,
        finished: state.finished,
        failed: state.failed,
        reaped: state.reaped,
        overflows: state.overflows,
        waits: state.waits,
        max_slots: state.max_slots,
        max_unreaped: state.max_unreaped,
        observed_ns: state.observed_ns,
        idle_ns: state.idle_ns,
        slot_ns: state.slot_ns,
        flight_ns: state.flight_ns,
        at_max_ns: state.at_max_ns,
        at_depth_ns: state.at_depth_ns,
        queued_low_ns: state.queued_low_ns,
        queued_high_ns: state.queued_high_ns,
        unreaped_low_ns: state.unreaped_low_ns,
        unreaped_high_ns: state.unreaped_high_ns,
        asleep_ns: state.asleep_ns,
        stalled_waits: state.stalled_waits,
        memory_limits: state.memory_limits,
        held_back_ns: state.held_back_ns,
    }
}

fn sums(state: &types::uring_state, opcode: u32, sum: &types::uring_sum) -> Sum {
    let buckets = |counts: &[u64]| {
        (0u16..)
            .zip(counts)
            .filter(|(_, count)| **count > 0)
            .map(|(bucket, count)| (bucket, *count))
            .collect::<BTreeMap<u16, u64>>()
    };
    Sum {
        ring: state.id,
        opcode,
        at_ns: state.look_ns,
        completed: sum.completed,
        failed: sum.failed,
        punted: sum.punted,
        polled: sum.polled,
        more: sum.more,
        kinds: sum.kinds as u32,
        timed: sum.timed,
        kernel_ns: sum.kernel_ns,
        kernel_max_ns: sum.kernel_max_ns,
        punted_timed: sum.punted_timed,
        punted_ns: sum.punted_ns,
        polled_timed: sum.polled_timed,
        polled_ns: sum.polled_ns,
        marks: sum.marks,
        mark_low_ns: sum.mark_low_ns,
        mark_high_ns: sum.mark_high_ns,
        kernel: buckets(&sum.kernel),
        unreaped: buckets(&sum.unreaped),
    }
}

/// An operation that is told.
pub(crate) fn op(record: &types::uring_op_record) -> Op {
    let is = |flag: uring_op_flag| record.flags & flag.0 != 0;
    Op {
        ring: record.ring,
        submit_ns: record.submit_ns,
        complete_ns: record.complete_ns,
        opcode: record.opcode,
        fd: record.fd,
        result: record.res,
        tid: record.tid,
        punted: is(uring_op_flag::URING_OP_PUNTED),
        polled: is(uring_op_flag::URING_OP_POLLED),
        sampled: is(uring_op_flag::URING_OP_SAMPLED),
    }
}

/// How it stood with a ring when its thread was sampled.
pub(crate) fn sample(record: &types::uring_sample_record) -> RingSample {
    RingSample {
        ring: record.ring,
        at_ns: record.at_ns,
        tid: record.tid,
        oldest_ns: (record.oldest_ns != 0).then_some(record.oldest_ns),
        unreaped: record.unreaped,
        pending: record.pending,
        in_flight: record.in_flight,
        on_cpu_ns: record.on_cpu_ns,
        runnable_ns: record.runnable_ns,
    }
}

/// What waited for the program.
pub(crate) fn lag(record: &types::uring_lag_record) -> Lag {
    Lag {
        ring: record.ring,
        kind: match uring_lag(record.what) {
            uring_lag::LAG_UNREAPED => LagKind::Unreaped,
            _ => LagKind::Unsubmitted,
        },
        from_ns: record.from_ns,
        low_ns: record.low_ns.saturating_sub(record.from_ns),
        high_ns: record.high_ns.saturating_sub(record.from_ns),
        opcode: record.opcode,
        tid: record.tid,
        count: record.count,
    }
}
