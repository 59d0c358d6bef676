//! An exact permutation test of many measures at once, with the family-wise error under control.
//!
//! Under the hypothesis that both sides are the same, each assignment of the runs to two sides (a
//! permutation) is as likely as the observed one. So each measure's statistic is compared with its
//! values under the other permutations: no distribution is assumed. All measures of a run move
//! together in each permutation, so their correlation is taken into account.
//!
//! With many measures some differ by chance. The adjusted p-value of a measure is the share of the
//! permutations in which the *largest* statistic of all measures is at least this measure's own
//! (Westfall and Young, max-T); measures with a larger difference are left out of that maximum
//! (step-down). Whoever believes all differences with an adjusted p-value of at most 0.05 believes
//! a wrong one in at most 5 of 100 comparisons, however many measures there are.

/// Up to this many permutations all are compared; beyond, so many random ones (always the same).
const MAX_WAYS: u64 = 20_000;
/// Added to a difference's standard error, in the measures' own unit (a relative change, as a
/// rule), so that two runs that agree to many digits do not make a difference of nothing the most
/// significant of all.
const LEAST_ERROR: f64 = 0.002;
/// Statistics closer than this are equal: the same sums may be added up in another order.
const SAME: f64 = 1e-9;

/// What the test says of one measure.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Tested {
    /// Difference of the sides' means over its standard error.
    pub statistic: f64,
    /// The p-value of this measure alone, two-sided.
    pub p: f64,
    /// The p-value adjusted for all measures of the family.
    pub adjusted: f64,
}

/// What the test says of a family of measures.
#[derive(Debug, Clone, PartialEq)]
pub struct TestOutcome {
    /// One for each measure, in order.
    pub tests: Vec<Tested>,
    /// How many permutations of the runs were compared.
    pub ways: u64,
    /// Whether these are all that there are.
    pub exact: bool,
}

/// The smallest p-value that so many runs a side can give. With five a side it is 2/252 = 0.008;
/// below four a side no difference is significant at 0.05, however large.
pub fn least_p(base: usize, head: usize) -> f64 {
    if base == 0 || head == 0 {
        return 1.0;
    }
    // With as many runs on each side a permutation's mirror image has the same statistic.
    let same = if base == head { 2.0 } else { 1.0 };
    (same / choose(base + head, base)).clamp(1.0 / MAX_WAYS as f64, 1.0)
}

/// The binomial coefficient `n` over `k`; at most `f64`'s largest.
pub(crate) fn choose(n: usize, k: usize) -> f64 {
    let k = k.min(n - k.min(n));
    (0..k).fold(1.0, |ways, i| ways * (n - i) as f64 / (i + 1) as f64)
}

/// Tests a family of measures. Each row has a value for each run, those of the base (the first
/// `base`) before those of the head, all finite. Rows with another number of values than the first
/// are not compared.
pub fn test(rows: &[Vec<f64>], base: usize) -> TestOutcome {
    let runs = rows.first().map_or(0, Vec::len);
    let none = Tested {
        statistic: 0.0,
        p: 1.0,
        adjusted: 1.0,
    };
    if base == 0 || base >= runs {
        return TestOutcome {
            tests: vec![none; rows.len()],
            ways: 1,
            exact: true,
        };
    }
    let measures: Vec<CentredValues> = rows
        .iter()
        .map(|row| CentredValues::new(row, runs))
        .collect();
    let seen: Vec<usize> = (0..base).collect();
    let observed: Vec<f64> = measures.iter().map(|m| m.statistic(&seen)).collect();
    let mut order: Vec<usize> = (0..measures.len()).collect();
    order.sort_by(|a, b| observed[*b].total_cmp(&observed[*a]).then(a.cmp(b)));
    let mut alone = vec![0u64; measures.len()];
    let mut together = vec![0u64; measures.len()];
    let (ways, exact) = each_way(runs, base, &mut |way| {
        let mut largest = 0.0f64;
        for &index in order.iter().rev() {
            let statistic = measures[index].statistic(way);
            let mine = observed[index] - SAME * observed[index].abs().max(1.0);
            largest = largest.max(statistic);
            alone[index] += u64::from(statistic >= mine);
            together[index] += u64::from(largest >= mine);
        }
    });
    let mut tests = vec![none; rows.len()];
    let mut before = 0.0f64;
    for &index in &order {
        // A measure is no more certain than one with a larger difference.
        before = before.max(together[index] as f64 / ways as f64);
        tests[index] = Tested {
            statistic: observed[index],
            p: alone[index] as f64 / ways as f64,
            adjusted: before,
        };
    }
    TestOutcome { tests, ways, exact }
}

