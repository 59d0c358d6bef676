//! `uring-unbatched`: each operation has a system call of its own, where one would do for many.
//!
//! **Invariant.** What a program has to submit at a time it submits by one call.
//!
//! **Evidence.** The operations that were submitted against the batches that they came in; how many
//! were under way at a time; the samples of the thread within `io_uring_enter`.
//!
//! **Cost.** The CPU time within `io_uring_enter`, by samples, and twice their standard error: part
//! of it is the operations' own, hence a bound.
//!
//! **Guards.** Only where the kernel takes what is submitted for a notable part of the time in
//! which the ring is in use, however many calls there are: what a loop's calls take that look for
//! completions is not theirs. And where several operations are under way at a time for the most
//! part: who cannot go on without the one has nothing else to submit. Not with a poller of the
//! kernel's, which needs no calls. A note only, one for a process: nothing waits for it.

use std::collections::BTreeMap;

use whywait_events::uring::SETUP_SQPOLL;
use whywait_model::Model;
use whywait_model::rings::RingState;
use whywait_words::{count, counted, duration, percent};

use crate::declaration::Declaration;
use crate::facts::Facts;
use crate::finding::{Confidence, Evidence, Finding, Saving, SavingKind, Severity};
use crate::numbers::{
    RING_MIN_OPERATIONS, Share, UNBATCHED_SHARE, UNBATCHED_SLOTS, UNBATCHED_WORTH,
};
use crate::shared::intervals::sum;
use crate::shared::rings;

/// What it is.
pub(crate) static DECLARATION: Declaration = Declaration {
    code: "uring-unbatched",
    meaning: "each operation of an io_uring ring is submitted by a system call of its own",
    severities: &[(Severity::Note, "")],
    invariant: "what there is to submit at a time is submitted by one call",
    explain: include_str!("explain.md"),
    waits: None,
    detect,
};

fn detect(facts: &Facts<'_>) -> Vec<Finding> {
    let model = facts.model;
    let mut by_process: BTreeMap<u32, Vec<&RingState>> = BTreeMap::new();
    for state in model
        .rings
        .values()
        .filter(|state| is_unbatched(model, state))
    {
        by_process.entry(state.ring.tgid).or_default().push(state);
    }
    let of_process = |mut states: Vec<&RingState>| {
        states.sort_by_key(|state| std::cmp::Reverse(state.ring.batches));
        finding(model, &states)
    };
    by_process.into_values().filter_map(of_process).collect()
}

/// With few operations too, if the calls take long.
fn is_unbatched(model: &Model, state: &RingState) -> bool {
    let ring = &state.ring;
    let active_ns = ring.observed_ns.saturating_sub(ring.idle_ns).max(1);
    // The calls of a loop that looks for completions and has nothing to submit are not its price.
    let submits_ns = EnterSamples::of(model, state)
        .submits
        .saturating_mul(rings::sample_ns(model));
    ring.flags & SETUP_SQPOLL == 0
        && ring.submitted >= *RING_MIN_OPERATIONS
        && Share::new(submits_ns, active_ns).is_at_least(*UNBATCHED_WORTH)
        // At most one in ten came with another.
        && Share::new(ring.batches, ring.submitted).is_at_least(*UNBATCHED_SHARE)
        && ring.slot_ns / active_ns >= *UNBATCHED_SLOTS
}

/// So many in that time are how many a second.
fn rate(times: u64, ns: u64) -> u64 {
    let rate = u128::from(times) * 1_000_000_000 / u128::from(ns.max(1));
    u64::try_from(rate).unwrap_or(u64::MAX)
}

/// Samples of a ring's thread.
#[derive(Debug, Clone, Copy, Default)]
struct EnterSamples {
    all: u64,
    /// Within `io_uring_enter`.
    in_call: u64,
    /// Of these: where the kernel takes what was submitted.
    submits: u64,
}

impl EnterSamples {
    fn of(model: &Model, state: &RingState) -> Self {
        let mut samples = Self::default();
        for ((_, kernel_stack), standing) in &state.stacks {
            let within = |function: &str| {
                model.stacks.get(*kernel_stack).is_some_and(|stack| {
                    let mut labels = stack.labels.iter();
                    labels.any(|label| label.name.contains(function))
                })
            };
            let counted = |is: bool| if is { standing.samples } else { 0 };
            let in_call = within("io_uring_enter");
            samples.all = samples.all.saturating_add(standing.samples);
            samples.in_call = samples.in_call.saturating_add(counted(in_call));
            let submits = in_call && within("io_submit_sqes");
            samples.submits = samples.submits.saturating_add(counted(submits));
        }
        samples
    }
}

/// Of the rings of a process, the busiest first.
fn finding(model: &Model, states: &[&RingState]) -> Option<Finding> {
    let (state, others) = states.split_first()?;
    let ring = &state.ring;
    let sample_ns = rings::sample_ns(model);
    let EnterSamples { all, in_call, .. } = EnterSamples::of(model, state);
    let in_call_ns = in_call.saturating_mul(sample_ns);
    let in_calls = states
        .iter()
        .map(|state| EnterSamples::of(model, state).in_call);
    let in_calls = sum(in_calls);
    let bound_ns = in_calls
        .saturating_add(2 * in_calls.isqrt() + 1)
        .saturating_mul(sample_ns);
    let active_ns = ring.observed_ns.saturating_sub(ring.idle_ns).max(1);
    let title = format!(
        "{} calls of io_uring_enter submit {} operations of {}: {} calls a second",
        count(ring.batches),
        count(ring.submitted),
        rings::thread(model, state.thread()),
        count(rate(ring.batches, ring.observed_ns)),
    );
    let at_a_time = format!(
        "on average {} slots were in use: more could go into each call",
        ring.slot_ns / active_ns
    );
    let cost = (in_call > 0).then(|| {
        let text = format!(
            "the thread was in io_uring_enter for {} of its CPU time, {} altogether by samples, \
             {} for each call; the operations' own work is part of it, and of the bound",
            percent(in_call, all),
            duration(in_call_ns),
            duration(in_call_ns / ring.batches.max(1)),
        );
        Evidence::of_ns(in_call_ns, text)
    });
    let others = (!others.is_empty()).then(|| {
        let rings = counted(others.len(), "other ring");
        Evidence::new(format!("so it is with {rings} of the process"))
    });
    let operations = sum(states.iter().map(|state| state.ring.submitted));
    let finding = rings::about(state, Finding::new(&DECLARATION, Severity::Note, title))
        .about("calls_per_s", rate(ring.batches, ring.observed_ns))
        .confidence(Confidence::Medium)
        .saving(Saving::sum(SavingKind::Cpu, bound_ns, operations))
        .evidence(cost)
        .evidence(others)
        .evidence([Evidence::new(at_a_time), rings::life(state)])
        .fix(
            "prepare all that is there to submit, and then enter once; submit and wait by the same \
             call (io_uring_submit_and_wait)",
        );
    Some(finding)
}

#[cfg(test)]
mod tests;
