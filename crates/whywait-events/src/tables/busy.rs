//! The table `busy`.

use crate::Ns;
use crate::recording::table;

table! {
    /// A thread that does I/O (polls, reads or writes sockets) did none for at least the threshold,
    /// and had no long sleep in that interval: a long sleep has a row in `waits`, ends one interval
    /// and begins the next.
    #[span(start_ns, [duration_ns], |row| row.end_ns)]
    #[process(tgid)]
    pub struct Busy {
        /// Thread id.
        tid: u32 = Dictionary,
        /// Process id.
        tgid: u32 = Dictionary,
        /// The last I/O before the interval.
        start_ns: Ns = DeltaBounds,
        /// The first I/O after it.
        end_ns: Ns = DeltaBounds {
            /// Until the first I/O after it.
            duration_ns since |row| row.start_ns
        },
        /// Of which on a CPU.
        on_cpu_ns: u64 = Delta,
        /// Of which waiting for a CPU; the rest was asleep.
        runnable_ns: u64 = Delta,
    }
}
