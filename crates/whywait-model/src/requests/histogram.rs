//! Latencies in buckets that grow with the value: 8 to the power of two, as the BPF programs count
//! them.

use schemars::JsonSchema;
use serde::Serialize;

/// Buckets to the power of two, as a power of two.
const SHIFT: u32 = 3;

/// Counts of latencies by bucket.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Histogram {
    buckets: Vec<u64>,
    count: u64,
    max: u64,
}

/// Percentiles in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, JsonSchema)]
#[allow(missing_docs)]
pub struct Latency {
    pub p50: u64,
    pub p99: u64,
    pub max: u64,
    /// From this one on they are what it takes at least: requests among them are still open.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at_least_from: Option<Percentile>,
}

/// A figure of [`Latency`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs)]
pub enum Percentile {
    P50,
    P99,
    Max,
}

impl Latency {
    /// Whether a figure is a lower bound.
    pub fn at_least(&self, percentile: Percentile) -> bool {
        self.at_least_from.is_some_and(|from| percentile >= from)
    }
}

/// Requests of about the same latency.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LatencyBucket {
    /// From this latency on, nanoseconds.
    pub from_ns: u64,
    /// Below this one, nanoseconds.
    pub to_ns: u64,
    /// How many.
    pub count: u64,
}

/// The bucket of a value: the inverse of [`middle`]. Equals `latency_bucket` of `requests.bpf.h`.
pub(crate) fn bucket(ns: u64) -> usize {
    if ns < 1 << SHIFT {
        return ns as usize;
    }
    let exponent = 63 - ns.leading_zeros();
    (((exponent - SHIFT + 1) << SHIFT) as usize)
        + ((ns >> (exponent - SHIFT)) & ((1 << SHIFT) - 1)) as usize
}

/// The value in the middle of a bucket, nanoseconds.
fn middle(bucket: usize) -> u64 {
    if bucket < 1 << SHIFT {
        return bucket as u64;
    }
    let exponent = (bucket >> SHIFT) as u32 + SHIFT - 1;
    if exponent > 63 {
        return u64::MAX;
    }
    let width = 1u64 << (exponent - SHIFT);
    let low = (1u64 << exponent) + (bucket as u64 & ((1 << SHIFT) - 1)) * width;
    low + width / 2
}

impl Histogram {
    pub(crate) fn add(&mut self, ns: u64) {
        self.add_bucket(bucket(ns), 1);
        self.max = self.max.max(ns);
    }

    /// Adds `count` values of a bucket that was counted elsewhere. Buckets beyond 64-bit values do
    /// not exist.
    pub(crate) fn add_bucket(&mut self, bucket: usize, count: u64) {
        if bucket >= (64 << SHIFT) {
            return;
        }
        if self.buckets.len() <= bucket {
            self.buckets.resize(bucket + 1, 0);
        }
        self.buckets[bucket] = self.buckets[bucket].saturating_add(count);
        self.count = self.count.saturating_add(count);
    }

    /// Takes out up to `count` values of a bucket.
    pub(crate) fn take_from_bucket(&mut self, bucket: usize, count: u64) {
        if let Some(there) = self.buckets.get_mut(bucket) {
            let taken = count.min(*there);
            *there -= taken;
            self.count = self.count.saturating_sub(taken);
        }
    }

    /// A maximum that was counted elsewhere.
    pub(crate) fn raise_max(&mut self, ns: u64) {
        self.max = self.max.max(ns);
    }

    /// The buckets that are not empty, by their latencies.
    pub(crate) fn buckets(&self) -> Vec<LatencyBucket> {
        let buckets = self.buckets.iter().enumerate();
        buckets
            .filter(|(_, count)| **count > 0)
            .map(|(bucket, count)| {
                let (low, width) = span(bucket);
                LatencyBucket {
                    from_ns: low as u64,
                    to_ns: (low + width) as u64,
                    count: *count,
                }
            })
            .collect()
    }

    /// What is left without these values, which are among those that were added: the middle of each
    /// bucket, and how many are in it.
    pub(crate) fn without(&self, values: impl Iterator<Item = u64>) -> Vec<(u64, u64)> {
        let mut buckets = self.buckets.clone();
        for value in values {
            if let Some(count) = buckets.get_mut(bucket(value)) {
                *count = count.saturating_sub(1);
            }
        }
        let left = buckets.iter().enumerate().filter(|(_, count)| **count > 0);
        left.map(|(bucket, count)| (middle(bucket).min(self.max), *count))
            .collect()
    }

