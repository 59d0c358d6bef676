//! Requests that make a few calls to a peer, of which none takes half of their time, but all
//! together do.

use std::collections::BTreeMap;

use whywait_model::Model;
use whywait_words::{duration, figure};

use super::{in_calls, sleeps_in_call};
use crate::facts::Facts;
use crate::finding::{Confidence, Evidence, Finding};
use crate::numbers::{MIN_REQUESTS, Share, UPSTREAM_MOST_CALLS, UPSTREAM_PAIRED};
use crate::shared::intervals::{Interval, sum};
use crate::shared::slow_paths::{Shares, SlowRequest};
use crate::shared::traffic::{Mean, Traffic, paired, served, whole};
use crate::shared::workers::{OfProcess, OfProgram, of_programs};

/// The peers of which `said` does not hold, that is with which it is not said already.
pub(super) fn findings(facts: &Facts<'_>, said: impl Fn(&str) -> bool) -> Vec<Finding> {
    let (model, slow) = (facts.model, facts.slow());
    let mut by_process: BTreeMap<u32, Vec<&SlowRequest<'_>>> = BTreeMap::new();
    let requests = facts.slow_by_themselves();
    for one in requests.into_iter().filter(|one| !one.request.multiplexed) {
        by_process.entry(one.request.tgid).or_default().push(one);
    }
    let traffic = facts.traffic().iter();
    let found = traffic
        .filter(|traffic| !said(&traffic.peer.address()))
        .filter_map(|traffic| of_traffic(model, traffic, by_process.get(&traffic.tgid)?));
    of_programs(model, found, |_| ())
        .iter()
        .filter_map(|program| finding(model, program, slow.total_ns))
        .collect()
}

fn of_traffic<'t, 'm>(
    model: &Model,
    traffic: &'t Traffic<'m>,
    all: &[&SlowRequest<'_>],
) -> Option<OfProcess<'t, 'm, Mean>> {
    let nearly_all =
        |part: usize, of: usize| Share::counted(part, of).is_at_least(*UPSTREAM_PAIRED);
    let requests: Vec<&SlowRequest<'_>> = all
        .iter()
        .copied()
        .filter(|slow| served(&slow.request).is_some() && !sleeps_in_call(model, slow))
        .collect();
    if requests.len() < *MIN_REQUESTS || !nearly_all(requests.len(), all.len()) {
        return None;
    }
    let windows = requests.iter().filter_map(|slow| served(&slow.request));
    let windows: Vec<Interval> = windows.collect();
    // Of what goes on at the same time with several peers it is not decided which one it waits for.
    let calls = model.exchanges().iter();
    let calls = calls.filter(|call| call.tgid == traffic.tgid && call.last_read_ns.is_some());
    Mean::of(&calls.map(whole).collect::<Vec<_>>(), &windows)?;
    let mean = Mean::of(&traffic.intervals(), &windows);
    let mean = mean.filter(|mean| mean.calls < *UPSTREAM_MOST_CALLS)?;
    let own = paired(&windows, &traffic.calls, 1);
    if !nearly_all(own.iter().filter(|own| !own.is_empty()).count(), own.len()) {
        return None;
    }
    let latency_ns = sum(requests.iter().map(|slow| slow.latency_ns));
    let each = requests.iter().map(|slow| {
        let ns = mean.part_of(slow.latency_ns, latency_ns);
        (ns, slow.latency_ns)
    });
    Some(OfProcess {
        traffic,
        shares: Shares::new(each),
        what: mean,
    })
}

fn finding(model: &Model, program: &OfProgram<'_, '_, Mean>, slow_ns: u64) -> Option<Finding> {
    let peer = program.traffic.peer;
    let (finding, of_peer) = in_calls(model, peer, &program.shares, slow_ns)?;
    let finding = finding
        .confidence(Confidence::Medium)
        .evidence(program.evidence())
        .evidence([Evidence::new(of_peer), Evidence::new(each(&program.what))]);
    Some(program.about_processes(model, finding))
}

/// What a request makes of them.
fn each(mean: &Mean) -> String {
    format!(
        "a request makes {} of them, one after another, {} each; which are whose does not show: \
         they are made while requests are under way, and never more at a time than there are \
         requests",
        figure(mean.calls),
        duration(mean.each_ns),
    )
}
