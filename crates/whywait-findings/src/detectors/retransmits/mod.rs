//! `retransmits`: packets of responses were lost, and the kernel sent them again.
//!
//! **Invariant.** What a server sends gets to its clients at the first time.
//!
//! **Evidence.** Packets that the kernel sent again between the reading of a request and its
//! response's end at the client, without those that the client had already (it says so: D-SACK).
//! When what was acknowledged last went out is the connection's own time.
//!
//! **Cost.** From when each response was written until its end went out for the last time. What was
//! lost while the server was still writing is in its own time, and not counted.
//!
//! **Guards.** At least [`MIN_RESPONSES`] on a port.

use whywait_events::{Tail, TailReason};
use whywait_model::Model;
use whywait_model::requests::tails::held_ns;
use whywait_words::{counted, counted_as, duration, percent};

use crate::declaration::{Declaration, Has, Waits};
use crate::facts::Facts;
use crate::finding::{Evidence, Finding, Saving, Severity};
use crate::numbers::{KEPT, LOSS_ERROR, LOSS_WARNING_NS, MIN_RESPONSES, Share};
use crate::shared::intervals::sum;
use crate::shared::tails::{by_port, clients, median, of_all, peers};

/// What it is.
pub(crate) static DECLARATION: Declaration = Declaration {
    code: "retransmits",
    meaning: "packets of responses were lost and sent again, and their clients waited for that",
    severities: &[
        (
            Severity::Error,
            "when that took longer than the server did, over all requests, in one response of a \
             hundred or more",
        ),
        (
            Severity::Warning,
            "when the median end was 5 ms late or later",
        ),
        (Severity::Note, "otherwise"),
    ],
    invariant: "what a server sends gets to its clients at the first time",
    explain: include_str!("explain.md"),
    waits: Some(Waits {
        who: "ends of responses",
        what: "to be sent again",
        has: Has::Said("packets that were lost"),
    }),
    detect,
};

fn detect(facts: &Facts<'_>) -> Vec<Finding> {
    let model = facts.model;
    by_port(
        model
            .tails
            .rows()
            .iter()
            .filter(|tail| tail.retransmits > 0),
    )
    .into_iter()
    .filter_map(|(port, tails)| finding(model, port, &tails))
    .collect()
}

fn severity(model: &Model, tails: &[&Tail], late: &[u64], median_ns: u64) -> Severity {
    let often = Share::new(tails.len() as u64, model.requests_count()).is_at_least(*LOSS_ERROR);
    if late.len() < *MIN_RESPONSES || median_ns < *LOSS_WARNING_NS {
        Severity::Note
    } else if often && sum(late.iter().copied()) > model.time_of_requests_ns() {
        Severity::Error
    } else {
        Severity::Warning
    }
}

fn finding(model: &Model, port: u16, tails: &[&Tail]) -> Option<Finding> {
    if tails.len() < *MIN_RESPONSES {
        return None;
    }
    let late: Vec<u64> = tails
        .iter()
        .filter(|tail| tail.reason == TailReason::Lost)
        .map(|tail| held_ns(tail))
        .filter(|ns| *ns >= model.threshold_ns())
        .collect();
    let median_ns = median(late.clone()).unwrap_or(0);
    let packets = sum(tails.iter().map(|tail| tail.retransmits.into()));
    let timeouts = sum(tails.iter().map(|tail| tail.timeouts.into()));
    let waited = match late.len() {
        0 => "their ends were not late".to_owned(),
        n => format!(
            "{n} of their ends were late, by {} (median)",
            duration(median_ns)
        ),
    };
    let title = format!(
        "packets of {}{} were lost and sent again: {waited}",
        counted(tails.len(), "response"),
        of_all(model.requests_count()),
    );
    let how = format!(
        "{} sent again: {timeouts} because nothing came back for long (a timeout, or a tail loss \
         probe); {} sooner, because what came back showed the loss",
        counted_as(packets, "packet was", "packets were"),
        packets.saturating_sub(timeouts),
    );
    let served: Vec<u64> = tails
        .iter()
        .map(|tail| tail.latency_ns)
        .filter(|ns| *ns > 0)
        .collect();
    let compared = median(served).filter(|_| median_ns > 0).map(|ns| {
        Evidence::of_ns(
            median_ns,
            format!(
                "the server took {} for such a request (median); its client waited {}: {} of \
                 that for what was lost",
                duration(ns),
                duration(ns.saturating_add(median_ns)),
                percent(median_ns, ns.saturating_add(median_ns)),
            ),
        )
    });
    let addresses: Vec<&str> = peers(tails)
        .into_iter()
        .map(|(peer, _)| peer)
        .take(*KEPT)
        .collect();
    Some(
        Finding::new(
            &DECLARATION,
            severity(model, tails, &late, median_ns),
            title,
        )
        .about_known("port", (port != 0).then_some(port))
        .about("responses", tails.len())
        .about("packets", packets)
        .about("timeouts", timeouts)
        .about("peers", addresses)
        .saving(Saving::latency(late))
        .evidence(compared)
        .evidence([Evidence::new(how)])
        .evidence(clients(tails).map(Evidence::new))
        .fix(
            "look at the path to these clients: drops of interfaces and queues (ip -s link, tc \
                 -s qdisc, ethtool -S), of a firewall, of a shaper or limit in between; where it \
                 is one client, at its link",
        ),
    )
}

#[cfg(test)]
mod tests;
