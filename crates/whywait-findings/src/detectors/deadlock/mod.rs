//! `deadlock`: threads wait for locks in a circle: none of them ever goes on.
//!
//! **Invariant.** A thread that holds a lock does not wait for one whose holder waits for it.
//!
//! **Evidence.** Waits for locks that had not ended when the recording did (or when the process was
//! ended), each for [`DEADLOCK_NS`] at least. Who holds the lock that a thread waits for: the owner
//! that stands beside the word, where there is one (mutexes of the GNU C library); otherwise the
//! thread to whose stack's top the lock's address is nearest, of those that wait for another lock
//! without end: a guard lies there while a lock is held. A circle of such threads is a deadlock.
//!
//! **Cost.** The requests that the threads had read and not answered wait for ever; what a fix
//! saves each is at least as long as was recorded.
//!
//! **Guards.** Only waits that are classed as waits for a lock. A lock that anybody let go while
//! the others waited for it is no part of a circle, nor is a wait with a timeout. A circle known
//! from stacks alone is of medium confidence: an address on a stack may be a leftover.
//!
//! Tasks are on no thread: [`of_tasks`].

pub(crate) mod of_tasks;

use std::collections::{BTreeMap, BTreeSet};

use whywait_events::Wait;
use whywait_model::Model;
use whywait_model::waits::WaitObject;
use whywait_words::{counted, duration, list};

use crate::declaration::{Declaration, Has, Waits};
use crate::facts::Facts;
use crate::finding::{Cause, Confidence, Evidence, Finding, Saving, Severity};
use crate::numbers::DEADLOCK_NS;
use crate::shared::threads::named;
use crate::shared::unfinished::{lasted_ns, unanswered};

/// What it is.
pub(crate) static DECLARATION: Declaration = Declaration {
    code: "deadlock",
    meaning: "threads wait for locks in a circle: none of them ever goes on",
    severities: &[(Severity::Error, "")],
    invariant: "a thread that holds a lock does not wait for one whose holder waits for it",
    explain: include_str!("explain.md"),
    waits: Some(Waits {
        who: "requests",
        what: "for locks that wait for each other",
        has: Has::Cause,
    }),
    detect,
};

/// Who holds what a thread waits for.
#[derive(Clone, Copy)]
struct LockHolder {
    tid: u32,
    /// The lock itself names it.
    named: bool,
}

/// The threads of each circle, in the order in which they wait for each other.
pub(crate) fn circles(model: &Model) -> Vec<Vec<&Wait>> {
    let stuck: BTreeMap<u32, &Wait> = model
        .objects
        .open()
        .filter(|wait| !wait.timeout && lasted_ns(model, wait) >= *DEADLOCK_NS)
        .filter(|wait| model.is_lock_wait(wait))
        .map(|wait| (wait.tid, wait))
        .collect();
    let mut circles: Vec<Vec<&Wait>> = Vec::new();
    let mut seen: BTreeSet<u32> = BTreeSet::new();
    for start in stuck.keys() {
        let mut way: Vec<u32> = Vec::new();
        let mut tid = *start;
        while let Some(wait) = stuck.get(&tid).filter(|_| !seen.contains(&tid)) {
            if let Some(at) = way.iter().position(|passed| *passed == tid) {
                circles.push(
                    way[at..]
                        .iter()
                        .filter_map(|tid| stuck.get(tid).copied())
                        .collect(),
                );
                break;
            }
            way.push(tid);
            match holder(wait, &stuck) {
                Some(holder) => tid = holder.tid,
                None => break,
            }
        }
        seen.extend(way);
    }
    circles
}

/// What a thread waits for, as `holds` of other threads has it.
fn awaited(wait: &Wait) -> u64 {
    if wait.lock != 0 {
        wait.lock
    } else {
        wait.args[0]
    }
}

