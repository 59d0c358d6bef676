//! `serial-work`: one thread's work on the CPU is where slow requests spent most of their time.
//!
//! **Invariant.** No single thread's CPU time dominates the slow requests' critical path.

use whywait_model::Model;

use crate::finding::Finding;

/// What `whywait explain serial-work` says.
pub(crate) const EXPLAIN: &str = include_str!("explain/serial-work.md");

pub(crate) fn detect(_model: &Model) -> Vec<Finding> {
    Vec::new()
}
