//! Which locks threads used when, as far as their waits show it: who had to wait, for whom, and for
//! how long that one had it.

use std::collections::{BTreeMap, HashMap};

use whywait_events::{Ns, Wait};
use whywait_model::Model;
use whywait_model::waits::{Primitive, WaitKey};

use crate::shared::intervals::{Interval, merged};

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
                && !key.object.primitive().is_some_and(Primitive::is_single);
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
        for (tid, lock, (asked_ns, got_ns)) in waited {
            // What it then had others wait for, if it was waited for.
            let times = held.entry((tid, lock)).or_default();
            let had = times
                .iter()
                .position(|(from_ns, to_ns)| *from_ns <= got_ns && got_ns < *to_ns);
            let let_go_ns = had.map_or(got_ns, |at| times.remove(at).1);
            locks.add(tid, lock, (asked_ns, got_ns, let_go_ns));
        }
        for ((tid, lock), times) in held {
            for (from_ns, to_ns) in times {
                locks.add(tid, lock, (from_ns, from_ns, to_ns));
            }
        }
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
        });
    }

    /// What a thread asked for in `[from_ns, to_ns)`.
    pub(super) fn within(&self, tid: u32, from_ns: Ns, to_ns: Ns) -> &[Use] {
        let uses = self.uses.get(&tid).map_or(&[][..], Vec::as_slice);
        let first = uses.partition_point(|one| one.asked_ns < from_ns);
        let last = uses.partition_point(|one| one.asked_ns < to_ns);
        &uses[first..last.max(first)]
    }
}
