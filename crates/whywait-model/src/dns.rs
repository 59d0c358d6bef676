//! DNS queries that were not answered in time.

use whywait_events::{DnsQuery, Ns};

/// Rows that are kept.
const MAX_ROWS: usize = 100_000;

/// Those of a recording.
#[derive(Debug, Clone, Default)]
pub struct LateDns {
    rows: Vec<DnsQuery>,
    left_out: u64,
}

impl LateDns {
    /// Takes a row of the recording.
    pub fn add(&mut self, row: &DnsQuery) {
        if self.rows.len() < MAX_ROWS {
            self.rows.push(row.clone());
        } else {
            self.left_out += 1;
        }
    }

    /// The rows.
    pub fn rows(&self) -> &[DnsQuery] {
        &self.rows
    }

    /// Rows that were left out because there were too many.
    pub(crate) fn left_out(&self) -> u64 {
        self.left_out
    }
}

/// When whoever asked had an answer or asked again; `None`: neither until the recording ended.
pub fn until_ns(row: &DnsQuery) -> Option<Ns> {
    row.again_ns.or(row.answered_ns)
}
