//! Workers that each serve one request at a time, as a schedule.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use whywait_events::{Ns, Wait};
use whywait_model::waits::WaitKey;
use whywait_model::{Model, RequestRef, Thread, descriptor, is_accept, polls_unread};
use whywait_replay::{Left, Off, Relaxation, Resource, Schedule, Step, What, Work};

use super::behind::{Gone, Spared, apart};
use super::crews::ReadByThread;
use super::events::Events;
use super::locks::{Locks, Use};
use super::turns::name;
use super::workers::{Worked, follows};
use crate::finding::RequestName;
use crate::numbers::REPLAY_OFF;
use crate::shared::intervals::{Interval, in_proportion, merged, overlap_ns, sum};

/// The number of the workers among the resources; that of each lock comes after it.
const WORKERS: usize = 0;
/// The number of what a fix takes away among the causes.
const GONE: usize = 0;

/// Workers that each serve one at a time.
pub(super) struct Crew<'m> {
    model: &'m Model,
    in_hand: ReadByThread<'m>,
    locks: Locks,
    events: Events,
    /// When each worker waited for work that any of them may take.
    free: BTreeMap<u32, Vec<Interval>>,
    /// When one of them did.
    idle: Vec<Interval>,
}

impl<'m> Crew<'m> {
    pub(super) fn new(model: &'m Model, in_hand: ReadByThread<'m>) -> Self {
        let threads = in_hand
            .iter()
            .filter_map(|(tid, requests)| Some((*tid, model.threads.get(tid)?, requests)));
        let free: BTreeMap<u32, Vec<Interval>> = threads
            .map(|(tid, thread, requests)| (tid, free(model, thread, requests)))
            .collect();
        Self {
            model,
            locks: Locks::of(model, in_hand.keys().copied()),
            events: Events::of(model, &in_hand),
            idle: merged(free.values().flatten().copied().collect()),
            free,
            in_hand,
        }
    }

