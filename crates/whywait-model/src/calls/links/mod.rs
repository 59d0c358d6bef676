//! Which request each call is made for. A request lives on a task, and a thread may work for many:
//! so a link rests on evidence, and what leaves a doubt makes none.
//!
//! - *task*: the call was sent for the task that read the request, or that answered it.
//! - *thread*: its thread slept in the call and served no other request then, in a process whose
//!   threads answer what they read.
//! - *alone*, *nested*: of all requests of the process this is the only one that was read before
//!   the call was sent and not answered before the reply was read; alone, if there was no other at
//!   all. That needs a row of each slow request, and a peer that is asked for requests only: one
//!   call to it that lies within no request takes this evidence from all.
//!
//! A connection that carries several calls at a time has none of these: [`shared`], [`pings`].
//! Where its streams were followed each is a call, and whoever wrote it need not have made it.
//!
//! What is left is undecided: it may be any candidate's, and leaves a range of times. How the time
//! of a request splits: [`time`].

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::Serialize;
use whywait_events::{Exchange, Ns, Request, WorkKind};

use crate::maps::HashMap;
use crate::path::upstream::WithPeer;
use crate::requests::life;
use crate::requests::lives::{Life, Lives};

mod pings;
mod process;
mod shared;
mod spans;
pub(crate) mod time;
mod totals;

pub use pings::Http2Talk;
pub use time::{LinkCounts, PeerTime, Range, TaskTime};
pub use totals::TaskTotals;

use pings::Spoken;
use process::{CallingProcess, all_fit_since, until_read, with_peer};
use shared::Answered;

#[cfg(test)]
mod tests;

/// What shows that a call is a request's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum LinkKind {
    /// Both have the same task.
    Task,
    /// The request's thread slept in it.
    Thread,
    /// No other request was under way.
    Alone,
    /// It lies within no other request.
    Nested,
}

/// Whose a call is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Link {
    /// A request's: its place among all of them.
    Certain(u32, LinkKind),
    /// One of several requests', or of none.
    Undecided,
    /// No request's: none was under way.
    Nobody,
}

/// The links of a recording.
#[derive(Debug, Clone, Default)]
pub(crate) struct Links {
    /// Of each slow call, in their order.
    of_call: Vec<Link>,
    /// By request: the calls that are certainly its own, in order.
    of_request: BTreeMap<u32, Vec<u32>>,
    /// What is known of each process that made calls.
    processes: BTreeMap<u32, CallingProcess>,
    /// Sockets that carry several calls at a time.
    shared: BTreeSet<u64>,
    /// Of these: on which HTTP/2 is spoken.
    http2: BTreeMap<u64, Spoken>,
}

/// A call, and the only request within which it lies.
struct Sought {
    call: u32,
    request: u32,
    kind: LinkKind,
}

/// Requests by when each is over.
type ByEnd = BTreeSet<(Ns, u32)>;

/// The requests of a process that are under way at a moment.
#[derive(Default)]
struct RequestsUnderWay {
    all: ByEnd,
    /// By each of its tasks that is known.
    by_task: HashMap<u32, ByEnd>,
    /// By the thread that read it.
    by_thread: HashMap<u32, ByEnd>,
}

impl RequestsUnderWay {
    fn add(&mut self, request: u32, row: &Request) {
        let one = (life::until_ns(row), request);
        self.all.insert(one);
        for task in [row.recv_task, row.send_task] {
            if task != 0 {
                self.by_task.entry(task).or_default().insert(one);
            }
        }
        self.by_thread.entry(row.recv_tid).or_default().insert(one);
    }

    /// Those that are over before a moment are so from now on.
    fn end_before(&mut self, ns: Ns, requests: &RequestsRead<'_>) {
        while let Some(first) = self.all.first().copied().filter(|(until, _)| *until < ns) {
            self.all.pop_first();
            let row = requests.row(first.1);
            for task in [row.recv_task, row.send_task] {
                remove(&mut self.by_task, task, first);
            }
            remove(&mut self.by_thread, row.recv_tid, first);
        }
    }

    fn of_task(&self, task: u32) -> Option<&ByEnd> {
        self.by_task.get(&task)
    }
}

