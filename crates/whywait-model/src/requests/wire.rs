//! The client's clock: what its requests took with what came before the server had them, and after
//! the response was written.

use schemars::JsonSchema;
use serde::Serialize;
use whywait_events::TailReason;

use crate::model::Model;
use crate::requests::RequestRef;
use crate::requests::histogram::{Histogram, Latency, bucket};
use crate::requests::tails::held_ns;

/// Latency as the clients have it, where that is known to be another one than the server's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, JsonSchema)]
pub struct Wire {
    /// From the first byte in the kernel until the end of the response went out for the last time.
    /// `None`: of no response was that later than its writing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency_ns: Option<Latency>,
    /// The mean of that.
    pub mean_ns: u64,
    /// The mean until the response was written.
    pub server_mean_ns: u64,
    /// After the response was written.
    pub sending: Sending,
    /// Before the connection was made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connecting: Option<Connecting>,
}

/// From when responses were written until their ends went out, nanoseconds, summed over them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, JsonSchema)]
pub struct Sending {
    /// Responses of which the end went out the threshold or longer after it was written.
    pub count: u64,
    /// Together.
    pub total_ns: u64,
    /// Nagle's algorithm held them back. This and what follows is of those that have a row.
    pub nagle_ns: u64,
    /// The peer had no room for them.
    pub window_ns: u64,
    /// They were lost, and sent again.
    pub lost_ns: u64,
    /// The network's congestion window held them back.
    pub network_ns: u64,
    /// Responses that the peer did not have in the end: these had taken at least that.
    pub unacknowledged: u64,
}

/// Clients whose connection was not made at once: which of them and for how long is not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, JsonSchema)]
pub struct Connecting {
    /// Packets of handshakes that full accept queues dropped.
    pub dropped: u64,
    /// How long clients waited for that together, at least.
    pub at_least_ns: u64,
    /// And at most, by how Linux tries again.
    pub at_most_ns: u64,
}

/// What became of one slow request's response after it was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Sent {
    /// How long after it was written its end went out for the last time.
    pub ns: u64,
    /// What held it back; absent: nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<&'static str>,
    /// Packets of it that were sent again.
    pub retransmits: u32,
    /// How long the peer's window held the connection back.
    pub window_ns: u64,
    /// How long its send buffer did.
    pub buffer_ns: u64,
    /// The peer did not have it when the recording ended.
    pub unacknowledged: bool,
}

impl Model {
    /// The clients' clock, where it says something else than the server's.
    pub(crate) fn wire(&self) -> Option<Wire> {
        let sending = self.sending();
        let connecting = self.connecting();
        if sending.count == 0 && connecting.is_none() {
            return None;
        }
        let count = self.requests_that_count().max(1);
        let server_ns = self.time_of_requests_ns();
        Some(Wire {
            latency_ns: (sending.count > 0).then(|| self.client_latency()).flatten(),
            mean_ns: server_ns.saturating_add(sending.total_ns) / count,
            server_mean_ns: server_ns / count,
            sending,
            connecting,
        })
    }

    fn sending(&self) -> Sending {
        let held = self.tails.held(&self.counters).unwrap_or_default();
        let mut sending = Sending {
            count: held.count,
            total_ns: held.total_ns,
            ..Sending::default()
        };
        for tail in self.tails.late() {
            let sum = match tail.reason {
                TailReason::Nagle => &mut sending.nagle_ns,
                TailReason::Window => &mut sending.window_ns,
                TailReason::Lost => &mut sending.lost_ns,
                TailReason::Network | TailReason::None => &mut sending.network_ns,
            };
            *sum = sum.saturating_add(held_ns(tail));
            sending.unacknowledged += u64::from(tail.unacknowledged);
        }
        sending
    }

    fn connecting(&self) -> Option<Connecting> {
        let mut connecting = Connecting::default();
        for queue in self.accept_queues.all() {
            let (at_least_ns, at_most_ns) =
                queue.clients_waited_ns(self.meta.started_ns, self.end_ns);
            connecting.dropped += u64::from(queue.overflows);
            connecting.at_least_ns = connecting.at_least_ns.saturating_add(at_least_ns);
            connecting.at_most_ns = connecting.at_most_ns.saturating_add(at_most_ns);
        }
        (connecting.dropped > 0).then_some(connecting)
    }

    /// Percentiles with what came after the responses were written.
    fn client_latency(&self) -> Option<Latency> {
        let mut latency = self.latency_with_late().into_owned();
        let max_ns = self.move_tails(&mut latency);
        latency.raise_max(max_ns);
        latency.latency(&self.slowest_for_clients())
    }

