//! io_uring: operations that failed, as far as they have rows.

use std::collections::BTreeMap;

use whywait_events::uring::Op;

use super::RingState;

/// Descriptors of failed operations that are kept, for each opcode and error.
const MAX_DESCRIPTORS: usize = 64;
/// Descriptors whose operations succeeded that are kept, for each ring.
const MAX_SUCCEEDED: usize = 4096;

/// The failed operations of an opcode with one error.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Failures {
    /// How many have rows.
    pub count: u64,
    /// On which descriptors (or numbers of registered files), as far as they are kept.
    pub descriptors: BTreeMap<i32, u64>,
}

impl RingState {
    /// Takes in the result of an operation that has a row.
    pub(super) fn add_result(&mut self, op: &Op) {
        if op.result >= 0 {
            let key = (op.opcode, op.fd);
            if self.succeeded.len() < MAX_SUCCEEDED || self.succeeded.contains_key(&key) {
                *self.succeeded.entry(key).or_default() += 1;
            }
            return;
        }
        let errno = op.result.saturating_neg();
        let failures = self.failures.entry((op.opcode, errno)).or_default();
        failures.count += 1;
        let descriptors = &mut failures.descriptors;
        if descriptors.len() < MAX_DESCRIPTORS || descriptors.contains_key(&op.fd) {
            *descriptors.entry(op.fd).or_default() += 1;
        }
    }

    /// Whether all descriptors on which operations succeeded are kept.
    pub fn has_all_results(&self) -> bool {
        self.succeeded.len() < MAX_SUCCEEDED
    }

    /// How many operations of an opcode have rows and failed with an error for which `is` holds.
    pub fn failures_where(&self, opcode: u32, is: impl Fn(i32) -> bool) -> u64 {
        let of_opcode = self.failures.range((opcode, i32::MIN)..=(opcode, i32::MAX));
        of_opcode
            .filter(|((_, errno), _)| is(*errno))
            .map(|(_, failures)| failures.count)
            .fold(0, u64::saturating_add)
    }
}
