//! Requests whose calls go over a connection that carries several at a time: which are whose does
//! not show, but an answer that follows at once on what was read there waited for it.

use std::collections::BTreeMap;

use whywait_events::{Exchange, Ns};
use whywait_model::{Model, Peer};
use whywait_words::{counted, counted_as, duration, percent};

use super::together::{self, Together};
use crate::facts::Facts;
use crate::finding::Finding;
use crate::numbers::{BY_CHANCE, Share, UPSTREAM_PAIRED};
use crate::shared::intervals::{Covered, Interval, merged};
use crate::shared::slow_paths::{SlowRequest, dominates};
use crate::shared::traffic::{served, with_peer};

/// What was read on such connections, and when their calls were with the peer.
struct Replies<'m> {
    peer: Peer<'m>,
    tids: Vec<u32>,
    exchanges: usize,
    /// In order, each once.
    read: Vec<Ns>,
    /// … with when the last byte was written to which it may be the reply.
    sent: BTreeMap<Ns, Ns>,
    with_peer: Covered,
}

impl<'m> Replies<'m> {
    fn of(model: &'m Model, calls: &[&Exchange]) -> Option<Self> {
        let mut sent: BTreeMap<Ns, Ns> = BTreeMap::new();
        for call in calls {
            for ns in [call.first_read_ns, call.last_read_ns]
                .into_iter()
                .flatten()
            {
                let sent_ns = sent.entry(ns).or_default();
                *sent_ns = call.last_send_ns.max(*sent_ns);
            }
        }
        let mut tids: Vec<u32> = calls.iter().map(|call| call.send_tid).collect();
        tids.sort_unstable();
        tids.dedup();
        let with_peers: Vec<Interval> = calls.iter().map(|call| with_peer(call)).collect();
        Some(Self {
            peer: model.peer(calls.first()?.peer)?,
            tids,
            exchanges: calls.len(),
            read: sent.keys().copied().collect(),
            sent,
            with_peer: Covered::new(merged(with_peers)),
        })
    }
}

/// One for each process and peer.
pub(super) fn findings(facts: &Facts<'_>) -> Vec<Finding> {
    let (model, slow_ns) = (facts.model, facts.slow().total_ns);
    let mut calls: BTreeMap<(u32, u32), Vec<&Exchange>> = BTreeMap::new();
    let read = |call: &&Exchange| {
        call.last_read_ns.is_some() && model.is_shared(call) && !model.speaks_http2(call)
    };
    for call in model.exchanges().iter().filter(read) {
        calls.entry((call.tgid, call.peer)).or_default().push(call);
    }
    let by_themselves: Vec<&SlowRequest<'_>> = facts.slow_by_themselves();
    let of_each = calls.iter().filter_map(|((tgid, _), calls)| {
        let requests = by_themselves.iter().copied();
        let requests = requests.filter(|slow| slow.request.tgid == *tgid);
        finding(model, &Replies::of(model, calls)?, requests, slow_ns)
    });
    of_each.collect()
}

fn finding<'a>(
    model: &Model,
    replies: &Replies<'_>,
    requests: impl Iterator<Item = &'a SlowRequest<'a>>,
    slow_ns: u64,
) -> Option<Finding> {
    let spacing_ns = together::spacing_ns(&replies.read);
    let at_once_ns = BY_CHANCE.of(spacing_ns);
    let (mut answers, mut prompt) = (0_u64, 0_u64);
    let mut waits: Vec<(u64, u64)> = Vec::new();
    for slow in requests {
        let request = slow.request;
        let (Some((from_ns, _)), Some(answer_ns)) = (served(&request), request.first_send_ns)
        else {
            continue;
        };
        answers += 1;
        let read = together::last(&replies.read, answer_ns, at_once_ns);
        // What was sent before the request had been read is no call of its.
        let may_be_own = |read_ns: &Ns| replies.sent.get(read_ns) >= Some(&from_ns);
        let Some(read_ns) = read.filter(may_be_own) else {
            continue;
        };
        prompt += 1;
        let with_peer_ns = replies.with_peer.within((from_ns, read_ns));
        if dominates(with_peer_ns, slow.latency_ns) {
            waits.push((with_peer_ns, slow.latency_ns));
        }
    }
    if Share::new(prompt, answers).is_below(*UPSTREAM_PAIRED) {
        return None;
    }
    let follow = format!(
        "{} of the answers came within {} after something was read there, which is every {}",
        percent(prompt, answers),
        duration(at_once_ns),
        duration(spacing_ns),
    );
    let several = format!(
        "what is sent there does not wait for the reply to what was sent before: {} answered with \
         {}; how much of the wait was in the program, before a call was sent, does not show",
        counted_as(answers, "request was", "requests were"),
        counted(replies.exchanges, "exchange"),
    );
    let waited = Together {
        peer: replies.peer,
        waits,
        over: "connections that several share",
        tids: &replies.tids,
    };
    waited.finding(model, slow_ns, [follow, several])
}
