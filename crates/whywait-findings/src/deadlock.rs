//! `deadlock`: threads wait for locks in a circle: none of them ever goes on.
//!
//! **Invariant.** A thread that holds a lock does not wait for one whose holder waits for it.

use whywait_model::Model;

use crate::finding::Finding;

/// What `whywait explain deadlock` says.
pub(crate) const EXPLAIN: &str = include_str!("explain/deadlock.md");

pub(crate) fn detect(_model: &Model) -> Vec<Finding> {
    Vec::new()
}
