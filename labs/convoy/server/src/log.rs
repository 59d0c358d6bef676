//! The log on the disk.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;
use rustix::fs::{FallocateFlags, fallocate};

/// A commit takes at least so long. How much it must write for that, the disk decides.
const COMMIT: Duration = Duration::from_millis(8);
const SIZES_KB: [usize; 6] = [64, 256, 1024, 4096, 16 * 1024, 32 * 1024];

/// A file with room for two states. They are overwritten in turn, so that a torn commit leaves the
/// one before.
pub(crate) struct Log {
    file: File,
    state: Vec<u8>,
    commit: Duration,
}

impl Log {
    /// Makes the file, and the state as large as a commit of `COMMIT` needs it.
    pub(crate) fn create(path: &Path) -> Result<Self> {
        let mut log = Self {
            file: File::create(path)?,
            state: Vec::new(),
            commit: Duration::ZERO,
        };
        for kb in SIZES_KB {
            log.state.resize(kb * 1024, 0x5a);
            fallocate(
                &log.file,
                FallocateFlags::empty(),
                0,
                2 * log.state.len() as u64,
            )?;
            let mut times = Vec::new();
            // The first two fill the file, which takes longer than to overwrite it.
            for entered in 0..7 {
                let begun = Instant::now();
                append_log(&log, entered)?;
                times.push(begun.elapsed());
            }
            times.drain(..2);
            times.sort_unstable();
            log.commit = times[times.len() / 2];
            if log.commit >= COMMIT {
                break;
            }
        }
        Ok(log)
    }

    /// What a commit took before the load began.
    pub(crate) fn commit_time(&self) -> Duration {
        self.commit
    }

    pub(crate) fn commit_mb(&self) -> f64 {
        self.state.len() as f64 / f64::from(1 << 20)
    }
}

/// Writes the state and syncs it. Not inlined, and with work left after the sync, so that its frame
/// is in the stack of a release build.
#[inline(never)]
pub(crate) fn append_log(log: &Log, entered: u64) -> io::Result<()> {
    let slot = entered % 2 * log.state.len() as u64;
    log.file.write_all_at(&log.state, slot)?;
    let synced = log.file.sync_all();
    std::hint::black_box(entered);
    synced
}
