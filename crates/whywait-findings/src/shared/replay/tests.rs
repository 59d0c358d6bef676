//! Schedules made by chance, with a fixed seed. A simulator that shares nothing with the engine
//! says what really was, and what really would have been without the part, the lock, or with more
//! workers; the bound must hold.

use super::schedule::{Change, Group, Job, Schedule, Step, Time, What};

/// Deterministic chance.
struct Chance(u64);

impl Chance {
    fn below(&mut self, below: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % below
    }
}

/// What a request does: so long before the lock, with it, and after it; of each so much is the part
/// that a fix takes away.
#[derive(Debug, Clone, Copy)]
struct Asks {
    ready: u64,
    pieces: [(u64, u64); 3],
    locks: bool,
}

/// What came of it: when it was taken, had the lock, let it go, was answered.
#[derive(Debug, Clone, Copy, Default)]
struct Came {
    taken: u64,
    asked: u64,
    got: u64,
    let_go: u64,
    answered: u64,
}

/// Many requests, in order of arrival, by so many workers.
fn asks(chance: &mut Chance, workers: u64) -> Vec<Asks> {
    let mut ready = 0;
    (0..10 + chance.below(40))
        .map(|_| {
            ready += 1 + chance.below(2_200_000 / workers);
            let pieces = [0; 3].map(|_| {
                let ns = 100 + chance.below(1_000_000);
                // Not all of it: what takes no time at all happens in whatever order.
                let gone = match chance.below(3) {
                    0 => ns - 1 - chance.below(90),
                    1 => chance.below(ns),
                    _ => 0,
                };
                (ns, gone)
            });
            Asks {
                ready,
                pieces,
                locks: chance.below(3) > 0,
            }
        })
        .collect()
}

/// The real thing: one event after the other, found by looking at all that may come next.
fn really(asks: &[Asks], workers: usize, without: bool, unlocked: bool) -> Vec<Came> {
    #[derive(Clone, Copy, PartialEq)]
    enum Is {
        Coming,
        Queued,
        /// In a piece, until then.
        In(usize, u64),
        Waiting,
        Done,
    }
    let ns = |one: &Asks, piece: usize| {
        let (ns, gone) = one.pieces[piece];
        if without { ns - gone } else { ns }
    };
    let mut is = vec![Is::Coming; asks.len()];
    let mut came = vec![Came::default(); asks.len()];
    let mut waiting: Vec<usize> = Vec::new();
    let (mut free, mut locked) = (workers, false);
    loop {
        // What comes next, and of whom.
        let next = (0..asks.len()).filter_map(|at| match is[at] {
            Is::Coming => Some((asks[at].ready, at)),
            Is::In(_, until) => Some((until, at)),
            _ => None,
        });
        let Some((now, at)) = next.min() else {
            return came;
        };
        match is[at] {
            Is::Coming => is[at] = Is::Queued,
            Is::In(0, _) => {
                came[at].asked = now;
                if asks[at].locks && !unlocked && locked {
                    is[at] = Is::Waiting;
                    waiting.push(at);
                } else {
                    locked |= asks[at].locks && !unlocked;
                    came[at].got = now;
                    is[at] = Is::In(1, now + ns(&asks[at], 1));
                }
            }
            Is::In(1, _) => {
                came[at].let_go = now;
                is[at] = Is::In(2, now + ns(&asks[at], 2));
                if asks[at].locks && !unlocked {
                    locked = !waiting.is_empty();
                    if locked {
                        let next = waiting.remove(0);
                        came[next].got = now;
                        is[next] = Is::In(1, now + ns(&asks[next], 1));
                    }
                }
            }
            _ => {
                came[at].answered = now;
                is[at] = Is::Done;
                free += 1;
            }
        }
        while let Some(at) = (0..asks.len()).find(|at| is[*at] == Is::Queued && free > 0) {
            free -= 1;
            came[at].taken = now;
            is[at] = Is::In(0, now + ns(&asks[at], 0));
        }
    }
}

/// What a recording of it has.
fn recorded(asks: &[Asks], came: &[Came], workers: usize) -> Schedule {
    let job = |(one, was): (&Asks, &Came)| {
        let work = |at_ns, piece: usize| {
            let (ns, gone_ns) = one.pieces[piece];
            Step {
                at_ns,
                what: What::Work(Time { ns, gone_ns }),
            }
        };
        let step = |at_ns, what| Step { at_ns, what };
        let mut steps = vec![work(was.taken, 0)];
        if one.locks {
            steps.push(step(was.asked, What::Lock(0)));
        }
        steps.push(work(was.got, 1));
        if one.locks {
            steps.push(step(was.let_go, What::Unlock(0)));
        }
        steps.push(work(was.let_go, 2));
        steps.push(step(was.answered, What::Answer));
        Job {
            ready_ns: one.ready,
            taken_ns: was.taken,
            answered_ns: was.answered,
            group: Some(0),
            follows: None,
            steps,
        }
    };
    Schedule {
        groups: vec![Group::of(workers)],
        jobs: asks.iter().zip(came).map(job).collect(),
    }
}

