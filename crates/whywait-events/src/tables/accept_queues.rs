//! The table `accept_queues`.

use crate::Ns;
use crate::recording::table;

table! {
    /// The accept queue of a listening socket, as it was when somebody looked: when the recording
    /// began, when a segment was closed, and in the end. A row for each process that has the
    /// listener open.
    #[table(later)]
    #[span(at_ns)]
    #[process(tgid)]
    pub struct AcceptQueue {
        /// When it was looked at.
        at_ns: Ns = DeltaBounds,
        /// A process that can accept from it.
        tgid: u32 = Dictionary,
        /// Its descriptor there.
        fd: u32 = Dictionary,
        /// Names the listener (the kernel's socket cookie); 0: it has no name.
        listener: u64 = Dictionary,
        /// The port on which it listens, 0 for unix sockets.
        local_port: u16 = Dictionary,
        /// Connections that wait to be accepted.
        queued: u32 = Dictionary,
        /// How many may wait: the argument of `listen`, or what the system allows. One more is not
        /// turned away yet.
        limit: u32 = Dictionary,
        /// Connections, or packets of theirs, that the kernel has dropped there since the recording
        /// began, for whatever reason.
        dropped: u32 = Dictionary,
        /// It has connections only when their first data comes (TCP_DEFER_ACCEPT): what ends a
        /// handshake before that is dropped, and is in `dropped`.
        defers: bool = Plain or false,
        /// Of all listeners in the process's network namespace: how often a connection found an
        /// accept queue full since the recording began; 0: never, or not known.
        overflows: u64 = Dictionary,
        /// Of all listeners there: SYNs that were answered with a cookie since the recording began,
        /// because too many had been answered that nothing followed (a flood of SYNs, or a full
        /// accept queue); 0: none, or not known.
        syn_cookies: u64 = Dictionary or 0,
        /// … and SYNs that were dropped for that.
        syns_refused: u64 = Dictionary or 0,
        /// Descriptors that the process had open; 0: not known, or nothing was queued.
        descriptors: u64 = Dictionary,
        /// How many it may have open; 0: not known, or nothing was queued.
        descriptors_limit: u64 = Dictionary,
    }
}
