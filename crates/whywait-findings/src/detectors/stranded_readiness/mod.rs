//! `stranded-readiness`: requests were ready, threads that could have served them idle, and nobody
//! polled.
//!
//! **Invariant.** Of the threads that can serve an epoll instance, either all are busy, or one of
//! them waits for I/O.
//!
//! **Evidence.** The threads are a pool by evidence (see `whywait_model::EpollPool`): each polled
//! the instance, or parks where its pollers park. Over a stretch nobody of the pool slept in
//! `epoll_wait` on it, some of the pool slept idle, and requests on its sockets had their first
//! byte in the kernel, unread.
//!
//! **Cost.** The requests of an episode are replayed, in the order in which they came, onto the
//! pool as it was: a thread that idled takes one at once and keeps it for as long as the request
//! really kept its thread; a thread that was busy takes one when it really came free. What a
//! request gains by that is what a fix saves it at most. So one that would have found all threads
//! taken gains nothing.
//!
//! **Guards.** A pool of one thread is never stranded. A thread that sleeps in a request, or
//! without a known stack, is not idle. A socket whose read interest is off is not waiting for
//! anybody. Where the thread that polled last did hardly anything but wait for a CPU
//! ([`SHARE_OF_DOING`]), or another one had been woken and waited for one for half of the time, it
//! was a CPU that lacked, and not a poller. (That a busy thread also waits for a CPU is no excuse:
//! one that idles and is woken gets its share of a crowded machine, which is why the confidence is
//! medium then, and not nothing said.) Where it was not seen busy or asleep elsewhere for most of
//! the time, it is not known to have kept anybody from polling. Beside as many busy threads as Go
//! runs at once its parked ones cannot serve (see [`EpollPool::at_once`]). Less than
//! [`MIN_STRANDED_NS`] is a wake-up under load.

mod siblings;

use std::collections::BTreeMap;

use serde_json::{Map, json};
use whywait_events::{Ns, Wait};
use whywait_model::{Membership, Model, EpollPool, RequestRef, StrandedInterval, Thread, system_call_name};

use crate::declaration::{Code, Declaration};
use crate::finding::{Cause, Confidence, Evidence, Finding, Saving, SavingKind, Severity};
use crate::shared::runtime::{self, Runtime};
use crate::shared::text::{count, duration, list};

/// What it is.
pub(crate) static DECLARATION: Declaration = Declaration {
    code: "stranded-readiness",
    meaning: "requests were ready, threads that could have served them sat idle, and nobody polled",
    severities: &[
        (Severity::Error, "from 100 ms of a request on"),
        (Severity::Warning, "otherwise"),
    ],
    invariant: "of the threads that can serve an epoll instance, either all are busy, or one of them \
        waits for I/O",
    explain: include_str!("explain.md"),
    detect,
};

/// A request that was stranded for less is not reported.
const MIN_STRANDED_NS: u64 = 10_000_000;
/// A fix that saves a request less is none.
const MIN_SAVING_NS: u64 = 10_000_000;
/// The thread that polled last, if it mostly waited for a CPU, did something for at least this part
/// of the time in which nobody polled.
const SHARE_OF_DOING: u64 = 8;
/// From this on a single request's saving is an error, whatever the rest.
const ERROR_NS: u64 = 100_000_000;

/// A request that was stranded.
struct Victim<'a> {
    request: RequestRef<'a>,
    served_ns: Ns,
    pieces: Vec<StrandedInterval>,
    stranded_ns: u64,
}

fn detect(model: &Model) -> Vec<Finding> {
    model
        .pools
        .iter()
        .filter_map(|pool| of_pool(model, pool))
        .chain(siblings::detect(model))
        .collect()
}

