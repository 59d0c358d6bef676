//! Sends packets through the ring. The loop, with a switch for everything that was blamed for its
//! slowness.

use std::collections::VecDeque;
use std::fmt::Write;
use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, Sender};
use std::time::Instant;

use anyhow::{Context, Result};

use crate::Buffer;
use crate::ingress::Packet;
use crate::ring::SendRing;
use crate::stats::{Stats, add, ns};

/// When a step is made that the regression postponed.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Order {
    /// Right behind the step before it.
    AtOnce,
    /// Later in the main loop.
    Later,
}

/// How the egress works.
#[derive(Clone, Copy)]
pub(crate) struct Switches {
    /// `AtOnce`: behind the submission; `Later`: in the next round, when its batch has been
    /// prepared.
    pub(crate) reap: Order,
    /// `AtOnce`: behind the preparation; `Later`: when completions have been looked for.
    pub(crate) submit: Order,
    /// Most packets taken over from the ingress in a round.
    pub(crate) drain: usize,
    /// A queue whose front can be taken without moving all others.
    pub(crate) deque: bool,
    /// Entries of the submission queue, and most operations in flight.
    pub(crate) depth: u32,
    /// Most operations prepared in a round.
    pub(crate) batch: usize,
    /// Whether a line is formatted for each packet.
    pub(crate) log: bool,
}

impl Switches {
    /// As in the regression.
    pub(crate) fn published() -> Self {
        Self {
            reap: Order::Later,
            submit: Order::Later,
            drain: usize::MAX,
            deque: false,
            depth: 64,
            batch: 32,
            log: false,
        }
    }
}

/// Packets that wait for a slot.
enum Queue {
    Vec(Vec<Packet>),
    Deque(VecDeque<Packet>),
}

impl Queue {
    fn push(&mut self, packet: Packet) {
        match self {
            Self::Vec(queue) => queue.push(packet),
            Self::Deque(queue) => queue.push_back(packet),
        }
    }

    fn pop(&mut self) -> Option<Packet> {
        match self {
            // The fault: all the others move up by one.
            Self::Vec(queue) => (!queue.is_empty()).then(|| queue.remove(0)),
            Self::Deque(queue) => queue.pop_front(),
        }
    }

    fn len(&self) -> usize {
        match self {
            Self::Vec(queue) => queue.len(),
            Self::Deque(queue) => queue.len(),
        }
    }
}

/// The lines that were logged last. Writing them is somebody else's.
struct Log {
    lines: VecDeque<String>,
}

const LINES_KEPT: usize = 512;

impl Log {
    #[inline(never)]
    fn format_log_line(&mut self, packet: &Packet) {
        let mut line = String::new();
        let since = packet.received.elapsed();
        let head: Vec<_> = packet.head[..64]
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        // Writing into a string does not fail.
        write!(
            line,
            "relay: packet={} from={} length={} queued={since:?} head={}",
            packet.number,
            packet.from,
            packet.length,
            head.join(":"),
        )
        .ok();
        if self.lines.len() == LINES_KEPT {
            self.lines.pop_front();
        }
        self.lines.push_back(line);
    }
}

/// The egress thread's own.
pub(crate) struct Egress {
    ring: SendRing,
    switches: Switches,
    queue: Queue,
    log: Log,
    give_back: Sender<Buffer>,
    stats: Arc<Stats>,
    /// When the last submission's call returned.
    submitted: Instant,
}

impl Egress {
    pub(crate) fn new(
        socket: UdpSocket,
        switches: Switches,
        give_back: Sender<Buffer>,
        stats: Arc<Stats>,
    ) -> Result<Self> {
        Ok(Self {
            ring: SendRing::new(socket, switches.depth)?,
            queue: if switches.deque {
                Queue::Deque(VecDeque::new())
            } else {
                Queue::Vec(Vec::new())
            },
            switches,
            log: Log {
                lines: VecDeque::with_capacity(LINES_KEPT),
            },
            give_back,
            stats,
            submitted: Instant::now(),
        })
    }

    /// Relays for good. Spins while anything is in flight.
    pub(crate) fn run(&mut self, ingress: &Receiver<Packet>) -> Result<()> {
        self.stats
            .egress_tid
            .store(u64::try_from(lab_kit::tid()?)?, Ordering::Relaxed);
        let Switches { reap, submit, .. } = self.switches;
        loop {
            let begun = Instant::now();
            if self.ring.in_flight() == 0 && self.queue.len() == 0 {
                let packet = ingress.recv().context("the ingress has ended")?;
                self.queue.push(packet);
            }
            let awake = Instant::now();
            add(&self.stats.idle, ns(awake - begun));
            self.drain_ingress(ingress);
            let drained = Instant::now();
            add(&self.stats.draining, ns(drained - awake));
            self.prepare_batch()?;
            add(&self.stats.preparing, ns(drained.elapsed()));
            if submit == Order::AtOnce {
                self.submit_batch()?;
            }
            if reap == Order::Later || submit == Order::AtOnce {
                self.reap_completions()?;
            }
            if submit == Order::Later {
                self.submit_batch()?;
                if reap == Order::AtOnce {
                    self.reap_completions()?;
                }
            }
            add(&self.stats.rounds, 1);
        }
    }

    /// Takes over what the ingress has received.
    #[inline(never)]
    fn drain_ingress(&mut self, ingress: &Receiver<Packet>) {
        for packet in ingress.try_iter().take(self.switches.drain) {
            self.queue.push(packet);
        }
        add(&self.stats.queued, self.queue.len() as u64);
    }

    /// Takes packets from the queue's front, as many as there are slots, and a batch at most.
    #[inline(never)]
    fn prepare_batch(&mut self) -> Result<()> {
        let room = self.ring.free().min(self.switches.batch);
        for _ in 0..room {
            let Some(packet) = self.queue.pop() else {
                break;
            };
            if self.switches.log {
                self.log.format_log_line(&packet);
            }
            self.ring.prepare(packet)?;
        }
        self.stats
            .most_in_flight
            .fetch_max(self.ring.in_flight() as u64, Ordering::Relaxed);
        Ok(())
    }

    /// Hands what was prepared to the kernel. What is left to do afterwards keeps its frame on the
    /// stack.
    #[inline(never)]
    fn submit_batch(&mut self) -> Result<()> {
        let begun = Instant::now();
        self.ring.submit()?;
        self.submitted = Instant::now();
        add(&self.stats.submitting, ns(self.submitted - begun));
        Ok(())
    }

    /// Takes completions, and gives their buffers back to the pool.
    #[inline(never)]
    fn reap_completions(&mut self) -> Result<()> {
        let begun = Instant::now();
        let (mut sent, mut failed) = (0, 0);
        let give_back = &self.give_back;
        self.ring.reap(|packet, result| {
            if result.is_ok() {
                sent += 1
            } else {
                failed += 1
            }
            // The ingress is only gone when all is over.
            give_back.send(packet.buffer).ok();
        });
        add(&self.stats.sent, sent);
        add(&self.stats.send_failures, failed);
        add(
            &self.stats.unreaped,
            (sent + failed) * ns(begun - self.submitted),
        );
        add(&self.stats.reaping, ns(begun.elapsed()));
        Ok(())
    }
}
