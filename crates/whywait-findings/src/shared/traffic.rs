//! The calls of a process to one peer, and the requests that they were made for. Which call is
//! which request's shows only in part; what is said here holds for every way to pair them, or is
//! said of all of them together.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use whywait_events::{Exchange, Ns, WorkKind};
use whywait_model::{Model, Peer, RequestRef};

use crate::numbers::{CALLS_KNOWN, CALLS_OF_REQUESTS, LOOKED_AT, Share};
use crate::shared::intervals::{Interval, in_proportion, sum};
use crate::shared::slow_paths::dominates;

/// From the first byte sent until the reply is in the kernel: with the peer.
pub(crate) fn with_peer(call: &Exchange) -> Interval {
    let came_ns = call.arrived_ns.or(call.first_read_ns);
    let came_ns = came_ns.unwrap_or(call.first_send_ns);
    (call.first_send_ns, came_ns.max(call.first_send_ns))
}

/// From the first byte sent to the last byte of the reply read.
pub(crate) fn whole(call: &Exchange) -> Interval {
    let read_ns = call.last_read_ns.unwrap_or(call.first_send_ns);
    (call.first_send_ns, read_ns.max(call.first_send_ns))
}

/// How long an interval lasts.
pub(crate) fn length((from_ns, to_ns): Interval) -> u64 {
    to_ns.saturating_sub(from_ns)
}

/// From its reading to its answer; `None` for one that was not read, or not answered.
pub(crate) fn served(request: &RequestRef<'_>) -> Option<Interval> {
    let served = (request.recv_ns?, request.answered_ns()?);
    (served.0 <= served.1).then_some(served)
}

/// How many calls a request makes, rounded.
pub(crate) fn calls_each(calls: usize, requests: usize) -> usize {
    let requests = requests.max(1);
    ((calls * 2 + requests) / (2 * requests)).max(1)
}

/// Gives each interval `within` up to `each` of the `calls` that lie in it, one after another, and
/// none to two of them; as many as possible get one. `calls` are in the order in which they begin.
///
/// The last calls come first, to those that were read last: what was under way when the recording
/// began has calls in it, too, but a request that was answered had its last reply just before. So
/// its last call is the one that ends last, whatever began when; the one before it is the one that
/// begins last, on the same connection if there is one.
pub(crate) fn paired(within: &[Interval], calls: &[&Exchange], each: usize) -> Vec<Vec<usize>> {
    let mut order: Vec<usize> = (0..within.len()).collect();
    order.sort_by_key(|at| (Reverse(within[*at].0), within[*at].1, *at));
    let mut unpaired = Unpaired::new(calls);
    let mut pairs = vec![Vec::new(); within.len()];
    for at in order {
        let (from_ns, to_ns) = within[at];
        let mut next = unpaired.that_ends_last((from_ns, to_ns));
        while let Some(call) = next {
            pairs[at].push(call);
            unpaired.take(call);
            let earlier = (from_ns, unpaired.calls[call].0);
            next = (pairs[at].len() < each)
                .then(|| {
                    let on_it = unpaired.before_on_connection(call, from_ns);
                    on_it.or_else(|| unpaired.that_begins_last(earlier))
                })
                .flatten();
        }
        pairs[at].reverse();
    }
    pairs
}

/// Calls that are nobody's yet.
struct Unpaired {
    /// In the order in which they begin.
    calls: Vec<Interval>,
    by_begin: Free,
    /// Of each: the one before it on its connection.
    before: Vec<Option<usize>>,
    /// Positions in `calls`, in the order in which they end, and where each of them is there.
    ends: Vec<usize>,
    place: Vec<usize>,
    by_end: Free,
}

impl Unpaired {
    fn new(calls: &[&Exchange]) -> Self {
        let mut last: HashMap<u64, usize> = HashMap::new();
        let before = calls.iter().enumerate();
        let before = before.map(|(at, call)| last.insert(call.socket, at));
        let before = before.collect();
        let calls: Vec<Interval> = calls.iter().map(|call| whole(call)).collect();
        let mut ends: Vec<usize> = (0..calls.len()).collect();
        ends.sort_by_key(|at| (calls[*at].1, *at));
        let mut place = vec![0; calls.len()];
        for (at, call) in ends.iter().enumerate() {
            place[*call] = at;
        }
        Self {
            by_begin: Free::new(calls.len()),
            before,
            by_end: Free::new(calls.len()),
            calls,
            ends,
            place,
        }
    }

    /// Of those that lie in this interval.
    fn that_ends_last(&mut self, (from_ns, to_ns): Interval) -> Option<usize> {
        let mut before = self.ends.partition_point(|at| self.calls[*at].1 <= to_ns);
        for _ in 0..*LOOKED_AT {
            before = self.by_end.before(before)?;
            let call = self.ends[before];
            let (begun_ns, ended_ns) = self.calls[call];
            if ended_ns < from_ns {
                break;
            }
            if begun_ns >= from_ns {
                return Some(call);
            }
        }
        None
    }

