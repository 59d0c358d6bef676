//! The same over all requests: there it often does not matter which call is whose.

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::Serialize;
use whywait_events::{Ns, Wait};

use super::process::with_peer;
use super::spans::Spans;
use super::time::{PeerTime, Range, TaskTime, order};
use super::{Link, LinkKind};
use crate::model::Model;
use crate::requests::RequestRef;
use crate::waits::{SystemCall, WaitClass, system_call};

/// The same, summed up over the requests of processes that made calls.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, JsonSchema)]
pub struct TaskTotals {
    /// How many requests.
    pub requests: u64,
    /// All of their time.
    pub total_ns: u64,
    /// Threads slept in most of the calls: the parts of the requests' time have them, too.
    pub threads_wait: bool,
    /// The sums. Of `calls`, each undecided one counts once.
    #[serde(flatten)]
    pub time: TaskTime,
}

/// Of so many requests that do not count it is looked at whether calls may be theirs.
const MAX_NOT_COUNTED: usize = 1000;

impl Model {
    /// How the time of requests splits by their calls; `None` where there were none, or none that
    /// are slow.
    pub fn task_totals(&self) -> Option<TaskTotals> {
        let mut sums = Sums::default();
        for request in self.requests().filter(|request| request.counts()) {
            if let Some(time) = request.task_time() {
                sums.add(request, time);
            }
        }
        if sums.totals.requests == 0 {
            return None;
        }
        let processes = || {
            sums.tgids
                .iter()
                .filter_map(|tgid| self.links.process(*tgid))
        };
        let undecided = processes().map(|process| process.undecided.len() as u64);
        let undecided: u64 = undecided.sum();
        let one_at_a_time = processes().all(|process| process.one_at_a_time);
        let mut totals = sums.totals;
        let mut peers = sums.peers;
        let served_ns = totals.total_ns.saturating_sub(totals.time.unserved_ns);
        if one_at_a_time {
            self.all_have_their_own(&sums.tgids, &mut totals.time, &mut peers);
        }
        let worked_ns = self.worked_ns(&sums.served);
        totals.time.own_ns.narrow(Range::new(0, worked_ns));
        totals.time.rest_of(served_ns);
        totals.time.one_call_at_a_time = one_at_a_time;
        totals.time.peers = peers
            .into_iter()
            .map(|(number, ns)| PeerTime {
                number,
                peer: self.name_of_peer(number),
                ns,
            })
            .collect();
        order(&mut totals.time.peers);
        totals.time.calls.undecided = undecided;
        let by_thread = totals.time.calls.by.get(&LinkKind::Thread);
        let calls = totals.time.calls.certain + undecided;
        totals.threads_wait = by_thread.is_some_and(|count| count * 2 > calls);
        Some(totals)
    }

    /// Where each call is a request's, and a request has one at a time, no pairing changes the
    /// sums: they are those of the calls.
    fn all_have_their_own(
        &self,
        tgids: &BTreeSet<u32>,
        time: &mut TaskTime,
        peers: &mut BTreeMap<u32, Range>,
    ) {
        let mut of_peer: BTreeMap<u32, Range> = BTreeMap::new();
        let mut replies = Range::default();
        let not_counted: Vec<(u32, Ns, Ns)> = self
            .requests()
            .filter(|request| tgids.contains(&request.tgid) && !request.counts())
            .filter_map(|request| Some((request.tgid, request.recv_ns?, request.until_ns())))
            .collect();
        if not_counted.len() > MAX_NOT_COUNTED {
            return;
        }
        for (at, call) in self.exchanges().iter().enumerate() {
            let link = self.links.of_call(at);
            if link == Link::Nobody || !tgids.contains(&call.tgid) {
                continue;
            }
            let [first, rest] = with_peer(call);
            let ns = |(from_ns, to_ns): (Ns, Ns)| to_ns.min(self.end_ns).saturating_sub(from_ns);
            let replied = call.first_read_ns.is_some();
            let until_ns = call.first_read_ns.unwrap_or(call.first_send_ns);
            let of_other = not_counted.iter().any(|(tgid, from_ns, to_ns)| {
                *tgid == call.tgid && *from_ns <= call.first_send_ns && *to_ns >= until_ns
            });
            let certain = replied && !of_other;
            let waited_ns = ns((first.1, rest.0));
            let range = |ns: u64, more_ns: u64| {
                Range::new(if certain { ns } else { 0 }, ns.saturating_add(more_ns))
            };
            of_peer
                .entry(call.peer)
                .or_default()
                .add(range(ns(first), ns(rest)));
            replies.add(range(waited_ns, 0));
        }
        let mut upstream = Range::default();
        for (peer, of_calls) in of_peer {
            upstream.add(of_calls);
            peers.entry(peer).or_default().narrow(of_calls);
        }
        time.upstream_ns.narrow(upstream);
        time.reply_unserved_ns.narrow(replies);
    }

