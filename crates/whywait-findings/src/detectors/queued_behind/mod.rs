//! `queued-behind`: requests wait for the end of others' jobs.
//!
//! **Invariant.** A request does not wait for the jobs of others to end, which wait themselves, or
//! leave CPUs idle.
//!
//! **Evidence.** See [`jobs`]: a thread reads requests and hands a job of each to others, the
//! threads of an executor or helper processes. While requests wait, as many jobs as ever are under
//! way, and those who have them sleep, or compute on fewer CPUs than there are.
//!
//! **Cost.** For each request the time until its own job began, in the order in which requests were
//! read; where the jobs look up names also its own, which a cache spares. A replay of the same jobs
//! with more at a time says what some more would save.
//!
//! **Guards.** As many workers that compute as there are CPUs would share the same ones if there
//! were more of them: that is `saturated`. Where they wait for a lock it is `lock-contention`.
//! Where what they wait for answers one after another, more of them would queue there. Answers
//! must follow on jobs. Fewer than [`WORKERS_MIN_VICTIMS`](crate::numbers::WORKERS_MIN_VICTIMS)
//! requests, or less than a third of the slow requests' time, is a burst.

mod prefetched;

use std::collections::BTreeSet;

use serde_json::json;
use whywait_model::{Label, Model, system_call_name};
use whywait_replay::Average;
use whywait_words::{counted, duration, figure, list, percent, whole_percent};

use crate::declaration::{Declaration, Has, Waits};
use crate::facts::Facts;
use crate::finding::{Cause, Confidence, Evidence, Finding, Saving, SavingKind, Severity};
use crate::numbers::{ERROR_NS, MOST, SHOWN, Share, WORKERS_MORE_HELP};
use crate::shared::functions::SampledFunctions;
use crate::shared::intervals::{Interval, sum};
use crate::shared::jobs::{JobQueue, JobsDo, QueuedJob, kept_by_streams};
use crate::shared::locked_files::LockedMeanwhile;
use crate::shared::replay::{ServersAsTheyWere, Worked, median_ns};
use crate::shared::slow_paths::Shares;
use crate::shared::task_waits::TasksWaitIn;

/// What it is.
pub(crate) static DECLARATION: Declaration = Declaration {
    code: "queued-behind",
    meaning: "requests waited for others' jobs to end, of the few threads or helpers that do them",
    severities: &[
        (
            Severity::Error,
            "when a request typically waited 100 ms or longer and more at a time would help",
        ),
        (Severity::Warning, "from 30 ms on"),
        (Severity::Note, "otherwise"),
    ],
    invariant: "a request does not wait for the jobs of others, which sleep, or leave CPUs idle",
    explain: include_str!("explain.md"),
    waits: Some(Waits {
        who: "requests",
        what: "for a thread that others' jobs have",
        has: Has::CauseOr("jobs of others"),
    }),
    detect,
};

const WHAT_THEY_TRY_FOR: &str =
    "find out what the jobs try for (a lock, a row, a file) and who has that meanwhile";

fn detect(facts: &Facts<'_>) -> Vec<Finding> {
    let slow_ns = facts.slow().total_ns;
    let queues = facts.jobs().iter();
    queues
        .filter_map(|queue| finding(facts, queue, slow_ns))
        .chain(prefetched::find(facts))
        .collect()
}

/// The file that others had locked while jobs tried for something.
fn locked_meanwhile<'m>(model: &'m Model, queue: &JobQueue<'_>) -> Option<LockedMeanwhile<'m>> {
    let sleeps = queue.sleeps.iter().filter(|_| queue.tries);
    let sleeps: Vec<(u32, Interval)> = sleeps
        .filter_map(|(wait, _)| {
            let thread = model.threads.get(&wait.tid)?;
            Some((thread.tgid, (wait.out_ns, wait.over_ns()?)))
        })
        .collect();
    LockedMeanwhile::of(model, &sleeps)
}

/// Who does the jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WhoDoesJobs {
    /// Threads of the process that reads the requests.
    Threads,
    /// Other processes.
    Helpers,
}

