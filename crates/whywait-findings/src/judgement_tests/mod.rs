//! One schedule of a whole recording, and what each thing that requests wait for would save.
//!
//! What threads did is written down as it was: computing, sleeping for a time, a device or a peer,
//! and the wakes between threads, which are events. A request is a work that comes, and is answered
//! when a thread does so. Workers that each serve one request at a time are a resource. So whoever
//! waits for whom follows from the recording: a loop's turns, the jobs of an executor, a lock that
//! was held across a call.
//!
//! It is a shadow: no report has it, and tests hold what it can do. See
//! `docs/design/judgement.md`.

mod schedule;
mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::rc::Rc;

use whywait_replay::{Left, Relaxation, Schedule};

use crate::facts::Facts;
use crate::numbers::{SHOWN, SLOW_NS};
use crate::shared::intervals::sum;
use schedule::Builder;

/// Something that requests may wait for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Resource {
    /// A CPU, by what is computed.
    Function(Rc<str>),
    /// A device.
    Disk,
    /// A page.
    Memory,
    /// A time to come, by the function that waits for it.
    Timer(Option<Rc<str>>),
    /// One whom the target asks.
    Peer(String),
    /// A lock.
    Lock(String),
    /// Workers that each serve one request at a time, by the port that they serve.
    Workers(u16),
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Function(name) => write!(f, "cpu {name}"),
            Self::Disk => f.write_str("disk"),
            Self::Memory => f.write_str("memory"),
            Self::Timer(name) => write!(f, "timer {}", name.as_deref().unwrap_or("?")),
            Self::Peer(name) => write!(f, "peer {name}"),
            Self::Lock(name) => write!(f, "lock {name}"),
            Self::Workers(port) => write!(f, "workers :{port}"),
        }
    }
}

/// A resource, and what slow requests are saved without it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Suspect {
    /// Which.
    resource: Resource,
    /// What is saved at most if nobody waits for it: the bound.
    at_most_ns: u64,
    /// What is saved by twice as much of it.
    by_half_ns: u64,
    /// Of that, what is still saved once the first suspect is twice as much.
    after_ns: u64,
}

/// What is found of a recording.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Judgement {
    /// By how much a replay that changes nothing is off, in percent.
    off_percent: u64,
    /// What slow requests took, nanoseconds.
    slow_ns: u64,
    /// The one that saves most first.
    suspects: Vec<Suspect>,
}

impl Judgement {
    /// Judges a recording.
    pub(super) fn of(facts: &Facts<'_>) -> Self {
        let slow = facts.slow();
        let builder = Builder::of(facts);
        let schedule = builder.schedule(None);
        let own = |savings: Vec<u64>| sum(savings.into_iter().take(builder.requests()));
        let mut judgement = Self {
            off_percent: schedule.off_percent(),
            slow_ns: sum(slow.requests.iter().map(|one| one.latency_ns)),
            suspects: Vec::new(),
        };
        if judgement.slow_ns < *SLOW_NS {
            return judgement;
        }
        let mut ways: Vec<(Suspect, Schedule, Relaxation)> = Vec::new();
        for (resource, cause) in builder.largest(*SHOWN) {
            let relax = |left| Relaxation::default().shorter(cause, left);
            let by_half = relax(Left::Half);
            let suspect = Suspect {
                resource,
                at_most_ns: own(schedule.savings(&relax(Left::Nothing))),
                by_half_ns: own(schedule.savings(&by_half)),
                after_ns: 0,
            };
            ways.push((suspect, schedule.clone(), by_half));
        }
        for (resource, lock) in builder.locks(*SHOWN) {
            let unlocked = builder.schedule(Some(lock));
            let ns = own(unlocked.savings(&Relaxation::default()));
            ways.push((whole(resource, ns), unlocked, Relaxation::default()));
        }
        for (resource, number) in builder.workers() {
            let more = Relaxation::default().unlimited(number);
            let ns = own(schedule.savings(&more));
            ways.push((whole(resource, ns), schedule.clone(), more));
        }
        ways.sort_by_key(|(suspect, ..)| std::cmp::Reverse(suspect.by_half_ns));
        if let Some((first, by, fixed)) = ways.first().cloned() {
            for (suspect, with, relaxation) in &mut ways[1..] {
                let (schedule, more) = match with == &schedule {
                    true => (&by, relaxation.clone().and(&fixed)),
                    false => (&*with, fixed.clone()),
                };
                let both = schedule.savings(&more);
                suspect.after_ns = own(both).saturating_sub(first.by_half_ns);
            }
            ways[0].0.after_ns = first.by_half_ns;
        }
        judgement.suspects = ways.into_iter().map(|(suspect, ..)| suspect).collect();
        judgement
    }
}

fn whole(resource: Resource, ns: u64) -> Suspect {
    Suspect {
        resource,
        at_most_ns: ns,
        by_half_ns: ns,
        after_ns: 0,
    }
}

/// Numbers for things, in order of their first mention.
#[derive(Debug)]
struct Numbers<K> {
    all: BTreeMap<K, usize>,
}

impl<K: Ord + Clone> Numbers<K> {
    fn new() -> Self {
        Self {
            all: BTreeMap::new(),
        }
    }

    fn of(&mut self, key: K) -> usize {
        let next = self.all.len();
        *self.all.entry(key).or_insert(next)
    }
}