    /// Moves the requests with a late end from where they are without it to where they are with it.
    /// Returns the longest of them.
    fn move_tails(&self, latency: &mut Histogram) -> u64 {
        let whose = self.counted.counters();
        let prefix = |name: &str| format!("{whose}wire.{name}.");
        let (from, to) = (prefix("from"), prefix("to"));
        let number = |name: &str, prefix: &str| name.strip_prefix(prefix)?.parse().ok();
        let mut counted = false;
        for (name, count) in &self.counters {
            if let Some(bucket) = number(name, &from) {
                counted = true;
                latency.take_from_bucket(bucket, *count);
            } else if let Some(bucket) = number(name, &to) {
                latency.add_bucket(bucket, *count);
            }
        }
        let longest = self.counters.get(&format!("{whose}wire.max-ns"));
        let mut max_ns = longest.copied().unwrap_or(0);
        for tail in self.tails.late().filter(|tail| tail.latency_ns > 0) {
            let with_ns = tail.latency_ns.saturating_add(held_ns(tail));
            max_ns = max_ns.max(with_ns);
            if !counted {
                latency.take_from_bucket(bucket(tail.latency_ns), 1);
                latency.add_bucket(bucket(with_ns), 1);
            }
        }
        max_ns
    }

    /// The highest latencies of clients, ascending; none where not all of these have a row.
    fn slowest_for_clients(&self) -> Vec<u64> {
        let held = self.tails.held(&self.counters).unwrap_or_default();
        let (all, known) = (
            held.count,
            self.tails.late().filter(|tail| tail.latency_ns > 0).count() as u64,
        );
        if self.sums.slow > 0 || known < all {
            return Vec::new();
        }
        let with_row = |request: RequestRef<'_>| {
            let tail = self.tails.of(request.socket, request.seq);
            Some(request.took_ns()?.saturating_add(tail.map_or(0, held_ns)))
        };
        let mut each: Vec<u64> = self.requests().filter_map(with_row).collect();
        let slow: std::collections::HashSet<(u64, u32)> = self
            .requests()
            .map(|request| (request.socket, request.seq))
            .collect();
        each.extend(
            self.tails
                .late()
                .filter(|tail| !slow.contains(&(tail.socket, tail.seq)))
                .map(|tail| tail.latency_ns.saturating_add(held_ns(tail))),
        );
        each.sort_unstable();
        each
    }
}

impl RequestRef<'_> {
    /// What became of its response, where something is known of that.
    pub(crate) fn sent(self) -> Option<Sent> {
        let tail = self.model().tails.of(self.socket, self.seq)?;
        Some(Sent {
            ns: held_ns(tail),
            reason: (tail.reason != TailReason::None).then(|| tail.reason.name()),
            retransmits: tail.retransmits,
            window_ns: tail.window_ns,
            buffer_ns: tail.buffer_ns,
            unacknowledged: tail.unacknowledged,
        })
    }
}

#[cfg(test)]
mod tests {
    use whywait_events::Tail;

    use super::*;
    use crate::script::Script;

    const MS: u64 = 1_000_000;

    /// Ten requests of 2 ms; the ends of so many responses went out 40 ms later.
    fn server(late: u64) -> Script {
        let mut script = Script::new();
        script.thread(1, "worker");
        for n in 1..=10 {
            let at = n * 100;
            script.request(n).ready(at).read(at, 1).answered(at + 2, 1);
            if n <= late {
                script.tail(&Tail {
                    socket: n,
                    seq: 1,
                    written_ns: (at + 2) * MS,
                    sent_ns: (at + 42) * MS,
                    latency_ns: 2 * MS,
                    ..Tail::default()
                });
            }
        }
        script
    }

    #[test]
    fn the_client_waits_for_what_is_written_and_not_sent() {
        assert_eq!(server(0).model().wire(), None);
        let wire = server(4).model().wire().expect("some are late");
        let latency = wire.latency_ns.expect("it is known");
        assert_eq!(
            [latency.p50, latency.p99, latency.max],
            [2 * MS, 42 * MS, 42 * MS]
        );
        assert_eq!((wire.server_mean_ns, wire.mean_ns), (2 * MS, 18 * MS));
        assert_eq!(wire.sending.nagle_ns, 160 * MS);
    }

    #[test]
    fn the_kernels_sums_count_where_rows_are_missing() {
        let mut script = server(1);
        script.counter("requests.tails", 9);
        script.counter("requests.tails-ns", 9 * 40 * MS);
        script.counter(&format!("wire.from.{}", bucket(2 * MS)), 9);
        script.counter(&format!("wire.to.{}", bucket(42 * MS)), 9);
        script.counter("wire.max-ns", 42 * MS);
        let latency = script.model().wire().and_then(|wire| wire.latency_ns);
        let latency = latency.expect("it is known");
        assert!(latency.p50.abs_diff(42 * MS) < 3 * MS, "{latency:?}");
        assert_eq!(latency.max, 42 * MS);
    }
}
