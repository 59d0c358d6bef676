//! How a request's time splits by its calls: what of it was with peers, what it waited for after a
//! reply had come, and the rest. Where links are undecided that is a range.

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::Serialize;
use whywait_events::{Exchange, Ns, Part};

use super::process::{CallingProcess, open, unserved, with_peer};
use super::spans::Spans;
use super::{Link, LinkKind};
use crate::calls::linked::Linked;
use crate::requests::lives::{Life, Lives};

/// So many undecided calls of a request are looked at one by one; of more, all that were under way
/// while it was count as if they might be its own.
const MAX_CANDIDATES: usize = 200;

/// A duration that is not known exactly, nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, JsonSchema)]
pub struct Range {
    /// It is not shorter.
    pub at_least: u64,
    /// It is not longer.
    pub at_most: u64,
}

impl Range {
    pub(super) fn new(at_least: u64, at_most: u64) -> Self {
        Self {
            at_least,
            at_most: at_most.max(at_least),
        }
    }

    pub(super) fn add(&mut self, other: Self) {
        self.at_least = self.at_least.saturating_add(other.at_least);
        self.at_most = self.at_most.saturating_add(other.at_most);
    }

    /// It is known to be within that, too. (Where the two contradict each other nothing changes.)
    pub(super) fn narrow(&mut self, other: Self) {
        let at_least = self.at_least.max(other.at_least);
        let at_most = self.at_most.min(other.at_most);
        if at_least <= at_most {
            *self = Self { at_least, at_most };
        }
    }

    /// What is left of a duration without this.
    fn rest_of(self, total_ns: u64) -> Self {
        Self {
            at_least: total_ns.saturating_sub(self.at_most),
            at_most: total_ns.saturating_sub(self.at_least),
        }
    }
}

/// How many slow calls were linked to requests.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, JsonSchema)]
pub struct LinkCounts {
    /// For certain.
    pub certain: u64,
    /// That may be this one's, or another's.
    pub undecided: u64,
    /// Of the certain ones: by what shows it.
    pub by: BTreeMap<LinkKind, u64>,
}

impl LinkCounts {
    fn add(&mut self, kind: LinkKind) {
        self.certain += 1;
        *self.by.entry(kind).or_default() += 1;
    }
}

/// What of a time was with a peer.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, JsonSchema)]
pub struct PeerTime {
    /// Its number in the recording.
    #[serde(skip)]
    pub number: u32,
    /// Whom it asked. Hostile.
    pub peer: String,
    /// So long.
    pub ns: Range,
}

/// How a request's time splits by its calls. Its parts, `unserved_ns` to `own_ns`, are all of its
/// time. The field names are those of the JSON report (schema 1).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, JsonSchema)]
pub struct TaskTime {
    /// Its calls.
    pub calls: LinkCounts,
    /// The ranges rest on this: no request of the process has two calls at a time. None was seen
    /// to.
    pub one_call_at_a_time: bool,
    /// Until it was read.
    pub unserved_ns: u64,
    /// A call of its was with the peer: sent, and the reply was not there, or not all of it.
    pub upstream_ns: Range,
    /// … by peer, the longest first.
    pub peers: Vec<PeerTime>,
    /// Of `upstream_ns`: so much is the network's, by the connections' shortest round trips.
    pub network_ns: Range,
    /// A reply to it lay in the kernel, and nobody read it.
    pub reply_unserved_ns: Range,
    /// None of its calls was under way, and nothing worked for it: it waited in the process, for a
    /// connection, a lock, its turn, or a time.
    pub queued_ns: Range,
    /// None of its calls was under way, and the process worked for it.
    pub own_ns: Range,
}

/// When a request's calls were where: at least, and at most.
#[derive(Default)]
struct Calls {
    upstream: (Spans, Spans),
    /// A reply had come, and was not read.
    replies: (Spans, Spans),
    /// Under way at all.
    open: (Spans, Spans),
    peers: BTreeMap<u32, (Spans, Spans)>,
}

/// How a request's time splits by its calls; `None` where its process made none, or it was not
/// read.
pub(crate) fn of(model: &Linked, request: Life<'_>) -> Option<TaskTime> {
    let process = model.links.process(request.tgid)?;
    let (from_ns, to_ns) = (request.recv_ns?, request.end_ns());
    let own = model.links.of_request(request.index());
    let candidates = candidates(request, process, from_ns, to_ns);
    let mut time = TaskTime {
        one_call_at_a_time: process.one_at_a_time,
        unserved_ns: request.served_ns().saturating_sub(request.ready_ns),
        ..TaskTime::default()
    };
    for at in own {
        if let Link::Certain(_, kind) = model.links.of_call(*at as usize) {
            time.calls.add(kind);
        }
    }
    if let Some(candidates) = &candidates {
        time.calls.undecided = candidates.len() as u64;
        let calls = Calls::of(model, own, candidates, (from_ns, to_ns));
        let calls = calls.if_one_at_a_time(process, (from_ns, to_ns));
        time.split(request, process, &calls, (from_ns, to_ns));
    } else {
        time.calls.undecided = process.undecided.len() as u64;
        let calls = Calls::of(model, own, &[], (from_ns, to_ns));
        time.split_roughly(request, process, &calls, (from_ns, to_ns));
    }
    if model.lacks_calls() {
        time.widen(to_ns.saturating_sub(from_ns));
    }
    time.network_ns = network(model, own, candidates.as_deref().unwrap_or(&[]));
    let (network, upstream) = (&mut time.network_ns, time.upstream_ns);
    network.at_least = network.at_least.min(upstream.at_least);
    network.at_most = network.at_most.min(upstream.at_most);
    Some(time)
}

