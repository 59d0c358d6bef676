//! `lock-contention`: threads waited for a lock that another thread held for long, or held across a
//! wait of its own.
//!
//! **Invariant.** Nobody waits for a lock that another thread holds across a wait, or for long.
//!
//! **Evidence.** Sleeps that are classed as waits for a lock (see `whywait_model::waits`): on a
//! futex, in a poll where a database's processes wait for rows, or in `flock` and `fcntl`. They are
//! on the critical paths of slow requests or, in a program that serves none, for a notable part of
//! the run. Who ended them held the lock; since when, where and across what shows in that thread's
//! own waits and samples.
//!
//! **Cost.** For each request, the time on its critical path that it waited for this lock. A fix
//! that nobody has to wait for the lock any more saves no more than that; that the work then
//! competes for something else makes it less.
//!
//! **Guards.** The time that the holder waited for a CPU, after a sleep or preempted, does not
//! count, nor does that of a thread that it waited for. Of several threads that read at once under
//! a read-write lock only the last one to let go shows. So of a wait to write nobody is named as
//! the holder, unless that one is known to have written. A class other than "lock" is never
//! contention, however large the sum of its waits. Waits below [`MIN_NS`] a request that are less
//! than a [`SHARE`]th of its time are what locks are for.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::json;
use whywait_events::{Part, StackId, Wait, WakeContext};
use whywait_model::waits::{Hold, Primitive, WaitKey, WaitObject, WaitSums};
use whywait_model::{FrameOrigin, Label, Model, Path, PathStep, origin};

use crate::declaration::Declaration;
use crate::finding::{Cause, Confidence, Evidence, Finding, Saving, SavingKind, Scale, Severity};
use crate::shared::intervals::sum;
use crate::shared::slow_paths;
use crate::shared::text::{count, duration, list, list_by, named, numbered};

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
    detect,
};

/// A request that waited for less is not worth a remark…
const MIN_NS: u64 = 1_000_000;
/// … nor one that spent a smaller part of its time so.
const SHARE: u64 = 20;
/// By what a single request waits.
const SCALE: Scale = Scale {
    warning: 10_000_000,
    error: 100_000_000,
};
/// Short waits must be at least one part in so many of all requests' time.
const WORTH_A_NOTE: u64 = 20;
/// Without requests: the waits are this part of the run of the threads that waited, or more.
const RUN_SHARE: u64 = 10;

/// From one part in so many on, a hold's time without a CPU is named.
const NOTABLE: u64 = 10;
/// Reasons why it is taken for a lock that are named.
const REASONS_SHOWN: usize = 3;

/// What is known of a lock's waits.
#[derive(Default)]
struct Contention<'a> {
    waits: Vec<&'a Wait>,
    requests: Vec<Waited>,
    ports: BTreeSet<u16>,
}

/// What a request waited for a lock, nanoseconds.
#[derive(Debug, Clone, Copy, Default)]
struct Waited {
    /// Asleep.
    ns: u64,
    /// Of which the lock's: without the time in which those who held it had no CPU.
    contended_ns: u64,
    /// What a fix saves at most.
    saved_ns: u64,
}

fn detect(model: &Model) -> Vec<Finding> {
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
    for request in model.requests().filter(|request| request.counts()) {
        let path = request.path();
        let latency_ns = sum(path.steps.iter().map(PathStep::ns));
        for (key, waited) in waited_for(model, &path) {
            let ns = waited.contended_ns;
            if ns < MIN_NS || ns.saturating_mul(SHARE) < latency_ns {
                continue;
            }
            if let Some(lock) = locks.get_mut(&key) {
                lock.requests.push(waited);
                lock.ports.insert(request.local_port);
            }
        }
    }
    locks
        .iter()
        .filter_map(|(key, lock)| finding(model, key, lock, &sums_of(model, lock)))
        .collect()
}

/// The lock that a sleep was for. That of a program is one in all processes that run it: they were
/// forked, and share it, or have one each at the same address.
fn lock_of(model: &Model, wait: &Wait) -> WaitKey {
    let key = model.key_of(wait);
    WaitKey {
        tgid: model.program(key.tgid),
        ..key
    }
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
fn waited_for(model: &Model, path: &Path) -> BTreeMap<WaitKey, Waited> {
    let mut waited: BTreeMap<WaitKey, Waited> = BTreeMap::new();
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
        let one = waited.entry(key.clone()).or_default();
        one.ns = one.ns.saturating_add(step.ns());
        one.contended_ns = one.contended_ns.saturating_add(contended_ns(model, step));
        one.saved_ns = sum([one.saved_ns, step.ns(), waking(&path.steps, at), tries_ns]);
        last = Some((key, at));
    }
    waited
}

