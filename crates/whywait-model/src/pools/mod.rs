//! Pools: threads that can stand in for each other at an epoll instance, by evidence.
//!
//! A thread is a member when it was seen polling the instance itself, or when it parks where the
//! pool's pollers do: its stack in a futex wait is that of a poller up to the runtime's own
//! decision whether to poll or to park. A shared name is no evidence: tokio's blocking threads
//! carry the workers' name, and cannot serve I/O.
//!
//! A loop that always has something to do never sleeps in its poll. It is known by what it reads:
//! one thread alone reads all that is registered with the instance, of several connections at once.
//!
//! Go has more threads than may run its goroutines at once (GOMAXPROCS): those that are parked
//! beside that many busy ones have nothing to run on. The number is not known from outside. So a Go
//! pool is taken to have room for as many as were ever seen busy at once, and for no more than
//! there are CPUs.

use std::collections::{BTreeMap, BTreeSet};

use whywait_events::{Ns, StackId, Wait};

use crate::model::Model;
use crate::timeline::{Activity, Thread, end_of, woken_at};
use crate::waits::{SystemCall, system_call};

mod find;
mod parking;

pub(crate) use find::find;

/// Why a thread counts as a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Membership {
    /// It parks in the same frames as the pool's pollers.
    ParksAsPollers,
    /// It alone reads what is registered there, several requests at once: a loop whose poll was
    /// never seen to sleep.
    ReadsAlone,
    /// It polled the instance itself.
    Polled,
}

/// A thread of a pool, with why it counts to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolMember {
    /// Thread id.
    pub tid: u32,
    /// Why it is one.
    pub membership: Membership,
}

/// Threads that can stand in for each other at an epoll instance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EpollPool {
    /// The process.
    pub tgid: u32,
    /// The epoll instance.
    pub epoll: u32,
    /// By thread id.
    pub members: BTreeMap<u32, PoolMember>,
    /// Stacks in which members idle.
    pub park_stacks: BTreeSet<StackId>,
    /// Stacks in which members poll.
    pub poll_stacks: BTreeSet<StackId>,
    /// How many members can be busy at once, where that may be fewer than there are.
    pub at_once: Option<usize>,
    /// Futex words on which a thread was seen to idle: its sleeps there are idle also when no stack
    /// was taken.
    park_words: BTreeSet<(u32, u64)>,
}

/// An interval in which nobody polled while members idled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StrandedInterval {
    /// From.
    pub from_ns: Ns,
    /// To.
    pub to_ns: Ns,
    /// The idle members.
    pub idle: Vec<u32>,
}

/// What a member did, as far as serving goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Duty {
    Polling,
    Idle,
    /// Serving, blocked, on its way, or unknown.
    Busy,
}

impl EpollPool {
    /// Whether a sleep is idling: waiting for work, not for the work at hand.
    pub fn idles(&self, wait: &Wait) -> bool {
        if system_call(wait) != SystemCall::Futex {
            return false;
        }
        if wait.user_stack != 0 {
            return self.park_stacks.contains(&wait.user_stack);
        }
        self.park_words.contains(&(wait.tid, wait.args[0]))
    }

    /// Its thread, if it is one alone.
    pub fn only_member(&self) -> Option<PoolMember> {
        let mut members = self.members.values();
        match (members.next(), members.next()) {
            (Some(member), None) => Some(*member),
            _ => None,
        }
    }

    /// Whether a sleep is one in the pool's epoll instance.
    pub fn polls(&self, wait: &Wait) -> bool {
        system_call(wait) == SystemCall::Poll && wait.epoll == self.epoll
    }

    /// What a member did at `at`.
    pub(crate) fn duty(&self, thread: &Thread, at: Ns) -> Duty {
        match thread.timeline.at(at) {
            Activity::Sleeping(wait) if self.polls(wait) => Duty::Polling,
            Activity::Sleeping(wait) if self.idles(wait) => Duty::Idle,
            _ => Duty::Busy,
        }
    }

    /// The intervals of `[from_ns, to_ns)` in which nobody polled while members idled that could
    /// have run.
    pub fn stranded(&self, model: &Model, from_ns: Ns, to_ns: Ns) -> Vec<StrandedInterval> {
        let members: Vec<&Thread> = self
            .members
            .keys()
            .filter_map(|tid| model.threads.get(tid))
            .collect();
        let mut edges: Vec<Ns> = members
            .iter()
            .flat_map(|thread| thread.timeline.overlapping(from_ns, to_ns))
            .flat_map(|wait| [wait.out_ns, woken_at(wait), end_of(wait)])
            .filter(|edge| (from_ns..to_ns).contains(edge))
            .chain([from_ns, to_ns])
            .collect();
        edges.sort_unstable();
        edges.dedup();
        let mut found: Vec<StrandedInterval> = Vec::new();
        for pair in edges.windows(2) {
            let &[from_ns, to_ns] = pair else { continue };
            let mut idle = Vec::new();
            let mut polled = false;
            let mut busy = 0;
            for thread in &members {
                match self.duty(thread, from_ns) {
                    Duty::Polling => polled = true,
                    Duty::Idle => idle.push(thread.tid),
                    Duty::Busy => busy += 1,
                }
            }
            let full = self.at_once.is_some_and(|most| busy >= most);
            if polled || full || idle.is_empty() {
                continue;
            }
            match found.last_mut() {
                Some(last) if last.to_ns == from_ns && last.idle == idle => last.to_ns = to_ns,
                _ => found.push(StrandedInterval {
                    from_ns,
                    to_ns,
                    idle,
                }),
            }
        }
        found
    }
}
