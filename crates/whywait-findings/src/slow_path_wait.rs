//! `slow-path-wait`: one wait is where slow requests spent most of their time.
//!
//! **Invariant.** No single wait (device, writeback, sleep, peer) dominates the slow requests' critical path.

use whywait_model::Model;

use crate::finding::Finding;

/// What `whywait explain slow-path-wait` says.
pub(crate) const EXPLAIN: &str = include_str!("explain/slow-path-wait.md");

pub(crate) fn detect(_model: &Model) -> Vec<Finding> {
    Vec::new()
}
