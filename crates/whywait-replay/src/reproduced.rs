//! The guard: a replay that changes nothing must be what was recorded.

use crate::engine::Replayed;
use crate::relaxation::Relaxation;
use crate::schedule::{Schedule, What, Work};

/// A schedule whose replay is what was recorded as long as nothing is changed. Only such a one says
/// what a change would do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reproduced {
    schedule: Schedule,
    /// Queues were not served in order of arrival: they are replayed in the order in which they
    /// were.
    out_of_order: bool,
}

/// What is said of many latencies, where works may have changed places.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Average {
    /// The middle one.
    Median,
    /// The mean. Some may have waited for longer, and others for less.
    Mean,
}

impl Average {
    /// Of these latencies, nanoseconds; 0 without any.
    pub fn of(self, latencies: &[u64]) -> u64 {
        match self {
            Self::Median => {
                let mut all = latencies.to_vec();
                all.sort_unstable();
                all.get(all.len() / 2).copied().unwrap_or(0)
            }
            Self::Mean => {
                let count = latencies.len() as u128;
                let mean = total_ns(latencies) / count.max(1);
                u64::try_from(mean).unwrap_or(u64::MAX)
            }
        }
    }
}

/// A replay that changes nothing is off by so much of what was recorded, in percent: more than it
/// may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Off {
    /// So much.
    pub percent: u64,
}

impl Schedule {
    /// The schedule, if a replay that changes nothing is off by so much at most, over the latencies
    /// of all works.
    ///
    /// # Errors
    /// If it is off by more.
    pub fn reproduced(self, within_percent: u64) -> Result<Reproduced, Off> {
        self.reproduced_by(None, within_percent)
    }

    /// The schedule, if a replay that changes nothing is off by so much at most on average.
    ///
    /// # Errors
    /// If it is off by more.
    pub fn reproduced_on(self, average: Average, within_percent: u64) -> Result<Reproduced, Off> {
        self.reproduced_by(Some(average), within_percent)
    }

    /// How much earlier each work would be answered at most, nanoseconds, by no replay: what it
    /// spends itself is what it takes at least, even if it waits for nobody.
    pub fn at_most(&self, relaxation: &Relaxation) -> Vec<u64> {
        let spends_ns = |work: &Work| {
            let spent = work.until_answered().iter().map(|step| match step.what {
                What::Spends { ns, cause } => relaxation.left_ns(ns, cause),
                _ => 0,
            });
            spent.fold(0, u64::saturating_add)
        };
        let works = self.works.iter();
        works
            .map(|work| work.latency_ns().saturating_sub(spends_ns(work)))
            .collect()
    }

    fn reproduced_by(
        self,
        average: Option<Average>,
        within_percent: u64,
    ) -> Result<Reproduced, Off> {
        let recorded = self.recorded();
        let replayed = latencies(&self.replay(&Relaxation::default()));
        let in_time = |(replayed, recorded): (&Option<u64>, &u64)| {
            replayed.is_some_and(|replayed| replayed <= *recorded)
        };
        let in_order = replayed.iter().zip(&recorded).all(in_time);
        let reproduced = Reproduced {
            schedule: self,
            out_of_order: average.is_none() && !in_order,
        };
        let unchanged = match reproduced.out_of_order {
            true => reproduced.replay(&Relaxation::default()),
            false => replayed,
        };
        // What is never answered has no latency.
        let works = reproduced.schedule.works.iter().map(Work::answers);
        let (recorded, unchanged): (Vec<u64>, Vec<u64>) = works
            .zip(recorded.into_iter().zip(unchanged))
            .filter(|(answers, _)| *answers)
            .map(|(_, (recorded, unchanged))| (recorded, unchanged.unwrap_or(0)))
            .unzip();
        let percent = off_percent(average, &recorded, &unchanged);
        match percent <= within_percent {
            true => Ok(reproduced),
            false => Err(Off { percent }),
        }
    }

    fn recorded(&self) -> Vec<u64> {
        self.works.iter().map(Work::latency_ns).collect()
    }
}

impl Reproduced {
    /// How long each work is under way, nanoseconds: as long as it was, if it is never answered.
    pub fn latencies(&self, relaxation: &Relaxation) -> Vec<u64> {
        let works = self.schedule.works.iter().zip(self.replay(relaxation));
        works
            .map(|(work, ns)| ns.unwrap_or(work.latency_ns()))
            .collect()
    }

    /// How much earlier each work would be answered at most, nanoseconds: never more than it took.
    pub fn savings(&self, relaxation: &Relaxation) -> Vec<u64> {
        self.schedule
            .works
            .iter()
            .zip(self.latencies(relaxation))
            .map(|(work, ns)| {
                let took_ns = work.latency_ns();
                let saved_ns = took_ns.saturating_sub(ns);
                saved_ns.max(relaxation.own_ns(work)).min(took_ns)
            })
            .collect()
    }

    fn replay(&self, relaxation: &Relaxation) -> Vec<Option<u64>> {
        latencies(&match self.out_of_order {
            true => self.schedule.replay_as_recorded(relaxation),
            false => self.schedule.replay(relaxation),
        })
    }
}

fn latencies(replayed: &[Replayed]) -> Vec<Option<u64>> {
    replayed.iter().map(Replayed::latency_ns).collect()
}

/// By how much one is off the other, in percent of what was recorded.
fn off_percent(average: Option<Average>, recorded: &[u64], replayed: &[u64]) -> u64 {
    let (off_ns, of_ns) = match average {
        None => {
            let both = recorded.iter().zip(replayed);
            let off = both.map(|(one, other)| u128::from(one.abs_diff(*other)));
            (off.sum(), total_ns(recorded))
        }
        Some(average) => {
            let (one, other) = (average.of(recorded), average.of(replayed));
            (u128::from(one.abs_diff(other)), u128::from(one))
        }
    };
    u64::try_from((off_ns * 100).div_ceil(of_ns.max(1))).unwrap_or(u64::MAX)
}

fn total_ns(each: &[u64]) -> u128 {
    each.iter().copied().map(u128::from).sum()
}
