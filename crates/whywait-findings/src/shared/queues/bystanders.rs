//! Requests that make no call to a peer, and yet go on when those of others end: what they wait for
//! is in the hands of who calls it meanwhile, as a connection to another peer is that a request
//! keeps across such a call.

use std::collections::BTreeSet;

use whywait_events::Ns;
use whywait_model::RequestRef;

use super::{Flow, Pairs, QueuedRequest};
use crate::numbers::{MIN_REQUESTS, MUCH, QUEUE_PROMPT, SLOW_NS, Share};
use crate::shared::intervals::{Covered, Interval, merged};
use crate::shared::traffic::{length, served};

/// The slow ones among them. Until `shown_ns` it does not show what was under way. None,
/// where hardly any are, or where they go on at other times too.
pub(super) fn of<'m>(
    all: &[RequestRef<'m>],
    pairs: &Pairs<'m>,
    calls: &[Interval],
    flow: &Flow,
    shown_ns: Ns,
    at_once_ns: u64,
) -> Vec<QueuedRequest<'m>> {
    let id = |request: &RequestRef<'_>| (request.socket, request.seq);
    let call: BTreeSet<(u64, u32)> = pairs.requests.iter().map(id).collect();
    let slow = all.iter().filter(|one| one.took_ns() >= Some(*SLOW_NS));
    let slow: Vec<RequestRef<'m>> = slow.copied().collect();
    let others = slow.iter().filter(|one| !call.contains(&id(one)));
    let others: Vec<(RequestRef<'m>, Interval)> = others
        .filter_map(|request| Some((*request, served(request)?)))
        .collect();
    let mut ends: Vec<Ns> = calls.iter().map(|call| call.1).collect();
    ends.sort_unstable();
    let follow = others.iter().filter(|(_, (_, answered_ns))| {
        let before = ends.partition_point(|end_ns| end_ns <= answered_ns);
        let last = before.checked_sub(1).map(|at| ends[at]);
        last.is_some_and(|end_ns| answered_ns - end_ns <= at_once_ns)
    });
    let follow = Share::counted(follow.count(), others.len());
    let many = Share::counted(others.len(), slow.len()).is_at_least(*MUCH);
    if !many || others.len() < *MIN_REQUESTS || follow.is_below(*QUEUE_PROMPT) {
        return Vec::new();
    }
    let full = flow.full.iter().chain(&flow.handed).copied();
    let full = Covered::new(merged(full.collect()));
    let waited = others.into_iter().map(|(request, hand)| QueuedRequest {
        request,
        waited_ns: full.within(hand),
        before_ns: length((hand.0, hand.1.min(shown_ns))),
        called_ns: 0,
    });
    waited.filter(|one| one.waited_ns >= *SLOW_NS).collect()
}
