//! `lock-contention`: threads waited for a lock that another thread held for long, or held across a wait of its own.
//!
//! **Invariant.** Nobody waits for a lock that another thread holds across a wait, or for long.

use whywait_model::Model;

use crate::finding::Finding;

/// What `whywait explain lock-contention` says.
pub(crate) const EXPLAIN: &str = include_str!("explain/lock-contention.md");

pub(crate) fn detect(_model: &Model) -> Vec<Finding> {
    Vec::new()
}
