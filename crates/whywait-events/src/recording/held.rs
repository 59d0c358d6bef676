//! Folders that are written to by their descriptors. Whoever owns the folder around one can move it
//! away meanwhile and have a link take its name: what is written still goes to this one.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, fchown};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use rustix::process::geteuid;

/// A folder, open.
#[derive(Debug)]
pub(crate) struct Held {
    folder: File,
    /// What it was called when it was opened.
    name: PathBuf,
}

impl Held {
    /// Makes a folder that only its owner can enter.
    pub(crate) fn make(path: &Path, owner: Option<(u32, u32)>) -> io::Result<Self> {
        DirBuilder::new().mode(0o700).create(path)?;
        let held = Self::open(path)?;
        if held.folder.metadata()?.uid() != geteuid().as_raw() {
            return Err(io::Error::other("another folder took its place"));
        }
        held.give(owner)?;
        Ok(held)
    }

    /// Opens one that is there, not by a link.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        // "link/" would be the folder that the link leads to.
        let name: PathBuf = path.components().collect();
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW;
        let folder = OpenOptions::new()
            .read(true)
            .custom_flags(flags.bits() as i32)
            .open(&name)?;
        Ok(Self { folder, name })
    }

    /// Gives it to its owner.
    pub(crate) fn give(&self, owner: Option<(u32, u32)>) -> io::Result<()> {
        owner.map_or(Ok(()), |(uid, gid)| {
            fchown(&self.folder, Some(uid), Some(gid))
        })
    }

    /// The folder, to be asked and changed.
    pub(crate) fn folder(&self) -> &File {
        &self.folder
    }

    /// A path that leads to this very folder, in this process.
    pub(crate) fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.folder.as_raw_fd()))
    }

    /// Something in it.
    pub(crate) fn at(&self, name: &str) -> PathBuf {
        self.path().join(name)
    }

    /// A path below [`path`](Self::path) as people know it.
    pub(crate) fn shown(&self, path: &Path) -> Option<PathBuf> {
        let below = path.strip_prefix(self.path()).ok()?;
        Some(self.name.components().chain(below.components()).collect())
    }
}