fn holder(wait: &Wait, stuck: &BTreeMap<u32, &Wait>) -> Option<LockHolder> {
    if wait.owner_tid != 0 {
        return Some(LockHolder {
            tid: wait.owner_tid,
            named: true,
        });
    }
    let mut pointing = stuck.values().filter(|other| {
        other.tgid == wait.tgid && other.tid != wait.tid && other.holds == awaited(wait)
    });
    match (pointing.next(), pointing.next()) {
        (Some(one), None) => Some(LockHolder {
            tid: one.tid,
            named: false,
        }),
        // Several cannot hold it.
        _ => None,
    }
}

fn detect(facts: &Facts<'_>) -> Vec<Finding> {
    let model = facts.model;
    let circles = circles(model);
    let of_threads = circles.iter().map(|circle| finding(model, circle));
    of_threads.chain(of_tasks::findings(model)).collect()
}

fn finding(model: &Model, circle: &[&Wait]) -> Finding {
    let stuck: BTreeMap<u32, &Wait> = circle.iter().map(|wait| (wait.tid, *wait)).collect();
    let proven = circle
        .iter()
        .all(|wait| holder(wait, &stuck).is_some_and(|holder| holder.named));
    let tids: Vec<u32> = circle.iter().map(|wait| wait.tid).collect();
    let longest = circle.iter().map(|wait| lasted_ns(model, wait)).max();
    let doing = format!(
        "asleep for a lock for {}, to the end",
        duration(longest.unwrap_or(0))
    );
    let requests: Vec<u64> = unanswered(model)
        .filter(|request| tids.contains(&request.recv_tid))
        .map(|request| model.end_ns.saturating_sub(request.ready_ns))
        .collect();
    let never_answered = (!requests.is_empty()).then(|| {
        Evidence::new(format!(
            "{} that they had read never got an answer",
            counted(requests.len(), "request")
        ))
    });
    let from_stacks = (!proven).then(|| {
        Evidence::new(
            "who holds which lock is taken from where the locks' addresses lie on the threads' \
             stacks",
        )
    });
    let nexts = circle.iter().cycle().skip(1);
    let links = circle.iter().zip(nexts);
    let locks: Vec<String> = circle
        .iter()
        .map(|wait| format!("{:#x}", awaited(wait)))
        .collect();
    let first = circle[0];
    Finding::new(&DECLARATION, Severity::Error, title(model, &tids))
        .confidence(if proven {
            Confidence::High
        } else {
            Confidence::Medium
        })
        .about("pid", first.tgid)
        .about("threads", tids)
        .about("locks", locks)
        .saving(Saving::latency(requests))
        .evidence(links.map(|(wait, next)| link(model, wait, next)))
        .evidence(never_answered)
        .evidence(from_stacks)
        .cause(Cause::new(model, first.tid, doing, first.user_stack))
        .fix(
            "take locks in the same order everywhere (by rank, or by address), or hold only one \
             at a time",
        )
}

fn title(model: &Model, tids: &[u32]) -> String {
    let names: Vec<String> = tids.iter().map(|tid| named(model, *tid)).collect();
    match names.as_slice() {
        [alone] => format!("deadlock: {alone} waits for a lock that it holds itself"),
        names => format!("deadlock: {} wait for each other's locks", list(names)),
    }
}

/// That a thread waits for a lock that the next one of the circle holds.
fn link(model: &Model, wait: &Wait, next: &Wait) -> Evidence {
    let lock = match model.key_of(wait).object {
        WaitObject::Futex { address, primitive } => format!(
            "the {} at {address:#x}",
            primitive.map_or("lock", |primitive| primitive.name())
        ),
        _ => "a lock".to_owned(),
    };
    let place = model
        .stacks
        .telling(wait.user_stack)
        .map_or_else(String::new, |function| format!(" in {function}"));
    let holds = if wait.owner_tid == next.tid {
        "which names as its owner"
    } else {
        "whose address lies on the stack of"
    };
    let holder = if next.tid == wait.tid {
        "itself".to_owned()
    } else {
        named(model, next.tid)
    };
    let ns = lasted_ns(model, wait);
    let text = format!(
        "{} waits{place} for {lock}, {holds} {holder}; it had waited for {} when the recording \
         ended",
        named(model, wait.tid),
        duration(ns)
    );
    Evidence::of_ns(ns, text)
}

#[cfg(test)]
mod tests;
