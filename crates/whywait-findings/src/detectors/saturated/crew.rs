//! Workers that each serve one request at a time, and that compute all the time.

use std::collections::BTreeSet;

use whywait_events::Part;
use whywait_model::cpu::{CpuHolder, WithoutCpu};
use whywait_model::{Model, RequestRef, Thread};
use whywait_words::{counted, duration, percent};

use super::{DECLARATION, lasts, p99};
use crate::facts::Facts;
use crate::finding::{Evidence, Finding, Severity};
use crate::numbers::{MOST, Share, WORKERS_ASLEEP};
use crate::shared::functions::SampledFunctions;
use crate::shared::intervals::{Covered, Interval, in_proportion, merged, most_at_a_time, sum};
use crate::shared::replay::{Bound, Gone, ReadByThread, Spared, name, workers_of};
use crate::shared::slow_paths::{self, Shares, dominates};
use crate::shared::threads::slept_ns;

/// Workers of one place, and the requests that they read, answered ones.
struct BusyCrew<'a> {
    workers: BTreeSet<u32>,
    threads: Vec<&'a Thread>,
    requests: Vec<RequestRef<'a>>,
    /// When requests lay unread, in order and apart.
    unread: Vec<Interval>,
    /// How long that was, for as many as can work at a time, and for how long of it they were busy:
    /// awake, or, where there are more than CPUs, on one, at least.
    all_ns: u64,
    busy_ns: u64,
    /// Altogether they were so long on a CPU, and so long without one.
    on_cpu_ns: u64,
    runnable_ns: u64,
}

/// One for each place whose workers have no time left.
pub(super) fn findings(facts: &Facts<'_>) -> Vec<Finding> {
    let places = facts.places().values();
    let crews = places.filter_map(|requests| workers_of(requests.iter().copied()));
    crews
        .filter_map(|in_hand| finding(facts, &BusyCrew::of(facts, in_hand)?))
        .collect()
}

impl<'a> BusyCrew<'a> {
    fn of(facts: &Facts<'a>, in_hand: ReadByThread<'a>) -> Option<Self> {
        let model = facts.model;
        let workers: BTreeSet<u32> = in_hand.keys().copied().collect();
        let requests: Vec<RequestRef<'a>> = in_hand
            .into_values()
            .flatten()
            .filter(|request| request.latency_ns().is_some() && request.counts())
            .collect();
        let threads: Vec<&Thread> = workers
            .iter()
            .filter_map(|tid| model.threads.get(tid))
            .collect();
        let unread = requests.iter().map(|one| (one.ready_ns, one.served_ns()));
        let unread = merged(unread.collect());
        let each_ns = sum(unread.iter().map(|(from, to)| to.saturating_sub(*from)));
        let at_a_time = threads.len().min(model.meta.host.cpus as usize);
        let all_ns = each_ns.saturating_mul(at_a_time as u64);
        let lay = Covered::new(unread.clone());
        let asleep_ns = sum(threads.iter().map(|thread| slept_ns(thread, &lay)));
        let used = |thread: &&Thread| model.cpu.threads.get(&(thread.tgid, thread.tid));
        let used: Vec<_> = threads.iter().filter_map(used).collect();
        let on_cpu_ns = sum(used.iter().map(|one| one.on_cpu_ns));
        let runnable_ns = sum(used.iter().map(|one| one.runnable_ns));
        // Sleeps that were too short to be recorded are in neither.
        let awake_ns = (each_ns.saturating_mul(threads.len() as u64))
            .saturating_sub(asleep_ns)
            .min(on_cpu_ns.saturating_add(runnable_ns));
        // While nothing lay unread they may have had all CPUs.
        let ran_ns = model.end_ns.saturating_sub(model.meta.started_ns);
        let otherwise_ns = (ran_ns.saturating_sub(each_ns)).saturating_mul(at_a_time as u64);
        let computed_ns = on_cpu_ns.saturating_sub(otherwise_ns).min(all_ns);
        let crew = Self {
            busy_ns: match threads.len() > at_a_time {
                true => awake_ns.min(computed_ns),
                false => awake_ns,
            },
            on_cpu_ns,
            runnable_ns,
            workers,
            threads,
            requests,
            unread,
            all_ns,
        };
        crew.has_no_time_left(model).then_some(crew)
    }

    /// Whether there are more of them than CPUs. Some runtimes have more threads than they let run
    /// at a time (Go's scheduler), and others' workers may all be asleep but for one.
    fn has_more_than_cpus(&self, model: &Model) -> bool {
        self.threads.len() > model.meta.host.cpus as usize
    }

