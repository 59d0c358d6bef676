//! `connect-retried`: connections that the program made were made at the second try or later, or
//! were given up.
//!
//! **Invariant.** A connection is made at the first try.
//!
//! **Evidence.** SYNs that the kernel sent again before anything was written to a connection, by
//! peer. It does so after a second, and then after twice as long each time. And connections that
//! were given up before they were made, for which a thread slept: see [`given_up`].
//!
//! **Cost.** How long these connections took until they were made, or were not: in whose requests
//! is not known. A bound. Of those given up it is the sleeps on the paths of requests, and what
//! requests behind these wait for less.
//!
//! **Guards.** Fewer than [`RETRIED`] to a peer are a note, unless it was all of several. A
//! connection that was refused made nobody wait, nor did one for which no request slept: who
//! connects to another address meanwhile, or ahead of time, waits for either, or for none.
//!
//! [`given_up`]: crate::shared::given_up

use whywait_model::calls::PeerRow;
use whywait_words::{counted, counted_as, duration};

use crate::declaration::{Declaration, Has, Waits};
use crate::facts::Facts;
use crate::finding::{Evidence, Finding, Saving, SavingKind, Severity};
use crate::numbers::RETRIED;
use crate::ranking::Explained;

/// What it is.
pub(crate) static DECLARATION: Declaration = Declaration {
    code: "connect-retried",
    meaning: "connections to a peer were made at the second try or later, or given up: it did not \
              answer the first SYN",
    severities: &[
        (
            Severity::Warning,
            "from three connections to a peer on, or when it was all of several; of those given \
             up, from 30 ms of the median request on",
        ),
        (Severity::Note, "otherwise"),
    ],
    invariant: "a connection is made at the first try",
    explain: include_str!("explain.md"),
    waits: Some(Waits {
        who: "connections",
        what: "to be made",
        has: Has::Said("{peer}"),
    }),
    detect,
};

fn detect(facts: &Facts<'_>) -> Vec<Finding> {
    let model = facts.model;
    let rows = model.calls();
    let given_up = given_up::findings(facts, &rows);
    let known = |row: &&PeerRow| {
        let own = given_up.iter().find(|(peer, ..)| *peer == row.peer);
        // SYNs are sent again for those as well.
        own.is_some_and(|(_, connections, _)| row.retried <= *connections)
    };
    let retried = rows.iter().filter(|row| row.retried > 0);
    let retried = retried.filter(|row| !known(row)).map(finding);
    let retried: Vec<Finding> = retried.collect();
    let given_up = given_up.into_iter().map(|(.., finding)| finding);
    given_up.chain(retried).collect()
}

fn finding(row: &PeerRow) -> Finding {
    // One may be chance; where none of several went through at once it is not.
    let attempts = row.connects.saturating_add(row.failed);
    let all = row.retried > 1 && row.retried >= attempts;
    let severity = if row.retried >= *RETRIED || all {
        Severity::Warning
    } else {
        Severity::Note
    };
    let each_ns = row.retried_ns / row.retried.max(1);
    let title = format!(
        "{} to {} had a SYN sent again, and took {} on average",
        counted(row.retried, "connection"),
        row.name(),
        duration(each_ns),
    );
    let of = format!(
        "{} made meanwhile, {} failed",
        counted_as(row.connects, "connection was", "connections were"),
        row.failed,
    );
    let quick = row.connects.checked_sub(row.retried).filter(|n| *n > 0);
    let others = quick.zip(row.connect_ns).map(|(n, mean_ns)| {
        let all_ns = mean_ns.saturating_mul(row.connects);
        let ns = all_ns.saturating_sub(row.retried_ns) / n;
        Evidence::of_ns(ns, format!("the others took {} on average", duration(ns)))
    });
    Finding::new(&DECLARATION, severity, title)
        .about("peer", row.peer.clone())
        .about("connections", row.retried)
        .saving(Saving::sum(
            SavingKind::Latency,
            row.retried_ns,
            row.retried,
        ))
        .explains(Explained::Connects)
        .evidence([Evidence::new(of)])
        .evidence(others)
        .fix(format!(
            "{FIX_OF_PEER}; keep connections rather than make new ones"
        ))
}

const FIX_OF_PEER: &str = "see whether the peer's accept queue is full (there: nstat -az \
                           TcpExtListenOverflows; whywait says accept-overflow), or a firewall or \
                           the path drops SYNs";

mod given_up;
#[cfg(test)]
mod tests;
