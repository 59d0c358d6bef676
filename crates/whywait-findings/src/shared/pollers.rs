//! Who should have polled while nobody did.

use std::collections::BTreeMap;

use whywait_events::Ns;
use whywait_model::waits::WaitKey;
use whywait_model::{EpollPool, Model, RequestRef, Thread};

use crate::shared::intervals::overlap_ns;
use crate::shared::replay::lock_of;

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
