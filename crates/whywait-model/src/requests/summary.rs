//! What the accounting says of a recording as a whole: the figures of a report, apart from its
//! findings.
//!
//! The field names are those of the JSON report (schema 1). What is not known is `None`, never a
//! made-up zero.

use serde::Serialize;

use crate::model::Model;
use crate::path::Step;
use crate::requests::RequestRef;
use crate::requests::account::Account;

/// Requests whose critical path is reported.
const SLOWEST: usize = 5;

/// The requests, their latency and where their time went.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Requests {
    /// How many.
    pub count: u64,
    /// How many took at least the recording's threshold.
    pub slow: u64,
    /// The recording's threshold for "slow".
    pub slow_threshold_ns: u64,
    /// From the first byte in the kernel to the last byte of the response. `None` without requests.
    pub latency_ns: Option<Latency>,
    /// Sums over all requests.
    pub time: Time,
    /// Attributed time over total time, `None` without requests.
    pub closure: Option<f64>,
    /// The slowest requests, slowest first.
    pub slowest: Vec<Slow>,
}

/// Percentiles in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[allow(missing_docs)]
pub struct Latency {
    pub p50: u64,
    pub p99: u64,
    pub max: u64,
}

/// Nanoseconds, summed over requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Time {
    /// From the first byte in the kernel until the target read it.
    pub ready_unserved: ReadyUnserved,
    /// The serving thread ran.
    pub on_cpu: Option<u64>,
    /// The serving thread waited for a CPU.
    pub runnable: Option<u64>,
    /// It waited for a lock.
    pub lock: Option<u64>,
    /// It waited for another thread.
    pub thread: Option<u64>,
    /// It waited for a device or filesystem.
    pub disk: Option<u64>,
    /// It waited for the network or another process.
    pub network: Option<u64>,
    /// It waited for a time to come.
    pub timer: Option<u64>,
    /// It waited in `io_uring_enter`.
    pub uring: Option<u64>,
    /// It waited for a page.
    pub page_fault: Option<u64>,
    /// None of these: the remainder.
    pub unknown: Option<u64>,
}

/// Why a request that the kernel had was not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct ReadyUnserved {
    /// A capable thread was idle and nobody polled.
    pub stranded: Option<u64>,
    /// Every capable thread was busy (or a thread polled, yet had not got to it).
    pub pool_busy: Option<u64>,
    /// A thread had been woken for it and was on its way.
    pub wakeup: Option<u64>,
}

/// One slow request.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Slow {
    /// Names it: `SOCKET:SEQ`.
    pub id: String,
    /// Local port, `None` for unix sockets.
    pub port: Option<u16>,
    /// From the start of the recording to its first byte.
    pub at_ns: u64,
    /// From its first byte in the kernel to the last byte of its response.
    pub latency_ns: u64,
    /// How that time splits.
    pub time: Time,
    /// Its critical path, from arrival to response.
    pub path: Vec<Step>,
}

impl Model {
    /// The time of all answered requests, nanoseconds.
    pub fn time_of_requests_ns(&self) -> u64 {
        self.requests()
            .filter_map(RequestRef::latency_ns)
            .fold(self.sums.total_ns, u64::saturating_add)
    }

    /// How many requests were answered.
    pub fn requests_count(&self) -> u64 {
        self.sums.count.saturating_add(self.answered_count())
    }

    /// The latency that this share of the requests does not exceed, nanoseconds; `None` without
    /// requests. Within a bucket of the kernel's histogram latencies are taken as evenly spread: so
    /// two recordings compare better than with middles.
    pub fn latency_quantile_ns(&self, share: f64) -> Option<f64> {
        let mut slowest_ns: Vec<u64> = Vec::new();
        // Slow requests that have no row may be anywhere among those that have.
        if self.sums.slow == 0 {
            slowest_ns.extend(self.requests().filter_map(RequestRef::latency_ns));
            slowest_ns.sort_unstable();
        }
        self.latency.quantile(share, &slowest_ns)
    }

    /// The figures over all requests.
    pub fn requests_summary(&self) -> Requests {
        let sums = &self.sums;
        let answered = self.answered_count();
        let count = sums.count.saturating_add(answered);
        if count == 0 {
            return Requests {
                slow_threshold_ns: self.threshold_ns(),
                ..Requests::default()
            };
        }
        let mut account = Account::of_sums(sums);
        for request in self.requests().filter(|request| request.is_answered()) {
            account += *request.account();
        }
        let mut slowest_ns: Vec<u64> = self.requests().filter_map(RequestRef::latency_ns).collect();
        slowest_ns.sort_unstable();
        let total = account.total_ns();
        let closure = if total == 0 {
            1.0
        } else {
            account.attributed_ns() as f64 / total as f64
        };
        Requests {
            count,
            slow: sums.slow.saturating_add(answered),
            slow_threshold_ns: self.threshold_ns(),
            latency_ns: self.latency.latency(&slowest_ns),
            time: account.time(),
            closure: Some(closure),
            slowest: self.slowest(),
        }
    }

    /// How many of those that are looked at one by one were answered.
    fn answered_count(&self) -> u64 {
        self.requests()
            .filter(|request| request.is_answered())
            .count() as u64
    }

    fn slowest(&self) -> Vec<Slow> {
        let mut order: Vec<(u64, RequestRef<'_>)> = self
            .requests()
            .filter_map(|request| Some((request.latency_ns()?, request)))
            .collect();
        order.sort_by_key(|(ns, _)| std::cmp::Reverse(*ns));
        order
            .into_iter()
            .take(SLOWEST)
            .map(|(_, request)| request.slow())
            .collect()
    }
}

impl RequestRef<'_> {
    /// The request for reports, with its critical path.
    pub fn slow(self) -> Slow {
        Slow {
            id: self.id(),
            port: (self.local_port != 0).then_some(self.local_port),
            at_ns: self.ready_ns.saturating_sub(self.model().meta.started_ns),
            latency_ns: self.latency_ns().unwrap_or(0),
            time: self.account().time(),
            path: self.steps(),
        }
    }
}
