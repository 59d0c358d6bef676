//! `dns-timeout`: DNS queries were not answered, and whoever asked waited and asked again.
//!
//! **Invariant.** A DNS server answers, and soon.
//!
//! **Evidence.** What was sent to port 53 by UDP and had no answer for 0.9 s: asked again then,
//! answered late, or never. For how long the thread waited is until it asked
//! again or had the answer, or else how long it slept next.
//!
//! **Cost.** That time, of the requests that the thread which asked had in hand.
//!
//! **Guards.** Fewer than [`DNS_MIN_QUERIES`] to a server are a note. The queries of a resolver
//! that has several on their way through one socket are not told apart: what is asked while others
//! are answered is not seen to be lost.

use std::collections::{BTreeMap, BTreeSet};

use whywait_events::DnsQuery;
use whywait_model::{Model, dns};
use whywait_words::{counted, duration, list};

use crate::declaration::{Declaration, Has, Waits};
use crate::facts::Facts;
use crate::finding::{Evidence, Finding, Saving, Severity};
use crate::numbers::{DNS_LATE_NS, DNS_MIN_QUERIES, DNS_SLEEPS_WITHIN_NS, SHOWN};
use crate::shared::intervals::sum;
use crate::shared::tails::median;
use crate::shared::threads::named;

/// What it is.
pub(crate) static DECLARATION: Declaration = Declaration {
    code: "dns-timeout",
    meaning: "DNS queries were not answered, and whoever asked waited and asked again",
    severities: &[
        (
            Severity::Error,
            "when requests waited for that, three queries or more",
        ),
        (Severity::Warning, "from three queries to a server on"),
        (Severity::Note, "otherwise"),
    ],
    invariant: "a DNS server answers, and soon",
    explain: include_str!("explain.md"),
    waits: Some(Waits {
        who: "look-ups of names",
        what: "for an answer",
        has: Has::Said("the DNS server {server}"),
    }),
    detect,
};

fn detect(facts: &Facts<'_>) -> Vec<Finding> {
    let model = facts.model;
    let mut by_server: BTreeMap<(&str, u16), Vec<&DnsQuery>> = BTreeMap::new();
    for row in model.dns.iter() {
        by_server
            .entry((&row.server, row.server_port))
            .or_default()
            .push(row);
    }
    by_server
        .into_iter()
        .filter_map(|((server, port), rows)| finding(model, server, port, &rows))
        .collect()
}

/// For how long whoever asked waited; `None`: not known.
fn waited_ns(model: &Model, row: &DnsQuery) -> Option<u64> {
    if let Some(until_ns) = dns::until_ns(row) {
        return Some(until_ns.saturating_sub(row.sent_ns));
    }
    let waits = model.threads.get(&row.tid)?.timeline.waits();
    let next = waits.get(waits.partition_point(|wait| wait.out_ns < row.sent_ns))?;
    let slept_ns = next.in_ns?.saturating_sub(row.sent_ns);
    let soon = next.out_ns - row.sent_ns < *DNS_SLEEPS_WITHIN_NS;
    (soon && slept_ns >= *DNS_LATE_NS).then_some(slept_ns)
}

/// For how long each request waited: of the thread that asked, when it had that one in hand; and of
/// whom tasks ask, what of its time was in calls to the server, at most.
fn of_requests(model: &Model, address: &str, rows: &[&DnsQuery]) -> Vec<u64> {
    let mut each = of_threads(model, rows);
    let asked: BTreeSet<u32> = rows.iter().map(|row| row.tgid).collect();
    let late = model.requests().filter(|request| {
        request.counts() && asked.contains(&request.tgid) && request.took_ns() >= Some(*DNS_LATE_NS)
    });
    for request in late {
        let is_server = |number| model.peer(number).is_some_and(|it| it.address() == address);
        let time = request.task_time();
        let peers = time.iter().flat_map(|time| &time.peers);
        let ns = sum(peers
            .filter(|it| is_server(it.number))
            .map(|it| it.ns.at_most));
        if ns >= *DNS_LATE_NS {
            let waited = each.entry((request.socket, request.seq)).or_default();
            *waited = ns.max(*waited);
        }
    }
    each.into_values().collect()
}

