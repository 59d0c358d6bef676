//! A request's critical path: backwards from the last byte of its response, over the wakes, to its arrival.
//!
//! The thread that wrote the response is followed back in time. Where it slept and a thread of the target woke it, the path
//! goes on in that thread; where an interrupt or a stranger did, the wait itself is a step. The steps never overlap and sum
//! to the request's wall time.

use whywait_events::{Ns, Part, Request, StackId, Wait, WakeContext};

use crate::call::{self, Call};
use crate::kind::Kind;
use crate::model::Model;
use crate::stacks::{FrameOrigin, origin};
use crate::timeline::{Thread, end_of, woken_at};

/// The state of the first step.
pub(crate) const READY_UNSERVED: &str = "ready-unserved";

/// A path of more steps is cut off: its beginning is one `unknown` step.
const MAX_STEPS: usize = 256;

/// A request's critical path.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Path {
    /// From arrival to response, without gaps or overlaps.
    pub steps: Vec<PathStep>,
    /// It was too long to be followed to its beginning.
    pub truncated: bool,
}

/// One step.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PathStep {
    /// `ready-unserved`, or the name of the part.
    pub state: &'static str,
    /// What the time is accounted as; `None` before a thread read the request.
    pub part: Option<Part>,
    /// The thread.
    pub tid: u32,
    /// From.
    pub from_ns: Ns,
    /// To.
    pub to_ns: Ns,
    /// User stack: of the sleep, or the one seen most while it ran. A kernel stack when there is no other.
    pub stack: StackId,
    /// Kernel stack of a sleep, 0: none.
    pub kernel_stack: StackId,
    /// What the sleep was for, as the kernel's stack tells.
    pub kind: Option<Kind>,
    /// The thread that ended the wait, 0: none, or none of the target.
    pub woken_by: u32,
    /// For a wait for a lock: what the thread that held it did meanwhile, in order. For other steps empty.
    pub meanwhile: Vec<PathStep>,
}

impl PathStep {
    /// How long it took.
    pub fn ns(&self) -> u64 {
        self.to_ns.saturating_sub(self.from_ns)
    }
}

/// The path from arrival to response; empty for a request that was not answered.
pub(crate) fn path(model: &Model, request: &Request) -> Path {
    let (Some(recv_ns), Some(end_ns)) = (request.recv_ns, request.last_send_ns) else {
        return Path::default();
    };
    let mut steps = back(
        model,
        request.send_tid,
        recv_ns.max(request.ready_ns),
        end_ns,
    );
    if recv_ns > request.ready_ns {
        let reader = model.threads.get(&request.recv_tid);
        // The wake that brought the reader, if it slept when the request came.
        let woken_by = reader
            .and_then(|thread| thread.timeline.before(recv_ns))
            .filter(|wait| end_of(wait) <= recv_ns && woken_at(wait) >= request.ready_ns)
            .map_or(0, |wait| waker(model, wait));
        steps.push(PathStep {
            state: READY_UNSERVED,
            part: None,
            tid: request.recv_tid,
            from_ns: request.ready_ns,
            to_ns: recv_ns,
            woken_by,
            ..PathStep::default()
        });
    }
    steps.reverse();
    Path {
        steps,
        truncated: false,
    }
}

