//! `accept-stalled`: connections with requests stay in an accept queue, and nobody accepts them.
//!
//! **Invariant.** A connection is accepted as soon as somebody who accepts is free.
//!
//! **Evidence.** Requests on connections that nobody has accepted when the recording ends, older
//! than what 99 of 100 answered requests took and than [`UNACCEPTED_NS`]. The accept queue of their
//! listener, and who has it open. Who accepts are the threads that slept in accept, or polled the
//! listener, or read requests that were there before their connection was accepted; what they do in
//! the end is what keeps them from it. A process that has all of its descriptors open cannot accept
//! at all.
//!
//! **Cost.** The age of each such request.
//!
//! **Guards.** Who has a request in hand is busy with that: what it waits for is another finding.
//! Who runs, or waits for a CPU, may come to it: the server is saturated. (Without a descriptor it
//! tries in vain.) A target that was stopped for half of the time accepts nobody, for that reason.
//! Nothing is said where the accept queue was not looked at, or was empty; nor where the workers of
//! that port are exhausted, or its event loop was blocked.

pub(super) mod who;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::json;
use whywait_model::requests::AcceptQueue;
use whywait_model::requests::accept_queues::Holder;
use whywait_model::{Model, RequestRef};
use whywait_words::{counted, counted_as, duration, list};

use crate::declaration::{Declaration, Has, Waits};
use crate::detectors::{blocked_loop, workers_exhausted};
use crate::facts::Facts;
use crate::finding::{Cause, Confidence, Evidence, Finding, Saving, Severity};
use crate::numbers::{SHOWN, UNACCEPTED_ERROR_NS, UNACCEPTED_NS};

use who::{Acceptors, Doing};

/// What it is.
pub(crate) static DECLARATION: Declaration = Declaration {
    code: "accept-stalled",
    meaning: "connections waited in the accept queue to the end, and nobody accepted them",
    severities: &[
        (
            Severity::Error,
            "when a connection had waited for 1 s or longer",
        ),
        (Severity::Warning, "otherwise"),
    ],
    invariant: "a connection is accepted as soon as somebody who accepts is free",
    explain: include_str!("explain.md"),
    waits: Some(Waits {
        who: "requests",
        what: "for their connection to be accepted",
        has: Has::CauseOr("nobody accepts"),
    }),
    detect,
};

fn detect(facts: &Facts<'_>) -> Vec<Finding> {
    let model = facts.model;
    let mut by_place: BTreeMap<(u32, u16), Vec<RequestRef<'_>>> = BTreeMap::new();
    let unaccepted = model.requests().filter(|request| {
        let late = request.is_late() && request.age_ns() >= *UNACCEPTED_NS;
        request.unaccepted && late && !request.was_stopped()
    });
    for request in unaccepted {
        by_place.entry(request.place()).or_default().push(request);
    }
    if by_place.is_empty() {
        return Vec::new();
    }
    let others: Vec<Finding> = [&workers_exhausted::DECLARATION, &blocked_loop::DECLARATION]
        .into_iter()
        .flat_map(|other| (other.detect)(facts))
        .filter(|finding| finding.severity > Severity::Note)
        .collect();
    by_place
        .into_iter()
        .filter(|((_, port), _)| {
            let same = |finding: &Finding| finding.subject.get("port") == Some(&json!(port));
            !others.iter().any(same)
        })
        .filter_map(|((_, port), requests)| finding(model, port, &requests))
        .collect()
}

