//! `lock-contention`: threads waited for a lock that another thread held for long, or held across a
//! wait of its own.
//!
//! **Invariant.** Nobody waits for a lock that another thread holds across a wait, or for long.
//!
//! **Evidence.** Sleeps that are classed as waits for a lock (see `whywait_model::waits`): on a
//! futex, in a poll where a database's processes wait for rows, in `flock` and `fcntl`, or for the
//! kernel's lock of the memory map or of a file. They are on the critical paths of slow requests
//! or, in a program that serves none, for a notable part of the run. Who ended them held the lock;
//! since when, where and across what shows in that thread's own waits and samples.
//!
//! Tasks that wait for a lock are on no thread ([`of_tasks`]): of Go's, looks at the goroutines of
//! slow requests say so, and what another one did that was elsewhere in the same function.
//!
//! **Cost.** For each request, the time on its critical path that it waited for this lock, and that
//! it lay unread while the thread that then read it did. And while threads idled and nobody polled,
//! as the one that polled last waited for it: the others would wait for it, too. By replay, what
//! requests behind these then wait for less: all workers may wait for the lock while others wait
//! for a worker. That the work then competes for something else makes it less.
//!
//! A lock whose holders do nothing but wait for another one is how that one spreads ([`nested`]):
//! what is waited for it counts as a wait for the other one.
//!
//! **Guards.** The time that the holder waited for a CPU, after a sleep or preempted, does not
//! count, nor does that of a thread that it waited for. Of several threads that read at once under
//! a read-write lock only the last one to let go shows. So of a wait to write nobody is named as
//! the holder, unless that one is known to have written. A class other than "lock" is never
//! contention, however large the sum of its waits. Waits below [`LOCK_NS`] a request that are less
//! than a [`LOCK_SHARE`]th of its time are what locks are for. Of a semaphore with several permits
//! several threads are holders at a time: it is said how many ([`several`]).

mod case;
mod nested;
mod of_tasks;
mod several;

use std::collections::{BTreeMap, BTreeSet};

use whywait_events::{Ns, Part, StackId, Wait};
use whywait_model::waits::{Hold, Primitive, WaitKey, WaitSums};
use whywait_model::{Label, Model, Path, PathStep, RequestRef};

use crate::declaration::{Declaration, Has, Waits};
use crate::facts::Facts;
use crate::finding::{Finding, Severity};
use crate::numbers::{
    ERROR_NS, LOCK_NS, LOCK_OF_RUN, LOCK_SHARE, LOCK_WORTH_A_NOTE, MOST, MUCH, SLOW_NS, Share,
};
use crate::shared::intervals::sum;
use crate::shared::locked_files::LockedMeanwhile;
use crate::shared::pollers::stranded_behind;
use crate::shared::replay::{Gone, Spared, lock_of};

use nested::Nested;
use several::Several;

/// What it is.
pub(crate) static DECLARATION: Declaration = Declaration {
    code: "lock-contention",
    meaning: "requests waited for a lock that another thread held for long, or held across a wait \
         of its own",
    severities: &[
        (Severity::Error, "from 100 ms of a request on"),
        (Severity::Warning, "from 10 ms on or without requests"),
        (Severity::Note, "otherwise"),
    ],
    invariant: "nobody waits for a lock that another thread holds across a wait, or for long",
    explain: include_str!("explain.md"),
    waits: Some(Waits {
        who: "requests",
        what: "for one {lock}",
        has: Has::CauseOr("in {holder_function}"),
    }),
    detect,
};

/// What is known of a lock's waits.
#[derive(Default)]
struct Contention<'a> {
    waits: Vec<&'a Wait>,
    requests: Vec<LockWait>,
    /// What each request is spared without it, also those that did not wait for long.
    spared: Vec<Spared<'a>>,
    /// How long requests lay unread each while threads idled, as the one that polled last waited
    /// for it.
    stranded: Vec<u64>,
    ports: BTreeSet<u16>,
}

/// What a request waited for a lock, nanoseconds.
#[derive(Debug, Clone, Default)]
struct LockWait {
    /// Asleep.
    ns: u64,
    /// Of which the lock's: without the time in which those who held it had no CPU.
    contended_ns: u64,
    /// Of which for other locks, whose holders waited for this one.
    through_ns: BTreeMap<WaitKey, u64>,
    /// What a fix saves it at most on its own path.
    saved_ns: u64,
    /// Before that: it lay unread while the thread that then read it waited for the lock and
    /// served nobody.
    unread_ns: u64,
    /// When that was.
    gone: Vec<Gone>,
}

