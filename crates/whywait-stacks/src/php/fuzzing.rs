//! Reading a PHP out of memory that holds anything.

use super::made_up::MadeUpPhp;
use crate::fuzzing::{in_own_process, worsen};

/// Changes of a sound PHP's memory.
pub(crate) fn read(bytes: &[u8]) {
    let mut made = MadeUpPhp::new();
    worsen(&mut made.memory, bytes);
    in_own_process(|process| {
        let _ = made.read(process);
        for function in [made.function, made.now, made.before] {
            made.not_met(process, function);
            let inside = (function, made.code_of(function));
            made.copied(process, &[(made.in_c, 0), inside]);
        }
    });
}
