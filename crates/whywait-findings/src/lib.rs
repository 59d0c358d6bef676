//! whywait's detectors. Each has a room of its own, with its invariant, its evidence, its cost
//! formula and its guards against false alarms. No detector reads BPF or prints.

mod detectors;
mod finding;
mod shared;

use detectors::{
    blocked_loop, cpu_limit, deadlock, futile_wakeups, idle_waiters, lock_contention,
    recording_incomplete, serial_work, slow_path_wait, stranded_readiness, thundering_herd,
    unfinished_wait, uring_idle_sqpoll, uring_overflow, uring_punted, uring_slots_exhausted,
    uring_unreaped, uring_unsubmitted,
};
use shared::text;
use whywait_model::Model;

pub use finding::{Cause, Code, Confidence, Evidence, Finding, Saving, SavingKind, Severity};

/// Runs all detectors. Findings are ranked: the most severe first, among those the one with the
/// largest saving.
pub fn find(model: &Model) -> Vec<Finding> {
    let detectors: [fn(&Model) -> Vec<Finding>; 20] = [
        stranded_readiness::detect,
        stranded_readiness::siblings::detect,
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
        serial_work::ring::detect,
        recording_incomplete::detect,
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
