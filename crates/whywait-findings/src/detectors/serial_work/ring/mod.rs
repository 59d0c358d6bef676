//! `serial-work` of a loop over io_uring: one function takes most of the CPU time of the thread
//! that drives a ring.
//!
//! **Invariant.** A loop that has all of a CPU spends it on its operations: no single function of
//! its own dominates.
//!
//! **Evidence.** Samples of the thread that enters the kernel for the ring, all over the recording,
//! against its operations: the CPU time of an operation, and the share of the function, in user
//! mode only. What the kernel does for the operations is not the function's.
//!
//! **Cost.** Throughput: without the function the loop does as many operations in the rest of its
//! CPU time. The function's share is known from samples, so twice their standard error is added;
//! and a fifth of the rest ([`RING_REST_FASTER`]).
//!
//! **Guards.** Only a thread that is on a CPU or waits for one most of the time is bound by it; and
//! not one that never waits in the kernel, and has nothing to do: all that there is, is with the
//! kernel, and it looks into the queue until that changes. A function that is named only by the
//! runtime or a library is not the application's. Where completions lie for long while the loop
//! computes, that is `uring-unreaped`'s.

use std::collections::BTreeMap;

use whywait_events::StackId;
use whywait_events::uring::{SETUP_COOP_TASKRUN, SETUP_DEFER_TASKRUN};
use whywait_model::rings::RingState;
use whywait_model::{Model, app_frame};
use whywait_words::{duration, percent, shares, whole_percent};

use crate::detectors::serial_work::DECLARATION;
use crate::detectors::uring_unreaped;
use crate::finding::{Cause, Evidence, Finding, Saving, SavingKind, Severity};
use crate::numbers::{
    MOST, RING_BOUND, RING_FUNCTION, RING_FUNCTION_WARNING, RING_MIN_OPERATIONS,
    RING_NEVER_WAITS_NS, RING_NOTHING_TO_DO, RING_REST_FASTER, RING_WORK_MIN_SAMPLES, SHOWN, Share,
};
use crate::shared::intervals::{in_proportion, sum};
use crate::shared::rings;

pub(super) fn detect(model: &Model) -> Vec<Finding> {
    let mut by_thread: BTreeMap<u32, Vec<&RingState>> = BTreeMap::new();
    for state in model.rings.values() {
        by_thread.entry(state.thread()).or_default().push(state);
    }
    by_thread
        .into_iter()
        .filter_map(|(tid, states)| finding(model, tid, &states))
        .collect()
}

/// The samples of a function.
#[derive(Debug, Clone, Copy, Default)]
struct FunctionSamples {
    samples: u64,
    /// The stack that was seen most.
    stack: (u64, StackId),
}

/// The samples of the thread that drives some rings.
#[derive(Default)]
struct Samples {
    all: u64,
    /// In the kernel.
    kernel: u64,
    /// While all there is was with the kernel.
    with_kernel: u64,
    /// By function of the application, the most seen first.
    functions: Vec<(String, FunctionSamples)>,
}

impl Samples {
    fn of(model: &Model, states: &[&RingState]) -> Self {
        let mut samples = Self::default();
        let mut functions: BTreeMap<String, FunctionSamples> = BTreeMap::new();
        for ((user_stack, kernel_stack), standing) in states.iter().flat_map(|state| &state.stacks)
        {
            let n = standing.samples;
            samples.all = samples.all.saturating_add(n);
            samples.with_kernel = samples.with_kernel.saturating_add(standing.with_kernel);
            if *kernel_stack != 0 {
                samples.kernel = samples.kernel.saturating_add(n);
                continue;
            }
            let Some(label) = model.stacks.get(*user_stack).and_then(app_frame) else {
                continue;
            };
            let work = functions.entry(label.name.to_string()).or_default();
            work.samples = work.samples.saturating_add(n);
            work.stack = work.stack.max((n, *user_stack));
        }
        samples.functions = functions.into_iter().collect();
        samples
            .functions
            .sort_by_key(|(name, work)| (std::cmp::Reverse(work.samples), name.clone()));
        samples
    }
}

/// What the thread that drives some rings did with its CPU time.
struct Loop<'a> {
    busiest: &'a RingState,
    operations: u64,
    cpu_ns: u64,
    runnable_ns: u64,
    seen_ns: u64,
    samples: Samples,
}

