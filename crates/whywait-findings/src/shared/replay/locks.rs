//! Which locks threads used when, as far as their waits show it: who had to wait, for whom, and for
//! how long that one had it.

use std::collections::{BTreeMap, HashMap};

use whywait_events::{Ns, Wait};
use whywait_model::Model;
use whywait_model::waits::{Primitive, WaitKey};

use super::crews::ReadByThread;
use crate::shared::intervals::{Covered, Interval, merged};

/// The lock that a sleep was for. That of a program is one in all processes that run it: they were
/// forked, and share it, or have one each at the same address.
pub(crate) fn lock_of(model: &Model, wait: &Wait) -> WaitKey {
    let key = model.key_of(wait);
    WaitKey {
        tgid: model.program(key.tgid),
        ..key
    }
}

/// One time that a thread used a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Use {
    /// The lock's number.
    pub(super) lock: usize,
    /// When it asked for it.
    pub(super) asked_ns: Ns,
    /// When it had it.
    pub(super) got_ns: Ns,
    /// When it let it go; at once, where nobody waited for that.
    pub(super) let_go_ns: Ns,
    /// For how long it waited while nobody is known to have had it.
    pub(super) unknown_ns: u64,
}

/// The locks of some threads.
#[derive(Debug, Default)]
pub(super) struct Locks {
    numbers: BTreeMap<WaitKey, usize>,
    /// By thread, in order of asking.
    uses: HashMap<u32, Vec<Use>>,
}

