//! `stranded-readiness`: requests were ready, threads that could have served them idle, and nobody
//! polled.
//!
//! **Invariant.** Of the threads that can serve an epoll instance, either all are busy, or one of
//! them waits for I/O.
//!
//! **Evidence.** The threads are a pool by evidence (see `whywait_model::EpollPool`): each polled
//! the instance, or parks where its pollers park. Over an interval nobody of the pool slept in
//! `epoll_wait` on it, some of the pool slept idle, and requests on its sockets had their first
//! byte in the kernel, unread.
//!
//! **Cost.** The requests of an episode are replayed, in the order in which they came, onto the
//! pool as it was: a thread that idled takes one at once and keeps it for as long as the request
//! really kept its thread; a thread that was busy takes one when it really came free. What a
//! request gains by that is what handing the poll on saves it at most. So one that would have found
//! all threads taken gains nothing. Where the work is moved to threads that do not poll, which is
//! the fix that is recommended first for tokio and Go, no request waits for it: all of their wait
//! is the bound, also of those that waited meanwhile because all threads were taken.
//!
//! **Guards.** A pool of one thread is never stranded. A thread that sleeps in a request, or
//! without a known stack, is not idle. A socket whose read interest is off is not waiting for
//! anybody. Where the thread that polled last did hardly anything but wait for a CPU
//! ([`STRANDED_DOING`]), or another one had been woken and waited for one for half of the time, it
//! was a CPU that lacked, and not a poller. (That a busy thread also waits for a CPU is no excuse:
//! one that idles and is woken gets its share of a crowded machine, which is why the confidence is
//! medium then, and not nothing said.) Where it was not seen busy or asleep elsewhere for most of
//! the time, it is not known to have kept anybody from polling. Alongside as many busy threads as
//! Go runs at once its parked ones cannot serve (see [`EpollPool::at_once`]). Less than
//! [`SLOW_NS`] is a wake-up under load.

mod siblings;

use whywait_events::{Ns, Wait};
use whywait_model::{
    EpollPool, Membership, Model, RequestRef, StrandedInterval, Thread, system_call_name,
};
use whywait_words::{counted, duration, list};

use crate::declaration::{Declaration, Has, Waits};
use crate::facts::Facts;
use crate::finding::{Cause, Confidence, Evidence, Finding, Saving, Severity};
use crate::numbers::{ERROR_NS, MOST, SLOW_NS, STRANDED_DOING, Share};
use crate::shared::intervals::{Interval, in_proportion, overlap_ns, sum, union_ns};
use crate::shared::pollers::last_poller;
use crate::shared::replay::{episodes, replayed};
use crate::shared::runtime::{self, Runtime};
use crate::shared::threads::named;

/// What it is.
pub(crate) static DECLARATION: Declaration = Declaration {
    code: "stranded-readiness",
    meaning: "requests waited unread, threads that could serve them sat idle, and nobody polled",
    severities: &[
        (Severity::Error, "from 100 ms of a request on"),
        (Severity::Warning, "otherwise"),
    ],
    invariant: "of the threads that can serve an epoll instance, either all are busy, or one of \
         them waits for I/O",
    explain: include_str!("explain.md"),
    waits: Some(Waits {
        who: "requests",
        what: "to be read",
        has: Has::Cause,
    }),
    detect,
};

/// A request that was stranded.
struct StrandedRequest<'a> {
    request: RequestRef<'a>,
    served_ns: Ns,
    stranded_ns: u64,
}

fn detect(facts: &Facts<'_>) -> Vec<Finding> {
    let model = facts.model;
    model
        .pools
        .iter()
        .filter_map(|pool| of_pool(facts, pool))
        .chain(siblings::detect(model))
        .collect()
}

