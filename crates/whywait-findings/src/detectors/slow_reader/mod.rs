//! `slow-reader`: clients did not read their responses, and had no room for more.
//!
//! **Invariant.** None of the server's: it is the client's doing, worth knowing because its clock
//! shows it.
//!
//! **Evidence.** How long the peer's window was closed while something was to be sent, as the
//! kernel counts it for each connection; responses of which the end could not be sent when it was
//! written, because the peer had no room; and answers of HTTP/2 that had filled the room their
//! client allows, and went on as soon as it made more.
//!
//! **Cost.** None that a change of the server saves.
//!
//! **Guards.** [`READER_NS`] for a response.

use std::collections::BTreeSet;

use whywait_events::{Tail, WorkKind};
use whywait_model::Model;
use whywait_words::{count, counted, duration};

use crate::declaration::{Declaration, Has, Waits};
use crate::facts::Facts;
use crate::finding::{Evidence, Finding, Severity};
use crate::numbers::{KEPT, READER_NS};
use crate::shared::tails::{by_port, clients, median, of_all, peers, stood_still_ns};
use crate::shared::threads::named;

/// What it is.
pub(crate) static DECLARATION: Declaration = Declaration {
    code: "slow-reader",
    meaning: "clients read their responses slowly: the kernel had to wait for room there",
    severities: &[(Severity::Note, "always: it is the client's doing")],
    invariant: "none of the server's: a client reads as it likes, and its clock shows that",
    explain: include_str!("explain.md"),
    waits: Some(Waits {
        who: "ends of responses",
        what: "for room at their clients",
        has: Has::Said("clients that do not read"),
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
            .filter(|tail| stood_still_ns(tail) >= *READER_NS),
    )
    .into_iter()
    .filter_map(|(port, tails)| finding(model, port, &tails))
    .collect()
}

fn finding(model: &Model, port: u16, tails: &[&Tail]) -> Option<Finding> {
    let each: Vec<u64> = tails.iter().map(|tail| stood_still_ns(tail)).collect();
    let median_ns = median(each)?;
    let by_streams = are_of_streams(model, tails);
    let title = format!(
        "{}{}{} waited for their clients to {}, for {} (median): these had no room for more",
        counted(tails.len(), "response"),
        of_all(model.requests_count()),
        match port {
            0 => String::new(),
            port => format!(" on port {port}"),
        },
        match by_streams {
            true => "make room (HTTP/2)",
            false => "read",
        },
        duration(median_ns),
    );
    let longest = tails.iter().max_by_key(|tail| stood_still_ns(tail))?;
    let open = if longest.unacknowledged {
        ", and was not read to its end when the recording ended"
    } else {
        ""
    };
    let text = format!(
        "the longest stood still for {}: {} wrote {} in {}, and {} of that were sent after the \
         last was written{open}",
        duration(stood_still_ns(longest)),
        named(model, longest.tid),
        counted(longest.bytes_out, "byte"),
        duration(longest.latency_ns),
        count(longest.bytes),
    );
    let addresses: Vec<&str> = peers(tails)
        .into_iter()
        .map(|(peer, _)| peer)
        .take(*KEPT)
        .collect();
    Some(
        Finding::new(&DECLARATION, Severity::Note, title)
            .about_known("port", (port != 0).then_some(port))
            .about("responses", tails.len())
            .about("peers", addresses)
            .evidence([Evidence::of_ns(stood_still_ns(longest), text)])
            .evidence(clients(tails).map(Evidence::new))
            .fix(match by_streams {
                true => {
                    "nothing of the server's is wrong; a client that reads as fast as it can, or \
                     is far away, is to allow more at a time (the initial window of HTTP/2: 65,535 \
                     bytes unless it says otherwise)"
                }
                false => {
                    "nothing of the server's is wrong; let a slow client keep no thread (a proxy \
                     in front that buffers, writes that do not block), and set a limit to how long \
                     it may take (send_timeout in nginx, SO_SNDTIMEO)"
                }
            }),
    )
}

/// Whether all are of streams of HTTP/2: of these the client says how much it allows.
fn are_of_streams(model: &Model, tails: &[&Tail]) -> bool {
    let requests = model.requests();
    let streams = requests.filter(|request| request.kind == WorkKind::Http2);
    let streams: BTreeSet<u64> = streams.map(|request| request.socket).collect();
    tails.iter().all(|tail| streams.contains(&tail.socket))
}

#[cfg(test)]
mod tests;
