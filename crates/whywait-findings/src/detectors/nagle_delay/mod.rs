//! `nagle-delay`: responses were written in pieces, and the kernel held the last one back until the
//! client had acknowledged the others.
//!
//! **Invariant.** What a server has written goes out at once.
//!
//! **Evidence.** Ends of responses that were written while data was on its way that the client had
//! not acknowledged, that were less than a full segment, and that Nagle's algorithm held back until
//! that acknowledgement came. When each went out is the connection's own time.
//!
//! **Cost.** For how long each was held back.
//!
//! **Guards.** At least [`MIN_RESPONSES`] on a port, [`NAGLE_NS`] each as a rule: a client
//! that waits for nothing acknowledges at once. What the client has no room for, and what the
//! congestion window holds back, is not counted: see `tails.bpf.h`.

use std::collections::BTreeMap;

use whywait_events::{Tail, TailReason};
use whywait_model::Model;
use whywait_model::requests::tails::held_ns;
use whywait_words::{count, counted, duration, percent};

use crate::declaration::{Declaration, Has, Waits};
use crate::facts::Facts;
use crate::finding::{Evidence, Finding, Saving, Severity};
use crate::numbers::{MIN_RESPONSES, NAGLE_NS, RESPONSE_ERROR_NS};
use crate::shared::intervals::sum;
use crate::shared::tails::median;
use crate::shared::threads::named;

/// What it is.
pub(crate) static DECLARATION: Declaration = Declaration {
    code: "nagle-delay",
    meaning: "responses were written in pieces, and the kernel held the last one back until the \
              client had acknowledged the others",
    severities: &[
        (
            Severity::Error,
            "when clients waited longer for that than for the server, 30 ms or longer each",
        ),
        (Severity::Warning, "otherwise"),
    ],
    invariant: "what a server has written goes out at once",
    explain: include_str!("explain.md"),
    waits: Some(Waits {
        who: "ends of responses",
        what: "to be sent",
        has: Has::Said("the kernel, until clients acknowledge (Nagle's algorithm)"),
    }),
    detect,
};

fn detect(facts: &Facts<'_>) -> Vec<Finding> {
    let model = facts.model;
    let mut by_port: BTreeMap<u16, Vec<&Tail>> = BTreeMap::new();
    for tail in model
        .tails
        .late()
        .filter(|tail| tail.reason == TailReason::Nagle)
    {
        by_port.entry(tail.local_port).or_default().push(tail);
    }
    by_port
        .into_iter()
        .filter_map(|(port, tails)| finding(model, port, &tails))
        .collect()
}

fn finding(model: &Model, port: u16, tails: &[&Tail]) -> Option<Finding> {
    let each: Vec<u64> = tails.iter().map(|tail| held_ns(tail)).collect();
    let median_ns = median(each.clone())?;
    if tails.len() < *MIN_RESPONSES || median_ns < *NAGLE_NS {
        return None;
    }
    let held = sum(each.iter().copied());
    let latencies: Vec<u64> = tails
        .iter()
        .map(|tail| tail.latency_ns)
        .filter(|ns| *ns > 0)
        .collect();
    // The server's part of what those clients waited for, where it is known of them all.
    let served_ns = (latencies.len() == tails.len()).then(|| sum(latencies.iter().copied()));
    let longer = served_ns.is_none_or(|ns| held > ns);
    let severity = if longer && median_ns >= *RESPONSE_ERROR_NS {
        Severity::Error
    } else {
        Severity::Warning
    };
    let of = match model.requests_count() {
        0 => String::new(),
        all => format!(" of {}", count(all)),
    };
    let title = format!(
        "the end of {}{of} was held back for {} (median), for the client's acknowledgement: \
         written in pieces, with Nagle's algorithm on",
        counted(tails.len(), "response"),
        duration(median_ns),
    );
    let longest = tails.iter().max_by_key(|tail| held_ns(tail))?;
    let sizes = format!(
        "the longest, {}: {} wrote the last {} of {} and they were not sent, because the {} before \
         were not acknowledged",
        duration(held_ns(longest)),
        named(model, longest.tid),
        counted(longest.bytes, "byte"),
        longest.bytes_out,
        longest.bytes_out.saturating_sub(u64::from(longest.bytes)),
    );
    let clients = median(latencies).map(|ns| {
        Evidence::of_ns(
            median_ns,
            format!(
                "the server took {} for such a request (median); its client waited {}: {} of \
                 that for the acknowledgement",
                duration(ns),
                duration(ns.saturating_add(median_ns)),
                percent(median_ns, ns.saturating_add(median_ns)),
            ),
        )
    });
    Some(
        Finding::new(&DECLARATION, severity, title)
            .about_known("port", (port != 0).then_some(port))
            .about("pid", longest.tgid)
            .about("thread", longest.tid)
            .about("responses", tails.len())
            .saving(Saving::latency(each))
            .evidence(clients)
            .evidence([Evidence::of_ns(held_ns(longest), sizes)])
            .fix(
                "write the response with one call (a buffer, writev, MSG_MORE for all pieces but \
                 the last), or set TCP_NODELAY on accepted connections (http.server in Python: \
                 disable_nagle_algorithm and wbufsize of the handler; the JDK's HttpServer: \
                 -Dsun.net.httpserver.nodelay=true)",
            ),
    )
}

#[cfg(test)]
mod tests;
