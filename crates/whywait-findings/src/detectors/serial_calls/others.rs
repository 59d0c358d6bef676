//! Requests beside the slow ones, which may make calls as well.

use std::collections::BTreeSet;

use whywait_model::Model;

use crate::shared::intervals::{Interval, sum};
use crate::shared::slow_paths::SlowRequest;
use crate::shared::traffic::{length, served};

/// Those that can have made calls in a process.
pub(super) struct Others {
    /// When its own were under way that have rows.
    pub(super) windows: Vec<Interval>,
    /// How long all of them were: also those without a row, wherever they were.
    pub(super) ns: u64,
}

impl Others {
    /// But for these slow ones.
    pub(super) fn of(model: &Model, tgid: u32, slow: &[&SlowRequest<'_>]) -> Self {
        let slow: BTreeSet<(u64, u32)> = slow
            .iter()
            .map(|slow| (slow.request.socket, slow.request.seq))
            .collect();
        let rows_ns = sum(model.requests().filter_map(|request| request.took_ns()));
        let without_rows_ns = model.time_of_requests_ns().saturating_sub(rows_ns);
        let own = model.requests().filter(|request| request.tgid == tgid);
        let others = own.filter(|request| !slow.contains(&(request.socket, request.seq)));
        let windows: Vec<Interval> = others.filter_map(|request| served(&request)).collect();
        let served_ns = sum(windows.iter().map(|window| length(*window)));
        Self {
            windows,
            ns: without_rows_ns.saturating_add(served_ns),
        }
    }
}
