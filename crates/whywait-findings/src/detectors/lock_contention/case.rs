//! What the finding says, in words.

use std::collections::BTreeMap;

use serde_json::json;
use whywait_events::{StackId, Wait, WakeContext};
use whywait_model::waits::{Hold, Primitive, WaitKey, WaitObject};
use whywait_model::{FrameOrigin, Model, Peer, origin};
use whywait_words::{counted, duration, list, list_by};

use super::several::Several;
use super::{DECLARATION, LockFinding, total_ns, waiters};
use crate::facts::Facts;
use crate::finding::{Cause, Confidence, Evidence, Finding, Saving, SavingKind, Severity};
use crate::numbers::{ERROR_NS, MOST, NOTABLE, OUTLIER_NS, RARE_OF_SLOW, SHOWN, SLOW_NS, Share};
use crate::ranking::Explained;
use crate::shared::intervals::sum;
use crate::shared::locked_files::LockedMeanwhile;
use crate::shared::replay::Bound;
use crate::shared::slow_paths;
use crate::shared::threads::named;

const FIX_OF_READERS: &str = "if those who let go last had read, writers wait for all who read: \
     read under the lock for less, or have readers take a snapshot that a writer replaces as a \
     whole. If they had written: hold the lock for less, and across no wait";

const FIX_OF_SEVERAL: &str = "have one for less: do not wait with it, and do before or after what \
     it does not guard; or have more of them, where what they guard bears that";

/// What is to be said of a lock.
pub(super) fn finding(
    facts: &Facts<'_>,
    verdict: &LockFinding<'_>,
    ended_ns: u64,
) -> Option<Finding> {
    let model = facts.model;
    let LockFinding {
        key, lock, longest, ..
    } = *verdict;
    let worst_ns = lock.requests.iter().map(|waited| waited.contended_ns).max();
    let confidence = if longest.is_some_and(|hold| hold.stack != 0) {
        Confidence::High
    } else {
        Confidence::Medium
    };
    let address = match key.object {
        WaitObject::Futex { address, .. } => Some(format!("{address:#x}")),
        _ => None,
    };
    let own_ns = sum(lock.requests.iter().map(|waited| waited.saved_ns));
    let bound = match lock.requests.is_empty() {
        true => Bound::of(Saving::sum(SavingKind::Throughput, ended_ns, 0)),
        false => facts.behind().bound(&lock.spared, Some(key)),
    };
    let rare = Share::new(bound.saving.at_most_ns, facts.slow().total_ns).is_below(*RARE_OF_SLOW);
    let severity = match worst_ns {
        Some(worst_ns) if rare && worst_ns < *OUTLIER_NS => return None,
        Some(worst_ns) => Severity::of(worst_ns, *SLOW_NS, *ERROR_NS),
        None => Severity::Warning,
    };
    let port = lock.ports.iter().copied().find(|port| *port != 0);
    let calls = longest.filter(|_| verdict.held_across);
    let calls = calls.and_then(|hold| called_meanwhile(model, hold));
    let finding = Finding::new(&DECLARATION, severity, title(model, verdict))
        .confidence(confidence)
        .about_known("address", address)
        .about("lock", what_it_is(verdict))
        .about_known("at_a_time", verdict.several.map(Several::number))
        .about("holder_tid", json!(longest.map(|hold| hold.holder)))
        .about("hold_ns", json!(longest.map(Hold::ns)))
        .about(
            "without_cpu_ns",
            json!(longest.map(|hold| hold.without_cpu_ns)),
        )
        .about("across", verdict.held_across)
        .about("waiters", waiters(lock))
        .about_known("port", port)
        .evidence(evidence(model, verdict, own_ns))
        .evidence(through(verdict))
        .evidence(stranded(&lock.stranded))
        .bounded(bound)
        .explains(calls.map(|peer| Explained::CallsTo(peer.address())))
        .evidence(readers(model, verdict.behind_readers))
        .cause(longest.map(|hold| {
            let own = verdict.holds.iter().filter(|one| one.holder == hold.holder);
            cause(model, hold).each(own.map(Hold::ns))
        }))
        .fix(match verdict.several {
            _ if verdict.of_readers => FIX_OF_READERS.to_owned(),
            Some(several) if several.may_be_permits() => FIX_OF_SEVERAL.to_owned(),
            _ => fix(key, verdict.held_across, verdict.holds),
        });
    let slept_ns = |wait: &&&Wait| wait.wake_ns.map_or(0, |ns| ns.saturating_sub(wait.out_ns));
    let longest = lock.waits.iter().max_by_key(slept_ns);
    // A lock between processes is of none of them.
    let of = longest.map(|wait| wait.tid).filter(|_| key.tgid != 0);
    Some(slow_paths::about_processes(
        model,
        finding,
        of,
        waiters(lock),
    ))
}

