//! Workers that read requests from sockets, one at a time: threads that accept, a pool behind an
//! acceptor, processes that share a listener.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use whywait_events::{Ns, StackId, Wait};
use whywait_model::{
    Activity, Model, RequestRef, SystemCall, Thread, descriptor, is_accept, polls_unread,
    system_call,
};

use super::kept::{KeptWorkers, writes};
use super::shift::{BusyShift, WorkerDuty};
use super::{Backlog, WorkerSleep, is_worth_it};
use crate::facts::Facts;
use crate::numbers::{SLEEPS_IN_WORK, SLOW_NS, Share};
use crate::shared::intervals::Interval;
use crate::shared::replay::{ReadByThread, Worked, workers_of};

/// The crews: those who serve one port, or the unix sockets of one process.
///
/// Not those for whom requests did not wait enough to matter, `slow_ns` being what slow requests
/// took, even if it was for them that they waited.
pub(super) fn crews<'m>(facts: &Facts<'m>, slow_ns: u64) -> Vec<Backlog<'m>> {
    let places = facts.places().iter();
    places
        .filter_map(|((_, port), requests)| crew(facts.model, *port, requests, slow_ns))
        .collect()
}

fn crew<'m>(
    model: &'m Model,
    port: u16,
    requests: &[RequestRef<'m>],
    slow_ns: u64,
) -> Option<Backlog<'m>> {
    let took = |request: &RequestRef<'_>| request.age_ns() >= *SLOW_NS;
    if !requests.iter().any(took) {
        return None;
    }
    let read = |request: &RequestRef<'_>| request.recv_ns.is_some() && request.recv_tid != 0;
    let mut in_hand = match workers_of(requests.iter().copied()) {
        Some(in_hand) => in_hand,
        None if requests.iter().any(read) => return None,
        None => ReadByThread::new(),
    };
    let kept = KeptWorkers::of(model, port);
    let ready = ListenerReady::of(model, port, requests);
    let mut crew = in_hand.keys().copied().chain(kept.threads());
    let seen = crew.any(|tid| ready.is_acceptor(model, tid));
    // Of those whom nobody saw read or accept there is nothing else that says who they are.
    let inferred =
        !seen && kept.and_those_are_all(model, &in_hand, ready.holders(), longest(requests));
    let accepts = seen || inferred && ready.acceptors(model).next().is_none();
    if inferred || seen {
        kept.join(&mut in_hand, requests);
    }
    if seen {
        for thread in ready.acceptors(model) {
            in_hand.entry(thread.tid).or_default();
        }
    }
    if in_hand.is_empty() {
        return None;
    }
    let done = Done::of(&in_hand);
    // Nobody saw who slept before the recording began.
    let from_ns = |request: RequestRef<'_>| request.ready_ns.max(model.meta.started_ns);
    let waited = requests.iter().filter(|request| request.counts());
    let waited = waited.map(|one| done.begun_ns(*one).saturating_sub(from_ns(*one)));
    if !is_worth_it(waited, slow_ns) {
        return None;
    }
    let crew = ServingWorkers::new(model, &in_hand, ready, &kept, accepts, done);
    let waiting: Vec<RequestRef<'m>> = requests
        .iter()
        .copied()
        .filter(|request| crew.begun_ns(*request) > request.ready_ns)
        .filter(|request| crew.could_be_read(*request))
        .collect();
    let span = |request: &RequestRef<'_>| (request.ready_ns, crew.begun_ns(*request));
    let shift = BusyShift::of(crew.duties(), waiting.iter().map(span), 0);
    let victims = waiting
        .iter()
        .map(|request| {
            let begun_ns = crew.begun_ns(*request);
            (*request, shift.share_of(from_ns(*request), begun_ns))
        })
        .collect();
    let sleeps = crew.sleeps(&shift);
    Some(Backlog {
        port,
        workers: crew.known(&sleeps),
        jobs: crew.jobs(requests),
        kept_by: kept.connections(),
        writing: kept.writers(),
        inferred,
        shift,
        sleeps,
        victims,
    })
}

