//! In which functions threads were sampled on a CPU.

use std::collections::BTreeMap;
use std::rc::Rc;

use whywait_events::{Sample, StackId};
use whywait_model::{Model, Thread, app_frames};
use whywait_words::{percent, shares};

use crate::facts::Facts;
use crate::finding::Cause;
use crate::numbers::{SHOWN, Share, WORK_IN_COMMON};

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

    /// `: merge takes 85 % of their work`, the end of a title; empty where what takes most has no
    /// name. `of`: whose work.
    pub(crate) fn title(&self, of: &str) -> String {
        self.first()
            .map_or_else(String::new, |(function, periods)| {
                let share = percent(periods, self.periods);
                format!(": {function} takes {share} of {of}")
            })
    }

    /// The place in which the first of them was seen most often.
    pub(crate) fn cause(&self, model: &Model) -> Option<Cause> {
        let (tid, stack) = self.place?;
        Some(Cause::new(model, tid, "on CPU".to_owned(), stack))
    }
}

/// The function of the application that has nearly all of some samples in it, the innermost such
/// one: what they have in common is that, and not what it happens to call.
pub(crate) struct InCommon<'m> {
    pub(crate) function: &'m str,
    /// Samples whose stacks reach a function of the application, of all, by periods.
    pub(crate) known: u64,
    pub(crate) all: u64,
    /// The stack with it that was seen most often.
    pub(crate) tid: u32,
    pub(crate) stack: StackId,
}

impl<'m> InCommon<'m> {
    pub(crate) fn of<'a>(
        model: &'m Model,
        samples: impl Iterator<Item = &'a Sample>,
    ) -> Option<Self> {
        let mut stacks: BTreeMap<(u32, StackId), u64> = BTreeMap::new();
        for sample in samples {
            let periods = stacks.entry((sample.tid, sample.user_stack)).or_default();
            *periods = periods.saturating_add(sample.weight());
        }
        let all = stacks.values().sum();
        let (mut known, mut functions) = (0, BTreeMap::<&str, u64>::new());
        for ((_, stack), periods) in &stacks {
            let names = names(model, *stack);
            known += if names.is_empty() { 0 } else { *periods };
            for (at, name) in names.iter().enumerate() {
                if !names[..at].contains(name) {
                    *functions.entry(name).or_default() += periods;
                }
            }
        }
        let is_common = |name: &&str| {
            let periods = functions.get(name).copied().unwrap_or(0);
            Share::new(periods, known).is_at_least(*WORK_IN_COMMON)
        };
        // The innermost one, in the stack that was seen most often.
        let seen = stacks.iter().filter_map(|((tid, stack), periods)| {
            let function = names(model, *stack).into_iter().find(is_common)?;
            Some((*periods, *tid, *stack, function))
        });
        let (_, tid, stack, function) = seen.max_by_key(|(periods, ..)| *periods)?;
        Some(Self {
            function,
            known,
            all,
            tid,
            stack,
        })
    }
}

/// The functions of the application's own in a stack, the innermost first.
fn names(model: &Model, stack: StackId) -> Vec<&str> {
    let stack = model.stacks.get(stack);
    stack.map_or_else(Vec::new, |stack| {
        app_frames(stack).map(|label| &*label.name).collect()
    })
}
