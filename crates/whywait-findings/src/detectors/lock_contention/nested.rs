//! Locks that are held by threads which only wait for another lock: to hold the first one for less
//! saves nothing, for the second one keeps them as long.

use std::collections::BTreeMap;

use whywait_events::{Ns, Wait};
use whywait_model::Model;
use whywait_model::waits::{Hold, Primitive, WaitKey};

use super::{Contention, holds_of};
use crate::numbers::{MOST, Share};
use crate::shared::intervals::{Covered, Interval, merged, sum};
use crate::shared::replay::lock_of;

/// For a lock, the one for which its holders wait, or which they have, most of the time.
#[derive(Debug, Default)]
pub(super) struct Nested(BTreeMap<WaitKey, WaitKey>);

impl Nested {
    pub(super) fn of(model: &Model, locks: &BTreeMap<WaitKey, Contention<'_>>) -> Self {
        if locks.len() < 2 {
            return Self::default();
        }
        let interpreters = locks
            .iter()
            .filter(|(key, _)| {
                key.object
                    .primitive()
                    .is_some_and(Primitive::is_interpreters)
            })
            .map(|(key, lock)| (key, Covered::new(waited(lock))))
            .collect();
        let outer = locks.iter().filter_map(|(key, lock)| {
            let holds = holds_of(model, &lock.waits);
            let end = inner(model, key, &holds, &interpreters)?;
            locks.contains_key(&end).then(|| (key.clone(), end))
        });
        Self(outer.collect())
    }

    /// The last one of a chain: itself, if its holders do something else, or each waits for the
    /// other.
    pub(super) fn end<'k>(&'k self, key: &'k WaitKey) -> &'k WaitKey {
        let mut end = key;
        for _ in 0..self.0.len() {
            match self.0.get(end) {
                Some(inner) => end = inner,
                None => return end,
            }
        }
        if self.0.contains_key(end) { key } else { end }
    }
}

/// When somebody waited for a lock.
fn waited(lock: &Contention<'_>) -> Vec<Interval> {
    let waits = lock.waits.iter();
    merged(waits.map(|wait| (wait.out_ns, wait.woken_ns())).collect())
}

fn length((from_ns, to_ns): Interval) -> u64 {
    to_ns.saturating_sub(from_ns)
}

/// The lock that those who hold this one wait for most of the time; or the interpreter's, which
/// they have while they compute, as far as others wait for it meanwhile.
fn inner(
    model: &Model,
    key: &WaitKey,
    holds: &[Hold],
    interpreters: &BTreeMap<&WaitKey, Covered>,
) -> Option<WaitKey> {
    let mut times: Vec<(WaitKey, u64)> = Vec::new();
    for hold in holds {
        let Some(thread) = model.threads.get(&hold.holder) else {
            continue;
        };
        let program = model.program(thread.tgid);
        let interpreter = interpreters
            .iter()
            .find(|(other, _)| other.tgid == program && **other != key);
        let waits = thread.timeline.overlapping(hold.from_ns, hold.to_ns);
        let asleep = |wait: &Wait| {
            let within = |at_ns: Ns| at_ns.clamp(hold.from_ns, hold.to_ns);
            (within(wait.out_ns), within(wait.woken_ns()))
        };
        for wait in waits.iter().filter(|wait| model.is_lock_wait(wait)) {
            times.push((lock_of(model, wait), length(asleep(wait))));
        }
        if let Some((other, waited)) = interpreter {
            let asleep_ns = sum(waits.iter().map(|wait| waited.within(asleep(wait))));
            let all_ns = waited.within((hold.from_ns, hold.to_ns));
            times.push(((*other).clone(), all_ns.saturating_sub(asleep_ns)));
        }
    }
    let mut inner: BTreeMap<WaitKey, u64> = BTreeMap::new();
    for (other, ns) in times.into_iter().filter(|(other, _)| other != key) {
        let all_ns = inner.entry(other).or_default();
        *all_ns = all_ns.saturating_add(ns);
    }
    let held_ns = sum(holds.iter().map(Hold::ns));
    let (inner, ns) = inner.into_iter().max_by_key(|(_, ns)| *ns)?;
    Share::new(ns, held_ns).exceeds(*MOST).then_some(inner)
}
