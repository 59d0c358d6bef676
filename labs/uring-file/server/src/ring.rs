//! A ring whose operations read into blocks of its own. All that is unsafe is here.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, RawFd};

use anyhow::{Context, Result, ensure};
use io_uring::{Builder, IoUring, opcode, squeue, types};

use crate::{BLOCK, Lab};

/// The number of a descriptor that may have been closed.
pub(crate) struct Closed(pub(crate) RawFd);

impl AsRawFd for Closed {
    fn as_raw_fd(&self) -> RawFd {
        self.0
    }
}

/// A ring, and a block for each operation that can be on its way.
pub(crate) struct ReadRing {
    ring: IoUring,
    blocks: Vec<Box<[u8; BLOCK]>>,
    /// Whether the kernel may write to the block.
    busy: Vec<bool>,
}

impl ReadRing {
    /// A ring of so many entries, with so many blocks.
    pub(crate) fn new(builder: &Builder, entries: u32, blocks: usize) -> Result<Self> {
        Ok(Self {
            ring: builder.build(entries)?,
            blocks: (0..blocks).map(|_| Box::new([0; BLOCK])).collect(),
            busy: vec![false; blocks],
        })
    }

    /// Queues a read at the file's beginning into the block. The kernel sees it, but does nothing
    /// until it is submitted.
    pub(crate) fn queue_read(
        &mut self,
        from: &impl AsRawFd,
        block: usize,
        length: usize,
        flags: squeue::Flags,
    ) -> Result<()> {
        ensure!(
            length <= BLOCK && self.busy.get(block) == Some(&false),
            "no such free block: {block}"
        );
        self.busy[block] = true;
        let entry = opcode::Read::new(
            types::Fd(from.as_raw_fd()),
            self.blocks[block].as_mut_ptr(),
            u32::try_from(length)?,
        )
        .build()
        .flags(flags)
        .user_data(block as u64);
        // SAFETY: the block is this ring's, stays where it is, and is nobody else's until the
        // operation is reaped.
        unsafe { self.ring.submission().push(&entry) }.context("the submission queue is full")
    }

    /// Queues a splice of so many bytes, which is known by the block; nothing is put there.
    pub(crate) fn queue_splice(
        &mut self,
        from: &impl AsRawFd,
        to: &impl AsRawFd,
        block: usize,
        length: u32,
    ) -> Result<()> {
        let (from, to) = (types::Fd(from.as_raw_fd()), types::Fd(to.as_raw_fd()));
        let entry = opcode::Splice::new(from, -1, to, -1, length)
            .build()
            .user_data(block as u64);
        // SAFETY: it has no memory of this process.
        unsafe { self.ring.submission().push(&entry) }.context("the submission queue is full")
    }

    /// Hands what is queued to the kernel, and waits until so many completions are there.
    pub(crate) fn submit(&self, wait_for: usize) -> Result<()> {
        self.ring.submit_and_wait(wait_for)?;
        Ok(())
    }

    /// Whether the kernel has completions that its queue had no room for.
    pub(crate) fn overflown(&mut self) -> bool {
        self.ring.submission().cq_overflow()
    }

    /// Takes the results that are there, as they are.
    pub(crate) fn take_results(&mut self) -> Vec<i32> {
        let mut results = Vec::new();
        for entry in self.ring.completion() {
            if let Some(busy) = usize::try_from(entry.user_data())
                .ok()
                .and_then(|block| self.busy.get_mut(block))
            {
                *busy = false;
            }
            results.push(entry.result());
        }
        results
    }

    /// Takes the completions that are there: for each the block, and what is in it.
    pub(crate) fn reap(&mut self, mut done: impl FnMut(usize, &[u8])) -> Result<usize> {
        let mut reaped = 0;
        for entry in self.ring.completion() {
            let block = usize::try_from(entry.user_data())?;
            let length = usize::try_from(entry.result())
                .map_err(|_| io::Error::from_raw_os_error(-entry.result()))?;
            self.busy[block] = false;
            done(block, &self.blocks[block][..length]);
            reaped += 1;
        }
        Ok(reaped)
    }
}

impl Drop for ReadRing {
    fn drop(&mut self) {
        // The kernel may still write to what is on its way.
        std::mem::forget(std::mem::take(&mut self.blocks));
    }
}

/// A file of one block, which is in the page cache.
pub(crate) fn cached_file(lab: &Lab) -> Result<File> {
    let path = lab.dir.join("data");
    std::fs::write(&path, [0x5a; BLOCK])?;
    Ok(File::open(path)?)
}
