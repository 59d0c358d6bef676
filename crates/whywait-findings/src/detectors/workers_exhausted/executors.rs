//! Workers behind an event loop: threads that take jobs from it and wake it when one is done
//! (asyncio's `to_thread`, libuv's four threads, a pool beside a selector).
//!
//! Who wakes the loop again and again is such a thread, and so is one that sleeps in the same work.
//! One that reads requests itself is none: loops of one process hand connections to each other, and
//! each sleeps in its own poll.
//! The loop answers a request soon after its job was done. So the job of an answer is the one that
//! some worker came back from last, and it began when that worker's job before was done, or when
//! the worker got it after a sleep in which it waited for work. The time from the reading of the
//! request to the beginning of its job is its time in the executor's queue.

use std::collections::{BTreeMap, BTreeSet};

use whywait_events::{Ns, StackId, Wait, WakeContext};
use whywait_model::{EpollPool, Model, RequestRef, SystemCall, Thread, WaitClass, system_call};

use super::shift::{BusyShift, WorkerDuty};
use super::{Backlog, Takes, WorkerSleep};
use crate::facts::Facts;
use crate::numbers::{EXECUTOR_ANSWERED_NS, EXECUTOR_ANSWERS, EXECUTOR_MIN_JOBS, SLOW_NS, Share};
use crate::shared::replay::Worked;

/// The crews: for each loop the threads that do its jobs.
pub(super) fn crews<'m>(facts: &Facts<'m>) -> Vec<Backlog<'m>> {
    let pools = facts.model.pools.iter();
    pools.filter_map(|pool| crew(facts, pool)).collect()
}

/// A job that a worker did.
#[derive(Debug, Clone, Copy)]
pub(super) struct Done {
    pub(super) tid: u32,
    pub(super) from_ns: Ns,
    pub(super) to_ns: Ns,
}

fn crew<'m>(facts: &Facts<'m>, pool: &EpollPool) -> Option<Backlog<'m>> {
    let model = facts.model;
    let mut members = pool.members.keys();
    let (Some(tid), None) = (members.next(), members.next()) else {
        return None;
    };
    let the_loop = model.threads.get(tid)?;
    let mut requests: Vec<RequestRef<'m>> = facts
        .read_by(*tid)
        .iter()
        .copied()
        .filter(|request| request.recv_ns.is_some())
        // What others answer is theirs for certain: see `handed`.
        .filter(|request| !request.is_answered() || request.send_tid == *tid)
        .collect();
    requests.sort_by_key(|request| request.ready_ns);
    let workers = workers(model, pool, the_loop);
    if workers.is_empty() || requests.len() <= workers.len() {
        return None;
    }
    let jobs = matched(model, &requests, &workers);
    let answered = requests
        .iter()
        .filter(|request| request.latency_ns().is_some_and(|ns| ns >= *SLOW_NS))
        .count();
    if Share::counted(jobs.len(), answered).is_below(*EXECUTOR_ANSWERS) {
        return None;
    }
    Some(crew_of(model, *tid, &requests, workers, &jobs))
}

