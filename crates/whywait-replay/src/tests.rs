//! Schedules made by chance, with a fixed seed. A simulator that shares nothing with the engine
//! says what really was, and what really would have been with something relaxed; the bound must
//! hold.

use std::collections::VecDeque;

use crate::{Left, Relaxation, Reproduced, Resource, Schedule, Step, What, Work};

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

/// What a work asks for, before it is known how long it waits.
#[derive(Debug, Clone, Default)]
struct Asks {
    ready: u64,
    does: Vec<What>,
}

/// When each of a work's steps began, and when the last one ended.
#[derive(Debug, Clone, Default)]
struct Came {
    began: Vec<u64>,
    ended: u64,
}

/// The real thing: with so many slots of each resource, and so long for each cause; one event after
/// the other, found by looking at all that may come next.
fn really(asks: &[Asks], slots: &[usize], takes: impl Fn(u64, Option<usize>) -> u64) -> Vec<Came> {
    let mut came = vec![Came::default(); asks.len()];
    // When each goes on; `None`: it waits, or is done.
    let mut goes: Vec<Option<u64>> = asks.iter().map(|one| Some(one.ready)).collect();
    let mut taken = vec![0; slots.len()];
    let mut queues: Vec<VecDeque<usize>> = vec![VecDeque::new(); slots.len()];
    let mut brought: Vec<usize> = Vec::new();
    let mut await_it: Vec<(usize, usize)> = Vec::new();
    loop {
        let next = (0..asks.len()).filter_map(|at| Some((goes[at]?, at)));
        let Some((now, at)) = next.min() else {
            return came;
        };
        goes[at] = None;
        let Some(what) = asks[at].does.get(came[at].began.len()) else {
            came[at].ended = now;
            continue;
        };
        came[at].began.push(now);
        match *what {
            What::Spends { ns, cause } => goes[at] = Some(now + takes(ns, cause)),
            What::Takes(one) if taken[one] == slots[one] => queues[one].push_back(at),
            What::Takes(one) => {
                taken[one] += 1;
                goes[at] = Some(now);
            }
            What::Frees(one) => {
                goes[at] = Some(now);
                match queues[one].pop_front() {
                    Some(next) => goes[next] = Some(now),
                    None => taken[one] -= 1,
                }
            }
            What::Until(event) if !brought.contains(&event) => await_it.push((event, at)),
            What::Brings(event) => {
                goes[at] = Some(now);
                brought.push(event);
                for (_, one) in await_it.iter().filter(|(other, _)| *other == event) {
                    goes[*one] = Some(now);
                }
                await_it.retain(|(other, _)| *other != event);
            }
            What::Until(_) | What::Answers => goes[at] = Some(now),
        }
    }
}

/// What a recording of it has.
fn recorded(asks: &[Asks], came: &[Came], slots: &[usize]) -> Schedule {
    let work = |(one, was): (&Asks, &Came)| {
        // A step begins when the one before it is over: who waited has waited by then.
        let steps = one.does.iter().zip(&was.began);
        Work {
            ready_ns: one.ready,
            answered_ns: was.ended,
            follows: None,
            steps: steps
                .map(|(what, at)| Step {
                    at_ns: *at,
                    what: *what,
                })
                .collect(),
        }
    };
    Schedule {
        resources: slots.iter().map(|slots| Resource::of(*slots)).collect(),
        works: asks.iter().zip(came).map(work).collect(),
    }
}

/// Shapes in which works use resources.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shape {
    /// A worker, and a lock for a part of the time.
    Lock,
    /// A worker, a lock, and a device while it is held.
    LockAcrossDevice,
    /// A loop's turn, then a connection from a pool, then another turn of the loop.
    PoolBehindLoop,
    /// A loop hands on to an ordered queue of one, and that to threads.
    OrderedQueue,
}

const SHAPES: [Shape; 4] = [
    Shape::Lock,
    Shape::LockAcrossDevice,
    Shape::PoolBehindLoop,
    Shape::OrderedQueue,
];

impl Shape {
    fn slots(self, workers: usize) -> Vec<usize> {
        match self {
            Shape::Lock => vec![workers, 1],
            Shape::LockAcrossDevice => vec![workers, 1, 1],
            Shape::PoolBehindLoop => vec![1, workers],
            Shape::OrderedQueue => vec![1, 1, workers],
        }
    }