/// Whose replies the holder waited for, mostly, with the lock in hand.
fn called_meanwhile<'m>(model: &'m Model, hold: &Hold) -> Option<Peer<'m>> {
    let timeline = &model.threads.get(&hold.holder)?.timeline;
    let slept = timeline.overlapping(hold.from_ns, hold.to_ns).iter();
    let asleep_ns = |wait: &&Wait| wait.woken_ns().saturating_sub(wait.out_ns);
    model.awaited_peer(slept.max_by_key(asleep_ns)?)
}

/// The kind of wait that is for nothing but time.
const SLEEP: &str = Primitive::Sleep.name();

fn cause(model: &Model, hold: &Hold) -> Cause {
    let doing = match &hold.across {
        Some(across) => format!(
            "held it for {}, {} for {} of that{}",
            at_least(hold),
            asleep(&across.what),
            duration(across.ns),
            without_cpu(hold)
        ),
        None => format!("held it for {}{}", at_least(hold), without_cpu(hold)),
    };
    Cause::new(model, hold.holder, doing, hold.stack)
}

/// `asleep in fsync`; a sleep is in nothing else.
fn asleep(what: &str) -> String {
    match what {
        SLEEP => "asleep".to_owned(),
        what => format!("asleep in {what}"),
    }
}

/// The locks through which others waited for this one.
fn through(verdict: &LockFinding<'_>) -> impl Iterator<Item = Evidence> {
    let mut through: BTreeMap<&WaitKey, u64> = BTreeMap::new();
    for (key, ns) in verdict.lock.requests.iter().flat_map(|one| &one.through_ns) {
        let all_ns = through.entry(key).or_default();
        *all_ns = all_ns.saturating_add(*ns);
    }
    let here = what(verdict.key);
    let waited_ns = sum(verdict.lock.requests.iter().map(|one| one.ns));
    let notable = move |(_, ns): &(_, u64)| Share::new(*ns, waited_ns).is_at_least(*NOTABLE);
    through.into_iter().filter(notable).map(move |(key, ns)| {
        let text = format!(
            "{} of it is for a {}, which was held by threads that had the {here} or waited for it: \
             that is how it spreads, and without that wait they would wait here",
            duration(ns),
            what(key)
        );
        Evidence::of_ns(ns, text)
    })
}

/// Requests that nobody read meanwhile.
fn stranded(waits: &[u64]) -> Option<Evidence> {
    let longest_ns = *waits.iter().max()?;
    let text = format!(
        "{} lay unread meanwhile for up to {}, though threads sat idle: the one that polled last \
         waited for the lock, and nobody polled in its place",
        counted(waits.len(), "request"),
        duration(longest_ns)
    );
    Some(Evidence::of_ns(sum(waits.iter().copied()), text))
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
            let who = named(model, *tid);
            format!("{who} {}", counted(*times, "time"))
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
    if hold.without_cpu_ns == 0 || Share::new(hold.without_cpu_ns, hold.ns()).is_below(*NOTABLE) {
        return String::new();
    }
    format!(", {} of that without a CPU", duration(hold.without_cpu_ns))
}

