//! What the detectors for io_uring share.

use std::collections::BTreeMap;

use whywait_events::StackId;
use whywait_model::rings::{Lags, RingState, Standing};
use whywait_model::{Model, system_call_name};
use whywait_words::{counted, duration, duration_range, shares};

use crate::finding::{Cause, Confidence, Evidence, Finding};
use crate::numbers::{MIN_SAMPLES, MOST, SHOWN, Share};
use crate::shared::intervals::sum;
use crate::shared::slow_paths;
use crate::shared::threads::named;

/// Says which ring a finding is about.
pub(crate) fn about(state: &RingState, finding: Finding) -> Finding {
    finding
        .about("pid", state.ring.tgid)
        .about("ring", state.ring.id)
        .about_known("fd", (state.ring.fd >= 0).then_some(state.ring.fd))
        .about("threads", vec![state.thread()])
}

/// `thread relay-out (123)`.
pub(crate) fn thread(model: &Model, tid: u32) -> String {
    format!("thread {}", named(model, tid))
}

/// The parts of the operations' life.
pub(crate) fn life(state: &RingState) -> Evidence {
    let mut parts = Vec::new();
    if let Some((low, high)) = state.queued_ns() {
        parts.push(format!(
            "queued in the program {}",
            duration_range(low, high)
        ));
    }
    let kernel_ns = state.kernel_ns();
    if let Some(ns) = kernel_ns {
        parts.push(format!("with the kernel {}", duration(ns)));
    }
    if let Some((low, high)) = state.unreaped_ns() {
        parts.push(format!(
            "completed and not taken {}",
            duration_range(low, high)
        ));
    }
    let text = format!("an operation's life on average: {}", parts.join(", "));
    Evidence::of_ns(kernel_ns, text)
}

/// Sends that waited for room, and those that met a limit of the memory for sockets: their slots
/// are the socket's, not the loop's. Nothing where there were none.
pub(crate) fn sockets(state: &RingState) -> Vec<Evidence> {
    let mut evidence = Vec::new();
    let blocked = state.blocked_sends();
    if let Some(mean_ns) = blocked.ns.checked_div(blocked.waited) {
        let text = format!(
            "{} of {} waited for room in the socket's buffer, {} on average: such a slot is held \
             by the socket, not by the loop",
            blocked.waited,
            counted(blocked.sends, "send"),
            duration(mean_ns)
        );
        evidence.push(Evidence::of_ns(blocked.ns, text));
    }
    if state.ring.memory_limits > 0 {
        evidence.push(Evidence::new(format!(
            "{} met a limit of the memory for sockets (of the protocol, or of the cgroup)",
            counted(state.ring.memory_limits, "send")
        )));
    }
    evidence
}

/// What a ring's thread did while something waited for it; nothing where that is not known.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Instead {
    pub(crate) cause: Option<Cause>,
    pub(crate) evidence: Option<Evidence>,
}

impl Instead {
    fn of(cause: Cause, evidence: Evidence) -> Self {
        Self {
            cause: Some(cause),
            evidence: Some(evidence),
        }
    }

    /// How sure a finding is that rests on it.
    pub(crate) fn confidence(&self) -> Confidence {
        match self.cause {
            Some(_) => Confidence::High,
            None => Confidence::Medium,
        }
    }
}

/// What the thread did: where it slept, if a sleep covers most of the longest lags; otherwise where
/// it was on a CPU, by those samples for which `of` counts some.
pub(crate) fn instead(
    model: &Model,
    state: &RingState,
    lags: &Lags,
    of: fn(&Standing) -> u64,
) -> Instead {
    asleep(model, state.thread(), lags)
        .or_else(|| on_cpu(model, state, of))
        .unwrap_or_default()
}

fn asleep(model: &Model, tid: u32, lags: &Lags) -> Option<Instead> {
    let mut calls: BTreeMap<(String, StackId), (u64, u64)> = BTreeMap::new();
    for (wait, ns) in lags.longest.iter().filter_map(|lag| lag.wait.as_ref()) {
        let call = calls
            .entry((system_call_name(wait), wait.user_stack))
            .or_default();
        call.0 = call.0.saturating_add(*ns);
        call.1 += 1;
    }
    let waited = lags.longest.iter().filter(|lag| lag.wait.is_some());
    let slept_ns = sum(waited.map(|lag| lag.slept_ns));
    let lag_ns = sum(lags.longest.iter().map(|lag| lag.lag.low_ns));
    if !Share::new(slept_ns, lag_ns).exceeds(*MOST) {
        return None;
    }
    let ((call, user_stack), (ns, times)) = calls.into_iter().max_by_key(|(_, (ns, _))| *ns)?;
    let function = slow_paths::function(model, user_stack);
    let place = function.map_or_else(String::new, |name| format!(", called in {name}"));
    let text = format!(
        "meanwhile {} slept in {call}{place}: {} of the longest {}",
        thread(model, tid),
        counted(times, "time"),
        lags.longest.len(),
    );
    let cause = Cause::new(model, tid, format!("asleep in {call}"), user_stack);
    Some(Instead::of(cause, Evidence::of_ns(ns, text)))
}

fn on_cpu(model: &Model, state: &RingState, of: fn(&Standing) -> u64) -> Option<Instead> {
    let tid = state.thread();
    let mut functions: BTreeMap<String, u64> = BTreeMap::new();
    let mut stacks: BTreeMap<StackId, u64> = BTreeMap::new();
    let mut all = 0u64;
    for ((user_stack, _), standing) in &state.stacks {
        let n = of(standing);
        all = all.saturating_add(n);
        *stacks.entry(*user_stack).or_default() += n;
        if let Some(name) = slow_paths::function(model, *user_stack) {
            *functions.entry(name).or_default() += n;
        }
    }
    if all < *MIN_SAMPLES {
        return None;
    }
    let mut functions: Vec<(String, u64)> = functions.into_iter().collect();
    functions.sort_by_key(|(name, n)| (std::cmp::Reverse(*n), name.clone()));
    let top = functions.first().map(|(name, _)| name.clone());
    let stack = stacks
        .into_iter()
        .filter(|(stack, _)| slow_paths::function(model, *stack) == top)
        .max_by_key(|(_, n)| *n)
        .map_or(0, |(stack, _)| stack);
    let shown = functions.iter().take(*SHOWN);
    let text = format!(
        "meanwhile {} was on a CPU, by {all} samples in: {}",
        thread(model, tid),
        shares(shown.map(|(name, n)| (name.as_str(), *n)), all)
    );
    let cause = Cause::new(model, tid, "on CPU".to_owned(), stack);
    Some(Instead::of(cause, Evidence::new(text)))
}

/// Nanoseconds that a sample stands for.
pub(crate) fn sample_ns(model: &Model) -> u64 {
    1_000_000_000u64
        .checked_div(u64::from(model.meta.options.sample_hz))
        .unwrap_or(0)
}

#[cfg(test)]
pub(crate) mod script;
