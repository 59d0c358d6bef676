//! A request's critical path: backwards from the last byte of its response, over the wakes, to its
//! arrival.
//!
//! The thread that wrote the response is followed back in time. Where it slept and an interrupt or
//! a stranger ended that, the sleep itself is a step. Where a thread of the target did, there are
//! two ways on: through the thread that woke it, or through the sleep. Of the paths that come from
//! the reading of this very request, the one on which most was done is the critical one: nothing on
//! it can take less time without the response coming earlier, or another path taking over.
//!
//! A wait of another thread's that ran into its timeout counts half. A helper that looks after
//! things every second and then has the request's thread wait for a moment (a virtual machine that
//! stops its threads, say) was not what that thread, at work all the time, waited for. One that was
//! given work and waits as a part of it was; nothing separates the two, but that who has to pause
//! for its work sleeps, as a rule, and does not wait in vain: sleeps count whole. What another
//! thread waits for a client of its own was for that one's request, and counts nothing: two threads
//! that serve a client each, and wake each other for a moment (an interpreter's lock), wait for
//! their clients at the same time, and not one for the other's.
//!
//! A waker from which no path leads back to the request was not working for it: it was at something
//! older, or held a lock. Then the path stays with the sleeper, and what the waker did while it
//! slept stands for the sleep.
//!
//! While a call of the request is certainly with its peer, in a process that serves others as well,
//! the path is the call's: see `upstream`.
//!
//! The steps never overlap and sum to the request's wall time.

use whywait_events::{Ns, Part, StackId};

use crate::calls::linked::Linked;
use crate::requests::lives::Life;
use crate::rings;
use crate::waits::kind::WaitKind;
use sleeps::Sleeps;
use steps::{step, unreaped, waker};

pub(crate) mod kept;
mod longest;
mod reported;
pub mod run;
mod sleeps;
mod steps;
pub(crate) mod upstream;
mod walk;

pub use reported::Step;

/// The state of the first step.
pub(crate) const READY_UNSERVED: &str = "ready-unserved";

/// A request's critical path.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Path<'m> {
    /// From arrival to response, without gaps or overlaps.
    pub steps: Vec<&'m PathStep>,
    /// It was too long to be followed to its beginning.
    pub truncated: bool,
}

/// The same as it is walked.
struct Walked {
    steps: Vec<PathStep>,
    truncated: bool,
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
    /// User stack: of the sleep, or the one seen most while it ran. A kernel stack when there is no
    /// other.
    pub stack: StackId,
    /// Kernel stack of a sleep, 0: none.
    pub kernel_stack: StackId,
    /// What the sleep was for, by the kernel's stack.
    pub kind: Option<WaitKind>,
    /// The thread that ended the wait, or for a lock the one that held it for longest. 0: none, or
    /// none of the target.
    pub woken_by: u32,
    /// When the path is in this thread only because another one slept meanwhile, and this one ended
    /// that: the other one. 0: the step is on the request's own path.
    pub waiting: u32,
    /// The number of the peer with which a call of the request's own was meanwhile, 0: none is
    /// known.
    pub peer: u32,
    /// That the call shows, not what the thread did: that was for others.
    pub by_call: bool,
    /// For a wait for a lock: what the threads that held it did meanwhile, in order. For other
    /// steps empty.
    pub meanwhile: Vec<PathStep>,
}

impl PathStep {
    /// How long it took.
    pub fn ns(&self) -> u64 {
        self.to_ns.saturating_sub(self.from_ns)
    }
}

/// The path from arrival to response; of a request that is open, up to the recording's end.
fn walked<'m>(model: &'m Linked, sleeps: &Sleeps<'m>, request: Life<'m>) -> Walked {
    let end_ns = request.end_ns();
    let Some(recv_ns) = request.recv_ns else {
        return Walked {
            steps: vec![unserved(request, end_ns, 0)],
            truncated: false,
        };
    };
    let read_ns = recv_ns.max(request.ready_ns);
    // Through io_uring the kernel reads for the program, which knows of it only when it takes the
    // completion.
    let from_ns = request
        .taken_ns
        .or_else(|| rings::reaped_ns(&model.rings, request.recv_tid, recv_ns))
        .filter(|reaped_ns| (read_ns..end_ns).contains(reaped_ns))
        .unwrap_or(read_ns);
    // What threads did before whywait looked at them is not known.
    let known_ns = model.known_from(request.recv_tid).min(end_ns).max(from_ns);
    let (mut steps, truncated) = walk::back(sleeps, request, known_ns, end_ns);
    if known_ns > from_ns {
        steps.push(step(Part::Unknown, request.recv_tid, from_ns, known_ns, 0));
    }
    if from_ns > read_ns {
        steps.push(unreaped(model, request.recv_tid, read_ns, from_ns));
    }
    if recv_ns > request.ready_ns {
        let reader = model.threads.get(&request.recv_tid);
        // The wake that brought the reader, if it slept when the request came.
        let woken_by = reader
            .and_then(|thread| thread.timeline.before(recv_ns))
            .filter(|wait| wait.end_ns() <= recv_ns && wait.woken_ns() >= request.ready_ns)
            .map_or(0, |wait| waker(model, wait));
        steps.push(unserved(request, recv_ns, woken_by));
    }
    steps.reverse();
    let steps = upstream::with_calls(model, request, steps);
    Walked { steps, truncated }
}

/// The step before a thread read a request.
fn unserved(request: Life<'_>, until_ns: Ns, woken_by: u32) -> PathStep {
    PathStep {
        state: READY_UNSERVED,
        tid: request.recv_ns.map_or(0, |_| request.recv_tid),
        from_ns: request.ready_ns,
        to_ns: until_ns,
        woken_by,
        ..PathStep::default()
    }
}
