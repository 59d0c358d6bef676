//! The table `pushes`.

use crate::Ns;
use crate::recording::table;

table! {
    /// What a thread sent unasked to several accepted connections, one after another, as a message
    /// goes to all subscribers: where it took the threshold or longer from the first to the last.
    #[table(later)]
    #[span(first_ns, [last_after_ns], |row| row.last_ns)]
    #[process(tgid, local_port)]
    pub struct Push {
        /// The process.
        tgid: u32 = Dictionary,
        /// The thread.
        tid: u32 = Dictionary,
        /// The port at which the connections were made; 0: a unix socket.
        local_port: u16 = Dictionary,
        /// When it wrote to the first of them.
        first_ns: Ns = DeltaBounds,
        /// When it began to write to the last.
        last_ns: Ns = DeltaBounds {
            /// From `first_ns` until it began to write to the last.
            last_after_ns since |row| row.first_ns
        },
        /// How many they were.
        connections: u32 = Dictionary,
        /// Of that time: the thread wrote to no other one until one of them had room.
        held_ns: u64 = Delta,
        /// To how many it wrote after it had waited so.
        after: u32 = Dictionary,
        /// The connection that it waited for longest, as in `requests`; 0: none.
        holder: u64 = Dictionary,
        /// The address at its other end, as text; empty: none. Hostile.
        peer: String = Dictionary,
        /// The port there.
        peer_port: u16 = Dictionary,
    }
}
