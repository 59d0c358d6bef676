//! Calls: what the target asked of others, on connections that it made. In the recording, a call is
//! an exchange with a peer.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use whywait_events::recording::{ReadError, Recording};
use whywait_events::{Exchange, Ns, Part, PeerSums, Wait};

use crate::model::Model;
use crate::path::PathStep;
use crate::rows::Rows;
use crate::waits::kind::TCP_RECEIVE;
use crate::waits::system_call::descriptor;

pub mod links;
mod peer;
mod service;
mod table;
mod within;

pub use peer::Peer;
pub use table::PeerRow;
pub use within::{CallWithin, CallsWithin};

/// The exchanges of a recording, and their peers.
#[derive(Debug, Clone, Default)]
pub struct Calls {
    /// What the exchanges with each peer came to, by its number.
    pub sums: BTreeMap<u32, PeerSums>,
    /// The slow ones, by when they began.
    pub exchanges: Rows<Exchange, 200_000>,
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
            ..Self::default()
        };
        recording.read::<Exchange>(None, &mut |row| calls.add(row))?;
        Ok(calls)
    }

    /// Adds a row of the recording.
    pub(crate) fn add(&mut self, row: &Exchange) {
        let key = (row.socket, row.seq);
        let end = self.exchanges.len();
        if let Some(at) = self.at.get(&key) {
            self.exchanges[*at] = row.clone();
        } else if self.exchanges.push(row.clone()) {
            self.at.insert(key, end);
        }
    }

    /// Puts them in order, once all are read.
    pub(crate) fn settle(&mut self) {
        self.at = HashMap::new();
        self.exchanges
            .sort_by_key(|row| (row.first_send_ns, row.socket, row.seq));
        for (at, row) in self.exchanges.iter().enumerate() {
            let key = (row.tgid, row.fd);
            if row.fd >= 0 {
                self.by_descriptor.entry(key).or_default().push(at);
            }
        }
    }

    /// The exchange for whose reply a thread slept, as far as that is certain: it slept for the
    /// descriptor on which something was sent before, and then read the reply itself.
    fn awaited(&self, wait: &Wait) -> Option<&Exchange> {
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

impl Model {
    /// The peer for whose reply a thread slept; `None` where that is not certain.
    pub fn awaited_peer(&self, wait: &Wait) -> Option<Peer<'_>> {
        self.peer(self.calls.awaited(wait)?.peer)
    }

    /// Whether slow calls were made that have no row: a request may have had one of those.
    pub(crate) fn lacks_calls(&self) -> bool {
        self.calls_without_row() > 0
    }

    /// How many these are.
    pub(crate) fn calls_without_row(&self) -> u64 {
        let over_budget = self.counters.get("exchanges.over-budget").copied();
        let left_out = self.calls.exchanges.left_out();
        left_out.saturating_add(over_budget.unwrap_or(0))
    }

    /// Whether a thread slept for a client: for more on a TCP stream on which no call went out.
    /// That is known where all slow calls were recorded; of one that was under way before, not.
    pub fn awaits_a_client(&self, wait: &Wait) -> bool {
        let all_recorded = self.counters.get("exchanges.over-budget") == Some(&0)
            && self.calls.exchanges.left_out() == 0
            && !wait.since_before;
        let of_tcp = || {
            let kind = self.kind_of(wait);
            kind.is_some_and(|kind| kind.name == TCP_RECEIVE)
        };
        let called = |fd| self.calls.by_descriptor.contains_key(&(wait.tgid, fd));
        all_recorded && descriptor(wait).is_some_and(|fd| !called(fd)) && of_tcp()
    }

    /// The peer for whose reply the request waited in a step of its path; `None` where that is not
    /// certain.
    pub fn peer_of_step(&self, step: &PathStep) -> Option<Peer<'_>> {
        self.peer(step.peer).or_else(|| self.slept_for(step))
    }

    /// The peer for whose reply a thread slept in a step of a path; `None` where that is not
    /// certain.
    pub fn slept_for(&self, step: &PathStep) -> Option<Peer<'_>> {
        let slept = step.part.is_some_and(|part| part == Part::Network);
        let timeline = &self.threads.get(&step.tid).filter(|_| slept)?.timeline;
        let wait = timeline.overlapping(step.from_ns, step.to_ns).first()?;
        self.awaited_peer(wait)
    }

    /// A peer by its number.
    pub fn peer(&self, number: u32) -> Option<Peer<'_>> {
        self.calls.sums.get(&number).map(Peer)
    }

    /// What a peer is called. Hostile.
    pub(crate) fn name_of_peer(&self, number: u32) -> String {
        self.peer(number)
            .map_or_else(|| "?".to_owned(), |peer| peer.to_string())
    }

    /// The peers of which most calls were too short for a row.
    pub(crate) fn mostly_short(&self) -> BTreeSet<u32> {
        let mut rows: BTreeMap<u32, u64> = BTreeMap::new();
        for call in self.exchanges() {
            *rows.entry(call.peer).or_default() += 1;
        }
        let peers = rows.into_iter().filter(|(peer, rows)| {
            let sums = self.calls.sums.get(peer);
            sums.is_some_and(|sums| rows.saturating_mul(2) < sums.count)
        });
        peers.map(|(peer, _)| peer).collect()
    }

    /// Whether a call went over a connection that carries several at a time: then it stands for
    /// several, of as many requests.
    pub fn is_shared(&self, call: &Exchange) -> bool {
        self.links.is_shared(call.socket)
    }

    /// The slow exchanges, by when they began.
    pub fn exchanges(&self) -> &[Exchange] {
        &self.calls.exchanges
    }
}

#[cfg(test)]
mod tests;
