//! Threads that compute all the time, and have several requests in hand meanwhile: those of a
//! runtime that has tasks of its own and does not show which of them runs.
//!
//! Each of these requests seems to be on a CPU for as long as the thread that read it is. Together
//! they seem to be so for longer than the threads were: for the rest they waited, for the work of
//! others or for what does not show.

use std::collections::{BTreeMap, BTreeSet};

use whywait_events::Part;
use whywait_model::{Model, RequestRef, Thread};
use whywait_words::{counted, duration, percent};

use super::DECLARATION;
use crate::facts::Facts;
use crate::finding::{Confidence, Evidence, Finding, Saving};
use crate::numbers::{MOST, NEARLY_ALL, SLOW_NS, Share};
use crate::shared::functions::SampledFunctions;
use crate::shared::intervals::{merged, most_at_a_time, sum};
use crate::shared::slow_paths::{self, Shares};

/// One for each process whose busy threads have several requests in hand.
pub(super) fn findings(facts: &Facts<'_>) -> Vec<Finding> {
    let model = facts.model;
    let mut alone: BTreeSet<(u32, u32)> = model
        .pools
        .iter()
        .filter_map(|pool| Some((pool.epoll, pool.only_member()?.tid)))
        .collect();
    // Where others read, too, it is no event loop. One that has no instance is known by that.
    for request in model.requests().filter(|request| request.epoll != 0) {
        alone.retain(|(epoll, tid)| *epoll != request.epoll || *tid == request.recv_tid);
    }
    let mut processes: BTreeMap<u32, Vec<RequestRef<'_>>> = BTreeMap::new();
    for request in model.requests().filter(|request| request.counts()) {
        processes.entry(request.tgid).or_default().push(request);
    }
    // What a thread of a ring has in hand, the ring shows.
    let has_ring = |tgid: u32| model.rings.values().any(|state| state.ring.tgid == tgid);
    processes
        .into_iter()
        .filter(|(tgid, _)| !has_ring(*tgid))
        .filter_map(|(tgid, requests)| finding(facts, tgid, &requests, &alone))
        .collect()
}

/// `alone`: event loops and their threads, whose turns are known.
fn finding(
    facts: &Facts<'_>,
    tgid: u32,
    requests: &[RequestRef<'_>],
    alone: &BTreeSet<(u32, u32)>,
) -> Option<Finding> {
    let model = facts.model;
    let spans = requests
        .iter()
        .map(|one| (one.ready_ns, one.waited_until_ns()));
    let spans = merged(spans.collect());
    let under_way_ns = sum(spans.iter().map(|(from, to)| to.saturating_sub(*from)));
    let busy = busy_threads(model, tgid, under_way_ns);
    let of_busy = |one: &&RequestRef<'_>| busy.contains_key(&one.recv_tid);
    let of_busy: Vec<RequestRef<'_>> = requests.iter().filter(of_busy).copied().collect();
    if of_busy
        .iter()
        .any(|one| alone.contains(&(one.epoll, one.recv_tid)))
    {
        return None;
    }
    let seems = |one: &RequestRef<'_>| one.account().service[Part::OnCpu];
    let seems_ns = sum(of_busy.iter().map(seems));
    let used_ns = sum(busy.values().map(|(on_cpu_ns, _)| *on_cpu_ns));
    let waited_ns = seems_ns.saturating_sub(used_ns);
    if Share::new(waited_ns, seems_ns).is_below(*MOST) {
        return None;
    }
    let slow_ns = facts.slow().total_ns;
    let each = of_busy.iter().map(|one| (seems(one), one.age_ns()));
    let shares = Shares::new(each.filter(|(ns, _)| *ns >= *SLOW_NS));
    let severity = shares.severity(slow_ns)?;
    let tids: BTreeSet<u32> = busy.keys().copied().collect();
    let threads: Vec<&Thread> = tids
        .iter()
        .filter_map(|tid| model.threads.get(tid))
        .collect();
    let functions = SampledFunctions::of(facts, threads.iter().copied());
    let first = functions.first();
    let does = functions.title("it");
    let compute = match busy.len() {
        1 => "computes",
        _ => "compute",
    };
    let all_ns = under_way_ns.saturating_mul(busy.len() as u64);
    let lacks = match Share::new(used_ns, all_ns).is_below(*NEARLY_ALL) {
        true => {
            let lacked_ns = sum(busy.values().map(|(_, runnable_ns)| *runnable_ns));
            format!(", without a CPU {}", percent(lacked_ns, all_ns))
        }
        false => String::new(),
    };
    let in_hand = of_busy.iter().map(|one| (one.served_ns(), one.end_ns()));
    let title = format!(
        "{} of {} {compute} {} of the time{lacks}{does}; up to {} are in hand at a time",
        slow_paths::who(model, &tids),
        model.thread_name(tgid),
        percent(used_ns, all_ns),
        counted(most_at_a_time(in_hand), "request"),
    );
    let finding = Finding::new(&DECLARATION, severity, title)
        .confidence(Confidence::Medium)
        .about("threads", tids.iter().copied().collect::<Vec<u32>>())
        .about_known("function", first.map(|(function, _)| function.to_owned()))
        .saving(Saving::latency(shares.each_ns.clone()))
        .evidence([
            Evidence::of_ns(
                waited_ns,
                format!(
                    "these requests seem to be on a CPU for {}, and all that was used is {}: for \
                     {} of it they waited behind each other's work, or for what does not show",
                    duration(seems_ns),
                    duration(used_ns),
                    percent(waited_ns, seems_ns),
                ),
            ),
            Evidence::of_ns(shares.ns, shares.spread(slow_ns)),
        ])
        .evidence(
            functions
                .shown()
                .map(|each| Evidence::new(format!("what they do, by samples: {each}"))),
        )
        .cause(functions.cause(model))
        .fix(
            "make that work cheaper or rarer (a cache, an index), or have it done on more CPUs at \
             a time: where one task of the runtime does it for all others, by more of them",
        );
    let first = tids.first().copied();
    Some(slow_paths::about_processes(model, finding, first, tids))
}

/// The threads of a process that compute for nearly all of this time, or could, taken together, and
/// how long each was on a CPU, and without one.
fn busy_threads(model: &Model, tgid: u32, under_way_ns: u64) -> BTreeMap<u32, (u64, u64)> {
    let used = model.cpu.threads.iter();
    let of_process = used.filter(|((of, _), _)| *of == tgid);
    let each = of_process.map(|((_, tid), used)| {
        let on_cpu_ns = used.on_cpu_ns.min(under_way_ns);
        let lacked_ns = used.runnable_ns.min(under_way_ns - on_cpu_ns);
        (on_cpu_ns + lacked_ns, *tid, (on_cpu_ns, lacked_ns))
    });
    let mut threads: Vec<_> = each
        .filter(|(busy_ns, _, (on_cpu_ns, _))| Share::new(*on_cpu_ns, *busy_ns).is_at_least(*MOST))
        .collect();
    threads.sort_by_key(|(busy_ns, tid, _)| (std::cmp::Reverse(*busy_ns), *tid));
    let (mut busy_ns, mut all_ns) = (0_u64, 0_u64);
    let busy = threads.into_iter().take_while(|(ns, ..)| {
        busy_ns = busy_ns.saturating_add(*ns);
        all_ns = all_ns.saturating_add(under_way_ns);
        Share::new(busy_ns, all_ns).is_at_least(*NEARLY_ALL)
    });
    busy.map(|(_, tid, used)| (tid, used)).collect()
}
