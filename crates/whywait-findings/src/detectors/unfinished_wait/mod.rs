//! `unfinished-wait`: a request was read, the thread that read it waits, and nothing was seen that
//! would end the wait.
//!
//! **Invariant.** A wait that requests depend on ends.
//!
//! **Evidence.** A request that was read and not answered; the thread that read it sleeps on a
//! futex, since the reading and until the recording (or the process) ended; for [`MIN_NS`] at
//! least, and for [`TIMES`] times as long as any request that was answered took. Lost wake-ups,
//! locks that nobody owns and threads that died with the answer look like this.
//!
//! **Cost.** What each such request waited until the recording ended: a fix saves at least that,
//! were it not that nobody knows how long the work takes. Hence "at most what was recorded".
//!
//! **Guards.** A wait with a timeout ends by itself. A thread that sleeps where it idles waits for
//! work, as when a client has not sent the rest of its request. A thread that polls may have put
//! the request aside on purpose. A request that is answered late in general (a long poll) is told
//! from one that hangs only by others of its kind: with none answered at all the confidence is low.
//! A wait for a thread that runs, or waits for a device, is not reported: it is being worked on.
//! Circles of locks are `deadlock`.

use std::collections::BTreeSet;

use serde_json::{Map, json};
use whywait_events::Wait;
use whywait_model::{SystemCall, WaitClass, Model, RequestRef, system_call};

use crate::declaration::{Code, Declaration};
use crate::detectors::deadlock;
use crate::finding::{Cause, Confidence, Evidence, Finding, Saving, SavingKind, Severity};
use crate::shared::text::{count, duration};
use crate::shared::unfinished::{lasted_ns, unanswered};

/// What it is.
pub(crate) static DECLARATION: Declaration = Declaration {
    code: "unfinished-wait",
    meaning: "a thread that had read a request still waited when the recording ended, and nothing was \
        seen that would end the wait",
    severities: &[(Severity::Error, "")],
    invariant: "a wait that requests depend on ends",
    explain: include_str!("explain.md"),
    detect,
};

/// A shorter wait may well be about to end.
const MIN_NS: u64 = 1_000_000_000;
/// It has to be so many times as long as the slowest request that was answered.
const TIMES: u64 = 5;

/// Earlier sleeps of the thread at the same place that are looked at.
const MOST_LOOKED_AT: usize = 64;

fn detect(model: &Model) -> Vec<Finding> {
    let deadlocked: BTreeSet<u32> = deadlock::circles(model)
        .iter()
        .flatten()
        .map(|wait| wait.tid)
        .collect();
    let mut findings: Vec<Finding> = model
        .objects
        .open()
        .filter(|wait| !deadlocked.contains(&wait.tid))
        .filter_map(|wait| finding(model, wait, &deadlocked))
        .collect();
    findings.sort_by_key(|finding| std::cmp::Reverse(finding.saving.at_most_ns));
    findings
}

