//! What CPU time was for, and what bursts of system-call tracing saw.

use crate::{Ns, StackId};

/// What a thread used, or what was used for the requests that came in at a port, within a stretch
/// of the recording. Rows of the same subject add up.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Cpu {
    /// When the stretch ended.
    pub at_ns: Ns,
    /// Process id.
    pub tgid: u32,
    /// The thread; 0: the row is about a port.
    pub tid: u32,
    /// The local port on which the requests came in, 0 for unix sockets; -1: the row is about a
    /// thread.
    pub port: i32,
    /// Nanoseconds on a CPU.
    pub on_cpu_ns: u64,
    /// Nanoseconds waiting for a CPU. 0 for ports.
    pub runnable_ns: u64,
    /// Of `on_cpu_ns`: in stretches in which the thread seemed to poll and no byte moved.
    pub futile_ns: u64,
    /// Requests whose first byte was read (a TLS handshake is one). 0 for threads.
    pub requests: u64,
    /// Bytes read. 0 for threads.
    pub bytes_in: u64,
    /// Bytes written. 0 for threads.
    pub bytes_out: u64,
    /// Samples in user mode.
    pub user_samples: u64,
    /// Samples in the kernel.
    pub system_samples: u64,
    /// How often the thread slept in a poll. 0 for ports.
    pub poll_sleeps: u64,
    /// Of these: ended by a task or the network, and nothing was read or written before the next
    /// one. 0 for ports.
    pub dry_sleeps: u64,
}

/// What a burst of system-call tracing saw of a thread.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Burst {
    /// Counts the recording's bursts, from 1.
    pub burst: u32,
    /// When tracing began.
    pub start_ns: Ns,
    /// When it was taken off.
    pub end_ns: Ns,
    /// Thread id.
    pub tid: u32,
    /// Process id.
    pub tgid: u32,
    /// How long calls were only counted, nanoseconds.
    pub counted_ns: u64,
    /// Nanoseconds on a CPU meanwhile.
    pub on_cpu_ns: u64,
    /// System calls meanwhile.
    pub calls: u64,
    /// Of these: polls (epoll, poll, select).
    pub polls: u64,
    /// What tracing adds to each call, as measured on whywait's own calls, nanoseconds.
    pub overhead_ns: u64,
    /// Turns (from the end of a poll to the end of the next) that were looked at call by call.
    pub turns: u64,
    /// Of these: the poll returned at once because of a descriptor, and nothing came of it.
    pub spins: u64,
    /// Of these: woken for something that another thread had taken by then.
    pub lost_races: u64,
    /// Of these: something was read, written, accepted, or otherwise moved on.
    pub progress: u64,
    /// Of the turns without progress: how many are as the cycle says.
    pub cycle_turns: u64,
    /// The cycle has so many turns.
    pub cycle_length: u64,
    /// Where the thread polls, as samples tell.
    pub user_stack: StackId,
}

/// A step of a thread's cycle: the shortest repeating sequence of system calls without progress.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BurstCall {
    /// Which burst.
    pub burst: u32,
    /// Thread id.
    pub tid: u32,
    /// Position in the cycle, from 0; 0 is a poll.
    pub step: u32,
    /// System call number (x86-64 numbering).
    pub syscall: u32,
    /// What it is about: the descriptor that was ready (polls; -1: not known), that is changed
    /// (`epoll_ctl`), or that is the first argument; -1: none.
    pub fd: i32,
    /// `epoll_ctl`: the operation. `ioctl`: the command. `io_uring_enter`: its flags. Else 0.
    pub op: u32,
    /// Polls: what was ready, in epoll's bits (EPOLLIN 1, EPOLLOUT 4, EPOLLERR 8, EPOLLHUP 16…).
    /// `epoll_ctl`: what is asked for.
    pub events: u32,
    /// Polls: what the descriptor is registered for, in epoll's bits; 0: not known.
    /// `io_uring_enter`: for how many completions it waits.
    pub armed: u32,
    /// `ioctl` with `SIOCOUTQ` or `FIONREAD`: how much is in the queue. `io_uring_enter`:
    /// completions that nobody has taken. Else 0.
    pub value: u64,
    /// What the call returned, or the negative error number.
    pub ret: i64,
    /// What the descriptor is: `listener`, `tcp`, `socket`, `eventfd`, `timerfd`, `pipe`, …; empty:
    /// not known. Hostile.
    pub kind: String,
    /// For sockets: the local port, 0: none.
    pub local_port: u16,
    /// For sockets: the peer's port, 0: none.
    pub peer_port: u16,
}
