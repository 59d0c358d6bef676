//! Tasks that wait for a lock to the end, on no thread: what looks at them say is the evidence.

use std::collections::{BTreeMap, BTreeSet};

use whywait_model::requests::StuckTask;
use whywait_model::{Model, RequestRef};
use whywait_words::{counted, counted_as, duration, list};

use super::{DECLARATION, others, slowest_answered_ns};
use crate::detectors::deadlock::of_tasks::{circles, place};
use crate::finding::{Confidence, Evidence, Finding, Saving, Severity};
use crate::numbers::{SHOWN, UNFINISHED_NS, UNFINISHED_TIMES};
use crate::shared::unfinished::unanswered;

/// Of each process that has such tasks.
pub(super) fn findings(model: &Model) -> Vec<Finding> {
    let slowest_ns = slowest_answered_ns(model);
    let long_ns = UNFINISHED_NS.max(slowest_ns.saturating_mul(*UNFINISHED_TIMES));
    let mut processes: BTreeMap<u32, Vec<StuckTask>> = BTreeMap::new();
    let stuck = model.stuck_tasks();
    let circles = circles(&stuck);
    // Behind a deadlock everybody waits; that is reported once.
    let dead: BTreeSet<(u32, u64)> = circles
        .into_iter()
        .flatten()
        .map(|task| (task.tgid, task.held))
        .collect();
    for task in &stuck {
        let behind = dead.contains(&(task.tgid, task.lock));
        if lasted_ns(task) >= long_ns && !behind {
            processes.entry(task.tgid).or_default().push(task.clone());
        }
    }
    let processes = processes.into_iter();
    processes
        .filter_map(|(tgid, tasks)| finding(model, tgid, &tasks, slowest_ns))
        .collect()
}

fn lasted_ns(task: &StuckTask) -> u64 {
    task.seen.1.saturating_sub(task.seen.0)
}

fn finding(model: &Model, tgid: u32, tasks: &[StuckTask], slowest_ns: u64) -> Option<Finding> {
    let requests: Vec<RequestRef<'_>> = unanswered(model)
        .filter(|request| request.tgid == tgid && is_of(*request, tasks))
        .collect();
    let longest_ns = tasks.iter().map(lasted_ns).max()?;
    if requests.is_empty() {
        return None;
    }
    let mut places: Vec<String> = tasks.iter().map(place).collect();
    places.sort();
    places.dedup();
    let in_places = list(&places[..places.len().min(*SHOWN)]);
    let answered = model.requests_count();
    let each = requests.iter().map(|request| request.age_ns());
    let title = format!(
        "{} still not answered after {}: {} in {in_places} to the end, and nobody let go",
        counted_as(requests.len(), "request was", "requests were"),
        duration(longest_ns),
        counted_as(tasks.len(), "task waits", "tasks wait"),
    );
    let ports = requests.iter().map(|request| request.local_port);
    let port = ports.into_iter().find(|port| *port != 0);
    let finding = Finding::new(&DECLARATION, Severity::Error, title)
        .confidence(if answered > 0 {
            Confidence::Medium
        } else {
            Confidence::Low
        })
        .about("pid", tgid)
        .about_known(
            "function",
            tasks.first().and_then(|task| task.function.clone()),
        )
        .about_known("port", port)
        .saving(Saving::latency(each.collect()))
        .evidence([Evidence::of_ns(longest_ns, seen(tasks, longest_ns))])
        .evidence(others(answered, slowest_ns))
        .evidence(each_other(&places))
        .fix(
            "take locks in the same order everywhere, or one for both; and let go on each way out: \
             an error, a timeout, a task that was cancelled",
        );
    Some(finding)
}

/// Whether a request is one that these tasks work for, as far as that shows.
fn is_of(request: RequestRef<'_>, tasks: &[StuckTask]) -> bool {
    let name = (request.socket, request.seq);
    let read_ns = request.recv_ns;
    tasks.iter().any(|task| match task.request {
        Some(of) => of == name,
        None => request.recv_task == 0 && read_ns.is_some_and(|ns| ns <= task.seen.0),
    })
}

fn seen(tasks: &[StuckTask], longest_ns: u64) -> String {
    format!(
        "in all looks for {} {} there, and nobody who waited there went on",
        duration(longest_ns),
        counted_as(tasks.len(), "task was", "tasks were"),
    )
}

/// Who waits in several places may have what another one waits for.
fn each_other(places: &[String]) -> Option<Evidence> {
    let text = format!(
        "they wait in {}: where each has what another waits for it is a deadlock; which lock each \
         has does not show",
        counted(places.len(), "place"),
    );
    (places.len() > 1).then(|| Evidence::new(text))
}
