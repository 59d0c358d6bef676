//! Connections that carry several requests at once, as HTTP/2's do.
//!
//! On other connections whatever is read after a response is the next request. On these it need not
//! be: what counts as a request is an *exchange*, what was read and then written up to the next
//! read. It may hold several requests, parts of some, or none, and how long it took is neither what
//! they took at least nor what they took at most.

use schemars::JsonSchema;
use serde::Serialize;

use crate::model::Model;
use crate::requests::histogram::Latency;

/// One exchange in so many requests can make a percentile wrong.
const FEW: u64 = 100;

/// The counter that every recording has of which TLS was to be looked into.
const TLS_LOOKED: &str = "tls.libraries";

/// Connections that carry several requests at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, JsonSchema)]
pub struct Multiplexed {
    /// How many.
    pub connections: u64,
    /// Of which began as HTTP/2 does, or were read frames of it.
    pub http2: u64,
    /// Of which clients sent, again and again, before they had all of what was being sent to them.
    pub overlapping: u64,
    /// Whether these may carry HTTP/2 in TLS, and nobody asked for what is in TLS.
    #[serde(skip)]
    pub may_be_tls: bool,
    /// How many of the requests are exchanges on them.
    pub exchanges: u64,
    /// Whether these are too many for figures over all requests to mean anything.
    pub prevail: bool,
    /// If so, percentiles over exchanges and other requests alike. They say little of what clients
    /// meet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exchange_ns: Option<Latency>,
}

impl Model {
    /// The connections that carry several requests at once; `None` when none is known.
    pub fn multiplexed(&self) -> Option<Multiplexed> {
        let whose = self.counted.counters();
        let counter = |name: &str| {
            let counter = self.counters.get(&format!("{whose}{name}"));
            counter.copied().unwrap_or(0)
        };
        let http2 = counter("connections.http2");
        let overlapping = counter("connections.overlapping");
        let rows = self
            .requests()
            .filter(|request| request.counts() && request.multiplexed);
        let all = self.requests_that_count();
        let exchanges = self
            .sums
            .multiplexed
            .saturating_add(rows.count() as u64)
            .min(all);
        (http2 > 0 || overlapping > 0).then(|| Multiplexed {
            connections: http2.saturating_add(overlapping),
            http2,
            overlapping,
            may_be_tls: overlapping > 0 && !self.counters.contains_key(TLS_LOOKED),
            exchanges,
            prevail: exchanges > 0 && exchanges.saturating_mul(FEW) >= all,
            exchange_ns: None,
        })
    }

    /// Whether figures over all requests are of requests: too few of them are exchanges of several.
    pub fn tells_requests_apart(&self) -> bool {
        !self.multiplexed().is_some_and(|several| several.prevail)
    }
}