fn of_pool(facts: &Facts<'_>, pool: &EpollPool) -> Option<Finding> {
    let model = facts.model;
    if pool.members.len() < 2 {
        return None;
    }
    let victims: Vec<StrandedRequest<'_>> = model
        .requests()
        .filter(|request| request.read_armed != Some(false))
        .filter(|request| !facts.pauses().made_slow(*request))
        .filter(|request| {
            request
                .pool()
                .is_some_and(|its| its.epoll == pool.epoll && its.tgid == pool.tgid)
        })
        .filter_map(|request| {
            let served_ns = request.served_ns();
            if served_ns - request.ready_ns < *SLOW_NS {
                return None;
            }
            let stranded_ns = pool.stranded_ns(request.ready_ns, served_ns);
            (stranded_ns >= *SLOW_NS).then_some(StrandedRequest {
                request,
                served_ns,
                stranded_ns,
            })
        })
        .collect();
    let mut episodes = episodes(victims, |victim| {
        (victim.request.ready_ns, victim.served_ns)
    });
    episodes.retain(|episode| kept_busy(model, pool, episode));
    let handed_on: Vec<u64> = episodes
        .iter()
        .flat_map(|episode| savings(model, pool, episode))
        .filter(|ns| *ns > 0)
        .collect();
    if handed_on.iter().all(|ns| *ns < *SLOW_NS) {
        return None;
    }
    let moved = moved(model, pool, &episodes);
    let worst = episodes
        .iter()
        .max_by_key(|episode| sum(episode.iter().map(|victim| victim.stranded_ns)))?;
    let worst = Worst::of(model, pool, worst)?;
    let saves = Saves { handed_on, moved };
    Some(finding(model, pool, &worst, &episodes, saves))
}

/// What either fix saves each request at most.
struct Saves {
    /// An idle thread polls in the place of the one that has work.
    handed_on: Vec<u64>,
    /// The work is done by threads that do not poll.
    moved: Vec<u64>,
}

