//! The table `sockets`.

use crate::Ns;
use crate::recording::table;

table! {
    /// What was used for the requests of a connection: of those that used 10 ms or more of CPU time
    /// when they end, and of those that used 1 ms or more and are open when the recording ends (the
    /// 1,000 most expensive). Rows of the same connection add up.
    #[table(later)]
    #[span(at_ns)]
    #[process(tgid)]
    pub struct SocketCpu {
        /// When the row was made.
        at_ns: Ns = DeltaBounds,
        /// The process that read from it last.
        tgid: u32 = Dictionary,
        /// The connection's number, as in `requests`.
        socket: u64 = Delta,
        /// The local port, 0 for unix sockets.
        local_port: u16 = Dictionary,
        /// The peer's address as text; empty for unix sockets. Hostile.
        peer: String = Dictionary,
        /// The peer's port, 0 for unix sockets.
        peer_port: u16 = Dictionary,
        /// Requests that came in on it since it was first seen (a TLS handshake is one).
        requests: u64 = Delta,
        /// Bytes read.
        bytes_in: u64 = Delta,
        /// Bytes written.
        bytes_out: u64 = Delta,
        /// On a CPU: the time that its listener has for it. What a thread did after its answer,
        /// until it read from another connection or slept in a poll, is in it, whatever it was for.
        cpu_ns: u64 = Delta,
        /// Of `cpu_ns`: from each read to the next read or to the last write before that; 0: not
        /// known. What a thread does after its answer may be for something else.
        answering_ns: u64 = Delta or 0,
        /// Of `cpu_ns`: in intervals in which the thread seemed to poll and no byte moved.
        futile_ns: u64 = Delta,
        /// For how many periods the sampling clock found the thread in user mode meanwhile.
        user_samples: u64 = Delta,
        /// For how many periods the sampling clock found the thread in the kernel meanwhile.
        system_samples: u64 = Delta,
    }
}
