//! What the accounting says of a recording as a whole: the figures of a report, apart from its
//! findings.
//!
//! The field names are those of the JSON report (schema 1). What is not known is `None`, never a
//! made-up zero.

use std::borrow::Cow;

use schemars::JsonSchema;
use serde::Serialize;
use whywait_events::WorkKind;

use crate::calls::CallsWithin;
use crate::calls::links::{TaskTime, TaskTotals};
use crate::cpu::holders::CpuHolderRow;
use crate::model::Model;
use crate::path::Step;
use crate::requests::RequestRef;
use crate::requests::accept_queues::AcceptQueue;
use crate::requests::account::{Account, Time};
use crate::requests::datagrams::Datagrams;
use crate::requests::histogram::{Histogram, Latency, LatencyBucket, Percentile};
use crate::requests::jobs::Jobs;
use crate::requests::kept::OwnRequests;
use crate::requests::lives::Life;
use crate::requests::multiplexed::Multiplexed;
use crate::requests::open::OpenRequests;
use crate::requests::routes::Routes;
use crate::requests::streams::Http2Streams;
use crate::requests::tails::Held;
use crate::requests::task_waits::TaskWaits;
use crate::requests::under_way::OngoingResponses;
use crate::requests::wire::{Sent, Wire};

/// Requests whose critical path is reported.
const SLOWEST: usize = 5;

/// The requests, their latency and where their time went.
#[derive(Debug, Clone, PartialEq, Default, Serialize, JsonSchema)]
pub struct Requests {
    /// How many were answered.
    pub count: u64,
    /// Those that are open when the recording ends. The late ones count in all that follows, with
    /// their age.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub open: Option<OpenRequests>,
    /// The accept queues in which connections waited when they were looked at last, or that
    /// dropped some.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub accept_queues: Vec<AcceptQueue>,
    /// Responses that were under way when the recording began, or when it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub under_way: Option<OngoingResponses>,
    /// Connections that carry several requests at once: what counts as a request of theirs need not
    /// be one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub multiplexed: Option<Multiplexed>,
    /// Questions in datagrams; absent: there were none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub datagrams: Option<Datagrams>,
    /// Streams of HTTP/2; absent: there were none that could be followed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub streams: Option<Http2Streams>,
    /// Messages from brokers that were worked on; absent: there were none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jobs: Option<Jobs>,
    /// Those of the target to itself, as of a gateway that calls its own listener.
    #[serde(skip_serializing_if = "OwnRequests::are_none")]
    pub own: OwnRequests,
    /// How many took at least the recording's threshold.
    pub slow: u64,
    /// The recording's threshold for "slow".
    pub slow_threshold_ns: u64,
    /// From the first byte in the kernel to the last byte of the response. `None` without requests,
    /// and where they cannot be told apart.
    pub latency_ns: Option<Latency>,
    /// Responses of which the kernel held back the end: what that took is in no figure above or
    /// below.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held: Option<Held>,
    /// The clients' clock, where it says something else than `latency_ns`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wire: Option<Wire>,
    /// Sums over all requests.
    pub time: Time,
    /// Who had the CPUs for the time in which threads could run and had none (`runnable` and
    /// `wakeup` above), the longest first; absent: nobody, or it was not recorded.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cpu_holders: Vec<CpuHolderRow>,
    /// Attributed time over total time. `None` without requests, and where they cannot be told
    /// apart.
    pub closure: Option<f64>,
    /// How the time splits by the requests' calls, of those requests that are looked at one by
    /// one; absent: there were none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tasks: Option<TaskTotals>,
    /// What the tasks of slow requests did, of those whose tasks were looked at; absent: none were.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task_waits: Option<TaskWaits>,
    /// Those that have a row, by what they are called; absent: no names were asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub routes: Option<Routes>,
    /// The slowest requests, slowest first.
    pub slowest: Vec<Slow>,
}