/// From when to when the request waited that waited longest to be read.
fn longest(requests: &[RequestRef<'_>]) -> Interval {
    let waits = requests
        .iter()
        .map(|request| (request.ready_ns, request.served_ns()));
    waits
        .max_by_key(|(from_ns, to_ns)| to_ns.saturating_sub(*from_ns))
        .unwrap_or_default()
}

/// What a worker's sleep is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SleepFor {
    /// The request in its hands.
    Request,
    /// The next request of a connection of its own.
    OwnConnection,
    /// Something that is not the listener: it slept on while connections were there.
    SomethingElse,
    /// Whom, was not read.
    Unknown,
    /// Work that anybody may take.
    Work,
}

/// When connections lay in the accept queue, and its listener was ready.
#[derive(Debug, Default)]
struct ListenerReady {
    /// At these times, in order.
    at: Vec<Ns>,
    /// The listener, by process.
    listener: BTreeMap<u32, i32>,
}

impl ListenerReady {
    /// Where several listen at the port (SO_REUSEPORT), which of them was ready is not known.
    fn of(model: &Model, port: u16, requests: &[RequestRef<'_>]) -> Self {
        let mut queues = model.accept_queues.all();
        let mut of_port = queues.by_ref().filter(|one| one.port == Some(port));
        let (Some(queue), None) = (of_port.next(), of_port.next()) else {
            return Self::default();
        };
        let early = requests.iter().filter(|request| request.before_accept);
        let mut at: Vec<Ns> = early.map(|request| request.ready_ns).collect();
        at.sort_unstable();
        let listener = queue.holders.iter();
        let listener = listener.filter_map(|one| Some((one.pid, i32::try_from(one.fd).ok()?)));
        Self {
            at,
            listener: listener.collect(),
        }
    }

    /// The processes that have it.
    fn holders(&self) -> impl Iterator<Item = u32> {
        self.listener.keys().copied()
    }

    /// Whether a thread was seen waiting for connections.
    fn is_acceptor(&self, model: &Model, tid: u32) -> bool {
        let waits = model
            .threads
            .get(&tid)
            .map(|thread| thread.timeline.waits());
        let takes = |wait: &Wait| is_accept(wait) || self.is_polled(wait);
        waits.is_some_and(|waits| waits.iter().any(takes))
    }

    /// Those who were seen waiting for connections of this listener.
    fn acceptors<'m>(&self, model: &'m Model) -> impl Iterator<Item = &'m Thread> {
        let accept = self
            .listener
            .iter()
            .flat_map(|(pid, fd)| model.acceptors(*pid, *fd));
        let poll = model.threads.values().filter(|thread| {
            self.listener.contains_key(&thread.tgid)
                && thread
                    .timeline
                    .waits()
                    .iter()
                    .any(|wait| self.is_polled(wait))
        });
        accept.chain(poll)
    }

    fn is_polled(&self, wait: &Wait) -> bool {
        let listener = self.listener.get(&wait.tgid).copied();
        listener.is_some() && system_call(wait) == SystemCall::Poll && descriptor(wait) == listener
    }

    /// Whether a thread slept in a poll or a select, which returns when what it watches is ready,
    /// while the listener was.
    fn is_missed(&self, wait: &Wait) -> bool {
        if system_call(wait) != SystemCall::Poll || wait.epoll != 0 {
            return false;
        }
        let next = self.at.partition_point(|ns| *ns <= wait.out_ns);
        let ready = self.at.get(next);
        ready.is_some_and(|ns| wait.woken_ns().saturating_sub(*ns) >= *SLOW_NS)
    }
}

/// When each worker was done with a request, in order.
struct Done(BTreeMap<u32, Vec<Ns>>);

impl Done {
    fn of(in_hand: &ReadByThread<'_>) -> Self {
        let mut done: BTreeMap<u32, Vec<Ns>> = BTreeMap::new();
        for request in in_hand.values().flatten() {
            if let Some(ns) = request.answered_ns() {
                done.entry(request.send_tid).or_default().push(ns);
            }
        }
        done.values_mut().for_each(|times| times.sort_unstable());
        Self(done)
    }

