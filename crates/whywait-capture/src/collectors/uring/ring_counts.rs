//! What the io_uring rings have come to, each time that they are looked at.

use std::collections::BTreeMap;

use whywait_events::uring::Ring;

/// Of one ring.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) submitted: u64,
    pub(crate) completed: u64,
    /// Operations whose submission was not seen.
    pub(crate) lost: u64,
}

/// Of all rings, by their number.
#[derive(Default)]
pub(crate) struct RingCounts {
    now: BTreeMap<u32, Counts>,
    /// Of those that are no more.
    gone: Counts,
    /// How many had been closed at the last look.
    closed: u32,
}

impl RingCounts {
    /// What a ring has come to; whether that is what it was before.
    pub(crate) fn unchanged(&self, ring: u32, counts: Counts) -> bool {
        self.now.get(&ring) == Some(&counts)
    }

    /// These are all rings that there are: others have gone, and their counts stay.
    pub(crate) fn replace(&mut self, all: BTreeMap<u32, Counts>) {
        let before = std::mem::replace(&mut self.now, all);
        for (ring, counts) in before {
            if !self.now.contains_key(&ring) {
                self.gone.add(counts);
            }
        }
    }

    /// Whether so many closed rings are more than at the last look.
    pub(crate) fn more_closed(&mut self, closed: u32) -> bool {
        std::mem::replace(&mut self.closed, closed) != closed
    }

    pub(crate) fn closed(&mut self, ring: u32, counts: Counts) {
        self.now.remove(&ring);
        self.gone.add(counts);
    }

    pub(crate) fn total(&self) -> Counts {
        let mut total = self.gone;
        for counts in self.now.values() {
            total.add(*counts);
        }
        total
    }
}

impl Counts {
    pub(crate) fn of(ring: &Ring, lost: u64) -> Self {
        Self {
            submitted: ring.submitted,
            completed: ring.completed,
            lost,
        }
    }

    /// Operations and completions that were handled.
    pub(crate) fn events(self) -> u64 {
        self.submitted + self.completed
    }

    fn add(&mut self, more: Self) {
        self.submitted += more.submitted;
        self.completed += more.completed;
        self.lost += more.lost;
    }
}