fn of_pool(model: &Model, pool: &EpollPool) -> Option<Finding> {
    if pool.members.len() < 2 {
        return None;
    }
    let victims: Vec<Victim<'_>> = model
        .requests()
        .filter(|request| request.read_armed != Some(false))
        .filter(|request| {
            request
                .pool()
                .is_some_and(|its| its.epoll == pool.epoll && its.tgid == pool.tgid)
        })
        .filter_map(|request| {
            let served_ns = request.served_ns();
            if served_ns - request.ready_ns < MIN_STRANDED_NS {
                return None;
            }
            let pieces = pool.stranded(model, request.ready_ns, served_ns);
            let stranded_ns: u64 = pieces.iter().map(|piece| piece.to_ns - piece.from_ns).sum();
            (stranded_ns >= MIN_STRANDED_NS).then_some(Victim {
                request,
                served_ns,
                pieces,
                stranded_ns,
            })
        })
        .collect();
    let mut episodes = episodes(victims);
    episodes.retain(|episode| kept_busy(model, pool, episode));
    let mut savings: Vec<u64> = episodes
        .iter()
        .flat_map(|episode| savings(model, pool, episode))
        .filter(|ns| *ns >= MIN_SAVING_NS)
        .collect();
    savings.sort_unstable_by(|a, b| b.cmp(a));
    let worst = episodes.iter().max_by_key(|episode| {
        episode
            .iter()
            .map(|victim| victim.stranded_ns)
            .fold(0, u64::saturating_add)
    })?;
    if savings.is_empty() {
        return None;
    }
    let victims = episodes.iter().map(Vec::len).sum();
    Some(finding(
        model,
        pool,
        worst,
        victims,
        episodes.len(),
        savings,
    ))
}