fn finding(facts: &Facts<'_>, queue: &JobQueue<'_>, slow_ns: u64) -> Option<Finding> {
    let model = facts.model;
    let victims = queue.victims();
    let shares = Shares::new(victims.map(|job| (job.waited_ns, job.request.age_ns())));
    let severity = match shares.severity(slow_ns)? {
        Severity::Warning if shares.median_ns() >= *ERROR_NS && queue.serves_more => {
            Severity::Error
        }
        severity => severity,
    };
    let confidence = match queue.serves_more {
        true => Confidence::High,
        false => Confidence::Medium,
    };
    let who = Who::of(model, queue);
    let computing = (queue.jobs_do != JobsDo::Sleep).then(|| {
        let workers = queue.workers.iter();
        SampledFunctions::of(facts, workers.filter_map(|tid| model.threads.get(tid)))
    });
    let tasks = TasksWaitIn::of(facts, queue.victims().map(|job| job.request));
    let locked = locked_meanwhile(model, queue);
    let title = format!(
        "{} waited {} of their time behind the jobs of others, {}{}",
        shares.requests(),
        shares.percent(),
        who.in_title(),
        locked
            .as_ref()
            .map(LockedMeanwhile::title)
            .unwrap_or_default(),
    );
    let replayed = replayed(queue, model.meta.host.cpus as usize);
    let rows = replayed.as_ref().map(|(_, more)| {
        let row = |(jobs, ns): &(usize, u64)| json!({ "at_a_time": jobs, "p50_ns": ns });
        json!(more.iter().map(row).collect::<Vec<_>>())
    });
    let finding = Finding::new(&DECLARATION, severity, title)
        .confidence(confidence)
        .concerns(who.spared(queue).map(|(job, ns)| match queue.in_order {
            true => (job.request, ns),
            // Of none is it known how long.
            false => (job.request, 0),
        }))
        .about("pid", who.reads_in)
        .about("workers", json!(queue.workers))
        .about("readers", json!(queue.readers))
        .about("at_a_time", queue.at_a_time)
        .about_known("replay", rows)
        .saving(saving(queue, who.spared(queue)))
        .evidence([
            Evidence::of_ns(shares.ns, shares.spread(slow_ns)),
            Evidence::of_ns(queue.full_ns, who.ahead(queue)),
        ])
        .evidence(tasks.as_ref().map(TasksWaitIn::evidence))
        .evidence(who.streams.as_ref().map(Streams::evidence))
        .evidence(locked.as_ref().map(LockedMeanwhile::evidence))
        .evidence(what_jobs_do(queue, who.look_ups, computing.as_ref()).map(Evidence::new))
        .evidence(replayed.as_ref().map(|replay| in_words(queue, replay)))
        .evidence([who.their_own(queue)])
        .evidence([Evidence::new(would_more_help(model, queue))])
        .cause(cause(model, queue, computing.as_ref()))
        .fix(who.fix(queue));
    Some(match &tasks {
        Some(tasks) => tasks.about(finding),
        None => finding,
    })
}

/// The jobs of requests, slow ones or not.
fn jobs<'q, 'm>(queue: &'q JobQueue<'m>) -> impl Iterator<Item = &'q QueuedJob<'m>> {
    queue.jobs.iter().filter(|job| job.request.counts())
}

/// What a fix saves all of them.
fn saving<'q, 'm: 'q>(
    queue: &JobQueue<'m>,
    spared: impl Iterator<Item = (&'q QueuedJob<'m>, u64)>,
) -> Saving {
    let spared: Vec<u64> = spared.map(|(_, ns)| ns).collect();
    match queue.in_order {
        true => Saving::latency(spared),
        // No bound for any one of them.
        false => {
            let count = spared.len() as u64;
            Saving::sum(SavingKind::Latency, sum(spared), count)
        }
    }
}

/// Who reads, and who does the jobs.
struct Who {
    crew: WhoDoesJobs,
    reads_in: u32,
    /// Threads, or processes.
    count: usize,
    at_a_time: usize,
    /// The jobs look up names.
    look_ups: bool,
    /// The jobs are streams that go on.
    streams: Option<Streams>,
    jobs_do: JobsDo,
    tries: bool,
    /// Those who do the jobs poll: they are loops, or threads of a runtime.
    runs_tasks: bool,
}

/// Jobs that are streams of messages: each has its thread for as long as it goes on.
struct Streams {
    count: usize,
    /// For how long each of them had it, at the median; …
    median_ns: u64,
    /// … all of them, and all jobs.
    ns: u64,
    all_ns: u64,
}

impl Streams {
    /// `None`: threads were kept by other jobs.
    fn of(queue: &JobQueue<'_>) -> Option<Self> {
        let streams = kept_by_streams(&queue.jobs)?;
        let lasted: Vec<u64> = streams.iter().map(|job| job.lasted_ns()).collect();
        Some(Self {
            count: lasted.len(),
            ns: sum(lasted.iter().copied()),
            all_ns: sum(queue.jobs.iter().map(QueuedJob::lasted_ns)),
            median_ns: median_ns(lasted),
        })
    }

