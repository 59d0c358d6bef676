//! The table `responses`.

use crate::Ns;
use crate::recording::table;

table! {
    /// A response that was under way when somebody looked: when the recording began, when a segment
    /// was closed, and in the end. The client has sent nothing since the look before, and bytes
    /// were on their way to it, or came there since. In the end also one that was asked for since,
    /// if bytes were on their way. Of TCP only, and at most 1,000 a look.
    #[table(later)]
    #[span(since_ns, [looked_after_ns], |row| row.at_ns)]
    #[process(tgid, local_port)]
    pub struct ResponseLook {
        /// From when on it was looked at: the look before, or when it was asked for; at the first
        /// look, that one.
        since_ns: Ns = DeltaBounds,
        /// When it was looked at.
        at_ns: Ns = DeltaBounds {
            /// From `since_ns` until it was looked at.
            looked_after_ns since |row| row.since_ns
        },
        /// The look was the last one.
        last: bool = Plain,
        /// The process that read or wrote; 0: not known.
        tgid: u32 = Dictionary,
        /// The thread that wrote last; 0: none was seen to.
        tid: u32 = Dictionary,
        /// The connection, as in `requests`.
        socket: u64 = Delta,
        /// The request on it that was read last, as in `requests`; 0: it was read before the
        /// recording began.
        seq: u32 = Delta,
        /// The server's port.
        local_port: u16 = Dictionary,
        /// The client's address. Hostile.
        peer: String = Dictionary,
        /// The client's port.
        peer_port: u16 = Dictionary,
        /// Bytes that the client acknowledged since `since_ns`.
        acknowledged: u64 = Delta,
        /// Bytes that were written, and the client had not acknowledged yet.
        unacknowledged: u32 = Dictionary,
        /// How long ago the client had sent something; 0: not known.
        asked_ago_ns: u64 = Delta,
        /// How long ago something had been sent to it; 0: not known.
        sent_ago_ns: u64 = Delta,
        /// Since `since_ns`: for how long the client's window held bytes back.
        window_ns: u64 = Delta,
        /// … and the server's send buffer, which was full while the client had room.
        buffer_ns: u64 = Delta,
        /// … and for how long bytes were on their way for no such reason; 0 if all that was written
        /// had been sent at the look.
        network_ns: u64 = Delta,
    }
}
