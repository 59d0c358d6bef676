//! Of a recording's requests the slowest are kept, and the others summed up.

use std::cell::Cell;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::hash_map::Entry;

use whywait_events::{Ns, Parts, Request};

use crate::maps::HashMap;
use crate::requests::histogram::Histogram;
use crate::requests::life;

/// Sockets whose last row may still be replaced.
const MAX_PENDING: usize = 65_536;
/// Rows from this long before a request matter to it too: they show what its server was doing when
/// it came.
const LOOK_BACK_NS: Ns = 5_000_000;

/// Requests that are not looked at one by one, summed up.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RequestSums {
    /// How many.
    pub count: u64,
    /// How many of them were slow.
    pub slow: u64,
    /// Their latencies, nanoseconds.
    pub total_ns: u64,
    /// Of that: until the target read them.
    pub unserved_ns: u64,
    /// Of that: the reader had been woken and was on its way.
    pub unserved_wakeup_ns: u64,
    /// How the rest was spent.
    pub service: Parts,
    /// How many were on connections that carry several at once.
    pub multiplexed: u64,
}

/// Keeps the slowest requests and sums up the rest.
pub(crate) struct Slowest {
    limit: usize,
    /// By socket: its last row, which a later row for the same request replaces.
    pending: HashMap<u64, Request>,
    kept: Vec<Request>,
    /// The least of those that are kept first.
    ranks: BinaryHeap<Reverse<Rank>>,
    sums: RequestSums,
    latency: Histogram,
}

/// How much a request matters, and where it is among those that are kept. Rows are large: only
/// this is moved about to keep order.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    ns: u64,
    name: Reverse<(Ns, u64, u32)>,
    at: u32,
}

impl Slowest {
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            limit,
            pending: HashMap::default(),
            kept: Vec::new(),
            ranks: BinaryHeap::new(),
            sums: RequestSums::default(),
            latency: Histogram::default(),
        }
    }

    pub(crate) fn add(&mut self, row: &Request) {
        if self.pending.len() >= MAX_PENDING {
            self.settle_pending();
        }
        let mut last = match self.pending.entry(row.socket) {
            Entry::Occupied(last) => last,
            Entry::Vacant(none) => {
                none.insert(row.clone());
                return;
            }
        };
        let former = last.get();
        let is_over = former.seq != row.seq && !life::never_was(former, row);
        let mut row = row.clone();
        keep_registration(&mut row, former);
        let former = last.insert(row);
        if is_over {
            self.settle(former);
        }
    }

    fn settle_pending(&mut self) {
        let rows: Vec<Request> = self.pending.drain().map(|(_, row)| row).collect();
        rows.into_iter().for_each(|row| self.settle(row));
    }

    fn settle(&mut self, row: Request) {
        let ns = match life::latency_ns(&row) {
            Some(ns) => {
                self.latency.add(ns);
                ns
            }
            // Not answered: it matters most, and how long it waited is not known here.
            None => u64::MAX,
        };
        let mut rank = Rank {
            ns,
            name: Reverse((row.ready_ns, row.socket, row.seq)),
            at: self.kept.len() as u32,
        };
        if self.kept.len() < self.limit {
            self.kept.push(row);
            self.ranks.push(Reverse(rank));
            return;
        }
        let mut left_out = (ns, row);
        if let Some(mut least) = self.ranks.peek_mut()
            && (least.0.ns, least.0.name) < (rank.ns, rank.name)
        {
            rank.at = least.0.at;
            left_out.0 = least.0.ns;
            std::mem::swap(&mut self.kept[rank.at as usize], &mut left_out.1);
            *least = Reverse(rank);
        }
        if left_out.0 != u64::MAX {
            self.sum_up(left_out.0, &left_out.1);
        }
    }

    fn sum_up(&mut self, ns: u64, row: &Request) {
        let sums = &mut self.sums;
        sums.count += 1;
        sums.slow += 1;
        sums.multiplexed += u64::from(row.multiplexed);
        sums.total_ns = sums.total_ns.saturating_add(ns);
        let unserved = row
            .recv_ns
            .unwrap_or(row.ready_ns)
            .saturating_sub(row.ready_ns);
        sums.unserved_ns = sums.unserved_ns.saturating_add(unserved);
        sums.unserved_wakeup_ns = sums
            .unserved_wakeup_ns
            .saturating_add(row.unserved_wakeup_ns.min(unserved));
        sums.service += row.service;
    }

    pub(crate) fn finish(mut self) -> (Vec<Request>, RequestSums, Histogram) {
        self.settle_pending();
        drop(self.ranks);
        let mut kept = self.kept;
        kept.shrink_to_fit();
        kept.sort_by_key(|row| (row.ready_ns, row.socket, row.seq));
        (kept, self.sums, self.latency)
    }
}

