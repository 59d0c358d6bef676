//! `slow-upstream`: slow requests spent most of their time in calls to one peer. Here no thread
//! slept in a call: loops serve them. Where one did, its wait is found with all others'
//! ([`slow_path_wait`]).
//!
//! **Invariant.** No single peer dominates slow requests' time.
//!
//! **Evidence.** Calls (exchanges on connections that the process made) that lie within a request,
//! from its reading to its answer, and that take half of its time until their reply is in the
//! kernel: its own where that is certain. Else which of several such calls is this request's does
//! not show, and need not: all go to the same peer, and there is another one for each request.
//!
//! **Cost.** For each request the time of the call that it is paired with, until its reply was
//! there: without the call a part of that would go elsewhere. A bound.
//!
//! Requests that make a few calls to the peer, none of which takes half of their time though all
//! together do, are taken together ([`average`]): their calls are made while requests are under way
//! and never more at a time than there are requests, so that each makes one after another.
//!
//! Over a connection that carries several calls at a time which are whose does not show: there
//! nearly all answers follow at once on something that was read on it, which was asked for after
//! their requests had been read ([`shared`]). Where that is HTTP/2, and PINGs are read there as
//! well, requests must ask at once, too ([`streams`]).
//!
//! A queue for the peer's connections ([`queues`]) whose calls take longer the more there are: the
//! peer is what they queue for, and more connections would not help. There the wait for a
//! connection counts as well.
//!
//! **Guards.** At least [`MIN_REQUESTS`] requests, and [`UPSTREAM_PAIRED`] percent of
//! those of the process that waited for the network for half of their time, have a call of their
//! own. Where the loop is busy it does not wait for the network: then nearly all requests that have
//! such calls within them must have one of their own, and nearly all such calls a request. A
//! request with such calls to several peers is paired with none: it is not decided which one it
//! waited for. Nor is one whose thread slept in the call itself: that is a wait of the thread's. A
//! few calls to this machine that are late where the program's own threads wait for a CPU as often,
//! and for as long, are the scheduler's ([`crowding`]). Peers that take [`UPSTREAM_BY_DESIGN_NS`]
//! as a rule may be meant to (a long poll): a note.

use std::collections::{BTreeMap, BTreeSet};

use whywait_events::{Exchange, Part};
use whywait_model::calls::PeerRow;
use whywait_model::{Model, Peer};
use whywait_words::{count, duration, figure, percent};

use crate::declaration::{Declaration, Has, Waits};
use crate::facts::Facts;
use crate::finding::{Confidence, Evidence, Finding, Saving, Severity};
use crate::numbers::{
    FINDINGS_OF_A_KIND, MEANWHILE_LOOKED_AT, MIN_REQUESTS, MOST, Share, UPSTREAM_BY_DESIGN_NS,
    UPSTREAM_PAIRED,
};
use crate::ranking::Explained;
use crate::shared::crowding;
use crate::shared::intervals::sum;
use crate::shared::queues::{Capacity, Queue};
use crate::shared::slow_paths::{self, Shares, SlowRequest, dominates};
use crate::shared::task_waits::TasksWaitIn;
use crate::shared::traffic::{length, with_peer};
use crate::shared::workers::{OfProgram, of_programs};

mod average;
mod awaited;
mod shared;
mod streams;
mod together;

/// What it is.
pub(crate) static DECLARATION: Declaration = Declaration {
    code: "slow-upstream",
    meaning: "calls to one peer are where slow requests spent most of their time",
    severities: &[
        (
            Severity::Warning,
            "from 30 ms of the median request on, unless its calls take as long each time",
        ),
        (
            Severity::Note,
            "otherwise, or when the peer takes seconds (median)",
        ),
    ],
    invariant: "no single peer dominates slow requests' time",
    explain: include_str!("explain.md"),
    waits: Some(Waits {
        who: "requests",
        what: "for replies",
        has: Has::Said("{peer} {peer_process}"),
    }),
    detect,
};

const FIX: &str = "look at the peer: why it takes so long; ask it earlier or several at once, \
                   cache its answers, or limit the wait";

/// A request, and the call that is taken for its own.
struct Pair<'a> {
    request: &'a SlowRequest<'a>,
    call: &'a Exchange,
}

