//! Objects of interpreters that are not as they should be.

use crate::made_up::ObjectMemory;

impl ObjectMemory {
    pub(crate) fn clone_words(&self) -> Vec<u64> {
        self.words.clone()
    }

    /// Puts up to three words in the place of others: small ones, addresses within, addresses at
    /// the end of all, and any.
    pub(crate) fn damage(&mut self, original: &[u64], random: &mut Random) {
        self.words.copy_from_slice(original);
        for _ in 0..random.next() % 4 {
            let count = original.len() as u64;
            let value = match random.next() % 5 {
                0 => random.next() % 16,
                1 | 2 => self.address() + random.next() % count * 8,
                3 => u64::MAX - random.next() % 64,
                _ => random.next(),
            };
            self.words[(random.next() % count) as usize] = value;
        }
    }
}

/// The same numbers each time.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new() -> Self {
        Self(0x9e37_79b9_7f4a_7c15)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}
