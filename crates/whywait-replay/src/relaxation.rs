//! What is different in a replay.

use std::collections::BTreeMap;

use crate::schedule::{What, Work};

/// What is different in a replay: nothing, to begin with.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Relaxation {
    /// By resource: so many slots more; `None`: one for whoever asks.
    slots: BTreeMap<usize, Option<usize>>,
    /// By cause: what is left of the time that it takes.
    left: BTreeMap<usize, Left>,
}

/// What is left of the time that something takes, each time. In this order: what leaves least, as a
/// rule, comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Left {
    /// Nothing.
    Nothing,
    /// So long at most, nanoseconds.
    AtMost(u64),
    /// Half of it.
    Half,
}

impl Relaxation {
    /// A resource has so many slots more.
    #[must_use]
    pub fn more(mut self, resource: usize, slots: usize) -> Self {
        self.slots.insert(resource, Some(slots));
        self
    }

    /// Nobody waits for a resource.
    #[must_use]
    pub fn unlimited(mut self, resource: usize) -> Self {
        self.slots.insert(resource, None);
        self
    }

    /// What something takes takes less.
    #[must_use]
    pub fn shorter(mut self, cause: usize, left: Left) -> Self {
        self.left.insert(cause, left);
        self
    }

    /// Both: of the same resource the more slots, of the same cause what leaves less.
    #[must_use]
    pub fn and(mut self, other: &Self) -> Self {
        for (resource, more) in &other.slots {
            let slots = self.slots.entry(*resource).or_insert(*more);
            *slots = (*slots).zip(*more).map(|(one, other)| one.max(other));
        }
        for (cause, left) in &other.left {
            let least = self.left.entry(*cause).or_insert(*left);
            *least = (*least).min(*left);
        }
        self
    }

    /// How many slots more a resource has; `None`: one for whoever asks.
    pub(crate) fn slots(&self, resource: usize) -> Option<usize> {
        self.slots.get(&resource).copied().unwrap_or(Some(0))
    }

    /// What is left of a time, nanoseconds.
    pub(crate) fn left_ns(&self, ns: u64, cause: Option<usize>) -> u64 {
        match cause.and_then(|cause| self.left.get(&cause)) {
            None => ns,
            Some(Left::Nothing) => 0,
            Some(Left::AtMost(most_ns)) => ns.min(*most_ns),
            Some(Left::Half) => ns / 2,
        }
    }

    /// How much of a work's own time goes until it is answered, whoever else is there.
    pub(crate) fn own_ns(&self, work: &Work) -> u64 {
        work.until_answered()
            .iter()
            .map(|step| match step.what {
                What::Spends { ns, cause } => ns - self.left_ns(ns, cause),
                _ => 0,
            })
            .fold(0, u64::saturating_add)
    }
}
