//! What findings about the ends of responses have in common.

use std::collections::BTreeMap;

use whywait_events::{Tail, TailReason};
use whywait_model::requests::tails::held_ns;
use whywait_model::{Model, RequestRef};
use whywait_words::{count, counted, list};

use crate::numbers::READER_NS;

/// The median, of what is not empty.
pub(crate) fn median(mut figures: Vec<u64>) -> Option<u64> {
    let middle = figures.len() / 2;
    (!figures.is_empty()).then(|| *figures.select_nth_unstable(middle).1)
}

/// For how long it waited for the client to read.
pub(crate) fn stood_still_ns(tail: &Tail) -> u64 {
    match tail.reason {
        TailReason::Window => held_ns(tail).max(tail.window_ns),
        _ => tail.window_ns,
    }
}

/// How much of a request's time its response waited for the client to read, where that is said.
/// The client may have had no room after all was written, too, which is none of that time.
pub(crate) fn of_client_ns(model: &Model, request: RequestRef<'_>) -> u64 {
    let tail = model.tails.of(request.socket, request.seq);
    let before_ns = tail.map_or(0, |tail| tail.window_ns.saturating_sub(held_ns(tail)));
    match before_ns >= *READER_NS {
        true => before_ns.min(request.age_ns()),
        false => 0,
    }
}

/// By the server's port.
pub(crate) fn by_port<'m>(tails: impl Iterator<Item = &'m Tail>) -> BTreeMap<u16, Vec<&'m Tail>> {
    let mut by_port: BTreeMap<u16, Vec<&Tail>> = BTreeMap::new();
    for tail in tails {
        by_port.entry(tail.local_port).or_default().push(tail);
    }
    by_port
}

/// The clients' addresses, those with most responses first.
pub(crate) fn peers<'m>(tails: &[&'m Tail]) -> Vec<(&'m str, usize)> {
    let mut peers: BTreeMap<&str, usize> = BTreeMap::new();
    for tail in tails.iter().filter(|tail| !tail.peer.is_empty()) {
        *peers.entry(&tail.peer).or_default() += 1;
    }
    let mut peers: Vec<(&str, usize)> = peers.into_iter().collect();
    peers.sort_by_key(|(peer, responses)| (std::cmp::Reverse(*responses), *peer));
    peers
}

/// `the clients: 10.0.0.3 (12 responses) and 10.0.0.4 (1 response)`.
pub(crate) fn clients(tails: &[&Tail]) -> Option<String> {
    let peers: Vec<String> = peers(tails)
        .into_iter()
        .map(|(peer, n)| format!("{peer} ({})", counted(n, "response")))
        .collect();
    let whose = if peers.len() == 1 {
        "client"
    } else {
        "clients"
    };
    (!peers.is_empty()).then(|| format!("the {whose}: {}", list(&peers)))
}

/// ` of 120`: of how many requests, where that is known.
pub(crate) fn of_all(requests: u64) -> String {
    match requests {
        0 => String::new(),
        all => format!(" of {}", count(all)),
    }
}