/// The undecided calls that may be its own; `None`: there are too many, or it may have a part
/// in any.
fn candidates(
    request: Life<'_>,
    process: &CallingProcess,
    from_ns: Ns,
    to_ns: Ns,
) -> Option<Vec<u32>> {
    let exchanges = request.lives().exchanges();
    let undecided = &process.undecided;
    let call = |at: &u32| &exchanges[*at as usize];
    let first = undecided.partition_point(|at| call(at).first_send_ns < from_ns);
    let last = undecided.partition_point(|at| call(at).first_send_ns <= to_ns);
    let meanwhile = &undecided[first..last.max(first)];
    if process.shared || meanwhile.len() > MAX_CANDIDATES {
        return None;
    }
    let lies_within = |at: &&u32| call(at).first_read_ns.is_none_or(|ns| ns <= to_ns);
    Some(meanwhile.iter().filter(lies_within).copied().collect())
}

impl Calls {
    fn of(model: &Lives, own: &[u32], candidates: &[u32], within: (Ns, Ns)) -> Self {
        let exchanges = model.exchanges();
        let calls_of = |which: &[u32]| -> Vec<&Exchange> {
            which.iter().map(|at| &exchanges[*at as usize]).collect()
        };
        let (own, more) = (calls_of(own), calls_of(candidates));
        let both = |of: &dyn Fn(&Exchange) -> Vec<(Ns, Ns)>, is: &dyn Fn(&Exchange) -> bool| {
            let all = |calls: &[&Exchange]| -> Vec<(Ns, Ns)> {
                let those = calls.iter().filter(|call| is(call));
                those.flat_map(|call| of(call)).collect()
            };
            let least = Spans::of(all(&own)).clip(within.0, within.1);
            let most = least.or(&Spans::of(all(&more)).clip(within.0, within.1));
            (least, most)
        };
        let peers: BTreeSet<u32> = own.iter().chain(&more).map(|call| call.peer).collect();
        let with = |call: &Exchange| with_peer(call).to_vec();
        Self {
            upstream: both(&with, &|_| true),
            replies: both(&|call| vec![unserved(call)], &|_| true),
            open: both(&|call| vec![open(call)], &|_| true),
            peers: peers
                .into_iter()
                .map(|peer| (peer, both(&with, &|call| call.peer == peer)))
                .collect(),
        }
    }

    /// Where requests have a call at a time: while all have one, this has.
    fn if_one_at_a_time(mut self, process: &CallingProcess, (from_ns, to_ns): (Ns, Ns)) -> Self {
        if !process.one_at_a_time {
            return self;
        }
        // Not where it has one that is certain: that is counted.
        let busy = self.open.0.clone();
        let also = |(least, most): &mut (Spans, Spans), all: &Spans| {
            let here = all.clip(from_ns, to_ns).without(&busy).and(most);
            *least = least.or(&here);
            // Where its own call is known to be, there is no other.
            *most = most.without(&busy).or(least);
        };
        also(&mut self.upstream, &process.all_with_peers);
        also(&mut self.open, &process.all_open);
        for (peer, of_peer) in &mut self.peers {
            let all = process.all_with_peer.get(peer);
            also(of_peer, all.unwrap_or(&Spans::default()));
        }
        self
    }
}

impl TaskTime {
    /// Fills in the parts.
    fn split(
        &mut self,
        request: Life<'_>,
        process: &CallingProcess,
        calls: &Calls,
        (from_ns, to_ns): (Ns, Ns),
    ) {
        let total_ns = to_ns.saturating_sub(from_ns);
        let range = |(least, most): &(Spans, Spans)| Range::new(least.total_ns(), most.total_ns());
        self.upstream_ns = range(&calls.upstream);
        let open_ns = range(&calls.open);
        // While another of its calls is with a peer it waits for that.
        self.reply_unserved_ns = Range::new(
            calls.replies.0.without(&calls.upstream.1).total_ns(),
            calls.replies.1.without(&calls.upstream.0).total_ns(),
        );
        let rest = open_ns.rest_of(total_ns);
        let all = Spans::of([(from_ns, to_ns)]);
        let (rest_least, rest_most) = (all.without(&calls.open.1), all.without(&calls.open.0));
        let asleep_ns = rest_least.and(&process.idle).total_ns();
        self.queued_ns = Range::new(asleep_ns, rest.at_most);
        let awake_ns = rest_most.without(&process.idle).total_ns();
        let awake_least_ns = rest.at_least.saturating_sub(asleep_ns);
        self.own_ns = Range::new(
            own_on_cpu_ns(request, process).min(awake_least_ns),
            awake_ns,
        );
        self.queued_ns.at_most -= self.own_ns.at_least;
        self.set_peers(
            request.lives(),
            calls
                .peers
                .iter()
                .map(|(peer, spans)| (*peer, range(spans))),
        );
    }

