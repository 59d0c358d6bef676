//! A loop that has eight requests at a time with a slow device, and something else to do.

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use io_uring::{IoUring, squeue};
use rustix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};

use crate::ring::ReadRing;
use crate::work::{compress_segment, compress_until};
use crate::{Lab, RUN};

const LANES: usize = 8;
/// A request's, and an answer's: the time of the answer.
const LENGTH: usize = 8;
/// Of the loop that asks once and sleeps.
const ROUNDS: u32 = 3;
const ASLEEP: Duration = Duration::from_millis(790);
/// How long the load may take to open its device.
const PATIENCE: Duration = Duration::from_secs(10);

/// When the loop compresses.
#[derive(Clone, Copy, PartialEq)]
enum Compress {
    /// When requests have been submitted, and before their answers are reaped.
    BeforeReaping,
    /// When requests have been queued, and before they are submitted.
    BeforeSubmitting,
    /// Another thread does it.
    Apart,
}

/// Completions sit in the queue while the loop compresses.
pub(crate) fn reap_lag(lab: &Lab) -> Result<Value> {
    run(
        lab,
        if lab.fixed {
            Compress::Apart
        } else {
            Compress::BeforeReaping
        },
    )
}

/// Entries sit in the queue while the loop compresses.
pub(crate) fn unsubmitted(lab: &Lab) -> Result<Value> {
    run(
        lab,
        if lab.fixed {
            Compress::Apart
        } else {
            Compress::BeforeSubmitting
        },
    )
}

/// One answer at a time sits in the queue while the program sleeps. Fixed: it is taken first.
pub(crate) fn late_once(lab: &Lab) -> Result<Value> {
    let mut ring = ReadRing::new(&IoUring::builder(), 8, 1)?;
    let mut device = connect(&lab.dir.join("device.sock"))?;
    let mut late_ms = 0.0;
    for _ in 0..ROUNDS {
        ring.queue_read(&device, 0, LENGTH, squeue::Flags::empty())?;
        device.write_all(&[0; LENGTH])?;
        ring.submit(0)?;
        if !lab.fixed {
            sleep_between();
        }
        ring.submit(1)?;
        ring.reap(|_, answer| late_ms += since_ms(answer))?;
        if lab.fixed {
            sleep_between();
        }
    }
    Ok(json!({"ops": ROUNDS, "unreaped_ms": late_ms / f64::from(ROUNDS)}))
}

#[inline(never)]
fn sleep_between() {
    thread::sleep(ASLEEP);
}

/// How long ago the device answered.
fn since_ms(answer: &[u8]) -> f64 {
    let now = clock_gettime(ClockId::Monotonic);
    let now_ns = now.tv_sec as f64 * 1e9 + now.tv_nsec as f64;
    answer.try_into().map_or(0.0, |answered| {
        (now_ns - u64::from_ne_bytes(answered) as f64) / 1e6
    })
}

struct Loop {
    ring: ReadRing,
    lanes: Vec<UnixStream>,
    /// When each lane's entry was queued.
    queued: Vec<Instant>,
    late_ms: f64,
    unsubmitted: Duration,
}

fn run(lab: &Lab, compress: Compress) -> Result<Value> {
    let lanes = (0..LANES)
        .map(|_| connect(&lab.dir.join("device.sock")))
        .collect::<Result<Vec<_>>>()?;
    let begun = Instant::now();
    let mut this = Loop {
        ring: ReadRing::new(&IoUring::builder(), u32::try_from(LANES)?, LANES)?,
        lanes,
        queued: vec![begun; LANES],
        late_ms: 0.0,
        unsubmitted: Duration::ZERO,
    };
    let apart = (compress == Compress::Apart)
        .then(|| lab_kit::named("compressor", move || compress_until(begun + RUN)))
        .transpose()?;
    let mut idle: Vec<_> = (0..LANES).collect();
    let (mut ops, mut state) = (0, 1);
    while begun.elapsed() < RUN {
        this.queue_requests(&idle)?;
        if compress == Compress::BeforeSubmitting {
            state = compress_segment(state);
        }
        // Who submits late waits for all, so that nothing is left unreaped while it compresses.
        let wait_for = match compress {
            Compress::BeforeReaping => 0,
            Compress::BeforeSubmitting => LANES,
            Compress::Apart => 1,
        };
        this.submit_requests(&idle, wait_for)?;
        if compress == Compress::BeforeReaping {
            state = compress_segment(state);
        }
        idle = this.reap_answers()?;
        ops += idle.len();
    }
    let took = begun.elapsed().as_secs_f64();
    if let Some(apart) = apart {
        apart.join().ok();
    }
    let each = ops.max(1) as f64;
    Ok(json!({
        "ops": ops,
        "ops_per_s": (ops as f64 / took).round(),
        // The lanes are always in use: an operation's whole life follows from the rate.
        "op_ms": LANES as f64 * took * 1e3 / each,
        "unreaped_ms": this.late_ms / each,
        "unsubmitted_ms": this.unsubmitted.as_secs_f64() * 1e3 / each,
    }))
}

impl Loop {
    #[inline(never)]
    fn queue_requests(&mut self, idle: &[usize]) -> Result<()> {
        for &lane in idle {
            self.ring
                .queue_read(&self.lanes[lane], lane, LENGTH, squeue::Flags::empty())?;
            self.queued[lane] = Instant::now();
        }
        Ok(())
    }

    /// The device hears of a request when its read is submitted.
    #[inline(never)]
    fn submit_requests(&mut self, queued: &[usize], wait_for: usize) -> Result<()> {
        for &lane in queued {
            self.lanes[lane].write_all(&[0; LENGTH])?;
            self.unsubmitted += self.queued[lane].elapsed();
        }
        self.ring.submit(wait_for)
    }

    /// Returns the lanes that can be used again.
    #[inline(never)]
    fn reap_answers(&mut self) -> Result<Vec<usize>> {
        let mut idle = Vec::new();
        let late_ms = &mut self.late_ms;
        self.ring.reap(|lane, answer| {
            *late_ms += since_ms(answer);
            idle.push(lane);
        })?;
        Ok(idle)
    }
}

fn connect(path: &Path) -> Result<UnixStream> {
    let begun = Instant::now();
    loop {
        match UnixStream::connect(path) {
            Err(_) if begun.elapsed() < PATIENCE => thread::sleep(Duration::from_millis(10)),
            connected => return connected.context("the load opens no device"),
        }
    }
}
