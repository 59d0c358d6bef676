//! How large a difference is: the Hodges-Lehmann estimate, and its interval from the same ranks as
//! the Mann-Whitney test.
//!
//! The estimate is the median of the differences (or ratios) between each run of one side and each
//! of the other. One run that went wrong does not move it much, and it assumes no distribution.

use crate::permutation::choose;

/// How sure an interval is meant to be.
const CONFIDENCE: f64 = 0.95;
/// Beyond so many pairs the ranks are taken from the normal distribution.
const EXACT_PAIRS: usize = 400;

/// A difference with its interval.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize)]
pub struct Effect {
    /// The median of all pairs.
    pub estimate: f64,
    /// The interval's ends; `None` with too few runs for one of 95 %.
    pub interval: Option<(f64, f64)>,
    /// What the interval's confidence really is, at least 0.95; ranks come in steps. `None` without
    /// one.
    pub confidence: Option<f64>,
}

/// By how much the head's values are larger than the base's.
pub fn shift(base: &[f64], head: &[f64]) -> Option<Effect> {
    of_pairs(base, head, |base, head| head - base)
}

/// The head's values as multiples of the base's; `None` when one is not positive.
pub fn ratio(base: &[f64], head: &[f64]) -> Option<Effect> {
    if base.iter().chain(head).any(|value| *value <= 0.0) {
        return None;
    }
    of_pairs(base, head, |base, head| head / base)
}

/// The middle value; the mean of the two middle ones of an even number.
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted: Vec<f64> = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    middle(&sorted)
}

fn middle(sorted: &[f64]) -> Option<f64> {
    let upper = *sorted.get(sorted.len() / 2)?;
    Some(if sorted.len() % 2 == 1 {
        upper
    } else {
        f64::midpoint(sorted[sorted.len() / 2 - 1], upper)
    })
}

fn of_pairs(base: &[f64], head: &[f64], pair: impl Fn(f64, f64) -> f64) -> Option<Effect> {
    let mut pairs: Vec<f64> = base
        .iter()
        .flat_map(|base| head.iter().map(|head| pair(*base, *head)))
        .collect();
    if pairs.is_empty() || pairs.iter().any(|pair| !pair.is_finite()) {
        return None;
    }
    pairs.sort_by(f64::total_cmp);
    let estimate = middle(&pairs)?;
    let bounds = left_out(base.len(), head.len());
    Some(Effect {
        estimate,
        interval: bounds.map(|(out, _)| (pairs[out], pairs[pairs.len() - 1 - out])),
        confidence: bounds.map(|(_, confidence)| confidence),
    })
}

/// How many of the ordered pairs to leave out at each end, and the confidence that gives; `None`
/// when even all of them do not give 95 %.
fn left_out(n: usize, m: usize) -> Option<(usize, f64)> {
    let pairs = n * m;
    if pairs > EXACT_PAIRS {
        let mean = pairs as f64 / 2.0;
        let deviation = (pairs as f64 * (n + m + 1) as f64 / 12.0).sqrt();
        let out = (mean - 1.96 * deviation - 0.5).floor().max(0.0);
        return Some((out as usize, CONFIDENCE));
    }
    let counts = rank_sums(n, m);
    let total = choose(n + m, n);
    let mut below = 0.0;
    let mut best = None;
    for (out, count) in counts.iter().enumerate().take(pairs.div_ceil(2)) {
        below += count;
        let confidence = 1.0 - 2.0 * below / total;
        if confidence < CONFIDENCE {
            break;
        }
        best = Some((out, confidence));
    }
    best
}

/// How many permutations of `n` and `m` values have a Mann-Whitney statistic of 0, 1, 2, …:
/// coefficients of the Gaussian binomial.
fn rank_sums(n: usize, m: usize) -> Vec<f64> {
    let mut counts = vec![0.0; n * m + 1];
    counts[0] = 1.0;
    for i in 1..=n {
        for at in (m + i..counts.len()).rev() {
            counts[at] -= counts[at - m - i];
        }
        for at in i..counts.len() {
            counts[at] += counts[at - i];
        }
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_those_of_the_tables() {
        // Mann and Whitney's table for 5 and 5: U <= 2 has 4 of 252 ways.
        let counts = rank_sums(5, 5);
        assert_eq!(counts[..4], [1.0, 1.0, 2.0, 3.0]);
        assert_eq!(counts.iter().sum::<f64>(), 252.0);
        let (out, confidence) = left_out(5, 5).expect("enough runs");
        assert_eq!(out, 2);
        assert!((confidence - (1.0 - 8.0 / 252.0)).abs() < 1e-12);
        assert_eq!(left_out(3, 3), None);
        assert_eq!(left_out(4, 4).map(|(out, _)| out), Some(0));
    }

    #[test]
    fn an_outlier_moves_little() {
        let base = [1.0, 1.0, 1.0, 1.0, 9.0];
        let effect = ratio(&base, &[1.1; 5]).expect("values");
        assert!((effect.estimate - 1.1).abs() < 1e-12);
        assert_eq!(ratio(&[0.0], &[1.0]), None);
        assert_eq!(shift(&[], &[1.0]), None);
        assert_eq!(median(&[3.0, 1.0, 2.0, 4.0]), Some(2.5));
    }
}
