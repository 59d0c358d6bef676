//! whywait's detectors. Each is one file with its invariant, its evidence, its cost formula and its
//! guards against false alarms. No detector reads BPF or prints.

mod blocked_loop;
mod cpu_limit;
mod deadlock;
mod finding;
mod futile_wakeups;
mod idle_waiters;
mod incomplete;
mod lock_contention;
mod ring_work;
mod rings;
mod runtime;
mod serial_work;
mod slow_path_wait;
mod slow_paths;
mod spinning;
mod stranded;
mod stranded_siblings;
mod text;
mod thundering_herd;
mod unfinished;
mod unfinished_wait;
mod uring_idle_sqpoll;
mod uring_overflow;
mod uring_punted;
mod uring_slots_exhausted;
mod uring_unreaped;
mod uring_unsubmitted;

use whywait_model::Model;

pub use finding::{Cause, Code, Confidence, Evidence, Finding, Saving, SavingKind, Severity};

/// Runs all detectors. Findings are ranked: the most severe first, among those the one with the
/// largest saving.
pub fn find(model: &Model) -> Vec<Finding> {
    let detectors: [fn(&Model) -> Vec<Finding>; 20] = [
        stranded::detect,
        stranded_siblings::detect,
        blocked_loop::detect,
        lock_contention::detect,
        slow_path_wait::detect,
        serial_work::detect,
        cpu_limit::detect,
        idle_waiters::detect,
        deadlock::detect,
        unfinished_wait::detect,
        futile_wakeups::detect,
        thundering_herd::detect,
        uring_unreaped::detect,
        uring_unsubmitted::detect,
        uring_slots_exhausted::detect,
        uring_overflow::detect,
        uring_punted::detect,
        uring_idle_sqpoll::detect,
        ring_work::detect,
        incomplete::detect,
    ];
    let mut findings: Vec<Finding> = detectors.iter().flat_map(|detect| detect(model)).collect();
    findings.sort_by_key(|finding| {
        (
            std::cmp::Reverse((finding.severity, finding.saving.at_most_ns)),
            finding.code,
        )
    });
    findings
}

/// What the detectors looked at, in a few words each: a report with nothing wrong says so.
pub fn looked_at(model: &Model) -> Vec<String> {
    let members: usize = model.pools.iter().map(|pool| pool.members.len()).sum();
    let mut looked_at = Vec::new();
    if !model.pools.is_empty() {
        looked_at.push(format!(
            "{} polled by {}",
            text::count(model.pools.len(), "epoll instance", "epoll instances"),
            text::count(members, "thread", "threads")
        ));
    }
    if !model.rings.is_empty() {
        looked_at.push(text::count(
            model.rings.len(),
            "ring of io_uring",
            "rings of io_uring",
        ));
    }
    looked_at.push(text::count(model.threads.len(), "thread", "threads"));
    looked_at
}
