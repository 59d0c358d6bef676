//! The table `tails`.

use crate::Ns;
use crate::recording::table;

table! {
    /// The end of a response that the kernel held back after it was written, for the threshold or
    /// longer, until the peer had acknowledged what was sent before (Nagle's algorithm).
    #[table(later)]
    #[span(written_ns, [sent_after_ns], |row| row.sent_ns)]
    pub struct Tail {
        /// The connection, as in `requests`.
        socket: u64 = Dictionary,
        /// The request on it, as in `requests`.
        seq: u32 = Delta,
        /// The process that read the request.
        tgid: u32 = Dictionary,
        /// The thread that wrote.
        tid: u32 = Dictionary,
        /// The server's port.
        local_port: u16 = Dictionary,
        /// When the end was written.
        written_ns: Ns = DeltaBounds,
        /// When the kernel sent it.
        sent_ns: Ns = DeltaBounds {
            /// From `written_ns` until the kernel sent it.
            sent_after_ns since |row| row.written_ns
        },
        /// The request's latency without that; 0: not known.
        latency_ns: u64 = Delta,
        /// Bytes of the response.
        bytes_out: u64 = Delta,
        /// … and of what was held back.
        bytes: u32 = Dictionary,
    }
}
