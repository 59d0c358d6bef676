//! What requests pass one at a time inside a program: a task that takes messages from a queue, a
//! chain of promises, a lock of tasks. No thread sleeps for it, so that only answers show it.
//!
//! Three shapes tell it from requests that each take a time of their own, side by side:
//!
//! - **Computing.** While two requests or more are inside, read and not answered, and no thread
//!   lacks a CPU, one thread computes nearly all of the time, now this one, now that, and hardly
//!   ever two. What is done side by side would be done on two CPUs.
//! - **In step.** Answers follow each other after the same time, and a request takes as many of
//!   these steps as there are requests before it. That holds for those that came when few were
//!   inside as well: what takes a time of its own takes as long however many are there. Where
//!   requests come in the same step all the time it shows which follows from which only if each
//!   comes right after an answer, as from clients that wait for theirs, answers are more even than
//!   what requests take (see [`as_steps_add_up`]), and it is a timer of the program's own that ends
//!   each step: what comes from outside, as a job that is pushed for who waits for one, may be as
//!   even. Else nothing is said.
//! - **In order.** Requests take unequal times, up to timers of the program's own, and yet none
//!   overtakes another one: see [`in_order`].
//!
//! In the last two requests are not asleep in threads of their own: what for would show there.

mod in_order;

use std::collections::{BTreeMap, BTreeSet};

use whywait_events::{Ns, Part, Sample};
use whywait_model::{Model, RequestRef, Thread};

pub(crate) use self::in_order::InOrder;
use crate::facts::Facts;
use crate::numbers::{
    ADDED_UP, IN_STEP, IN_STEP_MIN_GAPS, LANE_WINDOW, MIN_REQUESTS, MOST, MUCH, NEARLY_ALL,
    SLOW_NS, STEP_OFF, Share,
};
use crate::shared::intervals::{Covered, Interval, even_ns, in_step_ns, merged, sum};
use crate::shared::slow_paths::{is_sleep, wait_of};

/// Requests of a process that pass one at a time.
pub(crate) struct Lane<'m> {
    pub(crate) tgid: u32,
    /// In the order of their answers.
    pub(crate) requests: Vec<Passing<'m>>,
    pub(crate) shape: LaneShape<'m>,
}

/// How it shows.
pub(crate) enum LaneShape<'m> {
    Computing(OneComputes<'m>),
    InStep(InStep),
    InOrder(InOrder),
}

/// A request that passes.
#[derive(Clone, Copy)]
pub(crate) struct Passing<'m> {
    pub(crate) request: RequestRef<'m>,
    /// For how long others were before it: from its reading to the answer before its own.
    pub(crate) waited_ns: u64,
    /// From then on to its answer.
    step_ns: u64,
    /// How many were inside when it was read, with itself.
    place: usize,
}

/// Threads that compute, one at a time.
pub(crate) struct OneComputes<'m> {
    /// While two requests or more were inside, and none of the threads lacked a CPU.
    pub(crate) free_ns: u64,
    /// In so many windows of that, of so many, they were on a CPU for as long as one is.
    pub(crate) windows: (usize, usize),
    pub(crate) threads: Vec<&'m Thread>,
    /// When they were seen on a CPU meanwhile.
    pub(crate) samples: Vec<&'m Sample>,
}

/// Answers in step.
pub(crate) struct InStep {
    pub(crate) step_ns: u64,
    /// What requests took that came when at most half as many were inside as at most, and the
    /// others: how many were inside and what they took, middle ones. `few` is `None` where as many
    /// are inside all the time.
    pub(crate) few: Option<(usize, u64)>,
    pub(crate) many: (usize, u64),
}

