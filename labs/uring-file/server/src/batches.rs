//! Reads of a file in memory, which complete at once if they are let.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use io_uring::{IoUring, squeue};
use serde_json::{Value, json};

use crate::ring::{ReadRing, cached_file};
use crate::{BLOCK, Lab, RUN};

const ENTRIES: u32 = 16;
const BURST: usize = 128;
const EVERY: Duration = Duration::from_millis(5);
const BATCH: usize = 32;

/// Bursts of 128 completions, reaped when all are submitted. Broken: the queue holds 16. Fixed:
/// 256.
pub(crate) fn cq_overflow(lab: &Lab) -> Result<Value> {
    let mut builder = IoUring::builder();
    builder.setup_cqsize(if lab.fixed { 256 } else { ENTRIES });
    let mut ring = ReadRing::new(&builder, ENTRIES, BURST)?;
    let file = cached_file(lab)?;
    let begun = Instant::now();
    let (mut bursts, mut overflown) = (0, 0);
    while begun.elapsed() < RUN {
        thread::sleep((begun + EVERY * bursts).saturating_duration_since(Instant::now()));
        for block in 0..BURST {
            ring.queue_read(&file, block, BLOCK, squeue::Flags::empty())?;
            if (block + 1) % ENTRIES as usize == 0 {
                ring.submit(0)?;
            }
        }
        overflown += u32::from(ring.overflown());
        let mut reaped = 0;
        while reaped < BURST {
            ring.submit(1)?;
            reaped += ring.reap(|_, _| ())?;
        }
        bursts += 1;
    }
    Ok(json!({"ops": bursts as usize * BURST, "bursts": bursts, "bursts_overflown": overflown}))
}

/// Broken: each read is forced to a worker thread of the kernel's, where none would have to wait.
pub(crate) fn punt_storm(lab: &Lab) -> Result<Value> {
    let flags = if lab.fixed {
        squeue::Flags::empty()
    } else {
        squeue::Flags::ASYNC
    };
    let mut ring = ReadRing::new(&IoUring::builder(), u32::try_from(BATCH)?, BATCH)?;
    let file = cached_file(lab)?;
    let begun = Instant::now();
    let mut ops = 0;
    while begun.elapsed() < RUN {
        for block in 0..BATCH {
            ring.queue_read(&file, block, BLOCK, flags)?;
        }
        ring.submit(BATCH)?;
        ops += ring.reap(|_, _| ())?;
    }
    Ok(json!({"ops": ops, "ops_per_s": (ops as f64 / begun.elapsed().as_secs_f64()).round()}))
}

/// Broken: each read is submitted by a call of its own.
pub(crate) fn one_a_batch(lab: &Lab) -> Result<Value> {
    let mut ring = ReadRing::new(&IoUring::builder(), u32::try_from(BATCH)?, BATCH)?;
    let file = cached_file(lab)?;
    let begun = Instant::now();
    let mut ops = 0;
    while begun.elapsed() < RUN {
        for block in 0..BATCH {
            ring.queue_read(&file, block, BLOCK, squeue::Flags::empty())?;
            if !lab.fixed {
                ring.submit(0)?;
            }
        }
        ring.submit(BATCH)?;
        ops += ring.reap(|_, _| ())?;
    }
    Ok(json!({"ops": ops, "ops_per_s": (ops as f64 / begun.elapsed().as_secs_f64()).round()}))
}