/// What requests waited in these episodes altogether, whoever idled: with the work elsewhere none
/// of them waits.
fn moved(model: &Model, pool: &EpollPool, episodes: &[Vec<StrandedRequest<'_>>]) -> Vec<u64> {
    let spans: Vec<Interval> = episodes
        .iter()
        .filter_map(|episode| {
            let from_ns = episode.iter().map(|victim| victim.request.ready_ns).min()?;
            Some((
                from_ns,
                episode.iter().map(|victim| victim.served_ns).max()?,
            ))
        })
        .collect();
    let requests = model.requests().filter(|request| {
        request
            .pool()
            .is_some_and(|its| its.epoll == pool.epoll && its.tgid == pool.tgid)
    });
    requests
        .filter(|request| request.read_armed != Some(false))
        .map(|request| (request.ready_ns, request.served_ns()))
        .filter(|wait| spans.iter().any(|span| overlap_ns(*span, *wait) > 0))
        .map(|(from_ns, to_ns)| to_ns.saturating_sub(from_ns))
        .filter(|ns| *ns > 0)
        .collect()
}

/// What a fix saves each request of an episode at most.
fn savings(model: &Model, pool: &EpollPool, episode: &[StrandedRequest<'_>]) -> Vec<u64> {
    let requests: Vec<RequestRef<'_>> = episode.iter().map(|victim| victim.request).collect();
    let taken = replayed(model, pool, &requests);
    episode
        .iter()
        .zip(taken)
        .map(|(victim, taken_ns)| {
            let earlier_ns = victim.served_ns.saturating_sub(taken_ns);
            earlier_ns.min(victim.stranded_ns)
        })
        .collect()
}

/// How much of a wait is in an interval.
fn overlap(wait: &Wait, interval: &StrandedInterval) -> u64 {
    let slept = (wait.out_ns, wait.end_ns());
    overlap_ns(slept, (interval.from_ns, interval.to_ns))
}

/// The longest interval in which nobody polled while members idled, and who idled in it.
fn longest(
    model: &Model,
    pool: &EpollPool,
    episode: &[StrandedRequest<'_>],
) -> Option<StrandedInterval> {
    let from_ns = episode.iter().map(|victim| victim.request.ready_ns).min()?;
    let to_ns = episode.iter().map(|victim| victim.served_ns).max()?;
    let (from_ns, to_ns) = pool.longest_stranded(from_ns, to_ns)?;
    let mut pieces = pool.stranded(&model.threads, from_ns, to_ns).into_iter();
    let mut idle = pieces.next()?.idle;
    for piece in pieces {
        // Idle throughout: what is idle in every piece of some length.
        if piece.to_ns - piece.from_ns >= *SLOW_NS {
            idle.retain(|tid| piece.idle.contains(tid));
        }
    }
    Some(StrandedInterval {
        from_ns,
        to_ns,
        idle,
    })
}

/// What the thread that should have polled did in an interval, nanoseconds.
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
        Share::new(self.without_cpu_ns, self.ns).exceeds(*MOST)
    }
}

/// Whether the thread that should have polled did something else for most of the interval, and not
/// just wait for a CPU.
fn kept_busy(model: &Model, pool: &EpollPool, episode: &[StrandedRequest<'_>]) -> bool {
    let Some(interval) = longest(model, pool, episode) else {
        return false;
    };
    let Some(thread) = last_poller(model, pool, interval.from_ns) else {
        return true;
    };
    let whole_ns = interval.to_ns - interval.from_ns;
    let did = elsewhere(pool, thread, &interval);
    Share::new(did.ns, whole_ns).is_at_least(*MOST)
        && (!did.mostly_without_cpu() || did.doing_ns() >= SLOW_NS.max(STRANDED_DOING.of(whole_ns)))
        && !Share::new(on_the_way_ns(model, pool, &interval), whole_ns).exceeds(*MOST)
}

fn elsewhere(pool: &EpollPool, thread: &Thread, interval: &StrandedInterval) -> Elsewhere {
    let mut did = Elsewhere::default();
    for busy in &thread.busy {
        // An interval of its own that only touches this one counts for as much as it shares.
        let whole = (busy.start_ns, busy.end_ns);
        let shared_ns = overlap_ns(whole, (interval.from_ns, interval.to_ns));
        let whole_ns = busy.end_ns.saturating_sub(busy.start_ns);
        let without_cpu_ns = in_proportion(shared_ns, busy.runnable_ns, whole_ns);
        did.ns = did.ns.saturating_add(shared_ns);
        did.without_cpu_ns = did.without_cpu_ns.saturating_add(without_cpu_ns);
    }
    for wait in thread
        .timeline
        .overlapping(interval.from_ns, interval.to_ns)
    {
        if !pool.idles(wait) && !pool.polls(wait) {
            did.ns = did.ns.saturating_add(overlap(wait, interval));
            let (woken_ns, back_ns) = to_its_cpu(wait, interval);
            did.without_cpu_ns = did
                .without_cpu_ns
                .saturating_add(back_ns.saturating_sub(woken_ns));
        }
    }
    did
}

/// For how long of the interval some thread of the pool had been woken from idling or polling and
/// was not on a CPU yet.
fn on_the_way_ns(model: &Model, pool: &EpollPool, interval: &StrandedInterval) -> u64 {
    let members = pool.members.keys().filter_map(|tid| model.threads.get(tid));
    let waits = members.flat_map(|thread| {
        thread
            .timeline
            .overlapping(interval.from_ns, interval.to_ns)
            .iter()
            .filter(|wait| pool.idles(wait) || pool.polls(wait))
    });
    union_ns(waits.map(|wait| to_its_cpu(wait, interval)).collect())
}

/// From when to when within the interval it waited for a CPU after a sleep.
fn to_its_cpu(wait: &Wait, interval: &StrandedInterval) -> (Ns, Ns) {
    let woken_ns = wait.wake_ns.unwrap_or(Ns::MAX).max(interval.from_ns);
    let back_ns = wait.in_ns.unwrap_or(interval.to_ns).min(interval.to_ns);
    (woken_ns, back_ns)
}

/// What a thread did for most of an interval, instead of polling.
fn what_it_did(
    model: &Model,
    pool: &EpollPool,
    thread: &Thread,
    interval: &StrandedInterval,
) -> Cause {
    let (from_ns, to_ns) = (interval.from_ns, interval.to_ns);
    let blocked = thread
        .timeline
        .overlapping(from_ns, to_ns)
        .iter()
        .filter(|wait| !pool.idles(wait) && !pool.polls(wait))
        .max_by_key(|wait| overlap(wait, interval));
    let (doing, stack) = match blocked {
        Some(wait) if Share::new(overlap(wait, interval), to_ns - from_ns).is_at_least(*MOST) => (
            format!("asleep in {}", system_call_name(wait)),
            wait.user_stack,
        ),
        _ => (
            "on CPU".to_owned(),
            model.sampled_stack(thread, from_ns, to_ns),
        ),
    };
    Cause::new(model, thread.tid, doing, stack)
}

/// What is known of the worst episode.
struct Worst<'a> {
    victims: &'a [StrandedRequest<'a>],
    interval: StrandedInterval,
    /// What the thread did that polled last.
    did: Elsewhere,
    cause: Option<Cause>,
}

