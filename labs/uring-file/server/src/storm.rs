//! Operations that block workers of the kernel's.

use std::fs::OpenOptions;
use std::os::fd::OwnedFd;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use io_uring::{IoUring, squeue};
use rustix::pipe::pipe;
use serde_json::{Value, json};

use crate::ring::ReadRing;
use crate::{Lab, RUN};

const PIPES: usize = 200;
const EVERY: Duration = Duration::from_millis(100);

/// From each pipe what comes is thrown away. Broken: it is spliced, for which a worker blocks.
/// Fixed: it is read, for which the kernel waits by polling.
pub(crate) fn worker_storm(lab: &Lab) -> Result<Value> {
    let mut ring = ReadRing::new(&IoUring::builder(), 256, PIPES)?;
    let sink = OpenOptions::new().write(true).open("/dev/null")?;
    let pipes: Vec<(OwnedFd, OwnedFd)> = (0..PIPES).map(|_| Ok(pipe()?)).collect::<Result<_>>()?;
    let begun = Instant::now();
    let mut ops = 0;
    while begun.elapsed() < RUN {
        for (block, (from, _)) in pipes.iter().enumerate() {
            if lab.fixed {
                ring.queue_read(from, block, 1, squeue::Flags::empty())?;
            } else {
                ring.queue_splice(from, &sink, block, 1)?;
            }
        }
        ring.submit(0)?;
        thread::sleep(EVERY);
        for (_, to) in &pipes {
            rustix::io::write(to, b"x")?;
        }
        ring.submit(PIPES)?;
        ops += ring.reap(|_, _| ())?;
    }
    Ok(json!({"ops": ops}))
}