/// Who does not have to sleep does not have to wait for a CPU when it is woken either.
fn waking(steps: &[PathStep], at: usize) -> u64 {
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
fn tried_again(key: &WaitKey, steps: &[PathStep]) -> u64 {
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
    let ns = sum(between.iter().map(PathStep::ns));
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
struct Verdict<'a> {
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
}

/// Whether the waits are too short or too few to matter.
fn is_small(model: &Model, lock: &Contention<'_>) -> bool {
    let worst_ns = lock.requests.iter().map(|waited| waited.contended_ns).max();
    let contended_ns = sum(lock.requests.iter().map(|waited| waited.contended_ns));
    // Short waits that cost little altogether are no more than that.
    worst_ns.is_none_or(|worst| worst < SCALE.warning)
        && (contended_ns == 0
            || contended_ns.saturating_mul(WORTH_A_NOTE) < model.time_of_requests_ns())
}

fn holds_of(model: &Model, waits: &[&Wait]) -> Vec<Hold> {
    let holds = waits.iter().map(|wait| model.hold(wait));
    holds.flatten().collect()
}

fn finding(
    model: &Model,
    key: &WaitKey,
    lock: &Contention<'_>,
    sums: &WaitSums,
) -> Option<Finding> {
    // A lock that nobody lets go is another matter.
    if sums.seen.count == 0 && sums.short == 0 {
        return None;
    }
    let run_ns = model.end_ns.saturating_sub(model.meta.started_ns);
    let threads_ns = run_ns.saturating_mul(waiters(lock).len() as u64);
    let of_the_run = |ns: u64| ns >= SCALE.error && ns.saturating_mul(RUN_SHARE) >= threads_ns;
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
    let verdict = Verdict {
        key,
        lock,
        sums,
        holds: &holds,
        longest: telling(model, &holds).filter(|_| !of_readers),
        held_across: across * 2 > holds.len(),
        behind_readers: &behind_readers,
        of_readers,
    };
    Some(finding_of(model, &verdict, ended_ns))
}

fn finding_of(model: &Model, verdict: &Verdict<'_>, ended_ns: u64) -> Finding {
    let Verdict {
        key, lock, longest, ..
    } = *verdict;
    let worst_ns = lock.requests.iter().map(|waited| waited.contended_ns).max();
    let severity = worst_ns.map_or(Severity::Warning, |worst| SCALE.severity(worst));
    let confidence = if longest.is_some_and(|hold| hold.stack != 0) {
        Confidence::High
    } else {
        Confidence::Medium
    };
    let address = match key.object {
        WaitObject::Futex { address, .. } => Some(format!("{address:#x}")),
        _ => None,
    };
    let each: Vec<u64> = lock.requests.iter().map(|waited| waited.saved_ns).collect();
    let saving = if each.is_empty() {
        Saving::sum(SavingKind::Throughput, ended_ns, 0)
    } else {
        Saving::latency(each)
    };
    let port = lock.ports.iter().copied().find(|port| *port != 0);
    let finding = Finding::new(&DECLARATION, severity, title(model, verdict))
        .confidence(confidence)
        .about_known("address", address)
        .about("lock", what(key))
        .about("holder_tid", json!(longest.map(|hold| hold.holder)))
        .about("hold_ns", json!(longest.map(Hold::ns)))
        .about(
            "without_cpu_ns",
            json!(longest.map(|hold| hold.without_cpu_ns)),
        )
        .about("across", verdict.held_across)
        .about("waiters", waiters(lock))
        .about_known("port", port)
        .evidence(evidence(model, verdict, saving.at_most_ns))
        .evidence(readers(model, verdict.behind_readers))
        .saving(saving)
        .cause(longest.map(|hold| cause(model, hold)))
        .fix(if verdict.of_readers {
            FIX_OF_READERS.to_owned()
        } else {
            fix(key, verdict.held_across, verdict.holds)
        });
    let slept_ns = |wait: &&&Wait| wait.wake_ns.map_or(0, |ns| ns.saturating_sub(wait.out_ns));
    let longest = lock.waits.iter().max_by_key(slept_ns);
    // A lock between processes is of none of them.
    let of = longest.map(|wait| wait.tid).filter(|_| key.tgid != 0);
    slow_paths::about_processes(model, finding, of, waiters(lock))
}

fn cause(model: &Model, hold: &Hold) -> Cause {
    let doing = match &hold.across {
        Some(across) => format!(
            "held it for {}, asleep in {} for {} of that{}",
            at_least(hold),
            across.what,
            duration(across.ns),
            without_cpu(hold)
        ),
        None => format!("held it for {}{}", at_least(hold), without_cpu(hold)),
    };
    Cause::new(model, hold.holder, doing, hold.stack)
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
const FIX_OF_READERS: &str = "if those who let go last had read, writers wait for all who read: \
     read under the lock for less, or have readers take a snapshot that a writer replaces as a \
     whole. If they had written: hold the lock for less, and across no wait";

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

/// Who let go last, of waits that may have been for several.
fn readers(model: &Model, waits: &[&Wait]) -> Option<Evidence> {
    let mut last: BTreeMap<u32, usize> = BTreeMap::new();
    for wait in waits {
        if wait.wake_context == WakeContext::Task {
            *last.entry(wait.waker_tid).or_default() += 1;
        }
    }
    let mut last: Vec<(u32, usize)> = last.into_iter().collect();
    last.sort_by_key(|(tid, times)| (std::cmp::Reverse(*times), *tid));
    let who: Vec<String> = last
        .iter()
        .map(|(tid, times)| {
            let who = numbered(model, *tid);
            format!("{who} {}", count(*times, "time", "times"))
        })
        .collect();
    let text = format!(
        "these waits to write may have been for several who read, of whom the last one to let go \
         ended them: {}; how long it, or others, had held the lock does not show",
        list(&who)
    );
    (!who.is_empty()).then(|| Evidence::new(text))
}

/// How long it was held, as far as known.
fn at_least(hold: &Hold) -> String {
    let at_least = if hold.exact { "" } else { "at least " };
    format!("{at_least}{}", duration(hold.ns()))
}

/// How much of that is no matter of the lock.
fn without_cpu(hold: &Hold) -> String {
    if hold.without_cpu_ns.saturating_mul(NOTABLE) < hold.ns() || hold.without_cpu_ns == 0 {
        return String::new();
    }
    format!(", {} of that without a CPU", duration(hold.without_cpu_ns))
}

fn what(key: &WaitKey) -> String {
    key.object
        .primitive()
        .map_or("lock", Primitive::name)
        .to_owned()
}

/// Where a lock was held, for titles: a function of the application's or its runtime's, but none of
/// the C library's.
fn place(model: &Model, stack: StackId) -> Option<String> {
    let function = slow_paths::function(model, stack)?;
    let labels = &model.stacks.get(stack)?.labels;
    let of_system = labels
        .iter()
        .any(|label| *label.name == *function && origin(label) == FrameOrigin::System);
    let unnamed = labels
        .iter()
        .any(|label| *label.name == *function && !label.named);
    (!of_system && !unnamed).then_some(function)
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
type Place<'a> = (Option<String>, Option<&'a str>);

/// The hold to talk about, of what the holders did themselves: the longest one where the lock was
/// held for most of the time, by function and by what the holder waited for. The longest of all may
/// be the only one of its kind. Holds whose place has a name come first, if they are a tenth of the
/// time.
fn telling<'a>(model: &Model, holds: &'a [Hold]) -> Option<&'a Hold> {
    let mut places: BTreeMap<Place<'a>, (u64, &'a Hold)> = BTreeMap::new();
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
            let named = function.is_some() && ns.saturating_mul(10) >= all_ns;
            (named, *ns)
        })
        .map(|(_, (_, hold))| hold)
}

