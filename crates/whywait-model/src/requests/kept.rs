//! The requests that are kept of a recording, with the sums of the others.

use schemars::JsonSchema;
use serde::Serialize;
use whywait_events::{Ns, Request};

use crate::requests::histogram::Histogram;
use crate::requests::jobs::KeptJobs;
use crate::requests::life;
use crate::requests::slowest::RequestSums;

/// The requests of a recording, as they were read.
#[derive(Debug, Clone, Default)]
pub struct KeptRequests {
    /// The slowest, one row each.
    pub rows: Vec<Request>,
    /// The others.
    pub sums: RequestSums,
    /// Latencies of all.
    pub(crate) latency: Histogram,
    /// Those of the target to itself.
    pub(crate) own: OwnRequests,
    /// Messages from brokers that were worked on.
    pub(crate) jobs: KeptJobs,
    /// Which of these are the requests of the report.
    pub(crate) counted: Counted,
}

/// Which requests those of a report are: others', or where there are none, jobs, or where there are
/// none either, the target's own to itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Counted {
    #[default]
    Others,
    Jobs,
    /// … that were handed on.
    HandedJobs,
    Own,
}

impl Counted {
    /// How the names of counters begin that are of such requests.
    pub(crate) fn counters(self) -> &'static str {
        match self {
            Self::Others => "",
            Self::Jobs => "jobs.",
            Self::HandedJobs => "handed-jobs.",
            Self::Own => "own.",
        }
    }

    /// Whether they are jobs.
    pub(crate) fn are_jobs(self) -> bool {
        matches!(self, Self::Jobs | Self::HandedJobs)
    }
}

impl KeptRequests {
    /// When one was seen last; 0: never.
    pub(crate) fn last_seen(&self) -> Ns {
        self.rows
            .iter()
            .map(|row| life::answered_ns(row).unwrap_or(row.ready_ns))
            .max()
            .unwrap_or(0)
    }
}

/// Requests on connections of which both ends are the target's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, JsonSchema)]
pub struct OwnRequests {
    /// How many were answered.
    pub count: u64,
    /// Whether they are among the requests of the report, which is so where there are no others.
    /// Else they are not: what they take is a part of what others' requests wait for.
    pub counted: bool,
}

impl OwnRequests {
    pub(super) fn are_none(&self) -> bool {
        self.count == 0
    }
}
