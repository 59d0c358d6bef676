//! DNS queries that were not answered in time.

use whywait_events::{DnsQuery, Ns};

use crate::rows::Rows;

/// Those of a recording.
pub type LateDns = Rows<DnsQuery, 100_000>;

/// When whoever asked had an answer or asked again; `None`: neither until the recording ended.
pub fn until_ns(row: &DnsQuery) -> Option<Ns> {
    row.again_ns.or(row.answered_ns)
}
