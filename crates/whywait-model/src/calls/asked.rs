//! What is known of the calls before any is linked to a request.

use std::collections::{BTreeMap, BTreeSet};

use whywait_events::{Exchange, Part, Wait};

use super::Peer;
use crate::joined::Joined;
use crate::path::PathStep;
use crate::waits::kind::TCP_RECEIVE;
use crate::waits::system_call::descriptor;

impl Joined {
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
        let called = |fd| self.calls.went_out(wait.tgid, fd);
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

    /// Exchanges that were shorter than the threshold and have a row, by when they began: all of
    /// them where few are made, else some.
    pub fn short_exchanges(&self) -> &[Exchange] {
        &self.calls.short
    }

    /// Connections that took the threshold or longer and were given up before they were made, by
    /// when they began: from then, `first_send_ns`, until `gone_ns`, by the thread `send_tid`.
    pub fn given_up(&self) -> &[Exchange] {
        &self.calls.given_up
    }

    /// The slow exchanges, by when they began.
    pub fn exchanges(&self) -> &[Exchange] {
        &self.calls.exchanges
    }
}