/// One slow request.
#[derive(Debug, Clone, PartialEq, Default, Serialize, JsonSchema)]
pub struct Slow {
    /// Names it: `SOCKET:SEQ`.
    pub id: String,
    /// What it is called; absent: that is not known. Hostile.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Local port, `None` for unix sockets and jobs.
    pub port: Option<u16>,
    /// Of a job: whom it came from; hostile.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub broker: Option<String>,
    /// From the start of the recording to its first byte.
    pub at_ns: u64,
    /// From its first byte in the kernel to the last byte of its response; while it is open, to
    /// the recording's end.
    pub latency_ns: u64,
    /// Whether it is still open.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub open: bool,
    /// How that time splits.
    pub time: Time,
    /// Its critical path, from arrival to response.
    pub path: Vec<Step>,
    /// The calls to others that were made meanwhile; absent: none are known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub calls: Option<CallsWithin>,
    /// How that time splits by its calls; absent: its process made none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tasks: Option<TaskTime>,
    /// What its task did meanwhile; absent: nobody looked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task_waits: Option<TaskWaits>,
    /// What became of its response after it was written; absent: it went out at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sending: Option<Sent>,
}

/// The requests that are not looked at one by one, and are nowhere but in sums.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SummedUp {
    /// How many they are.
    pub count: u64,
    /// Of these: that took the recording's threshold or longer.
    pub slow: u64,
    /// Where the time of all of them together went.
    pub account: Account,
    /// How many took how long, nanoseconds, shortest first: by bucket of the kernel's histogram,
    /// the bucket's middle standing for all that is in it.
    pub latencies: Vec<(u64, u64)>,
}

impl Model {
    /// The requests that are not looked at one by one.
    pub fn summed_up(&self) -> SummedUp {
        let sums = &self.sums;
        let kept = self.lives().filter_map(Life::latency_ns);
        let mut latencies = self.latency.without(kept);
        let counted: u64 = latencies
            .iter()
            .map(|(_, count)| *count)
            .fold(0, u64::saturating_add);
        if let Some(mean_ns) = sums.total_ns.checked_div(sums.count)
            && counted < sums.count
        {
            // Lost from the histogram: what they took is known together only.
            latencies.push((mean_ns, sums.count - counted));
            latencies.sort_unstable();
        }
        let mut excess = counted.saturating_sub(sums.count);
        for (_, count) in &mut latencies {
            let cut = excess.min(*count);
            *count -= cut;
            excess -= cut;
        }
        latencies.retain(|(_, count)| *count > 0);
        SummedUp {
            count: sums.count,
            slow: sums.slow,
            account: Account::of_sums(sums),
            latencies,
        }
    }

    /// The time of all requests that count, nanoseconds.
    pub fn time_of_requests_ns(&self) -> u64 {
        self.lives()
            .filter_map(Life::took_ns)
            .fold(self.sums.total_ns, u64::saturating_add)
    }

    /// How many requests were answered.
    pub fn requests_count(&self) -> u64 {
        let answered = self.requests().filter(|request| request.is_answered());
        self.sums.count.saturating_add(answered.count() as u64)
    }

    /// How many requests count: were answered, or are late.
    pub fn requests_that_count(&self) -> u64 {
        self.sums.count.saturating_add(self.counting())
    }

    /// The latency that this share of the requests does not exceed, nanoseconds; `None` without
    /// requests. Requests that are late have had theirs at least. Within a bucket of the kernel's
    /// histogram latencies are taken as evenly spread: so two recordings compare better than with
    /// middles.
    pub fn latency_quantile_ns(&self, share: f64) -> Option<f64> {
        let mut slowest_ns: Vec<u64> = Vec::new();
        // Slow requests that have no row may be anywhere among those that have.
        if self.sums.slow == 0 {
            slowest_ns.extend(self.lives().filter_map(Life::took_ns));
            slowest_ns.sort_unstable();
        }
        self.latency_with_late().quantile(share, &slowest_ns)
    }

