//! Connections that carry several calls at a time, each of which need not wait for the reply to the
//! one before it: a client that pipelines (Redis), or that gives each call a number (HTTP/2). What
//! is recorded as a call there is several, and of as many requests.

use std::collections::{BTreeMap, BTreeSet};

use whywait_events::Exchange;

/// So few calls show nothing.
const LEAST_CALLS: usize = 20;
/// In percent: in so many calls more was sent later on, before the reply …
const SENT_LATER: usize = 20;
/// … by so long. What is written in one go takes less, …
const LATER_NS: u64 = 100_000;
/// … and what is longer has to wait for room.
const IN_ONE_GO: u64 = 64 << 10;

/// Those among the sockets of a process, by its calls and how many requests were answered. Where
/// each request has a call of its own there are none: a body that comes in pieces looks the same.
pub(super) fn sockets<'a>(
    calls: impl Iterator<Item = &'a Exchange>,
    answered: usize,
) -> BTreeSet<u64> {
    let (mut all, mut counts) = (0, BTreeMap::<u64, (usize, usize)>::new());
    for call in calls {
        all += 1;
        let (count, later) = counts.entry(call.socket).or_default();
        *count += 1;
        let sent_ns = call.last_send_ns.saturating_sub(call.first_send_ns);
        *later += usize::from(sent_ns >= LATER_NS && call.bytes_out < IN_ONE_GO);
    }
    if answered * 2 < all * 3 {
        return BTreeSet::new();
    }
    let shared = counts
        .into_iter()
        .filter(|(_, (count, later))| *count >= LEAST_CALLS && later * 100 >= count * SENT_LATER);
    shared.map(|(socket, _)| socket).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Calls on connection 7, of which each fifth had more sent so much later.
    fn calls(later_ns: u64) -> Vec<Exchange> {
        let call = |n: u64| Exchange {
            socket: 7,
            first_send_ns: 1_000_000 * n,
            last_send_ns: 1_000_000 * n + if n.is_multiple_of(5) { later_ns } else { 0 },
            bytes_out: 300,
            ..Exchange::default()
        };
        (0..40).map(call).collect()
    }

    #[test]
    fn more_requests_than_calls_that_grow_share_a_connection() {
        let shared = |later_ns, answered| sockets(calls(later_ns).iter(), answered).len();
        assert_eq!(shared(LATER_NS, 60), 1);
        assert_eq!(shared(LATER_NS, 59), 0, "each may have its own");
        assert_eq!(shared(LATER_NS - 1, 60), 0, "written in one go");
        let few = calls(LATER_NS);
        assert_eq!(sockets(few[..LEAST_CALLS - 1].iter(), 60).len(), 0);
    }
}
