//! Writes down a recording as a schedule: threads' time, events between them, requests.

use std::collections::{BTreeMap, HashMap};

use whywait_events::{Ns, Part, Wait, WakeContext};
use whywait_model::waits::WaitKey;
use whywait_model::{Model, RequestRef, SystemCall, Thread, system_call};
use whywait_replay::{Resource as Slots, Schedule, Step, What, Work};

use super::{Numbers, Resource};
use crate::facts::Facts;
use crate::numbers::TURN_AT_ONCE_NS;
use crate::shared::intervals::Interval;
use crate::shared::replay::{lock_of, workers_of};
use crate::shared::slow_paths;

/// What ends a wait, or is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// A request came.
    Came(usize),
    /// It was answered.
    Answered(usize),
    /// A call was sent, and its reply came.
    Sent(usize),
    Replied(usize),
    /// A thread ended the sleep of another one that began then.
    Woke(u32, Ns),
}

/// What happens in a thread at a moment.
#[derive(Debug, Clone, Copy)]
enum Mark<'m> {
    Brings(usize),
    Until(usize),
    Sleeps(&'m Wait),
}

/// A step, before it is known what is relaxed.
#[derive(Debug, Clone, Copy)]
struct Written {
    step: Step,
    /// The lock that this is a wait for.
    lock: Option<usize>,
}

/// Puts the schedule together.
pub(super) struct Builder<'f, 'm> {
    facts: &'f Facts<'m>,
    requests: Vec<RequestRef<'m>>,
    events: Numbers<Event>,
    causes: Numbers<Resource>,
    locks: Numbers<WaitKey>,
    /// How long each cause takes while slow requests are under way.
    took_ns: BTreeMap<usize, u64>,
    lock_ns: BTreeMap<usize, u64>,
    slow: Vec<Interval>,
    /// When requests and replies came, by their events.
    came: HashMap<usize, Ns>,
    slots: Vec<(Resource, usize)>,
    works: Vec<(Work, Vec<Written>)>,
}

impl<'f, 'm> Builder<'f, 'm> {
    pub(super) fn of(facts: &'f Facts<'m>) -> Self {
        let model = facts.model;
        let requests: Vec<RequestRef<'m>> = model
            .requests()
            .filter(|request| request.counts() && !request.was_stopped())
            .collect();
        let slow = facts.slow().requests.iter();
        let slow = slow.map(|one| (one.request.ready_ns, one.request.end_ns()));
        let mut builder = Self {
            facts,
            slow: crate::shared::intervals::merged(slow.collect()),
            events: Numbers::new(),
            causes: Numbers::new(),
            locks: Numbers::new(),
            took_ns: BTreeMap::new(),
            lock_ns: BTreeMap::new(),
            came: HashMap::new(),
            slots: Vec::new(),
            works: Vec::new(),
            requests,
        };
        builder.write();
        builder
    }

    /// How many works are requests: the first ones.
    pub(super) fn requests(&self) -> usize {
        self.requests.len()
    }

    /// The resources that took most, with the numbers of what they cause.
    pub(super) fn largest(&self, most: usize) -> Vec<(Resource, usize)> {
        let mut all: Vec<(u64, &Resource, usize)> = self
            .causes
            .all
            .iter()
            .map(|(resource, at)| (self.took_ns.get(at).copied().unwrap_or(0), resource, *at))
            .collect();
        all.sort_by_key(|(ns, ..)| std::cmp::Reverse(*ns));
        all.truncate(most);
        let all = all.into_iter();
        all.map(|(_, resource, at)| (resource.clone(), at))
            .collect()
    }

    /// The locks that were waited for longest.
    pub(super) fn locks(&self, most: usize) -> Vec<(Resource, usize)> {
        let ns = |at: &usize| self.lock_ns.get(at).copied().unwrap_or(0);
        let mut all: Vec<(&WaitKey, usize)> =
            self.locks.all.iter().map(|(key, at)| (key, *at)).collect();
        all.sort_by_key(|(_, at)| std::cmp::Reverse(ns(at)));
        all.truncate(most);
        let name = |key: &WaitKey| Resource::Lock(key.object.name());
        all.into_iter().map(|(key, at)| (name(key), at)).collect()
    }

