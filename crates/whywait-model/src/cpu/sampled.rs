//! Where the sampling clock found threads on a CPU, summed up over a whole recording.

use whywait_events::{Sample, StackId};

use crate::maps::HashMap;

/// Places that are kept apart.
const MAX_PLACES: usize = 200_000;

/// Where the sampling clock found threads on a CPU, and for how many of its periods.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sampled {
    places: HashMap<SampledPlace, u64>,
    left_out: u64,
}

/// A place in which a thread was sampled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SampledPlace {
    /// The thread.
    pub tid: u32,
    /// User stack, 0: none was taken.
    pub user_stack: StackId,
    /// Kernel stack, 0: it ran in user mode.
    pub kernel_stack: StackId,
}

impl Sampled {
    /// Takes a row of the recording.
    pub fn add(&mut self, row: &Sample) {
        let place = SampledPlace {
            tid: row.tid,
            user_stack: row.user_stack,
            kernel_stack: row.kernel_stack,
        };
        if self.places.len() >= MAX_PLACES && !self.places.contains_key(&place) {
            self.left_out += 1;
            return;
        }
        let periods = self.places.entry(place).or_default();
        *periods = periods.saturating_add(row.weight());
    }

    /// The places, and for how many periods of the clock (`sample_hz`) each stands.
    pub fn places(&self) -> impl Iterator<Item = (&SampledPlace, u64)> {
        let places = self.places.iter();
        let mut places: Vec<_> = places.map(|(place, periods)| (place, *periods)).collect();
        places.sort_unstable();
        places.into_iter()
    }

    /// Samples that were left out because there were too many places.
    pub(crate) fn left_out(&self) -> u64 {
        self.left_out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_counts_for_its_periods() {
        let mut sampled = Sampled::default();
        for periods in [0, 1, 4] {
            sampled.add(&Sample {
                tid: 7,
                user_stack: 3,
                periods,
                ..Sample::default()
            });
        }
        let place = SampledPlace {
            tid: 7,
            user_stack: 3,
            kernel_stack: 0,
        };
        assert_eq!(sampled.places().collect::<Vec<_>>(), [(&place, 6)]);
    }
}