/// Those of threads that asked.
fn of_threads(model: &Model, rows: &[&DnsQuery]) -> BTreeMap<(u64, u32), u64> {
    let mut each: BTreeMap<(u64, u32), u64> = BTreeMap::new();
    for row in rows {
        let asked_for = model.requests().find(|request| {
            let until_ns = request.last_send_ns.unwrap_or(u64::MAX);
            request.recv_tid == row.tid
                && request.recv_ns.is_some_and(|ns| ns <= row.sent_ns)
                && row.sent_ns < until_ns
        });
        if let (Some(request), Some(ns)) = (asked_for, waited_ns(model, row)) {
            let waited = each.entry((request.socket, request.seq)).or_default();
            // Not beyond its answer: a thread of a runtime may have asked for another one.
            let rest_ns = request
                .answered_ns()
                .map(|ns| ns.saturating_sub(row.sent_ns));
            *waited = waited.saturating_add(ns.min(rest_ns.unwrap_or(u64::MAX)));
        }
    }
    each
}

fn finding(model: &Model, server: &str, port: u16, rows: &[&DnsQuery]) -> Option<Finding> {
    let longest = rows
        .iter()
        .max_by_key(|row| waited_ns(model, row).unwrap_or(0))?;
    let waited: Vec<u64> = rows
        .iter()
        .filter_map(|row| waited_ns(model, row))
        .collect();
    let address = if server.contains(':') {
        format!("[{server}]:{port}")
    } else {
        format!("{server}:{port}")
    };
    let requests = of_requests(model, &address, rows);
    let severity = match (rows.len() >= *DNS_MIN_QUERIES, requests.is_empty()) {
        (false, _) => Severity::Note,
        (true, true) => Severity::Warning,
        (true, false) => Severity::Error,
    };
    let how_long = median(waited.clone()).map_or_else(
        || "how long it was waited for is not known".to_owned(),
        |ns| format!("each was waited for {} (median)", duration(ns)),
    );
    let title = format!(
        "{} to {address} had no answer in time: {how_long}",
        counted(rows.len(), "DNS query"),
    );
    let again = rows.iter().filter(|row| row.again_ns.is_some()).count();
    let late = rows
        .iter()
        .filter(|row| row.again_ns.is_none() && row.answered_ns.is_some())
        .count();
    let all = model.counters.get("dns.queries").copied().unwrap_or(0);
    let of = match all {
        0 => String::new(),
        all => format!(" (of {all} in all)"),
    };
    let what_then = format!(
        "{again} asked again, {late} answered late, {} neither until the recording ended{of}",
        rows.len() - again - late,
    );
    let threads: BTreeSet<u32> = rows.iter().map(|row| row.tid).collect();
    let threads: Vec<String> = threads.iter().map(|tid| named(model, *tid)).collect();
    let in_hand = (!requests.is_empty()).then(|| {
        let ns = sum(requests.iter().copied());
        let text = format!(
            "{} waited for that, {} together",
            counted(requests.len(), "request"),
            duration(ns),
        );
        Evidence::of_ns(ns, text)
    });
    Some(
        Finding::new(&DECLARATION, severity, title)
            .about("server", address)
            .about("queries", rows.len())
            .about("pid", longest.tgid)
            .saving(Saving::latency(requests))
            .evidence(in_hand)
            .evidence([Evidence::of_ns(sum(waited), what_then)])
            .evidence(questions(rows).map(Evidence::new))
            .evidence([Evidence::new(format!("who asked: {}", list(&threads)))])
            .fix(
                "look at that DNS server and at the path to it; have a cache nearby answer \
                 (systemd-resolved, nscd, dnsmasq), or the program keep what it has looked up or \
                 its connections; a second server and \"options timeout:1\" in /etc/resolv.conf \
                 make the wait shorter, which is 5 s otherwise",
            ),
    )
}

/// Which records of names of which lengths were asked for: the names are not recorded.
fn questions(rows: &[&DnsQuery]) -> Option<String> {
    let mut all: BTreeMap<(u16, u16), usize> = BTreeMap::new();
    for row in rows.iter().filter(|row| row.name_length > 0) {
        *all.entry((row.question, row.name_length)).or_default() += 1;
    }
    let mut all: Vec<((u16, u16), usize)> = all.into_iter().collect();
    all.sort_by_key(|(_, queries)| std::cmp::Reverse(*queries));
    let texts: Vec<String> = all
        .iter()
        .take(*SHOWN)
        .map(|((question, length), queries)| {
            let record = record_type(*question);
            format!("{record} of a name of {length} characters ({queries})")
        })
        .collect();
    let more = match all.len().saturating_sub(*SHOWN) {
        0 => String::new(),
        more => format!("; {more} more"),
    };
    let known = !texts.is_empty();
    known.then(|| format!("asked for: {}{more}", texts.join("; ")))
}

/// The usual name of a type of DNS records, or its number.
fn record_type(question: u16) -> String {
    whywait_names::record_type(question).map_or_else(|| format!("type {question}"), str::to_owned)
}

#[cfg(test)]
mod tests;
