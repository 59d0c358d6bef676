//! What a saving does to percentiles: how fast requests are at best when some of them save so much.

use schemars::JsonSchema;
use serde::Serialize;

use crate::model::Model;
use crate::requests::histogram::{Latency, Percentile};
use crate::requests::lives::Life;

/// Percentiles without what a finding is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
pub struct SavingEffect {
    /// What half of the requests do not exceed; absent: that is not slow.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p50: Option<AtBest>,
    /// What 99 of 100 requests do not exceed; absent: that is not slow.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p99: Option<AtBest>,
}

/// A percentile, as it is and as it could be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
pub struct AtBest {
    /// As it is.
    pub now_ns: u64,
    /// With the fix it is this or more. `null`: it may be below the recording's threshold.
    pub at_best_ns: Option<u64>,
}

impl Model {
    /// What percentiles are at best when so many requests take less. `largest_ns`: by how much, the
    /// largest first, and the others by no more than the last of these. Which requests these are
    /// does not matter: each choice has these bounds. `None` where latencies are not known.
    pub fn effect(&self, requests: u64, largest_ns: &[u64]) -> Option<SavingEffect> {
        if !self.tells_requests_apart() {
            return None;
        }
        let latency = self.latency()?;
        let mut took_ns: Vec<u64> = self.lives().filter_map(Life::took_ns).collect();
        took_ns.sort_unstable_by(|a, b| b.cmp(a));
        let of = |percentile| self.at_best(&latency, percentile, &took_ns, requests, largest_ns);
        let effect = SavingEffect {
            p50: of(Percentile::P50),
            p99: of(Percentile::P99),
        };
        (effect.p50.is_some() || effect.p99.is_some()).then_some(effect)
    }

    /// `took_ns`: of the requests that are looked at one by one, the longest first. All that are
    /// slow are among them, unless they are counted in the sums.
    fn at_best(
        &self,
        latency: &Latency,
        percentile: Percentile,
        took_ns: &[u64],
        requests: u64,
        largest_ns: &[u64],
    ) -> Option<AtBest> {
        let (now_ns, percent) = match percentile {
            Percentile::P50 => (latency.p50, 50),
            _ => (latency.p99, 99),
        };
        let slow_ns = self.threshold_ns();
        // A request that is open takes longer than is known, and may save more.
        if now_ns < slow_ns || latency.at_least(percentile) {
            return None;
        }
        let all = self.requests_that_count();
        let rank = (u128::from(all) * percent).div_ceil(100).max(1);
        let from_the_top = (u128::from(all) - rank.min(u128::from(all))) as u64;
        // Only so many requests save more than the next largest saving: of all that are as slow as
        // the one so many places further down, enough for the percentile save no more than that.
        let first = usize::try_from(from_the_top).ok()?;
        let from_here = took_ns.get(first..).unwrap_or_default();
        let at_least_ns = from_here.iter().enumerate().filter_map(|(more, ns)| {
            let saves_ns = match largest_ns.get(more).or(largest_ns.last()) {
                Some(saves_ns) if (more as u64) < requests => *saves_ns,
                _ => 0,
            };
            // Of slow ones in the sums it is not known what they save.
            (self.sums.slow == 0 || saves_ns == 0).then(|| ns.saturating_sub(saves_ns))
        });
        let at_best_ns = at_least_ns.max().map(|ns| ns.min(now_ns));
        Some(AtBest {
            now_ns,
            // What is not slow is not looked at, and what a fix saves there is not known.
            at_best_ns: at_best_ns.filter(|ns| *ns >= slow_ns),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::script::Script;

    const MS: u64 = 1_000_000;

    /// A hundred requests, one of 1 ms to one of 100 ms.
    fn hundred() -> Model {
        let mut script = Script::new();
        script.thread(1, "worker");
        for took in 1..=100 {
            let socket = script.request(took).ready(1_000 * took);
            socket.read(1_000 * took, 1).answered(1_001 * took, 1);
        }
        script.ends(200_000);
        script.model()
    }

    fn p99(requests: u64, each: u64) -> Option<u64> {
        let effect = hundred().effect(requests, &[each * MS]).expect("known");
        let p99 = effect.p99.expect("it is slow");
        assert_eq!(p99.now_ns, 99 * MS);
        p99.at_best_ns
    }

    #[test]
    fn nobody_saves_more_than_the_largest_saving() {
        assert_eq!(p99(100, 9), Some(90 * MS));
        assert_eq!(p99(100, 0), Some(99 * MS));
    }

    #[test]
    fn those_that_save_nothing_stay_as_slow() {
        assert_eq!(p99(9, 100), Some(90 * MS));
        assert_eq!(p99(0, 100), Some(99 * MS));
    }

    #[test]
    fn a_few_large_savings_do_not_count_for_all() {
        let few = |largest: &[u64]| {
            let largest: Vec<u64> = largest.iter().map(|ms| ms * MS).collect();
            let effect = hundred().effect(100, &largest).expect("known");
            effect.p99.expect("it is slow").at_best_ns
        };
        assert_eq!(few(&[90, 90, 90, 5]), Some(91 * MS));
        assert_eq!(few(&[90, 5]), Some(93 * MS));
    }

    #[test]
    fn what_may_fall_below_the_threshold_is_not_known() {
        assert_eq!(p99(100, 1_000), None);
    }
}
