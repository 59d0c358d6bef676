//! Threads that seem to poll for nothing, to be looked at in a burst.

use std::collections::{BTreeSet, HashMap};

use whywait_events::StackId;

/// The most distinct stacks in which a thread polls for nothing that are counted.
const MAX_FUTILE_STACKS: usize = 64;

#[derive(Default)]
pub(crate) struct Suspects {
    pub(crate) threads: BTreeSet<u32>,
    /// Where samples saw threads poll while no byte moved, and how often.
    stacks: HashMap<u32, HashMap<StackId, u32>>,
}

impl Suspects {
    pub(crate) fn forget(&mut self, tid: u32) {
        self.threads.remove(&tid);
        self.stacks.remove(&tid);
    }

    /// A sample saw the thread poll in this stack while no byte moved.
    pub(crate) fn polls_in(&mut self, tid: u32, stack: StackId) {
        let stacks = self.stacks.entry(tid).or_default();
        if stacks.len() < MAX_FUTILE_STACKS || stacks.contains_key(&stack) {
            *stacks.entry(stack).or_default() += 1;
        }
    }

    /// Where a thread was seen polling most while no byte moved; 0: nowhere.
    pub(crate) fn stack_of(&self, tid: u32) -> StackId {
        self.stacks
            .get(&tid)
            .and_then(|stacks| stacks.iter().max_by_key(|(id, count)| (**count, **id)))
            .map_or(0, |(id, _)| *id)
    }
}