fn detect(facts: &Facts<'_>) -> Vec<Finding> {
    let mut findings = of_threads(facts);
    findings.extend(of_tasks::findings(facts));
    findings
}

fn of_threads(facts: &Facts<'_>) -> Vec<Finding> {
    let model = facts.model;
    let mut locks: BTreeMap<WaitKey, Contention<'_>> = BTreeMap::new();
    for thread in model.threads.values() {
        for wait in thread.timeline.waits() {
            if model.is_lock_wait(wait) {
                locks
                    .entry(lock_of(model, wait))
                    .or_default()
                    .waits
                    .push(wait);
            }
        }
    }
    if locks.is_empty() {
        return Vec::new();
    }
    let nested = Nested::of(model, &locks);
    let served = ServedIntervals::of(model);
    let pauses = facts.pauses();
    let counts = |request: &RequestRef<'_>| request.counts() && !pauses.made_slow(*request);
    for request in model.requests().filter(counts) {
        let path = request.path();
        let latency_ns = sum(path.steps.iter().map(|step| step.ns()));
        let mut waits = waited_for(model, &nested, &path);
        for (key, ns) in served.unread_behind(model, request) {
            let waited = waits.entry(nested.end(&key).clone()).or_default();
            waited.unread_ns = waited.unread_ns.saturating_add(ns);
        }
        for (key, ns) in stranded_behind(model, request) {
            let key = nested.end(&key).clone();
            if let Some(lock) = locks.get_mut(&key).filter(|_| ns >= *LOCK_NS) {
                lock.stranded.push(ns);
            }
            let waited = waits.entry(key).or_default();
            waited.unread_ns = waited.unread_ns.max(ns);
        }
        for (key, waited) in waits {
            let ns = waited.contended_ns;
            let matters = ns >= *LOCK_NS && Share::new(ns, latency_ns).is_at_least(*LOCK_SHARE);
            let Some(lock) = locks.get_mut(&key) else {
                continue;
            };
            lock.spared.push(Spared {
                request,
                ns: sum(
                    [matters.then_some(waited.saved_ns), unread(waited.unread_ns)]
                        .into_iter()
                        .flatten(),
                ),
                gone: waited.gone.clone(),
            });
            if matters {
                lock.requests.push(waited);
                lock.ports.insert(request.local_port);
            }
        }
    }
    locks
        .iter()
        .filter(|(key, _)| nested.end(key) == *key)
        .filter_map(|(key, lock)| finding(facts, key, lock, &sums_of(model, lock)))
        .collect()
}

/// The sums of a lock's waits, in all processes that have it.
fn sums_of(model: &Model, lock: &Contention<'_>) -> WaitSums {
    let keys: BTreeSet<WaitKey> = lock.waits.iter().map(|wait| model.key_of(wait)).collect();
    let mut sums = keys.iter().filter_map(|key| model.objects.get(key));
    let mut all = sums.next().cloned().unwrap_or_default();
    sums.for_each(|other| all.merge(other.clone()));
    all
}

/// What a request waited for each lock on its path.
fn waited_for(model: &Model, nested: &Nested, path: &Path<'_>) -> BTreeMap<WaitKey, LockWait> {
    let mut waited: BTreeMap<WaitKey, LockWait> = BTreeMap::new();
    let mut last: Option<(WaitKey, usize)> = None;
    for (at, step) in path.steps.iter().enumerate() {
        if step.part != Some(Part::Lock) {
            continue;
        }
        let thread = model.threads.get(&step.tid);
        let Some(wait) = thread.and_then(|thread| thread.timeline.before(step.to_ns)) else {
            continue;
        };
        let key = lock_of(model, wait);
        let tries_ns = match &last {
            Some((before, from)) if *before == key => tried_again(&key, &path.steps[*from..at]),
            _ => 0,
        };
        let end = nested.end(&key);
        let one = waited.entry(end.clone()).or_default();
        if *end != key {
            let through_ns = one.through_ns.entry(key.clone()).or_default();
            *through_ns = through_ns.saturating_add(step.ns());
        }
        one.ns = one.ns.saturating_add(step.ns());
        one.contended_ns = one.contended_ns.saturating_add(contended_ns(model, step));
        let waking_ns = waking(&path.steps, at);
        one.saved_ns = sum([one.saved_ns, step.ns(), waking_ns, tries_ns]);
        one.gone.push(Gone {
            tid: step.tid,
            from_ns: step.from_ns,
            to_ns: step.to_ns.saturating_add(waking_ns),
            ns: step.ns().saturating_add(waking_ns),
        });
        last = Some((key, at));
    }
    waited
}

