//! The table `tails`.

use crate::Ns;
use crate::names::names;
use crate::recording::table;

names! {
    /// What held back the end of a response after it was written.
    pub enum TailReason, default Nagle, unknown names None {
        /// Nagle's algorithm: the peer had not acknowledged what was sent before.
        Nagle = 0 "nagle",
        /// Nothing.
        None = 1 "none",
        /// The peer had no room for it: its window was closed.
        Window = 2 "window",
        /// The network's congestion window, or what spreads packets over time.
        Network = 3 "network",
        /// It was lost, and sent again.
        Lost = 4 "lost",
    }
}

table! {
    /// A response that was at the peer long after it was written, or was held up before: its end
    /// went out the threshold or longer after it was written, or packets of it were sent again, or
    /// its connection was limited by the peer's window or by its send buffer for the threshold or
    /// longer, or it was slow and the program has set a send buffer smaller than the peer's window.
    #[table(later)]
    #[span(written_ns, [sent_after_ns], |row| row.sent_ns)]
    #[process(tgid)]
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
        /// When the kernel sent it, for the last time; with `unacknowledged`, when the recording
        /// ended.
        sent_ns: Ns = DeltaBounds {
            /// From `written_ns` until the kernel sent it.
            sent_after_ns since |row| row.written_ns
        },
        /// The request's latency without that; 0: not known.
        latency_ns: u64 = Delta,
        /// Bytes of the response.
        bytes_out: u64 = Delta,
        /// … and of those that were not sent when its end was written.
        bytes: u32 = Dictionary,
        /// What held it back.
        reason: TailReason = Dictionary or (TailReason::Nagle),
        /// The peer did not have all of it when the recording ended.
        unacknowledged: bool = Plain or false,
        /// Packets of the response that were sent again.
        retransmits: u32 = Dictionary or 0,
        /// Of these: because nothing came back for long (a retransmission timeout, or a tail loss
        /// probe). The others because what came back showed the loss.
        timeouts: u32 = Dictionary or 0,
        /// How long the peer's window held the connection back, since the response before. In steps
        /// of the kernel's tick, of 1 to 10 ms. Of a stream of HTTP/2 how long the answer waited
        /// for the client to make room for it.
        window_ns: u64 = Delta or 0,
        /// How long the send buffer held it back, being too small: all of it was on its way, and
        /// there was no room for more. In the same steps.
        buffer_ns: u64 = Delta or 0,
        /// The size of the send buffer.
        buffer_bytes: u32 = Dictionary or 0,
        /// The program has set that size.
        buffer_set: bool = Plain or false,
        /// The peer's window in the end: it had room for so many bytes.
        room_bytes: u32 = Dictionary or 0,
        /// The peer's address as text. Hostile.
        peer: String = Dictionary or (String::new()),
        /// The peer's port.
        peer_port: u16 = Dictionary or 0,
    }
}
