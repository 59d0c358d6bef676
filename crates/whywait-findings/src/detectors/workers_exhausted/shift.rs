//! When all workers slept and something waited for them.

use crate::numbers::{MOST, Share, WORKERS_ASLEEP};
use whywait_events::Ns;

/// What a worker does, as far as taking work goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WorkerDuty {
    /// It waits for work: it would take it at once.
    Free,
    /// It sleeps, and cannot take any.
    Asleep,
    /// It runs, or could run.
    Active,
}

/// The intervals in which nobody was free, most slept, and something waited.
#[derive(Debug, Clone, Default)]
pub(super) struct BusyShift {
    /// In order, without overlaps.
    intervals: Vec<(Ns, Ns)>,
}

impl BusyShift {
    /// From what each worker did when, and from when to when something waited. `most`: something
    /// waits when there are more than so many at a time.
    pub(super) fn of(
        duties: impl IntoIterator<Item = (Ns, Ns, WorkerDuty)>,
        waiting: impl IntoIterator<Item = (Ns, Ns)>,
        most: i64,
    ) -> Self {
        // By time: what changes of [free, asleep, active, waiting].
        let mut edges: Vec<(Ns, usize, i64)> = Vec::new();
        let mut add = |from: Ns, to: Ns, what: usize| {
            if from < to {
                edges.push((from, what, 1));
                edges.push((to, what, -1));
            }
        };
        for (from, to, duty) in duties {
            let what = match duty {
                WorkerDuty::Free => 0,
                WorkerDuty::Asleep => 1,
                WorkerDuty::Active => 2,
            };
            add(from, to, what);
        }
        for (from, to) in waiting {
            add(from, to, 3);
        }
        edges.sort_unstable();
        let mut now = [0_i64; 4];
        let mut shift = Self::default();
        let mut at = 0;
        while at < edges.len() {
            let from = edges[at].0;
            while at < edges.len() && edges[at].0 == from {
                now[edges[at].1] += edges[at].2;
                at += 1;
            }
            let Some((to, ..)) = edges.get(at).copied() else {
                break;
            };
            let [free, asleep, active, waiting] = now;
            let sleep = asleep > 0
                && Share::new(asleep.unsigned_abs(), (asleep + active).unsigned_abs())
                    .is_at_least(*WORKERS_ASLEEP);
            if free == 0 && sleep && waiting > most {
                match shift.intervals.last_mut() {
                    Some(last) if last.1 == from => last.1 = to,
                    _ => shift.intervals.push((from, to)),
                }
            }
        }
        shift
    }

    /// How much of `[from, to)` that was, nanoseconds.
    pub(super) fn within(&self, from: Ns, to: Ns) -> u64 {
        let first = self.intervals.partition_point(|(_, end)| *end <= from);
        self.intervals[first..]
            .iter()
            .take_while(|(begin, _)| *begin < to)
            .map(|(begin, end)| (*end).min(to).saturating_sub((*begin).max(from)))
            .fold(0, u64::saturating_add)
    }

    /// How much of what waited in `[from, to)` it waited for a worker: all of it where that is most
    /// of it, nanoseconds. In between some of the workers ran, and more of them would have taken it
    /// as well.
    pub(super) fn share_of(&self, from: Ns, to: Ns) -> u64 {
        let (within, whole) = (self.within(from, to), to.saturating_sub(from));
        if Share::new(within, whole).is_at_least(*MOST) {
            whole
        } else {
            within
        }
    }

    /// All of it, nanoseconds.
    pub(super) fn total_ns(&self) -> u64 {
        self.within(0, Ns::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_must_sleep_and_something_must_wait() {
        let duties = [
            (0, 100, WorkerDuty::Asleep),
            (0, 40, WorkerDuty::Asleep),
            (40, 50, WorkerDuty::Free),
            (50, 100, WorkerDuty::Asleep),
        ];
        let shift = BusyShift::of(duties, [(10, 90)], 0);
        assert_eq!(shift.total_ns(), 30 + 40);
        assert_eq!(shift.within(30, 60), 10 + 10);
        assert_eq!(shift.share_of(30, 60), 30);
        assert_eq!(shift.share_of(35, 60), 5 + 10 + 10);
        assert_eq!(shift.share_of(38, 55), 2 + 5);
        assert_eq!(BusyShift::of(duties, [], 0).total_ns(), 0, "nothing waits");
        let shift = BusyShift::of(duties, [(10, 90)], 1);
        assert_eq!(shift.total_ns(), 0, "no more wait than there may");
    }

    #[test]
    fn workers_that_run_are_no_lack_of_workers() {
        let duties = [(0, 100, WorkerDuty::Asleep), (0, 100, WorkerDuty::Active)];
        assert_eq!(BusyShift::of(duties, [(0, 100)], 0).total_ns(), 0);
    }
}
