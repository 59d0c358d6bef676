//! Reading a Ruby out of memory that holds anything.

use super::made_up::MadeUpRuby;
use crate::fuzzing::{in_own_process, worsen};

/// Changes of a sound Ruby's memory.
pub(crate) fn read(bytes: &[u8]) {
    let mut made = MadeUpRuby::new();
    worsen(&mut made.memory, bytes);
    let _ = in_own_process(|process| made.read(process));
}