/// Short waits are what locks are for.
fn unread(ns: u64) -> Option<u64> {
    (ns >= *LOCK_NS).then_some(ns)
}

/// When each thread served requests: from the reading to the answer, by when it began.
struct ServedIntervals(BTreeMap<u32, Vec<(Ns, Ns)>>);

impl ServedIntervals {
    fn of(model: &Model) -> Self {
        let mut by_thread: BTreeMap<u32, Vec<(Ns, Ns)>> = BTreeMap::new();
        for request in model.requests() {
            if let Some(recv_ns) = request.recv_ns {
                let times = by_thread.entry(request.recv_tid).or_default();
                times.push((recv_ns, request.until_ns()));
            }
        }
        by_thread
            .values_mut()
            .for_each(|times| times.sort_unstable());
        Self(by_thread)
    }

    /// Whether a thread served a request then. Of several at a time only the last one it read is
    /// looked at.
    fn serves(&self, tid: u32, at_ns: Ns) -> bool {
        let Some(times) = self.0.get(&tid) else {
            return false;
        };
        let begun = times.partition_point(|(from_ns, _)| *from_ns <= at_ns);
        begun > 0 && times[begun - 1].1 > at_ns
    }

    /// How long a request lay unread while the thread that then read it waited for locks. What it
    /// waited for while it served another one is part of that one's path, and of the replay.
    fn unread_behind(&self, model: &Model, request: RequestRef<'_>) -> BTreeMap<WaitKey, u64> {
        let mut unread: BTreeMap<WaitKey, u64> = BTreeMap::new();
        let thread = model.threads.get(&request.recv_tid);
        let (Some(thread), Some(recv_ns)) = (thread, request.recv_ns) else {
            return unread;
        };
        for wait in thread.timeline.overlapping(request.ready_ns, recv_ns) {
            if !model.is_lock_wait(wait) || self.serves(wait.tid, wait.out_ns) {
                continue;
            }
            let until_ns = wait.in_ns.or(wait.wake_ns).unwrap_or(recv_ns).min(recv_ns);
            let ns = until_ns.saturating_sub(wait.out_ns.max(request.ready_ns));
            let all = unread.entry(lock_of(model, wait)).or_default();
            *all = all.saturating_add(ns);
        }
        unread
    }
}

/// Who does not have to sleep does not have to wait for a CPU when it is woken either.
fn waking(steps: &[&PathStep], at: usize) -> u64 {
    match (steps.get(at), steps.get(at + 1)) {
        (Some(step), Some(next)) if next.tid == step.tid && next.part == Some(Part::Runnable) => {
            next.ns()
        }
        _ => 0,
    }
}

/// What a request did between a wait for a lock, the first of the steps, and the next one for the
/// same, if that was nothing but to find that another one was faster. A database wakes all who wait
/// for a transaction when that ends.
fn tried_again(key: &WaitKey, steps: &[&PathStep]) -> u64 {
    let [wait, between @ ..] = steps else {
        return 0;
    };
    let only_tried = key.object.primitive() == Some(Primitive::Database)
        && between.iter().all(|step| {
            // The database's own short locks are in it, too.
            let trying = matches!(step.part, Some(Part::OnCpu | Part::Runnable | Part::Thread));
            step.tid == wait.tid && trying
        });
    if !only_tried {
        return 0;
    }
    let ns = sum(between.iter().map(|step| step.ns()));
    ns.saturating_sub(waking(steps, 0))
}

/// How long a request waited for a lock, but for the time that those who held it, or the threads
/// that they waited for, waited for a CPU, which is no matter of the lock, and for that in which it
/// is not known to have been held.
fn contended_ns(model: &Model, step: &PathStep) -> u64 {
    let no_cpu_ns = |step: &PathStep| match step.part {
        Some(Part::Runnable | Part::Unknown) => step.ns(),
        Some(Part::OnCpu) | None => 0,
        Some(_) => model.without_cpu_along(step.woken_by, step.from_ns, step.to_ns),
    };
    let no_cpu_ns = sum(step.meanwhile.iter().map(no_cpu_ns));
    step.ns().saturating_sub(no_cpu_ns)
}