impl<'m> Lane<'m> {
    /// All of them.
    pub(crate) fn of(facts: &Facts<'m>) -> Vec<Self> {
        let mut by_process: BTreeMap<u32, Vec<RequestRef<'m>>> = BTreeMap::new();
        for request in facts.places().values().flatten() {
            let inside = request.recv_ns.is_some() && request.first_send_ns.is_some();
            if request.is_answered() && inside && !request.multiplexed {
                by_process.entry(request.tgid).or_default().push(*request);
            }
        }
        let lanes = by_process.into_iter();
        lanes
            .filter(|(tgid, _)| !hands_jobs_on(facts, *tgid))
            .filter_map(|(tgid, requests)| {
                let requests = passing(requests);
                let shape = OneComputes::of(facts.model, tgid, &requests)
                    .map(LaneShape::Computing)
                    .or_else(|| Some(LaneShape::InStep(InStep::of(facts, tgid, &requests)?)))
                    .or_else(|| Some(LaneShape::InOrder(InOrder::of(facts, tgid, &requests)?)))?;
                Some(Self {
                    tgid,
                    requests,
                    shape,
                })
            })
            .collect()
    }

    /// The requests that waited for so long that it takes an explanation.
    pub(crate) fn victims(&self) -> impl Iterator<Item = &Passing<'m>> {
        let waited = self.requests.iter().filter(|one| one.waited_ns >= *SLOW_NS);
        waited.filter(|one| one.request.counts())
    }
}

/// Whether what its requests wait for is known to be jobs of other threads or processes.
fn hands_jobs_on(facts: &Facts<'_>, tgid: u32) -> bool {
    let mut readers = facts.jobs().iter().flat_map(|queue| &queue.readers);
    readers.any(|tid| {
        let thread = facts.model.threads.get(tid);
        thread.is_some_and(|thread| thread.tgid == tgid)
    })
}

/// From when until when a request was inside: its answer has begun by then.
fn inside(request: RequestRef<'_>) -> Interval {
    let from_ns = request.served_ns();
    let until_ns = request.first_send_ns.unwrap_or(from_ns);
    (from_ns, until_ns.max(from_ns))
}

