//! The guest's memory, and the work on it that is no I/O.

use std::hint::black_box;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use lab_kit::sync::{Mutex, lock};
use rustix::time::{ClockId, clock_gettime};

/// What the worker, the API and the vCPUs share.
#[derive(Default)]
pub(crate) struct Memory {
    generation: u64,
    index: u64,
}

/// What the API and the vCPUs want of the memory: a word. Returns how long it took to get at it.
/// Not inlined, so that its frame is in the stack of a release build.
#[inline(never)]
pub(crate) fn read_generation(memory: &Mutex<Memory>) -> Duration {
    let begun = Instant::now();
    let memory = lock(memory);
    let waited = begun.elapsed();
    black_box(memory.generation);
    waited
}

/// Rebuilds the memory's index and holds the lock all the while: the fault. Says so once the lock
/// is held.
#[inline(never)]
pub(crate) fn rebuild_under_lock(memory: &Mutex<Memory>, time: Duration, started: &Sender<()>) {
    let mut memory = lock(memory);
    // Nobody listens when the server ends.
    started.send(()).ok();
    memory.index = burn_until(Instant::now() + time, memory.index);
    memory.generation += 1;
}

/// The same, with the lock held for moments only.
#[inline(never)]
pub(crate) fn rebuild_outside_lock(memory: &Mutex<Memory>, time: Duration, started: &Sender<()>) {
    let index = lock(memory).index;
    started.send(()).ok();
    let index = burn_until(Instant::now() + time, index);
    let mut memory = lock(memory);
    memory.index = index;
    memory.generation += 1;
}

/// The part of an episode's CPU time that grows.
#[inline(never)]
pub(crate) fn compact_index(time: Duration) {
    black_box(burn_cpu(time, 1));
}

/// The part that does not.
#[inline(never)]
pub(crate) fn checksum_pages(time: Duration) {
    black_box(burn_cpu(time, 2));
}

/// Until a moment, whatever the machine does meanwhile: the others wait for wall time.
fn burn_until(end: Instant, mut seed: u64) -> u64 {
    while Instant::now() < end {
        seed = churn(seed);
    }
    seed
}

/// So much CPU time of this thread: what a sampling of the CPU sees.
#[inline(always)]
fn burn_cpu(time: Duration, mut seed: u64) -> u64 {
    let end = cpu_time() + time;
    while cpu_time() < end {
        seed = churn(seed);
    }
    seed
}

/// Some 50 us, long compared with looking at a clock. Inlined, so that the time is its caller's.
#[inline(always)]
fn churn(mut seed: u64) -> u64 {
    for _ in 0..20_000 {
        seed = black_box(seed.wrapping_mul(6_364_136_223_846_793_005) ^ 0x2545);
    }
    seed
}

/// The CPU time that this thread has had.
pub(crate) fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(
        time.tv_sec.unsigned_abs(),
        u32::try_from(time.tv_nsec).unwrap_or(0),
    )
}