    /// How long threads can have worked for requests, all of them together: what a thread does is
    /// for one at a time. By process: when it had requests that had been read.
    fn worked_ns(&self, served: &BTreeMap<u32, Vec<(Ns, Ns)>>) -> u64 {
        let served: BTreeMap<u32, Spans> = served
            .iter()
            .map(|(tgid, spans)| (*tgid, Spans::of(spans.iter().copied())))
            .collect();
        let each = self.threads.values().filter_map(|thread| {
            let served = served.get(&thread.tgid)?;
            let begun_ns = thread.started.map_or(0, |(ns, _)| ns);
            let there_ns = served.within_ns(begun_ns, thread.ended_ns.unwrap_or(Ns::MAX));
            let waits = thread.timeline.waits().iter();
            let idle_ns = waits
                .filter(|wait| self.awaits_work(wait))
                .map(|wait| served.within_ns(wait.out_ns, wait.woken_ns()))
                .fold(0, u64::saturating_add);
            Some(there_ns.saturating_sub(idle_ns))
        });
        each.fold(0, u64::saturating_add)
    }

    /// Whether a thread that slept so worked for nobody meanwhile: it waited for something to do,
    /// or for the reply to a call. In doubt it did.
    fn awaits_work(&self, wait: &Wait) -> bool {
        match system_call(wait) {
            SystemCall::Poll => self.class_of(wait) != Some(WaitClass::Lock),
            SystemCall::Futex => self.class_of(wait) == Some(WaitClass::Idle),
            SystemCall::Stream | SystemCall::Socket => {
                self.is_rest(wait) || self.calls.awaited(wait).is_some()
            }
            _ => false,
        }
    }
}

impl TaskTime {
    /// What is not for calls is queued, or the requests' own.
    fn rest_of(&mut self, served_ns: u64) {
        let calls = [self.upstream_ns, self.reply_unserved_ns];
        let sum = |of: fn(Range) -> u64| calls.into_iter().map(of).fold(0, u64::saturating_add);
        let least_ns = served_ns.saturating_sub(sum(|range| range.at_most));
        let most_ns = served_ns.saturating_sub(sum(|range| range.at_least));
        let (queued, own) = (self.queued_ns, self.own_ns);
        let left = |other: Range| Range {
            at_least: least_ns.saturating_sub(other.at_most),
            at_most: most_ns.saturating_sub(other.at_least),
        };
        self.queued_ns.narrow(left(own));
        self.own_ns.narrow(left(queued));
    }
}

/// What is summed up of requests.
#[derive(Default)]
struct Sums {
    totals: TaskTotals,
    peers: BTreeMap<u32, Range>,
    tgids: BTreeSet<u32>,
    /// By process: from when to when each was served.
    served: BTreeMap<u32, Vec<(Ns, Ns)>>,
}

impl Sums {
    fn add(&mut self, request: RequestRef<'_>, one: TaskTime) {
        self.tgids.insert(request.tgid);
        let served = (request.served_ns(), request.end_ns());
        self.served.entry(request.tgid).or_default().push(served);
        let totals = &mut self.totals;
        totals.requests += 1;
        totals.total_ns = totals.total_ns.saturating_add(request.age_ns());
        let time = &mut totals.time;
        time.unserved_ns = time.unserved_ns.saturating_add(one.unserved_ns);
        time.upstream_ns.add(one.upstream_ns);
        time.network_ns.add(one.network_ns);
        time.reply_unserved_ns.add(one.reply_unserved_ns);
        time.queued_ns.add(one.queued_ns);
        time.own_ns.add(one.own_ns);
        time.calls.certain += one.calls.certain;
        for (kind, count) in one.calls.by {
            *time.calls.by.entry(kind).or_default() += count;
        }
        for peer in one.peers {
            self.peers.entry(peer.number).or_default().add(peer.ns);
        }
    }
}
