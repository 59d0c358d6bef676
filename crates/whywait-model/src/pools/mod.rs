//! Pools: threads that can stand in for each other at an epoll instance, by evidence.
//!
//! A thread is a member when it was seen polling the instance itself, or when it parks where the
//! pool's pollers do: its stack in a futex wait is that of a poller up to the runtime's own
//! decision whether to poll or to park. A shared name is no evidence: tokio's blocking threads
//! carry the workers' name, and cannot serve I/O.
//!
//! Go has more threads than may run its goroutines at once (GOMAXPROCS): those that are parked
//! beside that many busy ones have nothing to run on. The number is not known from outside. So a Go
//! pool is taken to have room for as many as were ever seen busy at once, and for no more than
//! there are CPUs.

use std::collections::{BTreeMap, BTreeSet};

use whywait_events::{ModuleKind, Ns, StackId, Wait};

use crate::input::Polls;
use crate::model::Model;
use crate::stacks::{Label, StackNames, StackText};
use crate::timeline::{Activity, Thread, end_of, woken_at};
use crate::waits::system_call::{SystemCall, system_call};

/// Why a thread counts as a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Membership {
    /// It parks in the same frames as the pool's pollers.
    ParksAsPollers,
    /// It polled the instance itself.
    Polled,
}

/// A thread of a pool.
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

/// A stretch in which nobody polled while members idled.
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
    // Where one stretch ends as another begins, it ends first.
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

/// Parts of the names of functions that only wait: what a runtime calls between deciding to idle
/// and the kernel.
const WAITING: &[&str] = &[
    "park",
    "wait",
    "futex",
    "syscall",
    "sleep",
    "condvar",
    "cond_",
    "semaphore",
    "stopm",
    "lll_lock",
];

/// The most frames that a runtime puts between deciding to idle and the system call.
const MAX_WAITING_FRAMES: usize = 8;

/// Whether a thread that sleeps in `park` could as well be polling in `poll`: from the thread's
/// start, both stacks go through the same functions to where the runtime decides; from there `park`
/// has nothing but waiting in it, and `poll` is not far from its system call either. Innermost
/// first, as stacks are.
///
/// An idle thread of another kind (a helper, a blocking pool) parts from the pollers early, so that
/// what is left of `poll` is long. A worker that waits for a lock inside a request has functions
/// between that do more than wait.
fn parks_beside(park: &[Label], poll: &[Label]) -> bool {
    let common = park
        .iter()
        .rev()
        .zip(poll.iter().rev())
        .take_while(|(a, b)| a.name == b.name && a.module == b.module && tells(a))
        .count();
    let park_rest = &park[..park.len() - common];
    let poll_rest = &poll[..poll.len() - common];
    let decided_by_the_runtime = common * 2 > poll.len() && common >= 2;
    decided_by_the_runtime
        && !park_rest.is_empty()
        && park_rest.len() <= MAX_WAITING_FRAMES
        && poll_rest.len() <= MAX_WAITING_FRAMES
        && park_rest
            .iter()
            .all(|label| label.named && only_waits(&label.name))
}

/// Whether a frame says which function it is. Just-in-time compiled code without a name is any
/// function: all threads of a JVM go through the same few such frames, its helpers as well as its
/// pollers.
fn tells(label: &Label) -> bool {
    label.named || !matches!(label.kind, ModuleKind::Jit | ModuleKind::Unknown)
}

fn only_waits(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    WAITING.iter().any(|part| name.contains(part))
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

    /// The stretches of `[from_ns, to_ns)` in which nobody polled while members idled that could
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Outermost first, as one reads a call.
    fn stack(calls: &[&str]) -> Vec<Label> {
        let label = |name: &&str| Label {
            name: (*name).into(),
            named: true,
            file: "".into(),
            line: 0,
            module: "/srv/app".into(),
            kind: ModuleKind::Elf,
        };
        calls.iter().rev().map(label).collect()
    }

    const WORKER: &[&str] = &[
        "thread_start",
        "pool::run",
        "Task::poll",
        "worker::run",
        "Context::run",
    ];

    fn worker(rest: &[&str]) -> Vec<Label> {
        stack(&[WORKER, rest].concat())
    }

    #[test]
    fn a_worker_that_parks_could_poll() {
        let poll = worker(&["Context::park", "Driver::turn", "epoll_wait"]);
        assert!(parks_beside(
            &worker(&[
                "Context::park",
                "Inner::park_condvar",
                "Condvar::wait",
                "syscall"
            ]),
            &poll
        ));
    }

    #[test]
    fn a_thread_of_the_blocking_pool_could_not() {
        let poll = worker(&["Context::park", "Driver::turn", "epoll_wait"]);
        assert!(!parks_beside(
            &stack(&["thread_start", "pool::run", "Condvar::wait", "syscall"]),
            &poll
        ));
    }

    #[test]
    fn a_worker_that_waits_for_a_lock_in_a_request_is_not_idle() {
        let poll = worker(&["Context::park", "Driver::turn", "epoll_wait"]);
        let locked = worker(&[
            "run_task",
            "handler",
            "Mutex::lock_contended",
            "futex_wait",
            "syscall",
        ]);
        assert!(!parks_beside(&locked, &poll));
        let inlined = worker(&["handler", "futex_wait", "syscall"]);
        assert!(!parks_beside(&inlined, &poll));
    }

    #[test]
    fn code_without_a_name_is_no_evidence_of_parking_beside_a_poller() {
        let compiled = |rest: &[&str]| {
            let mut stack = stack(&[&["[jit]", "[jit]", "[jit]", "[jit]"], rest].concat());
            for label in &mut stack {
                if &*label.name == "[jit]" {
                    label.named = false;
                    label.kind = ModuleKind::Jit;
                }
            }
            stack
        };
        let poll = compiled(&["EPoll_wait", "epoll_wait"]);
        let helper = compiled(&["Unsafe_Park", "Parker::park", "pthread_cond_wait"]);
        assert!(!parks_beside(&helper, &poll));
    }

    #[test]
    fn a_helper_beside_a_single_threaded_loop_could_not() {
        let poll = stack(&["_start", "main", "aeMain", "aeProcessEvents", "epoll_wait"]);
        assert!(!parks_beside(
            &stack(&[
                "clone3",
                "start_thread",
                "bioProcessBackgroundJobs",
                "pthread_cond_wait"
            ]),
            &poll
        ));
    }
}