    /// The workers that serve one request at a time each.
    pub(super) fn workers(&self) -> Vec<(Resource, usize)> {
        let slots = self.slots.iter().enumerate();
        slots
            .map(|(at, (resource, _))| (resource.clone(), at))
            .collect()
    }

    /// The schedule, in which nobody waits for this lock.
    pub(super) fn schedule(&self, unlocked: Option<usize>) -> Schedule {
        let waits = |one: &&Written| one.lock.is_none() || one.lock != unlocked;
        let works = self.works.iter().map(|(work, steps)| Work {
            steps: steps.iter().filter(waits).map(|one| one.step).collect(),
            ..work.clone()
        });
        Schedule {
            resources: self.slots.iter().map(|(_, n)| Slots::of(*n)).collect(),
            works: works.collect(),
        }
    }

    fn write(&mut self) {
        let model = self.facts.model;
        let mut marks = self.marks();
        // Requests come first among the works.
        let served = self.served();
        let mut brought = vec![false; self.events.all.len()];
        let mut jobs: Vec<(usize, Vec<Written>)> = Vec::new();
        for (tid, spans) in &served {
            let Some(thread) = model.threads.get(tid) else {
                continue;
            };
            let marks = marks.remove(tid).unwrap_or_default();
            for (request, span) in spans {
                let first = marks.partition_point(|(at_ns, _)| *at_ns < span.0);
                let last = marks.partition_point(|(at_ns, _)| *at_ns <= span.1);
                let steps = self.steps(thread, *span, &marks[first..last.max(first)]);
                note_brought(&steps, &mut brought);
                jobs.push((*request, steps));
            }
        }
        let mut of_request: HashMap<usize, Vec<Written>> = jobs.into_iter().collect();
        for number in 0..self.requests.len() {
            let request = self.requests[number];
            let crew = self.crew_of(request, of_request.contains_key(&number));
            let (came, answered) = (Event::Came(number), Event::Answered(number));
            let came = self.events.of(came);
            let answered = self.events.of(answered);
            let mut steps = vec![plain(request.ready_ns, What::Brings(came))];
            if let (Some(job), Some(crew)) = (of_request.remove(&number), crew) {
                steps.push(plain(request.ready_ns, What::Takes(crew)));
                steps.extend(job);
            }
            steps.push(plain(request.end_ns(), What::Until(answered)));
            steps.push(plain(request.end_ns(), What::Answers));
            let work = Work {
                ready_ns: request.ready_ns,
                answered_ns: request.end_ns(),
                ..Work::default()
            };
            self.works.push((work, steps));
        }
        for (tid, marks) in &marks {
            let thread = &model.threads[tid];
            let from_ns = marks.first().map_or(0, |(at_ns, _)| *at_ns);
            let to_ns = marks.last().map_or(0, |(at_ns, _)| *at_ns);
            let steps = self.steps(thread, (from_ns, to_ns), marks);
            note_brought(&steps, &mut brought);
            self.works.push((at(from_ns), steps));
        }
        self.calls();
        // What nobody is seen to bring about comes when it came.
        let left: Vec<(Ns, usize)> = self
            .events
            .all
            .iter()
            .filter(|(_, at)| !brought.get(**at).copied().unwrap_or(false))
            .filter_map(|(event, at)| Some((self.recorded_ns(*event)?, *at)))
            .collect();
        for (at_ns, event) in left {
            let steps = vec![plain(at_ns, What::Brings(event))];
            self.works.push((at(at_ns), steps));
        }
    }

    /// When an event was, if no work brings it about by itself.
    fn recorded_ns(&self, event: Event) -> Option<Ns> {
        match event {
            Event::Came(_) | Event::Replied(_) => None,
            Event::Answered(at) => Some(self.requests[at].end_ns()),
            Event::Sent(at) => Some(self.facts.model.exchanges()[at].first_send_ns),
            Event::Woke(tid, out_ns) => {
                let waits = self.facts.model.threads.get(&tid)?.timeline.waits();
                let at = waits.partition_point(|wait| wait.out_ns < out_ns);
                waits.get(at)?.over_ns()
            }
        }
    }

