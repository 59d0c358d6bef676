//! Locks of tasks. A goroutine that waits for one is on no thread: what looks at it say is the
//! evidence.

use whywait_model::RequestRef;
use whywait_model::requests::{TaskHolder, TaskWaitKind, TaskWaitRow, TaskWaits};
use whywait_words::{counted, duration, percent};

use super::DECLARATION;
use crate::facts::Facts;
use crate::finding::{Confidence, Evidence, Finding, Saving, Severity};
use crate::numbers::{
    ERROR_NS, LOCK_NS, LOCK_SHARE, LOCK_WORTH_A_NOTE, MIN_SAMPLES, SLOW_NS, Share,
};
use crate::ranking::Explained;
use crate::shared::intervals::sum;

/// The locks of tasks that matter.
pub(super) fn findings(facts: &Facts<'_>) -> Vec<Finding> {
    let model = facts.model;
    let Some(all) = model.task_waits() else {
        return Vec::new();
    };
    let counting = model.requests().filter(|request| request.counts());
    let each: Vec<(RequestRef<'_>, Option<TaskWaits>)> = counting
        .map(|request| (request, request.task_waits()))
        .collect();
    let locks = all.rows.iter();
    let locks = locks.filter(|row| row.kind == TaskWaitKind::Lock);
    locks
        .filter_map(|lock| finding(facts, &all, lock, &each))
        .collect()
}

fn finding(
    facts: &Facts<'_>,
    all: &TaskWaits,
    lock: &TaskWaitRow,
    each: &[(RequestRef<'_>, Option<TaskWaits>)],
) -> Option<Finding> {
    let mut waited = Vec::new();
    let mut saved = Vec::new();
    for (request, waits) in each {
        let Some(waits) = waits else {
            // Nobody looked: it waited as the others did, as far as is known.
            let unseen = request.recv_task != 0 && !request.multiplexed;
            saved.extend(unseen.then(|| share_of(request.age_ns(), lock.ns, all.total_ns)));
            continue;
        };
        let mut rows = waits.rows.iter();
        let Some(row) = rows.find(|row| is_same(row, lock)) else {
            continue;
        };
        let age_ns = request.age_ns();
        if row.ns >= *LOCK_NS && Share::new(row.ns, age_ns).is_at_least(*LOCK_SHARE) {
            waited.push((row.ns, age_ns));
            saved.push(row.ns);
        }
    }
    let waited_ns = sum(waited.iter().map(|(ns, _)| *ns));
    // One look may stand for all of a request's time: what is typical is known, the worst is not.
    let typical_ns = waited_ns.checked_div(waited.len() as u64)?;
    let of_all = Share::new(waited_ns, facts.model.time_of_requests_ns());
    if typical_ns < *SLOW_NS && of_all.is_below(*LOCK_WORTH_A_NOTE) {
        return None;
    }
    let severity = Severity::of(typical_ns, *SLOW_NS, *ERROR_NS);
    let what = lock.waits_in.unwrap_or("a lock");
    let place = in_function(lock.function.as_deref());
    let held = lock.holder.as_ref().map(doing);
    let title = format!(
        "{} waited {} of their time in {what}{place}{}",
        counted(waited.len(), "request"),
        percent(waited_ns, sum(waited.iter().map(|(_, age_ns)| *age_ns))),
        held.as_ref()
            .map_or_else(String::new, |held| format!(", for a task that is {held}")),
    );
    let looks = format!(
        "{} at the goroutines of {}: {} waited there, for {} of {}",
        counted(all.looks, "look"),
        counted(all.requests, "slow request"),
        counted(lock.looks, "time"),
        duration(lock.ns),
        duration(all.total_ns),
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
        .about("lock", what)
        .about_known("function", lock.function.clone())
        .about_known("holder_function", holder_function(lock))
        .saving(Saving::latency(saved))
        .explains(Explained::Inside)
        .evidence([Evidence::of_ns(lock.ns, looks)])
        .evidence(holder)
        .fix(
            "hold the lock for less, and across no wait: do the work, the call or the sleep \
             first, and take the lock for what has to be changed",
        );
    Some(finding)
}

fn is_same(row: &TaskWaitRow, lock: &TaskWaitRow) -> bool {
    row.kind == lock.kind && row.waits_in == lock.waits_in && row.function == lock.function
}

fn share_of(ns: u64, part: u64, whole: u64) -> u64 {
    let share = u128::from(ns) * u128::from(part) / u128::from(whole.max(1));
    u64::try_from(share).unwrap_or(ns).min(ns)
}

fn in_function(function: Option<&str>) -> String {
    let function = function.filter(|function| !function.is_empty());
    function.map_or_else(String::new, |function| format!(" in {function}"))
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
