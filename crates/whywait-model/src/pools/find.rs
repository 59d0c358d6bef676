//! Finds the pools of a recording.

use std::collections::{BTreeMap, BTreeSet};

use whywait_events::{Ns, StackId};

use super::parking::parks_beside;
use super::{EpollPool, Membership, PoolMember};
use crate::input::Polls;
use crate::stacks::{Label, StackNames, StackText};
use crate::timeline::Thread;

/// Finds the pools of a recording.
pub(crate) fn find(
    polls: &BTreeMap<(u32, u32), Polls>,
    parks: &BTreeMap<u32, BTreeSet<(StackId, u32, u64)>>,
    stacks: &StackNames,
    threads: &BTreeMap<u32, Thread>,
    cpus: u32,
) -> Vec<EpollPool> {
    polls
        .iter()
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
        .collect()
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