/// Requests as they pass if they pass one at a time.
fn passing(mut requests: Vec<RequestRef<'_>>) -> Vec<Passing<'_>> {
    requests.sort_by_key(|request| (inside(*request).1, inside(*request).0));
    let all: Vec<Interval> = requests.iter().map(|request| inside(*request)).collect();
    let mut came = all.clone();
    came.sort_unstable();
    let ended: Vec<Ns> = all.iter().map(|one| one.1).collect();
    let mut before_ns = 0;
    let each = requests.into_iter().zip(all);
    each.map(|(request, (from_ns, until_ns))| {
        let turn_ns = from_ns.max(before_ns).min(until_ns);
        before_ns = until_ns;
        // Of those that came at the same time the first one to be answered was before the others.
        let came = came.partition_point(|one| *one <= (from_ns, until_ns));
        let left = ended.partition_point(|ns| *ns <= from_ns);
        Passing {
            request,
            waited_ns: turn_ns - from_ns,
            step_ns: until_ns - turn_ns,
            place: came.saturating_sub(left),
        }
    })
    .collect()
}

/// When two requests or more were inside.
fn crowded(requests: &[Passing<'_>]) -> Vec<Interval> {
    let spans = || requests.iter().map(|one| inside(one.request));
    let begins = spans().map(|one| (one.0, 1));
    let mut changes: Vec<(Ns, i32)> = begins.chain(spans().map(|one| (one.1, -1))).collect();
    changes.sort_unstable();
    let (mut open, mut since_ns, mut crowded) = (0, 0, Vec::new());
    for (at_ns, change) in changes {
        let before = open;
        open += change;
        match (before, open) {
            (1, 2) => since_ns = at_ns,
            (2, 1) => crowded.push((since_ns, at_ns)),
            _ => {}
        }
    }
    merged(crowded)
}

impl<'m> OneComputes<'m> {
    fn of(model: &'m Model, tgid: u32, requests: &[Passing<'m>]) -> Option<Self> {
        let threads = computing(model, tgid)?;
        let crowded = crowded(requests);
        let lacking = threads.iter().flat_map(|thread| lacking(thread, &crowded));
        let free = without(&crowded, lacking.collect());
        let samples = threads.iter().flat_map(|thread| {
            let free = free.iter();
            free.flat_map(|(from_ns, to_ns)| thread.samples_within(*from_ns, *to_ns))
        });
        let samples: Vec<&Sample> = samples.collect();
        let free_ns = length(&free);
        let of_crowded = Share::new(free_ns, length(&crowded));
        let hz = u64::from(model.meta.options.sample_hz);
        let windows = windows(
            &Covered::new(free),
            &samples,
            (1_000_000_000 / hz.max(1)).max(1),
        );
        let off = STEP_OFF.of(*LANE_WINDOW);
        let one = windows
            .iter()
            .filter(|ticks| ticks.abs_diff(*LANE_WINDOW) <= off);
        let one = one.count();
        let even = Share::counted(one, windows.len()).is_at_least(*IN_STEP);
        (model.meta.host.cpus > 1
            && of_crowded.is_at_least(*MOST)
            && windows.len() >= *IN_STEP_MIN_GAPS
            && even
            && !sleeps_otherwise(requests))
        .then_some(Self {
            free_ns,
            windows: (one, windows.len()),
            threads,
            samples,
        })
    }
}

/// How often each window of [`LANE_WINDOW`] ticks of this time has a thread on a CPU at a tick.
fn windows(free: &Covered, samples: &[&Sample], tick_ns: u64) -> Vec<u64> {
    let window_ns = tick_ns.saturating_mul(*LANE_WINDOW).max(tick_ns);
    let mut windows = vec![0; (free.within((0, Ns::MAX)) / window_ns) as usize];
    for sample in samples {
        let at = free.within((0, sample.at_ns)) / window_ns;
        if let Some(window) = windows.get_mut(at as usize) {
            *window += sample.weight();
        }
    }
    windows
}

/// When a thread could have run and had no CPU.
fn lacking(thread: &Thread, within: &[Interval]) -> Vec<Interval> {
    let mut lacking = Vec::new();
    for (from_ns, to_ns) in within {
        let woken = thread.timeline.overlapping(*from_ns, *to_ns).iter();
        lacking.extend(woken.map(|wait| (wait.woken_ns(), wait.end_ns())));
        let preempted = thread.preempted(*from_ns, *to_ns).iter();
        lacking.extend(preempted.map(|row| (row.out_ns, row.in_ns)));
    }
    lacking
}

/// What is left of intervals, which are in order and apart, without others.
fn without(intervals: &[Interval], others: Vec<Interval>) -> Vec<Interval> {
    let others = merged(others);
    let mut left = Vec::new();
    for (from_ns, to_ns) in intervals {
        let mut at_ns = *from_ns;
        let first = others.partition_point(|other| other.1 <= at_ns);
        for (gone_ns, back_ns) in others[first..].iter().take_while(|other| other.0 < *to_ns) {
            if *gone_ns > at_ns {
                left.push((at_ns, *gone_ns));
            }
            at_ns = at_ns.max(*back_ns);
        }
        if at_ns < *to_ns {
            left.push((at_ns, *to_ns));
        }
    }
    left
}

fn length(intervals: &[Interval]) -> u64 {
    sum(intervals
        .iter()
        .map(|(from_ns, to_ns)| to_ns.saturating_sub(*from_ns)))
}

/// The threads of a process that do nearly all of its computing; `None`: it is one that does, which
/// can do no two things at a time.
fn computing(model: &Model, tgid: u32) -> Option<Vec<&Thread>> {
    let used = model.threads_of(tgid).filter_map(|thread| {
        let cpu = model.cpu.threads.get(&(tgid, thread.tid))?;
        Some((cpu.on_cpu_ns, thread))
    });
    let mut used: Vec<(u64, &Thread)> = used.collect();
    used.sort_by_key(|(ns, thread)| (std::cmp::Reverse(*ns), thread.tid));
    let all_ns = sum(used.iter().map(|(ns, _)| *ns));
    let (first_ns, _) = used.first()?;
    if Share::new(all_ns - first_ns, all_ns).is_below(*MUCH) {
        return None;
    }
    let mut so_far_ns = 0_u64;
    let most = used.into_iter().take_while(|(ns, _)| {
        let before_ns = so_far_ns;
        so_far_ns = so_far_ns.saturating_add(*ns);
        Share::new(before_ns, all_ns).is_below(*NEARLY_ALL)
    });
    Some(most.map(|(_, thread)| thread).collect())
}

/// Whether requests' time is in something else that only so many can have: a lock of threads, a
/// disk.
fn sleeps_otherwise(requests: &[Passing<'_>]) -> bool {
    let accounts = requests.iter().map(|one| one.request.account());
    let otherwise =
        accounts.map(|one| one.service[Part::Lock].saturating_add(one.service[Part::Disk]));
    let all_ns = sum(requests.iter().map(|one| one.request.age_ns()));
    Share::new(sum(otherwise), all_ns).is_at_least(*MUCH)
}

/// Whether most of requests' time is sleeps of the threads that read them, and these are several:
/// what each of them sleeps for shows there.
fn threads_sleep(model: &Model, requests: &[Passing<'_>]) -> bool {
    let mut threads = BTreeSet::new();
    let mut slept_ns = 0_u64;
    for one in requests {
        let request = one.request;
        for step in request.path().steps {
            let own = step.part == Some(Part::Timer) && step.tid == request.recv_tid;
            if own && wait_of(model, step).is_some_and(is_sleep) {
                threads.insert(step.tid);
                slept_ns = slept_ns.saturating_add(step.ns());
            }
        }
    }
    let all_ns = sum(requests.iter().map(|one| one.request.age_ns()));
    threads.len() > 1 && Share::new(slept_ns, all_ns).is_at_least(*MOST)
}

impl InStep {
    fn of(facts: &Facts<'_>, tgid: u32, requests: &[Passing<'_>]) -> Option<Self> {
        let waited = requests.iter().filter(|one| one.waited_ns > 0);
        let step_ns = even_ns(waited.map(|one| one.step_ns).collect())?;
        let most = requests.iter().map(|one| one.place).max()?;
        let (few, many): (Vec<_>, Vec<_>) = requests.iter().partition(|one| one.place * 2 <= most);
        let few_too = take_steps(&few, step_ns) && !come_in_step(requests, step_ns);
        (take_steps(&many, step_ns)
            && (few_too || come_after_answers(&many, requests, step_ns))
            && !sleeps_otherwise(requests)
            && !works_meanwhile(facts, tgid, requests)
            && !threads_sleep(facts.model, requests))
        .then(|| Self {
            step_ns,
            few: few_too.then(|| middle(&few)),
            many: middle(&many),
        })
    }
}

/// Whether requests take as many steps as there are requests before them: the one whose turn it was
/// when they came had a part of its own behind it.
fn take_steps(requests: &[&Passing<'_>], step_ns: u64) -> bool {
    let fits = requests.iter().filter(|one| {
        let steps = (took_ns(one) + step_ns / 2) / step_ns.max(1);
        let place = one.place as u64;
        steps == place || steps + 1 == place
    });
    requests.len() >= *MIN_REQUESTS
        && Share::counted(fits.count(), requests.len()).is_at_least(*IN_STEP)
}

/// Whether requests come in the same step.
fn come_in_step(requests: &[Passing<'_>], step_ns: u64) -> bool {
    let mut came: Vec<Ns> = requests.iter().map(|one| inside(one.request).0).collect();
    came.sort_unstable();
    in_step_ns(&came).is_some_and(|ns| ns.abs_diff(step_ns) <= STEP_OFF.of(step_ns))
}

/// Whether requests come right after answers, and take what the steps before them add up to.
fn come_after_answers(many: &[&Passing<'_>], all: &[Passing<'_>], step_ns: u64) -> bool {
    let answers: Vec<Ns> = all.iter().map(|one| inside(one.request).1).collect();
    let follows = many.iter().filter(|one| {
        let came_ns = inside(one.request).0;
        let before = answers.partition_point(|ns| *ns <= came_ns);
        before
            .checked_sub(1)
            .is_some_and(|at| came_ns - answers[at] <= STEP_OFF.of(step_ns))
    });
    Share::counted(follows.count(), many.len()).is_at_least(*IN_STEP)
        && as_steps_add_up(many)
        && timers_end_them(many)
}

/// Whether most of what these requests take is up to timers.
fn timers_end_them(many: &[&Passing<'_>]) -> bool {
    let timers_ns = sum(many
        .iter()
        .map(|one| one.request.account().service[Part::Timer]));
    let all_ns = sum(many.iter().map(|one| one.request.age_ns()));
    Share::new(timers_ns, all_ns).is_at_least(*MOST)
}

/// Whether what requests take differs as sums of steps do. `s` is by how much a step differs, or
/// what one request takes of its own, and `n` how many are inside:
///
/// - One at a time, from one answer to the next is a step: that differs by `s`. A request takes `n`
///   of them, and the one that is answered `n` later has none in common with it: the two differ by
///   `sqrt(2 n) s`, at least twice as much.
/// - Side by side, an answer comes when its own time is over, and the one before when that of
///   another is: from one to the next it differs by `sqrt(2) s`, and so do two requests. What
///   changes slowly does not show in requests that are so near.
fn as_steps_add_up(many: &[&Passing<'_>]) -> bool {
    let took: Vec<u64> = many.iter().map(|one| took_ns(one)).collect();
    let (place, _) = middle(many);
    let two = took.iter().zip(took.iter().skip(place.max(1)));
    let differ = two.map(|(one, later)| one.abs_diff(*later)).collect();
    let steps: Vec<u64> = many.iter().map(|one| one.step_ns).collect();
    let step_ns = median(steps.clone());
    let off = steps.into_iter().map(|ns| ns.abs_diff(step_ns)).collect();
    median(differ) > ADDED_UP.of(median(off))
}

fn median<T: Ord + Copy + Default>(mut each: Vec<T>) -> T {
    each.sort_unstable();
    each.get(each.len() / 2).copied().unwrap_or_default()
}

/// What a request took inside.
fn took_ns(one: &Passing<'_>) -> u64 {
    let (from_ns, until_ns) = inside(one.request);
    until_ns - from_ns
}

/// Whether much of the time in which requests are inside is somebody's work that shows: a thread of
/// the process computes, or a call is under way.
fn works_meanwhile(facts: &Facts<'_>, tgid: u32, requests: &[Passing<'_>]) -> bool {
    let inside = merged(requests.iter().map(|one| inside(one.request)).collect());
    let inside_ns = length(&inside);
    let threads = facts.model.cpu.threads.iter();
    let of_process = threads.filter(|((of, _), _)| *of == tgid);
    let on_cpu_ns = sum(of_process.map(|(_, used)| used.on_cpu_ns));
    let calls = facts.traffic().iter().filter(|one| one.tgid == tgid);
    let calls = merged(calls.flat_map(|one| one.intervals()).collect());
    let inside = Covered::new(inside);
    let called_ns = sum(calls.iter().map(|call| inside.within(*call)));
    [on_cpu_ns, called_ns]
        .iter()
        .any(|ns| Share::new(*ns, inside_ns).is_at_least(*MUCH))
}

/// The middle ones of places and of what requests took.
fn middle(requests: &[&Passing<'_>]) -> (usize, u64) {
    (
        median(requests.iter().map(|one| one.place).collect()),
        median(requests.iter().map(|one| took_ns(one)).collect()),
    )
}
