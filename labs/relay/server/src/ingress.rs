//! Takes packets from the network, each into a buffer of the pool.

use std::net::{SocketAddr, UdpSocket};
use std::sync::mpsc::{Receiver, Sender};
use std::time::Instant;

use anyhow::{Result, bail};

use crate::Buffer;
use crate::stats::{Stats, add};

/// Of each packet's beginning, what is kept with it.
const HEAD: usize = 384;

/// A packet on its way, with what a relay keeps about one.
pub(crate) struct Packet {
    pub(crate) buffer: Buffer,
    /// Headers, where they are at hand.
    pub(crate) head: [u8; HEAD],
    pub(crate) length: u32,
    pub(crate) number: u64,
    pub(crate) from: SocketAddr,
    pub(crate) received: Instant,
}

/// Receives for good. A packet for which there is no buffer is read and forgotten.
#[inline(never)]
pub(crate) fn run(
    socket: &UdpSocket,
    pool: &Receiver<Buffer>,
    queue: &Sender<Packet>,
    stats: &Stats,
) -> Result<()> {
    let mut scratch = [0; 64];
    for number in 0.. {
        let Ok(mut buffer) = pool.try_recv() else {
            socket.recv(&mut scratch)?;
            add(&stats.received, 1);
            add(&stats.allocation_failures, 1);
            continue;
        };
        let (length, from) = socket.recv_from(&mut buffer[..])?;
        add(&stats.received, 1);
        let mut head = [0; HEAD];
        head.copy_from_slice(&buffer[..HEAD]);
        let packet = Packet {
            buffer,
            head,
            length: u32::try_from(length)?,
            number,
            from,
            received: Instant::now(),
        };
        if queue.send(packet).is_err() {
            bail!("the egress has ended");
        }
    }
    Ok(())
}