/// Requests, and how many of them have a call of their own.
struct PairedRequests<'a> {
    pairs: Vec<Pair<'a>>,
    /// Requests that should have one.
    of: usize,
}

fn detect(facts: &Facts<'_>) -> Vec<Finding> {
    let model = facts.model;
    if model.exchanges().is_empty() {
        return Vec::new();
    }
    let slow = facts.slow();
    let by_themselves: Vec<&SlowRequest<'_>> = facts.slow_by_themselves();
    let by_program = grouped(by_themselves.into_iter(), |tgid| model.program(tgid));
    let queues = facts.queues().iter();
    let queues = queues.filter(|queue| matches!(queue.capacity, Capacity::Saturated { .. }));
    let saturating = queues.map(Queue::waits_and_calls);
    let programs = of_programs(model, saturating, |queue| queue.most);
    let saturated = programs
        .iter()
        .filter_map(|program| saturated(facts, program, slow.total_ns));
    let mut findings: Vec<Finding> = awaited::findings(facts);
    let awaited: BTreeSet<String> = findings.iter().filter_map(peer_of).collect();
    let own = by_program
        .values()
        .flat_map(|requests| of_program(model, requests, slow.total_ns))
        .chain(saturated)
        .chain(shared::findings(facts))
        .chain(streams::findings(facts));
    findings.extend(own.filter(|one| peer_of(one).is_none_or(|peer| !awaited.contains(&peer))));
    let said: BTreeSet<String> = findings.iter().filter_map(peer_of).collect();
    let said = |address: &str| said.contains(address);
    findings.extend(average::findings(facts, said));
    let findings = findings.into_iter();
    let mut findings: Vec<Finding> = findings.map(|one| behind_reads(model, one)).collect();
    findings.sort_by_key(|finding| std::cmp::Reverse(finding.saving.at_most_ns));
    findings.truncate(*FINDINGS_OF_A_KIND);
    findings
}

/// Calls that are sent on a connection on which the peer is to answer a blocking read, a broker
/// that is asked for a message, wait for that and not for what they ask.
fn behind_reads(model: &Model, finding: Finding) -> Finding {
    let behind = model.counters.get("jobs.calls-behind").copied();
    let calls = model.calls();
    let row = peer_of(&finding).and_then(|peer| calls.iter().find(|row| row.peer == peer));
    match (behind, row) {
        (Some(behind @ 1..), Some(row))
            if Share::new(behind, row.slow + row.unanswered).is_at_least(*MOST) =>
        {
            let text = format!(
                "{} were sent while the peer was to answer a blocking read on the same connection \
                 (as BLPOP, XREADGROUP), of {} that were slow: they waited for that, and not for \
                 the peer",
                count(behind),
                count(row.slow)
            );
            let finding = Finding {
                title: format!("{}, behind a blocking read there", finding.title),
                ..finding
            };
            finding.evidence([Evidence::new(text)]).fix(
                "give what reads and blocks a connection of its own (node's and Python's clients \
                 of Redis: duplicate(), another client), apart from the one that requests use",
            )
        }
        _ => finding,
    }
}

/// The address that a finding of this room is about.
fn peer_of(finding: &Finding) -> Option<String> {
    let peer = finding.subject.get("peer")?;
    peer.as_str().map(str::to_owned)
}

/// Requests by what their processes have alike, in order of arrival.
fn grouped<'a>(
    requests: impl Iterator<Item = &'a SlowRequest<'a>>,
    alike: impl Fn(u32) -> u32,
) -> BTreeMap<u32, Vec<&'a SlowRequest<'a>>> {
    let mut groups: BTreeMap<u32, Vec<&SlowRequest<'_>>> = BTreeMap::new();
    for request in requests {
        let group = groups.entry(alike(request.request.tgid)).or_default();
        group.push(request);
    }
    groups
}

/// The peer that dominates the requests of a program's processes; or those of single ones, where
/// they do not ask the same peer.
fn of_program<'a>(
    model: &'a Model,
    requests: &[&'a SlowRequest<'a>],
    slow_ns: u64,
) -> Vec<Finding> {
    if let Some(finding) = of_requests(model, requests, slow_ns) {
        return vec![finding];
    }
    let by_process = grouped(requests.iter().copied(), |tgid| tgid);
    if by_process.len() < 2 {
        return Vec::new();
    }
    let each = by_process.values();
    each.filter_map(|requests| of_requests(model, requests, slow_ns))
        .collect()
}

