//! Jobs: what a thread that reads requests hands to others, and waits for. Those are the threads of
//! an executor behind a loop, of a runtime's pool for blocking work, behind an acceptor, or helper
//! processes. They are known by wakes: they end the sleeps of who reads, who in turn ends theirs.
//! Connections and calls do not matter.
//!
//! Such workers have a place of rest: the sleeps there are ended by who hands jobs out, or by one
//! another. Whoever is not there has a job. (Who is given work at another futex word than those who
//! sleep in jobs, and hardly ever sleeps in one, is of another executor.) While requests wait,
//! never more than so many jobs are under way: as many as there are workers, or fewer, where
//! something before them lets only so many through (one queue that keeps the order, a limit of
//! libuv's on look-ups).
//!
//! Jobs are taken in the order in which requests were read. So each begins when all that were read
//! before it are done, but for as many as are under way at a time. Which worker did which job need
//! not be known.

mod load;
mod tries;
mod workers;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use whywait_events::{Exchange, Ns, Wait};
use whywait_model::RequestRef;
use whywait_model::waits::Primitive;

use self::load::{Given, taken, with_unread};
use self::workers::{Workers, is_lock};
use crate::facts::Facts;
use crate::numbers::{
    ALL_OF_IT, MOST, QUEUE_PAIRED, SLOW_NS, Share, WORKERS_ASLEEP, WORKERS_MIN_VICTIMS,
    WORKERS_WORTH,
};
use crate::shared::intervals::{Covered, sum};
use crate::shared::reasons::{self, WaitReason};
use crate::shared::replay::Worked;

/// Jobs of requests, and who does them.
pub(crate) struct JobQueue<'m> {
    /// The threads that read the requests.
    pub(crate) readers: BTreeSet<u32>,
    /// The threads that do the jobs.
    pub(crate) workers: BTreeSet<u32>,
    /// Those are among the readers: they read between jobs.
    pub(crate) reads: bool,
    /// So many jobs are under way at most while requests wait.
    pub(crate) at_a_time: usize,
    /// The requests, in the order in which they were read.
    pub(crate) jobs: Vec<QueuedJob<'m>>,
    /// Jobs begin in that order. Else it is known how long all of them waited together, and not
    /// which did for how long.
    pub(crate) in_order: bool,
    /// For how long so many jobs were under way and more requests were, …
    pub(crate) full_ns: u64,
    /// … and how many requests were then, on average.
    pub(crate) open: f64,
    /// What workers slept in then, and for how long.
    pub(crate) sleeps: Vec<(&'m Wait, u64)>,
    /// For how long they had jobs then, all together.
    pub(crate) busy_ns: u64,
    /// What they slept in, the longest first.
    pub(crate) reasons: Vec<(WaitReason, u64)>,
    /// What they wait for can do more at once, as far as that shows.
    pub(crate) serves_more: bool,
    /// What the jobs mostly do.
    pub(crate) jobs_do: JobsDo,
    /// They sleep again and again until something is as they want.
    pub(crate) tries: bool,
}

/// What jobs mostly do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum JobsDo {
    Sleep,
    /// On fewer CPUs than there are. With a lock that a process has but one of, its interpreter's:
    /// of what runs with that in hand, more threads do no more.
    Compute(Option<Primitive>),
}

/// A request and its job.
#[derive(Clone, Copy)]
pub(crate) struct QueuedJob<'m> {
    pub(crate) request: RequestRef<'m>,
    /// For how long it waited for the jobs before it.
    pub(crate) waited_ns: u64,
    /// How many of them there were when it was read.
    pub(crate) ahead: usize,
    pub(crate) worked: Worked,
}

impl<'m> JobQueue<'m> {
    /// All of them.
    pub(crate) fn of(facts: &Facts<'m>) -> Vec<Self> {
        let slow_ns = facts.slow().total_ns;
        let queues = with_common_workers(facts, groups(facts)).into_iter();
        let queues =
            queues.filter_map(|(readers, requests)| Self::of_readers(facts, readers, requests));
        queues
            .filter(|queue| queue.is_worth_a_word(slow_ns))
            .collect()
    }