    /// When a worker began with a request: it had read it, and answered whatever it did before. A
    /// task may read a request and then leave its thread to others (virtual threads, goroutines):
    /// it waits for a thread as those do that nobody has read.
    fn begun_ns(&self, request: RequestRef<'_>) -> Ns {
        let served_ns = request.served_ns();
        let before = request.answered_ns().and_then(|answered_ns| {
            let done = self.0.get(&request.send_tid)?;
            let of_others = done.partition_point(|ns| *ns < answered_ns);
            done[..of_others].last().copied()
        });
        before.map_or(served_ns, |ns| ns.max(served_ns))
    }
}

/// The workers, and where they wait for work.
struct ServingWorkers<'a, 'm> {
    model: &'m Model,
    in_hand: &'a ReadByThread<'m>,
    kept: &'a KeptWorkers<'m>,
    ready: ListenerReady,
    /// They accept connections themselves: then whoever does so is one of them. An acceptor that
    /// hands connections on is not.
    accepts: bool,
    /// Descriptors of connections that each worker has served.
    own: BTreeMap<u32, HashSet<i32>>,
    /// Stacks in which workers wait for work that anybody may take.
    free: HashSet<StackId>,
    done: Done,
    /// From when until when each worker had a request that another one had read, or it before
    /// others, in order.
    taken_over: BTreeMap<u32, Vec<Interval>>,
    /// Stacks in which workers sleep with a request in hand, as a rule.
    in_work: HashSet<StackId>,
    /// By connection: the number of each request, and who read it, in order.
    readers: HashMap<u64, Vec<(u32, u32)>>,
}

impl<'a, 'm> ServingWorkers<'a, 'm> {
    fn new(
        model: &'m Model,
        in_hand: &'a ReadByThread<'m>,
        ready: ListenerReady,
        kept: &'a KeptWorkers<'m>,
        accepts: bool,
        done: Done,
    ) -> Self {
        let own = in_hand
            .iter()
            .map(|(tid, requests)| {
                let fds = requests.iter().map(|request| request.fd);
                let fds = fds.filter(|fd| *fd >= 0).chain(kept.descriptors(*tid));
                (*tid, fds.collect())
            })
            .collect();
        let mut readers: HashMap<u64, Vec<(u32, u32)>> = HashMap::new();
        for (tid, requests) in in_hand {
            for request in requests {
                let on_its_connection = readers.entry(request.socket).or_default();
                on_its_connection.push((request.seq, *tid));
            }
        }
        readers
            .values_mut()
            .for_each(|readers| readers.sort_unstable());
        let mut workers = Self {
            model,
            in_hand,
            kept,
            ready,
            accepts,
            own,
            free: HashSet::new(),
            done,
            taken_over: BTreeMap::new(),
            in_work: HashSet::new(),
            readers,
        };
        workers.in_work = workers.sleeps_in_work();
        workers.taken_over = workers.taken_over();
        let free = workers
            .threads()
            .flat_map(|thread| thread.timeline.waits())
            .filter(|wait| wait.user_stack != 0)
            .filter(|wait| workers.sleeps_for(wait) == SleepFor::Work)
            .map(|wait| wait.user_stack)
            .collect();
        workers.free = free;
        workers
    }

