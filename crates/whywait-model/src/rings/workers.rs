//! io_uring's workers: threads of the kernel's in the process, which do what would block.

use std::collections::BTreeMap;

use crate::maps::HashMap;
use whywait_events::{Ns, ThreadChange, ThreadEvent};

/// The workers of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Workers {
    /// How many were seen.
    pub seen: u64,
    /// The most that there were at a time.
    pub most: u64,
}

/// Whether a thread is one, by the name that the kernel gives it.
pub(super) fn is_worker(name: &str) -> bool {
    name.starts_with("iou-wrk-")
}

/// The workers of each process.
pub(crate) fn workers(threads: &[ThreadEvent]) -> BTreeMap<u32, Workers> {
    // By process, when their number changes: ends before beginnings at the same time.
    let mut changes: BTreeMap<u32, Vec<(Ns, i64)>> = BTreeMap::new();
    let mut alive: HashMap<u32, u32> = HashMap::default();
    let mut events: Vec<&ThreadEvent> = threads.iter().collect();
    events.sort_by_key(|event| event.at_ns);
    for event in events {
        let change = if event.change == ThreadChange::Exit {
            alive.remove(&event.tid).map(|tgid| (tgid, -1))
        } else {
            let is_new = is_worker(&event.comm) && alive.insert(event.tid, event.tgid).is_none();
            is_new.then_some((event.tgid, 1))
        };
        if let Some((tgid, change)) = change {
            changes.entry(tgid).or_default().push((event.at_ns, change));
        }
    }
    let count = |(tgid, mut changes): (u32, Vec<(Ns, i64)>)| {
        changes.sort_unstable();
        let mut workers = Workers::default();
        let mut now = 0i64;
        for (_, change) in changes {
            workers.seen += u64::from(change > 0);
            now += change;
            workers.most = workers.most.max(u64::try_from(now).unwrap_or(0));
        }
        (tgid, workers)
    };
    changes.into_iter().map(count).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_are_counted_while_they_live() {
        let event = |at_ns, tid, change, comm: &str| ThreadEvent {
            at_ns,
            tid,
            tgid: 1,
            parent_tid: 1,
            change,
            comm: comm.to_owned(),
            command: String::new(),
        };
        let (new, named, over) = (ThreadChange::Fork, ThreadChange::Rename, ThreadChange::Exit);
        let events = [
            event(0, 1, ThreadChange::Found, "program"),
            // They are made under the program's name.
            event(1, 2, new, "program"),
            event(2, 2, named, "iou-wrk-1"),
            event(3, 3, named, "iou-wrk-1"),
            event(4, 2, over, "iou-wrk-1"),
            event(4, 4, named, "iou-wrk-1"),
            event(5, 1, over, "program"),
        ];
        let counted = Workers { seen: 3, most: 2 };
        assert_eq!(workers(&events), BTreeMap::from([(1, counted)]));
    }
}
