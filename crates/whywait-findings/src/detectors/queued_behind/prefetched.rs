//! Jobs that one worker has fetched ahead, and that wait there while another one has nothing to do.
//!
//! **Evidence.** Jobs that are handed on ([`WorkKind::HandedJob`]) wait from when their message
//! came until a helper has it. Meanwhile a helper of another thread that fetches from the same
//! broker had no job: it slept where it waits for one.
//!
//! **Cost.** For each job the time in which there was such a helper. Which one would have had it
//! does not matter for a bound.

use std::collections::BTreeMap;

use whywait_events::{Ns, WorkKind};
use whywait_model::{Model, RequestRef};
use whywait_words::{counted, duration, list};

use super::DECLARATION;
use crate::facts::Facts;
use crate::finding::{Confidence, Evidence, Finding, Saving};
use crate::shared::intervals::{Covered, Interval, merged, most_at_a_time};
use crate::shared::slow_paths::Shares;
use crate::shared::threads::named;

/// A thread that fetches jobs and hands them on.
struct Fetcher<'m> {
    tid: u32,
    broker: u32,
    jobs: Vec<RequestRef<'m>>,
}

impl<'m> Fetcher<'m> {
    fn all(model: &'m Model) -> Vec<Self> {
        let mut all: BTreeMap<(u32, u32), Vec<RequestRef<'m>>> = BTreeMap::new();
        let handed = model
            .requests()
            .filter(|job| job.kind == WorkKind::HandedJob && job.recv_ns.is_some());
        for job in handed {
            all.entry((job.handed_by, job.broker))
                .or_default()
                .push(job);
        }
        let all = all.into_iter();
        all.map(|((tid, broker), jobs)| Self { tid, broker, jobs })
            .collect()
    }

    /// When at least one of its helpers had no job.
    fn idle(&self, model: &Model) -> Vec<Interval> {
        let mut busy: BTreeMap<u32, Vec<Interval>> = BTreeMap::new();
        for job in &self.jobs {
            let until_ns = job.answered_ns().unwrap_or(Ns::MAX);
            let from_ns = job.recv_ns.unwrap_or(job.ready_ns);
            busy.entry(job.recv_tid)
                .or_default()
                .push((from_ns, until_ns));
        }
        let idle = busy.into_iter().flat_map(|(tid, jobs)| {
            let thread = model.threads.get(&tid);
            let started = thread.and_then(|thread| thread.started);
            let end_ns = thread.and_then(|thread| thread.ended_ns);
            let end_ns = end_ns.unwrap_or(model.end_ns);
            let mut since_ns = started.map_or(model.meta.started_ns, |(at_ns, _)| at_ns);
            let mut idle = Vec::new();
            for (from_ns, until_ns) in merged(jobs) {
                idle.push((since_ns, from_ns));
                since_ns = until_ns;
            }
            idle.push((since_ns, end_ns));
            idle.retain(|(from_ns, to_ns)| from_ns < to_ns);
            idle
        });
        merged(idle.collect())
    }

    /// The most of its jobs that waited at a time.
    fn most_waiting(&self) -> usize {
        let waiting = self.jobs.iter();
        most_at_a_time(waiting.map(|job| (job.ready_ns, job.recv_ns.unwrap_or(job.ready_ns))))
    }
}

/// Finds them.
pub(super) fn find(facts: &Facts<'_>) -> Option<Finding> {
    let model = facts.model;
    let fetchers = Fetcher::all(model);
    let mut victims: Vec<(u64, RequestRef<'_>)> = Vec::new();
    let mut with: Vec<&Fetcher<'_>> = Vec::new();
    for fetcher in &fetchers {
        let others = fetchers
            .iter()
            .filter(|other| other.tid != fetcher.tid && other.broker == fetcher.broker);
        let idle = Covered::new(merged(others.flat_map(|other| other.idle(model)).collect()));
        let before = victims.len();
        victims.extend(fetcher.jobs.iter().filter_map(|job| {
            let ns = idle.within((job.ready_ns, job.recv_ns.unwrap_or(job.ready_ns)));
            (ns >= model.threshold_ns()).then_some((ns, *job))
        }));
        if victims.len() > before {
            with.push(fetcher);
        }
    }
    let shares = Shares::new(victims.iter().map(|(ns, job)| (*ns, job.age_ns())));
    let slow_ns = facts.slow().total_ns;
    let severity = shares.severity(slow_ns)?;
    let (_, longest) = victims.iter().max_by_key(|(ns, _)| *ns)?;
    let title = format!(
        "{} waited {} of their time in one worker that had fetched them ahead, while another \
         worker had nothing to do",
        counted(victims.len(), "job"),
        shares.percent(),
    );
    let who: Vec<String> = with
        .iter()
        .map(|fetcher| {
            format!(
                "{} had up to {} fetched ahead",
                named(model, fetcher.tid),
                counted(fetcher.most_waiting(), "job")
            )
        })
        .collect();
    let waited = longest.recv_ns.unwrap_or(longest.ready_ns) - longest.ready_ns;
    let text = format!(
        "the longest waited {} until {} had it, in the order in which they came",
        duration(waited),
        named(model, longest.recv_tid)
    );
    let finding = Finding::new(&DECLARATION, severity, title)
        .confidence(Confidence::Medium)
        .about("pid", longest.tgid)
        .about(
            "fetchers",
            with.iter().map(|one| one.tid).collect::<Vec<_>>(),
        )
        .saving(Saving::latency(victims.iter().map(|(ns, _)| *ns).collect()))
        .evidence([
            Evidence::of_ns(shares.ns, shares.spread(slow_ns)),
            Evidence::new(list(&who)),
            Evidence::of_ns(waited, text),
        ])
        .fix(
            "fetch fewer messages ahead, so that they stay where any worker can have them: \
             worker_prefetch_multiplier = 1 and acks_late in Celery, basic.qos with a small \
             prefetch count in AMQP; give long jobs a queue of their own",
        );
    Some(finding)
}
