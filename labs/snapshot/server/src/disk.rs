//! The snapshot that is a file, and the sibling that uses the same disk.

use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Result;
use lab_kit::named;
use rustix::fs::{FallocateFlags, fallocate};

const MB: usize = 1 << 20;
/// So much is written between two syncs: enough that a sync is a wait for the disk, not for one
/// block.
const REGION_MB: u64 = 8;
/// What a snapshot that is written anew shall take. The disk's speed decides how large it is.
const EPISODE: Duration = Duration::from_millis(220);
/// Even the slowest disk writes the smallest ten times within the lab's time; the largest leaves
/// room on a small one.
const SIZES_MB: (u64, u64) = (REGION_MB, 256);
/// Large next to the snapshot's regions, so that a region seldom finds the disk idle.
const SIBLING_MB: u64 = 96;

/// How the file is written.
#[derive(Clone, Copy)]
pub(crate) enum Way {
    /// Truncated, then written: every block is allocated while it is written back.
    Anew,
    /// As `Anew`, with all blocks allocated before the first is written.
    Allocated,
    /// Allocated and filled before the first snapshot, then overwritten.
    InPlace,
}

/// A file for the snapshots.
pub(crate) struct Disk {
    path: PathBuf,
    way: Way,
    mb: u64,
}

impl Disk {
    /// Starts the sibling, and finds out how large a snapshot must be unless that is given.
    pub(crate) fn start(dir: &Path, way: Way, mb: Option<u64>) -> Result<Self> {
        let sibling = Sibling::prepare(dir)?;
        named("copier", move || sibling.copy_forever())?;
        let path = dir.join("snapshot");
        let mb = match mb {
            Some(mb) => mb,
            None => size_for_episode(&path)?,
        };
        let disk = Self { path, way, mb };
        if let Way::InPlace = way {
            let file = File::create(&disk.path)?;
            fallocate(&file, FallocateFlags::empty(), 0, disk.mb * MB as u64)?;
            write_regions(&file, disk.mb)?;
        }
        Ok(disk)
    }

    pub(crate) fn mb(&self) -> u64 {
        self.mb
    }

    pub(crate) fn write(&self) -> io::Result<()> {
        write_snapshot(&self.path, self.way, self.mb)
    }
}

/// Measures the disk with the sibling at work, as it will be.
fn size_for_episode(path: &Path) -> Result<u64> {
    let begun = Instant::now();
    let mut mb = 0;
    while begun.elapsed() < EPISODE * 3 {
        write_snapshot(path, Way::Anew, REGION_MB * 2)?;
        mb += REGION_MB * 2;
    }
    let per_mb = begun.elapsed().as_secs_f64() / mb as f64;
    let regions = EPISODE.as_secs_f64() / per_mb / REGION_MB as f64;
    Ok((regions.round() as u64 * REGION_MB).clamp(SIZES_MB.0, SIZES_MB.1))
}

/// Writes and syncs the whole file. Not inlined, and with work left after its last call, so that
/// its frame is in the stack of a release build.
#[inline(never)]
fn write_snapshot(path: &Path, way: Way, mb: u64) -> io::Result<()> {
    let file = match way {
        Way::InPlace => File::options().write(true).open(path)?,
        Way::Anew | Way::Allocated => File::create(path)?,
    };
    if let Way::Allocated = way {
        fallocate(&file, FallocateFlags::empty(), 0, mb * MB as u64)?;
    }
    let written = write_regions(&file, mb);
    drop(file);
    written
}

fn write_regions(mut file: &File, mb: u64) -> io::Result<()> {
    let page = vec![0x5a; MB];
    for written in 1..=mb {
        file.write_all(&page)?;
        if written.is_multiple_of(REGION_MB) || written == mb {
            file.sync_all()?;
        }
    }
    Ok(())
}

/// Somebody else on the same disk: copies one file to another over and over.
struct Sibling {
    source: File,
    copy: PathBuf,
}

impl Sibling {
    fn prepare(dir: &Path) -> Result<Self> {
        let path = dir.join("source");
        write_regions(&File::create(&path)?, SIBLING_MB)?;
        Ok(Self {
            source: File::open(path)?,
            copy: dir.join("copy"),
        })
    }

    fn copy_forever(mut self) {
        loop {
            if let Err(error) = self.copy_once() {
                // Without it the disk is quiet, and the lab shows nothing: its promise says so.
                eprintln!("snapshot: the sibling cannot copy: {error}");
                return;
            }
        }
    }

    /// Reads and writes rather than copy in the kernel, where some filesystems only share the
    /// blocks.
    fn copy_once(&mut self) -> io::Result<()> {
        let mut page = vec![0; MB];
        self.source.rewind()?;
        let mut copy = File::create(&self.copy)?;
        for _ in 0..SIBLING_MB {
            self.source.read_exact(&mut page)?;
            copy.write_all(&page)?;
        }
        copy.sync_all()
    }
}