/// How often and how long each thread held it while others waited.
fn by_holder(holds: &[Hold]) -> Vec<(u32, u64, u64)> {
    let mut by: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
    for hold in holds {
        let one = by.entry(hold.holder).or_default();
        one.0 += 1;
        one.1 = one.1.max(hold.ns());
    }
    let mut holders: Vec<_> = by.into_iter().map(|(tid, (n, ns))| (tid, n, ns)).collect();
    holders.sort_by_key(|(tid, n, ns)| (std::cmp::Reverse((*ns, *n)), *tid));
    holders
}

fn title(model: &Model, verdict: &Verdict<'_>) -> String {
    let Verdict { key, lock, .. } = *verdict;
    let name = key
        .object
        .primitive()
        .map_or_else(|| "a lock".to_owned(), Primitive::with_article);
    let who = match lock.requests.iter().map(|waited| waited.ns).max() {
        None => format!(
            "{} waited {} in all for {name}",
            count(waiters(lock).len(), "thread", "threads"),
            duration(total_ns(verdict.sums))
        ),
        Some(worst_ns) => format!(
            "{} waited up to {} for {name}",
            count(lock.requests.len(), "request", "requests"),
            duration(worst_ns)
        ),
    };
    let Some(hold) = verdict.longest else {
        return who;
    };
    // The interpreter lets its lock go in a place of its own, whatever it was held for.
    let of_interpreter = key.object.primitive().is_some_and(Primitive::is_single);
    let place = place(model, hold.stack)
        .filter(|_| !of_interpreter)
        .map_or_else(String::new, |function| format!(" in {function}"));
    let across = match &hold.across {
        Some(across) if verdict.held_across => format!(", across {}", across.what),
        _ => String::new(),
    };
    format!(
        "{who} that {} held for up to {}{place}{across}{}",
        named(model, hold.holder),
        duration(hold.ns()),
        without_cpu(hold)
    )
}

