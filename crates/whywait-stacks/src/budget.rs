//! How much memory may be kept of the target, for all that is kept together.
//!
//! Its files, its memory and what it writes for profilers decide how much there is to keep: unwind
//! tables, mappings, names. Whoever keeps something takes its bytes here, and gives them back by
//! dropping the [`Charge`].

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

/// Far more than the largest of servers needs: a browser's unwind tables are some 30 MB, and a
/// runtime's map of compiled functions some MB.
const KEPT: usize = 128 << 20;

/// Bytes that are left, shared between all that keep something.
#[derive(Debug, Clone)]
pub(crate) struct Budget(Arc<Account>);

#[derive(Debug)]
struct Account {
    left: AtomicUsize,
    refused: AtomicU64,
}

impl Default for Budget {
    fn default() -> Self {
        Self::of(KEPT)
    }
}

impl Budget {
    pub(crate) fn of(bytes: usize) -> Self {
        Self(Arc::new(Account {
            left: AtomicUsize::new(bytes),
            refused: AtomicU64::new(0),
        }))
    }

    /// Bytes for something that is to be kept; `None`: there are not that many left, which is
    /// counted.
    pub(crate) fn take(&self, bytes: usize) -> Option<Charge> {
        let mut charge = self.nothing();
        charge.grow(bytes).then_some(charge)
    }

    /// A charge that is to grow.
    pub(crate) fn nothing(&self) -> Charge {
        Charge {
            budget: self.clone(),
            bytes: 0,
        }
    }

    /// Whether little is left: what can be read again is to go.
    pub(crate) fn is_short(&self) -> bool {
        self.0.left.load(Relaxed) < KEPT / 16
    }

    /// How often there were not enough.
    pub(crate) fn refused(&self) -> u64 {
        self.0.refused.load(Relaxed)
    }

    /// Something was not kept although there were bytes left: it alone was too large.
    pub(crate) fn refuse(&self) {
        self.0.refused.fetch_add(1, Relaxed);
    }
}

/// Bytes that were taken, until it is dropped.
#[derive(Debug)]
pub(crate) struct Charge {
    budget: Budget,
    bytes: usize,
}

impl Charge {
    /// One of the same budget that has nothing.
    pub(crate) fn emptied(&self) -> Self {
        self.budget.nothing()
    }

    /// Something was left out before it was charged for.
    pub(crate) fn refused(&self) {
        self.budget.refuse();
    }

    /// Takes more; whether there were as many left.
    pub(crate) fn grow(&mut self, bytes: usize) -> bool {
        let account = &self.budget.0;
        let taken = account
            .left
            .fetch_update(Relaxed, Relaxed, |left| left.checked_sub(bytes));
        match taken {
            Ok(_) => self.bytes += bytes,
            Err(_) => self.budget.refuse(),
        }
        taken.is_ok()
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.budget.0.left.fetch_add(self.bytes, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_dropped_can_be_taken_again() {
        let budget = Budget::of(100);
        let mut one = budget.take(60).unwrap();
        assert!(budget.take(50).is_none());
        assert!(one.grow(40) && !one.grow(1));
        assert_eq!(budget.refused(), 2);
        drop(one);
        assert!(budget.take(100).is_some());
    }
}