    fn that_begins_last(&mut self, (from_ns, to_ns): Interval) -> Option<usize> {
        let mut before = self.calls.partition_point(|call| call.0 <= to_ns);
        for _ in 0..*LOOKED_AT {
            before = self.by_begin.before(before)?;
            let (begun_ns, ended_ns) = self.calls[before];
            if begun_ns < from_ns {
                break;
            }
            if ended_ns <= to_ns {
                return Some(before);
            }
        }
        None
    }

    /// The one before this one on its connection, if it is free and does not begin before that.
    fn before_on_connection(&mut self, call: usize, from_ns: Ns) -> Option<usize> {
        let before = self.before[call]?;
        let (begun_ns, ended_ns) = self.calls[before];
        let fits = begun_ns >= from_ns && ended_ns <= self.calls[call].0;
        (fits && self.by_begin.before(before + 1) == Some(before)).then_some(before)
    }

    fn take(&mut self, call: usize) {
        self.by_begin.take(call);
        self.by_end.take(self.place[call]);
    }
}

/// Which of some things in a row nobody has taken yet: of each the last one up to it that is free,
/// and 1; 0: none is.
struct Free(Vec<usize>);

impl Free {
    fn new(len: usize) -> Self {
        Self((0..=len).collect())
    }

    /// The last one before `at`.
    fn before(&mut self, at: usize) -> Option<usize> {
        let mut found = at;
        while self.0[found] != found {
            // Halves the way for those who come later.
            self.0[found] = self.0[self.0[found]];
            found = self.0[found];
        }
        found.checked_sub(1)
    }

    fn take(&mut self, at: usize) {
        self.0[at + 1] = at;
    }
}

/// The calls of a process to one peer.
#[derive(Clone)]
pub(crate) struct Traffic<'m> {
    pub(crate) tgid: u32,
    pub(crate) peer: Peer<'m>,
    /// Those that had a reply, by when they began.
    pub(crate) calls: Vec<&'m Exchange>,
    /// Other processes call this peer as well: sums are of all of them.
    pub(crate) others_call: bool,
    /// Nearly every call to the peer has a row. Else nearly all of their time has, and there are
    /// short ones that have none: of how many a request makes nothing is known.
    pub(crate) counted: bool,
}