/// One measure's values, centred.
struct CentredValues {
    values: Vec<f64>,
    squares: f64,
}

impl CentredValues {
    fn new(row: &[f64], runs: usize) -> Self {
        // Beyond this squares have no number.
        let usable = row.len() == runs && row.iter().all(|value| value.abs() < 1e100);
        let mean = row.iter().sum::<f64>() / runs as f64;
        let values: Vec<f64> = if usable {
            row.iter().map(|value| value - mean).collect()
        } else {
            vec![0.0; runs]
        };
        let squares = values.iter().map(|value| value * value).sum();
        Self { values, squares }
    }

    /// Of the difference between the runs in `base` and the others, in either direction.
    fn statistic(&self, base: &[usize]) -> f64 {
        let (n, m) = (base.len() as f64, (self.values.len() - base.len()) as f64);
        // The values sum to nothing: the other side's sum is this one's, negated.
        let sum: f64 = base.iter().map(|run| self.values[*run]).sum();
        let difference = (sum / n + sum / m).abs();
        let within = self.squares - sum * sum / n - sum * sum / m;
        // What is left of a difference of two equal numbers is rounding.
        let within = if within > self.squares * 1e-12 {
            within
        } else {
            0.0
        };
        let degrees = (n + m - 2.0).max(1.0);
        difference / ((within / degrees * (1.0 / n + 1.0 / m)).sqrt() + LEAST_ERROR)
    }
}

/// Calls `visit` with each choice of `base` of `runs`, or with as many random ones as are feasible,
/// the observed one (the first runs) among them. Gives how many, and whether these were all.
fn each_way(runs: usize, base: usize, visit: &mut dyn FnMut(&[usize])) -> (u64, bool) {
    let mut way: Vec<usize> = (0..base).collect();
    if choose(runs, base) > MAX_WAYS as f64 {
        visit(&way);
        let mut random = Random(0x9e37_79b9_7f4a_7c15);
        let mut all: Vec<usize> = (0..runs).collect();
        for _ in 1..MAX_WAYS {
            for at in 0..base {
                let other = at + random.below(runs - at);
                all.swap(at, other);
            }
            visit(&all[..base]);
        }
        return (MAX_WAYS, false);
    }
    let mut ways = 0;
    loop {
        visit(&way);
        ways += 1;
        // The next one in lexicographic order.
        let Some(at) = (0..base).rev().find(|at| way[*at] < runs - base + at) else {
            return (ways, true);
        };
        way[at] += 1;
        for next in at + 1..base {
            way[next] = way[next - 1] + 1;
        }
    }
}

/// Random enough to deal out runs, and the same every time: a comparison that is made twice says
/// the same (splitmix64).
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^= z >> 31;
        ((u128::from(z) * n as u128) >> 64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn five_runs_a_side_that_do_not_overlap_have_two_ways_in_252() {
        let row = vec![1.0, 1.01, 1.02, 1.0, 0.99, 1.5, 1.52, 1.49, 1.51, 1.5];
        let outcome = test(&[row], 5);
        assert_eq!((outcome.ways, outcome.exact), (252, true));
        assert!((outcome.tests[0].p - 2.0 / 252.0).abs() < 1e-12);
        assert!((outcome.tests[0].adjusted - least_p(5, 5)).abs() < 1e-12);
    }

    #[test]
    fn three_runs_a_side_prove_nothing_at_one_in_twenty() {
        assert!(least_p(3, 3) > 0.05 && least_p(4, 4) < 0.05);
        assert_eq!(least_p(1, 1), 1.0);
        assert_eq!(least_p(0, 5), 1.0);
        assert!(least_p(50, 50) > 0.0);
    }

    #[test]
    fn sides_without_runs_compare_to_nothing() {
        for base in [0, 2, 3] {
            assert_eq!(test(&[vec![1.0, 2.0]], base).tests[0].adjusted, 1.0);
        }
        assert!(test(&[], 3).tests.is_empty());
        assert_eq!(test(&[vec![f64::NAN, 1.0], vec![1.0]], 1).tests.len(), 2);
    }

    #[test]
    fn more_ways_than_feasible_are_sampled_the_same_each_time() {
        let row: Vec<f64> = (0..30).map(f64::from).collect();
        let outcome = test(std::slice::from_ref(&row), 15);
        assert_eq!((outcome.ways, outcome.exact), (MAX_WAYS, false));
        assert!(outcome.tests[0].adjusted < 0.001);
        assert!(outcome.tests[0].adjusted >= 1.0 / MAX_WAYS as f64);
        assert_eq!(outcome, test(&[row], 15));
    }
}