    fn evidence(&self) -> Evidence {
        Evidence::new(format!(
            "{} of messages went on after the first one, with a thread for {} each (median): {} of \
             the time of all jobs",
            counted(self.count, "stream"),
            duration(self.median_ns),
            percent(self.ns, self.all_ns),
        ))
    }
}

impl Who {
    fn of(model: &Model, queue: &JobQueue<'_>) -> Self {
        let processes = |tids: &BTreeSet<u32>| -> BTreeSet<u32> {
            let threads = tids.iter().filter_map(|tid| model.threads.get(tid));
            threads.map(|thread| thread.tgid).collect()
        };
        let (readers, workers) = (processes(&queue.readers), processes(&queue.workers));
        let polls = |tid: &u32| {
            let thread = model.threads.get(tid);
            thread.is_some_and(|one| one.timeline.waits().iter().any(|wait| wait.epoll != 0))
        };
        let crew = match readers.is_disjoint(&workers) {
            true => WhoDoesJobs::Helpers,
            false => WhoDoesJobs::Threads,
        };
        Self {
            crew,
            reads_in: readers.first().copied().unwrap_or(0),
            count: match crew {
                WhoDoesJobs::Helpers => workers.len(),
                WhoDoesJobs::Threads => queue.workers.len(),
            },
            at_a_time: queue.at_a_time,
            look_ups: queue.jobs_do == JobsDo::Sleep && look_up_names(model, queue),
            streams: Streams::of(queue),
            jobs_do: queue.jobs_do,
            tries: queue.tries,
            runs_tasks: queue.workers.iter().all(polls),
        }
    }

    /// What a fix takes of which jobs: the wait for others'. Who keeps looked-up names spares
    /// requests their own look-ups, too.
    fn spared<'q, 'm>(
        &self,
        queue: &'q JobQueue<'m>,
    ) -> impl Iterator<Item = (&'q QueuedJob<'m>, u64)> {
        let look_ups = self.look_ups;
        let spared = jobs(queue).map(move |job| match look_ups {
            true => (job, job.waited_ns.saturating_add(job.took_ns())),
            false => (job, job.waited_ns),
        });
        spared.filter(|(_, ns)| *ns > 0)
    }

    /// Some of the fixes spare the jobs, and not only the wait for those of others.
    fn their_own(&self, queue: &JobQueue<'_>) -> Evidence {
        if self.look_ups {
            let own_ns = sum(jobs(queue).map(QueuedJob::took_ns));
            let text = format!(
                "the bound has the requests' own look-ups, too, {}: who keeps looked-up names \
                 spares both; more threads spare the wait for others' alone",
                duration(own_ns)
            );
            return Evidence::of_ns(own_ns, text).of_fix();
        }
        let waited = jobs(queue).filter(|job| job.waited_ns > 0);
        let own_ns = sum(waited.map(QueuedJob::lasted_ns));
        let text = format!(
            "the bound has the wait for others' jobs; a fix that spares their own saves up to {} \
             more",
            duration(own_ns)
        );
        Evidence::of_ns(own_ns, text).of_fix()
    }

    /// Fewer jobs than there are workers are under way at a time: something lets no more through.
    fn is_narrow(&self) -> bool {
        self.at_a_time < self.count
    }

    fn in_title(&self) -> String {
        let (one, many) = match self.crew {
            WhoDoesJobs::Threads => ("thread", "threads"),
            WhoDoesJobs::Helpers => ("helper process", "helper processes"),
        };
        let jobs = match (self.look_ups, &self.streams, self.jobs_do) {
            (true, ..) => "which look up names",
            (_, Some(_), _) => "which are streams that go on,",
            (_, None, JobsDo::Sleep) if self.tries => "which sleep again and again",
            (_, None, JobsDo::Sleep) => "which sleep",
            (_, None, JobsDo::Compute(_)) => "which compute",
        };
        let in_pool = self.look_ups && self.crew == WhoDoesJobs::Threads;
        match (self.at_a_time, self.count) {
            // A pool may allow no more of these than a part of its threads.
            (1, _) if in_pool => format!("{jobs} one at a time"),
            (most, _) if in_pool => format!("{jobs} {most} at a time"),
            (1, 2..) => format!("{jobs} one at a time, though {} {many} do them", self.count),
            (most, all) if most < all => {
                format!("{jobs} {most} at a time, though {all} {many} do them")
            }
            (_, 1) => format!("{jobs} in the only {one}"),
            (_, all) => format!("{jobs} in the only {all} {many}"),
        }
    }

