//! io_uring: rings, what their operations came to, and what waited in them.

mod errors;
mod opcodes;

use std::collections::BTreeMap;

pub use errors::error_name;
pub use opcodes::{OPCODE_MULTISHOT, opcode_name};

use crate::Ns;
use crate::names::names;
use crate::recording::{Record, Sink, table};

/// `IORING_SETUP_IOPOLL` of `linux/io_uring.h`.
pub const SETUP_IOPOLL: u32 = 1;
/// `IORING_SETUP_SQPOLL`.
pub const SETUP_SQPOLL: u32 = 2;
/// `IORING_SETUP_COOP_TASKRUN`.
pub const SETUP_COOP_TASKRUN: u32 = 1 << 8;
/// `IORING_SETUP_SINGLE_ISSUER`.
pub const SETUP_SINGLE_ISSUER: u32 = 1 << 12;
/// `IORING_SETUP_DEFER_TASKRUN`.
pub const SETUP_DEFER_TASKRUN: u32 = 1 << 13;

names! {
    /// How a ring came to be known.
    pub enum RingOrigin, default Created, unknown names Created {
        /// It was made while the recording ran.
        Created = 0 "created",
        /// It was there when the recording began.
        Found = 1 "found",
        /// It was used; whose it is shows in nothing else.
        FirstEvent = 2 "first-event",
    }
}

table! {
    /// An io_uring ring, and what it came to until now. Written when a segment closes, for rings
    /// that were used since, and at the end: of the rows of a `ring` the last one counts.
    ///
    /// The program takes completions and prepares entries without the kernel, which shows only when
    /// the queues' counters are looked at: sums called `low` count what is certain, those called
    /// `high` what is possible. A slot is taken by an operation that the kernel has, and by a
    /// completion that was not taken.
    #[table(later)]
    #[process(tgid)]
    pub struct Ring {
        /// Identifies the ring, from 1.
        id: u32 = Dictionary { ring },
        /// The process that made it or has it open.
        tgid: u32 = Dictionary,
        /// The thread that made it, 0: not seen.
        creator_tid: u32 = Dictionary,
        /// The thread that entered the kernel for it last, 0: none (the kernel polls).
        user_tid: u32 = Dictionary,
        /// How often another thread entered than before.
        users_changed: u64 = Delta,
        /// The kernel's thread that polls the submission queue, 0: none, or not seen.
        sqpoll_tid: u32 = Dictionary,
        /// How it came to be known.
        origin: RingOrigin = Dictionary,
        /// Its descriptor, -1: not known.
        fd: i32 = Dictionary,
        /// Entries of the submission queue.
        sq_entries: u32 = Dictionary,
        /// Entries of the completion queue.
        cq_entries: u32 = Dictionary,
        /// `IORING_SETUP_…`
        flags: u32 = Dictionary,
        /// Files that were registered with it last.
        files: u32 = Dictionary,
        /// Buffers that were registered with it last.
        buffers: u32 = Dictionary,
        /// When it came to be known.
        first_ns: Ns = Delta,
        /// When its counters were looked at last.
        last_ns: Ns = Delta,
        /// Operations submitted that are to have a completion.
        submitted: u64 = Delta,
        /// In how many batches.
        batches: u64 = Delta,
        /// Batches that filled the submission queue.
        full_batches: u64 = Delta,
        /// Completions.
        completed: u64 = Delta,
        /// Operations that are over.
        finished: u64 = Delta,
        /// Completions with an error other than `EAGAIN`, `ETIME` and `ECANCELED`.
        failed: u64 = Delta,
        /// Completions that the program has taken.
        reaped: u64 = Delta,
        /// Completions for which the queue had no room.
        overflows: u64 = Delta,
        /// Times that a thread waited for completions.
        waits: u64 = Delta,
        /// The most slots that were taken at once.
        max_slots: u32 = Delta,
        /// The most completions that waited at once.
        max_unreaped: u32 = Delta,
        /// For how long it was followed.
        observed_ns: u64 = Delta,
        /// Of that: without a slot taken.
        idle_ns: u64 = Delta,
        /// Slots taken, times nanoseconds.
        slot_ns: u64 = Delta,
        /// Of that: operations that the kernel had.
        flight_ns: u64 = Delta,
        /// For how long at least 7/8 of `max_slots` were taken, since there were that many.
        at_max_ns: u64 = Delta,
        /// For how long as many slots were taken as the submission queue has entries, or more.
        at_depth_ns: u64 = Delta,
        /// Entries that were published and not submitted, times nanoseconds: certain.
        queued_low_ns: u64 = Delta,
        /// The same: possible.
        queued_high_ns: u64 = Delta,
        /// Completions that were not taken, times nanoseconds: certain.
        unreaped_low_ns: u64 = Delta,
        /// The same: possible.
        unreaped_high_ns: u64 = Delta,
        /// For how long entries waited while the kernel's poller slept.
        asleep_ns: u64 = Delta,
        /// Waits for completions with as many slots taken as the submission queue has entries,
        /// before which nothing was submitted or taken since the wait before: the thread had come
        /// back for something else.
        stalled_waits: u64 = Delta,
        /// Sends of its thread that met a limit of the memory for sockets
        /// (`sock_exceed_buf_limit`): the protocol's, or the cgroup's.
        memory_limits: u64 = Delta or 0,
        /// For how long entries may have been prepared without being published, times entries: at
        /// most, and only of those that were submitted a threshold or longer after the program last
        /// submitted some, or was woken for a completion.
        held_back_ns: u64 = Delta or 0,
    }
}