    /// As `split`, with what is certain and, where there are too many candidates to look at, all
    /// that was under way meanwhile.
    fn split_roughly(
        &mut self,
        request: Life<'_>,
        process: &CallingProcess,
        certain: &Calls,
        (from_ns, to_ns): (Ns, Ns),
    ) {
        let total_ns = to_ns.saturating_sub(from_ns);
        let none = Spans::default();
        let range = |own: &Spans, all: &Spans| {
            let least_ns = own.total_ns();
            let all_ns = all.within_ns(from_ns, to_ns);
            Range::new(least_ns, least_ns.saturating_add(all_ns).min(total_ns))
        };
        self.upstream_ns = range(&certain.upstream.0, &process.with_peers);
        let replies = range(&certain.replies.0, &process.replies);
        self.reply_unserved_ns = Range::new(0, replies.at_most);
        let open = range(&certain.open.0, &process.open);
        let rest = open.rest_of(total_ns);
        let asleep_ns = process.idle.within_ns(from_ns, to_ns);
        let queued_ns = asleep_ns.saturating_sub(open.at_most).min(rest.at_least);
        self.queued_ns = Range::new(queued_ns, rest.at_most);
        let awake_ns = total_ns.saturating_sub(asleep_ns);
        self.own_ns = Range::new(0, awake_ns.min(rest.at_most));
        let peers: BTreeSet<u32> = certain
            .peers
            .keys()
            .chain(process.with_peer.keys())
            .copied()
            .collect();
        let of_peer = |peer: u32| {
            let own = certain.peers.get(&peer).map_or(&none, |(own, _)| own);
            range(own, process.with_peer.get(&peer).unwrap_or(&none))
        };
        let peers = peers.into_iter().map(|peer| (peer, of_peer(peer)));
        self.set_peers(request.lives(), peers.filter(|(_, ns)| ns.at_most > 0));
    }

    /// What is not known to be something else may have been a call that has no row.
    fn widen(&mut self, total_ns: u64) {
        let upstream_ns = self.upstream_ns.at_least;
        self.upstream_ns.at_most = total_ns;
        self.reply_unserved_ns.at_most = total_ns.saturating_sub(upstream_ns);
        // While one of those was with its peer, a reply that lay there kept nobody waiting.
        self.reply_unserved_ns.at_least = 0;
        self.queued_ns.at_least = 0;
        self.own_ns.at_least = 0;
        for peer in &mut self.peers {
            peer.ns.at_most = total_ns;
        }
    }

    fn set_peers(&mut self, model: &Lives, peers: impl Iterator<Item = (u32, Range)>) {
        self.peers = peers
            .map(|(number, ns)| PeerTime {
                number,
                peer: model.name_of_peer(number),
                ns,
            })
            .collect();
        order(&mut self.peers);
    }
}

pub(super) fn order(peers: &mut [PeerTime]) {
    peers.sort_by(|a, b| {
        let key = |one: &PeerTime| (one.ns.at_least, one.ns.at_most);
        (key(b), &a.peer).cmp(&(key(a), &b.peer))
    });
}

/// The network's share of calls.
fn network(model: &Lives, own: &[u32], candidates: &[u32]) -> Range {
    let share_ns = |at: &u32| {
        let call = &model.exchanges()[*at as usize];
        let [(from_ns, to_ns), _] = with_peer(call);
        u64::from(call.rtt_min_us)
            .saturating_mul(1000)
            .min(to_ns.saturating_sub(from_ns))
    };
    let sum = |calls: &[u32]| calls.iter().map(share_ns).fold(0, u64::saturating_add);
    let least_ns = sum(own);
    Range::new(least_ns, least_ns.saturating_add(sum(candidates)))
}

/// What of a request's time its thread certainly worked for it: that of a thread that read and
/// answered it, if no other request of the process was under way.
fn own_on_cpu_ns(request: Life<'_>, process: &CallingProcess) -> u64 {
    let one_thread = request.recv_tid == request.send_tid && request.is_answered();
    let shared = process
        .several
        .within_ns(request.ready_ns, request.end_ns())
        > 0;
    if one_thread && !shared {
        request.service[Part::OnCpu]
    } else {
        0
    }
}
