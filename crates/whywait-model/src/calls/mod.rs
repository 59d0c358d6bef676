//! Calls: what the target asked of others, on connections that it made. In the recording, a call is
//! an exchange with a peer.

use std::collections::BTreeMap;

use whywait_events::recording::{ReadError, Recording};
use whywait_events::{Exchange, Ns, PeerSums, Wait};

use crate::maps::HashMap;
use crate::rows::Rows;
use crate::waits::system_call::descriptor;

mod asked;
pub(crate) mod linked;
pub mod links;
mod peer;
mod service;
mod statements;
mod table;
mod within;

pub use peer::Peer;
pub use statements::StatementRow;
pub use table::PeerRow;
pub use within::{CallWithin, CallsWithin};

/// The exchanges of a recording, and their peers.
#[derive(Debug, Clone, Default)]
pub struct Calls {
    /// What the exchanges with each peer came to, by its number.
    pub sums: BTreeMap<u32, PeerSums>,
    /// The slow ones, by when they began.
    pub exchanges: Rows<Exchange, 200_000>,
    /// Shorter ones that have a row all the same, likewise.
    pub short: Rows<Exchange, 200_000>,
    /// Connections that were given up before they were made: none is a call.
    pub given_up: Rows<Exchange, 50_000>,
    /// From which length on an exchange is slow, nanoseconds.
    pub(crate) threshold_ns: u64,
    /// Where each is in `exchanges`, while they are read: a later row replaces an earlier one.
    at: HashMap<(u64, u32), usize>,
    /// By process and descriptor: which they are, in their order.
    by_descriptor: HashMap<(u32, i32), Vec<usize>>,
}

impl Calls {
    /// Reads them.
    ///
    /// # Errors
    /// When the recording went away while it was read.
    pub(crate) fn read(recording: &Recording) -> Result<Self, ReadError> {
        let mut calls = Self {
            sums: recording.peers()?,
            threshold_ns: recording.meta().options.threshold_ns,
            ..Self::default()
        };
        recording.read::<Exchange>(None, &mut |row| calls.add(row))?;
        Ok(calls)
    }

    /// Adds a row of the recording.
    pub(crate) fn add(&mut self, row: &Exchange) {
        if row.bytes_out == 0 && row.connect_ns == Some(row.first_send_ns) {
            self.given_up.push(row.clone());
            return;
        }
        if self.is_short(row) {
            self.short.push(row.clone());
            return;
        }
        let key = (row.socket, row.seq);
        let end = self.exchanges.len();
        if let Some(at) = self.at.get(&key) {
            self.exchanges[*at] = row.clone();
        } else if self.exchanges.push(row.clone()) {
            self.at.insert(key, end);
        }
    }

    fn is_short(&self, row: &Exchange) -> bool {
        let took_ns = |read_ns: Ns| read_ns.saturating_sub(row.first_send_ns);
        row.last_read_ns
            .is_some_and(|read_ns| took_ns(read_ns) < self.threshold_ns)
    }

    /// Puts them in order, once all are read.
    pub(crate) fn settle(&mut self) {
        // What was short until more of the reply was read is slow.
        let slow = std::mem::take(&mut self.at);
        let is_slow = |row: &Exchange| slow.contains_key(&(row.socket, row.seq));
        self.short.retain(|row| !is_slow(row));
        let order = |row: &Exchange| (row.first_send_ns, row.socket, row.seq);
        self.exchanges.sort_by_key(order);
        self.short.sort_by_key(order);
        self.given_up.sort_by_key(order);
        for (at, row) in self.exchanges.iter().enumerate() {
            let key = (row.tgid, row.fd);
            if row.fd >= 0 {
                self.by_descriptor.entry(key).or_default().push(at);
            }
        }
    }

    /// Whether the target asked somebody on this connection of a process.
    pub(crate) fn went_out(&self, tgid: u32, fd: i32) -> bool {
        self.by_descriptor.contains_key(&(tgid, fd))
    }

    /// The exchange for whose reply a thread slept, as far as that is certain: it slept for the
    /// descriptor on which something was sent before, and then read the reply itself.
    pub(crate) fn awaited(&self, wait: &Wait) -> Option<&Exchange> {
        let fd = descriptor(wait)?;
        let at = self.by_descriptor.get(&(wait.tgid, fd))?;
        let after = at.partition_point(|at| self.exchanges[*at].first_send_ns <= wait.out_ns);
        let exchange = &self.exchanges[at[after.checked_sub(1)?]];
        // Of one that has none it is the sender who waits for the reply.
        let (reader, until_ns) = match exchange.last_read_ns {
            Some(ns) => (exchange.read_tid, ns),
            None => (exchange.send_tid, exchange.gone_ns.unwrap_or(Ns::MAX)),
        };
        (reader == wait.tid && exchange.last_send_ns <= wait.out_ns && wait.end_ns() <= until_ns)
            .then_some(exchange)
    }
}

#[cfg(test)]
mod tests;
