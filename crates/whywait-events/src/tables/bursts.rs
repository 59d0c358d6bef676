//! The tables of bursts of system-call tracing: `bursts` and `calls`.

use crate::recording::table;
use crate::{Ns, StackId};

table! {
    /// What a burst of system-call tracing saw of a thread that polls. A turn is from the end of a
    /// poll to the end of the next.
    #[table(later)]
    #[span(start_ns, [duration_ns], |row| row.end_ns)]
    #[stacks(user_stack)]
    #[process(tgid)]
    pub struct Burst {
        /// Counts the recording's bursts, from 1.
        burst: u32 = Delta,
        /// When tracing began.
        start_ns: Ns = DeltaBounds,
        /// When tracing ended.
        end_ns: Ns = DeltaBounds {
            /// How long calls were traced.
            duration_ns since |row| row.start_ns
        },
        /// Thread id.
        tid: u32 = Dictionary,
        /// Process id.
        tgid: u32 = Dictionary,
        /// How long calls were only counted.
        counted_ns: u64 = Delta,
        /// Time on a CPU meanwhile.
        on_cpu_ns: u64 = Delta,
        /// System calls meanwhile.
        calls: u64 = Delta,
        /// Of these: polls (epoll, poll, select).
        polls: u64 = Delta,
        /// What tracing added to each call, as measured on whywait's own calls.
        overhead_ns: u64 = Delta,
        /// Turns that were looked at call by call.
        turns: u64 = Delta,
        /// Of these: the poll returned at once because of a descriptor, and nothing came of it.
        spins: u64 = Delta,
        /// Of these: woken for something that another thread had taken by then.
        lost_races: u64 = Delta,
        /// Of these: something was read, written, accepted, or otherwise moved on.
        progress: u64 = Delta,
        /// How many of the turns without progress are as the cycle in `calls` says.
        cycle_turns: u64 = Delta,
        /// The cycle's length in turns.
        cycle_length: u64 = Delta,
        /// Where the thread polls, according to samples.
        user_stack: StackId = Dictionary,
    }
}

table! {
    /// A step of the cycle of a thread in a burst: the shortest sequence of system calls without
    /// progress that repeats.
    #[table(later)]
    pub struct BurstCall {
        /// Which burst: with `tid` the row in `bursts`.
        burst: u32 = Delta,
        /// Thread id.
        tid: u32 = Dictionary,
        /// Position in the cycle, from 0; 0 is a poll.
        step: u32 = Delta,
        /// System call number (x86-64's, on any processor).
        syscall: u32 = Dictionary,
        /// What it is about: the descriptor that was ready (polls), that is changed (`epoll_ctl`),
        /// or that is the first argument; -1: none, or not known.
        fd: i32 = Dictionary,
        /// `epoll_ctl`: the operation. `ioctl`: the command. `io_uring_enter`: its flags. Else 0.
        op: u32 = Dictionary,
        /// Polls: what was ready, in epoll's bits (EPOLLIN 1, EPOLLOUT 4, EPOLLERR 8, EPOLLHUP
        /// 16…). `epoll_ctl`: what is asked for.
        events: u32 = Dictionary,
        /// Polls: what the descriptor is registered for, in epoll's bits; 0: not known.
        /// `io_uring_enter`: for how many completions it waits (`min_complete`).
        armed: u32 = Dictionary,
        /// `ioctl` with `SIOCOUTQ` or `FIONREAD`: bytes in the queue. `io_uring_enter`: completions
        /// that lie in the ring's queue. Else 0.
        value: u64 = Dictionary,
        /// What the call returned, or the negative error number.
        ret: i64 = Dictionary,
        /// What the descriptor is: `listener`, `tcp`, `socket`, `pipe`, `eventfd`, `timerfd`,
        /// `io_uring`, …; empty: not known. Hostile.
        kind: String = Dictionary,
        /// For sockets: the local port, 0: none.
        local_port: u16 = Dictionary,
        /// For sockets: the peer's port, 0: none.
        peer_port: u16 = Dictionary,
    }
}
