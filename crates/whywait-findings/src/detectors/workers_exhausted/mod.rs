//! `workers-exhausted`: requests wait while all who could take them sleep.
//!
//! **Invariant.** Nobody waits unserved while all who could serve it sleep.
//!
//! **Evidence.** Workers are the threads (of one process, or of several that share a port) that
//! read requests one at a time: see [`serving`]. All of them slept at once, in the work of a
//! request or because an idle connection keeps them, none of them where it waits for work; and
//! requests lay unread meanwhile, or had been read by a task that then left its thread to others.
//! Where a thread reads requests and hands them to others it is `queued-behind`. Of jobs whose
//! workers do not show it is when they came and were done: see [`turns`].
//!
//! **Cost.** For each request the time in which it waited and all workers were taken. A replay of
//! the same requests onto more workers says what some more would save.
//!
//! **Guards.** Workers that compute, or wait for a CPU, are busy: more of them would not help.
//! Where they wait for a lock, more of them would wait there as well; the same goes for a peer
//! whose answers take longer the more of them ask, as far as that shows. An event loop that serves
//! several requests at a time is none of these workers. Less than [`WORKERS_MIN_VICTIMS`] requests
//! (unless one waited for a second), or less than a third of the slow requests' time, is a burst.

mod case;
mod kept;
mod serving;
mod shift;
mod turns;

use std::collections::BTreeSet;

use serde_json::{Value, json};
use whywait_events::{Connection, Wait};
use whywait_model::{Model, RequestRef};
use whywait_replay::Average;
use whywait_words::{counted, duration, list};

use crate::declaration::{Declaration, Has, Waits};
use crate::facts::Facts;
use crate::finding::{Confidence, Evidence, Finding, Saving, Severity};
use crate::numbers::{
    ERROR_NS, MOST, SLOW_NS, Share, WORKERS_HANG_NS, WORKERS_MIN_VICTIMS, WORKERS_MORE_HELP,
    WORKERS_WORTH,
};
use crate::shared::intervals::sum;
use crate::shared::reasons;
use crate::shared::replay::{ServersAsTheyWere, Worked, median_ns};
use crate::shared::slow_paths::Shares;

use case::Case;
use shift::BusyShift;

/// What it is.
pub(crate) static DECLARATION: Declaration = Declaration {
    code: "workers-exhausted",
    meaning: "requests waited while all workers that could take them slept",
    severities: &[
        (
            Severity::Error,
            "when a request typically waited 100 ms or longer",
        ),
        (Severity::Warning, "from 30 ms on"),
        (Severity::Note, "otherwise"),
    ],
    invariant: "nobody waits unserved while all who could serve it sleep",
    explain: include_str!("explain.md"),
    waits: Some(Waits {
        who: "requests",
        what: "for a worker",
        has: Has::Cause,
    }),
    detect,
};

fn detect(facts: &Facts<'_>) -> Vec<Finding> {
    let model = facts.model;
    // Nobody saw who slept before the recording began.
    let slow = facts.slow();
    let unseen_ns = sum(slow
        .requests
        .iter()
        .map(|slow| model.meta.started_ns.saturating_sub(slow.request.ready_ns)));
    let slow_ns = slow.total_ns.saturating_sub(unseen_ns);
    let crews = serving::crews(facts, slow_ns).into_iter();
    crews
        .filter_map(|crew| finding(model, &crew, slow_ns))
        .chain(turns::find(facts, slow_ns))
        .collect()
}

/// Workers, and what waited for them.
struct Backlog<'m> {
    port: u16,
    /// The workers, by thread id.
    workers: BTreeSet<u32>,
    /// When all of them slept.
    shift: BusyShift,
    /// What each worker slept in while all slept.
    sleeps: Vec<WorkerSleep<'m>>,
    /// The requests that waited, each with how long it did while all slept: also the shortest.
    victims: Vec<(RequestRef<'m>, u64)>,
    /// The connections that keep them, as far as known.
    kept_by: Vec<&'m Connection>,
    /// So many of them write a response all the while, of which nobody saw the request.
    writing: usize,
    /// Nobody was seen to take what waits: that these do is inferred.
    inferred: bool,
    /// All requests that they served and that are known one by one, in order of arrival.
    jobs: Vec<Worked>,
}

