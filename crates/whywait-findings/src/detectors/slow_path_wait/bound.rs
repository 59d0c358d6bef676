//! What requests are spared without the wait.

use whywait_events::Part;
use whywait_model::{PathStep, SystemCall, system_call};

use super::{OnPath, StepKey, WaitTarget};
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
    gone.extend(besides(facts, key, slow).map(|(step, ns)| Gone {
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
/// counted the parts.
pub(super) fn besides_ns(
    facts: &Facts<'_>,
    key: &StepKey,
    request: &SlowRequest<'_>,
    on_path: &OnPath<'_>,
) -> u64 {
    if key.target != WaitTarget::Disk {
        return sum(on_path.steps.iter().map(|step| step.queued_ns));
    }
    sum(besides(facts, key, request).map(|(_, ns)| ns))
}

/// The steps of a path on which a wait for the disk has more than the wait itself, and how much.
fn besides<'a>(
    facts: &'a Facts<'_>,
    key: &'a StepKey,
    request: &'a SlowRequest<'_>,
) -> impl Iterator<Item = (&'a PathStep, u64)> {
    let steps = slow_paths::steps(request).filter(|_| key.target == WaitTarget::Disk);
    steps.filter_map(|(part, step)| {
        let thread = facts.model.threads.get(&step.tid)?;
        if facts.role(step.tid) != key.role {
            return None;
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
