//! What would have been, had threads that idled taken the requests that waited: a replay of the
//! requests, in the order in which they came, onto the pool as it was.

use whywait_events::Ns;
use whywait_model::{EpollPool, Model, RequestRef, Thread};
use whywait_replay::{Relaxation, Resource, Schedule, Step, What, Work};

use crate::shared::intervals::{Interval, overlap_ns, sum};

/// Groups what overlaps in time: such requests compete for the same threads. In order of when they
/// begin.
pub(crate) fn episodes<T>(mut items: Vec<T>, interval: impl Fn(&T) -> Interval) -> Vec<Vec<T>> {
    items.sort_by_key(|item| interval(item).0);
    let mut episodes: Vec<Vec<T>> = Vec::new();
    let mut until = 0;
    for item in items {
        let (from, to) = interval(&item);
        match episodes.last_mut() {
            Some(episode) if from < until => episode.push(item),
            _ => {
                until = 0;
                episodes.push(vec![item]);
            }
        }
        until = until.max(to);
    }
    episodes
}

/// When each request of an episode, in order of arrival, would have been taken: a thread that idles
/// takes one at once and keeps it for as long as the request really kept its thread; a thread that
/// was busy takes one when it really came free. [`Ns::MAX`]: never.
pub(crate) fn replayed(model: &Model, pool: &EpollPool, episode: &[RequestRef<'_>]) -> Vec<Ns> {
    let begins = episode.iter().map(|request| request.ready_ns).min();
    let begins = begins.unwrap_or(Ns::MAX);
    let members = pool.members.keys();
    let slots = members
        .filter_map(|tid| model.threads.get(tid))
        .map(|thread| free_from(pool, thread, begins, episode))
        .collect();
    let work = |request: &RequestRef<'_>| {
        let step = |at_ns, what| Step { at_ns, what };
        let held = What::Spends {
            ns: held_ns(model, pool, *request),
            cause: None,
        };
        Work {
            ready_ns: request.ready_ns,
            answered_ns: request.end_ns(),
            follows: None,
            steps: vec![
                step(request.ready_ns, What::Takes(0)),
                step(request.served_ns(), held),
            ],
        }
    };
    let schedule = Schedule {
        resources: vec![Resource { slots }],
        works: episode.iter().map(work).collect(),
    };
    let replayed = schedule.replay(&Relaxation::default()).into_iter();
    replayed
        .map(|replayed| replayed.taken_ns.unwrap_or(Ns::MAX))
        .collect()
}

/// When a member could take a request, from `from_ns` on: when it idles or polls, or takes one of
/// these.
fn free_from(pool: &EpollPool, thread: &Thread, from_ns: Ns, episode: &[RequestRef<'_>]) -> Ns {
    let rests = thread
        .timeline
        .overlapping(from_ns, Ns::MAX)
        .iter()
        .find(|wait| pool.idles(wait) || pool.polls(wait))
        .map_or(Ns::MAX, |wait| wait.out_ns.max(from_ns));
    let takes = episode
        .iter()
        .filter(|request| request.recv_tid == thread.tid)
        .filter_map(|request| request.recv_ns)
        .min()
        .unwrap_or(Ns::MAX);
    rests.min(takes)
}

/// For how long a request kept the thread that read it from serving others: its service without
/// what that thread spent polling or idle meanwhile.
fn held_ns(model: &Model, pool: &EpollPool, request: RequestRef<'_>) -> u64 {
    let (Some(from_ns), Some(to_ns)) = (request.recv_ns, request.answered_ns()) else {
        return u64::MAX;
    };
    let Some(thread) = model.threads.get(&request.recv_tid) else {
        return to_ns.saturating_sub(from_ns);
    };
    let waits = thread.timeline.overlapping(from_ns, to_ns).iter();
    let elsewhere = waits
        .filter(|wait| pool.idles(wait) || pool.polls(wait))
        .map(|wait| {
            let until_ns = wait.end_ns();
            overlap_ns((wait.out_ns, until_ns), (from_ns, to_ns))
        });
    to_ns.saturating_sub(from_ns).saturating_sub(sum(elsewhere))
}

#[cfg(test)]
mod tests {
    use whywait_model::script::{Script, ms};

    use super::*;

    #[test]
    fn what_overlaps_is_one_episode() {
        let episodes = episodes(vec![(8, 9), (0, 5), (4, 6), (6, 7)], |item| *item);
        assert_eq!(episodes, [vec![(0, 5), (4, 6)], vec![(6, 7)], vec![(8, 9)]]);
    }

    /// Thread 1 takes all three requests, 300 ms each, while thread 2 idles in its poll. Replayed,
    /// thread 2 takes the second one, and thread 1 the third, when it is done with the first.
    #[test]
    fn whoever_is_free_first_takes_the_next_request() {
        let mut script = Script::new();
        let stack = script.stack(&["main", "serve", "epoll_wait"]);
        for tid in [1, 2] {
            script.thread(tid, "worker");
            script.polls_in(tid, 1, stack, 0, 10);
        }
        script.polls_in(2, 1, stack, 20, 2_000);
        for (socket, ready, read) in [(1, 10, 10), (2, 100, 310), (3, 200, 610)] {
            let request = script.request(socket).epoll(1).ready(ready);
            request.read(read, 1).answered(read + 300, 1);
        }
        let model = script.ends(2_500).model();
        let requests: Vec<RequestRef<'_>> = model.requests().collect();
        let taken = replayed(&model, &model.pools[0], &requests);
        assert_eq!(taken, [ms(10), ms(100), ms(310)]);
    }
}