    /// The calls: a reply comes so long after it was asked for.
    fn calls(&mut self) {
        let model = self.facts.model;
        for (number, call) in model.exchanges().iter().enumerate() {
            let (sent, replied) = (Event::Sent(number), Event::Replied(number));
            let (Some(sent), Some(replied)) = (
                self.events.all.get(&sent).copied(),
                self.events.all.get(&replied).copied(),
            ) else {
                continue;
            };
            let came_ns = call.arrived_ns.or(call.first_read_ns);
            let span = (call.first_send_ns, came_ns.unwrap_or(call.first_send_ns));
            let peer = model.peer(call.peer).map(|peer| peer.to_string());
            let cause = self.cause(Resource::Peer(peer.unwrap_or_default()), span);
            let what = [
                What::Until(sent),
                What::Spends {
                    ns: span.1.saturating_sub(span.0),
                    cause: Some(cause),
                },
                What::Brings(replied),
            ];
            let steps = what.into_iter().map(|what| plain(span.0, what));
            self.works.push((at(span.0), steps.collect()));
        }
    }

    fn cause(&mut self, resource: Resource, span: Interval) -> usize {
        let cause = self.causes.of(resource);
        let ns = self.slow_ns(span);
        let took = self.took_ns.entry(cause).or_default();
        *took = took.saturating_add(ns);
        cause
    }

    /// How much of an interval slow requests were under way.
    fn slow_ns(&self, span: Interval) -> u64 {
        let first = self.slow.partition_point(|(_, to_ns)| *to_ns <= span.0);
        let overlapping = self.slow[first..].iter();
        overlapping
            .take_while(|(from_ns, _)| *from_ns < span.1)
            .map(|one| crate::shared::intervals::overlap_ns(*one, span))
            .fold(0, u64::saturating_add)
    }

    /// By worker: when it served which requests.
    fn served(&mut self) -> BTreeMap<u32, Vec<(usize, Interval)>> {
        let mut number: HashMap<(u64, u32, Ns), usize> = HashMap::new();
        for (at, request) in self.requests.iter().enumerate() {
            number.insert((request.socket, request.seq, request.ready_ns), at);
        }
        let mut served: BTreeMap<u32, Vec<(usize, Interval)>> = BTreeMap::new();
        for ((_, port), requests) in self.facts.places() {
            let Some(workers) = workers_of(requests.iter().copied()) else {
                continue;
            };
            // A thread that serves at two places is one of the first.
            if workers.keys().any(|tid| served.contains_key(tid)) {
                continue;
            }
            self.slots.push((Resource::Workers(*port), workers.len()));
            for (tid, requests) in workers {
                let mut spans = Vec::new();
                let mut free_ns = 0;
                for request in requests {
                    let name = (request.socket, request.seq, request.ready_ns);
                    let (Some(at), Some(recv_ns)) = (number.get(&name), request.recv_ns) else {
                        continue;
                    };
                    let from_ns = recv_ns.max(free_ns);
                    free_ns = request.end_ns().max(from_ns);
                    spans.push((*at, (from_ns, free_ns)));
                }
                served.insert(tid, spans);
            }
        }
        served
    }

    fn crew_of(&self, request: RequestRef<'_>, has_job: bool) -> Option<usize> {
        let port = request.place().1;
        let mut slots = self.slots.iter();
        slots
            .position(|(resource, _)| *resource == Resource::Workers(port))
            .filter(|_| has_job)
    }