fn finding(model: &Model, port: u16, requests: &[RequestRef<'_>]) -> Option<Finding> {
    let queues: Vec<AcceptQueue> = model
        .accept_queues
        .all()
        .filter(|queue| queue.port.unwrap_or(0) == port && queue.queued > 0)
        .collect();
    let holders: Vec<&Holder> = queues.iter().flat_map(|queue| &queue.holders).collect();
    let end_ns = requests.iter().map(|request| request.end_ns()).max()?;
    let acceptors = Acceptors::of(model, port, &holders, end_ns);
    let out_of_descriptors = holders.iter().copied().find(|holder| holder.is_out());
    let may_come_to_it = out_of_descriptors.is_none() && acceptors.one_is_active();
    if queues.is_empty() || acceptors.all_have_work(model) || may_come_to_it {
        return None;
    }
    let each: Vec<u64> = requests.iter().map(|request| request.age_ns()).collect();
    let oldest_ns = each.iter().copied().max()?;
    let severity = if oldest_ns >= *UNACCEPTED_ERROR_NS {
        Severity::Error
    } else {
        Severity::Warning
    };
    let least = if requests.iter().any(|request| request.since_before) {
        "at least "
    } else {
        ""
    };
    let kept = acceptors.kept(model);
    let keepers = if acceptors.is_empty() {
        one_connection_each(model, port)
    } else {
        0
    };
    let why = match (out_of_descriptors, &kept) {
        (Some(holder), _) => format!(
            "{} has all of its {} descriptors open",
            process(model, holder.pid),
            holder.descriptors_limit.unwrap_or(0)
        ),
        (None, Some(kept)) => kept.in_words(model),
        (None, None) if acceptors.is_empty() => {
            let who = processes(model, &holders);
            let do_not = if holders.len() > 1 { "do" } else { "does" };
            format!("{who} {do_not} not accept")
        }
        (None, None) => format!(
            "{}, which accepted before, does not any more",
            processes(model, &holders)
        ),
    };
    let title = format!(
        "{} waited to the end, for {least}{}, on connections that nobody accepted: {why}",
        counted(requests.len(), "request"),
        duration(oldest_ns)
    );
    let certain = out_of_descriptors.is_some() || kept.is_some();
    let fix = fix(out_of_descriptors.is_some(), kept.as_ref(), keepers);
    let cause = kept.as_ref().map(|kept| {
        let doing = kept.doing(model);
        Cause::new(model, kept.tid, doing, kept.stack())
    });
    Some(
        Finding::new(&DECLARATION, severity, title)
            .confidence(if certain {
                Confidence::High
            } else {
                Confidence::Medium
            })
            .about_known("port", (port != 0).then_some(port))
            .about("pids", pids(&holders))
            .about_known("thread", kept.as_ref().map(|kept| kept.tid))
            .saving(Saving::latency(each))
            .evidence(queues.iter().map(in_queue))
            .evidence(
                holders
                    .iter()
                    .filter_map(|holder| descriptors(model, holder)),
            )
            .evidence((keepers > 0).then(|| one_each(keepers)))
            .evidence(acceptors.evidence(model, &holders))
            .cause(cause)
            .fix(fix),
    )
}

/// How many threads read requests at a port, if none is an event loop's, and each of them reads one
/// connection alone, and always the same one, on which it has read more than once; else 0.
fn one_connection_each(model: &Model, port: u16) -> usize {
    let mut read: BTreeMap<u32, BTreeMap<u64, usize>> = BTreeMap::new();
    let here = |request: &RequestRef<'_>| request.local_port == port && request.recv_tid != 0;
    for request in model.requests().filter(here) {
        if request.epoll != 0 {
            return 0;
        }
        let sockets = read.entry(request.recv_tid).or_default();
        *sockets.entry(request.socket).or_default() += 1;
    }
    let sockets: BTreeSet<u64> = read.values().flat_map(BTreeMap::keys).copied().collect();
    let again = |sockets: &BTreeMap<u64, usize>| {
        sockets.len() == 1 && sockets.values().all(|requests| *requests > 1)
    };
    let one_each = read.len() > 1 && sockets.len() == read.len() && read.values().all(again);
    if one_each { read.len() } else { 0 }
}

fn one_each(keepers: usize) -> Evidence {
    Evidence::new(format!(
        "each of the {keepers} threads that read had one connection all the while, and nobody read \
         another: who accepts may wait for one of them to be free"
    ))
}

fn pids(holders: &[&Holder]) -> serde_json::Value {
    json!(holders.iter().map(|holder| holder.pid).collect::<Vec<_>>())
}

/// `server (pid 12)`.
fn process(model: &Model, pid: u32) -> String {
    format!("{} (pid {pid})", model.thread_name(pid))
}

fn processes(model: &Model, holders: &[&Holder]) -> String {
    let named: Vec<String> = holders
        .iter()
        .take(*SHOWN)
        .map(|holder| process(model, holder.pid))
        .collect();
    match holders.len().saturating_sub(*SHOWN) {
        _ if named.is_empty() => "the target".to_owned(),
        0 => list(&named),
        more => format!("{} and {more} more", named.join(", ")),
    }
}

/// How full the accept queue is.
pub(crate) fn in_queue(queue: &AcceptQueue) -> Evidence {
    let of = queue
        .port
        .map_or_else(String::new, |port| format!(" of port {port}"));
    let full = if queue.is_full() {
        ": it is full, and the kernel drops who comes now"
    } else {
        ""
    };
    let dropped = match queue.overflows {
        0 => String::new(),
        dropped => format!(
            "; meanwhile the kernel dropped {}",
            counted_as(dropped, "packet there", "packets there")
        ),
    };
    let began = queue.queued_at_first.map_or_else(String::new, |queued| {
        format!(" and {queued} when the recording began")
    });
    Evidence::new(format!(
        "the accept queue{of} held {} in the end{began}; its limit is {}{full}{dropped}",
        counted(queue.queued, "connection"),
        queue.limit,
    ))
}

/// That a process may not open another descriptor.
fn descriptors(model: &Model, holder: &Holder) -> Option<Evidence> {
    holder.is_out().then(|| {
        Evidence::new(format!(
            "{} has {} descriptors open and may have {}: accept fails with EMFILE",
            process(model, holder.pid),
            holder.descriptors.unwrap_or(0),
            holder.descriptors_limit.unwrap_or(0)
        ))
    })
}

fn fix(out_of_descriptors: bool, kept: Option<&Doing<'_>>, keepers: usize) -> &'static str {
    if out_of_descriptors {
        "find what keeps the descriptors (idle connections without a time-out, files that nobody \
         closes); raise the limit (LimitNOFILE, ulimit -n) where it is too low for the load"
    } else if kept.is_some() {
        "let the thread that accepts do nothing else that can wait: read the first bytes, shake \
         hands and look names up elsewhere, with a time-out; or have more threads that accept"
    } else if keepers > 0 {
        "more of the threads that read, or connections that are given up sooner while they ask for \
         nothing (keep-alive), if who accepts waits for one of those threads; else find out what \
         it waits for"
    } else {
        "find out why nobody calls accept: a limit on connections that is reached, a listener that \
         was taken out of the poll and not put back, a thread that accepted and has ended"
    }
}

#[cfg(test)]
mod tests;