impl<'a> Worst<'a> {
    fn of(model: &Model, pool: &EpollPool, victims: &'a [StrandedRequest<'a>]) -> Option<Self> {
        let interval = longest(model, pool, victims)?;
        let holder = last_poller(model, pool, interval.from_ns);
        Some(Self {
            victims,
            did: holder.map_or_else(Elsewhere::default, |thread| {
                elsewhere(pool, thread, &interval)
            }),
            cause: holder.map(|thread| what_it_did(model, pool, thread, &interval)),
            interval,
        })
    }

    fn ns(&self) -> u64 {
        self.interval.to_ns - self.interval.from_ns
    }
}

fn finding(
    model: &Model,
    pool: &EpollPool,
    worst: &Worst<'_>,
    episodes: &[Vec<StrandedRequest<'_>>],
    saves: Saves,
) -> Finding {
    let runtime = runtime::of_process(model, pool.tgid);
    let victims: usize = episodes.iter().map(Vec::len).sum();
    let idle = &worst.interval.idle;
    let first = worst.victims.first();
    let port = first.map(|victim| victim.request.local_port);
    let longest_ns = worst.victims.iter().map(|victim| victim.stranded_ns).max();
    let title = format!(
        "{} waited unread for up to {} while {} sat idle and nobody polled",
        counted(victims, "request"),
        duration(longest_ns.unwrap_or(0)),
        counted(idle.len(), "capable thread"),
    );
    let by_name = |cause: &Cause| runtime != Runtime::Unknown && !cause.stack.is_empty();
    let confidence = if worst.cause.as_ref().is_some_and(by_name) && !worst.did.mostly_without_cpu()
    {
        Confidence::High
    } else {
        Confidence::Medium
    };
    // One that gains less than makes a request slow has waited anyway.
    let gains = saves.handed_on.iter().filter(|ns| **ns >= *SLOW_NS).count();
    let spared = victims - gains;
    let handed_on = Saving::latency(saves.handed_on);
    let largest_ns = handed_on.each_at_most_ns.first().copied().unwrap_or(0);
    // The bound is that of the fix that is recommended first.
    let (saving, other) = if moves_first(runtime) {
        let other = of_handing_on(pool, &handed_on, (gains, spared));
        (Saving::latency(saves.moved), Some(other))
    } else {
        (handed_on, had_to_wait(pool, spared))
    };
    let severity = Severity::of(largest_ns, 0, *ERROR_NS);
    Finding::new(&DECLARATION, severity, title)
        .confidence(confidence)
        .about("pid", pool.tgid)
        .about("epoll", pool.epoll)
        .about_known("port", port.filter(|port| *port != 0))
        .about("threads", idle.clone())
        .saving(saving)
        .concerns(
            episodes
                .iter()
                .flatten()
                .map(|victim| (victim.request, victim.stranded_ns)),
        )
        .evidence([nobody_polled(pool, worst), who_idled(model, pool, worst)])
        .evidence(polled_last(worst, runtime))
        .evidence(without_cpu(&worst.did))
        .evidence(other)
        .evidence(happened(episodes.len()))
        .evidence(supposes_cpus(model, worst))
        .cause(worst.cause.clone())
        .fix(fix(runtime))
}

fn nobody_polled(pool: &EpollPool, worst: &Worst<'_>) -> Evidence {
    let text = format!(
        "nobody was in epoll_wait on epoll instance {} for {}; {} waited unread meanwhile",
        pool.epoll,
        duration(worst.ns()),
        counted(worst.victims.len(), "request"),
    );
    Evidence::of_ns(worst.ns(), text)
}

fn who_idled(model: &Model, pool: &EpollPool, worst: &Worst<'_>) -> Evidence {
    let idle = &worst.interval.idle;
    let members = idle.iter().filter_map(|tid| pool.members.get(tid));
    let polled = members
        .filter(|member| member.membership == Membership::Polled)
        .count();
    let why = match polled {
        0 => "they park where the threads that poll this instance park".to_owned(),
        all if all == idle.len() => {
            "at other times each of them polls this very instance".to_owned()
        }
        1 => "one of them polls this instance at other times, the others park where it parks"
            .to_owned(),
        some => format!(
            "{some} of them poll this instance at other times, the others park where those park"
        ),
    };
    let named: Vec<String> = idle.iter().map(|tid| named(model, *tid)).collect();
    let text = format!(
        "idle all that time, parked in futex: {}; {why}",
        list(&named)
    );
    Evidence::of_ns(worst.ns(), text)
}

fn polled_last(worst: &Worst<'_>, runtime: Runtime) -> Option<Evidence> {
    let cause = worst.cause.as_ref()?;
    let woken = if runtime == Runtime::Tokio {
        ", and had woken no other worker to poll in its place"
    } else {
        ""
    };
    Some(Evidence::new(format!(
        "thread {} ({}) polled last; it was {} instead{woken}",
        cause.thread, cause.tid, cause.doing
    )))
}

fn without_cpu(did: &Elsewhere) -> Option<Evidence> {
    let text = format!(
        "for {} of that it could have run and had no CPU; a thread that took its place would have \
         had to share the CPUs, too",
        duration(did.without_cpu_ns)
    );
    did.mostly_without_cpu()
        .then(|| Evidence::of_ns(did.without_cpu_ns, text))
}

/// That a fix spares some requests nothing.
fn had_to_wait(pool: &EpollPool, spared: usize) -> Option<Evidence> {
    let text = format!(
        "{spared} of these requests would have had to wait anyway, as the pool has {} threads",
        pool.members.len()
    );
    (spared > 0).then(|| Evidence::new(text).of_fix())
}

/// What is saved where the poll is handed on, and the work stays where it is.
fn of_handing_on(pool: &EpollPool, saving: &Saving, (gains, spared): (usize, usize)) -> Evidence {
    let rest = match had_to_wait(pool, spared) {
        Some(evidence) => format!(": {}", evidence.text),
        None => String::new(),
    };
    let text = format!(
        "handing the poll on to an idle thread, and leaving the work where it is, saves {} {} at \
         most{rest}",
        counted(gains, "request"),
        duration(saving.at_most_ns),
    );
    Evidence::of_ns(saving.at_most_ns, text).of_fix()
}

fn happened(episodes: usize) -> Option<Evidence> {
    let text = format!("this happened {episodes} times; the worst is shown");
    (episodes > 1).then(|| Evidence::new(text))
}

fn supposes_cpus(model: &Model, worst: &Worst<'_>) -> Option<Evidence> {
    let text = format!(
        "the bound supposes a CPU for each thread that takes a request; this machine has {}",
        model.meta.host.cpus
    );
    let cause = worst.cause.as_ref()?;
    (cause.doing == "on CPU").then(|| Evidence::new(text))
}

/// Whether what is recommended first is to have other threads do the work.
fn moves_first(runtime: Runtime) -> bool {
    matches!(runtime, Runtime::Tokio | Runtime::Go)
}

fn fix(runtime: Runtime) -> &'static str {
    match runtime {
        Runtime::Tokio => {
            "keep work that blocks or burns CPU off the workers: tokio::task::spawn_blocking (or \
             block_in_place). Or let a worker that leaves the poll with work hand the I/O driver \
             on: tokio::runtime::Builder::enable_eager_driver_handoff(), tokio 1.52.2 or newer, \
             built with --cfg tokio_unstable"
        }
        Runtime::Go => {
            "a goroutine kept its thread and the netpoller unattended: look for cgo calls or \
             system calls on the path above, and give the program more GOMAXPROCS if it runs with \
             1"
        }
        _ => {
            "before a thread runs what it polled, let it wake another to poll in its place; or \
             move the work above to threads that do not poll"
        }
    }
}

#[cfg(test)]
mod tests;
