//! Questions in datagrams: how many of the requests are some, and what became of the others.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;

use crate::model::Model;

/// Questions in datagrams, on sockets that the target bound. They are among the requests as far as
/// they were answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, JsonSchema)]
pub struct Datagrams {
    /// How many were answered.
    pub answered: u64,
    /// How many were read and not answered until the recording ended. Not every datagram wants an
    /// answer.
    pub unanswered: u64,
    /// How many were asked again by the same peer before they were answered.
    pub retried: u64,
    /// Of how many it is not known when they came: they seem to have come when they were read.
    pub untimed: u64,
    /// For how many the thread told which answer is theirs: whom it was sent to is not known, or
    /// who had asked.
    pub by_thread: u64,
    /// Datagrams that were sent to peers whose question was not seen, or had been answered.
    pub unasked: u64,
    /// Datagrams that found no room in their socket's queue.
    pub dropped: u64,
    /// Datagrams that were read or sent through sockets that speak QUIC. Requests in it are not
    /// seen.
    pub quic: u64,
}

impl Datagrams {
    fn of(counters: &BTreeMap<String, u64>) -> Option<Self> {
        let of = |name: &str| {
            let counter = counters.get(&format!("datagrams.{name}"));
            counter.copied().unwrap_or(0)
        };
        let datagrams = Self {
            answered: of("answered"),
            unanswered: of("unanswered"),
            retried: of("retried"),
            untimed: of("untimed"),
            by_thread: of("by-thread"),
            unasked: of("unasked"),
            dropped: of("dropped"),
            quic: of("quic"),
        };
        (datagrams != Self::default()).then_some(datagrams)
    }
}

impl Model {
    /// The questions in datagrams; `None`: there were none.
    pub(crate) fn datagrams(&self) -> Option<Datagrams> {
        Datagrams::of(&self.counters)
    }
}