table! {
    /// What the operations of an opcode came to on a ring until now. Of the rows of a (`ring`,
    /// `opcode`) the last one counts.
    #[table(later)]
    pub struct Sum {
        /// Which ring.
        ring: u32 = Dictionary,
        /// `IORING_OP_…`; 63: further completions of multishot operations.
        opcode: u32 = Dictionary,
        /// Until when.
        at_ns: Ns = Delta,
        /// Completions.
        completed: u64 = Delta,
        /// Completions with an error, as in `rings`.
        failed: u64 = Delta,
        /// Operations that were handed to a worker thread of the kernel.
        punted: u64 = Delta,
        /// Operations that had to wait for their file to become ready.
        polled: u64 = Delta,
        /// Completions that were not the operation's last.
        more: u64 = Delta,
        /// Bits: kinds of files that were seen (`S_IFMT >> 12`). Looked at once for each batch.
        kinds: u32 = Dictionary,
        /// Operations of which `kernel_ns` is the sum.
        timed: u64 = Delta,
        /// From submission to (first) completion.
        kernel_ns: u64 = Delta,
        /// The longest of them.
        kernel_max_ns: u64 = Delta,
        /// Of `timed`: operations that were punted.
        punted_timed: u64 = Delta,
        /// Of `kernel_ns`: theirs.
        punted_ns: u64 = Delta,
        /// Of `timed`: operations that had to wait for their file to become ready; for sends that
        /// is room in the socket's buffer.
        polled_timed: u64 = Delta or 0,
        /// Of `kernel_ns`: theirs.
        polled_ns: u64 = Delta or 0,
        /// Completions that were followed until the program took them: one at a time, the first
        /// after the last one was taken.
        marks: u64 = Delta,
        /// For how long they waited at least.
        mark_low_ns: u64 = Delta,
        /// For how long they waited at most.
        mark_high_ns: u64 = Delta,
    }
    with {
        /// How many took `2^key` nanoseconds or more, and less than twice that, from submission to
        /// completion: rows of `ring_histograms`.
        kernel: BTreeMap<u16, u64>,
        /// The same of how long followed completions waited at least.
        unreaped: BTreeMap<u16, u64>,
    }
}

table! {
    /// The histograms of a row of `ring_sums`. Of the rows of the same bucket the last one counts.
    #[table(later)]
    #[valid(|row| row.bucket < 64)]
    pub(crate) struct Bucket {
        /// With `opcode`: of which row of `ring_sums`.
        ring: u32 = Dictionary,
        /// See `ring`.
        opcode: u32 = Dictionary,
        /// Of the time with the kernel; otherwise of how long followed completions waited at least.
        kernel: bool = Plain,
        /// 2^bucket ns or more, and less than twice that.
        bucket: u16 = Dictionary,
        /// How many.
        count: u64 = Delta,
    }
}

impl Record for Box<Sum> {
    fn rows<S: Sink>(&self, sink: &mut S) -> Result<(), S::Error> {
        sink.row::<Sum>(self)?;
        for (kernel, buckets) in [(true, &self.kernel), (false, &self.unreaped)] {
            for (bucket, count) in buckets {
                sink.row(&Bucket {
                    ring: self.ring,
                    opcode: self.opcode,
                    kernel,
                    bucket: *bucket,
                    count: *count,
                })?;
            }
        }
        Ok(())
    }
}

