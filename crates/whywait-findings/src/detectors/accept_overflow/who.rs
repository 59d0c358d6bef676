//! What those who accept did while connections found the accept queue full.

use std::collections::BTreeMap;

use whywait_events::{StackId, Wait};
use whywait_model::requests::AcceptQueue;
use whywait_model::requests::accept_queues::Holder;
use whywait_model::requests::retries::Dropped;
use whywait_model::{Model, Thread, system_call_name};
use whywait_words::{duration, percent};

use crate::detectors::accept_stalled::who::{Acceptors, waits_for_work};
use crate::finding::{Cause, Evidence};
use crate::numbers::{NOTABLE, SHOWN, Share};
use crate::shared::slow_paths;
use crate::shared::threads::named;

/// What a thread did when it did not wait for connections.
struct DidInstead<'m> {
    thread: &'m Thread,
    /// How long it did not.
    ns: u64,
    /// Asleep in one place, for the longest.
    asleep: Option<(&'m Wait, u64)>,
    /// On a CPU, or about to be, or asleep for less than the threshold.
    active_ns: u64,
    /// Where it was seen most on a CPU.
    running: Option<StackId>,
}

/// In words, and the stack of what took the longest.
pub(super) fn evidence(model: &Model, queue: &AcceptQueue) -> (Vec<Evidence>, Option<Cause>) {
    let holders: Vec<&Holder> = queue.holders.iter().collect();
    let Some(end_ns) = queue.when_dropped.iter().map(|one| one.to_ns).max() else {
        return (Vec::new(), None);
    };
    let acceptors = Acceptors::of(model, queue.port.unwrap_or(0), &holders, end_ns);
    let mut all: Vec<DidInstead<'_>> = acceptors
        .threads()
        .iter()
        .map(|thread| DidInstead::of(model, thread, &queue.when_dropped))
        .filter(|instead| instead.ns > 0)
        .collect();
    all.sort_by_key(|instead| std::cmp::Reverse(instead.ns));
    let texts = all.iter().take(*SHOWN).map(|one| one.in_words(model));
    let texts = texts.collect();
    (texts, all.first().and_then(|one| one.cause(model)))
}

impl<'m> DidInstead<'m> {
    fn of(model: &'m Model, thread: &'m Thread, dropped: &[Dropped]) -> Self {
        let mut asleep: BTreeMap<(Option<u32>, StackId), (&Wait, u64)> = BTreeMap::new();
        let mut running: BTreeMap<StackId, u64> = BTreeMap::new();
        let (mut ns, mut active_ns) = (0_u64, 0_u64);
        for one in dropped {
            // Of a listener that is new it is not known since when.
            let from_ns = one.from_ns.max(begun_ns(thread));
            let mut active = one.to_ns.saturating_sub(from_ns);
            for wait in thread.timeline.overlapping(from_ns, one.to_ns) {
                let until_ns = wait.in_ns.unwrap_or(one.to_ns).min(one.to_ns);
                let took_ns = until_ns.saturating_sub(wait.out_ns.max(from_ns));
                active = active.saturating_sub(took_ns);
                if waits_for_work(model, wait) {
                    continue;
                }
                ns = ns.saturating_add(took_ns);
                let place = (wait.syscall, wait.user_stack);
                let sum = asleep.entry(place).or_insert((wait, 0));
                sum.1 = sum.1.saturating_add(took_ns);
            }
            active_ns = active_ns.saturating_add(active);
            for sample in thread.samples_within(from_ns, one.to_ns) {
                *running.entry(sample.user_stack).or_default() += 1;
            }
        }
        Self {
            thread,
            ns: ns.saturating_add(active_ns),
            asleep: asleep.into_values().max_by_key(|(_, ns)| *ns),
            active_ns,
            running: running
                .into_iter()
                .max_by_key(|(_, count)| *count)
                .map(|(stack, _)| stack),
        }
    }

    fn in_words(&self, model: &Model) -> Evidence {
        let mut parts = Vec::new();
        if let Some((wait, ns)) = self.asleep
            && Share::new(ns, self.ns).is_at_least(*NOTABLE)
        {
            let function = slow_paths::function(model, wait.user_stack)
                .map_or_else(String::new, |name| format!(" ({name})"));
            let share = percent(ns, self.ns);
            let call = system_call_name(wait);
            parts.push(format!("asleep in {call}{function} for {share} of that"));
        }
        if Share::new(self.active_ns, self.ns).is_at_least(*NOTABLE) {
            let function = self
                .running
                .and_then(|stack| slow_paths::function(model, stack))
                .map_or_else(String::new, |name| format!(", by samples most in {name}"));
            let share = percent(self.active_ns, self.ns);
            parts.push(format!(
                "running, or asleep for less than {}, for {share}{function}",
                duration(model.threshold_ns())
            ));
        }
        let text = format!(
            "when packets were dropped, thread {}, which accepts, did not wait for connections for \
             {}: {}",
            named(model, self.thread.tid),
            duration(self.ns),
            parts.join("; "),
        );
        Evidence::of_ns(self.ns, text)
    }

    fn cause(&self, model: &Model) -> Option<Cause> {
        let (wait, ns) = self.asleep?;
        if ns < self.active_ns {
            let stack = self.running?;
            return Some(Cause::new(
                model,
                self.thread.tid,
                "on a CPU".to_owned(),
                stack,
            ));
        }
        let doing = format!("asleep in {}", system_call_name(wait));
        Some(Cause::new(model, self.thread.tid, doing, wait.user_stack))
    }
}

/// Since when a thread is known to be there.
fn begun_ns(thread: &Thread) -> u64 {
    let first = thread.timeline.waits().first().map(|wait| wait.out_ns);
    let started = thread.started.map(|(ns, _)| ns);
    started.or(first).unwrap_or(u64::MAX)
}
