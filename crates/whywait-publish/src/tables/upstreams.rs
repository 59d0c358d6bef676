//! The table `upstreams`.

use whywait_events::recording::ReadError;

use crate::Source;
use crate::table::{WallClock, published};

published! {
    /// What was asked of another service over the whole recording: a row of
    /// `whywait report --calls`.
    "upstreams": struct UpstreamRow {
        /// When the recording began.
        ts: WallClock,
        /// Its address and port, or the path of a unix socket.
        peer: String,
        /// The process behind it, if it is of the same machine, or else what usually listens at
        /// its port; NULL: not known.
        name: Option<String>,
        /// Calls that had a reply.
        calls: u64,
        /// Of these: that took the threshold or longer.
        slow: u64,
        /// What had no reply.
        unanswered: u64,
        /// Median, from the first byte sent to the last byte of the reply read; NULL: no calls.
        p50_ns: Option<u64>,
        /// … of the slowest in a hundred; NULL: no calls.
        p99_ns: Option<u64>,
        /// … of the slowest; NULL: no calls.
        max_ns: Option<u64>,
        /// … of all together.
        total_ns: u64,
        /// Of `total_ns`: the reply lay in the kernel and nobody read it.
        unread_ns: u64,
        /// Of `total_ns`: the network's share, by the shortest round trips; NULL: not known.
        network_ns: Option<u64>,
        /// Connections that were used.
        connections: u64,
        /// Of these: that were made during the recording.
        connects: u64,
        /// Connections that did not come about.
        failed: u64,
        /// The most calls that waited for their reply at a time; NULL: not known.
        most_in_flight: Option<u64>,
        /// Bytes sent.
        bytes_out: u64,
        /// Bytes of replies.
        bytes_in: u64,
        /// Packets that were sent again.
        retransmits: u64,
    }
}

pub(super) fn rows(source: &Source<'_>) -> Result<Vec<UpstreamRow>, ReadError> {
    let rows = source.report.calls.iter().map(|row| UpstreamRow {
        ts: source.identity.started(),
        peer: row.peer.clone(),
        name: row.process.clone().or(row.service.map(str::to_owned)),
        calls: row.calls,
        slow: row.slow,
        unanswered: row.unanswered,
        p50_ns: row.p50_ns,
        p99_ns: row.p99_ns,
        max_ns: row.max_ns,
        total_ns: row.total_ns,
        unread_ns: row.unread_ns,
        network_ns: row.network_ns,
        connections: row.connections,
        connects: row.connects,
        failed: row.failed,
        most_in_flight: row.most_in_flight.map(u64::from),
        bytes_out: row.bytes_out,
        bytes_in: row.bytes_in,
        retransmits: row.retransmits,
    });
    let mut rows: Vec<UpstreamRow> = rows.collect();
    rows.sort_by(|a, b| a.peer.cmp(&b.peer));
    Ok(rows)
}
