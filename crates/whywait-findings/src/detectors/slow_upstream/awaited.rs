//! Calls that several requests wait for: one of them makes it, and who comes meanwhile waits for
//! its end. Then they are answered together, right after it. Where several were there long before
//! it began they wait for something that its end makes free, as a connection to another peer.

use std::collections::BTreeMap;

use whywait_model::RequestRef;
use whywait_words::{counted, duration};

use super::in_calls;
use crate::facts::Facts;
use crate::finding::{Confidence, Evidence, Finding};
use crate::numbers::{EXECUTOR_ANSWERS, MIN_REQUESTS, MOST, NEARLY_ALL, QUEUE_AT_ONCE_NS, Share};
use crate::shared::intervals::{Covered, Interval, merged};
use crate::shared::slow_paths::{Shares, dominates};
use crate::shared::traffic::{Traffic, served};
use crate::shared::workers::{OfProcess, OfProgram, of_programs};

/// Requests that wait for such calls.
struct AwaitedCalls {
    /// So many of them, …
    requests: usize,
    /// … for so many calls.
    calls: usize,
}

/// One for each program and peer.
pub(super) fn findings(facts: &Facts<'_>) -> Vec<Finding> {
    let mut by_process: BTreeMap<u32, Vec<RequestRef<'_>>> = BTreeMap::new();
    for one in facts.slow().requests.iter() {
        let request = one.request;
        if served(&request).is_some() && !request.multiplexed {
            by_process.entry(request.tgid).or_default().push(request);
        }
    }
    let traffic = facts.traffic().iter();
    let found = traffic.filter_map(|traffic| of_traffic(traffic, by_process.get(&traffic.tgid)?));
    of_programs(facts.model, found, |_| ())
        .iter()
        .filter_map(|program| finding(facts, program))
        .collect()
}

fn of_traffic<'t, 'm>(
    traffic: &'t Traffic<'m>,
    requests: &[RequestRef<'_>],
) -> Option<OfProcess<'t, 'm, AwaitedCalls>> {
    let mut calls = traffic.intervals();
    calls.sort_unstable_by_key(|call| call.1);
    let under_way = Covered::new(merged(traffic.intervals()));
    // By the call after which they were answered: what each of them waited, and how many were there
    // long before it was made.
    let mut after: BTreeMap<Interval, (Vec<(u64, u64)>, usize)> = BTreeMap::new();
    for request in requests {
        let Some(hand) = served(request) else {
            continue;
        };
        let waited_ns = under_way.within(hand);
        let before = calls.partition_point(|call| call.1 <= hand.1);
        let last = before.checked_sub(1).map(|at| calls[at]);
        let Some(call) = last.filter(|call| call.1 >= hand.0) else {
            continue;
        };
        let at_once = hand.1 - call.1 < *QUEUE_AT_ONCE_NS;
        if at_once && dominates(waited_ns, request.age_ns()) {
            let (together, early) = after.entry(call).or_default();
            together.push((waited_ns, request.age_ns()));
            *early += usize::from(hand.0.saturating_add(*QUEUE_AT_ONCE_NS) < call.0);
        }
    }
    let several = || after.values().filter(|(together, _)| together.len() > 1);
    let awaited = AwaitedCalls {
        requests: several().map(|(together, _)| together.len()).sum(),
        calls: several().count(),
    };
    // One of those who wait for a call makes it. Others that were there before it did not wait for
    // that, but for what its end made free.
    let before: usize = several().map(|(_, early)| early.saturating_sub(1)).sum();
    let at_most_one = Share::counted(awaited.requests - before, awaited.requests);
    if at_most_one.is_below(*NEARLY_ALL) {
        return None;
    }
    let follow = Share::counted(awaited.requests, requests.len());
    // Where each has a call of its own, replies and answers come together as well.
    let own = Share::counted(traffic.calls.len(), awaited.requests).exceeds(*MOST);
    if awaited.requests < *MIN_REQUESTS || follow.is_below(*EXECUTOR_ANSWERS) || own {
        return None;
    }
    Some(OfProcess {
        traffic,
        shares: Shares::new(several().flat_map(|(together, _)| together).copied()),
        what: awaited,
    })
}

fn finding(facts: &Facts<'_>, program: &OfProgram<'_, '_, AwaitedCalls>) -> Option<Finding> {
    let peer = program.traffic.peer;
    let slow_ns = facts.slow().total_ns;
    let (finding, of_peer) = in_calls(facts.model, peer, &program.shares, slow_ns)?;
    let AwaitedCalls { requests, calls } = program.what;
    let together = format!(
        "{} wait for {}: one of them makes it, and who comes meanwhile waits for its end; they are \
         answered together, within {} of it",
        counted(requests, "request"),
        counted(calls, "call"),
        duration(*QUEUE_AT_ONCE_NS),
    );
    let finding = finding
        .confidence(Confidence::Medium)
        .about("awaited_together", true)
        .evidence(program.evidence())
        .evidence([Evidence::new(together), Evidence::new(of_peer)]);
    Some(program.about_processes(facts.model, finding))
}