/// `mutex`, `permit of a semaphore (3 at a time)`.
fn what_it_is(verdict: &LockFinding<'_>) -> String {
    let lock = what(verdict.key);
    match verdict.several {
        Some(several) => several.what(&lock),
        None => lock,
    }
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

fn title(model: &Model, verdict: &LockFinding<'_>) -> String {
    let LockFinding { key, lock, .. } = *verdict;
    let name = match (verdict.several, key.object.primitive()) {
        (Some(several), _) => several.one_of_them(),
        (None, Some(primitive)) => primitive.with_article(),
        (None, None) => "a lock".to_owned(),
    };
    let who = match lock.requests.iter().map(|waited| waited.ns).max() {
        None => format!(
            "{} waited {} in all for {name}",
            counted(waiters(lock).len(), "thread"),
            duration(total_ns(verdict.sums))
        ),
        Some(worst_ns) => format!(
            "{} waited up to {} for {name}",
            counted(lock.requests.len(), "request"),
            duration(worst_ns)
        ),
    };
    let Some(hold) = verdict.longest else {
        let locked = verdict.locked.as_ref().map(LockedMeanwhile::title);
        return format!("{who}{}", locked.unwrap_or_default());
    };
    // The interpreter lets its lock go in a place of its own, whatever it was held for.
    let of_interpreter = key
        .object
        .primitive()
        .is_some_and(Primitive::is_interpreters);
    let place = place(model, hold.stack)
        .filter(|_| !of_interpreter)
        .map_or_else(String::new, |function| format!(" in {function}"));
    let (that, one) = match verdict.several {
        Some(_) => (", of which", " one"),
        None => (" that", ""),
    };
    let across = match &hold.across {
        Some(across) if verdict.held_across => match across.what.as_str() {
            SLEEP => ", across a sleep".to_owned(),
            what => format!(", across {what}"),
        },
        _ => String::new(),
    };
    format!(
        "{who}{that} {} held{one} for up to {}{place}{across}{}",
        named(model, hold.holder),
        duration(hold.ns()),
        without_cpu(hold)
    )
}

fn evidence(
    model: &Model,
    verdict: &LockFinding<'_>,
    saved_ns: u64,
) -> impl Iterator<Item = Evidence> {
    let LockFinding {
        key, lock, sums, ..
    } = *verdict;
    let total_ns = total_ns(sums);
    let waiting: Vec<String> = waiters(lock).iter().map(|tid| named(model, *tid)).collect();
    let address = match key.object {
        WaitObject::Futex { address, .. } => format!(" at {address:#x}"),
        _ => String::new(),
    };
    let waits = format!(
        "{} for {}{address}, {} in all, the longest {}; by {}",
        counted(sums.seen.count.saturating_add(sums.short) as usize, "wait"),
        verdict
            .several
            .map_or_else(|| format!("the {}", what(key)), Several::one_of_them),
        duration(total_ns),
        duration(sums.longest_ns.max(sums.short_longest_ns)),
        list(&waiting)
    );
    let on_paths = (!lock.requests.is_empty()).then(|| {
        let text = format!(
            "{} on the critical paths of {}, until they had a CPU again or waited once more",
            duration(saved_ns),
            counted(lock.requests.len(), "slow request")
        );
        Evidence::of_ns(saved_ns, text)
    });
    let reasons = &sums.reasons[..sums.reasons.len().min(*SHOWN)];
    let is_lock = (!reasons.is_empty())
        .then(|| Evidence::new(format!("it is a lock: {}", reasons.join("; "))));
    let several = verdict.several.map(Several::evidence).or_else(|| {
        let may_be = key.object.may_be_several();
        may_be.then(|| Evidence::new(which(key.object.primitive())))
    });
    [Evidence::of_ns(total_ns, waits)]
        .into_iter()
        .chain(on_paths)
        .chain(is_lock)
        .chain(verdict.longest.map(|hold| longest_hold(model, hold)))
        .chain(let_go(model, verdict.holds))
        .chain(lacked_a_cpu(verdict.holds))
        .chain(across(model, verdict.holds))
        .chain(several)
        .chain(verdict.locked.as_ref().map(LockedMeanwhile::evidence))
}

/// What is not known where several locks may be taken for one.
fn which(primitive: Option<Primitive>) -> &'static str {
    match primitive {
        Some(
            Primitive::Database
            | Primitive::Table
            | Primitive::Row
            | Primitive::Metadata
            | Primitive::WholeTable,
        ) => "which row or table it was does not show: all waits of the kind are taken together",
        Some(Primitive::Named) => {
            "which name it was taken by does not show: all waits of the kind are taken together"
        }
        Some(Primitive::Advisory) => {
            "which number it was taken by does not show: all waits of the kind are taken together"
        }
        Some(Primitive::File | Primitive::Inode) => {
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
            match across.what.as_str() {
                SLEEP => format!(", and slept {ns} of that time"),
                what => format!(", and slept {ns} of that time in {what}"),
            }
        },
    );
    let text = format!(
        "the longest hold of the usual kind that was waited for: {} by {}{}{across}",
        at_least(hold),
        named(model, hold.holder),
        without_cpu(hold)
    );
    Evidence::of_ns(hold.ns(), text)
}

