//! Calls that are too short for rows of their own: of all together it is known how many there are
//! and how long they took, and of some of them when they were made.
//!
//! All calls of the first moments of each tenth of a second have rows. So these show whether calls
//! are made for slow requests, and how many at a time. What other requests can have had of the
//! calls' time is no longer than they took themselves: that is taken off.

use std::collections::HashMap;

use whywait_events::{Exchange, ModuleKind, Ns, Sample};
use whywait_model::StackText;
use whywait_model::requests::TaskWaitKind;
use whywait_words::{count, duration, figure};

use super::Say;
use super::others::Others;
use crate::facts::Facts;
use crate::finding::Confidence;
use crate::numbers::{MIN_REQUESTS, MOST, SERIAL_MIN_CALLS, Share};
use crate::shared::functions::InCommon;
use crate::shared::intervals::{Covered, Interval, in_proportion, merged, sum};
use crate::shared::replay::Spared;
use crate::shared::slow_paths::{Shares, SlowRequest, dominates};
use crate::shared::traffic::{InRequests, Traffic, length, served, whole};
use crate::shared::workers::OfProcess;

pub(super) fn of_traffic<'t, 'm, 'a>(
    facts: &Facts<'_>,
    traffic: &'t Traffic<'m>,
    rows_of_peer: usize,
    requests: &[&'a SlowRequest<'a>],
) -> Option<OfProcess<'t, 'm, Say<'a>>> {
    let sums = traffic.peer.sums();
    let least = (requests.len() * *SERIAL_MIN_CALLS) as u64;
    if requests.len() < *MIN_REQUESTS || sums.count < least {
        return None;
    }
    let windows: Vec<Interval> = requests
        .iter()
        .filter_map(|slow| served(&slow.request))
        .collect();
    let rows = traffic.calls.len() as u64;
    let made = InRequests::of(&traffic.intervals(), &windows)?;
    // Of the peer's calls as many are this process's, and theirs, as of the rows.
    let part = |of: u64| in_proportion(of, made.calls as u64, rows_of_peer as u64);
    let (calls, all_ns) = (part(sums.count), part(sums.total_ns));
    let called_ns = all_ns.saturating_sub(Others::of(facts.model, traffic.tgid, requests).ns);
    let served_ns = sum(windows.iter().map(|window| length(*window)));
    let each = in_proportion(calls, called_ns, all_ns) as f64 / requests.len() as f64;
    if !dominates(called_ns, served_ns) || each < *SERIAL_MIN_CALLS as f64 {
        return None;
    }
    let latency_ns = sum(requests.iter().map(|slow| slow.latency_ns));
    let all_between_ns = between_ns(traffic, &windows) as f64 * (each - 1.0) * windows.len() as f64;
    let all_between_ns = (all_between_ns as u64).min(served_ns - called_ns.min(served_ns));
    let own_ns = |slow: &SlowRequest<'_>| {
        let own_ns = in_proportion(slow.latency_ns, called_ns, latency_ns);
        let between_ns = in_proportion(slow.latency_ns, all_between_ns, latency_ns);
        own_ns - (own_ns as f64 / each) as u64 + between_ns
    };
    let pairs = requests.iter().map(|slow| (own_ns(slow), slow.latency_ns));
    let spared = requests.iter().map(|slow| Spared {
        request: slow.request,
        ns: own_ns(slow),
        // Whose thread had when nothing else to do does not show.
        gone: Vec::new(),
    });
    let how = format!(
        "most of them are too short for rows of their own: {} took {} together, of which at most \
         {} can be other requests'; the {} that have rows are made while slow requests are under \
         way, and never more at a time than there are of these",
        count(calls),
        duration(all_ns),
        duration(all_ns - called_ns),
        count(rows),
    );
    Some(OfProcess {
        traffic,
        shares: Shares::new(pairs),
        what: Say {
            calls: figure(each),
            all: calls,
            each_ns: all_ns / calls.max(1),
            called_ns: called_ns / requests.len() as u64,
            how,
            between_ns: all_between_ns / requests.len() as u64,
            confidence: Confidence::Medium,
            within: called_in(facts, traffic, requests),
            spared: spared.collect(),
        },
    })
}

/// What passes between the reply to a call and the next one, on a connection while requests are
/// served and none begins or ends: else it may be what clients do. The mean: in some of them the
/// thread waits for a CPU.
fn between_ns(traffic: &Traffic<'_>, windows: &[Interval]) -> u64 {
    let served = Covered::new(merged(windows.to_vec()));
    let edges = windows.iter().flat_map(|window| [window.0, window.1]);
    let mut edges: Vec<Ns> = edges.collect();
    edges.sort_unstable();
    let edges_before = |at_ns: Ns| edges.partition_point(|edge| *edge < at_ns);
    let mut last: HashMap<u64, &Exchange> = HashMap::new();
    let mut between = Vec::new();
    for call in &traffic.calls {
        let before = last.insert(call.socket, call);
        let Some(before) = before.filter(|before| before.seq.wrapping_add(1) == call.seq) else {
            continue;
        };
        let gap = (whole(before).1, call.first_send_ns);
        let of_one = edges_before(gap.0) == edges_before(gap.1);
        if length(gap) > 0 && of_one && served.within(gap) == length(gap) {
            between.push(length(gap));
        }
    }
    sum(between.iter().copied()) / (between.len() as u64).max(1)
}

/// The function that makes the calls: in which the tasks of the requests wait for most of the time,
/// or which has nearly all of what their threads do with sockets in it.
fn called_in(
    facts: &Facts<'_>,
    traffic: &Traffic<'_>,
    requests: &[&SlowRequest<'_>],
) -> Option<String> {
    awaited_in(facts).or_else(|| {
        let model = facts.model;
        let threads = traffic.threads();
        let threads = threads.iter().filter_map(|tid| model.threads.get(tid));
        let windows = requests.iter().filter_map(|slow| served(&slow.request));
        let windows = Covered::new(merged(windows.collect()));
        let under_way =
            |sample: &&Sample| windows.within((sample.at_ns, sample.at_ns.saturating_add(1))) > 0;
        let samples = threads.flat_map(|thread| &thread.samples);
        let on_sockets = samples.filter(|sample| {
            let stack = model.stacks.get(sample.kernel_stack);
            stack.is_some_and(is_of_sockets)
        });
        let common = InCommon::of(model, on_sockets.filter(under_way))?;
        Some(common.function.to_owned())
    })
}

/// Where looks at tasks show most of them.
fn awaited_in(facts: &Facts<'_>) -> Option<String> {
    let waits = facts.task_waits()?;
    // A client's library may wait in any of these for what another task of it reads.
    let awaits = |kind| {
        use TaskWaitKind::{Channel, Condition, Network, Select, Unknown};
        matches!(kind, Channel | Condition | Network | Select | Unknown)
    };
    let rows = waits.rows.iter().filter(|row| awaits(row.kind));
    let longest = rows.max_by_key(|row| row.ns)?;
    let most = Share::new(longest.ns, waits.total_ns).is_at_least(*MOST);
    longest.function.clone().filter(|_| most)
}

/// Whether the kernel works for a call on a socket (net/socket.c).
fn is_of_sockets(stack: &StackText) -> bool {
    let of_sockets = [
        "sock_",
        "__sock_",
        "____sys_send",
        "____sys_recv",
        "__sys_send",
        "__sys_recv",
    ];
    stack.labels.iter().any(|label| {
        label.kind == ModuleKind::Kernel
            && of_sockets
                .iter()
                .any(|begins| label.name.starts_with(begins))
    })
}