    /// What one work does. The time of cause 0 is that of the first resource, and so on.
    fn does(self, chance: &mut Chance) -> Vec<What> {
        let mut spends = |cause: usize, most: u64| What::Spends {
            ns: 100 + chance.below(most),
            cause: Some(cause),
        };
        let (takes, frees) = (What::Takes, What::Frees);
        let mut does = match self {
            Shape::Lock => vec![
                takes(0),
                spends(0, 400_000),
                takes(1),
                spends(1, 600_000),
                frees(1),
                spends(0, 400_000),
                frees(0),
            ],
            Shape::LockAcrossDevice => vec![
                takes(0),
                spends(0, 400_000),
                takes(1),
                spends(1, 100_000),
                takes(2),
                spends(2, 500_000),
                frees(2),
                frees(1),
                spends(0, 300_000),
                frees(0),
            ],
            Shape::PoolBehindLoop => vec![
                takes(0),
                spends(0, 100_000),
                frees(0),
                takes(1),
                spends(1, 1_000_000),
                frees(1),
                takes(0),
                spends(0, 100_000),
                frees(0),
            ],
            Shape::OrderedQueue => vec![
                takes(0),
                spends(0, 50_000),
                frees(0),
                takes(1),
                takes(2),
                frees(1),
                spends(2, 900_000),
                frees(2),
            ],
        };
        does.push(What::Answers);
        does
    }
}

/// Many works of a shape, in order of arrival.
fn asks(chance: &mut Chance, shape: Shape, workers: usize) -> Vec<Asks> {
    let mut ready = 0;
    (0..10 + chance.below(40))
        .map(|_| {
            ready += 1 + chance.below(2_200_000 / workers as u64);
            Asks {
                ready,
                does: shape.does(chance),
            }
        })
        .collect()
}

/// Something that is relaxed, for the engine and for the simulator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Relaxed {
    Nothing,
    More(usize, usize),
    Unlimited(usize),
    Shorter(usize, Left),
    Both(usize, usize),
}

impl Relaxed {
    fn relaxation(self) -> Relaxation {
        let relaxation = Relaxation::default();
        match self {
            Relaxed::Nothing => relaxation,
            Relaxed::More(resource, slots) => relaxation.more(resource, slots),
            Relaxed::Unlimited(resource) => relaxation.unlimited(resource),
            Relaxed::Shorter(cause, left) => relaxation.shorter(cause, left),
            Relaxed::Both(resource, cause) => relaxation
                .unlimited(resource)
                .and(&Relaxation::default().shorter(cause, Left::Half)),
        }
    }

    fn really(self, asks: &[Asks], slots: &[usize]) -> Vec<Came> {
        let mut slots = slots.to_vec();
        match self {
            Relaxed::More(resource, more) => slots[resource] += more,
            Relaxed::Unlimited(resource) | Relaxed::Both(resource, _) => {
                slots[resource] = asks.len();
            }
            _ => {}
        }
        really(asks, &slots, |ns, cause| match self {
            Relaxed::Shorter(one, left) if cause == Some(one) => match left {
                Left::Nothing => 0,
                Left::AtMost(most) => ns.min(most),
                Left::Half => ns / 2,
            },
            Relaxed::Both(_, one) if cause == Some(one) => ns / 2,
            _ => ns,
        })
    }
}

/// What was comes out.
fn as_it_was(schedule: Schedule) -> Reproduced {
    schedule.reproduced(0).expect("what was")
}

/// Holds the bounds of a relaxation against what it really saves, over many schedules of a shape.
/// Returns what was saved and what was promised, altogether.
fn holds(shape: Shape, relaxed: Relaxed) -> (u64, u64) {
    let mut chance = Chance(21);
    let (mut all_saved, mut all_bounds) = (0, 0);
    for _ in 0..40 {
        let workers = 1 + chance.below(4) as usize;
        let asks = asks(&mut chance, shape, workers);
        let slots = shape.slots(workers);
        let before = really(&asks, &slots, |ns, _| ns);
        let after = relaxed.really(&asks, &slots);
        let schedule = recorded(&asks, &before, &slots);
        let without_replay = schedule.at_most(&relaxed.relaxation());
        let bounds = as_it_was(schedule).savings(&relaxed.relaxation());
        for (at, one) in asks.iter().enumerate() {
            let saved = before[at].ended.saturating_sub(after[at].ended);
            let took = before[at].ended - one.ready;
            assert!(
                saved <= bounds[at] && bounds[at] <= took,
                "{shape:?}, {relaxed:?}, work {at} of {}, {workers} workers: saved {saved}, bound \
                 {}, took {took}",
                asks.len(),
                bounds[at]
            );
            assert!(bounds[at] <= without_replay[at] && without_replay[at] <= took);
            all_saved += saved;
            all_bounds += bounds[at];
        }
    }
    (all_saved, all_bounds)
}

#[test]
fn no_relaxation_of_any_shape_saves_more_than_its_bound() {
    let mut saved_something = 0;
    for shape in SHAPES {
        let resources = shape.slots(1).len();
        let each = (0..resources).flat_map(|one| {
            [
                Relaxed::More(one, 1),
                Relaxed::Unlimited(one),
                Relaxed::Shorter(one, Left::Half),
                Relaxed::Shorter(one, Left::AtMost(20_000)),
                Relaxed::Shorter(one, Left::Nothing),
                Relaxed::Both(one, resources - 1),
            ]
        });
        for relaxed in each {
            let (saved, bounds) = holds(shape, relaxed);
            saved_something += usize::from(saved > 0);
            // A bound that is far too large is of no use either.
            assert!(
                saved * 10 >= bounds * 9,
                "{shape:?}, {relaxed:?}: saved {saved}, bound {bounds}"
            );
        }
    }
    assert!(
        saved_something >= 40,
        "most save something: {saved_something}"
    );
}