/// Who held it, where that was several.
fn let_go(model: &Model, holds: &[Hold]) -> Option<Evidence> {
    let holders: Vec<String> = by_holder(holds)
        .iter()
        .map(|(tid, n, ns)| {
            let who = named(model, *tid);
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
    (without_cpu_ns > 0 && Share::new(without_cpu_ns, held_ns).is_at_least(*NOTABLE))
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
    if held_ns == 0 || Share::new(without_cpu_ns, held_ns).is_below(*MOST) {
        return of_the_lock.to_owned();
    }
    format!(
        "see first that the holders, and what they wait for, get a CPU, which they lacked for most \
         of the time: the line \"without a CPU\" of the report says who had it; then: {of_the_lock}"
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
        Some(Primitive::Table) => {
            "a transaction keeps its lock on the whole table until it is committed (LOCK TABLE, \
             ALTER TABLE, TRUNCATE, …), and everybody who uses the table waits for it: end it \
             soon, wait for nothing in it, lock in the weakest mode that does, or only the rows; \
             and let the statement give up early (lock_timeout) and try again"
        }
        Some(Primitive::Metadata) => {
            "a statement that changes a table waits for all open transactions that have used it, \
             and everybody who uses the table waits behind that statement: end transactions soon, \
             also those that only read; let the statement give up early (lock_wait_timeout) and \
             try again. After LOCK TABLES they wait until UNLOCK TABLES: have little in between"
        }
        Some(Primitive::WholeTable) => {
            "tables of these storage engines are locked as a whole, by a statement until its end \
             and by LOCK TABLES, and who writes waits for all who read: move the table to InnoDB, \
             which locks rows, or make the long statements on it shorter"
        }
        Some(Primitive::Named) => {
            "the application itself asks for this lock by a name: release it as soon as what it \
             guards is done (RELEASE_LOCK), do other work before or after, and have a name for \
             each thing that need not exclude the others"
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
        Some(Primitive::MemoryMap) => {
            "who maps, fills, unmaps or protects memory, or forks, has the process's memory map \
             alone meanwhile, and whoever maps or touches new memory waits: do it less often and \
             for less at once, keep what is mapped instead of giving it back (an allocator's \
             thresholds, a pool), fill it outside (no MAP_POPULATE), and start children with \
             posix_spawn or from a small process"
        }
        Some(Primitive::Inode) => {
            "writes to one file exclude each other, and who truncates, allocates or writes through \
             to the disk (O_SYNC, O_DIRECT) has it for long: have one thread write for all, or a \
             file for each that writes, and sync apart from writing"
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
