//! Sends through an io_uring. All that is unsafe about it is here.
#![allow(unsafe_code)]

use std::io;
use std::net::UdpSocket;
use std::os::fd::AsRawFd;

use anyhow::{Result, ensure};
use io_uring::{IoUring, opcode, types};

use crate::ingress::Packet;

/// A ring with the packets that are in flight in it.
pub(crate) struct SendRing {
    ring: IoUring,
    socket: UdpSocket,
    /// By the user data of their operations.
    slots: Vec<Option<Packet>>,
    free: Vec<usize>,
    prepared: usize,
}

impl SendRing {
    pub(crate) fn new(socket: UdpSocket, depth: u32) -> Result<Self> {
        let ring = IoUring::new(depth)?;
        let slots = depth as usize;
        ensure!(
            ring.params().sq_entries() >= depth,
            "a ring of less than {depth} entries"
        );
        Ok(Self {
            ring,
            socket,
            slots: (0..slots).map(|_| None).collect(),
            free: (0..slots).rev().collect(),
            prepared: 0,
        })
    }

    /// Operations that are prepared, or in flight, or not reaped.
    pub(crate) fn in_flight(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Operations that can be prepared.
    pub(crate) fn free(&self) -> usize {
        self.free.len()
    }

    /// Puts the packet's send into the submission queue. There must be a slot free.
    pub(crate) fn prepare(&mut self, packet: Packet) -> Result<()> {
        let slot = self.free.pop();
        ensure!(slot.is_some(), "no slot is free");
        let slot = slot.unwrap_or_default();
        let packet = self.slots[slot].insert(packet);
        let entry = opcode::Send::new(
            types::Fd(self.socket.as_raw_fd()),
            packet.buffer.as_ptr(),
            packet.length,
        )
        .build()
        .user_data(slot as u64);
        // SAFETY: the buffer's box is in its slot until the operation's completion is reaped, and
        // the socket lives as long as the ring.
        unsafe { self.ring.submission().push(&entry)? };
        self.prepared += 1;
        Ok(())
    }

    /// Hands all that is prepared to the kernel. Returns how much that was.
    pub(crate) fn submit(&mut self) -> Result<usize> {
        let submitted = if self.prepared == 0 {
            0
        } else {
            self.ring.submit()?
        };
        self.prepared -= submitted;
        Ok(submitted)
    }

    /// Takes the completions that are there, and gives each packet with its send's result to
    /// `done`.
    pub(crate) fn reap(&mut self, mut done: impl FnMut(Packet, io::Result<u32>)) {
        for entry in self.ring.completion() {
            let slot = usize::try_from(entry.user_data()).unwrap_or(usize::MAX);
            let Some(packet) = self.slots.get_mut(slot).and_then(Option::take) else {
                continue;
            };
            self.free.push(slot);
            let result = u32::try_from(entry.result())
                .map_err(|_| io::Error::from_raw_os_error(-entry.result()));
            done(packet, result);
        }
    }
}

impl Drop for SendRing {
    fn drop(&mut self) {
        // The kernel may still read the buffers of what is in flight.
        for packet in self.slots.drain(..).flatten() {
            std::mem::forget(packet);
        }
    }
}