fn remove(from: &mut HashMap<u32, ByEnd>, key: u32, one: (Ns, u32)) {
    if let Some(those) = from.get_mut(&key) {
        those.remove(&one);
        if those.is_empty() {
            from.remove(&key);
        }
    }
}

/// Those that are not over before a moment.
fn until(those: Option<&ByEnd>, ns: Ns) -> impl Iterator<Item = u32> {
    let after = those.map(|those| those.range((ns, 0)..));
    after.into_iter().flatten().map(|(_, request)| *request)
}

/// The only one; `None`: there is none, or there are several.
fn only(mut those: impl Iterator<Item = u32>) -> Option<u32> {
    let first = those.next()?;
    those.next().is_none().then_some(first)
}

impl Links {
    /// Finds them, once everything else is in place.
    pub(crate) fn of(model: &Lives) -> Self {
        let exchanges = model.exchanges();
        let mut links = Self {
            of_call: vec![Link::Undecided; exchanges.len()],
            ..Self::default()
        };
        let mut calls: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for (at, call) in exchanges.iter().enumerate() {
            calls.entry(call.tgid).or_default().push(at as u32);
        }
        let mostly_short = model.mostly_short();
        links.http2 = pings::sockets(exchanges.iter().chain(model.short_exchanges()));
        links.shared.extend(links.http2.keys());
        let requests = RequestsRead::of(model, calls.keys().copied());
        for (tgid, calls) in &calls {
            let requests = &requests[tgid];
            let rows = calls.iter().map(|at| &exchanges[*at as usize]);
            // Of short ones without a row any request may have had one.
            let rows = rows.filter(|call| !mostly_short.contains(&call.peer));
            links
                .shared
                .extend(shared::sockets(rows, &requests.answers));
            links.link(model, requests, calls);
        }
        let fit_since_ns: BTreeMap<u32, Option<Ns>> = calls
            .iter()
            .map(|(tgid, calls)| {
                let since_ns = all_fit_since(model, &links, &requests[tgid].all, calls);
                links.unlink_before(since_ns.unwrap_or(0), exchanges, calls);
                (*tgid, since_ns)
            })
            .collect();
        for (at, link) in links.of_call.iter().enumerate() {
            if let Link::Certain(request, _) = link {
                links
                    .of_request
                    .entry(*request)
                    .or_default()
                    .push(at as u32);
            }
        }
        let mut idle = process::idle(model);
        let overlapping = links.overlapping(model);
        for (tgid, calls) in &calls {
            let seen = process::Seen {
                requests: &requests[tgid].all,
                calls,
                overlap: overlapping.contains(tgid),
                fit_since_ns: fit_since_ns[tgid],
                idle: idle.remove(tgid).unwrap_or_default(),
            };
            let process = CallingProcess::new(model, &links, seen);
            links.processes.insert(*tgid, process);
        }
        links
    }

    /// Before that a request was under way that is not known: that no other was, as far as is
    /// known, shows nothing.
    fn unlink_before(&mut self, ns: Ns, exchanges: &[Exchange], calls: &[u32]) {
        let before = calls.partition_point(|at| exchanges[*at as usize].first_send_ns < ns);
        for at in &calls[..before] {
            let link = &mut self.of_call[*at as usize];
            if let Link::Certain(_, LinkKind::Alone | LinkKind::Nested) = link {
                *link = Link::Undecided;
            }
        }
    }

    /// The processes of which a request certainly had two calls at a time.
    fn overlapping(&self, model: &Lives) -> BTreeSet<u32> {
        let call = |at: &u32| &model.exchanges()[*at as usize];
        let overlap = |own: &&Vec<u32>| {
            let mut pairs = own.windows(2);
            pairs.any(|two| call(&two[1]).first_send_ns < until_read(call(&two[0])).1)
        };
        let overlapping = self.of_request.values().filter(overlap);
        overlapping
            .filter_map(|own| Some(call(own.first()?).tgid))
            .collect()
    }

