//! Futex words on which threads slept, and what is mapped there.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use whywait_events::{FutexSum, Wait};
use whywait_stacks::mapped_at;

use super::unfinished::awaited;

/// Words whose mapping is recorded.
const MAX_WORDS: usize = 16_384;
/// Between two looks at what is mapped at new words.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// They take at most one in so many parts of the time: a process may have very many mappings.
const SHARE: u32 = 20;

#[derive(Default)]
pub(crate) struct Words {
    /// By process and address; `None` as long as nobody looked.
    mappings: BTreeMap<(u32, u64), Option<String>>,
    looked: Option<Instant>,
    looking_took: Duration,
}

impl Words {
    /// Remembers what a thread waits for, if that is a futex.
    pub(crate) fn note(&mut self, wait: &Wait) {
        let address = awaited(wait);
        if address != 0 && self.mappings.len() < MAX_WORDS {
            // Where a lock has the waiters' words, its own address says more than theirs.
            self.mappings.entry((wait.tgid, wait.args[0])).or_default();
            self.mappings.entry((wait.tgid, address)).or_default();
        }
    }

    /// Finds out what is mapped at words that were not looked up yet, unless it did so a moment
    /// ago.
    pub(crate) fn look_up(&mut self, now: Instant) {
        let pause = LOOK_EVERY.max(self.looking_took * SHARE);
        if self.looked.is_some_and(|before| now - before < pause) {
            return;
        }
        let mut new: BTreeMap<u32, Vec<u64>> = BTreeMap::new();
        for ((tgid, address), mapping) in &self.mappings {
            if mapping.is_none() {
                new.entry(*tgid).or_default().push(*address);
            }
        }
        if new.is_empty() {
            return;
        }
        let begun = Instant::now();
        for (tgid, addresses) in new {
            let names = mapped_at(tgid, &addresses);
            for (address, name) in addresses.into_iter().zip(names) {
                // What is not mapped any more is not looked for again.
                self.mappings
                    .insert((tgid, address), Some(name.unwrap_or_default()));
            }
        }
        self.looked = Some(Instant::now());
        self.looking_took = begun.elapsed();
    }

    /// All words, with what is known of the short sleeps on them. Forgets them.
    pub(crate) fn take(&mut self, short: Vec<FutexSum>) -> impl Iterator<Item = FutexSum> {
        let mut sums: BTreeMap<(u32, u64), FutexSum> = short
            .into_iter()
            .map(|sum| ((sum.tgid, sum.address), sum))
            .collect();
        for ((tgid, address), mapping) in std::mem::take(&mut self.mappings) {
            let sum = sums.entry((tgid, address)).or_insert_with(|| FutexSum {
                tgid,
                address,
                ..FutexSum::default()
            });
            sum.mapping = mapping.unwrap_or_default();
        }
        sums.into_values()
    }
}
