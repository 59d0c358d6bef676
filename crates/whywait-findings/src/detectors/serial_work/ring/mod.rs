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
//! and a fifth of the rest ([`REST_FASTER`]).
//!
//! **Guards.** Only a thread that is on a CPU or waits for one most of the time is bound by it; and
//! not one that never waits in the kernel, and has nothing to do: all that there is, is with the
//! kernel, and it looks into the queue until that changes. A function that is named only by the
//! runtime or a library is not the application's. Where completions lie for long while the loop
//! computes, that is `uring-unreaped`'s.

use std::collections::BTreeMap;

use serde_json::json;
use whywait_events::StackId;
use whywait_events::uring::{SETUP_COOP_TASKRUN, SETUP_DEFER_TASKRUN};
use whywait_model::rings::{RingState, Standing};
use whywait_model::{Model, app_frame};

use crate::declaration::Code;
use crate::detectors::serial_work::DECLARATION;
use crate::detectors::uring_unreaped;
use crate::finding::{Cause, Confidence, Evidence, Finding, Saving, SavingKind, Severity};
use crate::shared::rings::{self, MIN_OPERATIONS};
use crate::shared::slow_paths::percent;
use crate::shared::text::duration;

/// Of the time, on a CPU or waiting for one: a thread with less is not bound by it.
const MIN_BOUND: u64 = 60;
/// Of the thread's CPU time: a function with less does not dominate.
const MIN_SHARE: u64 = 20;
/// With less it is a note.
const LARGE_SHARE: u64 = 30;
/// With fewer samples shares are not known well enough.
const MIN_SAMPLES: u64 = 30;
/// Of the samples: a thread that never waits and has so seldom anything to do goes round in its
/// queue.
const NOTHING_TO_DO: u64 = 95;
/// It goes on for longer than this on average before it waits in the kernel. (One that takes
/// completions by the hundred and works for a second on them has nothing but its work, too, and
/// everything that it asked for is with the kernel meanwhile. Then it waits.)
const NEVER_WAITS_NS: u64 = 1_000_000_000;
/// Without the function the rest takes less time, too, by one in so many at most: the function
/// empties the caches for it. Measured on the lab relay by its own clocks: 5 to 10 % where lines
/// are formatted (`logged` against `all-fixed`), 16 % where a vector of 1,000 packets is moved
/// (`published` against `deque`; 1.28 us of a packet's 8.66 became 1.08).
const REST_FASTER: u64 = 5;

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
struct Work {
    samples: u64,
    /// The stack that was seen most.
    stack: (u64, StackId),
}