/// Holds the bounds of a change against what it really saves, over many schedules. Returns what
/// was saved and what was promised, altogether.
fn holds(change: Change, after: impl Fn(&[Asks], usize) -> Vec<Came>) -> (u64, u64) {
    let mut chance = Chance(21);
    let (mut all_saved, mut all_bounds) = (0, 0);
    for _ in 0..200 {
        let workers = 1 + chance.below(4);
        let asks = asks(&mut chance, workers);
        let workers = workers as usize;
        let before = really(&asks, workers, false, false);
        let after = after(&asks, workers);
        let bounds = recorded(&asks, &before, workers).savings(change);
        for (at, one) in asks.iter().enumerate() {
            let saved = before[at].answered.saturating_sub(after[at].answered);
            let took = before[at].answered - one.ready;
            assert!(
                saved <= bounds[at] && bounds[at] <= took,
                "{change:?}, request {at} of {}, {workers} workers: saved {saved}, bound {}, took \
                 {took}",
                asks.len(),
                bounds[at]
            );
            all_saved += saved;
            all_bounds += bounds[at];
        }
    }
    (all_saved, all_bounds)
}

/// A bound that is far too large is of no use either.
fn is_tight((saved, bounds): (u64, u64)) {
    assert!(saved > 0, "something is saved");
    assert!(saved * 10 >= bounds * 9, "saved {saved}, bound {bounds}");
}

#[test]
fn a_part_that_goes_never_saves_more_than_its_bound() {
    is_tight(holds(Change::Without, |asks, workers| {
        really(asks, workers, true, false)
    }));
}

#[test]
fn a_lock_that_goes_never_saves_more_than_its_bound() {
    is_tight(holds(Change::Unlocked(0), |asks, workers| {
        really(asks, workers, true, true)
    }));
}

#[test]
fn more_workers_never_save_more_than_their_bound() {
    is_tight(holds(Change::MoreServers(1), |asks, workers| {
        really(asks, workers + 1, false, false)
    }));
    is_tight(holds(Change::MoreServers(100), |asks, _| {
        really(asks, asks.len(), false, false)
    }));
}

#[test]
fn where_nothing_changes_nothing_is_saved() {
    let (saved, bounds) = holds(Change::Nothing, |asks, workers| {
        really(asks, workers, false, false)
    });
    assert_eq!((saved, bounds), (0, 0));
}

fn step(at_ns: u64, what: What) -> Step {
    Step { at_ns, what }
}

/// Sixteen wait for one sync.
#[test]
fn all_who_wait_for_an_event_are_saved_what_brings_it_about() {
    let sync = Time {
        ns: 100,
        gone_ns: 100,
    };
    let leader = Job {
        ready_ns: 10,
        answered_ns: 110,
        steps: vec![
            step(10, What::Work(sync)),
            step(110, What::Brings(0)),
            step(110, What::Answer),
        ],
        ..Job::default()
    };
    let follower = |at: u64| Job {
        ready_ns: at,
        answered_ns: 115,
        steps: vec![
            step(at, What::Until(0)),
            step(110, What::Work(Time::kept(5))),
            step(115, What::Answer),
        ],
        ..Job::default()
    };
    let schedule = Schedule {
        groups: Vec::new(),
        jobs: std::iter::once(leader)
            .chain((11..26).map(follower))
            .collect(),
    };
    let savings = schedule.savings(Change::Without);
    assert_eq!(savings[0], 100);
    let followers: Vec<u64> = (11..26).map(|at| 110 - at).collect();
    assert_eq!(savings[1..], followers[..]);
}

/// Requests that were not served in order of arrival: the last one that came was served first.
#[test]
fn nothing_is_later_than_it_was() {
    let job = |at: u64, taken: u64, gone_ns: u64| Job {
        ready_ns: at,
        taken_ns: taken,
        answered_ns: taken + 100,
        group: Some(0),
        follows: None,
        steps: vec![
            step(taken, What::Work(Time { ns: 100, gone_ns })),
            step(taken + 100, What::Answer),
        ],
    };
    let schedule = Schedule {
        groups: vec![Group::of(1)],
        jobs: vec![job(0, 0, 0), job(10, 200, 0), job(20, 100, 50)],
    };
    let savings = schedule.savings(Change::Without);
    assert_eq!(savings[0], 0);
    assert!(savings[2] >= 50, "its own part, at least: {}", savings[2]);
    assert!(savings[1] >= 50, "who waits behind it: {}", savings[1]);
}
