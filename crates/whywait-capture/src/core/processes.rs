//! The target's processes and their threads, as far as records say.

use std::collections::{BTreeMap, HashSet};

/// How many processes are looked at in one go for whether they still live: some 20 us each.
pub(crate) const ENDED_AT_ONCE: usize = 64;

#[derive(Default)]
pub(crate) struct Processes {
    threads: BTreeMap<u32, HashSet<u32>>,
    /// Up to which process was looked for ones whose end was not recorded.
    looked_up_to: u32,
    /// Those that began, or began another program, and nobody has asked for yet.
    begun: Vec<u32>,
}

impl Processes {
    pub(crate) fn all(&self) -> Vec<u32> {
        self.threads.keys().copied().collect()
    }

    /// Those with a thread of which this is true.
    pub(crate) fn with(&self, is_so: impl Fn(u32) -> bool) -> Vec<u32> {
        self.threads
            .iter()
            .filter(|(_, threads)| threads.iter().any(|tid| is_so(*tid)))
            .map(|(tgid, _)| *tgid)
            .collect()
    }

    pub(crate) fn has(&self, tgid: u32, tid: u32) -> bool {
        self.threads
            .get(&tgid)
            .is_some_and(|threads| threads.contains(&tid))
    }

    /// The threads of a process.
    pub(crate) fn threads(&self, tgid: u32) -> Vec<u32> {
        let threads = self.threads.get(&tgid).into_iter().flatten();
        threads.copied().collect()
    }

    /// A process began, or it began another program.
    pub(crate) fn program_began(&mut self, tgid: u32) {
        if self.begun.last() != Some(&tgid) {
            self.begun.push(tgid);
        }
    }

    /// The processes whose program began since this was asked last.
    pub(crate) fn take_begun(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.begun)
    }

    pub(crate) fn thread_began(&mut self, tgid: u32, tid: u32) {
        self.threads.entry(tgid).or_default().insert(tid);
    }

    /// Whether it was the process's last one.
    pub(crate) fn thread_ended(&mut self, tgid: u32, tid: u32) -> bool {
        let Some(threads) = self.threads.get_mut(&tgid) else {
            return false;
        };
        threads.remove(&tid);
        let last = threads.is_empty();
        if last {
            self.threads.remove(&tgid);
        }
        last
    }

    /// A process becomes another program: of its threads this one is left. Returns the others, in
    /// order.
    pub(crate) fn becomes_another(&mut self, tgid: u32, tid: u32) -> Vec<u32> {
        let before = self.threads.insert(tgid, HashSet::from([tid]));
        let mut others: Vec<u32> = before.into_iter().flatten().collect();
        others.retain(|other| *other != tid);
        others.sort_unstable();
        others
    }

    /// Whether it was known.
    pub(crate) fn forget(&mut self, tgid: u32) -> bool {
        self.threads.remove(&tgid).is_some()
    }

    /// Forgets processes that are not alive any more, and returns them with their threads. Looks at
    /// some of them, the others are for the next call.
    pub(crate) fn forget_ended(&mut self, alive: impl Fn(u32) -> bool) -> Vec<(u32, HashSet<u32>)> {
        let some: Vec<u32> = self
            .threads
            .range(self.looked_up_to..)
            .map(|(tgid, _)| *tgid)
            .take(ENDED_AT_ONCE)
            .collect();
        self.looked_up_to = match some.last() {
            Some(last) if some.len() == ENDED_AT_ONCE => last.saturating_add(1),
            _ => 0,
        };
        some.into_iter()
            .filter(|tgid| !alive(*tgid))
            .filter_map(|tgid| self.threads.remove_entry(&tgid))
            .collect()
    }
}
