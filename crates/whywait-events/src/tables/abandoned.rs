//! The table `abandoned`.

use crate::Ns;
use crate::recording::table;

table! {
    /// A request that was answered for a client that had gone: its connection was reset, or closed
    /// and then reset for an answer, before anything of the response was written; and the target
    /// worked on it, or kept it, for the threshold or longer after that.
    #[table(later)]
    #[span(ready_ns, [ended_after_ns], |row| row.ended_ns)]
    #[process(tgid)]
    pub struct Abandoned {
        /// The connection, as in `requests`.
        socket: u64 = Dictionary,
        /// The request on it, as in `requests`.
        seq: u32 = Delta,
        /// The process that read it.
        tgid: u32 = Dictionary,
        /// The thread that read it.
        recv_tid: u32 = Dictionary,
        /// The thread that wrote the response, or tried.
        send_tid: u32 = Dictionary,
        /// The server's port.
        local_port: u16 = Dictionary,
        /// When its first byte was in the kernel.
        ready_ns: Ns = DeltaBounds,
        /// When it was read.
        recv_ns: Ns = Delta {
            /// From `ready_ns` until it was read.
            recv_after_ns since |row| row.ready_ns
        },
        /// When the client closed or reset the connection.
        gone_ns: Ns = Delta {
            /// From `ready_ns` until the client closed or reset the connection.
            gone_after_ns since |row| row.ready_ns
        },
        /// When the response was written, or that failed.
        ended_ns: Ns = DeltaBounds {
            /// From `ready_ns` until the response was written, or that failed.
            ended_after_ns since |row| row.ready_ns
        },
        /// CPU time of the thread that read it, until then, for this and whatever else it did; 0:
        /// another one wrote.
        cpu_ns: u64 = Delta,
        /// The client closed its connection, and reset it when the response came.
        fin: bool = Plain,
        /// The thread that read it served no other connection until then, as far as it read or
        /// wrote.
        alone: bool = Plain,
        /// The client's address as text. Hostile.
        peer: String = Dictionary,
        /// The client's port.
        peer_port: u16 = Dictionary,
    }
}