    /// What each of their requests is spared at most when these are spared that, and nobody waits
    /// for this lock; and by how much the replay is off without that: then all that they wait for
    /// is in it.
    pub(super) fn without(
        &self,
        spared: &[Spared<'m>],
        unlocked: Option<&WaitKey>,
    ) -> (Vec<(RequestRef<'m>, u64)>, Option<Off>) {
        let mut gone: HashMap<RequestName, Vec<Gone>> = HashMap::new();
        for one in spared {
            gone.entry(name(one.request)).or_default().extend(&one.gone);
        }
        let mut mine = self.in_hand.values().flatten();
        if !mine.any(|request| gone.contains_key(&name(*request))) {
            return (Vec::new(), None);
        }
        // Of a lock whose uses are not known the waits are time that is gone.
        let unlocked = unlocked.and_then(|key| self.locks.number(key));
        let mut relaxation = Relaxation::default().shorter(GONE, Left::Nothing);
        if let Some(lock) = unlocked {
            relaxation = relaxation.unlimited(resource(lock));
        }
        let mut works: Vec<(Option<RequestRef<'m>>, Work)> = Vec::new();
        for (tid, requests) in &self.in_hand {
            for (at, request) in requests.iter().enumerate() {
                let of_it = gone.remove(&name(*request)).unwrap_or_default();
                if let Some(work) = self.work(*tid, (requests, at), of_it) {
                    works.push((Some(*request), work));
                }
            }
            let others = self.others(*tid, requests).into_iter();
            works.extend(others.map(|work| (None, work)));
        }
        let holds = self.locks.of_others(&self.in_hand);
        works.extend(holds.map(|one| (None, hold(one))));
        works.sort_by_key(|(_, work)| work.ready_ns);
        come_back(&mut works);
        let (requests, works): (Vec<_>, Vec<_>) = works.into_iter().unzip();
        let locks = (0..self.locks.count()).map(|_| Resource::of(1));
        let schedule = Schedule {
            resources: std::iter::once(Resource::of(self.in_hand.len()))
                .chain(locks)
                .collect(),
            works,
        };
        let at_most = schedule.at_most(&relaxation);
        let (savings, off) = match schedule.reproduced(REPLAY_OFF.of(100)) {
            Ok(reproduced) => (reproduced.savings(&relaxation), None),
            Err(off) => (at_most, Some(off)),
        };
        let savings = requests.into_iter().zip(savings);
        let savings = savings.filter_map(|(request, ns)| Some((request?, ns)));
        (savings.collect(), off)
    }

    /// How long a request was not read though a worker was free: that has another reason, which
    /// stays.
    fn idle_ns(&self, wait: Interval) -> u64 {
        let first = self.idle.partition_point(|(_, to_ns)| *to_ns <= wait.0);
        let idle = self.idle[first..].iter();
        let idle = idle.take_while(|(from_ns, _)| *from_ns < wait.1);
        sum(idle.map(|idle| overlap_ns(*idle, wait)))
    }

    /// When its worker, which had nothing to do, turned to a request that lay there: it then may
    /// have had no CPU, or was told of it by what it did first.
    fn turns_to(&self, tid: u32, request: RequestRef<'_>) -> Option<Ns> {
        let free = self.free.get(&tid).map_or(&[][..], Vec::as_slice);
        let rested = free.partition_point(|(_, to_ns)| Some(*to_ns) <= request.recv_ns);
        let rested_ns = rested.checked_sub(1).map(|last| free[last].1)?;
        (request.ready_ns <= rested_ns).then_some(rested_ns)
    }

    /// What keeps a worker after an answer, until it has nothing to do or reads the next request.
    fn kept(&self, tid: u32, answered_ns: Ns, next_ns: Option<Ns>) -> Vec<Step> {
        let free = self.free.get(&tid).map_or(&[][..], Vec::as_slice);
        // A thread's waits are in order.
        let busy = free.partition_point(|(from_ns, _)| *from_ns < answered_ns);
        let rests_ns = free.get(busy).map(|(from_ns, _)| *from_ns);
        match rests_ns.into_iter().chain(next_ns).min() {
            Some(until_ns) => self.steps(tid, (answered_ns, until_ns), &[]),
            None => Vec::new(),
        }
    }

    /// A request, as its worker served it.
    fn work(
        &self,
        tid: u32,
        (requests, at): (&[RequestRef<'_>], usize),
        gone: Vec<Gone>,
    ) -> Option<Work> {
        let request = requests[at];
        let taken_ns = request.recv_ns?;
        let next_ns = requests.get(at + 1).and_then(|next| next.recv_ns);
        let until_ns = next_ns.unwrap_or(self.model.end_ns).max(taken_ns);
        let answered_ns = request.answered_ns().unwrap_or(until_ns).max(taken_ns);
        let gone = apart(gone);
        let span = (taken_ns, answered_ns.min(until_ns));
        let ready_ns = request.ready_ns.min(taken_ns);
        let before = at
            .checked_sub(1)
            .and_then(|before| requests[before].recv_ns);
        let turns_ns = self.turns_to(tid, request).filter(|ns| Some(*ns) > before);
        let turns_ns = turns_ns.unwrap_or(taken_ns);
        let idle_ns = self.idle_ns((ready_ns, turns_ns)) + (taken_ns - turns_ns);
        let step = |at_ns, what| Step { at_ns, what };
        let idle = What::Spends {
            ns: idle_ns,
            cause: None,
        };
        let mut steps = vec![
            step(ready_ns, What::Takes(WORKERS)),
            step(taken_ns - idle_ns, idle),
        ];
        steps.extend(self.steps(tid, span, &gone));
        steps.push(step(answered_ns, What::Answers));
        steps.extend(self.kept(tid, span.1, next_ns));
        Some(Work {
            ready_ns,
            answered_ns,
            follows: None,
            steps,
        })
    }

    /// What a worker did in an interval: work, and what of it is gone; locks and events.
    fn steps(&self, tid: u32, (from_ns, to_ns): Interval, gone: &[Gone]) -> Vec<Step> {
        // When it did what, and until when that kept it.
        let mut does: Vec<(Ns, What, Ns)> = Vec::new();
        for one in self.locks.within(tid, from_ns, to_ns) {
            let lock = resource(one.lock);
            let waits_until_ns = one.got_ns.saturating_sub(one.unknown_ns);
            does.push((one.asked_ns, What::Takes(lock), waits_until_ns));
            let let_go_ns = one.let_go_ns.min(to_ns);
            does.push((let_go_ns, What::Frees(lock), let_go_ns));
        }
        for one in self.events.awaited(tid, from_ns, to_ns) {
            does.push((one.from_ns, What::Until(one.event), one.to_ns));
        }
        for (at_ns, event) in self.events.brought(tid, from_ns, to_ns) {
            does.push((*at_ns, What::Brings(*event), *at_ns));
        }
        does.sort_by_key(|(at_ns, ..)| *at_ns);
        let mut steps = JobSteps {
            at_ns: from_ns,
            gone,
            steps: Vec::new(),
        };
        for (at_ns, what, until_ns) in does {
            steps.work_until(at_ns);
            steps.push(what);
            // For how long it waits is what the replay finds.
            if until_ns > steps.at_ns {
                steps.at_ns = until_ns.min(to_ns).max(steps.at_ns);
                steps.spends(0, None);
            }
        }
        steps.work_until(to_ns);
        steps.steps
    }

    /// What else kept a worker that had nothing to do before: requests that were over too soon to
    /// be seen, a connection that asks for nothing.
    fn others(&self, tid: u32, requests: &[RequestRef<'_>]) -> Vec<Work> {
        let free = self.free.get(&tid).into_iter().flatten().copied();
        let served = in_hand(self.model, requests);
        // What is neither: in order of time, with when it was free last.
        let mut taken: Vec<(Interval, bool)> = served.into_iter().map(|one| (one, false)).collect();
        taken.extend(free.map(|one| (one, true)));
        taken.sort_unstable();
        let mut works = Vec::new();
        let (mut at_ns, mut free_ns) = (0, None);
        let turned: BTreeSet<Ns> = requests
            .iter()
            .filter_map(|request| self.turns_to(tid, *request))
            .collect();
        for ((from_ns, to_ns), is_free) in taken {
            let is_other = free_ns == Some(at_ns) && !turned.contains(&at_ns);
            if is_other && from_ns > at_ns {
                works.push(other(at_ns, from_ns));
            }
            at_ns = at_ns.max(to_ns);
            if is_free {
                free_ns = Some(to_ns);
            }
        }
        works
    }
}

/// Clients that wait for an answer come again as long after it as they did.
fn come_back(works: &mut [(Option<RequestRef<'_>>, Work)]) {
    let requests = works
        .iter()
        .enumerate()
        .filter_map(|(at, (request, work))| {
            let request = request.filter(|request| request.is_answered())?;
            let job = Worked {
                socket: request.socket,
                ready_ns: work.ready_ns,
                taken_ns: request.served_ns(),
                answered_ns: work.answered_ns,
                free_ns: work.answered_ns,
            };
            Some((at, job))
        });
    let (places, jobs): (Vec<usize>, Vec<Worked>) = requests.unzip();
    for (place, before) in places.iter().zip(follows(&jobs)) {
        works[*place].1.follows = before.map(|before| places[before]);
    }
}

/// When a worker had a request in hand.
fn in_hand(model: &Model, requests: &[RequestRef<'_>]) -> Vec<Interval> {
    let span = |request: &RequestRef<'_>| {
        let until_ns = request.answered_ns().unwrap_or(model.end_ns);
        Some((request.recv_ns?, until_ns))
    };
    requests.iter().filter_map(span).collect()
}

/// When a thread waited for work that any worker may take: asleep with no request in hand, and not
/// for the next one of a connection of its own.
fn free(model: &Model, thread: &Thread, requests: &[RequestRef<'_>]) -> Vec<Interval> {
    let served = in_hand(model, requests);
    let own: BTreeSet<i32> = requests.iter().map(|request| request.fd).collect();
    let in_hand = |wait: &Wait| {
        let after = served.partition_point(|(from_ns, _)| *from_ns <= wait.out_ns);
        let last = after.checked_sub(1).map(|last| served[last].1);
        last.is_some_and(|until_ns| until_ns > wait.out_ns)
    };
    let kept = |wait: &Wait| {
        !is_accept(wait) && descriptor(wait).is_some_and(|fd| fd >= 0 && own.contains(&fd))
    };
    let waits = thread.timeline.waits().iter();
    waits
        .filter(|wait| !in_hand(wait) && !kept(wait) && !polls_unread(wait))
        .map(|wait| (wait.out_ns, wait.woken_ns()))
        .collect()
}

fn other(from_ns: Ns, to_ns: Ns) -> Work {
    let step = |at_ns, what| Step { at_ns, what };
    let kept = What::Spends {
        ns: to_ns.saturating_sub(from_ns),
        cause: None,
    };
    Work {
        ready_ns: from_ns,
        answered_ns: to_ns,
        follows: None,
        steps: vec![step(from_ns, What::Takes(WORKERS)), step(from_ns, kept)],
    }
}

/// A thread that is no worker has a lock.
fn hold(one: &Use) -> Work {
    let step = |at_ns, what| Step { at_ns, what };
    let held_ns = one.let_go_ns.saturating_sub(one.got_ns);
    let held = What::Spends {
        ns: held_ns.saturating_add(one.unknown_ns),
        cause: None,
    };
    Work {
        ready_ns: one.asked_ns,
        answered_ns: one.let_go_ns,
        follows: None,
        steps: vec![
            step(one.asked_ns, What::Takes(resource(one.lock))),
            step(one.got_ns.saturating_sub(one.unknown_ns), held),
        ],
    }
}

/// The number of a lock among the resources.
const fn resource(lock: usize) -> usize {
    WORKERS + 1 + lock
}

/// The steps of a work, as they are written down.
struct JobSteps<'a> {
    at_ns: Ns,
    gone: &'a [Gone],
    steps: Vec<Step>,
}

impl JobSteps<'_> {
    fn push(&mut self, what: What) {
        self.steps.push(Step {
            at_ns: self.at_ns,
            what,
        });
    }

    fn spends(&mut self, ns: u64, cause: Option<usize>) {
        self.push(What::Spends { ns, cause });
        self.at_ns += ns;
    }

    fn work_until(&mut self, until_ns: Ns) {
        if until_ns <= self.at_ns {
            return;
        }
        // They are in order and apart.
        let first = self.gone.partition_point(|gone| gone.to_ns <= self.at_ns);
        let gone = self.gone[first..].iter();
        let within = gone.take_while(|gone| gone.from_ns < until_ns).map(|gone| {
            let ns = overlap_ns((gone.from_ns, gone.to_ns), (self.at_ns, until_ns));
            in_proportion(ns, gone.ns, gone.to_ns.saturating_sub(gone.from_ns))
        });
        let ns = until_ns - self.at_ns;
        let gone_ns = within.fold(0, u64::saturating_add).min(ns);
        if gone_ns > 0 {
            self.spends(gone_ns, Some(GONE));
        }
        if gone_ns < ns {
            self.spends(ns - gone_ns, None);
        }
    }
}
