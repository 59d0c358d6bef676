//! How far a request got, by its row. The one place that decides which requests are answered, when
//! each was over, and what stands for that time while it is open.
//!
//! A request is *answered* when the last byte of its response was written, as far as known when the
//! recording ended. It is *gone* when its connection ended before that. Otherwise it is *open*: it
//! has no latency, but an age at the recording's end.

use whywait_events::{Ns, Request};

/// When the last byte of the response was written; `None` while the request is open.
pub(crate) fn answered_ns(row: &Request) -> Option<Ns> {
    row.last_send_ns
}

/// When the request was over, answered or not; `None` while it is open.
pub(crate) fn over_ns(row: &Request) -> Option<Ns> {
    answered_ns(row).or(row.gone_ns)
}

/// When the request was over, or its target was, or the recording.
pub(crate) fn end_ns(row: &Request, alive_until_ns: Ns) -> Ns {
    over_ns(row).unwrap_or(alive_until_ns).max(row.ready_ns)
}

/// Until when the request was under way: `Ns::MAX` while it is open.
pub(crate) fn until_ns(row: &Request) -> Ns {
    over_ns(row).unwrap_or(Ns::MAX)
}

/// From the first byte in the kernel to the last byte of the response; `None` while it is open.
pub(crate) fn latency_ns(row: &Request) -> Option<u64> {
    Some(answered_ns(row)?.saturating_sub(row.ready_ns))
}

/// Whether it was neither answered nor gone when the recording ended.
pub(crate) fn is_open(row: &Request) -> bool {
    over_ns(row).is_none()
}

/// Whether a thread read it, and nothing of a response was written.
pub(crate) fn is_unanswered(row: &Request) -> bool {
    row.recv_ns.is_some() && row.first_send_ns.is_none()
}

/// Whether a row is of a request that there cannot have been: nobody ever read it, and yet a later
/// one of its connection was read. What is sent on a connection is read in order. (The kernel
/// reports what is ready on one CPU while the answer to the request before is noted on another.)
pub(crate) fn never_was(row: &Request, later: &Request) -> bool {
    row.recv_ns.is_none()
        && answered_ns(row).is_none()
        && row.seq < later.seq
        && later.recv_ns.is_some()
}