/// A worker's sleep.
#[derive(Clone, Copy)]
struct WorkerSleep<'m> {
    wait: &'m Wait,
    /// It has no request in hand: a connection that asks for nothing keeps it.
    kept: bool,
    /// How long of it all of them slept.
    ns: u64,
}

fn finding(model: &Model, crew: &Backlog<'_>, slow_ns: u64) -> Option<Finding> {
    let victims: Vec<&(RequestRef<'_>, u64)> = crew
        .victims
        .iter()
        .filter(|(request, ns)| *ns >= *SLOW_NS && request.counts())
        .collect();
    if !is_worth_it(victims.iter().map(|(_, ns)| *ns), slow_ns) {
        return None;
    }
    let shares = Shares::new(victims.iter().map(|(request, ns)| (*ns, request.age_ns())));
    let open = victims.iter().filter(|(request, _)| !request.is_answered());
    let open_ns = sum(open.clone().map(|(request, _)| request.age_ns()));
    let slept_ns = sum(crew.sleeps.iter().map(|sleep| sleep.ns));
    let of = |is: &dyn Fn(&WorkerSleep<'_>) -> bool| {
        let those = crew.sleeps.iter().filter(|sleep| is(sleep));
        sum(those.map(|sleep| sleep.ns))
    };
    let lock_ns = of(&|sleep| is_lock(model, sleep.wait));
    if slept_ns == 0 || Share::new(lock_ns, slept_ns).is_at_least(*MOST) {
        return None;
    }
    let sleeps = crew.sleeps.iter().map(|sleep| (sleep.wait, sleep.ns));
    let reasons = reasons::of(model, sleeps);
    let kept = Share::new(of(&|sleep| sleep.kept), slept_ns).is_at_least(*MOST);
    // Of those that hang nothing shows how it would be with more.
    let hang = Share::new(open_ns, shares.latency_ns).exceeds(*MOST);
    let elsewhere = if kept || hang {
        None
    } else {
        reasons::queues_elsewhere(model, &crew.workers, &reasons)
    };
    if elsewhere == Some(true) {
        return None;
    }
    let severity = match shares.severity(slow_ns)? {
        // That more workers would help is no more than likely where it does not show.
        Severity::Warning
            if shares.median_ns() >= *ERROR_NS && (elsewhere.is_some() || kept || hang) =>
        {
            Severity::Error
        }
        severity => severity,
    };
    let confidence = if elsewhere.is_some() || kept && !crew.inferred {
        Confidence::High
    } else {
        Confidence::Medium
    };
    let idle = idle_workers(crew);
    let others = crew.sleeps.iter();
    let others = others.filter(|sleep| !idle.contains(&sleep.wait.tid));
    let others = reasons::of(model, others.map(|sleep| (sleep.wait, sleep.ns)));
    let case = Case {
        model,
        crew,
        shares: &shares,
        slow_ns,
        reasons: &reasons,
        kept,
        idle: idle.len(),
        others: others.into_iter().next().map(|(reason, _)| reason),
        elsewhere,
        replayed: match hang {
            true => None,
            false => MoreWorkers::of(&crew.jobs, crew.workers.len()),
        },
    };
    let finding = Finding::new(&DECLARATION, severity, case.title())
        .confidence(confidence)
        .saving(saving(crew))
        .concerns(crew.victims.iter().copied())
        .evidence(case.evidence())
        .cause(case.cause())
        .fix(case.fix());
    Some(case.about(finding))
}

/// Whether it is no burst that requests waited for so long. More of them, or longer, is worth more.
fn is_worth_it(waited_ns: impl Iterator<Item = u64>, slow_ns: u64) -> bool {
    let (mut victims, mut all_ns, mut longest_ns) = (0, 0_u64, 0);
    for ns in waited_ns.filter(|ns| *ns >= *SLOW_NS) {
        victims += 1;
        all_ns = all_ns.saturating_add(ns);
        longest_ns = longest_ns.max(ns);
    }
    let some = victims >= *WORKERS_MIN_VICTIMS || longest_ns >= *WORKERS_HANG_NS;
    some && !Share::new(all_ns, slow_ns).is_below(*WORKERS_WORTH)
}

/// The workers that slept with no request in hand for most of the time.
fn idle_workers(crew: &Backlog<'_>) -> BTreeSet<u32> {
    let slept_ns = |tid: u32, kept: bool| {
        let of = |sleep: &&WorkerSleep<'_>| sleep.wait.tid == tid && sleep.kept == kept;
        sum(crew.sleeps.iter().filter(of).map(|sleep| sleep.ns))
    };
    let workers = crew.workers.iter().copied();
    workers
        .filter(|tid| slept_ns(*tid, true) > slept_ns(*tid, false))
        .collect()
}

/// What a fix saves at most that lets nobody wait for a worker: also those that waited for less
/// than what they are called slow for.
fn saving(crew: &Backlog<'_>) -> Saving {
    let waited = crew.victims.iter().filter(|(request, _)| request.counts());
    Saving::latency(waited.map(|(_, ns)| *ns).filter(|ns| *ns > 0).collect())
}

/// The middle latency as it was, and by replay with more workers.
struct MoreWorkers {
    workers: usize,
    real_ns: u64,
    more: Vec<(usize, u64)>,
}

impl MoreWorkers {
    /// `None` where the replay does not bring about what was, or where the middle request did not
    /// wait for a worker.
    fn of(jobs: &[Worked], workers: usize) -> Option<Self> {
        if jobs.len() < *WORKERS_MIN_VICTIMS {
            return None;
        }
        let servers = ServersAsTheyWere::of(jobs, workers, Average::Median)?;
        let real = jobs
            .iter()
            .map(|job| job.answered_ns.saturating_sub(job.ready_ns));
        Self::with(workers, median_ns(real.collect()), |more| {
            median_ns(servers.latencies(more))
        })
    }

    /// From what the middle request takes, and what it takes with so many more; `None` where it did
    /// not wait for a worker.
    fn with(workers: usize, real_ns: u64, with_more: impl Fn(usize) -> u64) -> Option<Self> {
        let more = [workers + 1, workers + 2, workers * 2, workers * 4];
        let more: BTreeSet<usize> = more.into_iter().collect();
        let more: Vec<(usize, u64)> = more
            .into_iter()
            .map(|all| (all, with_more(all - workers)))
            .collect();
        let best_ns = more.iter().map(|(_, ns)| *ns).min()?;
        (Share::new(best_ns, real_ns).is_below(*WORKERS_MORE_HELP)).then_some(Self {
            workers,
            real_ns,
            more,
        })
    }

    /// In words. `what` typically takes so long.
    fn evidence(&self, what: &str) -> Evidence {
        let more: Vec<String> = self
            .more
            .iter()
            .map(|(workers, ns)| format!("{} with {workers}", duration(*ns)))
            .collect();
        let text = format!(
            "by replay a {what} would typically take {}, instead of {} with {}",
            list(&more),
            duration(self.real_ns),
            counted(self.workers, "worker"),
        );
        Evidence::new(text).of_fix()
    }

    /// The same for programs.
    fn rows(&self) -> Value {
        let row = |(workers, ns): &(usize, u64)| json!({ "workers": workers, "p50_ns": ns });
        self.more.iter().map(row).collect()
    }
}

fn is_lock(model: &Model, wait: &Wait) -> bool {
    model.is_lock_wait(wait) || reasons::locks_a_file(wait)
}

#[cfg(test)]
mod tests;