    fn threads(&self) -> impl Iterator<Item = &'m Thread> {
        let model = self.model;
        self.in_hand.keys().filter_map(|tid| model.threads.get(tid))
    }

    /// When a worker began with a request.
    fn begun_ns(&self, request: RequestRef<'_>) -> Ns {
        self.done.begun_ns(request)
    }

    /// Where workers sleep with a request in hand that they have read themselves.
    fn sleeps_in_work(&self) -> HashSet<StackId> {
        let mut times: BTreeMap<StackId, (usize, usize)> = BTreeMap::new();
        let waits = self.threads().flat_map(|thread| thread.timeline.waits());
        for wait in waits.filter(|wait| wait.user_stack != 0) {
            let (in_work, all) = times.entry(wait.user_stack).or_default();
            *in_work += usize::from(self.has_in_hand(wait.tid, wait.out_ns));
            *all += 1;
        }
        times.retain(|_, (in_work, all)| {
            Share::counted(*in_work, *all).is_at_least(*SLEEPS_IN_WORK)
        });
        times.into_keys().collect()
    }

    fn taken_over(&self) -> BTreeMap<u32, Vec<Interval>> {
        let mut taken_over: BTreeMap<u32, Vec<Interval>> = BTreeMap::new();
        for request in self.in_hand.values().flatten() {
            let Some(answered_ns) = request.answered_ns() else {
                continue;
            };
            let begun_ns = self.begun_ns(*request);
            if request.send_tid != request.recv_tid || begun_ns > request.served_ns() {
                let intervals = taken_over.entry(request.send_tid).or_default();
                intervals.push((begun_ns, answered_ns));
            }
        }
        let all = taken_over.values_mut();
        all.for_each(|intervals| intervals.sort_unstable());
        taken_over
    }

    /// Whether it sleeps in the work of a request that it did not read just before. A thread
    /// without work may come to answer what others have read as well: it sleeps elsewhere.
    fn works_for_an_earlier_one(&self, wait: &Wait) -> bool {
        let Some(intervals) = self.taken_over.get(&wait.tid) else {
            return false;
        };
        let begun = intervals.partition_point(|(from_ns, _)| *from_ns <= wait.out_ns);
        let within = intervals[..begun]
            .last()
            .is_some_and(|(_, to_ns)| *to_ns > wait.out_ns);
        within && self.in_work.contains(&wait.user_stack)
    }

    fn has_in_hand(&self, tid: u32, at: Ns) -> bool {
        if self.kept.writes(tid, at) {
            return true;
        }
        let Some(requests) = self.in_hand.get(&tid) else {
            return false;
        };
        let after = requests.partition_point(|request| request.recv_ns <= Some(at));
        requests[..after]
            .last()
            .is_some_and(|request| request.until_ns() > at)
    }

    fn sleeps_for(&self, wait: &Wait) -> SleepFor {
        if self.has_in_hand(wait.tid, wait.out_ns) || self.works_for_an_earlier_one(wait) {
            return SleepFor::Request;
        }
        let own_connection = descriptor(wait).is_some_and(|fd| {
            !is_accept(wait) && self.own.get(&wait.tid).is_some_and(|own| own.contains(&fd))
        });
        if own_connection && writes(wait) {
            SleepFor::Request
        } else if own_connection {
            SleepFor::OwnConnection
        } else if self.accepts && self.ready.is_missed(wait) {
            SleepFor::SomethingElse
        } else if polls_unread(wait) {
            SleepFor::Unknown
        } else if self.serves(wait.tid) || is_accept(wait) || self.ready.is_polled(wait) {
            SleepFor::Work
        } else if self.model.awaits_a_client(wait) {
            SleepFor::OwnConnection
        } else {
            SleepFor::Unknown
        }
    }

    /// Whether a worker was seen with a request or a connection, and not only as it accepted.
    fn serves(&self, tid: u32) -> bool {
        let has_read = self.in_hand.get(&tid).is_some_and(|read| !read.is_empty());
        has_read || self.kept.has(tid)
    }

    /// The workers of whom it is known what they do.
    fn known(&self, sleeps: &[WorkerSleep<'_>]) -> BTreeSet<u32> {
        let slept: BTreeSet<u32> = sleeps.iter().map(|sleep| sleep.wait.tid).collect();
        let known = |tid: &u32| self.serves(*tid) || slept.contains(tid);
        self.in_hand.keys().copied().filter(known).collect()
    }

    /// What each did from its first request to its last.
    fn duties(&self) -> Vec<(Ns, Ns, WorkerDuty)> {
        let mut duties = Vec::new();
        for thread in self.threads() {
            let from = thread.started.map_or(0, |(at, _)| at);
            let mut at = from;
            for wait in thread.timeline.waits() {
                let woken = wait.over_ns().unwrap_or(self.model.end_ns);
                duties.push((at, wait.out_ns, WorkerDuty::Active));
                match self.sleeps_for(wait) {
                    SleepFor::Work => duties.push((wait.out_ns, woken, WorkerDuty::Free)),
                    // Nobody knows.
                    SleepFor::Unknown => {}
                    SleepFor::Request | SleepFor::OwnConnection | SleepFor::SomethingElse => {
                        duties.push((wait.out_ns, woken, WorkerDuty::Asleep));
                    }
                }
                at = woken.max(wait.out_ns);
            }
            duties.push((at, self.last_seen(thread), WorkerDuty::Active));
        }
        duties.extend(self.others_free());
        duties
    }

    /// Until when a thread can be said to be at work: no sleep says when it ended.
    fn last_seen(&self, thread: &Thread) -> Ns {
        let answered = self
            .in_hand
            .get(&thread.tid)
            .and_then(|requests| requests.last()?.answered_ns());
        answered.unwrap_or(self.model.end_ns)
    }

    /// Threads that served none of these requests, and wait where the workers wait for work.
    fn others_free(&self) -> Vec<(Ns, Ns, WorkerDuty)> {
        let others = self
            .model
            .threads
            .values()
            .filter(|thread| !self.in_hand.contains_key(&thread.tid));
        others
            .flat_map(|thread| thread.timeline.waits())
            .filter(|wait| {
                is_accept(wait) && self.accepts
                    || wait.user_stack != 0 && self.free.contains(&wait.user_stack)
            })
            .map(|wait| {
                let woken = wait.over_ns().unwrap_or(self.model.end_ns);
                (wait.out_ns, woken, WorkerDuty::Free)
            })
            .collect()
    }

    /// Whether a worker that came free would have read it. Not if its own connection's worker
    /// sleeps in reading from that very connection, and does not wake up; nor if it was never
    /// accepted by those who hand connections to the workers.
    fn could_be_read(&self, request: RequestRef<'_>) -> bool {
        if request.read_armed == Some(false) || request.unaccepted && !self.accepts {
            return false;
        }
        let on_its_connection = self.readers.get(&request.socket);
        let before = on_its_connection.and_then(|readers| {
            let before = readers.partition_point(|(seq, _)| *seq < request.seq);
            readers[..before].last()
        });
        !before.is_some_and(|(_, reader)| {
            self.model.threads.get(reader).is_some_and(|thread| {
                match thread.timeline.at(request.ready_ns) {
                    Activity::Sleeping(wait) => self.sleeps_for(wait) == SleepFor::OwnConnection,
                    _ => false,
                }
            })
        })
    }

    fn sleeps(&self, shift: &BusyShift) -> Vec<WorkerSleep<'m>> {
        self.threads()
            .flat_map(|thread| thread.timeline.waits())
            .map(|wait| {
                let woken = wait.over_ns().unwrap_or(self.model.end_ns);
                WorkerSleep {
                    wait,
                    kept: self.sleeps_for(wait) == SleepFor::OwnConnection,
                    ns: shift.within(wait.out_ns, woken),
                }
            })
            .filter(|sleep| sleep.ns > 0)
            .collect()
    }

    fn jobs(&self, requests: &[RequestRef<'m>]) -> Vec<Worked> {
        let mut jobs: Vec<Worked> = requests
            .iter()
            .filter_map(|request| {
                request.recv_ns?;
                let answered_ns = request.answered_ns()?;
                Some(Worked {
                    socket: request.socket,
                    ready_ns: request.ready_ns,
                    taken_ns: self.begun_ns(*request),
                    answered_ns,
                    free_ns: self.free_ns(request.recv_tid, answered_ns),
                })
            })
            .collect();
        jobs.sort_by_key(|job| job.ready_ns);
        jobs
    }

    /// When a worker could take the next request after an answer: at once, unless the connection
    /// keeps it.
    fn free_ns(&self, tid: u32, answered_ns: Ns) -> Ns {
        let Some(thread) = self.model.threads.get(&tid) else {
            return answered_ns;
        };
        let next = thread.timeline.overlapping(answered_ns, Ns::MAX).first();
        next.filter(|wait| {
            let soon = wait.out_ns.saturating_sub(answered_ns) < *SLOW_NS;
            soon && self.sleeps_for(wait) == SleepFor::OwnConnection
        })
        .and_then(Wait::over_ns)
        .map_or(answered_ns, |woken_ns| woken_ns.max(answered_ns))
    }
}
