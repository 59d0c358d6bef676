//! io_uring: rings, what their operations came to, and what waited in them.

use std::collections::BTreeMap;

use crate::Ns;

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

/// How a ring came to be known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[repr(u8)]
pub enum RingOrigin {
    /// It was made while the recording ran.
    #[default]
    Created = 0,
    /// It was there when the recording began.
    Found = 1,
    /// It was used; whose it is shows in nothing else.
    FirstEvent = 2,
}

/// A ring, and what it came to until now. Rows replace earlier ones of the same `id`.
///
/// The program takes completions and prepares entries without the kernel: both show when the
/// queues' counters are looked at. Sums called `low` count what is certain, those called `high`
/// what is possible.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Ring {
    /// Identifies it within the recording, from 1.
    pub id: u32,
    /// The process that made it or has it open.
    pub tgid: u32,
    /// The thread that made it, 0: not seen.
    pub creator_tid: u32,
    /// The thread that entered the kernel for it last, 0: none (the kernel polls).
    pub user_tid: u32,
    /// How often another thread entered than before.
    pub users_changed: u64,
    /// The kernel's thread that polls the submission queue, 0: none, or not seen.
    pub sqpoll_tid: u32,
    /// How it came to be known.
    pub origin: RingOrigin,
    /// Its descriptor, -1: not known.
    pub fd: i32,
    /// Entries of the submission queue.
    pub sq_entries: u32,
    /// Entries of the completion queue.
    pub cq_entries: u32,
    /// `IORING_SETUP_…`
    pub flags: u32,
    /// Files that were registered with it last.
    pub files: u32,
    /// Buffers that were registered with it last.
    pub buffers: u32,
    /// When it came to be known.
    pub first_ns: Ns,
    /// When its counters were looked at last.
    pub last_ns: Ns,
    /// Operations submitted that are to have a completion.
    pub submitted: u64,
    /// In how many batches.
    pub batches: u64,
    /// Batches that filled the submission queue.
    pub full_batches: u64,
    /// Completions.
    pub completed: u64,
    /// Operations that are over.
    pub finished: u64,
    /// Completions with an error other than `EAGAIN`, `ETIME` and `ECANCELED`.
    pub failed: u64,
    /// Completions that the program has taken.
    pub reaped: u64,
    /// Completions for which the queue had no room.
    pub overflows: u64,
    /// Times that a thread waited for completions.
    pub waits: u64,
    /// The most slots that were taken at once: operations with the kernel, and completions that
    /// were not taken.
    pub max_slots: u32,
    /// The most completions that waited at once.
    pub max_unreaped: u32,
    /// For how long it was followed, nanoseconds.
    pub observed_ns: u64,
    /// Of that: without a slot taken.
    pub idle_ns: u64,
    /// Slots taken, times nanoseconds.
    pub slot_ns: u64,
    /// Of that: operations with the kernel.
    pub flight_ns: u64,
    /// For how long at least 7/8 of `max_slots` were taken, since there were that many.
    pub at_max_ns: u64,
    /// For how long as many slots were taken as the submission queue has entries, or more.
    pub at_depth_ns: u64,
    /// Entries that were published and not submitted, times nanoseconds: certain.
    pub queued_low_ns: u64,
    /// The same: possible.
    pub queued_high_ns: u64,
    /// Completions that were not taken, times nanoseconds: certain.
    pub unreaped_low_ns: u64,
    /// The same: possible.
    pub unreaped_high_ns: u64,
    /// For how long entries waited while the kernel's poller slept, nanoseconds.
    pub asleep_ns: u64,
    /// Waits for completions with as many slots taken as the submission queue has entries, before
    /// which nothing was submitted or taken since the wait before: the thread had come back for
    /// something else.
    pub stalled_waits: u64,
    /// Sends of its thread that met a limit of the memory for sockets: the protocol's, or the
    /// control group's.
    pub memory_limits: u64,
    /// For how long entries may have been prepared without being published, times entries,
    /// nanoseconds: at most, and only of those that were submitted a threshold or longer after the
    /// program last submitted some, or was woken for a completion.
    pub held_back_ns: u64,
}

/// What the operations of an opcode came to on a ring until now. Rows replace earlier ones of the
/// same (`ring`, `opcode`).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Sum {
    /// Which [`Ring`].
    pub ring: u32,
    /// `IORING_OP_…`; 63: completions of operations that have several.
    pub opcode: u32,
    /// Until when.
    pub at_ns: Ns,
    /// Completions.
    pub completed: u64,
    /// With an error, as of [`Ring::failed`].
    pub failed: u64,
    /// Operations that were handed to a worker thread of the kernel.
    pub punted: u64,
    /// Operations that had to wait for their file to become ready.
    pub polled: u64,
    /// Completions that were not the operation's last.
    pub more: u64,
    /// Bits: kinds of files that were seen, `S_IFMT >> 12`. Looked at once for each batch.
    pub kinds: u32,
    /// Operations of which `kernel_ns` is the sum.
    pub timed: u64,
    /// From submission to (first) completion, nanoseconds.
    pub kernel_ns: u64,
    /// The longest of them.
    pub kernel_max_ns: u64,
    /// Of `timed`: operations that were punted.
    pub punted_timed: u64,
    /// Of `kernel_ns`: theirs.
    pub punted_ns: u64,
    /// Of `timed`: operations that had to wait for their file to become ready.
    pub polled_timed: u64,
    /// Of `kernel_ns`: theirs.
    pub polled_ns: u64,
    /// Completions that were followed until the program took them: one at a time, the first after
    /// the last one was taken.
    pub marks: u64,
    /// For how long they waited at least, nanoseconds.
    pub mark_low_ns: u64,
    /// For how long at most.
    pub mark_high_ns: u64,
    /// How many took `2^key` nanoseconds or more, and less than twice that, from submission to
    /// completion.
    pub kernel: BTreeMap<u16, u64>,
    /// The same of how long followed completions waited at least.
    pub unreaped: BTreeMap<u16, u64>,
}