/// Latest step first.
fn back(model: &Model, tid: u32, from_ns: Ns, to_ns: Ns) -> Vec<PathStep> {
    let mut steps: Vec<PathStep> = Vec::new();
    let mut tid = tid;
    let mut now = to_ns;
    // Two that slept, each until the other woke it (as in a damaged or forged recording), lead to each other for ever, and
    // not back in time.
    let mut hops = 0;
    while now > from_ns {
        if steps.len() >= MAX_STEPS || hops >= MAX_STEPS {
            steps.push(step(Part::Unknown, tid, from_ns, now, 0));
            break;
        }
        let Some(thread) = model.threads.get(&tid) else {
            steps.push(step(Part::Unknown, tid, from_ns, now, 0));
            break;
        };
        let Some(wait) = thread
            .timeline
            .before(now)
            .filter(|wait| end_of(wait) > from_ns)
        else {
            active(model, thread, from_ns, now, &mut steps);
            break;
        };
        // It may still be under way at `now`, when the path comes from a thread that it woke by a timer's signal, say.
        let back_on_cpu = end_of(wait).min(now);
        if back_on_cpu < now {
            active(model, thread, back_on_cpu, now, &mut steps);
        }
        let woken = woken_at(wait).min(back_on_cpu).max(from_ns);
        if woken < back_on_cpu {
            steps.push(step(Part::Runnable, tid, woken, back_on_cpu, 0));
        }
        let waker = waker(model, wait);
        if waker != 0 && waker != tid && waits_for_threads(wait) {
            // What the waker did until then is what this thread waited for.
            if let Some(last) = steps.last_mut() {
                last.woken_by = waker;
            }
            tid = waker;
            now = woken;
            hops += 1;
            continue;
        }
        let began = wait.out_ns.max(from_ns);
        if began < woken {
            let part = call::part(wait, waker != 0);
            let mut sleep = step(part, tid, began, woken, best_stack(wait));
            sleep.woken_by = waker;
            steps.push(sleep);
        }
        now = began;
    }
    steps
}

/// A stretch between long waits: on the CPU, as far as is known, and where the samples say so with a stack.
fn active(model: &Model, thread: &Thread, from_ns: Ns, to_ns: Ns, steps: &mut Vec<PathStep>) {
    let stack = sampled_stack(model, thread, from_ns, to_ns);
    steps.push(step(Part::OnCpu, thread.tid, from_ns, to_ns, stack));
}

fn step(part: Part, tid: u32, from_ns: Ns, to_ns: Ns, stack: StackId) -> PathStep {
    PathStep {
        state: part.name(),
        part: Some(part),
        tid,
        from_ns,
        to_ns,
        stack,
        ..PathStep::default()
    }
}

/// The thread of the target that ended a wait; 0 for an interrupt, a stranger or nobody.
fn waker(model: &Model, wait: &Wait) -> u32 {
    let by_target =
        wait.wake_context == WakeContext::Task && model.threads.contains_key(&wait.waker_tid);
    if by_target { wait.waker_tid } else { 0 }
}

/// Whether what ended the wait is what it waited for: not so for a sleep or a device, which a signal may cut short.
fn waits_for_threads(wait: &Wait) -> bool {
    matches!(
        call::call(wait),
        Call::Futex | Call::Poll | Call::Stream | Call::Socket | Call::Child
    )
}

/// The user stack of a wait, or else its kernel stack.
fn best_stack(wait: &Wait) -> StackId {
    if wait.user_stack != 0 {
        wait.user_stack
    } else {
        wait.kernel_stack
    }
}

/// The stack in which a thread was seen most in a stretch: the sampled stack whose innermost function of the application is
/// the most frequent one. 0: no samples.
pub(crate) fn sampled_stack(model: &Model, thread: &Thread, from_ns: Ns, to_ns: Ns) -> StackId {
    let first = thread
        .samples
        .partition_point(|sample| sample.at_ns < from_ns);
    let last = thread
        .samples
        .partition_point(|sample| sample.at_ns < to_ns);
    let samples = &thread.samples[first..last.max(first)];
    let mut functions: Vec<(&str, u64, StackId)> = Vec::new();
    for sample in samples {
        let Some(stack) = model.stacks.get(sample.user_stack) else {
            continue;
        };
        // A stack with none of the application's functions stands for its innermost one.
        let own = stack
            .labels
            .iter()
            .find(|label| label.named && origin(label) == FrameOrigin::App);
        let Some(label) = own.or(stack.labels.first()) else {
            continue;
        };
        match functions
            .iter_mut()
            .find(|(name, _, _)| *name == &*label.name)
        {
            Some((_, count, _)) => *count += 1,
            None => functions.push((&label.name, 1, sample.user_stack)),
        }
    }
    // The first of equals, to be the same from run to run.
    let most = functions.iter().map(|(_, count, _)| *count).max();
    functions
        .iter()
        .find(|(_, count, _)| Some(*count) == most)
        .map_or(0, |(_, _, stack)| *stack)
}
