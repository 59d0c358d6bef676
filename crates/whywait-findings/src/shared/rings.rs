//! What the detectors for io_uring share.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use whywait_events::StackId;
use whywait_model::rings::{Lags, RingState, Standing};
use whywait_model::{Model, system_call_name};

use crate::finding::{Cause, Evidence};
use crate::shared::slow_paths;
use crate::shared::text::{count, duration};

/// With fewer operations nothing is said of a ring.
pub(crate) const MIN_OPERATIONS: u64 = 50;
/// With fewer samples it is not said what a thread did.
pub(crate) const MIN_SAMPLES: u64 = 5;

/// What a finding about a ring is about.
pub(crate) fn subject(state: &RingState) -> Map<String, Value> {
    let mut subject = Map::new();
    subject.insert("pid".to_owned(), json!(state.ring.tgid));
    subject.insert("ring".to_owned(), json!(state.ring.id));
    if state.ring.fd >= 0 {
        subject.insert("fd".to_owned(), json!(state.ring.fd));
    }
    subject.insert("threads".to_owned(), json!([state.thread()]));
    subject
}

/// `thread relay-out (123)`.
pub(crate) fn thread(model: &Model, tid: u32) -> String {
    format!("thread {} ({tid})", model.thread_name(tid))
}

/// `12 us to 40 us`.
pub(crate) fn between(low_ns: u64, high_ns: u64) -> String {
    let (low, high) = (duration(low_ns), duration(high_ns));
    if low == high {
        low
    } else {
        format!("{low} to {high}")
    }
}

/// The parts of the operations' life.
pub(crate) fn life(state: &RingState) -> Evidence {
    let mut parts = Vec::new();
    if let Some((low, high)) = state.queued_ns() {
        parts.push(format!("queued in the program {}", between(low, high)));
    }
    let kernel_ns = state.kernel_ns();
    if let Some(ns) = kernel_ns {
        parts.push(format!("with the kernel {}", duration(ns)));
    }
    if let Some((low, high)) = state.unreaped_ns() {
        parts.push(format!("completed and not taken {}", between(low, high)));
    }
    Evidence {
        text: format!("an operation's life in the mean: {}", parts.join(", ")),
        ns: kernel_ns,
    }
}

/// Sends that waited for room, and those that met a limit of the memory for sockets: their slots
/// are the socket's, not the loop's. Nothing where there were none.
pub(crate) fn sockets(state: &RingState) -> Vec<Evidence> {
    let mut evidence = Vec::new();
    let blocked = state.blocked_sends();
    if let Some(mean_ns) = blocked.ns.checked_div(blocked.waited) {
        evidence.push(Evidence {
            text: format!(
                "{} of {} waited for room in the socket's buffer, {} in the mean: such a slot is held by the socket, not by the loop",
                blocked.waited,
                count(blocked.sends as usize, "send", "sends"),
                duration(mean_ns)
            ),
            ns: Some(blocked.ns),
        });
    }
    if state.ring.memory_limits > 0 {
        evidence.push(Evidence {
            text: format!(
                "{} met a limit of the memory for sockets (of the protocol, or of the control group)",
                count(state.ring.memory_limits as usize, "send", "sends")
            ),
            ns: None,
        });
    }
    evidence
}

/// What a ring's thread did while something waited for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Instead {
    pub(crate) cause: Option<Cause>,
    pub(crate) evidence: Vec<Evidence>,
}

/// What the thread did: where it slept, if a sleep covers most of the longest lags; otherwise where
/// it was on a CPU, by those samples for which `of` counts some.
pub(crate) fn instead(
    model: &Model,
    state: &RingState,
    lags: &Lags,
    of: fn(&Standing) -> u64,
) -> Instead {
    let tid = state.thread();
    let mut asleep: BTreeMap<(String, StackId), (u64, u64)> = BTreeMap::new();
    let (mut slept_ns, mut lag_ns) = (0u64, 0u64);
    for longest in &lags.longest {
        lag_ns = lag_ns.saturating_add(longest.lag.low_ns);
        let Some((wait, ns)) = &longest.wait else {
            continue;
        };
        slept_ns = slept_ns.saturating_add(longest.slept_ns);
        let entry = asleep
            .entry((system_call_name(wait), wait.user_stack))
            .or_default();
        entry.0 = entry.0.saturating_add(*ns);
        entry.1 += 1;
    }
    if slept_ns > lag_ns / 2
        && let Some(((call, user_stack), (ns, times))) =
            asleep.into_iter().max_by_key(|(_, (ns, _))| *ns)
    {
        let doing = format!("asleep in {call}");
        let function = slow_paths::function(model, user_stack);
        let place = function.map_or_else(String::new, |name| format!(", called in {name}"));
        return Instead {
            cause: Some(Cause::new(model, tid, doing, user_stack)),
            evidence: vec![Evidence {
                text: format!(
                    "meanwhile {} slept in {call}{place}: {} of the longest {}",
                    thread(model, tid),
                    count(times as usize, "time", "times"),
                    lags.longest.len(),
                ),
                ns: Some(ns),
            }],
        };
    }
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
    if all < MIN_SAMPLES {
        return Instead {
            cause: None,
            evidence: Vec::new(),
        };
    }
    let mut functions: Vec<(String, u64)> = functions.into_iter().collect();
    functions.sort_by_key(|(name, n)| (std::cmp::Reverse(*n), name.clone()));
    let top = functions.first().map(|(name, _)| name.clone());
    let stack = stacks
        .into_iter()
        .filter(|(stack, _)| slow_paths::function(model, *stack) == top)
        .max_by_key(|(_, n)| *n)
        .map_or(0, |(stack, _)| stack);
    let shown: Vec<String> = functions
        .iter()
        .take(3)
        .map(|(name, n)| format!("{name} {} %", slow_paths::percent(*n, all)))
        .collect();
    Instead {
        cause: Some(Cause::new(model, tid, "on CPU".to_owned(), stack)),
        evidence: vec![Evidence {
            text: format!(
                "meanwhile {} was on a CPU, by {} samples in: {}",
                thread(model, tid),
                all,
                shown.join(", ")
            ),
            ns: None,
        }],
    }
}

/// Nanoseconds that a sample stands for.
pub(crate) fn sample_ns(model: &Model) -> u64 {
    1_000_000_000u64
        .checked_div(u64::from(model.meta.options.sample_hz))
        .unwrap_or(0)
}

#[cfg(test)]
pub(crate) mod script;
