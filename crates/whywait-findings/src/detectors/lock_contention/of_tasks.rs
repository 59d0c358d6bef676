//! Locks of tasks. A goroutine or a coroutine that waits for one is on no thread: what looks at it
//! say is the evidence.
//!
//! Who has the lock may block its thread in a system call, where no look finds it waiting. Then
//! threads sleep in the function in which the others wait, one at a time.

use std::collections::{BTreeMap, BTreeSet};

use whywait_events::Wait;
use whywait_model::requests::{TaskHolder, TaskWaitKind, TaskWaitRow, TaskWaits};
use whywait_model::{Model, SystemCall, system_call};
use whywait_words::{counted, duration, percent};

use super::DECLARATION;
use crate::facts::Facts;
use crate::finding::{Confidence, Evidence, Finding, Saving, Severity};
use crate::numbers::{
    ERROR_NS, LOCK_WORTH_A_NOTE, MIN_SAMPLES, MOST, NEARLY_ALL, OUTLIER_NS, RARE_OF_SLOW, SLOW_NS,
    Share,
};
use crate::ranking::Explained;
use crate::shared::intervals::{Covered, Interval, merged, sum, union_ns};
use crate::shared::task_waits::{RequestsInWait, in_function, in_words, looks};

/// The locks of tasks that matter.
pub(super) fn findings(facts: &Facts<'_>) -> Vec<Finding> {
    let Some(all) = facts.task_waits() else {
        return Vec::new();
    };
    let locks = all.rows.iter();
    let locks = locks.filter(|row| row.kind == TaskWaitKind::Lock);
    locks.filter_map(|lock| finding(facts, all, lock)).collect()
}

fn finding(facts: &Facts<'_>, all: &TaskWaits, lock: &TaskWaitRow) -> Option<Finding> {
    let RequestsInWait { waited, saved, .. } = RequestsInWait::of(facts, all, lock);
    let waited_ns = sum(waited.iter().map(|(ns, _)| *ns));
    // One look may stand for all of a request's time: what is typical is known, the worst is not.
    let typical_ns = waited_ns.checked_div(waited.len() as u64)?;
    let of_all = Share::new(waited_ns, facts.model.time_of_requests_ns());
    if typical_ns < *SLOW_NS && of_all.is_below(*LOCK_WORTH_A_NOTE) {
        return None;
    }
    let severity = match Share::new(lock.ns, all.total_ns).is_below(*RARE_OF_SLOW) {
        true if typical_ns < *OUTLIER_NS => return None,
        true => Severity::Note,
        false => Severity::of(typical_ns, *SLOW_NS, *ERROR_NS),
    };
    let asleep = match lock.holder {
        Some(_) => None,
        None => AsleepThere::of(facts, lock),
    };
    let held = match (&lock.holder, &asleep) {
        (Some(holder), _) => format!(", for a task that is {}", doing(holder)),
        (None, Some(asleep)) => format!(", while one slept there in {}", asleep.what),
        (None, None) => String::new(),
    };
    let title = format!(
        "{} waited {} of their time in {}{held}",
        counted(waited.len(), "request"),
        percent(waited_ns, sum(waited.iter().map(|(_, age_ns)| *age_ns))),
        in_words(lock),
    );
    let holder = lock.holder.as_ref().map(|holder| {
        let text = format!(
            "at the same times another was {}: {} say so",
            doing(holder),
            counted(holder.looks, "look")
        );
        Evidence::new(text)
    });
    let confidence = if lock.looks < *MIN_SAMPLES {
        Confidence::Low
    } else if lock.holder.is_some() {
        Confidence::High
    } else {
        Confidence::Medium
    };
    let finding = Finding::new(&DECLARATION, severity, title)
        .confidence(confidence)
        .about("lock", lock.waits_in.unwrap_or("a lock"))
        .about_known("function", lock.function.clone())
        .about_known("holder_function", holder_function(lock))
        .about_known(
            "asleep_in",
            asleep.as_ref().map(|asleep| asleep.what.clone()),
        )
        .saving(Saving::latency(saved))
        .explains(Explained::Inside)
        .evidence([looks(all, lock)])
        .evidence(holder)
        .evidence(asleep.map(|asleep| asleep.evidence()))
        .fix(
            "hold the lock for less, and across no wait: do the work, the call or the sleep \
             first, and take the lock for what has to be changed",
        );
    Some(finding)
}

fn holder_function(lock: &TaskWaitRow) -> Option<String> {
    lock.holder.as_ref().map(|holder| holder.function.clone())
}

/// `in time.Sleep in main.work`.
fn doing(holder: &TaskHolder) -> String {
    format!(
        "in {}{}",
        holder.waits_in,
        in_function(Some(&holder.function))
    )
}

/// In what threads slept in the function in which tasks wait for the lock.
struct AsleepThere {
    what: String,
    ns: u64,
    /// Of the time in which slow requests were served.
    of_ns: u64,
}

impl AsleepThere {
    /// What most of the time went by in while the requests were served.
    fn of(facts: &Facts<'_>, lock: &TaskWaitRow) -> Option<Self> {
        let (model, function) = (facts.model, lock.function.as_deref()?);
        let mut tgids: BTreeSet<u32> = BTreeSet::new();
        let mut served: Vec<Interval> = Vec::new();
        for slow in &facts.slow().requests {
            tgids.insert(slow.request.tgid);
            served.push((slow.request.served_ns(), slow.request.end_ns()));
        }
        let served = merged(served);
        let of_ns = union_ns(served.clone());
        let served = Covered::new(served);
        let mut slept: BTreeMap<String, Vec<Interval>> = BTreeMap::new();
        let threads = model.threads.values();
        for thread in threads.filter(|thread| tgids.contains(&thread.tgid)) {
            let waits = thread.timeline.waits().iter();
            for wait in waits.filter(|wait| blocks(wait) && is_in(model, wait, function)) {
                let all = slept.entry(model.what(wait)).or_default();
                all.push((wait.out_ns, wait.end_ns()));
            }
        }
        let within = |all: &[Interval]| sum(all.iter().map(|one| served.within(*one)));
        // Several at a time would not have a lock.
        let slept = slept.into_iter().filter_map(|(what, all)| {
            let each_ns = within(&all);
            let ns = within(&merged(all));
            let apart = Share::new(ns, each_ns).is_at_least(*NEARLY_ALL);
            apart.then_some((ns, what))
        });
        let (ns, what) = slept.max()?;
        let most = Share::new(ns, of_ns).is_at_least(*MOST);
        most.then_some(Self { what, ns, of_ns })
    }

    fn evidence(&self) -> Evidence {
        let text = format!(
            "threads slept in {} in the same function, one at a time, for {} of the {} in which \
             slow requests were served: as who has the lock does",
            self.what,
            duration(self.ns),
            duration(self.of_ns)
        );
        Evidence::of_ns(self.ns, text)
    }
}

/// Whether a thread slept in a call in which a task keeps its thread.
fn blocks(wait: &Wait) -> bool {
    !matches!(system_call(wait), SystemCall::Poll | SystemCall::Futex)
}

fn is_in(model: &Model, wait: &Wait, function: &str) -> bool {
    let stack = model.stacks.get(wait.user_stack);
    stack.is_some_and(|stack| stack.labels.iter().any(|label| *label.name == *function))
}