    /// The requests that waited for so long that it takes an explanation.
    pub(crate) fn victims(&self) -> impl Iterator<Item = &QueuedJob<'m>> {
        let waited = self.jobs.iter().filter(|job| job.waited_ns >= *SLOW_NS);
        waited.filter(|job| job.request.counts())
    }

    fn is_worth_a_word(&self, slow_ns: u64) -> bool {
        let waited_ns = sum(self.victims().map(|job| job.waited_ns));
        self.victims().count() >= *WORKERS_MIN_VICTIMS
            && Share::new(waited_ns, slow_ns).is_at_least(*WORKERS_WORTH)
    }

    fn of_readers(
        facts: &Facts<'m>,
        readers: BTreeSet<u32>,
        requests: Vec<RequestRef<'m>>,
    ) -> Option<Self> {
        let mut crews = Workers::crews(facts, &readers, &requests).into_iter();
        crews.find_map(|workers| Self::of_workers(facts, &readers, &requests, workers))
    }

    fn of_workers(
        facts: &Facts<'m>,
        readers: &BTreeSet<u32>,
        requests: &[RequestRef<'m>],
        mut workers: Workers,
    ) -> Option<Self> {
        let model = facts.model;
        if !workers.answers_follow(model, readers, requests) {
            return None;
        }
        let given = requests.iter();
        let given = given.filter_map(|request| Given::of(model, &workers, *request));
        let mut given: Vec<Given<'_>> = given.collect();
        given.sort_by_key(|one| (one.read_ns, one.request.ready_ns));
        let mut found = taken(model, &workers, &given)?;
        if workers.read {
            found = with_unread(model, &workers, &given, found);
        }
        let (load, jobs, in_order) = found;
        // Whoever of them rests meanwhile could take the next one: they are not too few.
        if workers.read && load.at_a_time < workers.tids.len() {
            return None;
        }
        let full = Covered::new(load.full);
        let mut sleeps = Vec::new();
        for wait in workers.threads(model).flat_map(|one| one.timeline.waits()) {
            let ns = full.within((wait.out_ns, wait.over_ns().unwrap_or(model.end_ns)));
            if ns > 0 && !workers.rests(model, wait) {
                sleeps.push((wait, ns));
            }
        }
        let busy_ns = sum(load.busy.iter().map(|interval| full.within(*interval)));
        let slept_ns = sum(sleeps.iter().map(|(_, ns)| *ns));
        let jobs_do = match Share::new(slept_ns, busy_ns).is_below(*WORKERS_ASLEEP) {
            true => JobsDo::Compute(workers.interpreters_lock(model)),
            false => JobsDo::Sleep,
        };
        // Who wakes readers for another reason, as one does that accepts their connections, or
        // polls for a runtime, never sleeps in a job, or next to nothing beside those who do.
        if jobs_do == JobsDo::Sleep {
            let queues = workers.queues(model);
            let alike = |one: u32, other: u32| {
                let mut of_both = queues.get(&one).into_iter().zip(queues.get(&other));
                model.role(one) == model.role(other) && of_both.all(|(one, other)| one == other)
            };
            let asleep = who_sleeps(&sleeps, load.at_a_time, alike);
            workers.tids.retain(|tid| asleep.contains(tid));
        }
        // Nobody was seen to hand these workers a job, and requests are done many at a time: they
        // wait for what is told to all at once (what others publish, the end of a shared fetch).
        // Not where streams came in turn and kept the workers for as long as they went on.
        let unseen = workers.rests.is_empty() && jobs_do == JobsDo::Sleep;
        let kept = in_order && kept_by_streams(&jobs).is_some();
        if unseen && !kept && workers.done_together(model, &jobs, load.at_a_time) {
            return None;
        }
        // Where they compute, more of them than there are CPUs would share the same ones. Where
        // they lack a CPU for most of the time, that is what the jobs take so long for.
        let few = load.at_a_time >= model.meta.host.cpus as usize;
        if jobs_do != JobsDo::Sleep && (few || workers.without_cpu(model).exceeds(*MOST)) {
            return None;
        }
        // Where they wait for a lock, more of them would wait there as well.
        let locked = sleeps.iter().filter(|(wait, _)| is_lock(model, wait));
        let locked_ns = sum(locked.map(|(_, ns)| *ns));
        if Share::new(locked_ns, busy_ns).is_at_least(*MOST) {
            return None;
        }
        let reasons = reasons::of(model, sleeps.iter().copied());
        // What they try for shows in no sleep of theirs.
        let tries = jobs_do == JobsDo::Sleep && tries::dominate(&sleeps, &jobs);
        let elsewhere = reasons::queues_elsewhere(model, &workers.tids, &reasons);
        let elsewhere = elsewhere.filter(|_| !tries);
        // What they wait for answers one after another: more of them would queue there.
        if elsewhere == Some(true) && load.at_a_time == workers.tids.len() {
            return None;
        }
        Some(Self {
            serves_more: elsewhere == Some(false) && jobs_do == JobsDo::Sleep,
            tries,
            jobs_do,
            reasons,
            reads: workers.read,
            readers: readers.clone(),
            workers: workers.tids,
            at_a_time: load.at_a_time,
            jobs,
            in_order,
            full_ns: load.full_ns,
            open: load.open_ns as f64 / load.full_ns.max(1) as f64,
            sleeps,
            busy_ns,
        })
    }

    /// Whether these calls are its jobs': its workers make them, but for a few that may be those of
    /// a worker that had next to no job.
    pub(crate) fn makes(&self, calls: &[&Exchange]) -> bool {
        let own = calls
            .iter()
            .filter(|call| self.workers.contains(&call.send_tid));
        !calls.is_empty() && Share::counted(own.count(), calls.len()).is_at_least(*QUEUE_PAIRED)
    }
}