    /// Awake for most of the time in which requests lay unread, and not just to poll. Where there
    /// are more than CPUs, three quarters of these are theirs: of two that is more than one has.
    fn has_no_time_left(&self, model: &Model) -> bool {
        let goes_round = |tid: u32| {
            let mut bursts = model.bursts.threads().into_iter();
            bursts.any(|one| one.tid == tid && one.goes_round())
        };
        let enough = match self.has_more_than_cpus(model) {
            true => *WORKERS_ASLEEP,
            false => *MOST,
        };
        self.all_ns > 0
            && Share::new(self.busy_ns, self.all_ns).is_at_least(enough)
            && !self.workers.iter().any(|tid| goes_round(*tid))
    }

    /// Whether it is they themselves who have the CPUs that some of them lack: more CPUs are what
    /// their own work needs.
    fn has_the_cpus(&self, model: &Model) -> bool {
        let mut without = WithoutCpu::default();
        for request in &self.requests {
            without.add_request(model, *request);
        }
        let holders = without.holders();
        let own_ns = holders
            .iter()
            .find(|(holder, _)| **holder == CpuHolder::Own)
            .map_or(0, |(_, ns)| *ns);
        let all_ns = sum(holders.iter().map(|(_, ns)| *ns));
        let own = without.own_threads();
        let own = own.iter().filter_map(|tid| model.threads.get(tid));
        let used = own.filter_map(|thread| model.cpu.threads.get(&(thread.tgid, thread.tid)));
        let used_ns = sum(used.map(|one| one.on_cpu_ns));
        own_ns > 0
            && Share::new(without.recorded_ns, without.ns).is_at_least(*MOST)
            && Share::new(own_ns, all_ns).is_at_least(*MOST)
            && Share::new(self.on_cpu_ns, used_ns).is_at_least(*MOST)
    }

    /// What each request lay unread, and what it took.
    fn waited(&self) -> Vec<(u64, u64)> {
        let each = self.requests.iter();
        each.map(|one| (one.served_ns() - one.ready_ns, one.age_ns()))
            .collect()
    }

    /// How long the workers computed for nobody: before they read a request, and after.
    fn for_nobody_ns(&self) -> u64 {
        let computed = |one: &RequestRef<'_>| one.account().service[Part::OnCpu];
        let for_requests_ns = sum(self.requests.iter().map(computed));
        self.on_cpu_ns.saturating_sub(for_requests_ns)
    }

    /// Each request without what its worker does in this part of its samples. Whoever computes
    /// less waits for less of a CPU, too.
    fn without(&self, part: (u64, u64)) -> Vec<Spared<'a>> {
        self.spared(part, |request| {
            let service = request.account().service;
            service[Part::OnCpu].saturating_add(service[Part::Runnable])
        })
    }

    /// … and with half of what it computes there.
    fn halved(&self, part: (u64, u64)) -> Vec<Spared<'a>> {
        self.spared(part, |request| request.account().service[Part::OnCpu] / 2)
    }

    fn spared(
        &self,
        (periods, all): (u64, u64),
        of: impl Fn(&RequestRef<'a>) -> u64,
    ) -> Vec<Spared<'a>> {
        let each = self.requests.iter().map(|request| {
            let ns = in_proportion(of(request), periods, all.max(1));
            Spared {
                request: *request,
                ns,
                gone: vec![Gone {
                    tid: request.recv_tid,
                    from_ns: request.served_ns(),
                    to_ns: request.end_ns(),
                    ns,
                }],
            }
        });
        each.collect()
    }
}

