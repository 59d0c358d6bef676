//! `one-at-a-time`: calls of different requests never overlap, though connections are free; or
//! requests pass one at a time inside the program.
//!
//! **Invariant.** What could overlap does overlap.
//!
//! **Evidence.** See [`queues`]: calls to the peer lie within requests, and there is never more
//! than one under way, though several requests are. When one ends the next begins at once, and on
//! another connection, or several are open: something else than a connection is handed over. A lock
//! that is held across the call (a `sync.Mutex`, an `asyncio.Lock`), or a semaphore of one. Inside
//! the program, see [`lanes`], and [`task_places`] where looks at tasks show it.
//!
//! **Cost.** For each request the time in which another one's call was under way, and none of its
//! own; or the time from its reading to the answer before its own. A replay says what two at a
//! time, or more, save.
//!
//! **Guards.** With one connection only, it is a pool of one: `pool-exhausted`. The others are
//! those of [`queues`] and of [`lanes`].
//!
//! [`lanes`]: crate::shared::lanes
//! [`task_places`]: crate::shared::task_places

mod inside;

use whywait_events::{StackId, Wait};
use whywait_model::Model;
use whywait_words::{counted, duration, figure, percent};

use crate::declaration::{Declaration, Has, Waits};
use crate::detectors::pool_exhausted::{self, KeptAcross};
use crate::facts::Facts;
use crate::finding::{Cause, Confidence, Evidence, Finding, Severity};
use crate::numbers::{ERROR_NS, MOST, Share};
use crate::ranking::Explained;
use crate::shared::queues::Queue;
use crate::shared::runtime::{self, Runtime};
use crate::shared::task_places::TaskPlaces;
use crate::shared::task_waits::TasksWaitIn;
use crate::shared::traffic::whole;
use crate::shared::workers::{OfProgram, of_programs};

/// What it is.
pub(crate) static DECLARATION: Declaration = Declaration {
    code: "one-at-a-time",
    meaning: "calls never overlapped though they could, or requests passed one at a time",
    severities: &[
        (
            Severity::Error,
            "when a request typically waited 100 ms or longer",
        ),
        (Severity::Warning, "from 30 ms on"),
        (Severity::Note, "otherwise"),
    ],
    invariant: "what could overlap does overlap",
    explain: include_str!("explain.md"),
    waits: Some(Waits {
        who: "requests",
        what: "for their turn: one passes at a time",
        has: Has::CauseOr("the one before"),
    }),
    detect,
};

fn detect(facts: &Facts<'_>) -> Vec<Finding> {
    let model = facts.model;
    let queues = facts.queues().iter();
    let queues: Vec<&Queue<'_>> = queues
        .filter(|queue| pool_exhausted::passes_one(model, queue))
        .collect();
    let slow_ns = facts.slow().total_ns;
    let programs = of_programs(model, queues.iter().map(|queue| queue.waits()), |_| ());
    let calls = programs
        .iter()
        .filter_map(|program| finding(facts, program, slow_ns));
    let lanes = facts.lanes().iter();
    let places = TaskPlaces::of(facts);
    let of_one = places.iter().filter(|places| places.count() == Some(1));
    calls
        .chain(lanes.filter_map(|lane| inside::finding(facts, lane, slow_ns)))
        .chain(of_one.filter_map(|places| places.finding(facts, &DECLARATION, true)))
        .collect()
}

