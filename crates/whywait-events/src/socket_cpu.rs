//! What CPU time was for, by connection.

use crate::Ns;

/// What was used for the requests of a connection. Told when one that was expensive ends, and of
/// those that are open when the recording ends; rows of the same connection add up.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SocketCpu {
    /// When it was told.
    pub at_ns: Ns,
    /// The process that read from it last.
    pub tgid: u32,
    /// The connection's number in this recording, as in requests.
    pub socket: u64,
    /// The local port, 0 for unix sockets.
    pub local_port: u16,
    /// The peer's address as text; empty for unix sockets. Hostile.
    pub peer: String,
    /// The peer's port, 0 for unix sockets.
    pub peer_port: u16,
    /// Requests that came in on it (a TLS handshake is one).
    pub requests: u64,
    /// Bytes read.
    pub bytes_in: u64,
    /// Bytes written.
    pub bytes_out: u64,
    /// Nanoseconds on a CPU, as charged to its listener.
    pub cpu_ns: u64,
    /// Of `cpu_ns`: in stretches in which the thread seemed to poll and no byte moved.
    pub futile_ns: u64,
    /// Samples in user mode.
    pub user_samples: u64,
    /// Samples in the kernel.
    pub system_samples: u64,
}