fn finding(model: &Model, wait: &Wait, deadlocked: &BTreeSet<u32>) -> Option<Finding> {
    if system_call(wait) != SystemCall::Futex || wait.timeout {
        return None;
    }
    // Behind a deadlock everybody waits; that is told once.
    if deadlocked.contains(&wait.owner_tid) {
        return None;
    }
    let lasted = lasted_ns(model, wait);
    let requests: Vec<RequestRef<'_>> = unanswered(model)
        .filter(|request| request.recv_tid == wait.tid)
        .filter(|request| {
            request
                .recv_ns
                .is_some_and(|read_ns| read_ns <= wait.out_ns)
        })
        .collect();
    if requests.is_empty() || lasted < MIN_NS {
        return None;
    }
    let answered: Vec<u64> = model
        .requests()
        .filter_map(RequestRef::latency_ns)
        .collect();
    let summary = model.requests_summary();
    let slowest = summary
        .latency_ns
        .map_or(0, |latency| latency.max)
        .max(answered.iter().copied().max().unwrap_or(0));
    if lasted < slowest.saturating_mul(TIMES) {
        return None;
    }
    let class = model.class_of(wait).unwrap_or(WaitClass::Unknown);
    if class != WaitClass::Lock && idles_there(model, wait) {
        return None;
    }
    let waits_for = match class {
        WaitClass::Lock => "a lock that nobody let go",
        _ => "a wake-up that never came",
    };
    let name = model.thread_name(wait.tid);
    let mut evidence = vec![
        Evidence {
            text: format!(
                "thread {} ({name}) had read {} when it went to sleep, {} before the recording ended, and slept on",
                wait.tid,
                count(requests.len(), "request", "requests"),
                duration(lasted)
            ),
            ns: Some(lasted),
        },
        Evidence {
            text: format!(
                "it sleeps on the futex at {:#x}, without a timeout; nobody woke it",
                wait.args[0]
            ),
            ns: None,
        },
    ];
    if summary.count > 0 {
        evidence.push(Evidence {
            text: format!(
                "{} answered meanwhile or before, the slowest in {}",
                if summary.count == 1 {
                    "1 other request was".to_owned()
                } else {
                    format!("{} other requests were", summary.count)
                },
                duration(slowest)
            ),
            ns: Some(slowest),
        });
    }
    if class == WaitClass::Lock && wait.owner_tid != 0 {
        evidence.push(Evidence {
            text: format!(
                "the lock names thread {} ({}) as its owner",
                wait.owner_tid,
                model.thread_name(wait.owner_tid)
            ),
            ns: None,
        });
    }
    if class != WaitClass::Lock {
        evidence.push(Evidence {
            text: "a request that is meant to wait until something happens (a long poll, a job that a worker asks for) looks the same"
                .to_owned(),
            ns: None,
        });
    }
    let mut subject = Map::new();
    subject.insert("pid".to_owned(), json!(wait.tgid));
    subject.insert("tid".to_owned(), json!(wait.tid));
    subject.insert("address".to_owned(), json!(format!("{:#x}", wait.args[0])));
    subject.insert("class".to_owned(), json!(class.name()));
    if let Some(port) = requests
        .iter()
        .map(|request| request.local_port)
        .find(|port| *port != 0)
    {
        subject.insert("port".to_owned(), json!(port));
    }
    let each: Vec<u64> = requests
        .iter()
        .map(|request| lasted.saturating_add(wait.out_ns.saturating_sub(request.ready_ns)))
        .collect();
    Some(Finding {
        code: Code::of(&DECLARATION),
        severity: Severity::Error,
        confidence: if summary.count > 0 { Confidence::Medium } else { Confidence::Low },
        title: format!(
            "{} still not answered after {}: its thread {name} ({}) waits for {waits_for}",
            if requests.len() == 1 { "1 request was".to_owned() } else { format!("{} requests were", requests.len()) },
            duration(lasted),
            wait.tid
        ),
        subject,
        saving: Saving {
            kind: SavingKind::Latency,
            at_most_ns: each.iter().copied().fold(0, u64::saturating_add),
            requests: each.len() as u64,
            each_at_most_ns: each.into_iter().take(100).collect(),
        },
        evidence,
        cause: Some(Cause::new(
            model,
            wait.tid,
            format!("asleep in futex for {}, to the end", duration(lasted)),
            wait.user_stack,
        )),
        fix: match class {
            WaitClass::Lock => "find who took the lock and did not let it go: an error path without an unlock, or a thread that ended with it",
            _ => {
                "look for the wake-up that was lost: change what is waited for only with the mutex held, and look at it again, with \
                 the mutex held, before each wait; or find out who should have answered and ended without"
            }
        }
        .to_owned(),
    })
}

/// Whether the thread sleeps where it idles: then it waits for work, as when the rest of the
/// request has not come, and has no part in what the request waits for.
fn idles_there(model: &Model, wait: &Wait) -> bool {
    if model.class_of(wait) == Some(WaitClass::Idle)
        || model
            .pools
            .iter()
            .any(|pool| pool.tgid == wait.tgid && pool.idles(wait))
    {
        return true;
    }
    // It has slept there before, from the same calls, when it had no request in hand. Of requests
    // that were over sooner than the threshold there are only sums, so that of sleeps that were as
    // short nothing is known.
    let Some(thread) = model.threads.get(&wait.tid) else {
        return false;
    };
    let in_hand = |at: u64| {
        model.requests().any(|request| {
            request.recv_tid == wait.tid
                && request.recv_ns.is_some_and(|read_ns| read_ns <= at)
                && request.until_ns() > at
        })
    };
    wait.user_stack != 0
        && thread
            .timeline
            .waits()
            .iter()
            .filter(|before| before.out_ns < wait.out_ns && before.user_stack == wait.user_stack)
            .filter(|before| {
                let end_ns = before.in_ns.unwrap_or(before.out_ns);
                end_ns.saturating_sub(before.out_ns) >= model.threshold_ns()
            })
            .take(MOST_LOOKED_AT)
            .any(|before| system_call(before) == SystemCall::Futex && !in_hand(before.out_ns))
}

#[cfg(test)]
mod tests;