/// The peer that dominates these requests, if one does.
fn of_requests(model: &Model, requests: &[&SlowRequest<'_>], slow_ns: u64) -> Option<Finding> {
    let in_loop: Vec<&SlowRequest<'_>> = requests
        .iter()
        .copied()
        .filter(|request| !sleeps_in_call(model, request))
        .collect();
    let waiting: Vec<&SlowRequest<'_>> = in_loop
        .iter()
        .copied()
        .filter(|request| {
            let network_ns = request.request.account().service[Part::Network];
            dominates(network_ns, request.latency_ns)
        })
        .collect();
    let enough = |pairs: &PairedRequests<'_>| {
        let peers: BTreeSet<u32> = pairs.pairs.iter().map(|pair| pair.call.peer).collect();
        let paired = Share::counted(pairs.pairs.len(), pairs.of);
        pairs.pairs.len() >= *MIN_REQUESTS
            && peers.len() == 1
            && paired.is_at_least(*UPSTREAM_PAIRED)
    };
    let waiting = PairedRequests {
        pairs: paired(model, &waiting).pairs,
        of: waiting.len(),
    };
    let busy = paired(model, &in_loop);
    let pairs = if enough(&waiting)
        && Share::counted(waiting.pairs.len(), busy.pairs.len()).is_at_least(*MOST)
    {
        waiting.pairs
    } else if enough(&busy) && all_have_requests(model, &busy) {
        busy.pairs
    } else {
        return None;
    };
    finding(
        model,
        model.peer(pairs.first()?.call.peer)?,
        &pairs,
        slow_ns,
    )
}

/// Whether a thread slept for half of a request in a call of its own.
fn sleeps_in_call(model: &Model, request: &SlowRequest<'_>) -> bool {
    let steps = slow_paths::steps(request);
    let in_call = steps.filter(|(_, step)| model.slept_for(step).is_some());
    dominates(sum(in_call.map(|(_, step)| step.ns())), request.latency_ns)
}

/// Whether nearly all calls to these requests' peer that are as long as theirs were paired: none
/// are the program's own.
fn all_have_requests(model: &Model, pairs: &PairedRequests<'_>) -> bool {
    let Some(first) = pairs.pairs.first() else {
        return false;
    };
    let each_ns = pairs.pairs.iter().map(|pair| with_peer_ns(pair.call));
    let shortest_ns = each_ns.min().unwrap_or(u64::MAX);
    let processes: BTreeSet<u32> = pairs.pairs.iter().map(|pair| pair.call.tgid).collect();
    let calls = model.exchanges().iter().filter(|call| {
        call.peer == first.call.peer
            && processes.contains(&call.tgid)
            && call.last_read_ns.is_some()
            && with_peer_ns(call) >= shortest_ns
    });
    Share::counted(pairs.pairs.len(), calls.count()).is_at_least(*UPSTREAM_PAIRED)
}

/// For how long a call was with its peer.
fn with_peer_ns(call: &Exchange) -> u64 {
    length(with_peer(call))
}

