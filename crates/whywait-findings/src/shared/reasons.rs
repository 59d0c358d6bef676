//! What the workers slept in, and whether more of them would only queue there.

use std::collections::{BTreeMap, BTreeSet};

use whywait_events::{Ns, StackId, Wait};
use whywait_model::{Model, system_call_name};

use crate::numbers::{
    STEP_LONGER, STEP_OFF, STEP_SHORTEST, Share, TOGETHER_WITHIN, WORKERS_IN_STEP,
    WORKERS_MIN_GAPS, WORKERS_TOGETHER,
};
use crate::shared::{replay, slow_paths};

/// What workers waited for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct WaitReason {
    pub(crate) what: String,
    pub(crate) function: Option<String>,
}

impl WaitReason {
    /// ` in recvfrom (fetch_price)`.
    pub(crate) fn in_words(&self) -> String {
        match &self.function {
            Some(function) => format!(" in {} ({function})", self.what),
            None => format!(" in {}", self.what),
        }
    }
}

fn reason(model: &Model, wait: &Wait) -> WaitReason {
    WaitReason {
        what: model
            .kind_of(wait)
            .map_or_else(|| system_call_name(wait), |kind| kind.name.to_owned()),
        function: function(model, wait.user_stack),
    }
}

fn function(model: &Model, stack: StackId) -> Option<String> {
    (stack != 0).then(|| slow_paths::function(model, stack))?
}

/// Whether a thread waits for a lock on a file.
pub(crate) fn locks_a_file(wait: &Wait) -> bool {
    matches!(wait.syscall, Some(FLOCK | FCNTL))
}

const FLOCK: u32 = 73;
const FCNTL: u32 = 72;

/// What they slept in, and for how long, the longest first.
pub(crate) fn of<'w>(
    model: &Model,
    sleeps: impl IntoIterator<Item = (&'w Wait, u64)>,
) -> Vec<(WaitReason, u64)> {
    let mut by: BTreeMap<WaitReason, u64> = BTreeMap::new();
    for (wait, ns) in sleeps.into_iter().filter(|(_, ns)| *ns > 0) {
        let sum = by.entry(reason(model, wait)).or_default();
        *sum = sum.saturating_add(ns);
    }
    let mut reasons: Vec<(WaitReason, u64)> = by.into_iter().collect();
    reasons.sort_by(|a, b| (b.1, &a.0).cmp(&(a.1, &b.0)));
    reasons
}

/// Whether what they wait for answers them one after another: then more workers would only queue
/// there. It shows when several begin to wait at once, of whom none waited before: one after
/// another they are done after one, two, three times as long. `None`: it does not show, because
/// all of them wait all the time.
pub(crate) fn queues_elsewhere(
    model: &Model,
    workers: &BTreeSet<u32>,
    reasons: &[(WaitReason, u64)],
) -> Option<bool> {
    let (main, _) = reasons.first()?;
    let mut waits: Vec<(Ns, Ns)> = workers
        .iter()
        .filter_map(|tid| model.threads.get(tid))
        .flat_map(|thread| thread.timeline.waits())
        .filter(|wait| reason(model, wait) == *main)
        .filter_map(|wait| Some((wait.out_ns, wait.over_ns()?)))
        .filter(|(from, to)| from < to)
        .collect();
    waits.sort_unstable();
    let (mut in_turn, mut at_once) = (0, 0);
    let mut at = 0;
    let mut busy_until = 0;
    while let Some(&(from, to)) = waits.get(at) {
        let shortest = waits[at..]
            .iter()
            .take_while(|(other, _)| *other < to)
            .map(|(from, to)| to - from)
            .min()
            .unwrap_or(to - from);
        let soon = from.saturating_add(TOGETHER_WITHIN.of(shortest));
        let together = waits[at..]
            .iter()
            .take_while(|(other, _)| *other <= soon)
            .count();
        if from >= busy_until && together >= *WORKERS_TOGETHER {
            let mut took: Vec<u64> = waits[at..at + together]
                .iter()
                .map(|(from, to)| to - from)
                .collect();
            took.sort_unstable();
            let first = took[0].max(1);
            let last = took[together - 1];
            let near = |ns: u64, times: u64| {
                Share::new(ns.abs_diff(first.saturating_mul(times)), first).is_below(*STEP_OFF)
            };
            if (1..).zip(&took).all(|(times, ns)| near(*ns, times)) {
                in_turn += 1;
            } else if Share::new(last, first).is_below(*STEP_LONGER) {
                at_once += 1;
            }
        }
        let ends = waits[at..at + together.max(1)].iter().map(|(_, to)| *to);
        busy_until = ends.max().unwrap_or(to).max(busy_until);
        at += together.max(1);
    }
    match (in_turn, at_once) {
        (0, 0) => comes_back_in_turns(&waits, workers.len()).then_some(true),
        _ => Some(in_turn > at_once),
    }
}

/// Whether those waits end one by one at even distances, each of which is a worker's share of a
/// wait: one after another is being answered. Two workers may be in step by chance.
fn comes_back_in_turns(waits: &[(Ns, Ns)], workers: usize) -> bool {
    let mut ends: Vec<Ns> = waits.iter().map(|(_, to)| *to).collect();
    ends.sort_unstable();
    let mut gaps: Vec<u64> = ends.windows(2).map(|pair| pair[1] - pair[0]).collect();
    if workers < *WORKERS_IN_STEP || gaps.len() < *WORKERS_MIN_GAPS {
        return false;
    }
    gaps.sort_unstable();
    let at = |percent: usize| gaps[gaps.len() * percent / 100];
    let (few, middle, most) = (at(5), at(50), at(95));
    let took = replay::median_ns(waits.iter().map(|(from, to)| to - from).collect());
    let share = middle.saturating_mul(workers as u64);
    Share::new(few, middle).is_at_least(*STEP_SHORTEST)
        && !Share::new(most, middle).exceeds(*STEP_LONGER)
        && !Share::new(share.abs_diff(took), took).exceeds(*STEP_OFF)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// So many waits of a share of 10 ms for each of the workers, one ended after the other.
    fn in_turns(count: u64, workers: u64) -> Vec<(Ns, Ns)> {
        let wait = |at: u64| (at * 10, (at + workers) * 10);
        (0..count).map(wait).collect()
    }

    #[test]
    fn three_workers_in_step_come_back_in_turns() {
        assert!(comes_back_in_turns(&in_turns(24, 3), 3));
        assert!(!comes_back_in_turns(&in_turns(24, 2), 2), "by chance");
        assert!(!comes_back_in_turns(&in_turns(20, 3), 3), "a few");
        // Each third one comes back with another.
        let mut in_pairs = in_turns(24, 3);
        for at in (0..24).step_by(3) {
            in_pairs[at].1 += 9;
        }
        assert!(!comes_back_in_turns(&in_pairs, 3));
    }
}
