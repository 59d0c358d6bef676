//! The table `waits`.

use crate::names::names;
use crate::recording::table;
use crate::{Ns, Parts, StackId};

names! {
    /// In which context a wake was made.
    pub enum WakeContext, default Unknown, unknown names Unknown {
        /// No wake was seen.
        Unknown = 0 "unknown",
        /// A task woke it: see `waker_tid`.
        Task = 1 "task",
        /// A soft interrupt, mostly the network.
        Softirq = 2 "softirq",
        /// A hard interrupt: a timer or a device.
        Hardirq = 3 "hardirq",
        /// Nothing it waited for: its process ended or was killed.
        Exit = 4 "exit",
    }
}

table! {
    /// A thread slept for at least the threshold, or still sleeps; or it slept in an epoll instance
    /// for the first time: who polls what is recorded also of threads that never poll for long.
    ///
    /// A row with `queued_ns` replaces an earlier one without, of the same (`tid`, `seq`). The
    /// thread was back on a CPU at `out_ns + coalesce(slept_ns, 0) + queued_ns`.
    #[span(out_ns, [slept_ns, queued_ns], |row| row.in_ns)]
    #[stacks(user_stack, kernel_stack, waker_stack)]
    #[process(tgid)]
    pub struct Wait {
        /// Thread id.
        tid: u32 = Dictionary,
        /// Process id.
        tgid: u32 = Dictionary,
        /// Counts the thread's sleeps, also the short ones that have no row.
        seq: u32 = Delta,
        /// When it left the CPU to sleep; when the recording began, if `since_before`.
        out_ns: Ns = DeltaBounds,
        /// When it was woken; `None` when no wake was seen (yet).
        wake_ns: Option<Ns> = DeltaBounds {
            /// From `out_ns` to the wake; NULL: no wake was seen.
            slept_ns since |row| row.out_ns
        },
        /// When it was back on a CPU; `None` while it still sleeps, or is still runnable.
        in_ns: Option<Ns> = DeltaBounds {
            /// From the wake (from `out_ns` when none was seen) until it was on a CPU; NULL: not
            /// yet.
            queued_ns since |row| row.wake_ns.unwrap_or(row.out_ns)
        },
        /// It slept already when the recording began: the true start is unknown.
        since_before: bool = Plain,
        /// Number of the system call it slept in (x86-64's, on any processor); NULL: in none, as in
        /// a page fault.
        syscall: Option<u32> = Dictionary,
        /// The call's first three arguments. Of `poll` and `ppoll` on one descriptor (`arg1` 1),
        /// or on a socket and something that is none (`arg1` 2), `arg0` is that descriptor where
        /// it is below 65,536, and else the address of what was polled. Of a `select` or
        /// `pselect6` for one descriptor to be readable (`arg2` 0) that was read while the thread
        /// slept, `arg1` is that descriptor.
        args: [u64; 3] = Dictionary { arg0, arg1, arg2 },
        /// A futex wait that had a timeout.
        timeout: bool = Plain or false,
        /// For a futex wait: the thread that the memory around the word named as the lock's owner
        /// when the sleep began. A mutex of the GNU C library has it 8 bytes after the word. Only
        /// threads of the same process; 0: none.
        owner_tid: u32 = Dictionary or 0,
        /// For a futex wait of `parking_lot`, whose word belongs to the thread: the address of what
        /// it queues for, a lock as a rule, which is 32 bytes before the word. For other futex
        /// waits it means nothing; 0: none.
        lock: u64 = Dictionary or 0,
        /// For a futex wait that had not ended when the recording did: of the words for which other
        /// threads wait without end, the one nearest to the top of the thread's stack. A thread has
        /// a lock's address there while it holds the lock; 0: none.
        holds: u64 = Dictionary or 0,
        /// Uninterruptible sleep (state D).
        uninterruptible: bool = Plain,
        /// The kernel accounted the sleep as waiting for I/O.
        io_wait: bool = Plain,
        /// What woke it.
        wake_context: WakeContext = Dictionary,
        /// The thread that woke it, 0 unless `wake_context` is `task`. May be outside of the
        /// target.
        waker_tid: u32 = Dictionary,
        /// The process that woke it, 0 unless `wake_context` is `task`.
        waker_tgid: u32 = Dictionary,
        /// The epoll instance it slept in; 0: none, or unknown.
        epoll: u32 = Dictionary,
        /// User stack of this very sleep.
        user_stack: StackId = Dictionary,
        /// Kernel stack of this very sleep.
        kernel_stack: StackId = Dictionary,
        /// For a futex wait that a thread of the target ended: the user stack of that thread when
        /// it did.
        waker_stack: StackId = Dictionary or 0,
        /// How the thread spent the interval between its previous row (or its start) and `out_ns`:
        /// on a CPU, waiting for one, and in sleeps below the threshold, by kind.
        segment: Parts = Delta { parts "segment" },
    }
}

impl Wait {
    /// When the thread was back on a CPU; [`Ns::MAX`] while it was not.
    pub fn end_ns(&self) -> Ns {
        self.in_ns.unwrap_or(Ns::MAX)
    }

    /// When the sleep was over: woken, or back on a CPU where no wake was seen. `None` while it
    /// lasts.
    pub fn over_ns(&self) -> Option<Ns> {
        self.wake_ns.or(self.in_ns)
    }

    /// The same; [`Ns::MAX`] while it lasts.
    pub fn woken_ns(&self) -> Ns {
        self.over_ns().unwrap_or(Ns::MAX)
    }
}
