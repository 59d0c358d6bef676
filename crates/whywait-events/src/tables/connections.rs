//! The table `connections`.

use crate::Ns;
use crate::recording::table;

table! {
    /// A connection that the target had accepted, and on which one of its threads might sleep, as
    /// it was when somebody looked: when the recording began, and in the end. Those of which an
    /// epoll instance says when there is something to read are left out. At most 1,000 a look. A
    /// row for each process that has the connection open.
    #[table(later)]
    #[span(at_ns)]
    #[process(tgid)]
    pub struct Connection {
        /// When it was looked at.
        at_ns: Ns = DeltaBounds,
        /// A process that has it open.
        tgid: u32 = Dictionary,
        /// Its descriptor there.
        fd: u32 = Dictionary,
        /// The connection's number, as in `requests`.
        socket: u64 = Delta,
        /// The local port, 0 for unix sockets.
        local_port: u16 = Dictionary,
        /// The peer's address as text; empty for unix sockets. Hostile.
        peer: String = Dictionary,
        /// The peer's port, 0 for unix sockets.
        peer_port: u16 = Dictionary,
        /// What came last was the peer's: of a request that is not answered, or not read whole;
        /// NULL: not known (unix sockets).
        owes_answer: Option<bool> = Plain,
    }
}
