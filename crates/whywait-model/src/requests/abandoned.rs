//! Requests that were answered for clients that had gone.

use std::collections::{BTreeMap, BTreeSet};

use whywait_events::Abandoned;

use crate::rows::Rows;

/// Those of a recording.
pub type AbandonedRequests = Rows<Abandoned, 100_000>;

impl AbandonedRequests {
    /// How many there were, also without a row.
    pub fn count(&self, counters: &BTreeMap<String, u64>) -> u64 {
        let counted = counters.get("requests.abandoned").copied();
        counted.unwrap_or(0).max(self.len() as u64)
    }
}

/// How long after the client had gone it was worked on, or waited to be.
pub fn after_ns(row: &Abandoned) -> u64 {
    row.ended_ns.saturating_sub(row.gone_ns.max(row.recv_ns))
}

/// CPU time after clients had gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Wasted {
    /// Of so many requests something is known.
    pub known: u64,
    /// Of those whose threads did nothing else, for certain.
    pub at_least_ns: u64,
    /// With what threads did for others meanwhile.
    pub at_most_ns: u64,
    /// How long the others took, of which nothing is known: other threads wrote than those that
    /// read.
    pub elsewhere_ns: u64,
}

impl Wasted {
    /// Of these rows. Where a request is written by another thread than the one that read it, tasks
    /// move between threads, and nothing is certain.
    pub fn of(rows: &[&Abandoned]) -> Self {
        let moves = |row: &&Abandoned| row.recv_tid != row.send_tid;
        let moving: BTreeSet<u32> = rows
            .iter()
            .copied()
            .filter(moves)
            .map(|row| row.tgid)
            .collect();
        let mut wasted = Self::default();
        let mut by_thread: BTreeMap<u32, Vec<&Abandoned>> = BTreeMap::new();
        for row in rows {
            if row.cpu_ns == 0 {
                wasted.elsewhere_ns = wasted.elsewhere_ns.saturating_add(after_ns(row));
                continue;
            }
            wasted.known += 1;
            by_thread.entry(row.recv_tid).or_default().push(row);
        }
        for mut rows in by_thread.into_values() {
            rows.sort_by_key(|row| begin_ns(row));
            // What overlaps counts once.
            let mut seen_until_ns = 0;
            for (index, row) in rows.iter().enumerate() {
                let overlaps = seen_until_ns > row.recv_ns
                    || rows
                        .get(index + 1)
                        .is_some_and(|next| next.recv_ns < row.ended_ns);
                let from_ns = begin_ns(row).max(seen_until_ns);
                let new_ns = row.ended_ns.saturating_sub(from_ns);
                wasted.at_most_ns = wasted.at_most_ns.saturating_add(row.cpu_ns.min(new_ns));
                if row.alone && !overlaps && !moving.contains(&row.tgid) {
                    let before_ns = row.gone_ns.saturating_sub(row.recv_ns);
                    let least_ns = row.cpu_ns.saturating_sub(before_ns).min(new_ns);
                    wasted.at_least_ns = wasted.at_least_ns.saturating_add(least_ns);
                }
                seen_until_ns = seen_until_ns.max(row.ended_ns);
            }
        }
        wasted
    }
}

/// From when on it was of no use.
fn begin_ns(row: &Abandoned) -> u64 {
    row.gone_ns.max(row.recv_ns)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row() -> Abandoned {
        Abandoned {
            ready_ns: 0,
            recv_ns: 10,
            gone_ns: 40,
            ended_ns: 110,
            cpu_ns: 60,
            recv_tid: 1,
            send_tid: 1,
            alone: true,
            ..Abandoned::default()
        }
    }

    fn wasted(rows: &[Abandoned]) -> (u64, u64) {
        let wasted = Wasted::of(&rows.iter().collect::<Vec<_>>());
        (wasted.at_least_ns, wasted.at_most_ns)
    }

    #[test]
    fn what_was_done_before_the_client_left_is_not_wasted() {
        assert_eq!(after_ns(&row()), 70);
        assert_eq!(wasted(&[row()]), (30, 60));
        let before = Abandoned {
            gone_ns: 5,
            ..row()
        };
        assert_eq!(wasted(&[before]), (60, 60));
        let elsewhere = Abandoned { cpu_ns: 0, ..row() };
        assert_eq!(wasted(std::slice::from_ref(&elsewhere)), (0, 0));
        assert_eq!(Wasted::of(&[&elsewhere]).elsewhere_ns, 70);
    }

    #[test]
    fn what_threads_do_for_others_is_in_the_upper_bound_alone() {
        let beside = Abandoned {
            alone: false,
            ..row()
        };
        assert_eq!(wasted(&[beside]), (0, 60));
        let moved = Abandoned {
            send_tid: 2,
            cpu_ns: 0,
            ..row()
        };
        assert_eq!(wasted(&[row(), moved]), (0, 60), "tasks move");
    }

    #[test]
    fn what_overlaps_on_a_thread_counts_once() {
        assert_eq!(wasted(&[row(), row()]), (0, 60));
        let later = Abandoned {
            recv_ns: 110,
            gone_ns: 110,
            ended_ns: 170,
            ..row()
        };
        assert_eq!(wasted(&[row(), later]), (90, 120));
    }
}