/// What is to be said of one lock.
struct LockFinding<'a> {
    key: &'a WaitKey,
    lock: &'a Contention<'a>,
    sums: &'a WaitSums,
    /// Who held it while others waited, one after the other.
    holds: &'a [Hold],
    /// The hold to talk about.
    longest: Option<&'a Hold>,
    /// Most were across a wait of the holder's.
    held_across: bool,
    /// Waits to write that may have been for several who read.
    behind_readers: &'a [&'a Wait],
    of_readers: bool,
    /// The file that others had locked while nobody here had it.
    locked: Option<LockedMeanwhile<'a>>,
    /// What several threads have at a time, if it is no single lock.
    several: Option<Several>,
}

/// Whether the waits are too short or too few to matter.
fn is_small(model: &Model, lock: &Contention<'_>) -> bool {
    let worst_ns = lock.requests.iter().map(|waited| waited.contended_ns).max();
    let contended_ns = sum(lock.requests.iter().map(|waited| waited.contended_ns));
    // Short waits that cost little altogether are no more than that.
    worst_ns.is_none_or(|worst| worst < *SLOW_NS)
        && (contended_ns == 0
            || Share::new(contended_ns, model.time_of_requests_ns()).is_below(*LOCK_WORTH_A_NOTE))
}

fn holds_of(model: &Model, waits: &[&Wait]) -> Vec<Hold> {
    let holds = waits.iter().map(|wait| model.hold(wait));
    holds.flatten().collect()
}

/// The file that processes that nobody watches had locked while these waited for it.
fn locked_meanwhile<'m>(
    model: &'m Model,
    key: &WaitKey,
    waits: &[&Wait],
) -> Option<LockedMeanwhile<'m>> {
    if key.object.primitive() != Some(Primitive::File) {
        return None;
    }
    let by_others = waits.iter().filter(|wait| model.hold(wait).is_none());
    let by_others = by_others.filter_map(|wait| {
        let thread = model.threads.get(&wait.tid)?;
        Some((thread.tgid, (wait.out_ns, wait.over_ns()?)))
    });
    LockedMeanwhile::of(model, &by_others.collect::<Vec<_>>())
}

fn finding(
    facts: &Facts<'_>,
    key: &WaitKey,
    lock: &Contention<'_>,
    sums: &WaitSums,
) -> Option<Finding> {
    let model = facts.model;
    // A lock that nobody lets go is another matter.
    if sums.seen.count == 0 && sums.short == 0 {
        return None;
    }
    let run_ns = model.end_ns.saturating_sub(model.meta.started_ns);
    let threads_ns = run_ns.saturating_mul(waiters(lock).len() as u64);
    let of_the_run =
        |ns: u64| ns >= *ERROR_NS && Share::new(ns, threads_ns).is_at_least(*LOCK_OF_RUN);
    let ended_ns = total_ns(sums).saturating_sub(sums.unfinished_ns);
    // In a server only what requests wait for counts: some threads idle by waiting for a lock that
    // another one holds for them.
    let serves = model.requests_that_count() > 0;
    let small = is_small(model, lock);
    if small && (serves || !of_the_run(ended_ns)) {
        return None;
    }
    let without_cpu_ns = sum(holds_of(model, &lock.waits)
        .iter()
        .map(|hold| hold.without_cpu_ns));
    if small && !of_the_run(ended_ns.saturating_sub(without_cpu_ns)) {
        return None;
    }
    let (behind_readers, behind_one): (Vec<&Wait>, Vec<&Wait>) = lock
        .waits
        .iter()
        .copied()
        .partition(|wait| may_wait_for_readers(model, key, wait));
    let of_readers = behind_readers.len() > behind_one.len();
    let holds = holds_of(model, &behind_one);
    let across = holds.iter().filter(|hold| hold.across.is_some()).count();
    let verdict = LockFinding {
        key,
        lock,
        sums,
        holds: &holds,
        longest: telling(model, &holds).filter(|_| !of_readers),
        held_across: Share::counted(across, holds.len()).exceeds(*MOST),
        behind_readers: &behind_readers,
        of_readers,
        locked: locked_meanwhile(model, key, &lock.waits),
        several: Several::of(model, &lock.waits),
    };
    case::finding(facts, &verdict, ended_ns)
}