/// Threads that read requests, and those.
type Readings<'m> = (BTreeSet<u32>, Vec<RequestRef<'m>>);

/// Requests by who reads them: the members of an epoll instance's pool, or a process's threads that
/// belong to none: each by itself may wait for the same executor.
fn groups<'m>(facts: &Facts<'m>) -> Vec<Readings<'m>> {
    let mut groups: Vec<Readings<'m>> = Vec::new();
    let pools = facts.model.pools.iter();
    let mut of_reader: BTreeMap<u32, usize> = BTreeMap::new();
    for pool in pools {
        let members: BTreeSet<u32> = pool.members.keys().copied().collect();
        for tid in &members {
            of_reader.entry(*tid).or_insert(groups.len());
        }
        groups.push((members, Vec::new()));
    }
    let mut of_process: BTreeMap<Option<u32>, usize> = BTreeMap::new();
    for (tid, requests) in facts.readers() {
        let at = *of_reader.entry(*tid).or_insert_with(|| {
            let thread = facts.model.threads.get(tid);
            let process = thread.map(|thread| thread.tgid);
            *of_process.entry(process).or_insert(groups.len())
        });
        if at == groups.len() {
            groups.push((BTreeSet::new(), Vec::new()));
        }
        groups[at].0.insert(*tid);
        let read = requests.iter().filter(|one| one.recv_ns.is_some());
        let read = read.filter(|one| !one.was_stopped() && !one.multiplexed);
        groups[at].1.extend(read);
    }
    groups.retain(|(_, requests)| !requests.is_empty());
    groups
}

/// Who sleeps in jobs: all of them, or so many if they have all but a bit of it, and others that
/// are `alike`.
fn who_sleeps(
    sleeps: &[(&Wait, u64)],
    at_a_time: usize,
    alike: impl Fn(u32, u32) -> bool,
) -> BTreeSet<u32> {
    let mut by_thread: BTreeMap<u32, u64> = BTreeMap::new();
    for (wait, ns) in sleeps {
        *by_thread.entry(wait.tid).or_default() += ns;
    }
    let mut asleep: Vec<(u32, u64)> = by_thread.into_iter().collect();
    asleep.sort_by_key(|(tid, ns)| (Reverse(*ns), *tid));
    let all_ns = sum(asleep.iter().map(|(_, ns)| *ns));
    let most_ns = sum(asleep.iter().take(at_a_time).map(|(_, ns)| *ns));
    let of_all = |tid: u32| {
        let mut most = asleep.iter().take(at_a_time);
        most.any(|(one, _)| *one == tid || alike(*one, tid))
    };
    let all_but_a_bit = Share::new(most_ns, all_ns).is_at_least(*ALL_OF_IT);
    let tids = asleep.iter().map(|(tid, _)| *tid);
    tids.filter(|tid| !all_but_a_bit || of_all(*tid)).collect()
}

