//! What must hold of the test whatever the runs are.

use proptest::prelude::*;
use whywait_compare::permutation::{least_p, test};

/// Random enough, and the same every time (splitmix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn uniform(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Bell-shaped, mean 0, deviation 1.
    fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.uniform()).sum::<f64>() - 6.0
    }

    /// Like a benchmark's noise: mostly narrow, at times far off, and always to one side.
    fn skewed(&mut self) -> f64 {
        let far = if self.uniform() < 0.1 { 10.0 } else { 1.0 };
        self.normal().abs() * far
    }
}

/// Measures of runs that are all alike. What a run is like as a whole is in all its measures.
fn alike(random: &mut Random, measures: usize, runs: usize) -> Vec<Vec<f64>> {
    let common: Vec<f64> = (0..runs).map(|_| random.skewed()).collect();
    (0..measures)
        .map(|at| {
            let noise = |random: &mut Random| {
                if at % 2 == 0 {
                    random.normal()
                } else {
                    random.skewed()
                }
            };
            common
                .iter()
                .map(|common| 0.02 * common + 0.03 * noise(random))
                .collect()
        })
        .collect()
}

#[test]
fn of_sides_that_are_the_same_at_most_one_in_twenty_is_told_apart() {
    let mut random = Random(7);
    let comparisons = 1000;
    let wrong = (0..comparisons)
        .filter(|_| {
            let rows = alike(&mut random, 30, 10);
            test(&rows, 5)
                .tests
                .iter()
                .any(|test| test.adjusted <= 0.05)
        })
        .count();
    // 12 of 252 permutations are at most 0.05; three deviations above that.
    assert!(wrong <= 69, "{wrong} of {comparisons} are called different");
}

#[test]
fn p_values_of_sides_that_are_the_same_are_uniform() {
    let mut random = Random(11);
    let comparisons = 2000;
    let ps: Vec<f64> = (0..comparisons)
        .map(|_| test(&alike(&mut random, 1, 10), 5).tests[0].p)
        .collect();
    for share in [0.1, 0.25, 0.5, 0.75, 0.9] {
        let below = ps.iter().filter(|p| **p <= share).count() as f64 / comparisons as f64;
        let deviation = (share * (1.0 - share) / comparisons as f64).sqrt();
        // Steps of 2/252 keep them a little below.
        assert!(
            below <= share + 3.5 * deviation,
            "{below} are at most {share}"
        );
        assert!(
            below >= share - 0.008 - 3.5 * deviation,
            "{below} are at most {share}"
        );
    }
}

#[test]
fn a_change_of_a_tenth_is_found_among_many_measures_that_did_not_change() {
    let mut random = Random(13);
    let comparisons = 200;
    let found = (0..comparisons)
        .filter(|_| {
            let mut rows = alike(&mut random, 29, 10);
            let changed = (0..10)
                .map(|run| 0.015 * random.normal() + if run < 5 { 0.0 } else { 0.1f64.ln_1p() })
                .collect();
            rows.push(changed);
            test(&rows, 5).tests[29].adjusted <= 0.05
        })
        .count();
    assert!(
        found * 100 >= comparisons * 95,
        "{found} of {comparisons} are found"
    );
}

#[test]
fn one_large_change_does_not_hide_another() {
    // Without step-down the second would be held against what the first is like when runs are
    // swapped.
    let mut random = Random(17);
    let row = |random: &mut Random, by: f64| -> Vec<f64> {
        (0..10)
            .map(|run| 0.01 * random.normal() + if run < 5 { 0.0 } else { by })
            .collect()
    };
    let rows = vec![
        row(&mut random, 3.0),
        row(&mut random, 0.1),
        row(&mut random, 0.0),
    ];
    let tests = test(&rows, 5).tests;
    assert!(
        tests[0].adjusted <= 0.05 && tests[1].adjusted <= 0.05,
        "{tests:?}"
    );
    assert!(tests[2].adjusted > 0.05, "{tests:?}");
}

fn sides() -> impl Strategy<Value = (Vec<Vec<f64>>, usize)> {
    (1usize..6, 1usize..6, 0usize..8).prop_flat_map(|(base, head, measures)| {
        let value = prop_oneof![
            -1e3..1e3f64,
            Just(0.0),
            Just(f64::NAN),
            Just(1e300),
            Just(f64::INFINITY)
        ];
        let row = proptest::collection::vec(value, base + head);
        (proptest::collection::vec(row, measures), Just(base))
    })
}

proptest! {
    #[test]
    fn no_p_value_is_below_what_is_possible((rows, base) in sides()) {
        let outcome = test(&rows, base);
        prop_assert_eq!(outcome.tests.len(), rows.len());
        for test in &outcome.tests {
            let head = rows[0].len() - base;
            prop_assert!(test.p >= least_p(base, head) - 1e-12, "{test:?}");
            prop_assert!(test.adjusted >= test.p - 1e-12 && test.adjusted <= 1.0, "{test:?}");
            prop_assert!(test.p >= 1.0 / outcome.ways as f64 - 1e-12);
        }
    }

    #[test]
    fn swapping_the_sides_changes_nothing((rows, base) in sides()) {
        let swapped: Vec<Vec<f64>> = rows
            .iter()
            .map(|row| row[base..].iter().chain(&row[..base]).copied().collect())
            .collect();
        let head = rows.first().map_or(1, Vec::len).saturating_sub(base);
        let (one, other) = (test(&rows, base), test(&swapped, head));
        for (one, other) in one.tests.iter().zip(&other.tests) {
            prop_assert!((one.p - other.p).abs() < 1e-9);
            prop_assert!((one.adjusted - other.adjusted).abs() < 1e-9);
        }
    }
}
