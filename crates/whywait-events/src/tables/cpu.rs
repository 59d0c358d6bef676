//! The table `cpu`.

use crate::Ns;
use crate::recording::table;

table! {
    /// What a thread used of the CPUs, or what was used for the requests that came in at a port,
    /// since the row before: one for each segment, and one when a thread ends. Rows of the same
    /// subject add up.
    #[table(later)]
    #[span(at_ns)]
    #[process(tgid)]
    pub struct Cpu {
        /// When the interval ended.
        at_ns: Ns = DeltaBounds,
        /// Process id.
        tgid: u32 = Dictionary,
        /// The thread; 0: the row is about a port.
        tid: u32 = Dictionary,
        /// The local port on which the requests came in, 0 for unix sockets; -1: the row is about a
        /// thread.
        port: i32 = Dictionary,
        /// On a CPU. A port has the time from when a thread read a request there until it read one
        /// elsewhere or slept in a poll.
        on_cpu_ns: u64 = Delta,
        /// Waiting for a CPU. 0 for ports.
        runnable_ns: u64 = Delta,
        /// Of `on_cpu_ns`: in intervals in which the thread seemed to poll and no byte moved. What
        /// `bursts` confirm is futile; alone it is a suspicion.
        futile_ns: u64 = Delta,
        /// Requests whose first byte was read (a TLS handshake is one). 0 for threads.
        requests: u64 = Delta,
        /// Bytes read. 0 for threads.
        bytes_in: u64 = Delta,
        /// Bytes written. 0 for threads.
        bytes_out: u64 = Delta,
        /// For how many periods the sampling clock found it in user mode.
        user_samples: u64 = Delta,
        /// For how many periods the sampling clock found it in the kernel.
        system_samples: u64 = Delta,
        /// How often the thread slept in a poll. 0 for ports.
        poll_sleeps: u64 = Delta,
        /// Of these: ended by a task or the network, and nothing was read or written before the
        /// next one. 0 for ports.
        dry_sleeps: u64 = Delta,
    }
}
