//! The table `preempted`.

use crate::Ns;
use crate::recording::table;

table! {
    /// A thread could have run for at least the threshold and had no CPU though it had not slept:
    /// another thread had it, or the CPU time of its cgroup was used up. Without a CPU after a
    /// sleep is in `waits`.
    #[table(later)]
    #[span(out_ns, [duration_ns], |row| row.in_ns)]
    #[process(tgid)]
    pub struct Preempted {
        /// Thread id.
        tid: u32 = Dictionary,
        /// Process id.
        tgid: u32 = Dictionary,
        /// When it lost its CPU.
        out_ns: Ns = DeltaBounds,
        /// When it got one again.
        in_ns: Ns = DeltaBounds {
            /// Until it got one again.
            duration_ns since |row| row.out_ns
        },
    }
}
