//! `accept-overflow`: an accept queue was full, and the kernel dropped connections.
//!
//! **Invariant.** A connection finds room in the accept queue.
//!
//! **Evidence.** The listener's count of what the kernel has dropped there, and the network
//! namespace's count of how often a queue was full: what both agree on is an overflow.
//!
//! **Cost.** A range: a client whose packet is dropped sends it again after a second, and then
//! after twice as long each time (RFC 6298), and the kernel does not tell whose it was. How many
//! tries may be one client's follows from when they were dropped.
//!
//! **Guards.** At least [`DROPPED`]. Drops while no accept queue of the namespace was full (a
//! flood of SYNs, no memory) are none. A listener that takes connections with their first data only
//! (TCP_DEFER_ACCEPT) drops what ends each handshake: it must have been full at one of the looks.
//! Where connections stay in the queue to the end, `accept-stalled` says it.

mod who;

use serde_json::json;
use whywait_model::Model;
use whywait_model::requests::AcceptQueue;
use whywait_words::{counted, counted_as, duration, duration_range};

use crate::declaration::{Declaration, Has, Waits};
use crate::detectors::accept_stalled;
use crate::facts::Facts;
use crate::finding::{Evidence, Finding, Saving, SavingKind, Severity};
use crate::numbers::{DROPPED, DROPPED_ERROR, Share};

/// What it is.
pub(crate) static DECLARATION: Declaration = Declaration {
    code: "accept-overflow",
    meaning: "an accept queue was full, and the kernel dropped connections, whose clients try \
              again after a second or later",
    severities: &[
        (
            Severity::Error,
            "when there was one for each hundred requests, or more",
        ),
        (Severity::Warning, "otherwise"),
    ],
    invariant: "a connection finds room in the accept queue",
    explain: include_str!("explain.md"),
    waits: Some(Waits {
        who: "connections",
        what: "for room in the accept queue (limit {limit})",
        has: Has::CauseOr("connections that nobody has accepted"),
    }),
    detect,
};

fn detect(facts: &Facts<'_>) -> Vec<Finding> {
    let model = facts.model;
    let full: Vec<AcceptQueue> = model
        .accept_queues
        .all()
        .filter(|queue| queue.overflows >= *DROPPED)
        .collect();
    if full.is_empty() {
        return Vec::new();
    }
    let stalled = (accept_stalled::DECLARATION.detect)(facts);
    full.iter()
        .filter(|queue| {
            let same = |finding: &Finding| finding.subject.get("port") == Some(&json!(queue.port));
            !stalled.iter().any(same)
        })
        .map(|queue| finding(model, queue))
        .collect()
}

fn finding(model: &Model, queue: &AcceptQueue) -> Finding {
    let requests = model.requests_count();
    let dropped = u64::from(queue.overflows);
    let severity = if Share::new(dropped, requests).is_at_least(*DROPPED_ERROR) {
        Severity::Error
    } else {
        Severity::Warning
    };
    let of = queue
        .port
        .map_or_else(String::new, |port| format!(" of port {port}"));
    let title = format!(
        "the accept queue{of} was full: {} of clients dropped, which try again after 1 s or later; \
         its limit is {}",
        counted(queue.overflows, "packet"),
        queue.limit
    );
    let beside = format!(
        "{} answered meanwhile: what these clients waited before their connection was made is in \
         no latency here",
        counted_as(requests, "request was", "requests were")
    );
    let longest = model
        .requests()
        .filter(|request| request.before_accept && Some(request.local_port) == queue.port)
        .filter_map(|request| Some(request.recv_ns?.saturating_sub(request.ready_ns)))
        .max();
    let late = longest.map(|ns| {
        let text = format!(
            "of those whose connection was made, one waited {} to be accepted and read",
            duration(ns)
        );
        Evidence::of_ns(ns, text)
    });
    let (at_least_ns, at_most_ns) = queue.clients_waited_ns(model.meta.started_ns, model.end_ns);
    let range = Evidence::of_ns(
        at_most_ns,
        format!(
            "by how Linux tries again these clients waited {} together, to the recording's end",
            duration_range(at_least_ns, at_most_ns),
        ),
    );
    let (instead, cause) = who::evidence(model, queue);
    Finding::new(&DECLARATION, severity, title)
        .about_known("port", queue.port)
        .about("limit", queue.limit)
        .about("dropped", dropped)
        .about("at_least_ns", at_least_ns)
        .saving(Saving::sum(SavingKind::Latency, at_most_ns, dropped))
        .about(
            "pids",
            json!(queue.holders.iter().map(|one| one.pid).collect::<Vec<_>>()),
        )
        .evidence([range])
        .evidence(instead)
        .evidence([Evidence::new(beside)])
        .evidence(late)
        .cause(cause)
        .fix(
            "let who accepts do nothing else that can wait, or have more threads that accept; \
             raise the limit: the argument of listen (often a setting called backlog) and \
             net.core.somaxconn",
        )
}

#[cfg(test)]
mod tests;