    /// What happens in each thread, in order.
    fn marks(&mut self) -> BTreeMap<u32, Vec<(Ns, Mark<'m>)>> {
        let model = self.facts.model;
        let mut marks: BTreeMap<u32, Vec<(Ns, u8, Mark<'m>)>> = BTreeMap::new();
        let mut add = |tid: u32, at_ns: Ns, order: u8, mark: Mark<'m>| {
            if model.threads.contains_key(&tid) {
                marks.entry(tid).or_default().push((at_ns, order, mark));
            }
        };
        for (at, request) in self.requests.iter().enumerate() {
            let came = self.events.of(Event::Came(at));
            let answered = self.events.of(Event::Answered(at));
            self.came.insert(came, request.ready_ns);
            if let Some(recv_ns) = request.recv_ns {
                add(
                    request.recv_tid,
                    recv_ns.max(request.ready_ns),
                    2,
                    Mark::Until(came),
                );
            }
            if let Some(answered_ns) = request.answered_ns() {
                add(request.send_tid, answered_ns, 0, Mark::Brings(answered));
            }
        }
        for (at, call) in model.exchanges().iter().enumerate() {
            let Some(read_ns) = call.first_read_ns else {
                continue;
            };
            let sent = self.events.of(Event::Sent(at));
            let replied = self.events.of(Event::Replied(at));
            let came_ns = call.arrived_ns.unwrap_or(read_ns);
            self.came.insert(replied, came_ns);
            add(call.send_tid, call.first_send_ns, 0, Mark::Brings(sent));
            add(call.read_tid, read_ns, 2, Mark::Until(replied));
        }
        for thread in model.threads.values() {
            for wait in thread.timeline.waits() {
                add(thread.tid, wait.out_ns, 1, Mark::Sleeps(wait));
                if let Some(wake_ns) = wait.wake_ns.filter(|_| by_target(model, wait)) {
                    let woke = self.events.of(Event::Woke(thread.tid, wait.out_ns));
                    add(wait.waker_tid, wake_ns, 0, Mark::Brings(woke));
                }
            }
        }
        marks
            .into_iter()
            .map(|(tid, mut marks)| {
                marks.sort_by_key(|(at_ns, order, _)| (*at_ns, *order));
                let marks = marks.into_iter().map(|(at_ns, _, mark)| (at_ns, mark));
                (tid, marks.collect())
            })
            .collect()
    }

