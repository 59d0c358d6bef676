//! What the network did to responses, and what was asked of DNS servers.

use whywait_events::{Abandoned, DnsQuery, Push, Tail};

use super::Script;

impl Script {
    /// The end of a response that was held back.
    pub fn tail(&mut self, row: &Tail) -> &mut Self {
        self.input.recorded.tails.add(row);
        self
    }

    /// A request that was answered for a client that had gone.
    pub fn abandoned(&mut self, row: &Abandoned) -> &mut Self {
        self.input.recorded.abandoned.push(row.clone());
        self
    }

    /// What was sent unasked to several connections.
    pub fn push(&mut self, row: &Push) -> &mut Self {
        self.input.recorded.pushes.push(row.clone());
        self
    }

    /// A DNS query that was not answered in time.
    pub fn dns(&mut self, row: &DnsQuery) -> &mut Self {
        self.input.recorded.dns.push(row.clone());
        self
    }
}