/// Workers, the requests that a thread read for them, and the jobs that they are known to have
/// done.
pub(super) fn crew_of<'m>(
    model: &'m Model,
    from: u32,
    requests: &[RequestRef<'m>],
    workers: BTreeSet<u32>,
    jobs: &[(RequestRef<'m>, Done)],
) -> Backlog<'m> {
    // Those that are open wait for a job, too, or their job is under way.
    let under_way = requests
        .iter()
        .map(|request| (request.recv_ns.unwrap_or(Ns::MAX), until(model, *request)));
    let mut duties = Vec::new();
    let mut all_sleeps = Vec::new();
    for thread in workers.iter().filter_map(|tid| model.threads.get(tid)) {
        let mut at = 0;
        for wait in thread.timeline.waits() {
            let woken = wait.over_ns().unwrap_or(model.end_ns);
            let duty = if waits_for_work(model, wait) {
                WorkerDuty::Free
            } else {
                WorkerDuty::Asleep
            };
            duties.push((at, wait.out_ns, WorkerDuty::Active));
            duties.push((wait.out_ns, woken, duty));
            all_sleeps.push((wait, woken));
            at = woken.max(wait.out_ns);
        }
        let last = jobs.iter().rev().find(|(_, job)| job.tid == thread.tid);
        duties.push((
            at,
            last.map_or(at, |(_, job)| job.to_ns),
            WorkerDuty::Active,
        ));
    }
    let shift = BusyShift::of(duties, under_way, workers.len() as i64);
    let victims = jobs
        .iter()
        .map(|(request, done)| {
            let read_ns = request.recv_ns.unwrap_or(request.ready_ns);
            (*request, shift.share_of(read_ns, done.from_ns.max(read_ns)))
        })
        .collect();
    let sleeps = all_sleeps
        .into_iter()
        .map(|(wait, woken)| WorkerSleep {
            wait,
            kept: false,
            ns: shift.within(wait.out_ns, woken),
        })
        .filter(|sleep| sleep.ns > 0)
        .collect();
    let mut replayed: Vec<Worked> = jobs
        .iter()
        .filter_map(|(request, done)| {
            let answered_ns = request.answered_ns()?;
            let taken_ns = done.from_ns.max(request.ready_ns).min(answered_ns);
            Some(Worked {
                socket: request.socket,
                ready_ns: request.ready_ns,
                taken_ns,
                answered_ns,
                free_ns: done.to_ns.max(taken_ns),
            })
        })
        .collect();
    replayed.sort_by_key(|job| job.ready_ns);
    Backlog {
        takes: Takes::Jobs { from },
        port: requests
            .iter()
            .map(|request| request.local_port)
            .find(|port| *port != 0)
            .unwrap_or(0),
        workers,
        shift,
        sleeps,
        victims,
        kept_by: Vec::new(),
        inferred: false,
        jobs: replayed,
    }
}

fn until(model: &Model, request: RequestRef<'_>) -> Ns {
    request.answered_ns().unwrap_or(model.end_ns)
}

/// Whether a worker sleeps where it waits for its next job.
fn waits_for_work(model: &Model, wait: &Wait) -> bool {
    system_call(wait) == SystemCall::Futex
        && !wait.timeout
        && !matches!(
            model.class_of(wait),
            Some(WaitClass::Lock | WaitClass::Timer)
        )
}

/// The threads that do the loop's jobs: those outside of its pool that end its sleeps again and
/// again, and those that sleep in the same work.
fn workers(model: &Model, pool: &EpollPool, the_loop: &Thread) -> BTreeSet<u32> {
    let mut wakes: BTreeMap<u32, usize> = BTreeMap::new();
    for wait in the_loop.timeline.waits() {
        let by_a_thread = wait.wake_context == WakeContext::Task
            && wait.waker_tgid == pool.tgid
            && !pool.members.contains_key(&wait.waker_tid);
        if pool.polls(wait) && by_a_thread {
            *wakes.entry(wait.waker_tid).or_default() += 1;
        }
    }
    wakes.retain(|_, wakes| *wakes >= *EXECUTOR_MIN_JOBS);
    let work = |thread: &Thread| -> Vec<StackId> {
        let waits = thread.timeline.waits().iter();
        waits
            .filter(|wait| wait.user_stack != 0 && !waits_for_work(model, wait))
            .map(|wait| wait.user_stack)
            .collect()
    };
    let known: BTreeSet<StackId> = wakes
        .keys()
        .filter_map(|tid| model.threads.get(tid))
        .flat_map(work)
        .collect();
    let reading: BTreeSet<u32> = model.requests().map(|request| request.recv_tid).collect();
    let alike = model.threads.values().filter(|thread| {
        let same = work(thread)
            .iter()
            .filter(|stack| known.contains(stack))
            .count();
        thread.tgid == pool.tgid
            && !pool.members.contains_key(&thread.tid)
            && same >= *EXECUTOR_MIN_JOBS
    });
    alike
        .map(|thread| thread.tid)
        .chain(wakes.into_keys())
        .filter(|tid| !reading.contains(tid))
        .collect()
}

/// The answers of the loop, each with the job that it followed.
fn matched<'m>(
    model: &'m Model,
    requests: &[RequestRef<'m>],
    workers: &BTreeSet<u32>,
) -> Vec<(RequestRef<'m>, Done)> {
    let mut answers: Vec<(Ns, RequestRef<'m>)> = requests
        .iter()
        .filter(|request| request.latency_ns().is_some_and(|ns| ns >= *SLOW_NS))
        .filter_map(|request| Some((request.first_send_ns?, *request)))
        .collect();
    answers.sort_by_key(|(at, _)| *at);
    // When each came back from its work, those that no answer followed yet; and when its job before
    // was done.
    let mut came_back: Vec<(Ns, u32, Ns)> = workers
        .iter()
        .filter_map(|tid| model.threads.get(tid))
        .flat_map(|thread| thread.timeline.waits())
        .filter(|wait| !waits_for_work(model, wait) && !model.is_lock_wait(wait))
        .filter_map(|wait| Some((wait.in_ns?, wait.tid, wait.out_ns)))
        .collect();
    came_back.sort_unstable();
    let mut before: BTreeMap<u32, Ns> = BTreeMap::new();
    let mut used = vec![false; came_back.len()];
    let mut matched = Vec::new();
    for (at, request) in answers {
        let last = came_back.partition_point(|(back_ns, ..)| *back_ns <= at);
        let first = came_back
            .partition_point(|(back_ns, ..)| back_ns.saturating_add(*EXECUTOR_ANSWERED_NS) < at);
        let Some(found) = (first..last).find(|index| !used[*index]) else {
            continue;
        };
        used[found] = true;
        let (to_ns, tid, out_ns) = came_back[found];
        let before_ns = before.insert(tid, to_ns).unwrap_or(0);
        let from_ns = began(model, tid, before_ns, to_ns).unwrap_or(out_ns);
        matched.push((
            request,
            Done {
                tid,
                from_ns,
                to_ns,
            },
        ));
    }
    matched
}

/// When a worker began with the job that was done at `to_ns`: when it was woken for it, or else
/// when its job before was done, at `before_ns`. `None`: it is the first that is seen of the
/// worker, and had begun before.
pub(super) fn began(model: &Model, tid: u32, before_ns: Ns, to_ns: Ns) -> Option<Ns> {
    let got = model.threads.get(&tid).and_then(|thread| {
        let slept = thread.timeline.overlapping(before_ns, to_ns);
        let idle = slept
            .iter()
            .rev()
            .find(|wait| waits_for_work(model, wait))?;
        idle.over_ns()
    });
    match got {
        Some(got_ns) if got_ns < to_ns => Some(got_ns.max(before_ns)),
        _ => (before_ns != 0).then_some(before_ns),
    }
}
