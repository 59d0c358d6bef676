//! Operations that fail, and nobody looks; and such as nothing ends.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use io_uring::{IoUring, squeue};
use rustix::pipe::pipe;
use serde_json::{Value, json};

use crate::ring::{Closed, ReadRing, cached_file};
use crate::{BLOCK, Lab, RUN};

const READ_EVERY: Duration = Duration::from_millis(5);
const ASK_EVERY: Duration = Duration::from_millis(50);
/// So many are asked for at most.
const READS: usize = 30;
/// Long enough for who looks every two seconds.
const LEAK_RUN: Duration = Duration::from_secs(5);

/// A read every 5 ms. Broken: its descriptor was closed before. Fixed: it stays open.
pub(crate) fn errors(lab: &Lab) -> Result<Value> {
    let mut ring = ReadRing::new(&IoUring::builder(), 8, 1)?;
    let mut file = Some(cached_file(lab)?);
    let number = Closed(file.as_ref().map_or(-1, File::as_raw_fd));
    if !lab.fixed {
        file = None;
    }
    let begun = Instant::now();
    let (mut ops, mut failed) = (0, 0);
    while begun.elapsed() < RUN {
        thread::sleep((begun + READ_EVERY * ops).saturating_duration_since(Instant::now()));
        ring.queue_read(&number, 0, BLOCK, squeue::Flags::empty())?;
        ring.submit(1)?;
        failed += ring
            .take_results()
            .iter()
            .filter(|result| **result < 0)
            .count();
        ops += 1;
    }
    drop(file);
    Ok(json!({"ops": ops, "failed": failed}))
}

/// A pipe that nobody writes to. Broken: every 50 ms it is read anew. Fixed: when the last read has
/// ended.
pub(crate) fn leak(lab: &Lab) -> Result<Value> {
    let mut ring = ReadRing::new(&IoUring::builder(), 64, READS)?;
    let (from, to) = pipe()?;
    let begun = Instant::now();
    let mut ops = 0;
    while begun.elapsed() < LEAK_RUN {
        if ops == 0 || (!lab.fixed && ops < READS) {
            ring.queue_read(&from, ops, BLOCK, squeue::Flags::empty())?;
            ring.submit(0)?;
            ops += 1;
        }
        thread::sleep(ASK_EVERY);
    }
    let ended = ring.reap(|_, _| ())?;
    // They are under way for as long as the ring and the pipe are there.
    std::mem::forget((ring, from, to));
    Ok(json!({"ops": ops, "leaked": ops - ended}))
}
