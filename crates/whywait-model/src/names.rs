//! What requests and calls are called, where the recording has names.

use crate::maps::HashMap;
use whywait_events::{NameKind, NameRow};

/// So many names are kept: a stranger's recording may have any number of rows.
const MAX_NAMED: usize = 1_000_000;

/// What requests and calls are called.
#[derive(Debug, Clone, Default)]
pub(crate) struct GivenNames {
    /// Each once.
    names: Vec<(NameKind, String)>,
    numbers: HashMap<(NameKind, String), u32>,
    /// Which name each has: by connection, and number on it. Those of requests and of calls have
    /// numbers of their own.
    of: HashMap<(u64, u32), u32>,
    left_out: u64,
}

impl GivenNames {
    /// A later row replaces an earlier one.
    pub(crate) fn add(&mut self, row: &NameRow) {
        let key = (row.socket, row.seq);
        if self.of.len() >= MAX_NAMED && !self.of.contains_key(&key) {
            self.left_out = self.left_out.saturating_add(1);
            return;
        }
        let next = self.names.len() as u32;
        let name = (row.kind, row.name.clone());
        let number = *self.numbers.entry(name.clone()).or_insert(next);
        if number == next {
            self.names.push(name);
        }
        self.of.insert(key, number);
    }

    /// The name of a request or a call.
    pub(crate) fn of(&self, socket: u64, seq: u32) -> Option<&str> {
        let number = self.of.get(&(socket, seq))?;
        self.names.get(*number as usize).map(|(_, name)| &**name)
    }

    pub(crate) fn are_none(&self) -> bool {
        self.of.is_empty()
    }

    pub(crate) fn left_out(&self) -> u64 {
        self.left_out
    }
}
