//! `unfinished-wait`: a request was read, the thread that read it waits, and nothing was seen that
//! would end the wait.
//!
//! **Invariant.** A wait that requests depend on ends.
//!
//! **Evidence.** A request that was read and not answered; the thread that read it sleeps on a
//! futex, since the reading and until the recording (or the process) ended; for [`UNFINISHED_NS`]
//! at least, and for [`UNFINISHED_TIMES`] times as long as any request that was answered took. Lost
//! wake-ups, locks that nobody owns and threads that died with the answer look like this.
//!
//! **Cost.** What each such request waited until the recording ended: a fix saves at least that,
//! were it not that nobody knows how long the work takes. Hence "at most what was recorded".
//!
//! **Guards.** A wait with a timeout ends by itself. A thread that sleeps where it idles waits for
//! work, as when a client has not sent the rest of its request. A thread that polls may have put
//! the request aside on purpose. Only others of its kind tell a
//! request that is answered late in general (a long poll) from one that hangs: with none answered
//! at all the confidence is low.
//! A wait for a thread that runs, or waits for a device, is not reported: it is being worked on.
//! Circles of locks are `deadlock`.
//!
//! Tasks are on no thread: what looks at them say of those that wait for a lock, or for a place of
//! a semaphore, is in [`of_tasks`].

mod of_tasks;

use std::collections::BTreeSet;

use whywait_events::Wait;
use whywait_model::{Model, RequestRef, SystemCall, WaitClass, system_call};
use whywait_words::{counted, counted_as, duration};

use crate::declaration::{Declaration, Has, Waits};
use crate::detectors::deadlock;
use crate::facts::Facts;
use crate::finding::{Cause, Confidence, Evidence, Finding, Saving, Severity};
use crate::numbers::{SLEEPS_LOOKED_AT, UNFINISHED_NS, UNFINISHED_TIMES};
use crate::shared::threads::named;
use crate::shared::unfinished::{lasted_ns, unanswered};

/// What it is.
pub(crate) static DECLARATION: Declaration = Declaration {
    code: "unfinished-wait",
    meaning: "a thread that had read a request still waited when the recording ended, and nothing \
         was seen that would end the wait",
    severities: &[(Severity::Error, "")],
    invariant: "a wait that requests depend on ends",
    explain: include_str!("explain.md"),
    waits: Some(Waits {
        who: "requests",
        what: "for the thread that read them",
        has: Has::Cause,
    }),
    detect,
};

fn detect(facts: &Facts<'_>) -> Vec<Finding> {
    let model = facts.model;
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
    findings.extend(of_tasks::findings(model));
    findings.sort_by_key(|finding| std::cmp::Reverse(finding.saving.at_most_ns));
    findings
}

fn finding(model: &Model, wait: &Wait, deadlocked: &BTreeSet<u32>) -> Option<Finding> {
    if system_call(wait) != SystemCall::Futex || wait.timeout {
        return None;
    }
    // Behind a deadlock everybody waits; that is reported once.
    if deadlocked.contains(&wait.owner_tid) {
        return None;
    }
    let lasted = lasted_ns(model, wait);
    let read_before = |request: &RequestRef<'_>| {
        let read_ns = request.recv_ns;
        request.recv_tid == wait.tid && read_ns.is_some_and(|read_ns| read_ns <= wait.out_ns)
    };
    let requests: Vec<RequestRef<'_>> = unanswered(model).filter(read_before).collect();
    let slowest = slowest_answered_ns(model);
    if requests.is_empty()
        || lasted < *UNFINISHED_NS
        || lasted < slowest.saturating_mul(*UNFINISHED_TIMES)
    {
        return None;
    }
    let class = model.class_of(wait).unwrap_or(WaitClass::Unknown);
    let lock = class == WaitClass::Lock;
    if !lock && idles_there(model, wait) {
        return None;
    }
    let answered = model.requests_count();
    let title = format!(
        "{} still not answered after {}: its thread {} waits for {}",
        counted_as(requests.len(), "request was", "requests were"),
        duration(lasted),
        named(model, wait.tid),
        if lock {
            "a lock that nobody let go"
        } else {
            "a wake-up that never came"
        }
    );
    let ports = requests.iter().map(|request| request.local_port);
    let port = ports.into_iter().find(|port| *port != 0);
    let each = requests
        .iter()
        .map(|request| lasted.saturating_add(wait.out_ns.saturating_sub(request.ready_ns)));
    let doing = format!("asleep in futex for {}, to the end", duration(lasted));
    let finding = Finding::new(&DECLARATION, Severity::Error, title)
        .confidence(if answered > 0 {
            Confidence::Medium
        } else {
            Confidence::Low
        })
        .about("pid", wait.tgid)
        .about("tid", wait.tid)
        .about("address", format!("{:#x}", wait.args[0]))
        .about("class", class.name())
        .about_known("port", port)
        .saving(Saving::latency(each.collect()))
        .evidence(asleep(model, wait, requests.len(), lasted))
        .evidence(others(answered, slowest))
        .evidence(if lock {
            owner(model, wait)
        } else {
            Some(Evidence::new(
                "a request that is meant to wait until something happens (a long poll, a job that \
                 a worker asks for) looks the same",
            ))
        })
        .cause(Cause::new(model, wait.tid, doing, wait.user_stack))
        .fix(if lock {
            "find who took the lock and did not let it go: an error path without an unlock, or a \
             thread that ended with it"
        } else {
            "look for the wake-up that was lost: change what is waited for only with the mutex \
             held, and look at it again, with the mutex held, before each wait; or find out who \
             should have answered and ended without"
        });
    Some(finding)
}

/// How long the slowest request took that was answered.
fn slowest_answered_ns(model: &Model) -> u64 {
    let latencies = model.requests().filter_map(|request| request.latency_ns());
    let short = model.answered_latency().map_or(0, |latency| latency.max);
    short.max(latencies.max().unwrap_or(0))
}

fn asleep(model: &Model, wait: &Wait, requests: usize, lasted: u64) -> [Evidence; 2] {
    let slept = format!(
        "thread {} had read {} when it went to sleep, {} before the recording ended, and slept on",
        named(model, wait.tid),
        counted(requests, "request"),
        duration(lasted)
    );
    let futex = format!(
        "it sleeps on the futex at {:#x}, without a timeout; nobody woke it",
        wait.args[0]
    );
    [Evidence::of_ns(lasted, slept), Evidence::new(futex)]
}

/// That other requests were answered.
fn others(answered: u64, slowest: u64) -> Option<Evidence> {
    let text = format!(
        "{} answered meanwhile or before, the slowest in {}",
        counted_as(
            answered as usize,
            "other request was",
            "other requests were"
        ),
        duration(slowest)
    );
    (answered > 0).then(|| Evidence::of_ns(slowest, text))
}

/// Who the lock says holds it.
fn owner(model: &Model, wait: &Wait) -> Option<Evidence> {
    let text = format!(
        "the lock names thread {} as its owner",
        named(model, wait.owner_tid)
    );
    (wait.owner_tid != 0).then(|| Evidence::new(text))
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
            .take(*SLEEPS_LOOKED_AT)
            .any(|before| system_call(before) == SystemCall::Futex && !in_hand(before.out_ns))
}

#[cfg(test)]
mod tests;