/// An operation that was slow or failed, or whose turn it was to be told (one in 1024 of each ring
/// and opcode).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Op {
    /// Which [`Ring`].
    pub ring: u32,
    /// When it was submitted.
    pub submit_ns: Ns,
    /// When it completed.
    pub complete_ns: Ns,
    /// `IORING_OP_…`
    pub opcode: u32,
    /// Its descriptor or its number among the registered files.
    pub fd: i32,
    /// Its result, negative: an error.
    pub result: i32,
    /// The thread that submitted it.
    pub tid: u32,
    /// It was handed to a worker thread of the kernel.
    pub punted: bool,
    /// It had to wait for its file to become ready.
    pub polled: bool,
    /// It is told because it was its turn: those rows are an unbiased sample.
    pub sampled: bool,
}

/// How it stood with a ring when a thread that uses it was sampled: goes with the [`crate::Sample`]
/// of the same time and thread.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RingSample {
    /// Which [`Ring`].
    pub ring: u32,
    /// When.
    pub at_ns: Ns,
    /// The thread.
    pub tid: u32,
    /// When the oldest completion that was not taken came, as far as is known.
    pub oldest_ns: Option<Ns>,
    /// Completions that were not taken.
    pub unreaped: u32,
    /// Entries that were published and not submitted.
    pub pending: u32,
    /// Operations that the kernel had.
    pub in_flight: u32,
    /// For how long the thread had been on a CPU so far, nanoseconds.
    pub on_cpu_ns: u64,
    /// For how long it had been runnable and waited for one.
    pub runnable_ns: u64,
}

/// What waited for the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[repr(u8)]
pub enum LagKind {
    /// A completion, to be taken.
    #[default]
    Unreaped = 0,
    /// An entry, to be submitted.
    Unsubmitted = 1,
}

/// Something waited for the program for at least the threshold.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Lag {
    /// Which [`Ring`].
    pub ring: u32,
    /// What.
    pub kind: LagKind,
    /// Since when.
    pub from_ns: Ns,
    /// At least for so long, nanoseconds.
    pub low_ns: u64,
    /// No longer than that.
    pub high_ns: u64,
    /// Of which opcode, for completions.
    pub opcode: u32,
    /// The thread that uses the ring, 0: not known.
    pub tid: u32,
    /// How many waited in the end.
    pub count: u32,
}

/// One thing about rings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RingEvent {
    /// A ring as it is now.
    Ring(Ring),
    /// What its operations came to until now.
    Sum(Box<Sum>),
    /// One operation.
    Op(Op),
    /// How it stood with it when its thread was sampled.
    Sample(RingSample),
    /// What waited in it.
    Lag(Lag),
}

/// The names of opcodes, by number.
const OPCODES: [&str; 63] = [
    "nop",
    "readv",
    "writev",
    "fsync",
    "read_fixed",
    "write_fixed",
    "poll_add",
    "poll_remove",
    "sync_file_range",
    "sendmsg",
    "recvmsg",
    "timeout",
    "timeout_remove",
    "accept",
    "async_cancel",
    "link_timeout",
    "connect",
    "fallocate",
    "openat",
    "close",
    "files_update",
    "statx",
    "read",
    "write",
    "fadvise",
    "madvise",
    "send",
    "recv",
    "openat2",
    "epoll_ctl",
    "splice",
    "provide_buffers",
    "remove_buffers",
    "tee",
    "shutdown",
    "renameat",
    "unlinkat",
    "mkdirat",
    "symlinkat",
    "linkat",
    "msg_ring",
    "fsetxattr",
    "setxattr",
    "fgetxattr",
    "getxattr",
    "socket",
    "uring_cmd",
    "send_zc",
    "sendmsg_zc",
    "read_multishot",
    "waitid",
    "futex_wait",
    "futex_wake",
    "futex_waitv",
    "fixed_fd_install",
    "ftruncate",
    "bind",
    "listen",
    "recv_zc",
    "epoll_wait",
    "readv_fixed",
    "writev_fixed",
    "pipe",
];

/// The opcode under which completions are counted that belong to an operation with several.
pub const OPCODE_MULTISHOT: u32 = 63;

/// The name of an opcode, as in `IORING_OP_…`, in small letters.
pub fn opcode_name(opcode: u32) -> &'static str {
    match opcode {
        OPCODE_MULTISHOT => "multishot",
        _ => OPCODES.get(opcode as usize).copied().unwrap_or("?"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opcodes_have_their_numbers() {
        // include/uapi/linux/io_uring.h
        for (opcode, name) in [
            (0, "nop"),
            (13, "accept"),
            (22, "read"),
            (27, "recv"),
            (40, "msg_ring"),
            (47, "send_zc"),
            (51, "futex_wait"),
            (55, "ftruncate"),
            (58, "recv_zc"),
        ] {
            assert_eq!(opcode_name(opcode), name);
        }
        assert_eq!(opcode_name(OPCODE_MULTISHOT), "multishot");
        assert_eq!(opcode_name(1000), "?");
    }
}
