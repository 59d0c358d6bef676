//! Steps of a path, from what a thread did and slept for.

use whywait_events::{Ns, Part, StackId, Wait, WakeContext};

use super::PathStep;
use super::sleeps::{Sleep, Sleeps};
use crate::timeline::Thread;
use crate::waits::locks::Locks;
use crate::waits::system_call::{self, SystemCall};

/// An interval in which a thread was preempted more often becomes two steps: all that it had no
/// CPU, and the rest.
const MAX_PREEMPTIONS: usize = 8;

/// An interval between long waits: on the CPU, as far as is known, and where the samples say so
/// with a stack; but for the times when it was preempted for long.
pub(super) fn active(
    sleeps: &Sleeps<'_>,
    thread: &Thread,
    from_ns: Ns,
    to_ns: Ns,
    waiting: u32,
    steps: &mut Vec<PathStep>,
) {
    let stack = sleeps.sampled_stack(thread, from_ns, to_ns);
    let whole = (from_ns, to_ns);
    let on_cpu = |from_ns, to_ns| {
        let own = match (from_ns, to_ns) == whole {
            true => stack,
            false => sleeps.sampled_stack(thread, from_ns, to_ns),
        };
        PathStep {
            stack: if own == 0 { stack } else { own },
            ..step(Part::OnCpu, thread.tid, from_ns, to_ns, waiting)
        }
    };
    let runnable = |from_ns, to_ns| step(Part::Runnable, thread.tid, from_ns, to_ns, waiting);
    let preempted = thread.preempted(from_ns, to_ns);
    if preempted.len() > MAX_PREEMPTIONS {
        let since_ns = from_ns + thread.preempted_ns(from_ns, to_ns);
        if since_ns < to_ns {
            steps.push(PathStep {
                stack,
                ..step(Part::OnCpu, thread.tid, since_ns, to_ns, waiting)
            });
        }
        steps.push(runnable(from_ns, since_ns));
        return;
    }
    let mut until_ns = to_ns;
    for row in preempted.iter().rev() {
        let (out_ns, in_ns) = (row.out_ns.max(from_ns), row.in_ns.min(until_ns));
        if in_ns < until_ns {
            steps.push(on_cpu(in_ns, until_ns));
        }
        steps.push(runnable(out_ns, in_ns));
        until_ns = out_ns;
    }
    // An interval without preemptions is a step even when it is empty: who looks at a path looks
    // for its threads.
    if until_ns > from_ns || preempted.is_empty() {
        steps.push(on_cpu(from_ns, until_ns));
    }
}

/// What was read lay in the ring, while the thread that was to take it did something else: with the
/// stack of that.
pub(super) fn unreaped(model: &Locks, tid: u32, from_ns: Ns, to_ns: Ns) -> PathStep {
    let stack = model.threads.get(&tid).map_or(0, |thread| {
        let waits = thread.timeline.overlapping(from_ns, to_ns);
        let within = |wait: &&Wait| {
            let end_ns = wait.woken_ns().min(to_ns);
            end_ns.saturating_sub(wait.out_ns.max(from_ns))
        };
        let longest = waits.iter().max_by_key(within);
        longest
            .filter(|wait| within(wait).saturating_mul(2) > to_ns - from_ns)
            .map_or_else(|| model.sampled_stack(thread, from_ns, to_ns), best_stack)
    });
    PathStep {
        stack,
        ..step(Part::Uring, tid, from_ns, to_ns, 0)
    }
}

pub(super) fn step(part: Part, tid: u32, from_ns: Ns, to_ns: Ns, waiting: u32) -> PathStep {
    PathStep {
        state: part.name(),
        part: Some(part),
        tid,
        from_ns,
        to_ns,
        waiting,
        ..PathStep::default()
    }
}

/// A sleep, or a piece of one.
pub(super) fn sleep(sleep: &Sleep<'_>, tid: u32, from_ns: Ns, to_ns: Ns, waiting: u32) -> PathStep {
    PathStep {
        stack: best_stack(sleep.wait),
        kernel_stack: sleep.wait.kernel_stack,
        kind: sleep.kind,
        woken_by: sleep.waker,
        ..step(sleep.part, tid, from_ns, to_ns, waiting)
    }
}

/// What a sleep is accounted as.
pub(super) fn part_of(model: &Locks, wait: &Wait) -> Part {
    let kind = model.kind_of(wait);
    kind.and_then(|kind| kind.part)
        .unwrap_or_else(|| system_call::part(wait, waker(model, wait) != 0))
}

/// Whether the clock ended a wait for something else.
pub(super) fn timed_out(model: &Locks, wait: &Wait) -> bool {
    system_call::system_call(wait) != SystemCall::Sleep && part_of(model, wait) == Part::Timer
}

/// The thread of the target that ended a wait; 0 for an interrupt, a stranger or nobody.
pub(super) fn waker(model: &Locks, wait: &Wait) -> u32 {
    let by_target =
        wait.wake_context == WakeContext::Task && model.threads.contains_key(&wait.waker_tid);
    if by_target { wait.waker_tid } else { 0 }
}

/// Whether what ended the wait is what it waited for: not so for a sleep or a device, which a
/// signal may cut short.
pub(super) fn waits_for_threads(wait: &Wait) -> bool {
    matches!(
        system_call::system_call(wait),
        SystemCall::Futex
            | SystemCall::Poll
            | SystemCall::Stream
            | SystemCall::Socket
            | SystemCall::Child
    )
}

/// The user stack of a wait, or else its kernel stack.
pub(super) fn best_stack(wait: &Wait) -> StackId {
    if wait.user_stack != 0 {
        wait.user_stack
    } else {
        wait.kernel_stack
    }
}