    /// What a thread does in an interval.
    fn steps(
        &mut self,
        thread: &'m Thread,
        (from_ns, to_ns): Interval,
        marks: &[(Ns, Mark<'m>)],
    ) -> Vec<Written> {
        let mut steps = Vec::new();
        let mut now_ns = from_ns;
        for (place, (at_ns, mark)) in marks.iter().enumerate() {
            if *at_ns > now_ns {
                self.computes(thread, (now_ns, *at_ns), &mut steps);
                now_ns = *at_ns;
            }
            match mark {
                Mark::Brings(event) => steps.push(plain(now_ns, What::Brings(*event))),
                Mark::Until(event) => steps.push(plain(now_ns, What::Until(*event))),
                Mark::Sleeps(wait) => {
                    let until_ns = wait.in_ns.unwrap_or(to_ns).min(to_ns.max(now_ns));
                    self.sleeps(wait, (now_ns, until_ns), &marks[place + 1..], &mut steps);
                    now_ns = until_ns.max(now_ns);
                }
            }
        }
        if to_ns > now_ns {
            self.computes(thread, (now_ns, to_ns), &mut steps);
        }
        steps
    }

    fn sleeps(
        &mut self,
        wait: &'m Wait,
        (from_ns, until_ns): Interval,
        after: &[(Ns, Mark<'m>)],
        steps: &mut Vec<Written>,
    ) {
        let model = self.facts.model;
        let woken_ns = wait.woken_ns().clamp(from_ns, until_ns);
        let woke = Event::Woke(wait.tid, wait.out_ns);
        if by_target(model, wait) && wait.wake_ns.is_some() {
            let event = self.events.of(woke);
            let lock = model.is_lock_wait(wait).then(|| {
                let lock = self.locks.of(lock_of(model, wait));
                let ns = self.slow_ns((from_ns, woken_ns));
                *self.lock_ns.entry(lock).or_default() += ns;
                lock
            });
            steps.push(Written {
                step: Step {
                    at_ns: from_ns,
                    what: What::Until(event),
                },
                lock,
            });
        } else if let Some(event) = self.came_for(woken_ns, from_ns, after) {
            steps.push(plain(from_ns, What::Until(event)));
        } else {
            let cause = self.asleep(wait, (from_ns, woken_ns));
            steps.push(spends(from_ns, woken_ns - from_ns, cause));
        }
        steps.push(spends(woken_ns, until_ns - woken_ns, None));
    }

    /// The request or the reply that ended a sleep: what came then, and was read next.
    fn came_for(&self, woken_ns: Ns, from_ns: Ns, after: &[(Ns, Mark<'m>)]) -> Option<usize> {
        let next = after
            .iter()
            .take_while(|(_, mark)| !matches!(mark, Mark::Sleeps(_)))
            .filter_map(|(_, mark)| match mark {
                Mark::Until(event) => Some(*event),
                _ => None,
            });
        next.filter_map(|event| {
            let at_ns = self.came_ns(event)?;
            let off_ns = at_ns.abs_diff(woken_ns);
            (at_ns >= from_ns && off_ns <= *TURN_AT_ONCE_NS).then_some((off_ns, event))
        })
        .min()
        .map(|(_, event)| event)
    }

    /// When a request or a reply came, by its event.
    fn came_ns(&self, number: usize) -> Option<Ns> {
        self.came.get(&number).copied()
    }

    /// What a sleep is for that no thread and nothing that came ended.
    fn asleep(&mut self, wait: &Wait, span: Interval) -> Option<usize> {
        let model = self.facts.model;
        let part = model.kind_of(wait).and_then(|kind| kind.part);
        let function = || {
            let stack = wait.user_stack;
            (stack != 0)
                .then(|| slow_paths::function(model, stack))
                .flatten()
        };
        let resource = match (part, system_call(wait)) {
            (Some(Part::Disk), _) | (None, SystemCall::File) => Resource::Disk,
            (Some(Part::PageFault), _) => Resource::Memory,
            (_, SystemCall::Sleep) => Resource::Timer(function().map(Into::into)),
            (_, SystemCall::Poll | SystemCall::Futex)
                if wait.timeout && wait.wake_context == WakeContext::Hardirq =>
            {
                Resource::Timer(function().map(Into::into))
            }
            (_, SystemCall::Stream | SystemCall::Socket) => {
                let peer = model.awaited_peer(wait)?;
                Resource::Peer(peer.to_string())
            }
            _ => return None,
        };
        Some(self.cause(resource, span))
    }

    /// A thread is awake: where it computes what, by its samples.
    fn computes(&mut self, thread: &Thread, (from_ns, to_ns): Interval, steps: &mut Vec<Written>) {
        let model: &Model = self.facts.model;
        let mut now_ns = from_ns;
        let mut spans: Vec<(Interval, bool)> = Vec::new();
        for row in thread.preempted(from_ns, to_ns) {
            let (out_ns, in_ns) = (row.out_ns.max(now_ns), row.in_ns.min(to_ns));
            if out_ns > now_ns {
                spans.push(((now_ns, out_ns), true));
            }
            if in_ns > out_ns {
                spans.push(((out_ns, in_ns), false));
                now_ns = in_ns;
            }
        }
        if to_ns > now_ns {
            spans.push(((now_ns, to_ns), true));
        }
        for (span, has_cpu) in spans {
            if !has_cpu {
                steps.push(spends(span.0, span.1 - span.0, None));
                continue;
            }
            let samples = thread.samples_within(span.0, span.1);
            let mut at_ns = span.0;
            for (place, sample) in samples.iter().enumerate() {
                let next = samples.get(place + 1);
                let until_ns = next.map_or(span.1, |next| sample.at_ns.midpoint(next.at_ns));
                let function = self.facts.function(sample.user_stack);
                let part = (at_ns, until_ns);
                let cause = function.map(|name| self.cause(Resource::Function(name), part));
                steps.push(spends(at_ns, until_ns.saturating_sub(at_ns), cause));
                at_ns = until_ns;
            }
            if at_ns < span.1 {
                let stack = model.sampled_stack(thread, at_ns, span.1);
                let function = self.facts.function(stack).filter(|_| stack != 0);
                let part = (at_ns, span.1);
                let cause = function.map(|name| self.cause(Resource::Function(name), part));
                steps.push(spends(at_ns, span.1 - at_ns, cause));
            }
        }
    }
}

/// Whether a thread of the target ended a sleep.
fn by_target(model: &Model, wait: &Wait) -> bool {
    wait.wake_context == WakeContext::Task && model.threads.contains_key(&wait.waker_tid)
}

fn note_brought(steps: &[Written], brought: &mut Vec<bool>) {
    for one in steps {
        if let What::Brings(event) = one.step.what {
            if brought.len() <= event {
                brought.resize(event + 1, false);
            }
            brought[event] = true;
        }
    }
}

fn at(ready_ns: Ns) -> Work {
    Work {
        ready_ns,
        answered_ns: ready_ns,
        ..Work::default()
    }
}

fn plain(at_ns: Ns, what: What) -> Written {
    Written {
        step: Step { at_ns, what },
        lock: None,
    }
}

fn spends(at_ns: Ns, ns: u64, cause: Option<usize>) -> Written {
    plain(at_ns, What::Spends { ns, cause })
}
