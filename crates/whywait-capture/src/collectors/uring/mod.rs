//! io_uring: what this kernel can tell of it, the rings that are there already, and what the BPF
//! programs have summed up.
#![allow(unsafe_code)]

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use libbpf_rs::{MapCore, MapFlags, ProgramInput};
use whywait_events::Event;
use whywait_events::recording::WriteError;
use whywait_events::uring::{Lag, LagKind, Op, Pending, Ring, RingOrigin, RingSample, Sum};

use self::ring_counts::{Counts, RingCounts};
use crate::core::collector::{Collector, Configuration, Hook, Keeper};
use crate::core::error::CaptureError;
use crate::core::iterate::{self, Scope};
use crate::core::kernel;
use crate::core::programs::Programs;
use crate::core::records::{Plain, Record, view};
use crate::core::shared::{Shared, Stage};
use crate::core::skel::types::{
    self, record_type, uring_key, uring_lag, uring_op_flag, uring_origin,
};
use crate::core::target::Target;
use crate::core::thread_table::ThreadTable;

mod ring_counts;

/// What stands in `uring_keys` where there is no ring.
const FREE: u64 = uring_key::URING_FREE.0 as u64;
const CLOSED: u64 = uring_key::URING_CLOSED.0 as u64;

pub(crate) const COLLECTOR: Collector = Collector {
    hooks: &[
        Hook::or("io_uring_submit_req", "io_uring operations are not seen"),
        Hook::or("io_uring_complete", "io_uring completions are not seen"),
        Hook::or(
            "io_uring_create",
            "io_uring rings are known from their first operation on, without their creator",
        ),
        Hook::or(
            "io_uring_cqring_wait",
            "waits for io_uring completions are not counted",
        ),
        Hook::or(
            "io_uring_queue_async_work",
            "io_uring operations that are punted to workers look like others",
        ),
        Hook::or(
            "io_uring_poll_arm",
            "io_uring operations that wait for readiness look like others",
        ),
        Hook::or(
            "io_uring_cqe_overflow",
            "overflows of io_uring completion queues are not seen",
        ),
        Hook::or(
            "io_uring_register",
            "files and buffers registered with io_uring are not seen",
        ),
        Hook::or(
            "sock_exceed_buf_limit",
            "sends through io_uring that met a limit of the memory for sockets are not counted",
        ),
    ],
    configure,
    after: find,
    takes: &[
        record_type::RECORD_URING_OP,
        record_type::RECORD_URING_SAMPLE,
        record_type::RECORD_URING_LAG,
        record_type::RECORD_URING_PENDING,
    ],
    keeper: |_| Box::new(Rings::default()),
    ..Collector::NONE
};

#[derive(Default)]
struct Rings {
    counts: RingCounts,
}

impl Keeper for Rings {
    fn take(&mut self, record: Record, shared: &mut Shared) -> Result<(), WriteError> {
        shared.output.write(&match record {
            Record::UringOp(record) => Event::RingOp(op(&record)),
            Record::UringSample(record) => Event::RingSample(sample(&record)),
            Record::UringLag(record) => Event::RingLag(lag(&record)),
            Record::UringPending(record) => Event::RingPending(pending(&record)),
            _ => return Ok(()),
        })
    }

    fn before_turn(&mut self, programs: &mut Programs) {
        look(programs);
    }

    fn turn(&mut self, programs: &mut Programs, shared: &mut Shared) -> Result<(), CaptureError> {
        Ok(self.take_closed(programs, shared)?)
    }

    fn look(&mut self, programs: &mut Programs, shared: &mut Shared) -> Result<(), CaptureError> {
        if shared.stage == Stage::Lasts {
            self.write(programs, shared)?;
            forget_ended(programs, whywait_target::alive);
        }
        find_pending(programs, &shared.processes.all())
    }

    fn finish(
        &mut self,
        programs: &mut Programs,
        _: &ThreadTable,
        shared: &mut Shared,
    ) -> Result<(), CaptureError> {
        self.take_closed(programs, shared)?;
        Ok(self.write(programs, shared)?)
    }

    /// Operations and completions that were handled are events, too.
    fn counters(&mut self, _: &Programs) -> Vec<(String, u64)> {
        let total = self.counts.total();
        [("events", total.events()), ("lost.ring-ops", total.lost)]
            .map(|(name, value)| (name.to_owned(), value))
            .into()
    }

    /// Rings are looked at at each turn. What lies in one for long is recorded apart by what the
    /// thread did meanwhile, however short that was.
    fn is_urgent(&self, programs: &Programs) -> bool {
        used(programs)
    }
}

fn configure(configuration: &mut Configuration<'_>) {
    // The first parameter is the tracepoint's private data; then come ring, request and completion,
    // before Linux 6.14 as several numbers.
    let parameters = kernel::tracepoint_parameters(configuration.kernel, "io_uring_complete");
    configuration.variables.complete_passes_cqe = parameters.is_none_or(|count| count == 4);
}

/// Takes the rings that are there already into the target.
fn find(programs: &mut Programs, _: &Target) -> Result<(), CaptureError> {
    find_in(programs).map_err(|source| CaptureError::Iterate {
        what: "files",
        source,
    })
}

