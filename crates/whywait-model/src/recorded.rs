//! What a recording says by itself: nothing of it is joined with anything else.

use std::collections::{BTreeMap, BTreeSet};

use whywait_events::recording::Meta;

use crate::cpu::bursts::Bursts;
use crate::cpu::{CpuTime, Sampled};
use crate::dns::LateDns;
use crate::file_locks::FileLocks;
use crate::names::GivenNames;
use crate::requests::abandoned::AbandonedRequests;
use crate::requests::accept_queues::AcceptQueues;
use crate::requests::open_connections::OpenConnections;
use crate::requests::pushes::Pushes;
use crate::requests::tails::Tails;
use crate::requests::task_waits::TaskLooks;
use crate::requests::under_way::ResponseLooks;
use crate::stacks::StackNames;
use crate::stops::Stops;

/// What a recording says by itself, as it was read.
#[derive(Debug, Clone, Default)]
pub struct Recorded {
    /// What was recorded, where and how.
    pub meta: Meta,
    /// The recording's counters.
    pub counters: BTreeMap<String, u64>,
    /// What of the recording could not be read, in words.
    pub damaged: Vec<String>,
    /// Names of stacks.
    pub stacks: StackNames,
    /// Who waited for connections: by process and descriptor.
    pub(crate) acceptors: BTreeMap<(u32, i32), BTreeSet<u32>>,
    /// When threads were stopped from outside.
    pub(crate) stops: Stops,
    /// The accept queues of the target's listeners.
    pub accept_queues: AcceptQueues,
    /// The connections on which threads may have slept when somebody looked.
    pub open_connections: OpenConnections,
    /// Ends of responses that the kernel held back.
    pub tails: Tails,
    /// Responses that were under way when somebody looked.
    pub responses: ResponseLooks,
    /// What was sent unasked to several connections.
    pub pushes: Pushes,
    /// What the tasks of slow requests did.
    pub(crate) task_looks: TaskLooks,
    /// Requests that were answered for clients that had gone.
    pub abandoned: AbandonedRequests,
    /// DNS queries that were not answered in time.
    pub dns: LateDns,
    /// Files that others had locked.
    pub file_locks: FileLocks,
    /// What requests and calls are called.
    pub(crate) given_names: GivenNames,
    /// What CPU time was for.
    pub cpu: CpuTime,
    /// Where threads were sampled on a CPU.
    pub sampled: Sampled,
    /// What bursts of system-call tracing saw.
    pub bursts: Bursts,
}

impl Recorded {
    /// The recording's threshold for what is slow or long, nanoseconds.
    pub fn threshold_ns(&self) -> u64 {
        self.meta.options.threshold_ns
    }
}
