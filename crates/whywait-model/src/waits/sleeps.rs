//! One row for each sleep.
//!
//! A sleep that is still under way when the kernel side looks for the blocked is recorded then,
//! without an end, and recorded again when it is over. A look that falls into the moment of the
//! wake may come second. Whoever asks what a thread did, or only for what happened around a
//! request, must not see the first row without the other: to it the sleep would never end.

use std::borrow::Cow;

use crate::maps::HashMap;
use whywait_events::{Ns, Wait};

/// Threads whose rows are put together; rows of others pass as they are.
const MAX_THREADS: usize = 1_000_000;

/// Puts the rows of each sleep together, in the order of a recording.
#[derive(Debug, Default)]
pub(crate) struct Sleeps {
    threads: HashMap<u32, Last>,
}

/// What a thread did last.
#[derive(Debug, Default)]
struct Last {
    /// The latest sleep that is over.
    ended: Option<(u32, Ns)>,
    /// A sleep of which no end has been seen.
    open: Option<Wait>,
}

impl Sleeps {
    /// Adds a row. `settled` gets each sleep once, and until when it lasted at most: those that are
    /// over in the order of their rows, one that lost its end as soon as the thread is known to
    /// have slept again.
    pub(crate) fn add(&mut self, row: &Wait, mut settled: impl FnMut(&Wait, Ns)) {
        if self.threads.len() >= MAX_THREADS && !self.threads.contains_key(&row.tid) {
            settled(row, row.end_ns());
            return;
        }
        let last = self.threads.entry(row.tid).or_default();
        let mut row = Cow::Borrowed(row);
        match last.open.take() {
            Some(open) if same(&open, &row) => fill(row.to_mut(), &open),
            Some(open) if open.out_ns < row.out_ns => settled(&open, row.out_ns),
            still_open => last.open = still_open,
        }
        match row.in_ns {
            Some(in_ns) => {
                settled(&row, in_ns);
                last.ended = Some((row.seq, row.out_ns));
            }
            None if last.ended == Some((row.seq, row.out_ns)) => {}
            None => last.open = Some(row.into_owned()),
        }
    }

    /// Those that had not ended when the recording did, or whose end was lost.
    pub(crate) fn finish(self, mut settled: impl FnMut(&Wait, Ns)) {
        let mut open: Vec<Wait> = self
            .threads
            .into_values()
            .filter_map(|last| last.open)
            .collect();
        open.sort_by_key(|wait| (wait.out_ns, wait.tid));
        for wait in &open {
            settled(wait, Ns::MAX);
        }
    }
}

fn same(a: &Wait, b: &Wait) -> bool {
    (a.seq, a.out_ns) == (b.seq, b.out_ns)
}

/// What a later row lacks, an earlier one of the same sleep may have: a stack; or who had the lock,
/// of the threads of a process that has ended meanwhile.
fn fill(wait: &mut Wait, earlier: &Wait) {
    for (mine, its) in [
        (&mut wait.user_stack, earlier.user_stack),
        (&mut wait.kernel_stack, earlier.kernel_stack),
        (&mut wait.owner_tid, earlier.owner_tid),
    ] {
        if *mine == 0 {
            *mine = its;
        }
    }
    if wait.holds == 0 {
        wait.holds = earlier.holds;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(seq: u32, out_ns: Ns, in_ns: Option<Ns>) -> Wait {
        Wait {
            tid: 1,
            seq,
            out_ns,
            wake_ns: in_ns,
            in_ns,
            ..Wait::default()
        }
    }

    /// Of each sleep that comes out: its sequence number, its end as far as seen, and until when it
    /// lasted at most.
    fn put_together(rows: &[Wait]) -> Vec<(u32, Option<Ns>, Ns)> {
        let mut sleeps = Sleeps::default();
        let mut out = Vec::new();
        for row in rows {
            sleeps.add(row, |wait, until| out.push((wait.seq, wait.in_ns, until)));
        }
        sleeps.finish(|wait, until| out.push((wait.seq, wait.in_ns, until)));
        out
    }

    #[test]
    fn a_sleep_recorded_while_it_lasted_ends_when_its_last_row_says() {
        assert_eq!(
            put_together(&[row(4, 10, None), row(4, 10, None), row(4, 10, Some(25))]),
            [(4, Some(25), 25)]
        );
    }

    #[test]
    fn a_look_that_came_too_late_does_not_open_the_sleep_again() {
        assert_eq!(
            put_together(&[row(4, 10, Some(25)), row(4, 10, None), row(5, 40, Some(45))]),
            [(4, Some(25), 25), (5, Some(45), 45)]
        );
    }

    #[test]
    fn one_that_never_ended_stays_open() {
        assert_eq!(
            put_together(&[row(3, 1, Some(2)), row(4, 10, None)]),
            [(3, Some(2), 2), (4, None, Ns::MAX)]
        );
    }

    #[test]
    fn one_that_lost_its_end_lasted_no_longer_than_to_the_next() {
        assert_eq!(
            put_together(&[row(4, 10, None), row(5, 40, None), row(5, 40, Some(45))]),
            [(4, None, 40), (5, Some(45), 45)]
        );
    }

    #[test]
    fn an_earlier_sleep_that_comes_late_does_not_end_the_one_under_way() {
        assert_eq!(
            put_together(&[row(5, 40, None), row(4, 10, Some(20)), row(5, 40, Some(45))]),
            [(4, Some(20), 20), (5, Some(45), 45)]
        );
    }

    #[test]
    fn what_only_the_first_row_knew_is_kept() {
        let seen = Wait {
            user_stack: 7,
            kernel_stack: 8,
            owner_tid: 9,
            holds: 3,
            ..row(4, 10, None)
        };
        let mut sleeps = Sleeps::default();
        sleeps.add(&seen, |_, _| panic!("it lasts"));
        let mut ended = None;
        sleeps.add(&row(4, 10, Some(25)), |wait, _| ended = Some(wait.clone()));
        let ended = ended.expect("it is over");
        assert_eq!(
            (
                ended.user_stack,
                ended.kernel_stack,
                ended.owner_tid,
                ended.holds
            ),
            (7, 8, 9, 3)
        );
    }
}