fn find_in(programs: &mut Programs) -> io::Result<()> {
    // Where rings are forbidden, or there are none, the target has none.
    let Some(own) = own_ring() else {
        return Ok(());
    };
    let mut buffer = Vec::new();
    if let Some(variables) = programs.variables_mut() {
        variables.uring_own_fd = own.as_raw_fd();
    }
    let program = &programs.skel.progs.open_urings;
    let link = iterate::attach(program, Scope::Process(std::process::id()))?;
    iterate::read(&link, &mut buffer)?;
    drop(own);
    for tgid in &programs.found {
        // It may have ended by now.
        if let Ok(link) = iterate::attach(program, Scope::Process(*tgid)) {
            iterate::read(&link, &mut buffer)?;
        }
    }
    Ok(())
}

/// Finds operations that the kernel has had for long. They come as records.
fn find_pending(programs: &Programs, processes: &[u32]) -> Result<(), CaptureError> {
    if !used(programs) {
        return Ok(());
    }
    let mut buffer = Vec::new();
    for tgid in processes {
        let program = &programs.skel.progs.pending_urings;
        // It may have ended by now.
        let Ok(link) = iterate::attach(program, Scope::Process(*tgid)) else {
            continue;
        };
        iterate::read(&link, &mut buffer).map_err(|source| CaptureError::Iterate {
            what: "io_uring operations",
            source,
        })?;
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
fn used(programs: &Programs) -> bool {
    let used = |keys: &[u64]| keys.iter().any(|key| !matches!(*key, FREE | CLOSED));
    programs
        .variables()
        .is_some_and(|variables| used(&variables.uring_keys))
}

/// Has the kernel look at all rings, if there are any.
fn look(programs: &mut Programs) {
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
struct Known {
    /// With the operations whose submission was not seen.
    rings: Vec<(Ring, u64)>,
    sums: Vec<Sum>,
    /// Where they are kept.
    places: Vec<u32>,
}

/// Reads what the BPF programs have summed up so far, of the rings whose key is wanted.
fn read_where(programs: &Programs, wanted: impl Fn(u64) -> bool) -> Known {
    let mut known = Known::default();
    let Some(keys) = programs.variables().map(|bss| bss.uring_keys) else {
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

impl Rings {
    /// Writes rings that were closed, and makes room for others.
    fn take_closed(
        &mut self,
        programs: &mut Programs,
        shared: &mut Shared,
    ) -> Result<(), WriteError> {
        let closed = programs.variables().map_or(0, |bss| bss.urings_closed);
        if !self.counts.more_closed(closed) {
            return Ok(());
        }
        let known = read_where(programs, |key| key == CLOSED);
        if let Some(variables) = programs.variables_mut() {
            for index in known.places.iter().map(|index| *index as usize) {
                variables.uring_keys[index] = FREE;
            }
        }
        for (ring, lost) in known.rings {
            self.counts.closed(ring.id, Counts::of(&ring, lost));
            ring_with_sums(ring, &known.sums, shared)?;
        }
        Ok(())
    }

    /// Writes the rings as they are now, but for those that have not changed.
    fn write(&mut self, programs: &Programs, shared: &mut Shared) -> Result<(), WriteError> {
        let known = read_where(programs, |key| key != FREE && key != CLOSED);
        let mut all = BTreeMap::new();
        for (ring, lost) in known.rings {
            let counts = Counts::of(&ring, lost);
            let unchanged = self.counts.unchanged(ring.id, counts);
            all.insert(ring.id, counts);
            // One that nobody uses goes on being idle: written in the end only.
            if !unchanged || shared.stage == Stage::Ends {
                ring_with_sums(ring, &known.sums, shared)?;
            }
        }
        self.counts.replace(all);
        Ok(())
    }
}

fn ring_with_sums(ring: Ring, sums: &[Sum], shared: &mut Shared) -> Result<(), WriteError> {
    for sum in sums.iter().filter(|sum| sum.ring == ring.id) {
        shared
            .output
            .write(&Event::RingSum(Box::new(sum.clone())))?;
    }
    shared.output.write(&Event::Ring(ring))
}

/// Makes room: forgets the rings of processes that have ended. `alive` costs a look into /proc.
fn forget_ended(programs: &mut Programs, alive: impl Fn(u32) -> bool) {
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
        if ended && let Some(variables) = programs.variables_mut() {
            variables.uring_keys[index as usize] = FREE;
        }
    }
}

fn value<T: Plain>(map: &libbpf_rs::Map<'_>, index: u32) -> Option<T> {
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

/// An operation that is recorded.
fn op(record: &types::uring_op_record) -> Op {
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
fn sample(record: &types::uring_sample_record) -> RingSample {
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

/// An operation that the kernel still has.
fn pending(record: &types::uring_pending_record) -> Pending {
    Pending {
        ring: record.ring,
        submit_ns: record.submit_ns,
        seen_ns: record.seen_ns,
        opcode: record.opcode,
        fd: record.fd,
        tid: record.tid,
        kind: record.kind,
        socket_type: record.socket_type,
        closed: record.closed != 0,
        in_flight: record.in_flight,
    }
}

/// What waited for the program.
fn lag(record: &types::uring_lag_record) -> Lag {
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