impl Locks {
    pub(super) fn of(model: &Model, tids: impl Iterator<Item = u32>) -> Self {
        let threads = tids.filter_map(|tid| model.threads.get(&tid));
        let mut numbers: BTreeMap<WaitKey, usize> = BTreeMap::new();
        let mut held: HashMap<(u32, usize), Vec<Interval>> = HashMap::new();
        let mut waited: Vec<(u32, usize, Interval)> = Vec::new();
        let waits = threads.flat_map(|thread| thread.timeline.waits());
        for wait in waits.filter(|wait| model.is_lock_wait(wait)) {
            let key = lock_of(model, wait);
            // Those that try again and again, and those that may be several, tell no order.
            let told = !key.object.may_be_several()
                && !key
                    .object
                    .primitive()
                    .is_some_and(Primitive::is_interpreters);
            let Some(hold) = model.hold(wait).filter(|_| told) else {
                continue;
            };
            let count = numbers.len();
            let number = *numbers.entry(key).or_insert(count);
            let held = held.entry((hold.holder, number)).or_default();
            held.push((hold.from_ns, hold.to_ns));
            let got_ns = wait.in_ns.unwrap_or(model.end_ns);
            waited.push((wait.tid, number, (wait.out_ns, got_ns)));
        }
        let mut locks = Self {
            numbers,
            uses: HashMap::new(),
        };
        let mut held: HashMap<(u32, usize), Vec<Interval>> = held
            .into_iter()
            .map(|(by, times)| (by, merged(times)))
            .collect();
        waited.sort_unstable();
        let again = waited.iter().skip(1).map(|next| (next.0, next.1, next.2.0));
        let again: Vec<_> = again.map(Some).chain([None]).collect();
        for ((tid, lock, (asked_ns, got_ns)), again) in waited.into_iter().zip(again) {
            // What it then had others wait for, if it was waited for. That they came later, and a
            // hold is known from then on only, does not mean that it had let go before.
            let asks_again = again.filter(|next| (next.0, next.1) == (tid, lock));
            let again_ns = asks_again.map_or(Ns::MAX, |next| next.2);
            let times = held.entry((tid, lock)).or_default();
            let had = times
                .iter()
                .position(|(from_ns, to_ns)| got_ns < *to_ns && *from_ns < again_ns);
            let let_go_ns = had.map_or(got_ns, |at| times.remove(at).1);
            locks.add(tid, lock, (asked_ns, got_ns, let_go_ns));
        }
        for ((tid, lock), times) in held {
            for (from_ns, to_ns) in times {
                // That it had it is known from the moment on in which another one asked: before
                // that one did.
                let from_ns = from_ns.saturating_sub(1);
                locks.add(tid, lock, (from_ns, from_ns, to_ns));
            }
        }
        locks.begin_holds();
        locks.explain();
        for uses in locks.uses.values_mut() {
            uses.sort_by_key(|one| one.asked_ns);
        }
        locks
    }

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.numbers.len()
    }

    /// The number of a lock, if one of these threads waited for it.
    pub(super) fn number(&self, key: &WaitKey) -> Option<usize> {
        self.numbers.get(key).copied()
    }

    fn add(&mut self, tid: u32, lock: usize, (asked_ns, got_ns, let_go_ns): (Ns, Ns, Ns)) {
        self.uses.entry(tid).or_default().push(Use {
            lock,
            asked_ns,
            got_ns,
            let_go_ns,
            unknown_ns: 0,
        });
    }

    /// A hold of which the beginning does not show began before others waited for its end: the
    /// first one that is known to have had the lock while they did had it from the beginning,
    /// unless another one had.
    fn begin_holds(&mut self) {
        let had = self.had();
        let waits: Vec<Use> = self.uses.values().flatten().copied().collect();
        let mut begins: BTreeMap<(usize, Ns), Ns> = BTreeMap::new();
        for one in self.uses.values().flatten() {
            if one.asked_ns == one.got_ns && one.let_go_ns > one.got_ns {
                begins.insert((one.lock, one.got_ns), one.got_ns);
            }
        }
        for wait in waits {
            let asked = (wait.asked_ns, wait.asked_ns.saturating_add(1));
            let is_known = had.get(&wait.lock).is_some_and(|had| had.within(asked) > 0);
            let range = (wait.lock, asked.1)..(wait.lock, wait.got_ns.max(asked.1));
            if let Some((_, begins_ns)) = begins.range_mut(range).next()
                && !is_known
            {
                *begins_ns = (*begins_ns).min(wait.asked_ns.saturating_sub(1));
            }
        }
        for one in self.uses.values_mut().flatten() {
            if let Some(begins_ns) = begins.get(&(one.lock, one.got_ns))
                && one.asked_ns == one.got_ns
            {
                (one.asked_ns, one.got_ns) = (*begins_ns, *begins_ns);
            }
        }
    }

    /// When each lock was known to be had.
    fn had(&self) -> BTreeMap<usize, Covered> {
        let mut had: BTreeMap<usize, Vec<Interval>> = BTreeMap::new();
        for one in self.uses.values().flatten() {
            let times = had.entry(one.lock).or_default();
            times.push((one.got_ns, one.let_go_ns));
        }
        let had = had.into_iter();
        had.map(|(lock, times)| (lock, Covered::new(merged(times))))
            .collect()
    }

    /// Finds out for how long locks were waited for while nobody is known to have had them.
    fn explain(&mut self) {
        let had = self.had();
        for one in self.uses.values_mut().flatten() {
            let wait = (one.asked_ns, one.got_ns);
            let waited_ns = one.got_ns.saturating_sub(one.asked_ns);
            let held_ns = had.get(&one.lock).map_or(0, |had| had.within(wait));
            one.unknown_ns = waited_ns.saturating_sub(held_ns);
        }
    }

    /// When threads that are none of these had locks for which others waited.
    pub(super) fn of_others(&self, tids: &ReadByThread<'_>) -> impl Iterator<Item = &Use> {
        let others = self.uses.iter().filter(|(tid, _)| !tids.contains_key(tid));
        others.flat_map(|(_, uses)| uses)
    }

    /// What a thread asked for in `[from_ns, to_ns)`.
    pub(super) fn within(&self, tid: u32, from_ns: Ns, to_ns: Ns) -> &[Use] {
        let uses = self.uses.get(&tid).map_or(&[][..], Vec::as_slice);
        let first = uses.partition_point(|one| one.asked_ns < from_ns);
        let last = uses.partition_point(|one| one.asked_ns < to_ns);
        &uses[first..last.max(first)]
    }
}
