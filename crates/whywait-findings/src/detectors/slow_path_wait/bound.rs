//! What requests are spared without the wait.

use whywait_events::Part;
use whywait_model::{PathStep, SystemCall, system_call};

use super::{OnPath, StepKey, WaitTarget, fix};
use crate::facts::Facts;
use crate::shared::intervals::{in_proportion, sum};
use crate::shared::replay::{Gone, Spared};
use crate::shared::slow_paths::{self, SlowRequest};

/// What a request is spared: the wait, and what goes with it.
pub(super) fn spared<'a>(
    facts: &Facts<'_>,
    key: &StepKey,
    slow: &SlowRequest<'a>,
    on_path: &OnPath<'_>,
) -> Spared<'a> {
    let ns = on_path
        .ns
        .saturating_add(besides_ns(facts, key, slow, on_path));
    // A loop that waits in its poll serves others meanwhile.
    let keeps = on_path
        .steps
        .iter()
        .filter(|step| system_call(step.wait) != SystemCall::Poll);
    let mut gone: Vec<Gone> = keeps
        .map(|step| Gone {
            tid: step.step.tid,
            from_ns: step.step.from_ns,
            to_ns: step.step.to_ns.saturating_add(step.queued_ns),
            ns: step.step.ns().saturating_add(step.queued_ns),
        })
        .collect();
    gone.extend(besides(facts, key, slow, on_path).map(|(step, ns)| Gone {
        tid: step.tid,
        from_ns: step.from_ns,
        to_ns: step.to_ns,
        ns,
    }));
    Spared {
        request: slow.request,
        ns,
        gone,
    }
}

/// What a request may be spared besides the wait itself: the waits for a CPU behind it. Of the disk
/// all waits for a CPU that threads of its role had on the path, and their sleeps for the disk that
/// are too short to be steps: what they did between longer sleeps is one step, of which the kernel
/// counted the parts. Of a place in an accept queue all waits for peers that such threads had: who
/// accepts sooner also answers sooner.
pub(super) fn besides_ns(
    facts: &Facts<'_>,
    key: &StepKey,
    request: &SlowRequest<'_>,
    on_path: &OnPath<'_>,
) -> u64 {
    let queued_ns = match key.target {
        WaitTarget::Disk => 0,
        _ => sum(on_path.steps.iter().map(|step| step.queued_ns)),
    };
    let besides = besides(facts, key, request, on_path);
    queued_ns.saturating_add(sum(besides.map(|(_, ns)| ns)))
}

/// The steps of a path on which a wait for the disk, or for a place in a queue, has more than the
/// wait itself, and how much.
fn besides<'a>(
    facts: &'a Facts<'_>,
    key: &'a StepKey,
    request: &'a SlowRequest<'_>,
    on_path: &'a OnPath<'_>,
) -> impl Iterator<Item = (&'a PathStep, u64)> {
    let of_disk = key.target == WaitTarget::Disk;
    let of_queue = is_full_backlog(on_path);
    let steps = slow_paths::steps(request).filter(move |_| of_disk || of_queue);
    steps.filter_map(move |(part, step)| {
        let thread = facts.model.threads.get(&step.tid)?;
        if facts.role(step.tid) != key.role {
            return None;
        }
        if of_queue {
            let counts = on_path
                .steps
                .iter()
                .any(|own| own.step.from_ns == step.from_ns);
            return (part == Part::Network && !counts).then(|| (step, step.ns()));
        }
        match part {
            Part::Runnable => Some((step, step.ns())),
            Part::OnCpu => {
                let parts = thread.segment_before(step.to_ns)?;
                let short_ns = parts[Part::Disk].saturating_add(parts[Part::Runnable]);
                Some((step, in_proportion(step.ns(), short_ns, parts.total_ns())))
            }
            _ => None,
        }
    })
}

/// Whether the wait is mostly one for a place in an accept queue.
pub(super) fn is_full_backlog(on_path: &OnPath<'_>) -> bool {
    let longest = on_path.steps.iter().max_by_key(|step| step.step.ns());
    longest.is_some_and(|step| fix::is_full_backlog(&[(&step.is.what, step.step.ns())]))
}
