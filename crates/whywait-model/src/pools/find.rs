//! Finds the pools of a recording.

use std::collections::{BTreeMap, BTreeSet};

use whywait_events::{Ns, Request, StackId, Wait, WorkKind};

use super::parking::parks_beside;
use super::{EpollPool, Membership, PoolMember, PoolSpans};
use crate::input::Polls;
use crate::requests::life;
use crate::stacks::{Label, StackNames, StackText};
use crate::timeline::Thread;
use crate::waits::{SystemCall, descriptor, is_accept, system_call};

/// Finds the pools of a recording.
pub(crate) fn find(
    polls: &BTreeMap<(u32, u32), Polls>,
    parks: &BTreeMap<u32, BTreeSet<(StackId, u32, u64)>>,
    stacks: &StackNames,
    threads: &BTreeMap<u32, Thread>,
    requests: &[Request],
    cpus: u32,
) -> Vec<EpollPool> {
    let mut pools: Vec<EpollPool> = polls
        .iter()
        .filter(|((_, epoll), _)| *epoll != 0)
        .map(|(&(tgid, epoll), polls)| {
            let poll_texts: Vec<&StackText> = polls
                .stacks
                .iter()
                .filter_map(|id| stacks.get(*id))
                .collect();
            let mut pool = EpollPool {
                tgid,
                epoll,
                members: BTreeMap::new(),
                park_stacks: BTreeSet::new(),
                poll_stacks: polls.stacks.clone(),
                at_once: None,
                park_words: BTreeSet::new(),
                spans: PoolSpans::default(),
            };
            for tid in polls.threads.keys() {
                pool.members.insert(
                    *tid,
                    PoolMember {
                        tid: *tid,
                        membership: Membership::Polled,
                    },
                );
            }
            let mut looked_at: BTreeMap<StackId, bool> = BTreeMap::new();
            for &(stack, tid, word) in parks.get(&tgid).into_iter().flatten() {
                let parks = *looked_at.entry(stack).or_insert_with(|| {
                    stacks.get(stack).is_some_and(|park| {
                        poll_texts
                            .iter()
                            .any(|poll| parks_beside(&park.labels, &poll.labels))
                    })
                });
                if parks {
                    pool.park_stacks.insert(stack);
                    pool.park_words.insert((tid, word));
                    pool.members.entry(tid).or_insert(PoolMember {
                        tid,
                        membership: Membership::ParksAsPollers,
                    });
                }
            }
            if poll_texts.iter().any(|poll| is_go(&poll.labels)) {
                let members = pool.members.keys().filter_map(|tid| threads.get(tid));
                let most = (cpus as usize).max(1);
                pool.at_once = Some(busy_at_once(members).clamp(1, most));
            }
            pool
        })
        .collect();
    pools.extend(saturated_loops(polls, requests));
    pools.extend(loops_without_epoll(polls, threads, requests));
    pools.sort_by_key(|pool| (pool.tgid, pool.epoll));
    pools
}

/// Loops that were never seen to sleep in their poll: what is registered with an epoll instance is
/// read by one thread alone, several requests at once. A worker that is given one connection after
/// the other has one request at a time.
fn saturated_loops(
    polls: &BTreeMap<(u32, u32), Polls>,
    requests: &[Request],
) -> impl Iterator<Item = EpollPool> {
    let mut read: BTreeMap<(u32, u32), Vec<&Request>> = BTreeMap::new();
    for request in requests {
        let instance = (request.tgid, request.epoll);
        // Who read what was read before the recording began is not known.
        if request.epoll != 0 && request.recv_tid != 0 && !polls.contains_key(&instance) {
            read.entry(instance).or_default().push(request);
        }
    }
    read.into_iter().filter_map(|((tgid, epoll), requests)| {
        let tid = requests.first()?.recv_tid;
        let alone = requests.iter().all(|request| request.recv_tid == tid);
        (alone && several_at_once(requests))
            .then(|| EpollPool::of_one(tgid, epoll, tid, Membership::ReadsAlone))
    })
}

