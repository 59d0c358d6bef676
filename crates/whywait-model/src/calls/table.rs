//! The table of peers.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;
use whywait_events::{Exchange, PeerSums};

use super::Peer;
use crate::model::Model;
use crate::requests::histogram::Histogram;

/// What the target asked of a peer. The field names are those of the JSON report (schema 1).
#[derive(Debug, Clone, PartialEq, Default, Serialize, JsonSchema)]
pub struct PeerRow {
    /// Its address and port, or the path of a unix socket; `other peers` for all that are not kept
    /// apart. Hostile.
    pub peer: String,
    /// What usually listens at its port.
    pub service: Option<&'static str>,
    /// The process behind it, if it is one of this machine and was found.
    pub pid: Option<u32>,
    /// That process's name, hostile.
    pub process: Option<String>,
    /// Calls that had a reply.
    pub calls: u64,
    /// Of these: that took at least the recording's threshold.
    pub slow: u64,
    /// What was sent and had no reply when its connection, or the recording, ended.
    pub unanswered: u64,
    /// Calls a second.
    pub rate: f64,
    /// From the first byte sent to the last byte of the reply read; `None` without calls.
    pub p50_ns: Option<u64>,
    /// … for the slowest in a hundred.
    pub p99_ns: Option<u64>,
    /// … at most.
    pub max_ns: Option<u64>,
    /// … of all calls together.
    pub total_ns: u64,
    /// Of `total_ns`: until the last byte before the reply was sent.
    pub sending_ns: u64,
    /// Of `total_ns`: after the reply was first read.
    pub reading_ns: u64,
    /// Of `total_ns`: the reply lay in the kernel and nobody read it, as far as that is known.
    pub unread_ns: u64,
    /// Of `total_ns`, the network's share, by the connections' shortest round trips; `None`: not
    /// known.
    pub network_ns: Option<u64>,
    /// How many were under way at a time, on average.
    pub in_flight: f64,
    /// … and at most waiting for their reply; `None`: not known.
    pub most_in_flight: Option<u32>,
    /// Connections that were used.
    pub connections: u64,
    /// Of these: that were made during the recording.
    pub connects: u64,
    /// How long it took to make one, on average; `None`: none was.
    pub connect_ns: Option<u64>,
    /// Connections that did not come about.
    pub failed: u64,
    /// Connections for which a SYN had to be sent again.
    pub retried: u64,
    /// From when these were begun until they were made, or were not.
    pub retried_ns: u64,
    /// The most that were open at a time; `None`: not known.
    pub most_open: Option<u32>,
    /// Bytes sent.
    pub bytes_out: u64,
    /// Bytes of replies.
    pub bytes_in: u64,
    /// Packets that the target's side sent again.
    pub retransmits: u64,
}

impl PeerRow {
    /// As [`Peer`] displays.
    pub fn name(&self) -> String {
        match self.process.as_deref().or(self.service) {
            Some(name) => format!("{} ({name})", self.peer),
            None => self.peer.clone(),
        }
    }

    /// Calls on each connection.
    pub fn calls_per_connection(&self) -> f64 {
        self.calls as f64 / self.connections.max(1) as f64
    }
}

impl Model {
    /// The peers of the target, those that had most of its time first.
    pub fn calls(&self) -> Vec<PeerRow> {
        let mut slow_ns: BTreeMap<u32, Vec<u64>> = BTreeMap::new();
        for row in self.exchanges() {
            slow_ns.entry(row.peer).or_default().extend(latency_ns(row));
        }
        let mut rows: Vec<PeerRow> = self
            .calls
            .sums
            .values()
            .filter(|sums| sums.count > 0 || sums.unanswered > 0 || sums.failed > 0)
            .map(|sums| self.peer_row(sums, slow_ns.remove(&sums.id).unwrap_or_default()))
            .collect();
        rows.sort_by(|a, b| {
            let key = |row: &PeerRow| (row.total_ns, row.calls, row.unanswered);
            (key(b), &a.peer).cmp(&(key(a), &b.peer))
        });
        rows
    }

    /// The row of a peer, with how long the slow calls took that have rows.
    fn peer_row(&self, sums: &PeerSums, slow_ns: Vec<u64>) -> PeerRow {
        let peer = Peer(sums);
        let duration_ns = self.end_ns.saturating_sub(self.meta.started_ns).max(1) as f64;
        let (histogram, slowest) = latencies(sums, slow_ns);
        let quantile = |share| histogram.quantile(share, &slowest).map(|ns| ns as u64);
        let answered = sums.count > 0;
        PeerRow {
            peer: peer.address(),
            service: peer.service(),
            pid: peer.tgid(),
            process: peer.process().map(str::to_owned),
            calls: sums.count,
            slow: sums.slow,
            unanswered: sums.unanswered,
            rate: sums.count as f64 / duration_ns * 1e9,
            p50_ns: quantile(0.5),
            p99_ns: quantile(0.99),
            max_ns: answered.then_some(sums.max_ns),
            total_ns: sums.total_ns,
            sending_ns: sums.sending_ns.min(sums.total_ns),
            reading_ns: sums.total_ns.saturating_sub(sums.first_ns),
            unread_ns: sums.unread_ns.min(sums.total_ns),
            network_ns: (sums.rtt_min_us > 0)
                .then(|| sums.rtt_min_us.saturating_mul(1000).min(sums.total_ns)),
            in_flight: sums.total_ns as f64 / duration_ns,
            most_in_flight: sums.most_in_flight,
            connections: sums.connections,
            connects: sums.connects,
            connect_ns: sums.connect_ns.checked_div(sums.connects),
            failed: sums.failed,
            retried: sums.retried,
            retried_ns: sums.retried_ns,
            most_open: sums.most_open,
            bytes_out: sums.bytes_out,
            bytes_in: sums.bytes_in,
            retransmits: sums.retransmits,
        }
    }
}

/// How long the calls to a peer took, and, if each slow one has a row, those exactly, ascending.
fn latencies(sums: &PeerSums, mut slow_ns: Vec<u64>) -> (Histogram, Vec<u64>) {
    let mut histogram = Histogram::default();
    for (bucket, count) in &sums.latency {
        histogram.add_bucket(usize::from(*bucket), *count);
    }
    histogram.raise_max(sums.max_ns);
    slow_ns.sort_unstable();
    if slow_ns.len() as u64 != sums.slow {
        slow_ns.clear();
    }
    (histogram, slow_ns)
}

/// From the first byte sent to the last byte of the reply read.
fn latency_ns(row: &Exchange) -> Option<u64> {
    Some(row.last_read_ns?.saturating_sub(row.first_send_ns))
}