/// Groups victims whose waits overlap: they compete for the same threads.
fn episodes(mut victims: Vec<Victim<'_>>) -> Vec<Vec<Victim<'_>>> {
    victims.sort_by_key(|victim| victim.request.ready_ns);
    let mut episodes: Vec<Vec<Victim<'_>>> = Vec::new();
    let mut until = 0;
    for victim in victims {
        let served_ns = victim.served_ns;
        match episodes.last_mut() {
            Some(episode) if victim.request.ready_ns < until => episode.push(victim),
            _ => {
                until = 0;
                episodes.push(vec![victim]);
            }
        }
        until = until.max(served_ns);
    }
    episodes
}

/// What a fix saves each request of an episode at most.
fn savings(model: &Model, pool: &EpollPool, episode: &[Victim<'_>]) -> Vec<u64> {
    let Some(begins) = episode.iter().map(|victim| victim.request.ready_ns).min() else {
        return Vec::new();
    };
    let mut free_at: BTreeMap<u32, Ns> = pool
        .members
        .keys()
        .filter_map(|tid| {
            Some((
                *tid,
                free_from(pool, model.threads.get(tid)?, begins, episode),
            ))
        })
        .collect();
    episode
        .iter()
        .map(|victim| {
            let Some((tid, free_ns)) = free_at
                .iter()
                .map(|(tid, at)| (*tid, *at))
                .min_by_key(|(tid, at)| (*at, *tid))
            else {
                return 0;
            };
            let start_ns = free_ns.max(victim.request.ready_ns);
            free_at.insert(
                tid,
                start_ns.saturating_add(held_ns(model, pool, victim.request)),
            );
            victim
                .served_ns
                .saturating_sub(start_ns)
                .min(victim.stranded_ns)
        })
        .collect()
}

/// When a member could take a request, from `from_ns` on: when it idles or polls, or takes one of
/// these.
fn free_from(pool: &EpollPool, thread: &Thread, from_ns: Ns, episode: &[Victim<'_>]) -> Ns {
    let rests = thread
        .timeline
        .overlapping(from_ns, Ns::MAX)
        .iter()
        .find(|wait| pool.idles(wait) || pool.polls(wait))
        .map_or(Ns::MAX, |wait| wait.out_ns.max(from_ns));
    let takes = episode
        .iter()
        .filter(|victim| victim.request.recv_tid == thread.tid)
        .filter_map(|victim| victim.request.recv_ns)
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
    let elsewhere: u64 = thread
        .timeline
        .overlapping(from_ns, to_ns)
        .iter()
        .filter(|wait| pool.idles(wait) || pool.polls(wait))
        .map(|wait| overlap(wait, from_ns, to_ns))
        .fold(0, u64::saturating_add);
    to_ns.saturating_sub(from_ns).saturating_sub(elsewhere)
}

fn overlap(wait: &Wait, from_ns: Ns, to_ns: Ns) -> u64 {
    wait.in_ns
        .unwrap_or(Ns::MAX)
        .min(to_ns)
        .saturating_sub(wait.out_ns.max(from_ns))
}

/// The longest stretch in which nobody polled while members idled, and who idled in it.
fn longest(episode: &[Victim<'_>]) -> Option<StrandedInterval> {
    // The pieces of each victim are cut at the edges of its own wait; across victims they are put
    // together again.
    let mut pieces: Vec<&StrandedInterval> = episode.iter().flat_map(|victim| &victim.pieces).collect();
    pieces.sort_by_key(|piece| piece.from_ns);
    let mut best: Option<StrandedInterval> = None;
    let mut current: Option<StrandedInterval> = None;
    for piece in pieces {
        match &mut current {
            Some(run) if piece.from_ns <= run.to_ns => {
                run.to_ns = run.to_ns.max(piece.to_ns);
                // Idle throughout: what is idle in every piece of some length.
                if piece.to_ns - piece.from_ns >= MIN_STRANDED_NS {
                    run.idle.retain(|tid| piece.idle.contains(tid));
                }
            }
            _ => current = Some(piece.clone()),
        }
        if let Some(run) = &current
            && best
                .as_ref()
                .is_none_or(|best| run.to_ns - run.from_ns > best.to_ns - best.from_ns)
        {
            best = Some(run.clone());
        }
    }
    best
}

/// The member that was in `epoll_wait` last before `at`; else the one that is neither idle nor
/// polling then.
fn last_poller<'a>(model: &'a Model, pool: &EpollPool, at: Ns) -> Option<&'a Thread> {
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

/// What the thread that should have polled did in a stretch, nanoseconds.
#[derive(Default)]
struct Elsewhere {
    /// Neither idle nor polling.
    ns: u64,
    /// … of that without a CPU that it could have used.
    without_cpu_ns: u64,
}

impl Elsewhere {
    fn doing_ns(&self) -> u64 {
        self.ns.saturating_sub(self.without_cpu_ns)
    }

    fn mostly_without_cpu(&self) -> bool {
        self.without_cpu_ns.saturating_mul(2) > self.ns
    }
}

/// Whether the thread that should have polled did something else for most of the stretch, and not
/// just wait for a CPU.
fn kept_busy(model: &Model, pool: &EpollPool, episode: &[Victim<'_>]) -> bool {
    let Some(stretch) = longest(episode) else {
        return false;
    };
    let Some(thread) = last_poller(model, pool, stretch.from_ns) else {
        return true;
    };
    let whole_ns = stretch.to_ns - stretch.from_ns;
    let did = elsewhere(pool, thread, &stretch);
    did.ns.saturating_mul(2) >= whole_ns
        && (!did.mostly_without_cpu()
            || did.doing_ns() >= MIN_STRANDED_NS.max(whole_ns / SHARE_OF_DOING))
        && on_the_way_ns(model, pool, &stretch).saturating_mul(2) <= whole_ns
}

fn elsewhere(pool: &EpollPool, thread: &Thread, stretch: &StrandedInterval) -> Elsewhere {
    let mut did = Elsewhere::default();
    for busy in &thread.busy {
        // A stretch of its own that only touches this one counts for as much as it shares.
        let shared_ns = busy
            .end_ns
            .min(stretch.to_ns)
            .saturating_sub(busy.start_ns.max(stretch.from_ns));
        let whole_ns = busy.end_ns.saturating_sub(busy.start_ns).max(1);
        let share = |ns: u64| {
            (u128::from(ns.min(whole_ns)) * u128::from(shared_ns) / u128::from(whole_ns)) as u64
        };
        did.ns = did.ns.saturating_add(shared_ns);
        did.without_cpu_ns = did.without_cpu_ns.saturating_add(share(busy.runnable_ns));
    }
    for wait in thread.timeline.overlapping(stretch.from_ns, stretch.to_ns) {
        if !pool.idles(wait) && !pool.polls(wait) {
            did.ns = did
                .ns
                .saturating_add(overlap(wait, stretch.from_ns, stretch.to_ns));
            let (woken_ns, back_ns) = to_its_cpu(wait, stretch);
            did.without_cpu_ns = did
                .without_cpu_ns
                .saturating_add(back_ns.saturating_sub(woken_ns));
        }
    }
    did
}

/// For how long of the stretch some thread of the pool had been woken from idling or polling and
/// was not on a CPU yet.
fn on_the_way_ns(model: &Model, pool: &EpollPool, stretch: &StrandedInterval) -> u64 {
    let members = pool.members.keys().filter_map(|tid| model.threads.get(tid));
    let waits = members.flat_map(|thread| {
        thread
            .timeline
            .overlapping(stretch.from_ns, stretch.to_ns)
            .iter()
            .filter(|wait| pool.idles(wait) || pool.polls(wait))
    });
    union_ns(waits.map(|wait| to_its_cpu(wait, stretch)).collect())
}

/// From when to when within the stretch it waited for a CPU after a sleep.
fn to_its_cpu(wait: &Wait, stretch: &StrandedInterval) -> (Ns, Ns) {
    let woken_ns = wait.wake_ns.unwrap_or(Ns::MAX).max(stretch.from_ns);
    let back_ns = wait.in_ns.unwrap_or(stretch.to_ns).min(stretch.to_ns);
    (woken_ns, back_ns)
}

/// How long at least one of the spans lasts.
pub(crate) fn union_ns(mut spans: Vec<(Ns, Ns)>) -> u64 {
    spans.sort_unstable();
    let (mut sum, mut until) = (0u64, 0);
    for (from, to) in spans {
        let from = from.max(until);
        sum = sum.saturating_add(to.saturating_sub(from));
        until = until.max(to);
    }
    sum
}

/// What a thread did for most of a stretch, instead of polling.
fn what_it_did(model: &Model, pool: &EpollPool, thread: &Thread, stretch: &StrandedInterval) -> Cause {
    let (from_ns, to_ns) = (stretch.from_ns, stretch.to_ns);
    let blocked = thread
        .timeline
        .overlapping(from_ns, to_ns)
        .iter()
        .filter(|wait| !pool.idles(wait) && !pool.polls(wait))
        .max_by_key(|wait| overlap(wait, from_ns, to_ns));
    let (doing, stack) = match blocked {
        Some(wait) if overlap(wait, from_ns, to_ns).saturating_mul(2) >= to_ns - from_ns => {
            (format!("asleep in {}", system_call_name(wait)), wait.user_stack)
        }
        _ => (
            "on CPU".to_owned(),
            model.sampled_stack(thread, from_ns, to_ns),
        ),
    };
    Cause::new(model, thread.tid, doing, stack)
}

fn finding(
    model: &Model,
    pool: &EpollPool,
    worst: &[Victim<'_>],
    victims: usize,
    episodes: usize,
    savings: Vec<u64>,
) -> Finding {
    let stretch = longest(worst).unwrap_or(StrandedInterval {
        from_ns: 0,
        to_ns: 0,
        idle: Vec::new(),
    });
    let stretch_ns = stretch.to_ns - stretch.from_ns;
    let idle = &stretch.idle;
    let longest_ns = worst
        .iter()
        .map(|victim| victim.stranded_ns)
        .max()
        .unwrap_or(0);
    let holder = last_poller(model, pool, stretch.from_ns);
    let cause = holder.map(|thread| what_it_did(model, pool, thread, &stretch));
    let did = holder.map_or_else(Elsewhere::default, |thread| {
        elsewhere(pool, thread, &stretch)
    });
    let runtime = runtime::of_process(model, pool.tgid);

    let mut evidence = vec![Evidence {
        text: format!(
            "nobody was in epoll_wait on epoll instance {} for {}; {} ready meanwhile and stayed unread",
            pool.epoll,
            duration(stretch_ns),
            if worst.len() == 1 {
                "1 request was".to_owned()
            } else {
                format!("{} requests were", worst.len())
            },
        ),
        ns: Some(stretch_ns),
    }];
    let polled = idle
        .iter()
        .filter(|tid| {
            pool.members
                .get(tid)
                .is_some_and(|m| m.membership == Membership::Polled)
        })
        .count();
    let named: Vec<String> = idle
        .iter()
        .map(|tid| format!("{tid} ({})", model.thread_name(*tid)))
        .collect();
    evidence.push(Evidence {
        text: format!(
            "idle all that time, parked in futex: {}; {}",
            list(&named),
            match polled {
                0 => "they park where the threads that poll this instance park".to_owned(),
                all if all == idle.len() => "at other times each of them polls this very instance".to_owned(),
                1 => "one of them polls this instance at other times, the others park where it parks".to_owned(),
                some => format!("{some} of them poll this instance at other times, the others park where those park"),
            }
        ),
        ns: Some(stretch_ns),
    });
    if let Some(cause) = &cause {
        evidence.push(Evidence {
            text: format!(
                "thread {} ({}) polled last; it was {} instead{}",
                cause.tid,
                cause.thread,
                cause.doing,
                if runtime == Runtime::Tokio {
                    ", and had woken no other worker to poll in its place"
                } else {
                    ""
                }
            ),
            ns: None,
        });
    }
    if did.mostly_without_cpu() {
        evidence.push(Evidence {
            text: format!(
                "for {} of that it could have run and had no CPU; a thread that took its place would have had to share the CPUs, too",
                duration(did.without_cpu_ns)
            ),
            ns: Some(did.without_cpu_ns),
        });
    }
    let spared = victims - savings.len();
    if spared > 0 {
        evidence.push(Evidence {
            text: format!(
                "{} would have had to wait anyway: the pool has {} threads",
                count(spared, "of these requests", "of these requests"),
                pool.members.len()
            ),
            ns: None,
        });
    }
    if episodes > 1 {
        evidence.push(Evidence {
            text: format!("this happened {episodes} times; the worst is shown"),
            ns: None,
        });
    }
    if cause.as_ref().is_some_and(|cause| cause.doing == "on CPU") {
        evidence.push(Evidence {
            text: format!(
                "the bound supposes a CPU for each thread that takes a request; this machine has {}",
                model.meta.host.cpus
            ),
            ns: None,
        });
    }

    let known = runtime != Runtime::Unknown
        && cause.as_ref().is_some_and(|cause| !cause.stack.is_empty())
        && !did.mostly_without_cpu();
    let at_most_ns = savings.iter().copied().fold(0, u64::saturating_add);
    let severity = if savings.first().is_some_and(|ns| *ns >= ERROR_NS) {
        Severity::Error
    } else {
        Severity::Warning
    };
    let mut subject = Map::new();
    subject.insert("pid".to_owned(), json!(pool.tgid));
    subject.insert("epoll".to_owned(), json!(pool.epoll));
    if let Some(victim) = worst
        .first()
        .filter(|victim| victim.request.local_port != 0)
    {
        subject.insert("port".to_owned(), json!(victim.request.local_port));
    }
    subject.insert("threads".to_owned(), json!(idle));
    Finding {
        code: Code::of(&DECLARATION),
        severity,
        confidence: if known {
            Confidence::High
        } else {
            Confidence::Medium
        },
        title: format!(
            "{} ready for up to {} while {} sat idle and nobody polled",
            if victims == 1 {
                "1 request was".to_owned()
            } else {
                format!("{victims} requests were")
            },
            duration(longest_ns),
            count(idle.len(), "capable thread", "capable threads"),
        ),
        subject,
        saving: Saving {
            kind: SavingKind::Latency,
            at_most_ns,
            requests: savings.len() as u64,
            each_at_most_ns: savings.into_iter().take(100).collect(),
        },
        evidence,
        cause,
        fix: fix(runtime).to_owned(),
    }
}

fn fix(runtime: Runtime) -> &'static str {
    match runtime {
        Runtime::Tokio => {
            "keep work that blocks or burns CPU off the workers: tokio::task::spawn_blocking (or block_in_place). Or let a \
             worker that leaves the poll with work hand the I/O driver on: \
             tokio::runtime::Builder::enable_eager_driver_handoff(), tokio 1.52.2 or newer, built with --cfg tokio_unstable"
        }
        Runtime::Go => {
            "a goroutine kept its thread and the netpoller unattended: look for cgo calls or system calls on the path above, \
             and give the program more GOMAXPROCS if it runs with 1"
        }
        _ => {
            "before a thread runs what it polled, let it wake another to poll in its place; or move the work above to \
             threads that do not poll"
        }
    }
}

#[cfg(test)]
mod tests;
