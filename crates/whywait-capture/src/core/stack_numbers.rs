//! Distinct stacks, numbered as they come.

use std::collections::{HashMap, HashSet};

use whywait_events::{Frame, Stack, StackId};

/// The most distinct stacks that are remembered, some 600 bytes each: a program that recurses to
/// ever new depths has a new one at each look, and a recording may go on for weeks.
pub(crate) const MAX_STACKS: usize = 1 << 16;
/// … and the most frames of theirs: a stack may be two thousand deep.
const MAX_REMEMBERED: usize = 2 << 20;
/// The most distinct frames that are named: those of the largest programs are fewer.
const MAX_FRAMES: usize = 1 << 20;

#[derive(Default)]
pub(crate) struct StackNumbers {
    numbers: HashMap<(Vec<Frame>, bool), StackId>,
    /// The frames of these stacks.
    remembered: usize,
    last: StackId,
    /// What is to be named in the end.
    frames: HashSet<Frame>,
}

impl StackNumbers {
    /// The number of a stack, 0 for none; and the stack, if it was not known.
    pub(crate) fn number(
        &mut self,
        frames: Vec<Frame>,
        truncated: bool,
    ) -> (StackId, Option<Stack>) {
        if frames.is_empty() {
            return (0, None);
        }
        let key = (frames, truncated);
        if let Some(id) = self.numbers.get(&key) {
            return (*id, None);
        }
        let Some(id) = self.last.checked_add(1) else {
            return (0, None);
        };
        self.last = id;
        self.remembered += key.0.len();
        if self.numbers.len() >= MAX_STACKS || self.remembered > MAX_REMEMBERED {
            // Those that come again are written again, under another number.
            self.numbers = HashMap::new();
            self.remembered = key.0.len();
        }
        if self.frames.len() < MAX_FRAMES {
            self.frames.extend(&key.0);
        }
        let new = Stack {
            id,
            truncated,
            frames: key.0.clone(),
        };
        self.numbers.insert(key, id);
        (id, Some(new))
    }

    /// The distinct frames of all stacks, in order.
    pub(crate) fn frames(&self) -> Vec<Frame> {
        let mut frames: Vec<Frame> = self.frames.iter().copied().collect();
        frames.sort_unstable();
        frames
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_stacks_as_come_and_no_more_in_memory() {
        let mut stacks = StackNumbers::default();
        let frames = |address| vec![Frame { module: 1, address }];
        let (first, new) = stacks.number(frames(0), false);
        assert_eq!(
            new.map(|stack| stack.id),
            Some(first),
            "a new one is written"
        );
        assert_eq!(
            stacks.number(frames(0), false),
            (first, None),
            "a known one is not"
        );
        assert_ne!(stacks.number(frames(0), true).0, first);
        for address in 1..=MAX_STACKS as u64 {
            stacks.number(frames(address), false);
        }
        assert_eq!(stacks.remembered, stacks.numbers.len());
        assert!(stacks.numbers.len() <= MAX_STACKS);
        let (again, new) = stacks.number(frames(0), false);
        assert!(again > MAX_STACKS as StackId, "under another number");
        assert!(new.is_some(), "and written again");
        assert_eq!(
            stacks.frames().len(),
            MAX_STACKS + 1,
            "every frame is to be named"
        );
    }
}
