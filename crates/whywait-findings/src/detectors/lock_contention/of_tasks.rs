//! Locks of tasks. A goroutine or a coroutine that waits for one is on no thread: what looks at it
//! say is the evidence.

use whywait_model::requests::{TaskHolder, TaskWaitKind, TaskWaitRow, TaskWaits};
use whywait_words::{counted, percent};

use super::DECLARATION;
use crate::facts::Facts;
use crate::finding::{Confidence, Evidence, Finding, Saving, Severity};
use crate::numbers::{
    ERROR_NS, LOCK_WORTH_A_NOTE, MIN_SAMPLES, OUTLIER_NS, RARE_OF_SLOW, SLOW_NS, Share,
};
use crate::ranking::Explained;
use crate::shared::intervals::sum;
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
    let held = lock.holder.as_ref().map(doing);
    let title = format!(
        "{} waited {} of their time in {}{}",
        counted(waited.len(), "request"),
        percent(waited_ns, sum(waited.iter().map(|(_, age_ns)| *age_ns))),
        in_words(lock),
        held.as_ref()
            .map_or_else(String::new, |held| format!(", for a task that is {held}")),
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
        .saving(Saving::latency(saved))
        .explains(Explained::Inside)
        .evidence([looks(all, lock)])
        .evidence(holder)
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