    /// Links the calls of a process, which are in order.
    fn link(&mut self, model: &Lives, requests: &RequestsRead<'_>, calls: &[u32]) {
        let mut under_way = RequestsUnderWay::default();
        let mut next = 0;
        let mut sought: Vec<Sought> = Vec::new();
        let mut asked_for_itself: BTreeSet<u32> = BTreeSet::new();
        for at in calls {
            let call = &model.exchanges()[*at as usize];
            if self.shared.contains(&call.socket) {
                continue;
            }
            let begun_ns = call.first_send_ns;
            while let Some(request) = requests.read.get(next)
                && requests.read_ns(*request) <= begun_ns
            {
                under_way.add(*request, requests.row(*request));
                next += 1;
            }
            under_way.end_before(begun_ns, requests);
            let replied_ns = call.first_read_ns;
            let others_later = requests
                .read
                .get(next)
                .is_some_and(|other| requests.read_ns(*other) <= replied_ns.unwrap_or(Ns::MAX));
            let until_ns = replied_ns.unwrap_or(begun_ns);
            let of_task = || only(until(under_way.of_task(call.task), until_ns));
            let of_writer = || {
                let of_task = of_task().map(|request| (request, LinkKind::Task));
                of_task.or_else(|| {
                    let request = requests.of_thread(model, call, &under_way)?;
                    Some((request, LinkKind::Thread))
                })
            };
            // Whoever writes to a connection of HTTP/2 writes what others have for it as well.
            let writes_own = call.kind != WorkKind::Http2;
            let certain = writes_own.then(of_writer).flatten();
            if let Some((request, kind)) = certain {
                self.of_call[*at as usize] = Link::Certain(request, kind);
                continue;
            }
            let candidates = || until(Some(&under_way.all), until_ns);
            match only(candidates()) {
                None if candidates().next().is_none() => {
                    self.of_call[*at as usize] = Link::Nobody;
                    if requests.have_begun_by(begun_ns) {
                        asked_for_itself.insert(call.peer);
                    }
                }
                // Without a reply nobody knows how long it was waited for.
                Some(request) if replied_ns.is_some() && requests.complete => {
                    let alone = under_way.all.len() == 1 && !others_later;
                    let kind = if alone {
                        LinkKind::Alone
                    } else {
                        LinkKind::Nested
                    };
                    sought.push(Sought {
                        call: *at,
                        request,
                        kind,
                    });
                }
                _ => {}
            }
        }
        for one in sought {
            let peer = model.exchanges()[one.call as usize].peer;
            if !asked_for_itself.contains(&peer) {
                self.of_call[one.call as usize] = Link::Certain(one.request, one.kind);
            }
        }
    }

    /// Whether a socket carries several calls at a time.
    pub(crate) fn is_shared(&self, socket: u64) -> bool {
        self.shared.contains(&socket)
    }

    /// Whether HTTP/2 is spoken on a socket. All of these are shared.
    pub(crate) fn speaks_http2(&self, socket: u64) -> bool {
        self.http2.contains_key(&socket)
    }

    /// Whose a call is.
    pub(crate) fn of_call(&self, call: usize) -> Link {
        self.of_call.get(call).copied().unwrap_or(Link::Undecided)
    }

    /// The calls that are certainly a request's own, in order.
    pub(crate) fn of_request(&self, request: u32) -> &[u32] {
        self.of_request.get(&request).map_or(&[], Vec::as_slice)
    }

    /// When calls that are certainly a request's were with their peers, while others were under way
    /// in its process. Not those in which its thread slept: its path shows them.
    pub(crate) fn with_peers(&self, model: &Lives, request: Life<'_>) -> Vec<WithPeer> {
        let own = match self.of_request.is_empty() {
            true => &[],
            false => self.of_request(request.index()),
        };
        let Some(process) = self.process(request.tgid).filter(|_| !own.is_empty()) else {
            return Vec::new();
        };
        let (served_ns, end_ns) = (request.served_ns(), request.end_ns());
        let of_call = |at: &u32| {
            let call = &model.exchanges()[*at as usize];
            with_peer(call)
                .into_iter()
                .flat_map(move |(from_ns, to_ns)| {
                    let others = process
                        .several
                        .clip(from_ns.max(served_ns), to_ns.min(end_ns));
                    others.into_iter().map(move |(from_ns, to_ns)| WithPeer {
                        from_ns,
                        to_ns,
                        peer: call.peer,
                        tid: call.send_tid,
                    })
                })
        };
        let slept = |at: &&u32| {
            matches!(
                self.of_call(**at as usize),
                Link::Certain(_, LinkKind::Thread)
            )
        };
        own.iter()
            .filter(|at| !slept(at))
            .flat_map(of_call)
            .collect()
    }