fn evidence(model: &Model, verdict: &Verdict<'_>, saved_ns: u64) -> impl Iterator<Item = Evidence> {
    let Verdict {
        key, lock, sums, ..
    } = *verdict;
    let total_ns = total_ns(sums);
    let waiting: Vec<String> = waiters(lock)
        .iter()
        .map(|tid| numbered(model, *tid))
        .collect();
    let address = match key.object {
        WaitObject::Futex { address, .. } => format!(" at {address:#x}"),
        _ => String::new(),
    };
    let waits = format!(
        "{} for the {}{address}, {} in all, the longest {}; by {}",
        count(
            sums.seen.count.saturating_add(sums.short) as usize,
            "wait",
            "waits"
        ),
        what(key),
        duration(total_ns),
        duration(sums.longest_ns.max(sums.short_longest_ns)),
        list(&waiting)
    );
    let on_paths = (!lock.requests.is_empty()).then(|| {
        let text = format!(
            "{} on the critical paths of {}, until they had a CPU again or waited once more",
            duration(saved_ns),
            count(lock.requests.len(), "slow request", "slow requests")
        );
        Evidence::of_ns(saved_ns, text)
    });
    let reasons = &sums.reasons[..sums.reasons.len().min(REASONS_SHOWN)];
    let is_lock = (!reasons.is_empty())
        .then(|| Evidence::new(format!("it is a lock: {}", reasons.join("; "))));
    let several = key
        .object
        .may_be_several()
        .then(|| Evidence::new(which(key.object.primitive())));
    [Evidence::of_ns(total_ns, waits)]
        .into_iter()
        .chain(on_paths)
        .chain(is_lock)
        .chain(verdict.longest.map(|hold| longest_hold(model, hold)))
        .chain(let_go(model, verdict.holds))
        .chain(lacked_a_cpu(verdict.holds))
        .chain(across(model, verdict.holds))
        .chain(several)
}

/// What is not known where several locks may be taken for one.
fn which(primitive: Option<Primitive>) -> &'static str {
    match primitive {
        Some(Primitive::Database | Primitive::Row | Primitive::Metadata) => {
            "which row or table it was does not show: all waits of the kind are taken together"
        }
        Some(Primitive::Advisory) => {
            "which number it was taken by does not show: all waits of the kind are taken together"
        }
        Some(Primitive::File) => {
            "which file it was does not show: all waits of the kind are taken together"
        }
        _ => "which of them it was does not show: all waits of the kind are taken together",
    }
}

fn longest_hold(model: &Model, hold: &Hold) -> Evidence {
    let across = hold.across.as_ref().map_or_else(
        || ", and was not seen to wait meanwhile".to_owned(),
        |across| {
            let ns = duration(across.ns);
            format!(", and slept {ns} of that time in {}", across.what)
        },
    );
    let text = format!(
        "the longest hold of the usual kind that was waited for: {} by {}{}{across}",
        at_least(hold),
        numbered(model, hold.holder),
        without_cpu(hold)
    );
    Evidence::of_ns(hold.ns(), text)
}

/// Who held it, where that was several.
fn let_go(model: &Model, holds: &[Hold]) -> Option<Evidence> {
    let holders: Vec<String> = by_holder(holds)
        .iter()
        .map(|(tid, n, ns)| {
            let who = numbered(model, *tid);
            format!("{who} {n} times, up to {}", duration(*ns))
        })
        .collect();
    let text = format!(
        "who let it go while others waited: {}",
        list_by(&holders, "; ")
    );
    (holders.len() > 1).then(|| Evidence::new(text))
}