    fn ahead(&self, queue: &JobQueue<'_>) -> String {
        let mut ahead: Vec<usize> = queue.victims().map(|job| job.ahead).collect();
        ahead.sort_unstable();
        let ahead = ahead.get(ahead.len() / 2).copied().unwrap_or(0);
        let (came, all_came) = match queue.reads {
            true => ("came", "came"),
            false => ("was read", "were read"),
        };
        format!(
            "when one of them {came}, {} others were before it (median); for {} never more than \
             {} under way, and {} requests were (on average); {}",
            ahead,
            duration(queue.full_ns),
            match queue.at_a_time {
                1 => "one job was".to_owned(),
                most => format!("{most} jobs were"),
            },
            figure(queue.open),
            match queue.in_order {
                true => format!("jobs begin in the order in which requests {all_came}"),
                false => format!(
                    "jobs do not begin in the order in which requests {all_came}: which waited \
                     for how long does not show, and each has its part of what all waited"
                ),
            }
        )
    }

    fn fix(&self, queue: &JobQueue<'_>) -> String {
        let reason = queue.reasons.first();
        let shorter = match (queue.jobs_do, reason) {
            _ if queue.tries => format!("; or {WHAT_THEY_TRY_FOR}"),
            (JobsDo::Compute(Some(_)), _) => {
                return "do the jobs in several processes, or in native code that lets the \
                        interpreter's lock go; have quick ones done apart; or make the jobs cheaper"
                    .to_owned();
            }
            (JobsDo::Compute(None), _) => "; or make the jobs cheaper".to_owned(),
            (JobsDo::Sleep, Some((reason, _))) => {
                format!("; or have the jobs wait for less in {}", reason.what)
            }
            (JobsDo::Sleep, None) => String::new(),
        };
        if self.look_ups {
            return "keep looked-up names (a cache, a local resolver), look them up without a \
                    thread in hand (c-ares, an asynchronous resolver), or in an executor of their \
                    own; node's pool has half of its threads for that (UV_THREADPOOL_SIZE)"
                .to_owned();
        }
        if self.streams.is_some() && !self.is_narrow() {
            return "serve streams without a thread each (an asynchronous server, gRPC in Python: \
                    grpc.aio), or by threads of their own; or have more threads than streams may \
                    be open (ThreadPoolExecutor(max_workers)), and refuse streams beyond that"
                .to_owned();
        }
        if queue.reads || self.runs_tasks {
            return format!(
                "have what blocks done by other threads (tokio: spawn_blocking, asyncio: \
                 to_thread, Kotlin: Dispatchers.IO, Vert.x: executeBlocking), or wait without \
                 keeping a thread that runs tasks{shorter}"
            );
        }
        let more = if self.is_narrow() {
            "let jobs pass each other that need no order (Vert.x: executeBlocking with ordered = \
             false), a queue for each key or client, or a queue of their own for quick ones; more \
             threads would not help"
        } else if self.crew == WhoDoesJobs::Helpers {
            "more helper processes, or some of their own for quick jobs"
        } else if self.count == 1 {
            "a larger executor (asyncio: ThreadPoolExecutor(max_workers), a JVM: the pool's size); \
             or, if it keeps jobs in order, let those pass that need none (Vert.x: \
             executeBlocking with ordered = false)"
        } else {
            "a larger executor (asyncio: ThreadPoolExecutor(max_workers), node: \
             UV_THREADPOOL_SIZE, tokio: max_blocking_threads, a JVM: the pool's size), or one of \
             their own for quick jobs"
        };
        if queue.tries {
            return format!(
                "{WHAT_THEY_TRY_FOR}; have them wait for the event instead, or for shorter times; \
                 or {more}"
            );
        }
        format!("{more}{shorter}")
    }
}

/// Whether most of what the jobs sleep in is the C library's look-up of names.
fn look_up_names(model: &Model, queue: &JobQueue<'_>) -> bool {
    let looks_up = |label: &Label| {
        let functions = ["getaddrinfo", "gethostby", "getnameinfo", "res_n"];
        let name = &label.name;
        functions.iter().any(|function| name.contains(function))
    };
    let in_it = queue.sleeps.iter().filter(|(wait, _)| {
        let stack = model.stacks.get(wait.user_stack);
        stack.is_some_and(|stack| stack.labels.iter().any(looks_up))
    });
    let slept_ns = sum(queue.sleeps.iter().map(|(_, ns)| *ns));
    Share::new(sum(in_it.map(|(_, ns)| *ns)), slept_ns).is_at_least(*MOST)
}

