//! Requests that take unequal times, and are answered in the order in which they came.
//!
//! Side by side, one that takes long is overtaken by those that came after it and take less. How
//! often that is to be expected shows where each request takes what another one took with which it
//! has no turn in common: the one that came as many later as are inside at most, and by turns as
//! many earlier, since neighbours have most turns in common.
//!
//! Where a few pass at a time that take nearly the same, none overtakes another one either, and the
//! steps between answers are as uneven as their beginnings. But then so many steps together are as
//! even as what one request takes. One at a time, each step is a request's own, and sums of them
//! differ by more than one does.

use super::{
    Passing, crowded, inside, length, median, sleeps_otherwise, threads_sleep, timers_end_them,
    took_ns, works_meanwhile,
};
use crate::facts::Facts;
use crate::numbers::{BY_CHANCE, IN_STEP_MIN_GAPS, MOST, NEARLY_ALL, STEP_OFF, Share};
use crate::shared::intervals::sum;

/// Answers in the order of requests.
pub(crate) struct InOrder {
    /// From one answer to the next, where a request waited for it: the middle one.
    pub(crate) step_ns: u64,
    /// What requests take: the least, and the most.
    pub(crate) took_ns: (u64, u64),
    /// So often one overtook another one, …
    pub(crate) overtook: usize,
    /// … and so often it would have if each took a time of its own.
    pub(crate) expected: usize,
}

impl InOrder {
    pub(super) fn of(facts: &Facts<'_>, tgid: u32, requests: &[Passing<'_>]) -> Option<Self> {
        let most = requests.iter().map(|one| one.place).max()?;
        let mut came: Vec<&Passing<'_>> = requests.iter().collect();
        came.sort_by_key(|one| inside(one.request));
        let waited: Vec<&Passing<'_>> = came
            .iter()
            .filter(|one| one.waited_ns > 0)
            .copied()
            .collect();
        let steps: Vec<u64> = waited.iter().map(|one| one.step_ns).collect();
        let (count, all_ns) = (steps.len() as u64, sum(steps.iter().copied()));
        let step_ns = median(steps);
        // Those that are answered together have waited for one thing, and not for each other.
        let one_by_one = step_ns.saturating_mul(count) >= BY_CHANCE.of(all_ns)
            && Share::new(all_ns, length(&crowded(requests))).is_at_least(*MOST);
        let plausible = one_by_one
            && timers_end_them(&waited)
            && !sleeps_otherwise(requests)
            && !works_meanwhile(facts, tgid, requests)
            && steps_add_up(requests, most)
            && !threads_sleep(facts.model, requests);
        if !plausible {
            return None;
        }
        let took: Vec<u64> = came.iter().map(|one| took_ns(one)).collect();
        let last = took.len().saturating_sub(most);
        let (own, others): (Vec<u64>, Vec<u64>) = (most..last)
            .map(|at| {
                (
                    took[at],
                    took[if at % 2 == 0 { at + most } else { at - most }],
                )
            })
            .unzip();
        let came = came.get(most..).unwrap_or_default();
        let off_ns = STEP_OFF.of(step_ns);
        let overtook = overtakings(came, own, off_ns);
        let expected = overtakings(came, others, off_ns);
        // With many inside and two or three at a time few do of those that would.
        let of = expected.min(last.saturating_sub(most));
        let in_order = Share::counted(of.saturating_sub(overtook), of);
        (expected >= *IN_STEP_MIN_GAPS && in_order.is_at_least(*NEARLY_ALL)).then(|| Self {
            step_ns,
            took_ns: (
                took.iter().copied().min().unwrap_or_default(),
                took.iter().copied().max().unwrap_or_default(),
            ),
            overtook,
            expected,
        })
    }
}

/// Whether several steps between answers differ by more than one does, for as many as may be at a
/// time. Requests are in the order of their answers.
fn steps_add_up(requests: &[Passing<'_>], most: usize) -> bool {
    // Answers that others waited for, without a pause, since the one at this place.
    let since: Vec<usize> = requests
        .iter()
        .enumerate()
        .scan(0, |since, (at, one)| {
            if one.waited_ns == 0 {
                *since = at;
            }
            Some(*since)
        })
        .collect();
    let answered_ns = |at: usize| inside(requests[at].request).1;
    let spread = |steps: usize| -> Option<f64> {
        let ends = (steps..requests.len()).filter(|at| since[*at] + steps <= *at);
        let took = ends.map(|at| (answered_ns(at) - answered_ns(at - steps)) as f64);
        let took: Vec<f64> = took.collect();
        let mean = took.iter().sum::<f64>() / took.len() as f64;
        let squares: f64 = took.iter().map(|one| (one - mean).powi(2)).sum();
        (took.len() >= *IN_STEP_MIN_GAPS).then(|| squares / took.len() as f64)
    };
    let one = spread(1);
    one.is_some_and(|one| (2..=most).all(|steps| spread(steps).is_none_or(|sum| sum > one)))
}

/// How often one overtakes another one by more than that, of the requests that came first, if they
/// take so long. (By less do requests whose timers are alike, as well: they end at ticks.)
fn overtakings(came: &[&Passing<'_>], took: Vec<u64>, off_ns: u64) -> usize {
    let from = came.iter().map(|one| inside(one.request).0);
    let ends = from.zip(took);
    let ends = ends.map(|(ns, took_ns)| ns.saturating_add(took_ns));
    behind(ends.collect(), off_ns)
}

/// How many pairs there are of which the first number is larger by more than that.
fn behind(numbers: Vec<u64>, by: u64) -> usize {
    // As a sort by merging does.
    fn sorted(mut numbers: Vec<u64>, by: u64, found: &mut usize) -> Vec<u64> {
        if numbers.len() < 2 {
            return numbers;
        }
        let second = sorted(numbers.split_off(numbers.len() / 2), by, found);
        let mut all = sorted(numbers, by, found);
        let mut at = 0;
        for number in &second {
            while all
                .get(at)
                .is_some_and(|one| *one <= number.saturating_add(by))
            {
                at += 1;
            }
            *found += all.len() - at;
        }
        all.extend(second);
        // Two runs that are in order: the sort merges them.
        all.sort();
        all
    }
    let mut found = 0;
    sorted(numbers, by, &mut found);
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_that_stand_in_the_wrong_order_are_counted() {
        assert_eq!(behind(vec![], 0), 0);
        assert_eq!(behind(vec![1, 2, 2, 3], 0), 0);
        assert_eq!(behind(vec![3, 1, 2], 0), 2);
        assert_eq!(behind(vec![4, 3, 2, 1], 0), 6);
        assert_eq!(behind(vec![4, 3, 2, 1], 1), 3);
    }
}