/// All waits, also those that had not ended or were short.
fn total_ns(sums: &WaitSums) -> u64 {
    sums.total_ns.saturating_add(sums.short_ns)
}

/// Functions of glibc, Rust's std and parking_lot in which a thread waits for a read-write lock to
/// write, each by parts that its name has (Rust's old way to mangle names writes `RawRwLock::f`,
/// the new one `<…::RawRwLock>::f`), and …
const TO_WRITE: [&[&str]; 5] = [
    &["_rwlock_wrlock"],
    &["_rwlock_clockwrlock"],
    &["_rwlock_timedwrlock"],
    &["RwLock", "::write_contended"],
    &["RawRwLock", "::lock_exclusive_slow"],
];
/// … where one that had written lets go of it.
const WRITTEN: [&[&str]; 3] = [
    &["RawRwLock", "::unlock_exclusive"],
    &["RwLock", "::write_unlock"],
    &["RwLockWriteGuard"],
];
/// Whether several threads may have held what this one waited for, of which the last one ended its
/// wait. Not if that one is known to have written: it lets go as writers do, or had itself waited
/// to write when it got the lock. (glibc's writers wait twice, first for each other; who is first
/// then waits for those who read, which is no hold.)
fn may_wait_for_readers(model: &Model, key: &WaitKey, wait: &Wait) -> bool {
    let is_in = |stack: StackId, functions: &[&[&str]]| {
        let has =
            |label: &Label, parts: &[&str]| parts.iter().all(|part| label.name.contains(part));
        let is_one = |label: &Label| functions.iter().any(|parts| has(label, parts));
        let stack = model.stacks.get(stack);
        stack.is_some_and(|stack| stack.labels.iter().any(is_one))
    };
    let held_to_write = || {
        let hold = model.hold(wait).filter(|hold| hold.exact)?;
        let waits = model.threads.get(&hold.holder)?.timeline.waits();
        let got = waits
            .iter()
            .find(|own| own.in_ns == Some(hold.from_ns) && lock_of(model, own) == *key)?;
        let waited_on = hold
            .across
            .is_some_and(|across| is_in(across.stack, &TO_WRITE));
        Some(is_in(got.user_stack, &TO_WRITE) && !waited_on)
    };
    key.object.primitive() == Some(Primitive::RwLock)
        && is_in(wait.user_stack, &TO_WRITE)
        && !is_in(wait.waker_stack, &WRITTEN)
        && !held_to_write().unwrap_or(false)
}

fn waiters(lock: &Contention<'_>) -> Vec<u32> {
    lock.waits
        .iter()
        .map(|wait| wait.tid)
        .collect::<BTreeSet<_>>()
        .into_iter()
        .collect()
}

/// Where a lock was held: the function, and what the holder waited for there.
type HeldAt<'a> = (Option<String>, Option<&'a str>);

/// The hold to talk about, of what the holders did themselves: the longest one where the lock was
/// held for most of the time, by function and by what the holder waited for. The longest of all may
/// be the only one of its kind. Holds whose place has a name come first, if they are
/// [`MUCH`] of the time.
fn telling<'a>(model: &Model, holds: &'a [Hold]) -> Option<&'a Hold> {
    let mut places: BTreeMap<HeldAt<'a>, (u64, &'a Hold)> = BTreeMap::new();
    let mut all_ns = 0u64;
    for hold in holds {
        let across = hold.across.as_ref().map(|across| across.what.as_str());
        let place = (model.stacks.telling(hold.stack), across);
        let (ns, longest) = places.entry(place).or_insert((0, hold));
        *ns = ns.saturating_add(hold.own_ns());
        all_ns = all_ns.saturating_add(hold.own_ns());
        if (hold.own_ns(), longest.from_ns) > (longest.own_ns(), hold.from_ns) {
            *longest = hold;
        }
    }
    places
        .into_iter()
        .max_by_key(|((function, _), (ns, _))| {
            let named = function.is_some() && Share::new(*ns, all_ns).is_at_least(*MUCH);
            (named, *ns)
        })
        .map(|(_, (_, hold))| hold)
}

#[cfg(test)]
mod tests;
