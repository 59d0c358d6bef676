//! io_uring's workers: threads of the kernel's in the process, which do what would block.

use crate::model::Model;

/// The workers of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Workers {
    /// How many were seen.
    pub seen: u64,
    /// How many of them were made while the recording ran.
    pub made: u64,
    /// The most that there were at a time.
    pub most: u64,
}

/// Whether a thread is one, by the name that the kernel gives it.
pub(super) fn is_worker(name: &str) -> bool {
    name.starts_with("iou-wrk-")
}

impl Model {
    /// The io_uring workers of a process.
    pub fn workers_of(&self, tgid: u32) -> Workers {
        let mut workers = Workers::default();
        // When their number changes: ends before beginnings at the same time.
        let mut changes: Vec<(u64, i64)> = Vec::new();
        let of_process = |thread: &&crate::Thread| thread.tgid == tgid && is_worker(&thread.name);
        for thread in self.threads.values().filter(of_process) {
            workers.seen += 1;
            workers.made += u64::from(thread.started.is_some());
            changes.push((thread.started.map_or(0, |(at_ns, _)| at_ns), 1));
            if let Some(ended_ns) = thread.ended_ns {
                changes.push((ended_ns, -1));
            }
        }
        changes.sort_unstable();
        let mut now = 0i64;
        for (_, change) in changes {
            now += change;
            workers.most = workers.most.max(u64::try_from(now).unwrap_or(0));
        }
        workers
    }
}
