//! Locks that a program, or its runtime, builds of condition variables, semaphores and parks: told
//! by who hands what on to whom.
//!
//! A thread that waits for a lock of `java.util.concurrent` sleeps in the very function in which an
//! idle thread of a pool does, on the same word; and so with whatever is built of a condition
//! variable. What tells the two apart is who ends the sleep, and what both had in their hands:
//!
//! - The sleeper has a request in hand all the while. (An idle thread has none.)
//! - Who ends the sleep has a request of its own in hand, and only that one. (Who makes a result
//!   for another thread has read none; a loop, or a carrier of virtual threads, has several.)
//! - Most of those who end sleeps had themselves slept there for that same request, and were woken
//!   by another such thread; what they waited for they had for [`HELD_NS`] at least before they
//!   passed it on. (A thread that makes a result for others, or the last one to come to a barrier,
//!   has not waited for it. A scheduler's threads wake each other too, but at once.)
//! - One at a time is woken. (Who syncs a log for all, or fills a cache, wakes all who wait.)
//! - Who passed it on is done with it, as a rule: it answers, and does not sleep there again. (Two
//!   threads that hand work to and fro do.)
//!
//! So it is found only where requests are served by a thread each, and only of a lock that they
//! take once or twice. Threads of a pool that poll in turns (Go, tokio) are left out: a request
//! that such a thread has read is no longer its own when it sleeps. So are those that carry tasks,
//! as a JVM's do with virtual threads: another one answers what such a thread has read.
//!
//! In the storage engine of MariaDB and MySQL the function says already that it is no idle thread,
//! and a transaction lasts for several requests. There it is enough that nearly all sleeps of
//! threads that serve are ended by others that do. (What ends a wait for a page, for room in the
//! buffer pool or in the log is a thread of the engine's own, which serves nobody.)

use std::collections::BTreeMap;

use whywait_events::{Ns, Wait, WakeContext};

use crate::maps::{HashMap, HashSet};
use crate::pools::EpollPool;
use crate::waits::futex::{self, Primitive};

/// Who passes something on has had it for so long.
const HELD_NS: Ns = 100_000;
/// Wakes by one thread within this time are one wake of several.
const TOGETHER_NS: Ns = 100_000;
/// Fewer handovers are chance…
const LEAST: u64 = 4;
/// … and so are fewer of those that had been handed it themselves.
const LEAST_PASSED_ON: u64 = 2;
/// A thread has no more requests in hand than the last so many that it read.
const MOST_OPEN: usize = 16;

/// A process, and what its threads sleep at.
type SleepPlace = (u32, Primitive);

/// When threads had requests in hand: read, and not answered.
#[derive(Debug, Clone, Default)]
pub(crate) struct InHand {
    spans: HashMap<u32, Spans>,
    /// Threads that carry tasks: what one of them has read, any of them goes on with.
    carriers: HashSet<u32>,
}

/// When a thread had requests in hand.
#[derive(Debug, Clone, Default)]
struct Spans {
    /// From and until when, in order.
    spans: Vec<(Ns, Ns)>,
    /// How many had begun when it was asked for last: rows come in the order of time.
    begun: usize,
}

impl Spans {
    /// How many begin by then.
    fn begun_by(&self, at: Ns) -> usize {
        let from = |place: usize| self.spans.get(place).map(|(from, _)| *from);
        let is_it = |begun: &usize| {
            let last = begun.checked_sub(1).map(from);
            last.is_none_or(|from| from.is_some_and(|ns| ns <= at))
                && from(*begun).is_none_or(|ns| ns > at)
        };
        let likely = [self.begun, self.begun + 1];
        let found = likely.into_iter().find(is_it);
        found.unwrap_or_else(|| self.spans.partition_point(|(from, _)| *from <= at))
    }
}

impl InHand {
    /// A thread has one from when to when.
    pub(crate) fn add(&mut self, tid: u32, from_ns: Ns, until_ns: Ns) {
        let of_thread = self.spans.entry(tid).or_default();
        of_thread.spans.push((from_ns, until_ns));
    }