impl<'m> Traffic<'m> {
    /// All of which nearly every call has a row, or nearly all of the calls' time. Not over
    /// connections that carry several calls at a time.
    pub(crate) fn of(model: &'m Model) -> Vec<Traffic<'m>> {
        let rows = Self::of_rows(model, model.exchanges().iter().chain(short(model)));
        let known = rows.into_iter().filter(|(traffic, rows_ns)| {
            traffic.counted || nearly_all(*rows_ns, traffic.peer.sums().total_ns)
        });
        known.map(|(traffic, _)| traffic).collect()
    }

    /// All others that call such peers: only some of their calls have rows, and most of the calls'
    /// time is in those that have none. Which have one goes by the time alone: the first ones of
    /// each tenth of a second.
    pub(crate) fn sampled(model: &'m Model, known: &[Self]) -> Vec<Traffic<'m>> {
        let known: BTreeSet<u32> = known.iter().map(|one| one.peer.number()).collect();
        let rows = model.exchanges().iter().chain(model.short_exchanges());
        let rows = rows.filter(|call| !known.contains(&call.peer));
        let all = Self::of_rows(model, rows).into_iter();
        all.map(|(traffic, _)| traffic).collect()
    }

    /// Those that these rows show, and what all rows of each one's peer took.
    fn of_rows(
        model: &'m Model,
        rows: impl Iterator<Item = &'m Exchange>,
    ) -> Vec<(Traffic<'m>, u64)> {
        let mut calls: BTreeMap<(u32, u32), Vec<&Exchange>> = BTreeMap::new();
        let mut known: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
        let single = |call: &&Exchange| call.peer != 0 && !model.is_shared(call);
        let mut rows: Vec<&Exchange> = rows.filter(single).collect();
        rows.sort_by_key(|call| (call.first_send_ns, call.socket, call.seq));
        for call in rows {
            if call.last_read_ns.is_some() {
                calls.entry((call.tgid, call.peer)).or_default().push(call);
                let (count, ns) = known.entry(call.peer).or_default();
                *count += 1;
                *ns = ns.saturating_add(length(whole(call)));
            }
        }
        let mut callers: BTreeMap<u32, usize> = BTreeMap::new();
        for (_, number) in calls.keys() {
            *callers.entry(*number).or_default() += 1;
        }
        calls
            .into_iter()
            .filter_map(|((tgid, number), calls)| {
                let peer = model.peer(number)?;
                let (count, ns) = known[&number];
                let traffic = Traffic {
                    tgid,
                    peer,
                    calls,
                    others_call: callers[&number] > 1,
                    counted: nearly_all(count, peer.sums().count),
                };
                Some((traffic, ns))
            })
            .collect()
    }

    /// When each of them was under way.
    pub(crate) fn intervals(&self) -> Vec<Interval> {
        self.calls.iter().map(|call| whole(call)).collect()
    }

    /// Connections that carried them.
    pub(crate) fn connections(&self) -> usize {
        let sockets = self.calls.iter().map(|call| call.socket);
        sockets.collect::<BTreeSet<u64>>().len()
    }

    /// Whether they are streams of HTTP/2, of which a connection carries many at a time. What was
    /// seen of a connection before it was known for one is some calls more.
    pub(crate) fn share_connections(&self) -> bool {
        let streams = self
            .calls
            .iter()
            .filter(|call| call.kind == WorkKind::Http2);
        streams.count() * 2 > self.calls.len()
    }

    /// The threads that made them.
    pub(crate) fn threads(&self) -> BTreeSet<u32> {
        self.calls.iter().map(|call| call.send_tid).collect()
    }
}

fn nearly_all(known: u64, of: u64) -> bool {
    Share::new(known, of).is_at_least(*CALLS_KNOWN)
}

/// The short calls to those peers of which nearly each call has a row with them. Of others those
/// that have one are a few of many, and say nothing.
fn short(model: &Model) -> impl Iterator<Item = &Exchange> {
    let mut rows: BTreeMap<u32, u64> = BTreeMap::new();
    for call in model.exchanges().iter().chain(model.short_exchanges()) {
        *rows.entry(call.peer).or_default() += 1;
    }
    let has_all = move |number: u32| {
        let count = model.peer(number).map_or(0, |peer| peer.sums().count);
        nearly_all(rows.get(&number).copied().unwrap_or(0), count)
    };
    let short = model.short_exchanges().iter();
    short.filter(move |call| has_all(call.peer))
}

/// What happens to calls and requests of a process, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum TrafficEvent {
    CallEnds,
    RequestBegins,
    CallBegins,
    RequestEnds,
}

/// One step, with the position of its call or request, in the order of time.
pub(crate) fn steps(requests: &[Interval], calls: &[Interval]) -> Vec<(Ns, TrafficEvent, usize)> {
    let of = |all: &[Interval], begins, ends| -> Vec<(Ns, TrafficEvent, usize)> {
        let all = all.iter().enumerate();
        all.flat_map(|(at, (from_ns, to_ns))| [(*from_ns, begins, at), (*to_ns, ends, at)])
            .collect()
    };
    let mut steps = of(
        requests,
        TrafficEvent::RequestBegins,
        TrafficEvent::RequestEnds,
    );
    steps.append(&mut of(
        calls,
        TrafficEvent::CallBegins,
        TrafficEvent::CallEnds,
    ));
    steps.sort_unstable();
    steps
}

/// Calls that are made while requests are under way, each of which makes one after another.
pub(crate) struct InRequests {
    pub(crate) calls: usize,
    /// All of them together.
    pub(crate) called_ns: u64,
}

impl InRequests {
    /// Of requests that were under way in these intervals; `None`: they are made at other times,
    /// too, or more at a time than there are requests.
    pub(crate) fn of(calls: &[Interval], requests: &[Interval]) -> Option<Self> {
        let (mut open, mut under_way, mut since_ns) = (0_usize, 0_usize, 0);
        let (mut made, mut called_ns, mut serial_ns) = (0_usize, 0_u64, 0_u64);
        for (at_ns, step, _) in steps(requests, calls) {
            let ns = at_ns.saturating_sub(since_ns);
            if under_way > 0 && open > 0 {
                called_ns = called_ns.saturating_add(ns.saturating_mul(under_way as u64));
                if under_way <= open {
                    serial_ns = serial_ns.saturating_add(ns.saturating_mul(under_way as u64));
                }
            }
            since_ns = at_ns;
            match step {
                TrafficEvent::CallBegins => {
                    under_way += 1;
                    made += usize::from(open > 0);
                }
                TrafficEvent::CallEnds => under_way = under_way.saturating_sub(1),
                TrafficEvent::RequestBegins => open += 1,
                TrafficEvent::RequestEnds => open = open.saturating_sub(1),
            }
        }
        let nearly_all = |part: u64, of: u64| Share::new(part, of).is_at_least(*CALLS_OF_REQUESTS);
        let holds = nearly_all(made as u64, calls.len() as u64) && nearly_all(serial_ns, called_ns);
        holds.then_some(Self {
            calls: made,
            called_ns,
        })
    }
}

/// How many of the calls take so long together, at least.
fn fewest(calls: &[Interval], ns: u64) -> usize {
    let mut longest: Vec<u64> = calls.iter().map(|call| length(*call)).collect();
    longest.sort_unstable_by_key(|ns| Reverse(*ns));
    let mut left_ns = ns;
    let needed = longest.iter().take_while(|call_ns| {
        let more = left_ns > 0;
        left_ns = left_ns.saturating_sub(**call_ns);
        more
    });
    needed.count()
}

/// What the calls of requests come to, which make one after another.
pub(crate) struct Mean {
    /// Of a request.
    pub(crate) calls: f64,
    /// What one takes.
    pub(crate) each_ns: u64,
    /// All of them, of all requests.
    pub(crate) called_ns: u64,
}

impl Mean {
    /// Of requests that were under way in these intervals; `None` where it does not show that the
    /// calls are theirs and one after another, and where they are not half of the requests' time.
    pub(crate) fn of(calls: &[Interval], requests: &[Interval]) -> Option<Self> {
        let made = InRequests::of(calls, requests)?;
        let latency_ns = sum(requests.iter().map(|window| length(*window)));
        dominates(made.called_ns, latency_ns).then(|| Self {
            calls: made.calls as f64 / requests.len().max(1) as f64,
            each_ns: made.called_ns / made.calls.max(1) as u64,
            called_ns: made.called_ns,
        })
    }

