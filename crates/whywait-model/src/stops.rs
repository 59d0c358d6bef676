//! When the target was stopped from outside: by a signal, a debugger, or the freezer of its cgroup.
//!
//! A thread that is stopped sleeps in functions of the kernel that say so. A process is stopped
//! while half of its threads or more are; a tool that stops one thread after the other (a tracer)
//! is none of this.

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::Serialize;
use whywait_events::{Ns, StackId, Wait};

use crate::maps::HashMap;
use crate::rows::Rows;
use crate::stacks::StackNames;
use crate::timeline::Thread;
use crate::waits::kind::wait_kind;

/// Shorter ones are no matter: a debugger that attaches, a tracer's look.
const MIN_NS: u64 = 10_000_000;
/// For how long the target was stopped.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, JsonSchema)]
pub struct Stopped {
    /// Within the recording, nanoseconds.
    pub ns: u64,
    /// `stopped` (by a signal or a debugger) or `frozen (cgroup)`.
    pub how: &'static str,
    /// It was already when the recording began: it was stopped for longer than that.
    pub since_before: bool,
    /// It still was when the recording ended.
    pub to_the_end: bool,
}

/// The sleeps of threads that were stopped.
#[derive(Debug, Clone, Default)]
pub(crate) struct Stops {
    kinds: HashMap<StackId, Option<&'static str>>,
    sleeps: Rows<Stop, 100_000>,
}

#[derive(Debug, Clone)]
struct Stop {
    tgid: u32,
    tid: u32,
    from_ns: Ns,
    /// `None`: it was still.
    to_ns: Option<Ns>,
    how: &'static str,
    since_before: bool,
}

impl Stops {
    /// Adds a sleep if it is one.
    pub(crate) fn add(&mut self, wait: &Wait, stacks: &StackNames) {
        if wait.kernel_stack == 0 {
            return;
        }
        let how = *self.kinds.entry(wait.kernel_stack).or_insert_with(|| {
            let kind = stacks
                .get(wait.kernel_stack)
                .and_then(|stack| wait_kind(wait, stack))?;
            ["stopped", "frozen (cgroup)"]
                .into_iter()
                .find(|how| *how == kind.name)
        });
        let Some(how) = how else { return };
        let to_ns = wait.over_ns();
        if to_ns.is_some_and(|to_ns| to_ns.saturating_sub(wait.out_ns) < MIN_NS) {
            return;
        }
        self.sleeps.push(Stop {
            tgid: wait.tgid,
            tid: wait.tid,
            from_ns: wait.out_ns,
            to_ns,
            how,
            since_before: wait.since_before,
        });
    }

    /// Those that were left out because there were too many.
    pub(crate) fn left_out(&self) -> u64 {
        self.sleeps.left_out()
    }

    /// When a process was stopped, merged and in order. A stop that was there already when the
    /// recording began lasted since any time before.
    pub(crate) fn spans(&self, threads: &BTreeMap<u32, Thread>) -> Vec<(Ns, Ns)> {
        let mut spans: Vec<(Ns, Ns)> = self
            .of_processes(threads)
            .flatten()
            .map(|stop| {
                let from_ns = if stop.since_before { 0 } else { stop.from_ns };
                (from_ns, stop.to_ns.unwrap_or(Ns::MAX))
            })
            .collect();
        spans.sort_unstable();
        spans.dedup_by(|next, last| {
            let overlaps = next.0 <= last.1;
            if overlaps {
                last.1 = last.1.max(next.1);
            }
            overlaps
        });
        spans
    }

    /// For how long the process was stopped that was for longest; `None` when none was.
    pub(crate) fn longest(&self, threads: &BTreeMap<u32, Thread>, end_ns: Ns) -> Option<Stopped> {
        let sums = self.of_processes(threads).map(|stops| sum(stops, end_ns));
        sums.max_by_key(|stopped| stopped.ns)
    }

    /// The stops of each process of which half of the threads or more were stopped.
    fn of_processes(&self, threads: &BTreeMap<u32, Thread>) -> impl Iterator<Item = Vec<&Stop>> {
        let mut by_process: BTreeMap<u32, Vec<&Stop>> = BTreeMap::new();
        for stop in self.sleeps.iter() {
            by_process.entry(stop.tgid).or_default().push(stop);
        }
        by_process
            .into_iter()
            .filter(|(tgid, stops)| {
                let tids: BTreeSet<u32> = stops.iter().map(|stop| stop.tid).collect();
                let of_process = threads.values().filter(|thread| thread.tgid == *tgid);
                tids.len() * 2 >= of_process.count()
            })
            .map(|(_, stops)| stops)
    }
}

fn sum(mut stops: Vec<&Stop>, end_ns: Ns) -> Stopped {
    stops.sort_by_key(|stop| stop.from_ns);
    let mut sum = Stopped::default();
    let mut until_ns = 0;
    for stop in stops {
        let to_ns = stop.to_ns.unwrap_or(end_ns).min(end_ns);
        sum.ns = sum
            .ns
            .saturating_add(to_ns.saturating_sub(stop.from_ns.max(until_ns)));
        sum.how = stop.how;
        sum.since_before |= stop.since_before;
        sum.to_the_end |= stop.to_ns.is_none();
        until_ns = until_ns.max(to_ns);
    }
    sum
}
