//! Objects of interpreters in this process's own memory: for tests of what reads them, and to be
//! made worse of.

use crate::budget::Budget;
use crate::process::Process;

/// Words that stay where they are.
pub(crate) struct ObjectMemory {
    pub(crate) words: Vec<u64>,
}

impl ObjectMemory {
    pub(crate) fn new(most: usize) -> Self {
        Self {
            words: Vec::with_capacity(most),
        }
    }

    pub(crate) fn address(&self) -> u64 {
        self.words.as_ptr() as u64
    }

    /// Zeroes, and their address.
    pub(crate) fn take(&mut self, bytes: usize) -> u64 {
        let at = self.address() + self.words.len() as u64 * 8;
        assert!(
            self.words.len() + bytes / 8 <= self.words.capacity(),
            "it stays where it is"
        );
        self.words.extend(std::iter::repeat_n(0, bytes / 8));
        at
    }

    pub(crate) fn set(&mut self, at: u64, value: u64) {
        let index = (at - self.address()) / 8;
        self.words[index as usize] = value;
    }

    /// It is read by way of the kernel.
    pub(crate) fn is_read(&self) {
        std::hint::black_box(&self.words);
    }
}

pub(crate) fn own_process() -> Process {
    Process::open(std::process::id(), &Budget::default()).expect("its mappings")
}