    /// What a thread had in hand at about this time is what will be asked for next.
    pub(crate) fn turn_to(&mut self, tid: u32, at: Ns) {
        if let Some(of_thread) = self.spans.get_mut(&tid) {
            of_thread.begun = of_thread.begun_by(at);
        }
    }

    /// A thread leaves requests that it has read to others: none is its own when it sleeps.
    pub(crate) fn carries(&mut self, tid: u32) {
        self.carriers.insert(tid);
    }

    /// All are in.
    pub(crate) fn sort(&mut self) {
        for of_thread in self.spans.values_mut() {
            of_thread.spans.sort_unstable();
        }
    }

    /// Whether a thread ever has one.
    pub(crate) fn serves(&self, tid: u32) -> bool {
        self.spans.contains_key(&tid)
    }

    /// Those that a thread has in hand from `from_ns` to `until_ns`.
    fn all(&self, tid: u32, from_ns: Ns, until_ns: Ns) -> impl Iterator<Item = (Ns, Ns)> {
        let of_thread = self.spans.get(&tid);
        let begun = of_thread.map(|one| &one.spans[..one.begun_by(from_ns)]);
        // A thread serves few at a time: one that came long before is no longer open.
        begun
            .unwrap_or_default()
            .iter()
            .rev()
            .take(MOST_OPEN)
            .filter(move |(_, until)| until_ns <= *until)
            .copied()
    }

    /// Whether a thread has one in hand all the while.
    pub(crate) fn throughout(&self, tid: u32, from_ns: Ns, until_ns: Ns) -> bool {
        self.all(tid, from_ns, until_ns).next().is_some()
    }

    /// The one that a thread has in hand at `at`, if it has one and no more.
    pub(crate) fn only(&self, tid: u32, at: Ns) -> Option<(Ns, Ns)> {
        if self.carriers.contains(&tid) {
            return None;
        }
        let mut all = self.all(tid, at, at);
        let one = all.next()?;
        all.next().is_none().then_some(one)
    }

    /// Whether a thread that serves ended a sleep of another one that does, each with a request of
    /// its own in hand.
    pub(crate) fn between_peers(&self, wait: &Wait) -> bool {
        self.between_servers(wait) && self.only(wait.waker_tid, wait.woken_ns()).is_some()
    }

    /// Whether a thread that serves ended a sleep of another one that had a request in hand.
    fn between_servers(&self, wait: &Wait) -> bool {
        wait.wake_context == WakeContext::Task
            && wait.waker_tgid == wait.tgid
            && wait.waker_tid != wait.tid
            && self.serves(wait.waker_tid)
            && self.throughout(wait.tid, wait.out_ns, wait.woken_ns())
    }

    /// Whether a sleep at a primitive was ended by somebody who may have handed something over. A
    /// lock of a database is held from one request to the next; the one that lets go of it is over
    /// too soon to be known.
    pub(crate) fn may_be_handed_over(&self, wait: &Wait, primitive: Primitive) -> bool {
        match primitive.handed_on() {
            None => false,
            Some(lock) if lock.outlasts_requests() => self.between_servers(wait),
            Some(_) => self.between_peers(wait),
        }
    }
}

/// What was seen of the sleeps of threads that serve, by process and primitive.
#[derive(Debug, Clone, Default)]
pub(crate) struct Handovers {
    seen: BTreeMap<SleepPlace, SleepsEnded>,
    /// By thread: when it was handed something last, and when it passed something on.
    handed: HashMap<(u32, Primitive), Ns>,
    passed: HashMap<(u32, Primitive), Ns>,
}

/// How sleeps at a primitive ended.
#[derive(Debug, Clone, Default)]
struct SleepsEnded {
    /// Of threads with a request in hand.
    serving: u64,
    /// Of which by another such thread.
    given: u64,
    /// Of which by one that had been handed it for the same request, and had it for a while.
    passed_on: u64,
    /// Of which one of several that the same thread woke at once.
    together: u64,
    /// Of which of a thread that had passed it on already, for the same request.
    again: u64,
    /// Who slept, how often.
    sleepers: BTreeMap<u32, u64>,
    /// Who ended sleeps, how often.
    givers: BTreeMap<u32, u64>,
    /// What the sleeps are for, once all is seen.
    lock: Option<Primitive>,
}