    /// The same where others, which were under way in intervals of their own, make calls as well:
    /// all that these can have had of the calls' time, `others_ns`, is theirs. The rest is that of
    /// so many calls at least, the longest ones.
    pub(crate) fn beside(
        calls: &[Interval],
        requests: &[Interval],
        others: &[Interval],
        others_ns: u64,
    ) -> Option<Self> {
        let made = InRequests::of(calls, &[requests, others].concat())?;
        let called_ns = made.called_ns.saturating_sub(others_ns);
        let latency_ns = sum(requests.iter().map(|window| length(*window)));
        let own = fewest(calls, called_ns);
        dominates(called_ns, latency_ns).then(|| Self {
            calls: own as f64 / requests.len().max(1) as f64,
            each_ns: called_ns / own.max(1) as u64,
            called_ns,
        })
    }

    /// What they are of a request's time, in proportion.
    pub(crate) fn part_of(&self, ns: u64, all_ns: u64) -> u64 {
        in_proportion(ns, self.called_ns, all_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// On a connection of its own.
    fn call(from_ns: u64, to_ns: u64) -> Exchange {
        Exchange {
            socket: from_ns,
            first_send_ns: from_ns,
            first_read_ns: Some(to_ns),
            last_read_ns: Some(to_ns),
            ..Exchange::default()
        }
    }

    #[test]
    fn each_request_has_calls_of_its_own() {
        let calls = [call(10, 20), call(12, 30), call(21, 29), call(50, 60)];
        let calls: Vec<&Exchange> = calls.iter().collect();
        let within = [(0, 25), (0, 35), (70, 80)];
        assert_eq!(paired(&within, &calls, 1), [vec![0], vec![1], vec![]]);
        assert_eq!(paired(&[(0, 100)], &calls, 9), [vec![0, 2, 3]]);
    }

    #[test]
    fn the_last_call_is_the_one_that_ends_just_before_the_answer() {
        // Of those in the middle the one that began later ended first.
        let calls = [
            call(10, 50),
            call(11, 51),
            call(52, 90),
            call(53, 80),
            call(91, 130),
        ];
        let calls: Vec<&Exchange> = calls.iter().collect();
        let within = [(1, 52), (2, 51), (3, 81), (4, 91), (5, 131)];
        let own = [vec![0], vec![1], vec![3], vec![2], vec![4]];
        assert_eq!(paired(&within, &calls, 1), own);
    }

    #[test]
    fn a_request_keeps_its_connection() {
        let on = |socket, call| Exchange { socket, ..call };
        let calls = [
            on(1, call(10, 20)),
            on(2, call(11, 20)),
            on(2, call(21, 30)),
            on(1, call(22, 31)),
            on(2, call(31, 40)),
            on(1, call(32, 41)),
        ];
        let calls: Vec<&Exchange> = calls.iter().collect();
        let own = [vec![0, 3, 5], vec![1, 2, 4]];
        assert_eq!(paired(&[(1, 42), (2, 40)], &calls, 3), own);
    }

    #[test]
    fn who_must_be_served_first_chooses_first() {
        let calls = [call(10, 20), call(11, 40)];
        let calls: Vec<&Exchange> = calls.iter().collect();
        assert_eq!(paired(&[(0, 50), (5, 30)], &calls, 1), [vec![1], vec![0]]);
    }
}
