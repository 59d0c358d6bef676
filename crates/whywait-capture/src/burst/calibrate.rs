//! What a system call takes: held against the same while a burst lasts, it tells what tracing adds to each call.
#![allow(unsafe_code)]

use std::time::Instant;

/// Calls of a batch, and batches. The fastest batch counts: it was not interrupted.
const CALLS: u32 = 500;
const BATCHES: u32 = 12;

/// How long a system call that does next to nothing takes, nanoseconds.
pub(crate) fn call_ns() -> u64 {
    (0..BATCHES)
        .map(|_| {
            let begun = Instant::now();
            for _ in 0..CALLS {
                // SAFETY: it takes nothing and cannot fail.
                unsafe { libc::syscall(libc::SYS_getppid) };
            }
            begun.elapsed().as_nanos() as u64 / u64::from(CALLS)
        })
        .min()
        .unwrap_or(0)
}
