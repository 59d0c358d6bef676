//! Threads by name and number.

use whywait_model::Model;

/// `worker (15)`.
pub(crate) fn named(model: &Model, tid: u32) -> String {
    format!("{} ({tid})", model.thread_name(tid))
}

/// `15 (worker)`.
pub(crate) fn numbered(model: &Model, tid: u32) -> String {
    format!("{tid} ({})", model.thread_name(tid))
}
