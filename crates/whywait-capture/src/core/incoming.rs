//! What comes out of the ring buffers, until the recorder takes it.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Instant;

use libbpf_rs::{RingBuffer, RingBufferBuilder};

use super::error::CaptureError;
use super::programs::{Programs, load_error};
use super::records::{Record, decode};
use super::wakeups::PAUSE;

/// Records that may wait in memory for being looked at.
const MAX_WAITING_BYTES: usize = 64 << 20;

/// The ring buffers, and what has come out of them and was not looked at yet.
pub(crate) struct Incoming {
    rings: RingBuffer<'static>,
    arrived: Rc<RefCell<Arrived>>,
}

#[derive(Default)]
pub(crate) struct Arrived {
    pub(crate) records: Vec<Record>,
    /// From a ring of their own, in the order of time as the others.
    pub(crate) samples: Vec<Record>,
    pub(crate) undecodable: usize,
    bytes: usize,
}

impl Incoming {
    pub(crate) fn of(programs: &Programs) -> Result<Self, CaptureError> {
        let arrived = Rc::<RefCell<Arrived>>::default();
        let mut builder = RingBufferBuilder::new();
        for map in [&programs.skel.maps.records, &programs.skel.maps.stacks] {
            let arrived = arrived.clone();
            let add = move |bytes: &[u8]| {
                arrived.borrow_mut().add(bytes);
                0
            };
            builder.add(map, add).map_err(|error| load_error(&error))?;
        }
        let rings = builder.build().map_err(|error| load_error(&error))?;
        Ok(Self { rings, arrived })
    }

    /// Empties the rings into memory.
    pub(crate) fn consume(&self) {
        // An error of consume is that of the callback, which has none.
        let _ = self.rings.consume();
    }

    /// Unwinding thousands of stacks takes longer than the rings last: empties them in between, for
    /// later. Memory is bounded: beyond that the rings fill, and count what they lose.
    pub(crate) fn keep_up(&self, consumed: &mut Instant) {
        if consumed.elapsed() >= PAUSE && self.arrived.borrow().bytes < MAX_WAITING_BYTES {
            self.consume();
            *consumed = Instant::now();
        }
    }

    pub(crate) fn take(&self) -> Arrived {
        std::mem::take(&mut *self.arrived.borrow_mut())
    }
}

impl Arrived {
    fn add(&mut self, bytes: &[u8]) {
        self.bytes += bytes.len();
        match decode(bytes) {
            Some((record @ Record::Sample(..), _)) => self.samples.push(record),
            Some((record, _)) => self.records.push(record),
            None => self.undecodable += 1,
        }
    }
}

/// When a sample was taken.
pub(crate) fn sample_ns(record: &Record) -> u64 {
    match record {
        Record::Sample(sample, _) => sample.at_ns,
        _ => 0,
    }
}
