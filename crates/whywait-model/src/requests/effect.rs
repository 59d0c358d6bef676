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
    /// What percentiles are at best when requests take less, all together by so much. How much of
    /// that is which request's does not matter: each choice has these bounds. So they hold whenever
    /// the sum does. `None` where latencies are not known.
    pub fn effect(&self, saved_ns: u64) -> Option<SavingEffect> {
        if !self.tells_requests_apart() {
            return None;
        }
        let latency = self.latency()?;
        let mut took_ns: Vec<u64> = self.lives().filter_map(Life::took_ns).collect();
        took_ns.sort_unstable_by(|a, b| b.cmp(a));
        let of = |percentile| self.at_best(&latency, percentile, &took_ns, saved_ns);
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
        saved_ns: u64,
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
        // For a lower percentile all from here on must take less: those before it need not.
        let first = usize::try_from(from_the_top).ok()?;
        let from_here = took_ns.get(first..).unwrap_or_default();
        let at_best_ns = lowered_to(from_here, saved_ns).map(|ns| ns.min(now_ns));
        Some(AtBest {
            now_ns,
            // Of slow ones in the sums it is not known what each took. What is not slow is not
            // looked at, and what a fix saves there is not known.
            at_best_ns: at_best_ns.filter(|ns| self.sums.slow == 0 && *ns >= slow_ns),
        })
    }
}

/// What the longest of these takes at best, the longest first, if all together are spared so much:
/// those at the top are brought down to one level.
fn lowered_to(took_ns: &[u64], saved_ns: u64) -> Option<u64> {
    let mut above_ns = 0_u64;
    let levels = took_ns.iter().zip(1..).map(|(ns, many): (&u64, u64)| {
        above_ns = above_ns.saturating_add(*ns);
        above_ns.saturating_sub(saved_ns).div_ceil(many)
    });
    levels.max()
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

    /// p50 and p99, when so much is saved in all.
    fn at_best(saved: u64) -> [Option<u64>; 2] {
        let effect = hundred().effect(saved * MS).expect("known");
        let (p50, p99) = (effect.p50.expect("slow"), effect.p99.expect("slow"));
        assert_eq!([p50.now_ns, p99.now_ns], [50 * MS, 99 * MS]);
        [p50.at_best_ns, p99.at_best_ns]
    }

    #[test]
    fn those_at_the_top_are_brought_down_to_one_level() {
        assert_eq!(at_best(0), [Some(50 * MS), Some(99 * MS)]);
        // From 99, 98, 97 and 96 ms.
        assert_eq!(at_best(6)[1], Some(96 * MS));
        // One that takes 100 ms is none of the 99 that take less.
        assert_eq!(at_best(10), [Some(46 * MS), Some(95 * MS)]);
    }

    #[test]
    fn no_way_to_share_out_a_saving_has_a_lower_percentile() {
        let took: Vec<u64> = (1..=99).rev().collect();
        for saved in 0..4_900 {
            let level = lowered_to(&took, saved).expect("there are some");
            let to = |level: u64| took.iter().map(|ns| ns.saturating_sub(level)).sum::<u64>();
            assert!(to(level) <= saved, "{saved} is enough for {level}");
            assert!(level == 0 || to(level - 1) > saved, "and for no less");
        }
        assert_eq!(lowered_to(&took, 4_950), Some(0));
        assert_eq!(lowered_to(&[], 1), None);
    }

    #[test]
    fn what_may_fall_below_the_threshold_is_not_known() {
        assert_eq!(at_best(4_900), [None, None]);
    }
}
