//! `deadlock`: threads wait for locks in a circle: none of them ever goes on.
//!
//! **Invariant.** A thread that holds a lock does not wait for one whose holder waits for it.
//!
//! **Evidence.** Waits for locks that had not ended when the recording did (or when the process was
//! ended), each for [`MIN_NS`] at least. Who holds the lock that a thread waits for: the owner that
//! stands beside the word, where there is one (mutexes of the GNU C library); otherwise the thread
//! to whose stack's top the lock's address is nearest, of those that wait for another lock without
//! end: a guard lies there while a lock is held. A circle of such threads is a deadlock.
//!
//! **Cost.** The requests that the threads had read and not answered wait for ever; what a fix
//! saves each is at least as long as was recorded.
//!
//! **Guards.** Only waits that are classed as waits for a lock. A lock that anybody let go while
//! the others waited for it is no part of a circle, nor is a wait with a timeout. A circle known
//! from stacks alone is of medium confidence: an address on a stack may be a leftover.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, json};
use whywait_events::Wait;
use whywait_model::Model;
use whywait_model::waits::WaitObject;

use crate::declaration::{Code, Declaration};
use crate::finding::{Cause, Confidence, Evidence, Finding, Saving, SavingKind, Severity};
use crate::shared::text::{count, duration, list};
use crate::shared::unfinished::{lasted_ns, unanswered};

/// What it is.
pub(crate) static DECLARATION: Declaration = Declaration {
    code: "deadlock",
    meaning: "threads wait for locks in a circle: none of them ever goes on",
    severities: &[(Severity::Error, "")],
    invariant: "a thread that holds a lock does not wait for one whose holder waits for it",
    explain: include_str!("explain.md"),
    detect,
};

/// A lock may be held for less without anybody being stuck.
const MIN_NS: u64 = 500_000_000;

/// Who holds what a thread waits for.
#[derive(Clone, Copy)]
struct Holder {
    tid: u32,
    /// The lock itself names it.
    named: bool,
}

/// The threads of each circle, in the order in which they wait for each other.
pub(crate) fn circles(model: &Model) -> Vec<Vec<&Wait>> {
    let stuck: BTreeMap<u32, &Wait> = model
        .objects
        .open()
        .filter(|wait| !wait.timeout && lasted_ns(model, wait) >= MIN_NS)
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

fn holder(wait: &Wait, stuck: &BTreeMap<u32, &Wait>) -> Option<Holder> {
    if wait.owner_tid != 0 {
        return Some(Holder {
            tid: wait.owner_tid,
            named: true,
        });
    }
    let mut pointing = stuck.values().filter(|other| {
        other.tgid == wait.tgid && other.tid != wait.tid && other.holds == awaited(wait)
    });
    match (pointing.next(), pointing.next()) {
        (Some(one), None) => Some(Holder {
            tid: one.tid,
            named: false,
        }),
        // Several cannot hold it.
        _ => None,
    }
}

fn detect(model: &Model) -> Vec<Finding> {
    circles(model)
        .iter()
        .map(|circle| finding(model, circle))
        .collect()
}

fn finding(model: &Model, circle: &[&Wait]) -> Finding {
    let stuck: BTreeMap<u32, &Wait> = circle.iter().map(|wait| (wait.tid, *wait)).collect();
    let proven = circle
        .iter()
        .all(|wait| holder(wait, &stuck).is_some_and(|holder| holder.named));
    let tids: Vec<u32> = circle.iter().map(|wait| wait.tid).collect();
    let named = |tid: &u32| format!("{} ({tid})", model.thread_name(*tid));
    let longest = circle
        .iter()
        .map(|wait| lasted_ns(model, wait))
        .max()
        .unwrap_or(0);
    let requests: Vec<u64> = unanswered(model)
        .filter(|request| tids.contains(&request.recv_tid))
        .map(|request| model.end_ns.saturating_sub(request.ready_ns))
        .collect();
    let mut evidence: Vec<Evidence> = circle
        .iter()
        .zip(circle.iter().cycle().skip(1))
        .map(|(wait, next)| {
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
            let ns = lasted_ns(model, wait);
            Evidence {
                text: format!(
                    "{} waits{place} for {lock}, {holds} {}; it had waited for {} when the recording ended",
                    named(&wait.tid),
                    if next.tid == wait.tid { "itself".to_owned() } else { named(&next.tid) },
                    duration(ns)
                ),
                ns: Some(ns),
            }
        })
        .collect();
    if !requests.is_empty() {
        evidence.push(Evidence {
            text: format!(
                "{} that they had read never got an answer",
                count(requests.len(), "request", "requests")
            ),
            ns: None,
        });
    }
    if !proven {
        evidence.push(Evidence {
            text: "who holds which lock is taken from where the locks' addresses lie on the threads' stacks".to_owned(),
            ns: None,
        });
    }
    let first = circle[0];
    let names: Vec<String> = tids.iter().map(named).collect();
    let title = if circle.len() == 1 {
        format!(
            "deadlock: {} waits for a lock that it holds itself",
            names[0]
        )
    } else {
        format!("deadlock: {} wait for each other's locks", list(&names))
    };
    let mut subject = Map::new();
    subject.insert("pid".to_owned(), json!(first.tgid));
    subject.insert("threads".to_owned(), json!(tids));
    let locks: Vec<String> = circle
        .iter()
        .map(|wait| format!("{:#x}", awaited(wait)))
        .collect();
    subject.insert("locks".to_owned(), json!(locks));
    Finding {
        code: Code::of(&DECLARATION),
        severity: Severity::Error,
        confidence: if proven { Confidence::High } else { Confidence::Medium },
        title,
        subject,
        saving: Saving {
            kind: SavingKind::Latency,
            at_most_ns: requests.iter().copied().fold(0, u64::saturating_add),
            requests: requests.len() as u64,
            each_at_most_ns: requests.into_iter().take(100).collect(),
        },
        evidence,
        cause: Some(Cause::new(
            model,
            first.tid,
            format!("asleep for a lock for {}, to the end", duration(longest)),
            first.user_stack,
        )),
        fix: "take locks in the same order everywhere (by rank, or by address), or hold only one at a time".to_owned(),
    }
}

#[cfg(test)]
mod tests;