fn finding(facts: &Facts<'_>, crew: &BusyCrew<'_>) -> Option<Finding> {
    let model = facts.model;
    let waited = crew.waited();
    let slow = waited
        .iter()
        .filter(|(ns, latency_ns)| dominates(*ns, *latency_ns));
    let mut queued = Shares::new(slow.copied());
    // However short a turn is: where most of all requests spend most of their time so, it is no
    // accident.
    let threshold_ns = model.threshold_ns();
    let behind_others = waited.iter().filter(|(ns, latency_ns)| {
        *ns >= threshold_ns && Share::new(*ns, *latency_ns).is_at_least(*MOST)
    });
    let behind_others: Vec<(u64, u64)> = behind_others.copied().collect();
    let all = model.requests_that_count() as usize;
    if Share::counted(behind_others.len(), all).is_at_least(*MOST) {
        queued = Shares::new(behind_others);
    }
    let all_ns = sum(waited.iter().map(|(_, latency_ns)| *latency_ns));
    if Share::new(queued.latency_ns, all_ns).is_below(*MOST) {
        return None;
    }
    let awake_ns = crew.on_cpu_ns.saturating_add(crew.runnable_ns);
    let lacks_cpu =
        Share::new(crew.on_cpu_ns, awake_ns).is_below(*MOST) && !crew.has_the_cpus(model);
    let (lasting_ns, asked_ns) = lasts(&crew.unread, &crew.requests);
    let is_burst = Share::new(lasting_ns, asked_ns).is_below(*MOST);
    let severity = match queued.severity(facts.slow().total_ns)? {
        // With others' CPUs they might have time left, and after a burst they have.
        severity if lacks_cpu || is_burst => severity.min(Severity::Note),
        severity => severity,
    };
    let functions = SampledFunctions::of(facts, crew.threads.iter().copied());
    let first = functions.first();
    let part = first.map_or((1, 1), |(_, periods)| (periods, functions.periods));
    let behind = facts.behind();
    let for_nobody_ns = crew.for_nobody_ns();
    let others_work = Share::new(for_nobody_ns, crew.on_cpu_ns).is_at_least(*MOST);
    let mut without = crew.without(part);
    if others_work {
        // Which of it a request waited for is not known.
        for (one, (unread_ns, _)) in without.iter_mut().zip(&waited) {
            one.ns = one.ns.saturating_add(*unread_ns);
        }
    }
    let bound = Bound {
        queues: None,
        ..behind.bound(&without, None)
    };
    let half = behind.without(&crew.halved(part), None);
    let halved = crew.requests.iter().map(|request| {
        let saved_ns = half.each.get(&name(*request)).map_or(0, |claim| claim.ns);
        request.age_ns().saturating_sub(saved_ns)
    });
    let halved_ns = (half.off.is_none() && !others_work).then(|| p99(&halved.collect::<Vec<_>>()));
    let real: Vec<u64> = crew.requests.iter().map(|one| one.age_ns()).collect();
    let does = functions.title("their work");
    let lying = crew
        .requests
        .iter()
        .map(|one| (one.ready_ns, one.served_ns()));
    let one = crew.workers.len() == 1;
    let are_busy = match crew.has_more_than_cpus(model) {
        true => format!(
            "keep {} busy",
            counted(model.meta.host.cpus as usize, "CPU")
        ),
        false if one => "is busy".to_owned(),
        false => "are busy".to_owned(),
    };
    let title = format!(
        "{} that {} a request at a time {are_busy} {} of the time in which others lie unread ({} \
         of it all){does}; up to {} wait for {}",
        slow_paths::who(model, &crew.workers),
        if one { "serves" } else { "serve" },
        percent(crew.busy_ns, crew.all_ns),
        percent(lasting_ns, asked_ns),
        counted(most_at_a_time(lying), "request"),
        if one { "it" } else { "one of them" },
    );
    let what = first.map_or("their work", |(function, _)| function);
    let at_half = halved_ns.map(|ns| {
        let text = format!(
            "with {what} at half of that, p99 is {} at best, not {}",
            duration(ns),
            duration(p99(&real)),
        );
        Evidence::of_ns(ns, text)
    });
    let waiting = format!(
        "unread, while they worked for others: {}",
        queued.spread(facts.slow().total_ns)
    );
    let does_what = functions
        .shown()
        .map(|each| Evidence::new(format!("what they do, by samples: {each}")));
    let workers: Vec<u32> = crew.workers.iter().copied().collect();
    let ports: BTreeSet<u16> = crew.requests.iter().map(|one| one.place().1).collect();
    let finding = Finding::new(&DECLARATION, severity, title)
        .about("threads", workers.clone())
        .about_known("port", slow_paths::only_port(&ports))
        .about_known("function", first.map(|(function, _)| function.to_owned()))
        .evidence([Evidence::of_ns(queued.ns, waiting)])
        .bounded(bound)
        .evidence(others_work.then(|| {
            let text = format!(
                "{} of what they computed was for no request that they had read: {} of {}",
                percent(for_nobody_ns, crew.on_cpu_ns),
                duration(for_nobody_ns),
                duration(crew.on_cpu_ns),
            );
            Evidence::of_ns(for_nobody_ns, text)
        }))
        .evidence(does_what)
        .evidence([Evidence::new(format!(
            "they were on a CPU {} of the time in which they were awake, and waited for one {}",
            percent(crew.on_cpu_ns, awake_ns),
            percent(crew.runnable_ns, awake_ns),
        ))])
        .evidence(at_half)
        .cause(functions.cause(model))
        .fix(
            "make that work cheaper or rarer (a cache, an index), or give it more CPUs; more \
             workers help only where CPUs are idle",
        );
    let first = workers.first().copied();
    Some(slow_paths::about_processes(model, finding, first, workers))
}