/// For how long the holders had no CPU, where that is notable.
fn lacked_a_cpu(holds: &[Hold]) -> Option<Evidence> {
    let (without_cpu_ns, held_ns) = without_cpu_of(holds);
    let text = format!(
        "of {} that they held it while others waited, they, or the threads that they waited for, \
         were without a CPU for {}: another thread had it, or the CPU limit of their cgroup was \
         reached; how bad it is, is judged without that",
        duration(held_ns),
        duration(without_cpu_ns)
    );
    (without_cpu_ns > 0 && without_cpu_ns.saturating_mul(NOTABLE) >= held_ns)
        .then(|| Evidence::of_ns(without_cpu_ns, text))
}

/// How often it was held across a wait.
fn across(model: &Model, holds: &[Hold]) -> Option<Evidence> {
    let across = holds.iter().filter(|hold| hold.across.is_some()).count();
    let text = format!(
        "in {across} of {} waits the holder itself waited for something with the lock in its \
         hands{}",
        holds.len(),
        mostly(model, holds)
    );
    (across > 0 && holds.len() > 1).then(|| Evidence::new(text))
}

/// What the holders waited for, altogether, if they waited for several things.
fn mostly(model: &Model, holds: &[Hold]) -> String {
    let mut by_place: BTreeMap<(String, Option<String>), u64> = BTreeMap::new();
    for across in holds.iter().filter_map(|hold| hold.across.as_ref()) {
        let place = (across.what.clone(), model.stacks.telling(across.stack));
        let ns = by_place.entry(place).or_default();
        *ns = ns.saturating_add(across.ns);
    }
    let Some(((what, function), ns)) = by_place.iter().max_by_key(|(_, ns)| **ns) else {
        return String::new();
    };
    if by_place.len() < 2 {
        return String::new();
    }
    let function = function
        .as_ref()
        .map_or_else(String::new, |function| format!(" in {function}"));
    format!(": mostly {what}{function}, {} in all", duration(*ns))
}

/// How long the holders were without a CPU, of how long they held it.
fn without_cpu_of(holds: &[Hold]) -> (u64, u64) {
    holds.iter().fold((0u64, 0u64), |(without_ns, ns), hold| {
        (
            without_ns.saturating_add(hold.without_cpu_ns),
            ns.saturating_add(hold.ns()),
        )
    })
}

fn fix(key: &WaitKey, held_across: bool, holds: &[Hold]) -> String {
    let (without_cpu_ns, held_ns) = without_cpu_of(holds);
    let of_the_lock = fix_of_lock(key, held_across);
    if without_cpu_ns.saturating_mul(2) < held_ns || held_ns == 0 {
        return of_the_lock.to_owned();
    }
    format!(
        "see first that the holders, and what they wait for, get a CPU, which they lacked for most \
         of the time: look at what else runs, and at the cgroup's CPU limit (cpu.stat: \
         nr_throttled); then: {of_the_lock}"
    )
}

fn fix_of_lock(key: &WaitKey, held_across: bool) -> &'static str {
    match key.object.primitive() {
        Some(Primitive::Gil) => {
            "one thread at a time runs Python code: spread the work over processes, do it in \
             native code that lets the lock go, or use a free-threaded Python"
        }
        Some(Primitive::Gvl) => {
            "one thread at a time runs Ruby code: spread the work over processes, or over \
             Ractors, each of which has a lock of its own, or do it in native code that lets the \
             lock go"
        }
        Some(Primitive::Database | Primitive::Row) => {
            "a transaction keeps what it has changed until it is committed: change what everybody \
             wants last, and wait for nothing between that and the commit; or spread it over \
             several rows"
        }
        Some(Primitive::Metadata) => {
            "a statement that changes a table waits for all open transactions that have used it, \
             and everybody who uses the table waits behind that statement: end transactions soon, \
             also those that only read; let the statement give up early (lock_wait_timeout) and \
             try again"
        }
        Some(Primitive::Advisory) => {
            "the application itself asks for this lock by a number: release it as soon as what it \
             guards is done (pg_advisory_unlock, or the end of the transaction), do other work \
             before or after, and have a number for each thing that need not exclude the others"
        }
        Some(Primitive::File) => {
            "release the file's lock as soon as the file is read or written (PHP: \
             session_write_close), and do the work before or after; or have a file, or a range of \
             it, for each of those that need not exclude each other"
        }
        _ if held_across => {
            "do not wait with the lock in hand: take what is needed, let the lock go, then do the \
             I/O; or let one thread do it for all that asked meanwhile (group commit)"
        }
        _ => {
            "hold the lock for less: do the work outside and take the lock only to publish the \
             result; or split what it protects, or let readers share it (a read-write lock, a \
             snapshot)"
        }
    }
}

#[cfg(test)]
mod tests;