/// Pairs requests with calls: each with its own where that is certain, else first come, first
/// served, each with another one that may be its own. Those that have none within them that takes
/// half of their time need none.
fn paired<'a>(model: &'a Model, requests: &[&'a SlowRequest<'a>]) -> PairedRequests<'a> {
    let calls = model.exchanges();
    let mut taken: BTreeSet<(u64, u32)> = BTreeSet::new();
    let mut found = PairedRequests {
        pairs: Vec::new(),
        of: 0,
    };
    for request in requests {
        let row = request.request;
        let (Some(recv_ns), Some(answered_ns)) = (row.recv_ns, row.answered_ns()) else {
            continue;
        };
        let first = calls.partition_point(|call| call.first_send_ns < recv_ns);
        let within: Vec<&Exchange> = calls[first..]
            .iter()
            .take_while(|call| call.first_send_ns < answered_ns)
            .take(*MEANWHILE_LOOKED_AT)
            .filter(|call| call.tgid == row.tgid && !model.is_shared(call))
            .filter(|call| call.last_read_ns.is_some_and(|ns| ns <= answered_ns))
            .filter(|call| dominates(with_peer_ns(call), request.latency_ns))
            .filter(|call| row.made(call) || !model.is_linked(call))
            .collect();
        found.of += usize::from(!within.is_empty());
        let (own, others): (Vec<&Exchange>, Vec<&Exchange>) =
            within.into_iter().partition(|call| row.made(call));
        let within = if own.is_empty() { others } else { own };
        let one_peer = within.windows(2).all(|two| two[0].peer == two[1].peer);
        let own = within
            .iter()
            .find(|call| !taken.contains(&(call.socket, call.seq)));
        if let Some(call) = own.filter(|_| one_peer) {
            taken.insert((call.socket, call.seq));
            found.pairs.push(Pair { request, call });
        }
    }
    found
}

/// Requests that queue for connections to a peer that would not serve more.
fn saturated(
    facts: &Facts<'_>,
    program: &OfProgram<'_, '_, &Queue<'_>>,
    slow_ns: u64,
) -> Option<Finding> {
    let model = facts.model;
    let (queue, shares) = (program.what, &program.shares);
    let Capacity::Saturated {
        few_ns,
        full_ns,
        apart_ns,
    } = queue.capacity
    else {
        return None;
    };
    let peer = queue.traffic.peer;
    let title = format!(
        "{} spent {} of their time waiting for {peer}, which is saturated",
        shares.requests(),
        shares.percent()
    );
    let longer = format!(
        "a call took {} with few others under way, and {} with {}{}: more connections would only \
         queue there",
        duration(few_ns),
        duration(full_ns),
        queue.most - 1,
        apart_ns.map_or_else(String::new, |ns| format!(
            "; answers came one after another, {} apart (median)",
            duration(ns)
        ))
    );
    let waited = duration(sum(queue.victims.iter().map(|victim| victim.waited_ns)));
    let most = queue.most;
    let queued = match queue.traffic.share_connections() {
        true => format!("{waited} of it is the wait for one of {most} calls at a time, never more"),
        false => format!(
            "{waited} of it is the wait for one of {most} connections, never more of which were \
             in use at a time"
        ),
    };
    let victims = Queue::requests(program).map(|(request, _)| request);
    let tasks = TasksWaitIn::of(facts, victims);
    let finding = Finding::new(&DECLARATION, shares.severity(slow_ns)?, title)
        .about_peer(peer)
        .about("saturated", true)
        .saving(Saving::latency(shares.each_ns.clone()))
        // The lock of the pool: who has a connection waits for the peer.
        .explains(Explained::Locks)
        .evidence([Evidence::of_ns(shares.ns, shares.spread(slow_ns))])
        .evidence(program.evidence())
        .evidence([
            Evidence::new(longer),
            Evidence::new(queued),
            Evidence::new(queue.handover()),
        ])
        .evidence(tasks.as_ref().map(TasksWaitIn::evidence))
        .fix(
            "look at the peer: why it does so little at a time; ask it less, cache its answers, or \
             limit the wait",
        );
    let finding = match &tasks {
        Some(tasks) => tasks.about(finding),
        None => finding,
    };
    Some(program.about_processes(model, finding))
}

/// What is said of requests that spent so much of their time in calls to a peer, and of all calls
/// to it; `None` where that is nothing to speak of, or the scheduler's.
fn in_calls(
    model: &Model,
    peer: Peer<'_>,
    shares: &Shares,
    slow_ns: u64,
) -> Option<(Finding, String)> {
    if peer.tgid().is_some() && crowding::explains(model, &shares.each_ns) {
        return None;
    }
    let calls = model.calls();
    let row = calls.iter().find(|row| row.peer == peer.address())?;
    let mut severity = shares.severity(slow_ns)?;
    row.p50_ns?;
    if is_by_design(row) {
        severity = Severity::Note;
    }
    let title = format!(
        "{} spent {} of their time in calls to {peer}",
        shares.requests(),
        shares.percent()
    );
    let saving = Saving::latency(shares.each_ns.clone());
    let finding = Finding::new(&DECLARATION, severity, title)
        .about_peer(peer)
        .takes_as_long(shares.as_ever(&saving))
        .saving(saving)
        .explains(Explained::RepliesOf(peer.address()))
        .evidence([Evidence::of_ns(shares.ns, shares.spread(slow_ns))])
        .fix(FIX);
    Some((finding, of_peer(row)))
}