/// The loop, if it is bound by its CPU time, and so far as it is known.
fn bound_loop<'a>(model: &Model, tid: u32, states: &[&'a RingState]) -> Option<Loop<'a>> {
    let sum_of = |of: fn(&RingState) -> u64| sum(states.iter().map(|state| of(state)));
    let busiest = states.iter().max_by_key(|state| state.ring.submitted)?;
    let operations = sum_of(|state| state.ring.completed);
    let observed_ns = states.iter().map(|state| state.ring.observed_ns).max()?;
    let samples = Samples::of(model, states);
    // From the first sample to the last: of a recording of seconds that is all of it.
    let (cpu_ns, runnable_ns, seen_ns) = states.iter().find_map(|state| state.cpu_of(tid))?;
    let bound = Share::new(cpu_ns.saturating_add(runnable_ns), seen_ns);
    if operations < *RING_MIN_OPERATIONS
        || samples.all < *RING_WORK_MIN_SAMPLES
        || bound.is_below(*RING_BOUND)
        || Share::new(seen_ns, observed_ns).is_below(*MOST)
    {
        return None;
    }
    // Where completions come only when the program enters the kernel, it does not show whether
    // there is something to do.
    let shows = states
        .iter()
        .all(|state| state.ring.flags & (SETUP_DEFER_TASKRUN | SETUP_COOP_TASKRUN) == 0);
    let waits = sum_of(|state| state.ring.waits);
    let never_waits = waits.saturating_mul(*RING_NEVER_WAITS_NS) < observed_ns;
    if shows
        && never_waits
        && Share::new(samples.with_kernel, samples.all).is_at_least(*RING_NOTHING_TO_DO)
    {
        return None;
    }
    Some(Loop {
        busiest,
        operations,
        cpu_ns,
        runnable_ns,
        seen_ns,
        samples,
    })
}

fn finding(model: &Model, tid: u32, states: &[&RingState]) -> Option<Finding> {
    let mut concerned = states.iter();
    if concerned.any(|state| uring_unreaped::concerns(model, state)) {
        return None;
    }
    // A loop that was seen going round with nothing to take has time, whatever its CPU time is.
    let mut spinners = model.bursts.threads().into_iter();
    if spinners.any(|spinner| spinner.tid == tid && spinner.goes_round()) {
        return None;
    }
    let bound = bound_loop(model, tid, states)?;
    let (all, cpu_ns, operations) = (bound.samples.all, bound.cpu_ns, bound.operations);
    let (name, work) = bound.samples.functions.first()?;
    let share = Share::new(work.samples, all);
    if share.is_below(*RING_FUNCTION) {
        return None;
    }
    let severity = if share.is_at_least(*RING_FUNCTION_WARNING) {
        Severity::Warning
    } else {
        Severity::Note
    };
    let function = at_most(work.samples, all);
    let saved = function.saturating_add(RING_REST_FASTER.of(all.saturating_sub(function)));
    let saved_ns = in_proportion(cpu_ns, saved, all);
    let rest = all.saturating_sub(saved).max(1);
    let faster = u128::from(saved) * 100 / u128::from(rest);
    let title = format!(
        "{} spends {} of its CPU time in {name}: without it, {}",
        rings::thread(model, tid),
        percent(work.samples, all),
        gain(faster),
    );
    let finding = rings::about(bound.busiest, Finding::new(&DECLARATION, severity, title))
        .about("function", name.as_str())
        .about("cpu_per_operation_ns", cpu_ns / operations)
        .about("throughput_at_most_percent", faster as u64)
        .saving(Saving::sum(SavingKind::Throughput, saved_ns, operations))
        .evidence(evidence(&bound, name, work))
        .cause(Cause::new(model, tid, "on CPU".to_owned(), work.stack.1))
        .fix(format!(
            "make {name} cheaper: look for something that is gone through or moved as a whole for \
             each operation (the front of a vector, a line that is formatted), or give it to \
             another thread"
        ));
    Some(finding)
}

fn evidence(bound: &Loop<'_>, name: &str, work: &FunctionSamples) -> [Evidence; 4] {
    let all = bound.samples.all;
    let share = percent(work.samples, all);
    let per_operation = format!(
        "per operation of io_uring {} on a CPU, {share} of it in {name}; it was on a CPU for {} \
         of the time, and waited for one for {}",
        duration(bound.cpu_ns / bound.operations),
        percent(bound.cpu_ns, bound.seen_ns),
        percent(bound.runnable_ns, bound.seen_ns),
    );
    let functions = bound.samples.functions.iter().take(*SHOWN);
    let shown = functions
        .map(|(name, work)| (name.as_str(), work.samples))
        .filter(|(_, samples)| whole_percent(*samples, all) > 0)
        .chain([("the kernel", bound.samples.kernel)]);
    let by_samples = format!(
        "by {all} samples: {}. The bound allows for twice their standard error, and for the rest \
         to take a fifth less with the caches to itself",
        shares(shown, all)
    );
    [
        Evidence::of_ns(
            in_proportion(bound.cpu_ns, work.samples, all),
            per_operation,
        ),
        Evidence::new(by_samples),
        rings::life(bound.busiest),
        Evidence::new(
            "it is bound by its CPU time: to take completions or to submit sooner gives it no \
             more of that",
        ),
    ]
}

/// How many of `all` samples a function has at most that was seen in `samples`, give or take the
/// error of sampling: two standard errors of a binomial share, which one time in forty is too few.
fn at_most(samples: u64, all: u64) -> u64 {
    let rest = all.saturating_sub(samples);
    let error = (samples as f64 * rest as f64 / all.max(1) as f64).sqrt();
    samples
        .saturating_add((2.0 * error).round() as u64)
        .min(all)
}

/// What the CPU time would do without the function. Beyond some point something else becomes the
/// limit.
fn gain(faster_percent: u128) -> String {
    match faster_percent {
        0..=900 => format!("up to {faster_percent} % more operations a second"),
        _ => "its CPU time would no longer be the limit".to_owned(),
    }
}

#[cfg(test)]
mod tests;