    /// How many requests there are of each latency, those that are late with their age. Buckets are
    /// an eighth of a power of two wide.
    pub fn latency_buckets(&self) -> Vec<LatencyBucket> {
        self.latency_with_late().buckets()
    }

    /// The figures over all requests.
    pub fn requests_summary(&self) -> Requests {
        let sums = &self.sums;
        let open = self.open_requests();
        let queues = self.accept_queues.all();
        let accept_queues = queues.filter(AcceptQueue::matters).collect();
        let under_way = self.responses_under_way();
        let mut multiplexed = self.multiplexed();
        if self.requests_that_count() == 0 {
            return Requests {
                open,
                accept_queues,
                under_way,
                multiplexed,
                datagrams: self.datagrams(),
                streams: self.streams(),
                jobs: self.jobs(),
                own: self.own,
                slow_threshold_ns: self.threshold_ns(),
                ..Requests::default()
            };
        }
        let mut account = Account::of_sums(sums);
        for request in self.requests().filter(|request| request.counts()) {
            account += *request.account();
        }
        let total = account.total_ns();
        let mut latency_ns = self.latency();
        let closure = if let Some(several) = multiplexed.as_mut().filter(|several| several.prevail)
        {
            several.exchange_ns = latency_ns.take();
            None
        } else if total == 0 {
            Some(1.0)
        } else {
            Some(account.attributed_ns() as f64 / total as f64)
        };
        Requests {
            count: self.requests_count(),
            open,
            accept_queues,
            under_way,
            multiplexed,
            datagrams: self.datagrams(),
            streams: self.streams(),
            jobs: self.jobs(),
            own: self.own,
            slow: sums.slow.saturating_add(self.counting()),
            slow_threshold_ns: self.threshold_ns(),
            latency_ns,
            held: self.tails.held(&self.counters),
            wire: self.wire().filter(|_| closure.is_some()),
            time: account.time(),
            cpu_holders: self.cpu_holders(),
            closure,
            tasks: self.task_totals(),
            task_waits: self.task_waits(),
            routes: self.routes(),
            slowest: self.slowest(),
        }
    }

    /// How many count of those that are looked at one by one.
    fn counting(&self) -> u64 {
        self.requests().filter(|request| request.counts()).count() as u64
    }

    /// Percentiles over the requests that count.
    pub(crate) fn latency(&self) -> Option<Latency> {
        let mut slowest_ns: Vec<u64> = self.lives().filter_map(Life::took_ns).collect();
        slowest_ns.sort_unstable();
        let mut latency = self.latency_with_late().latency(&slowest_ns)?;
        let late = self.lives().filter(|request| request.is_late());
        // What is open by now takes its age at least, and so do all that are above it.
        latency.at_least_from = late.map(Life::age_ns).min().map(|least_ns| match least_ns {
            ns if ns <= latency.p50 => Percentile::P50,
            ns if ns <= latency.p99 => Percentile::P99,
            _ => Percentile::Max,
        });
        Some(latency)
    }

    pub(crate) fn latency_with_late(&self) -> Cow<'_, Histogram> {
        let mut latency = Cow::Borrowed(&self.latency);
        for request in self.requests().filter(|request| request.is_late()) {
            latency.to_mut().add(request.age_ns());
        }
        latency
    }

    fn slowest(&self) -> Vec<Slow> {
        let mut order: Vec<(u64, RequestRef<'_>)> = self
            .requests()
            .filter_map(|request| Some((request.took_ns()?, request)))
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
            name: self.name().map(str::to_owned),
            port: (self.local_port != 0).then_some(self.local_port),
            broker: matches!(self.kind, WorkKind::Job | WorkKind::HandedJob)
                .then(|| self.model().name_of_peer(self.broker)),
            at_ns: self.ready_ns.saturating_sub(self.model().meta.started_ns),
            latency_ns: self.age_ns(),
            open: self.is_open(),
            time: self.account().time(),
            path: self.steps(),
            calls: self.calls_within(),
            tasks: self.task_time(),
            task_waits: self.task_waits(),
            sending: self.sent(),
        }
    }
}