/// Where the peer is watched, too: it is a server behind the one that others ask, and what its own
/// requests wait for is not looked at here.
pub(crate) fn if_watched(model: &Model, peer: Peer<'_>, caller: u32, finding: Finding) -> Finding {
    let behind = peer.tgid().filter(|tgid| *tgid != caller);
    match behind.filter(|tgid| model.threads_of(*tgid).next().is_some()) {
        Some(tgid) => finding.about("peer_is_watched", true).fix(format!(
            "the peer is a part of what was watched, and its requests are not counted here: watch \
             it alone (whywait -p {tgid}) to see what they wait for"
        )),
        None => finding,
    }
}

fn is_by_design(row: &PeerRow) -> bool {
    row.p50_ns.is_some_and(|ns| ns >= *UPSTREAM_BY_DESIGN_NS)
}

/// Whether a peer takes so long as a rule that it may be meant to.
pub(crate) fn by_design(model: &Model, peer: Peer<'_>) -> bool {
    let calls = model.calls();
    let mut rows = calls.iter().filter(|row| row.peer == peer.address());
    rows.next().is_some_and(is_by_design)
}

fn finding(model: &Model, peer: Peer<'_>, pairs: &[Pair<'_>], slow_ns: u64) -> Option<Finding> {
    let each = pairs
        .iter()
        .map(|pair| (with_peer_ns(pair.call), pair.request.latency_ns));
    let (finding, of_peer) = in_calls(model, peer, &Shares::new(each), slow_ns)?;
    let worst = pairs.iter().max_by_key(|pair| pair.request.latency_ns)?;
    let slowest = format!(
        "within the slowest of them, {}: a call of {}",
        duration(worst.request.latency_ns),
        duration(with_peer_ns(worst.call))
    );
    let ports = slow_paths::ports(pairs.iter().map(|pair| pair.request));
    let tids: BTreeSet<u32> = pairs.iter().map(|pair| pair.call.send_tid).collect();
    let certain = pairs
        .iter()
        .all(|pair| pair.request.request.made(pair.call));
    let finding = finding
        .concerns(
            pairs
                .iter()
                .map(|pair| (pair.request.request, with_peer_ns(pair.call))),
        )
        .confidence(match certain {
            true => Confidence::High,
            false => Confidence::Medium,
        })
        .about_known("port", slow_paths::only_port(&ports))
        .evidence([
            Evidence::new(of_peer),
            Evidence::new(slowest),
            Evidence::new(whose(model, pairs)),
        ]);
    let finding = if_watched(model, peer, pairs.first()?.call.tgid, finding);
    let first = tids.first().copied();
    Some(slow_paths::about_processes(model, finding, first, tids))
}

/// How sure it is which call is whose.
fn whose(model: &Model, pairs: &[Pair<'_>]) -> String {
    let open = pairs.iter().filter(|pair| !model.is_linked(pair.call));
    let open = match open.count() {
        0 => return "which call is which request's is certain".to_owned(),
        n if n == pairs.len() => "which call is which request's does not show".to_owned(),
        n => format!("of {n} of these calls it does not show which request's they are"),
    };
    format!(
        "{open}; all that lie within one and take half of its time go to this peer, and there is \
         another one for each request"
    )
}

/// What all calls to the peer came to.
fn of_peer(row: &PeerRow) -> String {
    let time = |ns: Option<u64>| ns.map_or_else(|| "?".to_owned(), duration);
    let network = row.network_ns.map_or_else(String::new, |ns| {
        format!(
            "; of their time {} is the network's",
            percent(ns, row.total_ns)
        )
    });
    format!(
        "all calls to it, {}: p50 {}, p99 {}{network}; {} at a time on average",
        count(row.calls),
        time(row.p50_ns),
        time(row.p99_ns),
        figure(row.in_flight)
    )
}

#[cfg(test)]
mod tests;