/// Loops that name all of their descriptors in each poll or select. One that was never seen to
/// sleep so is a loop where no other thread of its process reads, and none polls, which could hand
/// it what it reads, and it does not sleep until a client comes or says something.
fn loops_without_epoll(
    polls: &BTreeMap<(u32, u32), Polls>,
    threads: &BTreeMap<u32, Thread>,
    requests: &[Request],
) -> Vec<EpollPool> {
    // By connection: its only reader; `None`: there are several.
    let mut readers: BTreeMap<u64, Option<u32>> = BTreeMap::new();
    let mut read: BTreeMap<(u32, u32), Vec<&Request>> = BTreeMap::new();
    for request in requests.iter().filter(|request| request.recv_tid != 0) {
        let tid = request.recv_tid;
        let reader = readers.entry(request.socket).or_insert(Some(tid));
        *reader = reader.filter(|first| *first == tid);
        let is_job = matches!(request.kind, WorkKind::Job | WorkKind::HandedJob);
        if request.epoll == 0 && !is_job {
            read.entry((request.tgid, tid)).or_default().push(request);
        }
    }
    let shared = |request: &&Request| readers.get(&request.socket) == Some(&None);
    let of_process = |tgid: u32| (tgid, 0)..=(tgid, u32::MAX);
    let mut reading: BTreeMap<u32, usize> = BTreeMap::new();
    for (tgid, _) in read.keys() {
        *reading.entry(*tgid).or_default() += 1;
    }
    let seen = |(tgid, tid): (u32, u32), requests: &[&Request]| {
        let listed = polls.get(&(tgid, 0));
        if let Some(polls) = listed.filter(|polls| polls.threads.contains_key(&tid)) {
            return Some((Membership::Polled, polls.stacks.clone()));
        }
        let alone =
            reading.get(&tgid) == Some(&1) && polls.range(of_process(tgid)).next().is_none();
        let awaits = |thread: &Thread| awaits_clients(thread, requests);
        let multiplexes = alone && !threads.get(&tid).is_some_and(awaits);
        multiplexes.then(|| (Membership::ReadsAlone, BTreeSet::new()))
    };
    let loops = read.iter().filter_map(|(&(tgid, tid), requests)| {
        let (membership, poll_stacks) = seen((tgid, tid), requests)?;
        let is_one = !requests.iter().any(shared) && are_interleaved(requests.clone());
        is_one.then(|| EpollPool {
            poll_stacks,
            ..EpollPool::of_one(tgid, 0, tid, membership)
        })
    });
    loops.collect()
}

/// Whether a thread that read these sleeps until a client comes or says something, or for a ring:
/// one that polls its connections does not. All datagrams come at the socket on which it may sleep.
fn awaits_clients(thread: &Thread, requests: &[&Request]) -> bool {
    let clients: BTreeSet<i32> = requests.iter().map(|request| request.fd).collect();
    let mut waits = thread.timeline.waits().iter();
    let awaits = |wait: &Wait| {
        let client = || descriptor(wait).is_some_and(|fd| clients.contains(&fd));
        is_accept(wait) || system_call(wait) == SystemCall::Uring || client()
    };
    let datagrams = |request: &&Request| request.kind == WorkKind::Datagram;
    requests.iter().any(datagrams) || waits.any(awaits)
}

/// Whether their thread, which read them all, had several connections at a time: it read of another
/// one before it answered one, or between two requests of one.
fn are_interleaved(mut requests: Vec<&Request>) -> bool {
    requests.sort_by_key(|request| (request.recv_ns, request.socket, request.seq));
    let unanswered = requests.windows(2).any(|pair| match pair {
        [one, next] => {
            let answered_ns = one.first_send_ns.unwrap_or(life::until_ns(one));
            next.socket != one.socket && next.recv_ns.is_some_and(|ns| ns < answered_ns)
        }
        _ => false,
    });
    // Of each connection that it left for another one: whether it came back.
    let mut left: BTreeSet<u64> = BTreeSet::new();
    let came_back = |pair: &[&Request]| match pair {
        [one, next] => {
            one.socket != next.socket && {
                left.insert(one.socket);
                left.contains(&next.socket)
            }
        }
        _ => false,
    };
    unanswered || requests.windows(2).any(came_back)
}

/// Whether requests of different connections were under way at the same time.
fn several_at_once(mut requests: Vec<&Request>) -> bool {
    requests.sort_by_key(|request| (request.ready_ns, request.socket, request.seq));
    requests.windows(2).any(|pair| match pair {
        [one, next] => next.socket != one.socket && next.ready_ns < life::until_ns(one),
        _ => false,
    })
}

/// Whether a thread that polls does so in Go's scheduler.
fn is_go(poll: &[Label]) -> bool {
    poll.iter().any(|label| {
        matches!(
            &*label.name,
            "runtime.findRunnable" | "runtime.findrunnable"
        )
    })
}

/// The most threads that were seen busy at the same time.
fn busy_at_once<'a>(threads: impl Iterator<Item = &'a Thread>) -> usize {
    // Where one interval ends as another begins, it ends first.
    let mut edges: Vec<(Ns, bool)> = threads
        .flat_map(|thread| &thread.busy)
        .filter(|busy| busy.start_ns < busy.end_ns)
        .flat_map(|busy| [(busy.start_ns, true), (busy.end_ns, false)])
        .collect();
    edges.sort_unstable();
    let (mut now, mut most) = (0_usize, 0);
    for (_, begins) in edges {
        now = if begins {
            now + 1
        } else {
            now.saturating_sub(1)
        };
        most = most.max(now);
    }
    most
}