fn finding(
    facts: &Facts<'_>,
    program: &OfProgram<'_, '_, &Queue<'_>>,
    slow_ns: u64,
) -> Option<Finding> {
    let model = facts.model;
    let (queue, shares) = (program.what, &program.shares);
    let severity = match shares.severity(slow_ns)? {
        Severity::Warning if shares.median_ns() >= *ERROR_NS => Severity::Error,
        severity => severity,
    };
    let peer = queue.traffic.peer;
    let victims = queue.victims.iter().map(|victim| victim.request);
    let tasks = TasksWaitIn::of(facts, victims);
    let title = format!(
        "{} waited {} of their time for others' calls to {peer}, which are made one at a time{}",
        shares.requests(),
        shares.percent(),
        tasks
            .as_ref()
            .map_or_else(String::new, TasksWaitIn::in_title),
    );
    let cause = handed_over(model, queue);
    let finding = Finding::new(&DECLARATION, severity, title)
        .confidence(if cause.is_some() || tasks.is_some() {
            Confidence::High
        } else {
            Confidence::Medium
        })
        .about_peer(peer)
        .about("connections", queue.connections())
        .about_known("replay", queue.replay_rows("at_a_time"))
        .saving(Queue::saving(program))
        .explains(Explained::Locks)
        .explains(Explained::Inside)
        .explains(Explained::Places)
        .evidence([Evidence::of_ns(shares.ns, shares.spread(slow_ns))])
        .evidence(Queue::before(program))
        .evidence(program.evidence())
        .evidence(KeptAcross::of(model, queue).map(|kept| kept.evidence(queue)))
        .evidence([
            Evidence::of_ns(queue.full_ns, never_two(queue)),
            Evidence::new(queue.handover()),
        ])
        .evidence(tasks.as_ref().map(TasksWaitIn::evidence))
        .evidence(
            queue
                .replay_text("call at a time", "calls at a time")
                .map(|text| Evidence::new(text).of_fix()),
        )
        .cause(cause)
        .fix(fix(runtime::of_process(model, queue.traffic.tgid)));
    let finding = match &tasks {
        Some(tasks) => tasks.about(finding),
        None => finding,
    };
    Some(program.about_processes(model, finding))
}

/// What is known of the calls.
fn never_two(queue: &Queue<'_>) -> String {
    let traffic = &queue.traffic;
    let connections = match (queue.connections(), traffic.connections()) {
        _ if traffic.share_connections() => "though a connection of HTTP/2 carries many".to_owned(),
        (1, 1) => "over one connection".to_owned(),
        (1, used) => format!("though each on a connection of its own ({used})"),
        (open, _) => format!("though {open} connections are open"),
    };
    format!(
        "{} to it, and never two at a time, {connections}; while requests waited one was \
         under way for {} of {}: {}; then {} requests were under way on average",
        counted(traffic.calls.len(), "call"),
        duration(queue.full_ns),
        duration(queue.waited_ns),
        percent(queue.full_ns, queue.waited_ns),
        figure(queue.open),
    )
}

/// The thread that made a call, and the stack in which it had waited for the one before, whose
/// thread woke it; `None` where tasks wait, and not threads.
fn handed_over(model: &Model, queue: &Queue<'_>) -> Option<Cause> {
    let calls = &queue.traffic.calls;
    let mut found: Vec<(StackId, &Wait, usize)> = Vec::new();
    for two in calls.windows(2) {
        let (ended_ns, begun_ns) = (whole(two[0]).1, two[1].first_send_ns);
        let thread = model.threads.get(&two[1].send_tid);
        let waits = thread.map_or(&[][..], |thread| {
            thread
                .timeline
                .overlapping(ended_ns, begun_ns.max(ended_ns + 1))
        });
        let woken = waits.iter().find(|wait| {
            model.stacks.app_frame(wait.user_stack).is_some()
                && wait.waker_tid == two[0].read_tid
                && wait.out_ns < ended_ns
                && wait.in_ns.is_some_and(|in_ns| in_ns <= begun_ns)
        });
        let Some(wait) = woken else { continue };
        match found
            .iter_mut()
            .find(|(stack, ..)| *stack == wait.user_stack)
        {
            Some((.., times)) => *times += 1,
            None => found.push((wait.user_stack, wait, 1)),
        }
    }
    let all: usize = found.iter().map(|(.., times)| times).sum();
    let (stack, wait, _) = found.into_iter().max_by_key(|(.., times)| *times)?;
    let doing = "waits for the call before".to_owned();
    Share::counted(all, calls.len())
        .is_at_least(*MOST)
        .then(|| Cause::new(model, wait.tid, doing, stack))
}

fn fix(runtime: Runtime) -> &'static str {
    match runtime {
        Runtime::Go => {
            "do not hold a sync.Mutex, or a channel that stands for one, across the call; guard \
             the data, not the call"
        }
        Runtime::Python => {
            "do not hold an asyncio.Lock or a threading.Lock, or a semaphore of one, across the \
             call; guard the data, not the call"
        }
        Runtime::Tokio => {
            "do not hold a tokio::sync::Mutex across the call's await; guard the data, not the call"
        }
        Runtime::Java => {
            "do not hold a monitor (synchronized), a ReentrantLock or a Semaphore of one across \
             the call; guard the data, not the call"
        }
        _ => {
            "do not hold a lock, or a queue that works on one thing at a time, across the call; \
             guard the data, not the call"
        }
    }
}

#[cfg(test)]
mod tests;
