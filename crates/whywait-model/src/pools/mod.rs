//! Pools: threads that can stand in for each other at an epoll instance, by evidence.
//!
//! A thread is a member when it was seen polling the instance itself, or when it parks where the
//! pool's pollers do: its stack in a futex wait is that of a poller up to the runtime's own
//! decision whether to poll or to park. A shared name is no evidence: tokio's blocking threads
//! carry the workers' name, and cannot serve I/O.
//!
//! A loop need not have an epoll instance: it may name all of its descriptors in each poll or
//! select. Such a loop is one thread that sleeps so for several descriptors, and has several
//! connections at a time: nobody else reads them, and it reads of others before it has answered
//! one, or between two requests of one. A worker that is handed connections has one until it is
//! over, and waits for the next one elsewhere.
//!
//! A loop that always has something to do never sleeps in its poll. It is known by what it reads:
//! one thread alone reads all that is registered with the instance, of several connections at once.
//! Without an instance no other thread of its process may read, or poll, which could hand it what
//! it reads.
//!
//! Go has more threads than may run its goroutines at once (GOMAXPROCS): those that are parked
//! beside that many busy ones have nothing to run on. The number is not known from outside. So a Go
//! pool is taken to have room for as many as were ever seen busy at once, and for no more than
//! there are CPUs.

use std::collections::{BTreeMap, BTreeSet};

use whywait_events::{Ns, StackId, Wait};

use crate::timeline::Thread;
use crate::waits::{SystemCall, descriptor, system_call};

mod find;
mod parking;
mod spans;

pub(crate) use find::find;
use spans::PoolSpans;

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

/// Threads that can stand in for each other at an epoll instance, or a loop that has none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EpollPool {
    /// The process.
    pub tgid: u32,
    /// The epoll instance. 0: there is none, and its only member names all descriptors in each
    /// poll or select.
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
    /// When nobody polled while members idled.
    spans: PoolSpans,
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

    /// Whether a sleep is one in the pool's epoll instance, or in what its loop has in place of it:
    /// for all of its descriptors, where a library that blocks it polls the one of its connection.
    pub fn polls(&self, wait: &Wait) -> bool {
        let in_place = || self.members.contains_key(&wait.tid) && descriptor(wait).is_none();
        system_call(wait) == SystemCall::Poll
            && wait.epoll == self.epoll
            && (self.epoll != 0 || in_place())
    }

    /// One of a thread alone.
    fn of_one(tgid: u32, epoll: u32, tid: u32, membership: Membership) -> Self {
        Self {
            tgid,
            epoll,
            members: BTreeMap::from([(tid, PoolMember { tid, membership })]),
            park_stacks: BTreeSet::new(),
            poll_stacks: BTreeSet::new(),
            at_once: None,
            park_words: BTreeSet::new(),
            spans: PoolSpans::default(),
        }
    }

    /// What a member does while it sleeps, as far as serving goes.
    fn duty_asleep(&self, wait: &Wait) -> Duty {
        if self.polls(wait) {
            Duty::Polling
        } else if self.idles(wait) {
            Duty::Idle
        } else {
            Duty::Busy
        }
    }

    /// The intervals of `[from_ns, to_ns)` in which nobody polled while members idled that could
    /// have run, apart where others idled. Goes through all that members did meanwhile: see
    /// [`Self::stranded_ns`].
    pub fn stranded(
        &self,
        threads: &BTreeMap<u32, Thread>,
        from_ns: Ns,
        to_ns: Ns,
    ) -> Vec<StrandedInterval> {
        let mut found: Vec<StrandedInterval> = Vec::new();
        self.sweep(
            threads,
            from_ns,
            to_ns,
            |from_ns, to_ns, idle| match found.last_mut() {
                Some(last) if last.to_ns == from_ns && last.idle.iter().eq(idle) => {
                    last.to_ns = to_ns;
                }
                _ => found.push(StrandedInterval {
                    from_ns,
                    to_ns,
                    idle: idle.iter().copied().collect(),
                }),
            },
        );
        found
    }

    /// How long nobody polled in `[from_ns, to_ns)` while members idled that could have run,
    /// nanoseconds.
    pub fn stranded_ns(&self, from_ns: Ns, to_ns: Ns) -> u64 {
        self.spans.within(from_ns, to_ns)
    }

    /// When that was so in `[from_ns, to_ns)` for longest, whoever idled.
    pub fn longest_stranded(&self, from_ns: Ns, to_ns: Ns) -> Option<(Ns, Ns)> {
        self.spans.longest(from_ns, to_ns)
    }

    /// Finds out when it was so, over the whole recording: requests by the thousand ask for it.
    pub(crate) fn find_spans(&mut self, threads: &BTreeMap<u32, Thread>) {
        let mut spans = PoolSpans::default();
        self.sweep(threads, 0, Ns::MAX, |from_ns, to_ns, _| {
            spans.add(from_ns, to_ns);
        });
        self.spans = spans;
    }

    /// Calls `visit` with each interval of `[from_ns, to_ns)` in which nobody polled while these
    /// members idled that could have run.
    fn sweep(
        &self,
        threads: &BTreeMap<u32, Thread>,
        from_ns: Ns,
        to_ns: Ns,
        mut visit: impl FnMut(Ns, Ns, &BTreeSet<u32>),
    ) {
        let members: Vec<&Thread> = self
            .members
            .keys()
            .filter_map(|tid| threads.get(tid))
            .collect();
        let mut changes: Vec<(Ns, u32, Duty)> = Vec::new();
        for thread in &members {
            for wait in thread.timeline.overlapping(from_ns, to_ns) {
                let began_ns = wait.out_ns.max(from_ns);
                let over_ns = wait.woken_ns().min(wait.end_ns());
                if over_ns <= began_ns {
                    continue;
                }
                changes.push((began_ns, thread.tid, self.duty_asleep(wait)));
                if over_ns < to_ns {
                    changes.push((over_ns, thread.tid, Duty::Busy));
                }
            }
        }
        // The sleep after a wake at the same time comes behind it, as it does in the timeline.
        changes.sort_by_key(|(at_ns, ..)| *at_ns);
        let mut idle: BTreeSet<u32> = BTreeSet::new();
        let mut polling: BTreeSet<u32> = BTreeSet::new();
        let mut at = 0;
        while at < changes.len() {
            let now_ns = changes[at].0;
            while let Some((_, tid, duty)) = changes.get(at).filter(|(ns, ..)| *ns == now_ns) {
                idle.remove(tid);
                polling.remove(tid);
                match duty {
                    Duty::Idle => drop(idle.insert(*tid)),
                    Duty::Polling => drop(polling.insert(*tid)),
                    Duty::Busy => {}
                }
                at += 1;
            }
            let next_ns = changes.get(at).map_or(to_ns, |(ns, ..)| *ns);
            let busy = members.len() - idle.len() - polling.len();
            let full = self.at_once.is_some_and(|most| busy >= most);
            if polling.is_empty() && !full && !idle.is_empty() {
                visit(now_ns, next_ns, &idle);
            }
        }
    }
}
