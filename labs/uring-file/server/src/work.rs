//! Work for a CPU.

use std::hint::black_box;
use std::thread;
use std::time::{Duration, Instant};

/// What is compressed at a time.
pub(crate) const SEGMENT: Duration = Duration::from_millis(20);

/// Looks at the clock only now and then, so that most of it is work. What is left to do afterwards
/// keeps its frame on the stack.
#[inline(never)]
pub(crate) fn compress_segment(state: u64) -> u64 {
    let begun = Instant::now();
    let mut state = state | 1;
    while begun.elapsed() < SEGMENT {
        for _ in 0..20_000 {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
        }
    }
    black_box(state)
}

/// Compresses half of the time: as much as the loop did, it would starve whoever shares its CPU.
pub(crate) fn compress_until(end: Instant) {
    let mut state = 1;
    while Instant::now() < end {
        state = compress_segment(state);
        thread::sleep(SEGMENT);
    }
}
