//! Intervals of time, from and to, and sums of durations. The figures of a damaged recording do not
//! overflow.

use whywait_events::Ns;

use crate::numbers::{IN_STEP, IN_STEP_MIN_GAPS, STEP_OFF, Share};

/// From when to when.
pub(crate) type Interval = (Ns, Ns);

/// All of them together.
pub(crate) fn sum(durations: impl IntoIterator<Item = u64>) -> u64 {
    durations.into_iter().fold(0, u64::saturating_add)
}

/// How long both last.
pub(crate) fn overlap_ns(one: Interval, other: Interval) -> u64 {
    one.1.min(other.1).saturating_sub(one.0.max(other.0))
}

/// The intervals in order, those that touch or overlap as one.
pub(crate) fn merged(mut intervals: Vec<Interval>) -> Vec<Interval> {
    intervals.sort_unstable();
    let mut merged: Vec<Interval> = Vec::new();
    for (from, to) in intervals {
        match merged.last_mut() {
            Some(last) if from <= last.1 => last.1 = last.1.max(to),
            _ => merged.push((from, to)),
        }
    }
    merged
}

/// How long at least one of them lasts.
pub(crate) fn union_ns(intervals: Vec<Interval>) -> u64 {
    let merged = merged(intervals);
    sum(merged.iter().map(|(from, to)| to.saturating_sub(*from)))
}

/// How many of these intervals are at a time at most. One that ends makes room for one that begins
/// then.
pub(crate) fn most_at_a_time(intervals: impl Iterator<Item = Interval>) -> usize {
    let mut changes: Vec<(Ns, isize)> = intervals
        .flat_map(|(from_ns, to_ns)| [(from_ns, 1), (to_ns, -1)])
        .collect();
    changes.sort_unstable();
    let mut now = 0_isize;
    let most = changes.iter().map(|(_, change)| {
        now += change;
        now
    });
    most.max().unwrap_or(0).unsigned_abs()
}

/// How long it takes from one of these moments to the next, where that is about the same for most
/// of them.
pub(crate) fn in_step_ns(moments: &[Ns]) -> Option<u64> {
    even_ns(moments.windows(2).map(|two| two[1] - two[0]).collect())
}

/// What these gaps are about, if most of them are.
pub(crate) fn even_ns(mut gaps: Vec<u64>) -> Option<u64> {
    gaps.sort_unstable();
    let median_ns = *gaps.get(gaps.len() / 2)?;
    let off_ns = STEP_OFF.of(median_ns);
    let even = gaps.iter().filter(|gap| gap.abs_diff(median_ns) <= off_ns);
    let even = Share::counted(even.count(), gaps.len());
    (gaps.len() >= *IN_STEP_MIN_GAPS && median_ns > 0 && even.is_at_least(*IN_STEP))
        .then_some(median_ns)
}

/// `ns`, or so much of it as `part` is of `whole`.
pub(crate) fn in_proportion(ns: u64, part: u64, whole: u64) -> u64 {
    let share = u128::from(ns) * u128::from(part.min(whole)) / u128::from(whole.max(1));
    // At most `ns`.
    share as u64
}

/// How much of the time before a moment some intervals cover, which are in order and apart.
pub(crate) struct Covered {
    intervals: Vec<Interval>,
    /// Up to the beginning of each.
    before_ns: Vec<u64>,
}

impl Covered {
    pub(crate) fn new(intervals: Vec<Interval>) -> Self {
        let mut all_ns = 0_u64;
        let before_ns = intervals
            .iter()
            .map(|interval| {
                let before_ns = all_ns;
                all_ns = all_ns.saturating_add(interval.1.saturating_sub(interval.0));
                before_ns
            })
            .collect();
        Self {
            intervals,
            before_ns,
        }
    }

    fn before(&self, at_ns: Ns) -> u64 {
        let after = self.intervals.partition_point(|one| one.0 < at_ns);
        let Some(last) = after.checked_sub(1) else {
            return 0;
        };
        let (from_ns, to_ns) = self.intervals[last];
        self.before_ns[last].saturating_add(at_ns.min(to_ns).saturating_sub(from_ns))
    }

    /// How much of an interval they cover.
    pub(crate) fn within(&self, (from_ns, to_ns): Interval) -> u64 {
        self.before(to_ns).saturating_sub(self.before(from_ns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_overlaps_is_one_interval() {
        assert_eq!(
            merged(vec![(5, 9), (0, 3), (2, 4), (9, 10)]),
            [(0, 4), (5, 10)]
        );
        assert_eq!(union_ns(vec![(5, 9), (0, 3), (2, 4), (9, 10)]), 9);
        assert_eq!(overlap_ns((0, 5), (3, 9)), 2);
        assert_eq!(overlap_ns((0, 3), (3, 9)), 0);
    }

    #[test]
    fn an_interval_that_ends_before_it_begins_lasts_no_time() {
        assert_eq!(union_ns(vec![(0, 3), (Ns::MAX, 5)]), 3);
        assert_eq!(overlap_ns((5, 2), (0, 9)), 0);
    }

    #[test]
    fn a_part_is_never_more_than_the_whole() {
        assert_eq!(in_proportion(1_000, 1, 4), 250);
        assert_eq!(in_proportion(1_000, 9, 4), 1_000);
        assert_eq!(in_proportion(u64::MAX, u64::MAX, u64::MAX), u64::MAX);
        assert_eq!(in_proportion(1_000, 1, 0), 0);
    }
}
