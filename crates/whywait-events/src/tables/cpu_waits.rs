//! The table `cpu_waits`.

use crate::Ns;
use crate::names::names;
use crate::recording::table;

names! {
    /// Why a thread that could run had no CPU.
    pub enum NoCpu, default Task, unknown names Task {
        /// Another task had it; none where `by_tid` is 0.
        Task = 0 "task",
        /// Its cgroup had used up its CPU time.
        Quota = 1 "quota",
        /// The CPU of a virtual machine stood still: its host had others run.
        Host = 2 "host",
    }
}

table! {
    /// A thread could have run and had no CPU for at least the threshold, after a sleep (`waits`)
    /// or without one (`preempted`): who left the CPU that it got. Of those who had that CPU
    /// earlier in the wait nothing is recorded: over many waits, the last ones stand for all.
    #[table(later)]
    #[span(from_ns, [duration_ns], |row| row.in_ns)]
    #[process(tgid)]
    pub struct CpuWait {
        /// Thread id of the one that waited.
        tid: u32 = Dictionary,
        /// Its process.
        tgid: u32 = Dictionary,
        /// Since when it could run.
        from_ns: Ns = DeltaBounds,
        /// When it got a CPU.
        in_ns: Ns = DeltaBounds {
            /// Until it got a CPU.
            duration_ns since |row| row.from_ns
        },
        /// Why it had none.
        why: NoCpu = Dictionary,
        /// Thread id of the one that left the CPU; 0: the CPU was idle, or it is not known.
        by_tid: u32 = Dictionary,
        /// Its process.
        by_tgid: u32 = Dictionary,
        /// It is a thread of the kernel.
        by_kernel: bool = Plain,
        /// For how long it had had the CPU at a stretch, up to that switch.
        by_ran_ns: u64 = Delta,
        /// The name of its process. Hostile.
        by_name: String = Dictionary,
        /// The path of its process's cgroup, where it is not that of the target; empty: it is, or
        /// it is not known. Hostile.
        by_cgroup: String = Dictionary,
    }
}