/// Takes readers together that hand their jobs to the same workers: several loops before one pool.
fn with_common_workers<'m>(facts: &Facts<'m>, groups: Vec<Readings<'m>>) -> Vec<Readings<'m>> {
    let mut together: Vec<(BTreeSet<u32>, Readings<'m>)> = Vec::new();
    for (readers, requests) in groups {
        let workers = Workers::crews(facts, &readers, &requests)
            .into_iter()
            .next();
        let workers = workers.map_or_else(BTreeSet::new, |workers| workers.tids);
        let mut same = together.iter_mut();
        match same.find(|(all, _)| !all.is_disjoint(&workers)) {
            Some((all, group)) => {
                all.extend(workers);
                group.0.extend(readers);
                group.1.extend(requests);
            }
            None => together.push((workers, (readers, requests))),
        }
    }
    together.into_iter().map(|(_, group)| group).collect()
}

impl<'m> QueuedJob<'m> {
    /// `open`: until when those are under way that were read before.
    fn new(given: Given<'m>, waited_ns: u64, open: &mut BinaryHeap<Reverse<Ns>>) -> Self {
        let Given {
            request,
            read_ns,
            done_ns,
            free_ns,
        } = given;
        while open.peek().is_some_and(|Reverse(ns)| *ns <= read_ns) {
            open.pop();
        }
        let ahead = open.len();
        open.push(Reverse(free_ns));
        Self {
            request,
            waited_ns,
            ahead,
            worked: Worked {
                socket: request.socket,
                ready_ns: request.ready_ns.min(read_ns),
                taken_ns: read_ns.saturating_add(waited_ns).min(done_ns),
                answered_ns: done_ns,
                free_ns,
            },
        }
    }

    /// For how long its request waited for it.
    pub(crate) fn took_ns(&self) -> u64 {
        self.worked.answered_ns.saturating_sub(self.worked.taken_ns)
    }

    /// For how long it kept who had it.
    pub(crate) fn lasted_ns(&self) -> u64 {
        self.worked.free_ns.saturating_sub(self.worked.taken_ns)
    }
}

/// Streams that went on after their first message, if those kept workers for most of the time in
/// which jobs did.
pub(crate) fn kept_by_streams<'a, 'm>(jobs: &'a [QueuedJob<'m>]) -> Option<Vec<&'a QueuedJob<'m>>> {
    let lasted_ns = |jobs: &[&QueuedJob<'_>]| sum(jobs.iter().map(|job| job.lasted_ns()));
    let all: Vec<&QueuedJob<'_>> = jobs.iter().collect();
    let streams = jobs.iter().filter(|job| job.request.ended_ns.is_some());
    let streams: Vec<&QueuedJob<'_>> = streams.collect();
    let share = Share::new(lasted_ns(&streams), lasted_ns(&all));
    share.exceeds(*MOST).then_some(streams)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of threads that sleep for so long in jobs, of which so many are done at a time.
    fn asleep(slept_ns: &[u64], at_a_time: usize) -> Vec<u32> {
        let waits: Vec<Wait> = (1..)
            .zip(slept_ns)
            .map(|(tid, _)| Wait {
                tid,
                ..Wait::default()
            })
            .collect();
        let sleeps: Vec<(&Wait, u64)> = waits.iter().zip(slept_ns.iter().copied()).collect();
        // The second one is of another kind.
        let asleep = who_sleeps(&sleeps, at_a_time, |one, other| (one == 2) == (other == 2));
        asleep.into_iter().collect()
    }

    #[test]
    fn who_sleeps_next_to_nothing_in_jobs_has_none() {
        assert_eq!(asleep(&[900, 5, 950], 2), [1, 3]);
        assert_eq!(asleep(&[300, 300, 300], 1), [1, 2, 3], "they take turns");
        assert_eq!(asleep(&[900, 0, 5], 1), [1, 3], "it might have one");
    }
}
