//! Who polls: the thread of a loop, and who should have polled while nobody did.

use std::collections::BTreeMap;

use whywait_events::Ns;
use whywait_model::waits::WaitKey;
use whywait_model::{EpollPool, Model, RequestRef, Thread};

use crate::shared::intervals::overlap_ns;
use crate::shared::replay::lock_of;

/// The thread of a single-threaded loop, and the requests that are registered where it polls. None
/// if others poll there, or read there: a thread that never slept in the poll may serve all the
/// same.
pub(crate) fn of_loop<'a>(
    model: &'a Model,
    pool: &EpollPool,
) -> Option<(&'a Thread, Vec<RequestRef<'a>>)> {
    let tid = pool.only_member()?.tid;
    let thread = model.threads.get(&tid)?;
    let of_pool = |request: &RequestRef<'_>| match request.epoll {
        // What came before its connection was accepted may not have been registered in time to be
        // seen.
        0 => request.recv_tid == tid && (request.before_accept || pool.epoll == 0),
        epoll => epoll == pool.epoll && (request.tgid == pool.tgid || request.tgid == 0),
    };
    let requests: Vec<RequestRef<'_>> = model.requests().filter(of_pool).collect();
    let by_others = |request: &RequestRef<'_>| request.recv_tid != 0 && request.recv_tid != tid;
    (!requests.iter().any(by_others)).then_some((thread, requests))
}

/// How a report names where a loop polls.
pub(crate) fn polled(pool: &EpollPool) -> String {
    match pool.epoll {
        0 => "its connections by poll or select".to_owned(),
        epoll => format!("epoll instance {epoll}"),
    }
}

/// The member that was in `epoll_wait` last before `at`; else the one that is neither idle nor
/// polling then.
pub(crate) fn last_poller<'a>(model: &'a Model, pool: &EpollPool, at: Ns) -> Option<&'a Thread> {
    let members = || pool.members.keys().filter_map(|tid| model.threads.get(tid));
    let polled = members()
        .filter_map(|thread| {
            let wait = thread
                .timeline
                .waits()
                .iter()
                .rev()
                .find(|wait| wait.out_ns <= at && pool.polls(wait))?;
            Some((wait.in_ns?, thread))
        })
        .max_by_key(|(in_ns, _)| *in_ns);
    polled.map(|(_, thread)| thread).or_else(|| {
        let rests = |thread: &&Thread| {
            thread
                .timeline
                .overlapping(at, at + 1)
                .iter()
                .any(|wait| pool.idles(wait) || pool.polls(wait))
        };
        members().find(|thread| !rests(thread))
    })
}

/// How long a request lay unread while threads idled and nobody polled, as the one that polled last
/// waited for locks.
pub(crate) fn stranded_behind(model: &Model, request: RequestRef<'_>) -> BTreeMap<WaitKey, u64> {
    let mut behind: BTreeMap<WaitKey, u64> = BTreeMap::new();
    let stranded = || {
        let pool = request.pool().filter(|pool| pool.members.len() > 1)?;
        let stranded = pool.longest_stranded(request.ready_ns, request.served_ns())?;
        Some((last_poller(model, pool, stranded.0)?, stranded))
    };
    let Some((thread, stranded)) = stranded().filter(|_| request.read_armed != Some(false)) else {
        return behind;
    };
    for wait in thread.timeline.overlapping(stranded.0, stranded.1) {
        if model.is_lock_wait(wait) {
            let ns = overlap_ns((wait.out_ns, wait.end_ns()), stranded);
            let all_ns = behind.entry(lock_of(model, wait)).or_default();
            *all_ns = all_ns.saturating_add(ns);
        }
    }
    behind
}