    fn process(&self, tgid: u32) -> Option<&CallingProcess> {
        self.processes.get(&tgid)
    }
}

/// The requests of a process. Each is named by its place among all.
struct RequestsRead<'m> {
    model: &'m Lives,
    /// In order of arrival.
    all: Vec<u32>,
    /// Those that were read, by when they were.
    read: Vec<u32>,
    /// When those were read that were answered, and when their answers began.
    answers: Vec<Answered>,
    /// Each slow one has a row, and is what it seems to be.
    complete: bool,
    /// The thread that read a request answers it, always.
    keep_threads: bool,
}

impl<'m> RequestsRead<'m> {
    /// Of each of these processes.
    fn of(model: &'m Lives, processes: impl Iterator<Item = u32>) -> BTreeMap<u32, Self> {
        let mut all: BTreeMap<u32, Vec<u32>> = processes.map(|tgid| (tgid, vec![])).collect();
        for (at, request) in (0..).zip(model.lives()) {
            if let Some(of_process) = all.get_mut(&request.tgid) {
                of_process.push(at);
            }
        }
        all.into_iter()
            .map(|(tgid, all)| (tgid, Self::of_process(model, all)))
            .collect()
    }

    fn of_process(model: &'m Lives, all: Vec<u32>) -> Self {
        let request = |at: &u32| model.life_at(*at);
        let answered = all.iter().map(request).filter(|one| one.is_answered());
        let answers = answered
            .filter_map(|one| Some((one.recv_ns.unwrap_or(0), one.first_send_ns?)))
            .collect();
        let read = all.iter().filter(|at| request(at).recv_ns.is_some());
        let mut read: Vec<u32> = read.copied().collect();
        read.sort_by_key(|at| (request(at).recv_ns, *at));
        let rows = || read.iter().map(|at| request(at).row());
        let complete = model.sums.slow == 0 && !rows().any(|row| row.multiplexed);
        let keep_threads =
            rows().all(|row| row.recv_tid != 0 && [0, row.recv_tid].contains(&row.send_tid));
        Self {
            model,
            all,
            read,
            answers,
            complete,
            keep_threads,
        }
    }

    fn row(&self, request: u32) -> &'m Request {
        self.model.life_at(request).row()
    }

    fn read_ns(&self, request: u32) -> Ns {
        self.row(request).recv_ns.unwrap_or(Ns::MAX)
    }

    fn until_ns(&self, request: u32) -> Ns {
        self.model.life_at(request).until_ns()
    }

    fn have_begun_by(&self, ns: Ns) -> bool {
        self.read
            .first()
            .is_some_and(|first| self.read_ns(*first) <= ns)
    }

    /// The request of a thread that slept in the call, where it can be no other's.
    fn of_thread(
        &self,
        model: &Lives,
        call: &Exchange,
        under_way: &RequestsUnderWay,
    ) -> Option<u32> {
        let replied_ns = call.first_read_ns?;
        if !self.keep_threads || call.read_tid != call.send_tid {
            return None;
        }
        let of_thread = under_way.by_thread.get(&call.send_tid);
        let only = only(until(of_thread, 0)).filter(|only| self.until_ns(*only) >= replied_ns)?;
        let timeline = &model.threads.get(&call.send_tid)?.timeline;
        let waits = timeline.overlapping(call.last_send_ns, replied_ns);
        let slept = waits.iter().any(|wait| {
            let awaited = model.calls.awaited(wait);
            awaited.is_some_and(|other| (other.socket, other.seq) == (call.socket, call.seq))
        });
        slept.then_some(only)
    }
}
