//! A thread-per-connection server: each request computes for a millisecond, then
//! changes a table that all share, under a lock.
//!
//! How long the lock is held is CPU time: where the machine has no CPU for the holder, the others
//! wait for as long as that lasts, however short the work is.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Result;
use lab_kit::sync::{Mutex as Lock, lock};
use lab_kit::{http, summary};
use rustix::time::{ClockId, clock_gettime};
use serde_json::json;

/// What a request computes by itself.
const RENDER: Duration = Duration::from_millis(1);

fn main() -> Result<()> {
    let hold = parse_args()?;
    let table = Lock::new(0u64);
    let waits = Mutex::new(Vec::new());
    http::serve(move |path| {
        let waits = || waits.lock().unwrap_or_else(PoisonError::into_inner);
        if path == "/about" {
            return Ok(json!({ "lock_wait": summary(waits().clone()) }).to_string());
        }
        let page = render(RENDER);
        let waited = update_table(&table, page, hold);
        waits().push(waited);
        Ok("done".to_owned())
    })
}

fn parse_args() -> Result<Duration> {
    use lexopt::prelude::*;
    let mut hold_us = 300;
    let mut parser = lexopt::Parser::from_env();
    while let Some(arg) = parser.next()? {
        match arg {
            Long("hold-us") => hold_us = parser.value()?.parse()?,
            _ => return Err(arg.unexpected().into()),
        }
    }
    Ok(Duration::from_micros(hold_us))
}

/// Not inlined, so that its frame is in the stack of a release build.
#[inline(never)]
fn render(work: Duration) -> u64 {
    compute(work)
}

/// Says how long it took to get the lock.
#[inline(never)]
fn update_table(table: &Lock<u64>, page: u64, work: Duration) -> Duration {
    let begun = Instant::now();
    let mut table = lock(table);
    let waited = begun.elapsed();
    *table = table.wrapping_add(page).wrapping_add(compute(work));
    waited
}

/// Takes so much CPU time of the thread, however long that takes.
fn compute(work: Duration) -> u64 {
    let cpu_time = || {
        let time = clock_gettime(ClockId::ThreadCPUTime);
        Duration::new(
            time.tv_sec.unsigned_abs(),
            u32::try_from(time.tv_nsec).unwrap_or(0),
        )
    };
    let begun = cpu_time();
    let mut sum = 0u64;
    while cpu_time() - begun < work {
        for n in 0..1_000u64 {
            sum = std::hint::black_box(sum.wrapping_mul(31).wrapping_add(n));
        }
    }
    sum
}
