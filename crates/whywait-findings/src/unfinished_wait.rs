//! `unfinished-wait`: a thread still waited when the recording ended, and nothing was seen that would end it.
//!
//! **Invariant.** A wait that requests depend on ends.

use whywait_model::Model;

use crate::finding::Finding;

/// What `whywait explain unfinished-wait` says.
pub(crate) const EXPLAIN: &str = include_str!("explain/unfinished-wait.md");

pub(crate) fn detect(_model: &Model) -> Vec<Finding> {
    Vec::new()
}
