//! Programs on io_uring, each with one fault and a fixed twin, as in `main.c` beside this, but with
//! the io-uring crate, whose queues the kernel sees as soon as an entry is pushed. It runs for a
//! few seconds, leaves the truth in the folder that it was given, and waits to be ended.

mod batches;
mod cross;
mod device;
mod lost;
mod ring;
mod storm;
mod work;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::Value;

/// How long a fault is shown.
pub(crate) const RUN: Duration = Duration::from_secs(3);
pub(crate) const BLOCK: usize = 4096;

/// The folder of the run, and which of the twins this is.
pub(crate) struct Lab {
    pub(crate) dir: PathBuf,
    pub(crate) fixed: bool,
}

fn main() -> Result<()> {
    let words: Vec<_> = std::env::args().skip(1).collect();
    let (fault, dir, fixed) = match words.as_slice() {
        [fault, dir] => (fault, dir, false),
        [fault, dir, fixed] if fixed == "--fixed" => (fault, dir, true),
        _ => bail!("usage: uring-file FAULT DIR [--fixed]"),
    };
    let show = match fault.as_str() {
        "reap-lag" => device::reap_lag,
        "late-once" => device::late_once,
        "unsubmitted" => device::unsubmitted,
        "cross-thread" => cross::cross_thread,
        "cq-overflow" => batches::cq_overflow,
        "punt-storm" => batches::punt_storm,
        "one-a-batch" => batches::one_a_batch,
        "errors" => lost::errors,
        "leak" => lost::leak,
        "worker-storm" => storm::worker_storm,
        other => bail!("there is no fault {other}"),
    };
    lab_kit::announce(dir)?;
    let lab = Lab {
        dir: dir.into(),
        fixed,
    };
    tell_truth(&lab.dir, &show(&lab)?)?;
    loop {
        std::thread::park();
    }
}

/// Leaves the truth for the load, whole or not at all.
fn tell_truth(dir: &Path, truth: &Value) -> Result<()> {
    let part = dir.join("truth.part");
    std::fs::write(&part, format!("{truth}\n"))?;
    std::fs::rename(&part, dir.join("truth.json")).context("cannot tell the truth")
}
