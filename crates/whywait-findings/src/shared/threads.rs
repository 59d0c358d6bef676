//! Threads by name and number.

use whywait_events::Ns;
use whywait_model::{Model, Thread};

use crate::shared::intervals::{Covered, sum};

/// `worker (15)`.
pub(crate) fn named(model: &Model, tid: u32) -> String {
    format!("{} ({tid})", model.thread_name(tid))
}

/// For how long of these intervals a thread slept, as far as its sleeps were recorded one by one.
pub(crate) fn slept_ns(thread: &Thread, intervals: &Covered) -> u64 {
    let waits = thread.timeline.waits().iter();
    sum(waits.map(|wait| intervals.within((wait.out_ns, wait.over_ns().unwrap_or(Ns::MAX)))))
}
