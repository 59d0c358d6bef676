//! One thread queues entries, another submits them, and sleeps in ppoll for up to 499 ms before it
//! looks.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use io_uring::{IoUring, squeue};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use serde_json::{Value, json};

use crate::ring::{ReadRing, cached_file};
use crate::{BLOCK, Lab, RUN};

const EVERY: Duration = Duration::from_millis(20);
const PATIENCE: Duration = Duration::from_millis(499);
const MOST: usize = 1000;

struct Shared {
    ring: Mutex<(ReadRing, Vec<Instant>)>,
    kick: OwnedFd,
    file: File,
    fixed: bool,
}

impl Shared {
    #[inline(never)]
    fn queue_read(&self, block: usize) -> Result<()> {
        let mut guard = self.ring.lock().unwrap_or_else(PoisonError::into_inner);
        let (ring, queued) = &mut *guard;
        ring.queue_read(&self.file, block, BLOCK, squeue::Flags::empty())?;
        queued.push(Instant::now());
        drop(guard);
        if self.fixed {
            rustix::io::write(&self.kick, &1_u64.to_ne_bytes())?;
        }
        Ok(())
    }

    #[inline(never)]
    fn wait_for_work(&self) -> Result<()> {
        let patience = Timespec::try_from(PATIENCE)?;
        let mut fds = [PollFd::new(&self.kick, PollFlags::IN)];
        if poll(&mut fds, Some(&patience))? > 0 {
            rustix::io::read(&self.kick, &mut [0; 8])?;
        }
        Ok(())
    }

    /// Submits, and gives the latencies of what has completed.
    #[inline(never)]
    fn submit_reads(&self) -> Result<Vec<Duration>> {
        let mut guard = self.ring.lock().unwrap_or_else(PoisonError::into_inner);
        let (ring, queued) = &mut *guard;
        ring.submit(0)?;
        let mut latencies = Vec::new();
        ring.reap(|block, _| latencies.push(queued[block].elapsed()))?;
        Ok(latencies)
    }
}

pub(crate) fn cross_thread(lab: &Lab) -> Result<Value> {
    let shared = Arc::new(Shared {
        ring: Mutex::new((ReadRing::new(&IoUring::builder(), 64, MOST)?, Vec::new())),
        kick: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
        file: cached_file(lab)?,
        fixed: lab.fixed,
    });
    let begun = Instant::now();
    let producers = Arc::clone(&shared);
    let producer = lab_kit::named("producer", move || -> Result<usize> {
        for block in 0..MOST {
            if begun.elapsed() >= RUN {
                return Ok(block);
            }
            producers.queue_read(block)?;
            let next = begun + EVERY * u32::try_from(block + 1)?;
            thread::sleep(next.saturating_duration_since(Instant::now()));
        }
        Ok(MOST)
    })?;
    let submitters = Arc::clone(&shared);
    let submitter = lab_kit::named("submitter", move || -> Result<Vec<Duration>> {
        let mut latencies = Vec::new();
        while begun.elapsed() < RUN + PATIENCE {
            submitters.wait_for_work()?;
            latencies.extend(submitters.submit_reads()?);
        }
        Ok(latencies)
    })?;
    let panicked = |_| anyhow::anyhow!("a thread panicked");
    let queued = producer.join().map_err(panicked)??;
    let latencies = submitter.join().map_err(panicked)??;
    Ok(json!({"queued": queued, "ops": latencies.len(), "latency": lab_kit::summary(latencies)}))
}
