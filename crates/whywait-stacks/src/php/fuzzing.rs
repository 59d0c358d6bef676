//! Reading a PHP out of memory that holds anything.

use super::made_up::MadeUpPhp;
use crate::fuzzing::{in_own_process, worsen};

/// Changes of a sound PHP's memory.
pub(crate) fn read(bytes: &[u8]) {
    let mut made = MadeUpPhp::new();
    worsen(&mut made.memory, bytes);
    let _ = in_own_process(|process| made.read(process));
}