#[test]
fn where_nothing_changes_nothing_is_saved() {
    for shape in SHAPES {
        assert_eq!(holds(shape, Relaxed::Nothing), (0, 0), "{shape:?}");
    }
}

fn step(at_ns: u64, what: What) -> Step {
    Step { at_ns, what }
}

fn spends(at_ns: u64, ns: u64, cause: usize) -> Step {
    step(
        at_ns,
        What::Spends {
            ns,
            cause: Some(cause),
        },
    )
}

/// Sixteen wait for one sync.
#[test]
fn all_who_wait_for_an_event_are_saved_what_brings_it_about() {
    let leader = Work {
        ready_ns: 10,
        answered_ns: 110,
        follows: None,
        steps: vec![
            spends(10, 100, 0),
            step(110, What::Brings(0)),
            step(110, What::Answers),
        ],
    };
    let follower = |at: u64| Work {
        ready_ns: at,
        answered_ns: 115,
        follows: None,
        steps: vec![
            step(at, What::Until(0)),
            spends(110, 5, 1),
            step(115, What::Answers),
        ],
    };
    let schedule = Schedule {
        resources: Vec::new(),
        works: std::iter::once(leader)
            .chain((11..26).map(follower))
            .collect(),
    };
    let savings = as_it_was(schedule).savings(&Relaxation::default().shorter(0, Left::Nothing));
    assert_eq!(savings[0], 100);
    let followers: Vec<u64> = (11..26).map(|at| 110 - at).collect();
    assert_eq!(savings[1..], followers[..]);
}

/// Works that were not served in order of arrival: the last one that came was served first.
#[test]
fn nothing_is_later_than_it_was() {
    let work = |at: u64, taken: u64, gone_ns: u64| Work {
        ready_ns: at,
        answered_ns: taken + 100,
        follows: None,
        steps: vec![
            step(at, What::Takes(0)),
            spends(taken, gone_ns, 0),
            spends(taken + gone_ns, 100 - gone_ns, 1),
            step(taken + 100, What::Answers),
        ],
    };
    let schedule = Schedule {
        resources: vec![Resource::of(1)],
        works: vec![work(0, 0, 0), work(10, 200, 0), work(20, 100, 50)],
    };
    let schedule = as_it_was(schedule);
    let savings = schedule.savings(&Relaxation::default().shorter(0, Left::Nothing));
    assert_eq!(savings[0], 0);
    assert!(savings[2] >= 50, "its own part, at least: {}", savings[2]);
    assert!(savings[1] >= 50, "who waits behind it: {}", savings[1]);
}

/// Clients that wait for their answer come again sooner when they have it sooner.
#[test]
fn who_waited_for_an_answer_comes_as_long_after_it_as_before() {
    let work = |ready_ns: u64, answered_ns: u64, follows: Option<usize>| Work {
        ready_ns,
        answered_ns,
        follows,
        steps: vec![
            step(ready_ns, What::Takes(0)),
            spends(answered_ns - 100, 100, 0),
            step(answered_ns, What::Answers),
        ],
    };
    let schedule = Schedule {
        resources: vec![Resource::of(1)],
        works: vec![
            work(0, 100, None),
            work(10, 200, None),
            work(110, 300, Some(0)),
        ],
    };
    let replayed = schedule.replay(&Relaxation::default().more(0, 1));
    assert_eq!(replayed[1].answered_ns, Some(110));
    assert_eq!(
        (replayed[2].ready_ns, replayed[2].answered_ns),
        (110, Some(210))
    );
    let replayed = schedule.replay(&Relaxation::default().shorter(0, Left::Half));
    assert_eq!(
        (replayed[2].ready_ns, replayed[2].answered_ns),
        (60, Some(150))
    );
}

/// A lock held across a device: to take the device's part away saves what an unlimited lock would,
/// and after it the lock saves next to nothing more.
#[test]
fn of_nested_causes_one_saves_next_to_nothing_after_the_other() {
    let mut chance = Chance(4);
    let shape = Shape::LockAcrossDevice;
    let asks = asks(&mut chance, shape, 3);
    let slots = shape.slots(3);
    let schedule = as_it_was(recorded(&asks, &really(&asks, &slots, |ns, _| ns), &slots));
    let total = |relaxation: &Relaxation| schedule.savings(relaxation).iter().sum::<u64>();
    let device = Relaxation::default().shorter(2, Left::Nothing);
    let lock = Relaxation::default().unlimited(1);
    let both_ns = total(&device.clone().and(&lock));
    let after_ns = both_ns - total(&device);
    assert!(
        after_ns * 10 < total(&lock),
        "{after_ns} after the device, {} alone",
        total(&lock)
    );
}