impl Handovers {
    /// Adds a sleep at a primitive that ended, of a thread that had a request in hand all the
    /// while. `true`: it may be one for something that was handed over.
    pub(crate) fn add(&mut self, wait: &Wait, primitive: Primitive, in_hand: &InHand) -> bool {
        if primitive.handed_on().is_none() {
            return false;
        }
        let at = wait.woken_ns();
        let seen = self.seen.entry((wait.tgid, primitive)).or_default();
        seen.serving += 1;
        if !in_hand.may_be_handed_over(wait, primitive) {
            return false;
        }
        let giver = (wait.waker_tid, primitive);
        let taker = (wait.tid, primitive);
        seen.given += 1;
        futex::bump(&mut seen.sleepers, wait.tid, 1);
        futex::bump(&mut seen.givers, wait.waker_tid, 1);
        let same_request = |tid: u32, before: Ns, now: Ns| {
            in_hand
                .only(tid, now)
                .is_some_and(|(from, _)| from <= before)
        };
        if let Some(handed) = self.handed.get(&giver)
            && handed.saturating_add(HELD_NS) <= at
            && same_request(giver.0, *handed, at)
        {
            seen.passed_on += 1;
        }
        if let Some(passed) = self.passed.get(&giver)
            && passed.abs_diff(at) < TOGETHER_NS
        {
            seen.together += 1;
        }
        if let Some(passed) = self.passed.get(&taker)
            && *passed <= wait.out_ns
            && same_request(taker.0, *passed, wait.out_ns)
        {
            seen.again += 1;
        }
        self.handed.insert(taker, at);
        self.passed.insert(giver, at);
        true
    }

    /// All sleeps are in: decides which of them are for locks.
    pub(crate) fn settle(&mut self, pools: &[EpollPool]) {
        self.handed.clear();
        self.passed.clear();
        for ((tgid, primitive), seen) in &mut self.seen {
            // They poll in turns.
            let in_pool = |tid: &u32| {
                pools.iter().any(|pool| {
                    pool.tgid == *tgid && pool.members.len() > 1 && pool.members.contains_key(tid)
                })
            };
            let of_pools: u64 = seen
                .sleepers
                .iter()
                .filter(|(tid, _)| in_pool(tid))
                .map(|(_, times)| times)
                .sum();
            let hand_on = seen
                .givers
                .keys()
                .filter(|tid| seen.sleepers.contains_key(tid))
                .count();
            let is_lock = seen.given >= LEAST
                && hand_on >= 2
                && of_pools.saturating_mul(2) < seen.given
                && if *primitive == Primitive::Engine {
                    seen.given.saturating_mul(10) >= seen.serving.saturating_mul(9)
                } else {
                    seen.passed_on >= LEAST_PASSED_ON
                        && seen.passed_on.saturating_mul(3) >= seen.given
                        && seen.together.saturating_mul(10) <= seen.given
                        && seen.again.saturating_mul(2) <= seen.given
                };
            seen.lock = primitive.handed_on().filter(|_| is_lock);
        }
    }

    /// The lock that the sleeps of a process at a primitive are for, of those that were handed
    /// over.
    pub(crate) fn lock(&self, tgid: u32, primitive: Primitive) -> Option<Primitive> {
        self.seen.get(&(tgid, primitive))?.lock
    }

    /// Why.
    pub(crate) fn reason(&self, tgid: u32, lock: Primitive) -> Option<String> {
        let mut all = self.seen.iter();
        let (_, seen) = all.find(|((of, _), seen)| *of == tgid && seen.lock == Some(lock))?;
        let for_it = if lock.outlasts_requests() {
            String::new()
        } else {
            format!("; {} times with what they had waited for", seen.passed_on)
        };
        Some(format!(
            "threads that serve requests of their own ended each other's waits, {} times{for_it}",
            seen.given
        ))
    }
}

#[cfg(test)]
mod tests;