    /// Percentiles; `None` when empty. `slowest` are the highest values, ascending: percentiles
    /// among them are exact, the others to 6 % (half a bucket).
    pub(crate) fn latency(&self, slowest: &[u64]) -> Option<Latency> {
        let at = |percent: u64| {
            // The smallest value that at least so many per cent do not exceed.
            let rank = (u128::from(self.count) * u128::from(percent))
                .div_ceil(100)
                .max(1);
            let mut seen = 0u128;
            let from_the_top = u128::from(self.count) - rank.min(u128::from(self.count));
            if let Some(value) = usize::try_from(from_the_top)
                .ok()
                .and_then(|n| slowest.iter().rev().nth(n))
            {
                return *value;
            }
            let bucket = self.buckets.iter().position(|count| {
                seen += u128::from(*count);
                seen >= rank
            });
            bucket.map_or(self.max, |bucket| middle(bucket).min(self.max))
        };
        (self.count > 0).then(|| Latency {
            p50: at(50),
            p99: at(99),
            max: self.max,
            at_least_from: None,
        })
    }

    /// The value that this share (0 to 1) does not exceed; `None` when empty. Exact among
    /// `slowest`, the highest values, ascending; otherwise within the bucket as if its values were
    /// evenly spread.
    pub(crate) fn quantile(&self, share: f64, slowest: &[u64]) -> Option<f64> {
        if self.count == 0 {
            return None;
        }
        let rank = ((self.count as f64 * share).ceil() as u64).clamp(1, self.count);
        let from_the_top = usize::try_from(self.count - rank).ok();
        if let Some(value) = from_the_top.and_then(|n| slowest.iter().rev().nth(n)) {
            return Some(*value as f64);
        }
        let mut below = 0u64;
        for (bucket, count) in self.buckets.iter().enumerate() {
            if *count > 0 && below.saturating_add(*count) >= rank {
                let (low, width) = span(bucket);
                let within = (rank - below) as f64 - 0.5;
                return Some((low + width * within / *count as f64).min(self.max as f64));
            }
            below = below.saturating_add(*count);
        }
        Some(self.max as f64)
    }
}

/// Where a bucket begins, and how wide it is, nanoseconds.
fn span(bucket: usize) -> (f64, f64) {
    if bucket < 1 << SHIFT {
        return (bucket as f64, 1.0);
    }
    let exponent = (bucket >> SHIFT) as i32 + SHIFT as i32 - 1;
    let width = 2f64.powi(exponent - SHIFT as i32);
    let low = 2f64.powi(exponent) + (bucket & ((1 << SHIFT) - 1)) as f64 * width;
    (low, width)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_lie_within_their_bucket() {
        let mut histogram = Histogram::default();
        assert_eq!(histogram.quantile(0.5, &[]), None);
        (1..=1000).for_each(|us| histogram.add(us * 1000));
        for (share, us) in [(0.1, 100.0), (0.5, 500.0), (0.9, 900.0), (0.99, 990.0)] {
            let ns = histogram.quantile(share, &[]).expect("not empty");
            // The values are evenly spread indeed.
            assert!((ns / 1000.0 - us).abs() < us / 50.0, "{share}: {ns}");
        }
        assert_eq!(histogram.quantile(1.0, &[]), Some(1_000_000.0));
        assert_eq!(
            histogram.quantile(0.999, &[999_000, 1_000_000]),
            Some(999_000.0)
        );
        let mut one = Histogram::default();
        one.add(u64::MAX);
        assert!(one.quantile(0.5, &[]).is_some());
    }

    #[test]
    fn values_are_taken_out_again() {
        let mut histogram = Histogram::default();
        for ns in [5, 5, 1000, 1_000_000] {
            histogram.add(ns);
        }
        let left = histogram.without([5, 1_000_000].into_iter());
        assert_eq!(left, [(5, 1), (middle(bucket(1000)), 1)]);
        assert_eq!(histogram.without([7, 5, 5, 5].into_iter()).len(), 2);
    }

    #[test]
    fn a_bucket_holds_its_middle() {
        for b in 0..64 << SHIFT {
            let ns = middle(b);
            if ns != u64::MAX {
                assert_eq!(bucket(ns), b, "middle of bucket {b} is {ns}");
            }
        }
        assert_eq!(bucket(u64::MAX), ((63 - 2) << 3) + 7);
    }

    #[test]
    fn percentiles_are_within_a_bucket() {
        let mut histogram = Histogram::default();
        assert_eq!(histogram.latency(&[]), None);
        (1..=1000).for_each(|us| histogram.add(us * 1000));
        let latency = histogram.latency(&[]).expect("not empty");
        assert!(latency.p50.abs_diff(500_000) < 500_000 / 12, "{latency:?}");
        assert!(latency.p99.abs_diff(990_000) < 990_000 / 12, "{latency:?}");
        assert_eq!(latency.max, 1_000_000);
        let kept: Vec<u64> = (980..=1000).map(|us| us * 1000).collect();
        let latency = histogram.latency(&kept).expect("not empty");
        assert_eq!(latency.p99, 990_000, "exact among the slowest");
    }
}
