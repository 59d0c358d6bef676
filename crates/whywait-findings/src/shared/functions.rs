//! In which functions threads were sampled on a CPU.

use std::collections::BTreeMap;
use std::rc::Rc;

use whywait_events::{Sample, StackId};
use whywait_model::Thread;
use whywait_words::shares;

use crate::facts::Facts;
use crate::numbers::SHOWN;

/// Stands for functions whose names were not read.
const UNNAMED: &str = "functions without a name";

/// What threads were sampled in.
pub(crate) struct SampledFunctions {
    /// By how many periods of the clock, the most first.
    each: Vec<(Rc<str>, u64)>,
    /// Of all samples.
    pub(crate) periods: u64,
    /// The thread that was seen most often in the first of them, and where.
    pub(crate) place: Option<(u32, StackId)>,
}

/// A function: its samples, and where they were taken.
#[derive(Default)]
struct SampledFunction {
    periods: u64,
    places: BTreeMap<(u32, StackId), u64>,
}

impl SampledFunctions {
    pub(crate) fn of<'a>(facts: &Facts<'_>, threads: impl Iterator<Item = &'a Thread>) -> Self {
        Self::of_samples(facts, threads.flat_map(|thread| &thread.samples))
    }

    pub(crate) fn of_samples<'a>(
        facts: &Facts<'_>,
        samples: impl Iterator<Item = &'a Sample>,
    ) -> Self {
        let mut by_name: BTreeMap<Rc<str>, SampledFunction> = BTreeMap::new();
        let mut all = 0_u64;
        for sample in samples {
            let periods = sample.weight();
            all = all.saturating_add(periods);
            let name = facts.function(sample.user_stack);
            let sampled = by_name.entry(name.unwrap_or(UNNAMED.into())).or_default();
            sampled.periods = sampled.periods.saturating_add(periods);
            let place = (sample.tid, sample.user_stack);
            *sampled.places.entry(place).or_default() += periods;
        }
        let mut each: Vec<(Rc<str>, SampledFunction)> = by_name.into_iter().collect();
        each.sort_by_key(|(_, sampled)| std::cmp::Reverse(sampled.periods));
        let places = each.first().map(|(_, sampled)| &sampled.places);
        let place = places.and_then(|places| places.iter().max_by_key(|(_, periods)| **periods));
        Self {
            place: place.map(|(place, _)| *place),
            each: each
                .into_iter()
                .map(|(name, sampled)| (name, sampled.periods))
                .collect(),
            periods: all,
        }
    }

    /// What takes most, where that has a name.
    pub(crate) fn first(&self) -> Option<(&str, u64)> {
        let (name, periods) = self.each.first()?;
        (&**name != UNNAMED).then_some((&**name, *periods))
    }

    /// `merge 85 %; render 15 %`; `None`: there is no sample.
    pub(crate) fn shown(&self) -> Option<String> {
        let each = self.each.iter().take(*SHOWN);
        let each = each.map(|(name, periods)| (&**name, *periods));
        (!self.each.is_empty()).then(|| shares(each, self.periods))
    }
}