/// The last row of a request may be from when its connection was closed, and no longer registered.
fn keep_registration(row: &mut Request, former: &Request) {
    if row.seq == former.seq && row.epoll == 0 {
        row.epoll = former.epoll;
        row.read_armed = row.read_armed.or(former.read_armed);
    }
}

/// The times in which kept requests were under way, merged and in order.
pub(crate) struct Windows {
    windows: Vec<(Ns, Ns)>,
    /// The one that was found last: rows come about in the order of time.
    last: Cell<usize>,
}

impl Windows {
    pub(crate) fn around(requests: &[Request]) -> Self {
        let mut spans: Vec<(Ns, Ns)> = requests
            .iter()
            .map(|row| {
                (
                    row.ready_ns.saturating_sub(LOOK_BACK_NS),
                    life::until_ns(row),
                )
            })
            .collect();
        spans.sort_unstable();
        let mut merged: Vec<(Ns, Ns)> = Vec::new();
        for (from, to) in spans {
            match merged.last_mut() {
                Some(last) if from <= last.1 => last.1 = last.1.max(to),
                _ => merged.push((from, to)),
            }
        }
        Self {
            windows: merged,
            last: Cell::new(0),
        }
    }

    pub(crate) fn overlap(&self, from: Ns, to: Ns) -> bool {
        let ends_before = |at: usize| self.windows.get(at).is_some_and(|(_, end)| *end < from);
        let is_first = |at: &usize| !ends_before(*at) && (*at == 0 || ends_before(*at - 1));
        let last = self.last.get();
        let at = [last, last + 1]
            .into_iter()
            .find(is_first)
            .unwrap_or_else(|| self.windows.partition_point(|(_, end)| *end < from));
        self.last.set(at);
        self.windows.get(at).is_some_and(|(start, _)| *start <= to)
    }

    pub(crate) fn range(&self) -> Option<std::ops::Range<Ns>> {
        Some(self.windows.first()?.0..self.windows.last()?.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(socket: u64, seq: u32, ready_ns: Ns, last_send_ns: Ns) -> Request {
        Request {
            socket,
            seq,
            ready_ns,
            recv_ns: Some(ready_ns),
            first_send_ns: Some(last_send_ns),
            last_send_ns: Some(last_send_ns),
            ..Request::default()
        }
    }

    #[test]
    fn a_later_row_of_the_same_request_replaces_the_earlier() {
        let mut slowest = Slowest::new(10);
        slowest.add(&answered(1, 1, 0, 100));
        slowest.add(&answered(1, 1, 0, 500));
        slowest.add(&answered(1, 2, 600, 700));
        let (kept, sums, _) = slowest.finish();
        assert_eq!(
            kept.iter().map(|row| row.last_send_ns).collect::<Vec<_>>(),
            [Some(500), Some(700)]
        );
        assert_eq!(sums.count, 0);
    }

    #[test]
    fn a_request_that_nobody_read_before_later_ones_were_read_was_none() {
        let unread = |seq, ready_ns| Request {
            socket: 1,
            seq,
            ready_ns,
            ..Request::default()
        };
        let mut slowest = Slowest::new(10);
        slowest.add(&unread(1, 0));
        slowest.add(&answered(1, 3, 600, 700));
        slowest.add(&unread(4, 800));
        let (kept, ..) = slowest.finish();
        assert_eq!(
            kept.iter().map(|row| row.seq).collect::<Vec<_>>(),
            [3, 4],
            "the last one may wait for its reader still"
        );
    }

    #[test]
    fn beyond_the_limit_the_fastest_are_summed_up() {
        let mut slowest = Slowest::new(2);
        for (socket, latency) in [(1, 10), (2, 30), (3, 20), (4, 40)] {
            slowest.add(&answered(socket, 1, 0, latency));
        }
        let (kept, sums, latency) = slowest.finish();
        let mut sockets: Vec<u64> = kept.iter().map(|row| row.socket).collect();
        sockets.sort_unstable();
        assert_eq!(sockets, [2, 4]);
        assert_eq!((sums.count, sums.total_ns), (2, 30));
        assert_eq!(
            latency.latency(&[]).map(|latency| latency.max),
            Some(40),
            "percentiles are over all of them"
        );
    }

    #[test]
    fn rows_outside_of_every_request_do_not_matter() {
        let ms = 1_000_000;
        let windows = Windows::around(&[
            answered(1, 1, 100 * ms, 200 * ms),
            answered(2, 1, 150 * ms, 250 * ms),
        ]);
        assert!(windows.overlap(190 * ms, 300 * ms));
        assert!(windows.overlap(0, Ns::MAX), "a wait that spans it all");
        assert!(!windows.overlap(0, 90 * ms));
        assert!(!windows.overlap(260 * ms, Ns::MAX));
        assert!(windows.overlap(120 * ms, 130 * ms), "an earlier one again");
    }
}
