//! Circles of tasks: each waits for a lock that the next one has, as looks at them show.

use std::collections::{BTreeMap, BTreeSet};

use whywait_model::requests::StuckTask;
use whywait_model::{Model, RequestRef};
use whywait_words::{counted, duration, list};

use super::DECLARATION;
use crate::finding::{Confidence, Evidence, Finding, Saving, Severity};
use crate::numbers::DEADLOCK_NS;
use crate::shared::task_waits::in_function;
use crate::shared::unfinished::unanswered;

pub(super) fn findings(model: &Model) -> Vec<Finding> {
    circles(&model.stuck_tasks())
        .iter()
        .map(|circle| finding(model, circle))
        .collect()
}

/// The tasks of each circle, in the order in which they wait for each other.
pub(crate) fn circles(stuck: &[StuckTask]) -> Vec<Vec<&StuckTask>> {
    let lasted_ns = |task: &StuckTask| task.seen.1.saturating_sub(task.seen.0);
    let long = stuck.iter().filter(|task| lasted_ns(task) >= *DEADLOCK_NS);
    let has: BTreeMap<(u32, u64), &StuckTask> = long
        .clone()
        .filter(|task| task.held != 0)
        .map(|task| ((task.tgid, task.held), task))
        .collect();
    let mut circles: Vec<Vec<&StuckTask>> = Vec::new();
    let mut seen: BTreeSet<(u32, u64)> = BTreeSet::new();
    for start in long {
        let mut path: Vec<&StuckTask> = Vec::new();
        let mut next = Some(start);
        while let Some(task) = next.filter(|task| !seen.contains(&(task.tgid, task.held))) {
            if let Some(at) = path.iter().position(|passed| std::ptr::eq(*passed, task)) {
                circles.push(path[at..].to_vec());
                break;
            }
            path.push(task);
            next = has.get(&(task.tgid, task.lock)).copied();
        }
        // Who has none is in no circle, and may be one of several such.
        let passed = path.iter().filter(|task| task.held != 0);
        seen.extend(passed.map(|task| (task.tgid, task.held)));
    }
    circles
}

fn finding(model: &Model, circle: &[&StuckTask]) -> Finding {
    let first = circle[0];
    let since_ns = circle.iter().map(|task| task.seen.0).max().unwrap_or(0);
    let until_ns = circle.iter().map(|task| task.seen.1).max().unwrap_or(0);
    let requests: Vec<RequestRef<'_>> = unanswered(model)
        .filter(|request| {
            let read_ns = request.recv_ns;
            let before = read_ns.is_some_and(|read_ns| read_ns <= since_ns);
            request.tgid == first.tgid && request.recv_task == 0 && before
        })
        .collect();
    let places: Vec<String> = circle.iter().map(|task| place(task)).collect();
    let title = format!(
        "{} wait for each other's locks: in {}",
        counted(circle.len(), "task"),
        list(&places)
    );
    let locks: Vec<String> = circle
        .iter()
        .map(|task| {
            let has = task.held;
            format!("one waits for {:#x} and has {has:#x}", task.lock)
        })
        .collect();
    let unanswered = (!requests.is_empty()).then(|| {
        Evidence::new(format!(
            "{} of the process that had been read by then never got an answer",
            counted(requests.len(), "request")
        ))
    });
    Finding::new(&DECLARATION, Severity::Error, title)
        .confidence(Confidence::High)
        .about("pid", first.tgid)
        .about_known("function", first.function.clone())
        .saving(Saving::latency(
            requests.iter().map(|request| request.age_ns()).collect(),
        ))
        .evidence([Evidence::of_ns(
            until_ns.saturating_sub(since_ns),
            format!(
                "in all looks for {}, to the end: {}",
                duration(until_ns.saturating_sub(since_ns)),
                list(&locks)
            ),
        )])
        .evidence(unanswered)
        .fix(
            "take these locks in the same order everywhere, or one lock for both; do not await \
             another lock with one in hand",
        )
}

/// `asyncio.Lock.acquire in transfer (bank.py:40)`.
pub(crate) fn place(task: &StuckTask) -> String {
    let within = in_function(task.function.as_deref());
    let place = task.place.as_ref();
    let place = place.map_or_else(String::new, |place| format!(" ({place})"));
    format!("{}{within}{place}", task.waits_in)
}
