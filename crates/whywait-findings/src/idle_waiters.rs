//! `idle-waiters`: large waits that cost nothing: the threads wait for work, or for a result that is being made.
//!
//! **Invariant.** None broke: it says which large waits are harmless, and why.

use whywait_model::Model;

use crate::finding::Finding;

/// What `whywait explain idle-waiters` says.
pub(crate) const EXPLAIN: &str = include_str!("explain/idle-waiters.md");

pub(crate) fn detect(_model: &Model) -> Vec<Finding> {
    Vec::new()
}
