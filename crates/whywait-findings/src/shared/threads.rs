//! Threads by name and number.

use whywait_model::{Model, Thread};

use crate::shared::intervals::{Interval, sum};

/// `worker (15)`.
pub(crate) fn named(model: &Model, tid: u32) -> String {
    format!("{} ({tid})", model.thread_name(tid))
}

/// `15 (worker)`.
pub(crate) fn numbered(model: &Model, tid: u32) -> String {
    format!("{tid} ({})", model.thread_name(tid))
}

/// For how long of an interval a thread slept, as far as its sleeps were recorded one by one.
pub(crate) fn slept_ns(thread: &Thread, (from_ns, to_ns): Interval) -> u64 {
    let waits = thread.timeline.overlapping(from_ns, to_ns).iter();
    sum(waits.map(|wait| {
        let woken_ns = wait.over_ns().unwrap_or(to_ns).min(to_ns);
        woken_ns.saturating_sub(wait.out_ns.max(from_ns))
    }))
}