fn finding(model: &Model, tid: u32, states: &[&RingState]) -> Option<Finding> {
    let busiest = states.iter().max_by_key(|state| state.ring.submitted)?;
    if states
        .iter()
        .any(|state| uring_unreaped::concerns(model, state))
    {
        return None;
    }
    // A loop that was seen going round with nothing to take has time, whatever its CPU time is.
    if model
        .bursts
        .threads()
        .iter()
        .any(|spinner| spinner.tid == tid && spinner.goes_round())
    {
        return None;
    }
    let operations = states
        .iter()
        .map(|state| state.ring.completed)
        .fold(0, u64::saturating_add);
    let observed_ns = states
        .iter()
        .map(|state| state.ring.observed_ns)
        .max()
        .unwrap_or(0);
    let mut functions: BTreeMap<String, Work> = BTreeMap::new();
    let (mut all, mut kernel, mut with_kernel) = (0u64, 0u64, 0u64);
    for ((user_stack, kernel_stack), standing) in states.iter().flat_map(|state| &state.stacks) {
        let Standing { samples, .. } = *standing;
        all = all.saturating_add(samples);
        with_kernel = with_kernel.saturating_add(standing.with_kernel);
        if *kernel_stack != 0 {
            kernel = kernel.saturating_add(samples);
            continue;
        }
        let Some(label) = model.stacks.get(*user_stack).and_then(app_frame) else {
            continue;
        };
        let work = functions.entry(label.name.to_string()).or_default();
        work.samples = work.samples.saturating_add(samples);
        work.stack = work.stack.max((samples, *user_stack));
    }
    // From the first sample to the last: of a recording of seconds that is all of it.
    let (cpu_ns, runnable_ns, seen_ns) = states.iter().find_map(|state| state.cpu_of(tid))?;
    let bound = percent(cpu_ns.saturating_add(runnable_ns), seen_ns);
    if operations < MIN_OPERATIONS
        || all < MIN_SAMPLES
        || bound < MIN_BOUND
        || seen_ns < observed_ns / 2
    {
        return None;
    }
    // Where completions come only when the program enters the kernel, it does not show whether
    // there is something to do.
    let shows = states
        .iter()
        .all(|state| state.ring.flags & (SETUP_DEFER_TASKRUN | SETUP_COOP_TASKRUN) == 0);
    let waits = states
        .iter()
        .map(|state| state.ring.waits)
        .fold(0, u64::saturating_add);
    let never_waits = waits.saturating_mul(NEVER_WAITS_NS) < observed_ns;
    if shows && never_waits && percent(with_kernel, all) >= NOTHING_TO_DO {
        return None;
    }
    let mut functions: Vec<(String, Work)> = functions.into_iter().collect();
    functions.sort_by_key(|(name, work)| (std::cmp::Reverse(work.samples), name.clone()));
    let (name, work) = functions.first()?;
    let share = percent(work.samples, all);
    if share < MIN_SHARE {
        return None;
    }
    let function = at_most(work.samples, all);
    let saved = function.saturating_add(all.saturating_sub(function) / REST_FASTER);
    let ns_of =
        |samples: u64| (u128::from(cpu_ns) * u128::from(samples) / u128::from(all.max(1))) as u64;
    let rest = all.saturating_sub(saved).max(1);
    let faster = u128::from(saved) * 100 / u128::from(rest);
    let mut shown: Vec<String> = functions
        .iter()
        .take(4)
        .map(|(name, work)| (name, percent(work.samples, all)))
        .filter(|(_, share)| *share > 0)
        .map(|(name, share)| format!("{name} {share} %"))
        .collect();
    shown.push(format!("the kernel {} %", percent(kernel, all)));
    let mut subject = rings::subject(busiest);
    subject.insert("function".to_owned(), json!(name));
    subject.insert(
        "cpu_per_operation_ns".to_owned(),
        json!(cpu_ns / operations),
    );
    subject.insert(
        "throughput_at_most_percent".to_owned(),
        json!(faster as u64),
    );
    Some(Finding {
        code: Code::of(&DECLARATION),
        severity: if share >= LARGE_SHARE {
            Severity::Warning
        } else {
            Severity::Note
        },
        confidence: Confidence::High,
        title: format!(
            "{} spends {share} % of its CPU time in {name}: without it, {}",
            rings::thread(model, tid),
            gain(faster),
        ),
        subject,
        saving: Saving {
            kind: SavingKind::Throughput,
            at_most_ns: ns_of(saved),
            requests: operations,
            each_at_most_ns: Vec::new(),
        },
        evidence: vec![
            Evidence {
                text: format!(
                    "per operation of io_uring {} on a CPU, {share} % of it in {name}; it was on a CPU for {} % of the time, and waited for one for {} %",
                    per_operation(cpu_ns, operations),
                    percent(cpu_ns, seen_ns).min(100),
                    percent(runnable_ns, seen_ns).min(100),
                ),
                ns: Some(ns_of(work.samples)),
            },
            Evidence {
                text: format!(
                    "by {all} samples: {}; the bound allows for twice their standard error, and for the rest to take a fifth less \
                     with the caches to itself",
                    shown.join(", ")
                ),
                ns: None,
            },
            rings::life(busiest),
            Evidence {
                text: "it is bound by its CPU time: to take completions or to submit sooner gives it no more of that"
                    .to_owned(),
                ns: None,
            },
        ],
        cause: Some(Cause::new(model, tid, "on CPU".to_owned(), work.stack.1)),
        fix: format!(
            "make {name} cheaper: look for something that is gone through or moved as a whole for each operation (the front of \
             a vector, a line that is formatted), or give it to another thread"
        ),
    })
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

/// `1.2 us`: operations are short, and a fraction of a microsecond counts.
fn per_operation(cpu_ns: u64, operations: u64) -> String {
    let ns = cpu_ns / operations.max(1);
    match ns {
        1_000..100_000 => format!("{:.1} us", ns as f64 / 1e3),
        _ => duration(ns),
    }
}

#[cfg(test)]
mod tests;
