//! io_uring: operations that the kernel still had when it was looked at last.

use std::collections::BTreeMap;

use whywait_events::Ns;
use whywait_events::uring::{Pending, opcode_name};

/// Groups of such operations that are kept, for each ring.
const MAX_GROUPS: usize = 4096;

/// Of a ring: those of an opcode on a descriptor are a group.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Pendings {
    /// By opcode and descriptor.
    pub groups: BTreeMap<(u32, i32), PendingGroup>,
    /// Those that found no room there.
    pub left_out: u64,
    /// When they were seen.
    pub seen_ns: Ns,
    /// How many operations of the ring the kernel had then, however old.
    pub in_flight: u64,
}

/// Operations of an opcode on a descriptor.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PendingGroup {
    /// How many.
    pub count: u64,
    /// Of them: the program has closed the descriptor since.
    pub closed: u64,
    /// When the first of them was submitted.
    pub first_ns: Ns,
    /// When the last of them was.
    pub last_ns: Ns,
    /// When they were seen.
    pub seen_ns: Ns,
    /// Who submitted the first.
    pub tid: u32,
    /// The kind of the file: see [`Pending`].
    pub kind: u32,
    /// The type of the socket.
    pub socket_type: u32,
}

impl Pendings {
    pub(super) fn add(&mut self, pending: &Pending) {
        if pending.seen_ns < self.seen_ns {
            return;
        }
        if pending.seen_ns > self.seen_ns {
            *self = Self {
                seen_ns: pending.seen_ns,
                ..Self::default()
            };
        }
        self.in_flight = self.in_flight.max(u64::from(pending.in_flight));
        let key = (pending.opcode, pending.fd);
        if self.groups.len() >= MAX_GROUPS && !self.groups.contains_key(&key) {
            self.left_out = self.left_out.saturating_add(1);
            return;
        }
        let group = self.groups.entry(key).or_insert_with(|| PendingGroup {
            first_ns: pending.submit_ns,
            tid: pending.tid,
            kind: pending.kind,
            socket_type: pending.socket_type,
            ..PendingGroup::default()
        });
        group.count += 1;
        group.closed += u64::from(pending.closed);
        if pending.submit_ns < group.first_ns {
            group.first_ns = pending.submit_ns;
            group.tid = pending.tid;
        }
        group.last_ns = group.last_ns.max(pending.submit_ns);
        group.seen_ns = pending.seen_ns;
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        let counted = self.groups.values().map(|group| group.count);
        counted.fold(self.left_out, u64::saturating_add)
    }

    /// For how long the oldest had been with the kernel, nanoseconds; `None` without any.
    pub fn oldest_ns(&self) -> Option<u64> {
        let groups = self.groups.values();
        groups.map(PendingGroup::oldest_ns).max()
    }

    /// How many of each opcode.
    pub fn by_opcode(&self) -> BTreeMap<&'static str, u64> {
        let mut counts = BTreeMap::new();
        for ((opcode, _), group) in &self.groups {
            let count: &mut u64 = counts.entry(opcode_name(*opcode)).or_default();
            *count = count.saturating_add(group.count);
        }
        counts
    }
}

impl PendingGroup {
    /// For how long the oldest had been with the kernel, nanoseconds.
    pub fn oldest_ns(&self) -> u64 {
        self.seen_ns.saturating_sub(self.first_ns)
    }

    /// Over how long they were submitted, nanoseconds.
    pub fn spread_ns(&self) -> u64 {
        self.last_ns.saturating_sub(self.first_ns)
    }
}
