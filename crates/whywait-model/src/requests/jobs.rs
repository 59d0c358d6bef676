//! Jobs: messages from a broker that the target worked on.

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::Serialize;
use whywait_events::Request;

use crate::model::Model;

/// Brokers that are named.
const MAX_BROKERS: usize = 4;

/// Jobs: the target reads a message from a broker, on a connection that it made, works, and asks
/// for the next one, or acknowledges it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, JsonSchema)]
pub struct Jobs {
    /// How many were done.
    pub count: u64,
    /// Whether they are the requests of the report, which is so where it has no others.
    pub counted: bool,
    /// From the message in the kernel to what the worker sent when it was done, of all together.
    pub total_ns: u64,
    /// Brokers that slow ones came from. Hostile.
    pub brokers: Vec<String>,
    /// How often a broker was asked for a message and answered, also that there is none.
    pub fetches: u64,
    /// How long it was asked for until it answered, of all together: there was nothing to do, as
    /// far as the broker was quick.
    pub waited_ns: u64,
}

/// The jobs of a recording, as they were read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KeptJobs {
    pub(crate) count: u64,
    pub(crate) total_ns: u64,
    /// Numbers of the peers.
    brokers: BTreeSet<u32>,
}

impl KeptJobs {
    /// Notes whom it came from.
    pub(crate) fn note(&mut self, row: &Request) {
        if row.broker != 0 && self.brokers.len() < MAX_BROKERS {
            self.brokers.insert(row.broker);
        }
    }
}

impl Model {
    /// The jobs; `None`: there were none.
    pub fn jobs(&self) -> Option<Jobs> {
        let counter = |name: &str| self.counters.get(name).copied().unwrap_or(0);
        let kept = &self.jobs;
        let brokers = kept.brokers.iter();
        let jobs = Jobs {
            count: kept.count,
            counted: self.counted.are_jobs(),
            total_ns: kept.total_ns,
            brokers: brokers.map(|peer| self.name_of_peer(*peer)).collect(),
            fetches: counter("jobs.fetches"),
            waited_ns: counter("jobs.waited-ns"),
        };
        (jobs.count > 0 || jobs.counted || jobs.fetches > 0).then_some(jobs)
    }
}
