//! Requests that slept for connections which were given up.

use std::collections::{BTreeMap, BTreeSet};

use whywait_events::Exchange;
use whywait_model::calls::PeerRow;
use whywait_model::{PathStep, Peer};
use whywait_words::{counted_as, duration};

use super::{DECLARATION, FIX_OF_PEER};
use crate::facts::Facts;
use crate::finding::{Cause, Confidence, Evidence, Finding};
use crate::shared::intervals::sum;
use crate::shared::replay::{Gone, Spared};
use crate::shared::slow_paths::{self, Shares, SlowRequest, dominates, quicker};
use crate::shared::tails::median;

/// The sleeps of one request for connections to one peer.
struct Slept<'a> {
    slow: &'a SlowRequest<'a>,
    steps: Vec<(&'a PathStep, &'a Exchange)>,
}

impl Slept<'_> {
    fn ns(&self) -> u64 {
        sum(self.steps.iter().map(|(step, _)| step.ns()))
    }
}

/// For each peer: its address, how many connections to it were given up, and what is found.
pub(super) fn findings(facts: &Facts<'_>, rows: &[PeerRow]) -> Vec<(String, u64, Finding)> {
    let model = facts.model;
    if model.given_up().is_empty() {
        return Vec::new();
    }
    let quick: Vec<SlowRequest<'_>> = quicker(model).collect();
    let all = facts.slow_by_themselves().into_iter().chain(&quick);
    let mut by_peer: BTreeMap<u32, Vec<Slept<'_>>> = BTreeMap::new();
    for slow in all {
        let mut own: BTreeMap<u32, Vec<(&PathStep, &Exchange)>> = BTreeMap::new();
        for (_, step) in slow_paths::steps(slow) {
            let own_from = facts.answers().own_from(slow.request, step);
            let others = step.by_call
                || own_from != Some(step.from_ns)
                || facts.is_of_jobs_before(&slow.request, (step.from_ns, step.to_ns));
            if let Some(row) = facts.given_up().slept_for(step).filter(|_| !others) {
                own.entry(row.peer).or_default().push((step, row));
            }
        }
        for (peer, steps) in own {
            by_peer.entry(peer).or_default().push(Slept { slow, steps });
        }
    }
    let found = by_peer.into_iter().filter_map(|(number, slept)| {
        let peer = model.peer(number)?;
        let row = rows.iter().find(|row| row.peer == peer.address());
        let given_up = model.given_up().iter().filter(|row| row.peer == number);
        let given_up: Vec<&Exchange> = given_up.collect();
        let finding = finding(facts, (peer, row), &given_up, &slept)?;
        Some((peer.address(), given_up.len() as u64, finding))
    });
    found.collect()
}

fn finding(
    facts: &Facts<'_>,
    (peer, row): (Peer<'_>, Option<&PeerRow>),
    given_up: &[&Exchange],
    slept: &[Slept<'_>],
) -> Option<Finding> {
    let model = facts.model;
    let slow_ns = facts.slow().total_ns;
    let dominated = || {
        let all = slept.iter();
        all.filter(|one| dominates(one.ns(), one.slow.latency_ns))
    };
    let shares = Shares::new(dominated().map(|one| (one.ns(), one.slow.latency_ns)));
    let severity = shares.severity(slow_ns)?;
    let spared: Vec<Spared<'_>> = slept.iter().map(spared).collect();
    let bound = facts.behind().bound(&spared, None);
    let lasted = given_up.iter().filter_map(|row| {
        let gone_ns = row.gone_ns?;
        Some(gone_ns.saturating_sub(row.first_send_ns))
    });
    let each = median(lasted.collect()).map_or_else(String::new, |ns| {
        format!(" after {} (median)", duration(ns))
    });
    let title = format!(
        "{} slept {} of their time to connect to {peer}, which did not answer: {} given up{each}",
        shares.requests(),
        shares.percent(),
        counted_as(given_up.len(), "connection was", "connections were"),
    );
    let made = row.map_or(0, |row| row.connects);
    let steps = dominated().flat_map(|one| &one.steps);
    let (worst, _) = steps.clone().max_by_key(|(step, _)| step.ns())?;
    let functions = steps.clone().map(|(step, _)| {
        let function = slow_paths::function(model, step.stack);
        (function, step.ns())
    });
    let (function, in_function_ns) = most_of(functions);
    let stacks = steps.clone().filter(|(step, _)| step.tid == worst.tid);
    let tids: BTreeSet<u32> = steps.map(|(step, _)| step.tid).collect();
    let finding = Finding::new(&DECLARATION, severity, title)
        .confidence(Confidence::High)
        .about_peer(peer)
        .about("connections", given_up.len())
        .evidence([
            Evidence::of_ns(shares.ns, shares.spread(slow_ns)),
            Evidence::new(format!(
                "who slept: {}{}; {} to it meanwhile",
                slow_paths::who(model, &tids),
                slow_paths::place(function.as_deref(), in_function_ns, shares.ns),
                counted_as(made, "connection was made", "connections were made"),
            )),
        ])
        .bounded(bound)
        .cause(
            Cause::new(model, worst.tid, "waits to connect".to_owned(), worst.stack)
                .each(stacks.map(|(step, _)| step.ns())),
        )
        .fix(format!(
            "{FIX_OF_PEER}; ask it no more for a while once it did not answer (mod_proxy: retry=, \
             nginx: max_fails and fail_timeout, HAProxy: check, clients: a circuit breaker), and \
             give up sooner"
        ));
    Some(slow_paths::about_processes(model, finding, worst.tid, tids))
}

/// The one that has most of it, and how much.
fn most_of<K: Ord>(all: impl Iterator<Item = (Option<K>, u64)>) -> (Option<K>, u64) {
    let mut sums: BTreeMap<K, u64> = BTreeMap::new();
    for (key, ns) in all.filter_map(|(key, ns)| Some((key?, ns))) {
        let sum = sums.entry(key).or_default();
        *sum = sum.saturating_add(ns);
    }
    let most = sums.into_iter().max_by_key(|(_, ns)| *ns);
    most.map_or((None, 0), |(key, ns)| (Some(key), ns))
}

/// What a request is spared.
fn spared<'a>(one: &Slept<'a>) -> Spared<'a> {
    let gone = one.steps.iter().map(|(step, _)| Gone {
        tid: step.tid,
        from_ns: step.from_ns,
        to_ns: step.to_ns,
        ns: step.ns(),
    });
    Spared {
        request: one.slow.request,
        ns: one.ns(),
        gone: gone.collect(),
    }
}