table! {
    /// An operation that took the threshold or longer, that failed, or whose turn it was: one in
    /// 1024 of each ring and opcode is recorded, whatever it was.
    #[table(later)]
    #[span(submit_ns, [duration_ns], |row| row.complete_ns)]
    pub struct Op {
        /// Which ring.
        ring: u32 = Dictionary,
        /// When it was submitted.
        submit_ns: Ns = DeltaBounds,
        /// When it completed.
        complete_ns: Ns = Delta {
            /// Until it completed.
            duration_ns since |row| row.submit_ns
        },
        /// `IORING_OP_…`
        opcode: u32 = Dictionary,
        /// Its descriptor or its number among the registered files.
        fd: i32 = Dictionary,
        /// Its result, negative: an error.
        result: i32 = Dictionary,
        /// The thread that submitted it.
        tid: u32 = Dictionary,
        /// It was handed to a worker thread of the kernel.
        punted: bool = Plain,
        /// It had to wait for its file to become ready.
        polled: bool = Plain,
        /// It is recorded because it was its turn: those rows are an unbiased sample.
        sampled: bool = Plain,
    }
}

table! {
    /// An operation that the kernel had a second or longer after it was submitted, when a segment
    /// was closed or the recording ended: of each `ring` the rows with the last `seen_ns` count,
    /// unless `ring_ops` has the operation's end.
    #[table(later)]
    #[span(submit_ns, [age_ns], |row| row.seen_ns)]
    pub struct Pending {
        /// Which ring.
        ring: u32 = Dictionary,
        /// When it was submitted.
        submit_ns: Ns = DeltaBounds,
        /// When it was seen there.
        seen_ns: Ns = Delta {
            /// For how long it had been with the kernel.
            age_ns since |row| row.submit_ns
        },
        /// `IORING_OP_…`
        opcode: u32 = Dictionary,
        /// Its descriptor or its number among the registered files.
        fd: i32 = Dictionary,
        /// The thread that submitted it.
        tid: u32 = Dictionary,
        /// The kind of its file (`S_IFMT >> 12`, 0: anonymous, as an eventfd is); 16: it has none.
        kind: u32 = Dictionary,
        /// The type of its socket (`SOCK_…`); 0: it is none.
        socket_type: u32 = Dictionary,
        /// The program has closed the descriptor since.
        closed: bool = Plain,
        /// How many operations of the ring the kernel had, however old.
        in_flight: u32 = Dictionary,
    }
}

table! {
    /// How it stood with a ring when a thread that uses it was sampled: goes with the row of
    /// `samples` of the same `at_ns` and `tid`.
    #[table(later)]
    #[span(at_ns)]
    pub struct RingSample {
        /// Which ring.
        ring: u32 = Dictionary,
        /// When.
        at_ns: Ns = DeltaBounds,
        /// The thread.
        tid: u32 = Dictionary,
        /// When the oldest completion that was not taken came, as far as is known.
        oldest_ns: Option<Ns> = Delta {
            /// For how long the oldest completion had waited; NULL: not known.
            oldest_age_ns until |row| row.at_ns
        },
        /// Completions that were not taken.
        unreaped: u32 = Delta,
        /// Entries that were published and not submitted.
        pending: u32 = Delta,
        /// Operations that the kernel had.
        in_flight: u32 = Delta,
        /// For how long the thread had been on a CPU so far.
        on_cpu_ns: u64 = Delta,
        /// For how long it had been runnable and waited for one.
        runnable_ns: u64 = Delta,
    }
}

names! {
    /// What waited for the program.
    pub enum LagKind, default Unreaped {
        /// A completion, to be taken.
        Unreaped = 0 "unreaped",
        /// An entry, to be submitted.
        Unsubmitted = 1 "unsubmitted",
    }
}

table! {
    /// Something waited for the program for at least the threshold: a completion to be taken, or an
    /// entry to be submitted.
    #[table(later)]
    #[span(from_ns, [high_ns], |row| row.from_ns.wrapping_add(row.high_ns))]
    pub struct Lag {
        /// Which ring.
        ring: u32 = Dictionary,
        /// What waited.
        kind: LagKind = Dictionary,
        /// Since when.
        from_ns: Ns = DeltaBounds,
        /// At least for so long.
        low_ns: u64 = Delta,
        /// No longer than that.
        high_ns: u64 = Delta,
        /// Of which opcode, for completions.
        opcode: u32 = Dictionary,
        /// The thread that uses the ring, 0: not known.
        tid: u32 = Dictionary,
        /// How many waited in the end.
        count: u32 = Delta,
    }
}
