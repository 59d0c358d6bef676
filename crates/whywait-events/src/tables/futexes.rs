//! The table `futexes`.

use crate::recording::table;

table! {
    /// A futex word that threads slept on, and the sleeps on it that have no row in `waits`:
    /// because each was shorter than the threshold, or one of a storm (`waits.summed-up`).
    /// Descriptors that threads read from have rows too, of storms alone. Written at the end.
    #[table(later)]
    #[process(tgid)]
    pub struct FutexSum {
        /// Process id.
        tgid: u32 = Dictionary,
        /// Address of the word. With the highest bit set a descriptor (the lower 32 bits) in the
        /// system call of this number (the 16 bits above).
        address: u64 = Dictionary,
        /// How many sleeps.
        count: u64 = Delta,
        /// Time asleep, not that spent runnable.
        total_ns: u64 = Delta,
        /// The longest of them.
        longest_ns: u64 = Delta,
        /// What is mapped at the word: a path, `[heap]`, `[stack]`, `[anonymous]`; empty when not
        /// known. Hostile.
        mapping: String = Dictionary,
    }
}

impl FutexSum {
    /// No address of a program has this bit.
    const IS_DESCRIPTOR: u64 = 1 << 63;

    /// When these are sleeps on a descriptor: the number of the call and the descriptor.
    pub fn descriptor(&self) -> Option<(u32, i32)> {
        (self.address & Self::IS_DESCRIPTOR != 0)
            .then_some(((self.address >> 32) as u32 & 0xffff, self.address as i32))
    }
}
