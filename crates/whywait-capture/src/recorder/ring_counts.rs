//! What the rings of io_uring have come to, each time that they are looked at.

use std::collections::BTreeMap;

/// Of one ring.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) submitted: u64,
    pub(super) completed: u64,
    /// Operations whose submission was not seen.
    pub(super) lost: u64,
}

/// Of all rings, by their number.
#[derive(Default)]
pub(super) struct RingCounts {
    now: BTreeMap<u32, Counts>,
    /// Of those that are no more.
    gone: Counts,
}

impl RingCounts {
    /// What a ring has come to; whether that is what it was before.
    pub(super) fn unchanged(&self, ring: u32, counts: Counts) -> bool {
        self.now.get(&ring) == Some(&counts)
    }

    /// These are all rings that there are: others have gone, and their counts stay.
    pub(super) fn replace(&mut self, all: BTreeMap<u32, Counts>) {
        let before = std::mem::replace(&mut self.now, all);
        for (ring, counts) in before {
            if !self.now.contains_key(&ring) {
                self.gone.add(counts);
            }
        }
    }

    pub(super) fn closed(&mut self, ring: u32, counts: Counts) {
        self.now.remove(&ring);
        self.gone.add(counts);
    }

    pub(super) fn total(&self) -> Counts {
        let mut total = self.gone;
        for counts in self.now.values() {
            total.add(*counts);
        }
        total
    }
}

impl Counts {
    /// Operations and completions that were handled.
    pub(super) fn events(self) -> u64 {
        self.submitted + self.completed
    }

    fn add(&mut self, more: Self) {
        self.submitted += more.submitted;
        self.completed += more.completed;
        self.lost += more.lost;
    }
}
