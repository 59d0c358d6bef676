//! When the target was stopped from outside: by a signal, a debugger, or the freezer of its cgroup.
//!
//! A thread that is stopped sleeps in functions of the kernel that say so. A process is stopped
//! while half of its threads or more are; a tool that stops one thread after the other (a tracer)
//! is none of this.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde::Serialize;
use whywait_events::{Ns, StackId, Wait};

use crate::model::Model;
use crate::stacks::StackNames;
use crate::waits::wait_kind;

/// Shorter ones are no matter: a debugger that attaches, a tracer's look.
const MIN_NS: u64 = 10_000_000;
/// Stops that are kept.
const MAX_STOPS: usize = 100_000;

/// For how long the target was stopped.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
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
    sleeps: Vec<Stop>,
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
        if wait.kernel_stack == 0 || self.sleeps.len() >= MAX_STOPS {
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
        let to_ns = wait.wake_ns.or(wait.in_ns);
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
}

impl Model {
    /// For how long the target was stopped, the process that was for longest; `None` when it was
    /// not.
    pub fn stopped(&self) -> Option<Stopped> {
        let mut by_process: BTreeMap<u32, Vec<&Stop>> = BTreeMap::new();
        for stop in &self.stops.sleeps {
            by_process.entry(stop.tgid).or_default().push(stop);
        }
        let threads = |tgid: u32| {
            self.threads
                .values()
                .filter(move |thread| thread.tgid == tgid)
        };
        by_process
            .into_iter()
            .filter(|(tgid, stops)| {
                let tids: BTreeSet<u32> = stops.iter().map(|stop| stop.tid).collect();
                tids.len() * 2 >= threads(*tgid).count()
            })
            .map(|(_, stops)| self.sum(stops))
            .max_by_key(|stopped| stopped.ns)
    }

    fn sum(&self, mut stops: Vec<&Stop>) -> Stopped {
        stops.sort_by_key(|stop| stop.from_ns);
        let mut sum = Stopped::default();
        let mut until_ns = 0;
        for stop in stops {
            let to_ns = stop.to_ns.unwrap_or(self.end_ns).min(self.end_ns);
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
}