/// In which functions they compute, or what they sleep in.
fn what_jobs_do(
    queue: &JobQueue<'_>,
    look_ups: bool,
    computing: Option<&SampledFunctions>,
) -> Option<String> {
    if let Some(functions) = computing {
        let functions = functions.shown()?;
        return Some(format!("what the jobs compute, by samples: {functions}"));
    }
    let reasons = queue.reasons.iter().take(*SHOWN);
    let reasons = reasons.filter(|(_, ns)| whole_percent(*ns, queue.busy_ns) > 0);
    let reasons: Vec<String> = reasons
        .map(|(reason, ns)| {
            let words = reason.in_words();
            let share = percent(*ns, queue.busy_ns);
            format!("{} {share}", words.trim_start_matches(" in "))
        })
        .collect();
    let what = if look_ups {
        ", in looking up names"
    } else {
        ""
    };
    Some(format!(
        "what the jobs wait for meanwhile{what}: {}",
        reasons.join("; ")
    ))
}

fn would_more_help(model: &Model, queue: &JobQueue<'_>) -> String {
    match (queue.jobs_do, queue.serves_more) {
        (JobsDo::Compute(Some(lock)), _) => format!(
            "its threads take turns with {}: more threads do more at a time only where they let it \
             go, other processes do",
            lock.with_article()
        ),
        (JobsDo::Compute(None), _) => format!(
            "more at a time would compute on other CPUs, as far as nobody else needs them: there \
             are {}",
            model.meta.host.cpus,
        ),
        (JobsDo::Sleep, true) => {
            "when several jobs began to wait at once, they were done at the same time: more at a \
             time would not just queue there"
                .to_owned()
        }
        (JobsDo::Sleep, false) if queue.tries => {
            "the jobs sleep there again and again with hardly anything in between: they look \
             whether something is as they want, and try again if not; whether they all have it \
             sooner when more of them try does not show"
                .to_owned()
        }
        (JobsDo::Sleep, false) => {
            "whether what the jobs wait for can do more at once does not show".to_owned()
        }
    }
}

/// The middle latency as it was, and by replay with more jobs at a time.
type WithoutQueue = (u64, Vec<(usize, u64)>);

/// `None` where the replay does not bring about what was, or where the middle request did not wait.
fn replayed(queue: &JobQueue<'_>, cpus: usize) -> Option<WithoutQueue> {
    if matches!(queue.jobs_do, JobsDo::Compute(Some(_))) {
        return None;
    }
    let mut jobs: Vec<Worked> = queue.jobs.iter().map(|job| job.worked).collect();
    jobs.sort_by_key(|job| job.ready_ns);
    let now = queue.at_a_time;
    let servers = ServersAsTheyWere::of(&jobs, now, Average::Median)?;
    let real = jobs
        .iter()
        .map(|job| job.answered_ns.saturating_sub(job.ready_ns));
    let real_ns = median_ns(real.collect());
    let with = |more: usize| median_ns(servers.latencies(more));
    let mut more = BTreeSet::from([now + 1, now + 2, now * 2, now * 4]);
    if queue.jobs_do != JobsDo::Sleep {
        more.retain(|all| *all <= cpus);
    }
    let more: Vec<(usize, u64)> = more.into_iter().map(|all| (all, with(all - now))).collect();
    let best_ns = more.iter().map(|(_, ns)| *ns).min()?;
    Share::new(best_ns, real_ns)
        .is_below(*WORKERS_MORE_HELP)
        .then_some((real_ns, more))
}

fn in_words(queue: &JobQueue<'_>, (real_ns, more): &WithoutQueue) -> Evidence {
    let more: Vec<String> = more
        .iter()
        .map(|(jobs, ns)| format!("{} with {jobs}", duration(*ns)))
        .collect();
    Evidence::new(format!(
        "by replay a request would typically take {}, instead of {} with {} at a time",
        list(&more),
        duration(*real_ns),
        counted(queue.at_a_time, "job"),
    ))
    .of_fix()
}

/// Where they compute most, or the sleep that took most, as an example.
fn cause(
    model: &Model,
    queue: &JobQueue<'_>,
    computing: Option<&SampledFunctions>,
) -> Option<Cause> {
    if let Some(functions) = computing {
        let (tid, stack) = functions.place?;
        return Some(Cause::new(model, tid, "on CPU".to_owned(), stack));
    }
    let (wait, _) = queue.sleeps.iter().max_by_key(|(_, ns)| *ns)?;
    let doing = format!("asleep in {}", system_call_name(wait));
    Some(Cause::new(model, wait.tid, doing, wait.user_stack))
}

#[cfg(test)]
mod tests;
