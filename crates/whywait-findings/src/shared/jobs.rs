//! Jobs: what a thread that reads requests hands to others, and waits for. Those are the threads of
//! an executor behind a loop, of a runtime's pool for blocking work, behind an acceptor, or helper
//! processes. They are known by wakes: they end the sleeps of who reads, who in turn ends theirs.
//! Connections and calls do not matter.
//!
//! Such workers have a place of rest: the sleeps there are ended by who hands jobs out, or by one
//! another. Whoever is not there has a job. While requests wait, never more than so many jobs are
//! under way: as many as there are workers, or fewer, where something before them lets only so many
//! through (one queue that keeps the order, a limit of libuv's on look-ups).
//!
//! Jobs are taken in the order in which requests were read. So each begins when all that were read
//! before it are done, but for as many as are under way at a time. Which worker did which job need
//! not be known.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use whywait_events::{Ns, StackId, Wait, WakeContext};
use whywait_model::waits::Primitive;
use whywait_model::{Model, RequestRef, Role, Thread, WaitClass};

use crate::facts::{Facts, Readers};
use crate::numbers::{
    EXECUTOR_ANSWERED_NS, EXECUTOR_ANSWERS, EXECUTOR_FULL, EXECUTOR_MIN_JOBS, HANDED_ON, MOST,
    NEARLY_ALL, QUEUE_FULL, QUEUE_PAIRED, SLOW_NS, Share, WORKERS_ASLEEP, WORKERS_MIN_VICTIMS,
    WORKERS_WORTH,
};
use crate::shared::intervals::{Covered, Interval, in_proportion, merged, sum};
use crate::shared::reasons::{self, WaitReason, locks_a_file};
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
        // Who wakes readers for another reason, as one does that accepts their connections, never
        // sleeps in a job.
        if jobs_do == JobsDo::Sleep {
            let asleep: BTreeSet<u32> = sleeps.iter().map(|(wait, _)| wait.tid).collect();
            workers.tids.retain(|tid| asleep.contains(tid));
        }
        // Nobody was seen to hand these workers a job, and requests are done many at a time: they
        // wait for what is told to all at once (what others publish, the end of a shared fetch).
        // Not where streams came in turn and kept the workers for as long as they went on.
        let unseen = workers.rests.is_empty() && jobs_do == JobsDo::Sleep;
        let kept = in_order && kept_by_streams(&jobs).is_some();
        if unseen && !kept && workers.done_together(model, &jobs) {
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
        let elsewhere = reasons::queues_elsewhere(model, &workers.tids, &reasons);
        // What they wait for answers one after another: more of them would queue there.
        if elsewhere == Some(true) && load.at_a_time == workers.tids.len() {
            return None;
        }
        Some(Self {
            serves_more: elsewhere == Some(false) && jobs_do == JobsDo::Sleep,
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

    /// Whether these threads are all workers of its: what they call is called by jobs.
    pub(crate) fn has(&self, threads: &BTreeSet<u32>) -> bool {
        !threads.is_empty() && threads.is_subset(&self.workers)
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

/// A request that was read, and until when its job lasted.
#[derive(Clone, Copy)]
struct Given<'m> {
    request: RequestRef<'m>,
    /// … or came, where it waits for a worker since then.
    read_ns: Ns,
    /// It was answered, or the recording ended.
    done_ns: Ns,
    /// Who had its job was free again: later where it is a stream that went on.
    free_ns: Ns,
}

impl<'m> Given<'m> {
    fn of(model: &Model, workers: &Workers, request: RequestRef<'m>) -> Option<Self> {
        let read_ns = request.recv_ns?;
        let done_ns = request.answered_ns().unwrap_or(model.end_ns).max(read_ns);
        let kept_until_ns = request
            .ended_ns
            .map(|ended_ns| workers.notices(model, request.send_tid, ended_ns));
        Some(Self {
            request,
            read_ns,
            done_ns,
            free_ns: kept_until_ns.unwrap_or(done_ns).max(done_ns),
        })
    }

    /// The same if it waits for a worker since it came.
    fn since_it_came(self) -> Self {
        Self {
            read_ns: self.request.ready_ns.min(self.read_ns),
            ..self
        }
    }

    /// The same if a stream keeps nobody while it goes on, as those of a loop.
    fn of_loop(self) -> Self {
        Self {
            free_ns: self.done_ns,
            ..self
        }
    }
}

/// Where a thread sleeps: the same place has the same call and the same stack.
type SleepingPlace = (Option<u32>, StackId);

/// Who does the jobs, and where they wait for the next one.
struct Workers {
    tids: BTreeSet<u32>,
    rests: BTreeSet<SleepingPlace>,
    /// Who hands jobs out: those who read requests, and the workers themselves.
    hands: BTreeSet<u32>,
    /// The workers write the answers.
    answer: bool,
    /// They read the requests, too: those wait for a worker since they came.
    read: bool,
}

impl Workers {
    /// All who may do the jobs together. Then, if their names say that they are of several kinds,
    /// each kind by itself that was seen to be handed some: a runtime has threads that work for
    /// readers without having their jobs (a JVM's compilers).
    fn crews(facts: &Facts<'_>, readers: &BTreeSet<u32>, requests: &[RequestRef<'_>]) -> Vec<Self> {
        let known = Self::known(facts, readers, requests);
        let all: BTreeSet<u32> = known.keys().copied().collect();
        let mut kinds: BTreeMap<Role, (usize, BTreeSet<u32>)> = BTreeMap::new();
        for (tid, times) in known {
            let kind = kinds.entry(facts.model.role(tid)).or_default();
            kind.0 += times;
            kind.1.insert(tid);
        }
        let mut kinds: Vec<(usize, BTreeSet<u32>)> = kinds.into_values().collect();
        kinds.sort_by_key(|(times, _)| Reverse(*times));
        kinds.retain(|(_, tids)| *tids != all);
        let kinds = kinds.into_iter();
        let kinds = kinds.filter_map(|(_, tids)| Self::of(facts, readers, requests, tids));
        let crews = Self::of(facts, readers, requests, all).into_iter();
        crews
            .chain(kinds.filter(|crew| !crew.rests.is_empty()))
            .chain(Self::readers(facts, readers))
            .collect()
    }

    /// Those who read requests and do their jobs as well, whichever of them: the threads of a
    /// runtime whose tasks take turns. Where there is but one it is a loop.
    fn readers(facts: &Facts<'_>, readers: &BTreeSet<u32>) -> Option<Self> {
        let model = facts.model;
        let mut workers = Self {
            tids: readers.clone(),
            rests: BTreeSet::new(),
            hands: readers.clone(),
            answer: true,
            read: true,
        };
        let waits = workers.threads(model).flat_map(|one| one.timeline.waits());
        let waits: Vec<&Wait> = waits.filter(|wait| wait.user_stack != 0).collect();
        let polls = |wait: &Wait| wait.epoll != 0;
        let rests = waits.iter();
        let rests = rests.filter(|wait| polls(wait) || workers.gets_a_job(model, wait));
        workers.rests = rests.map(|wait| place(wait)).collect();
        let polled = waits.iter().any(|wait| polls(wait));
        (readers.len() > 1 && polled).then_some(workers)
    }

    /// Who ends sleeps of the readers or answers their requests, and how often.
    fn known(
        facts: &Facts<'_>,
        readers: &BTreeSet<u32>,
        requests: &[RequestRef<'_>],
    ) -> BTreeMap<u32, usize> {
        let (model, reading) = (facts.model, facts.readers());
        let mut times: BTreeMap<u32, usize> = BTreeMap::new();
        let waits = readers.iter().filter_map(|tid| model.threads.get(tid));
        for wait in waits.flat_map(|thread| thread.timeline.waits()) {
            let by_others = !readers.contains(&wait.waker_tid);
            if wait.wake_context == WakeContext::Task && by_others && !takes_a_lock(model, wait) {
                *times.entry(wait.waker_tid).or_default() += 1;
            }
        }
        let answered = requests.iter().filter(|one| one.is_answered());
        for request in answered.filter(|one| !readers.contains(&one.send_tid)) {
            *times.entry(request.send_tid).or_default() += 1;
        }
        times.retain(|tid, times| {
            *times >= *EXECUTOR_MIN_JOBS
                && model.threads.contains_key(tid)
                && !reading.contains_key(tid)
        });
        times
    }

    fn of(
        facts: &Facts<'_>,
        readers: &BTreeSet<u32>,
        requests: &[RequestRef<'_>],
        tids: BTreeSet<u32>,
    ) -> Option<Self> {
        let (model, reading) = (facts.model, facts.readers());
        if tids.is_empty() {
            return None;
        }
        let answered = requests.iter().filter(|one| one.is_answered());
        let by_others = answered.clone();
        let by_others = by_others.filter(|one| !readers.contains(&one.send_tid));
        let mut workers = Self {
            hands: readers.union(&tids).copied().collect(),
            rests: BTreeSet::new(),
            answer: Share::counted(by_others.count(), answered.count()).is_at_least(*HANDED_ON),
            read: false,
            tids,
        };
        workers.add_alike(model, reading);
        workers.hands.extend(workers.tids.iter().copied());
        let threads = workers.threads(model);
        let waits = threads.flat_map(|thread| thread.timeline.waits());
        let waits = waits.filter(|wait| wait.user_stack != 0);
        let rests = waits.filter(|wait| workers.gets_a_job(model, wait));
        workers.rests = rests.map(place).collect();
        let loops: BTreeSet<u32> = workers
            .threads(model)
            .filter(|thread| workers.serves_several(model, thread))
            .map(|thread| thread.tid)
            .collect();
        workers.tids.retain(|tid| !loops.contains(tid));
        (!workers.tids.is_empty()).then_some(workers)
    }

    /// Whether a thread waits for whatever comes of several things at once when it does not rest: a
    /// loop, which may have any number of jobs in hand.
    fn serves_several(&self, model: &Model, thread: &Thread) -> bool {
        let waits = thread.timeline.waits().iter();
        let in_jobs = waits.filter(|wait| !self.rests(model, wait));
        let asleep_ns = |wait: &Wait| wait.woken_ns().saturating_sub(wait.out_ns);
        let polls = in_jobs.clone().filter(|wait| wait.epoll != 0);
        let in_poll_ns = sum(polls.map(asleep_ns));
        let asleep_in_jobs_ns = sum(in_jobs.map(asleep_ns));
        let used = model.cpu.threads.get(&(thread.tgid, thread.tid));
        let on_cpu_ns = used.map_or(0, |used| used.on_cpu_ns);
        let all_ns = asleep_in_jobs_ns.saturating_add(on_cpu_ns);
        in_poll_ns > 0 && Share::new(in_poll_ns, all_ns).is_at_least(*MOST)
    }

    /// Adds those of the same processes that sleep in the same work: whose jobs took so long that
    /// none was done.
    fn add_alike(&mut self, model: &Model, reading: &Readers<'_>) {
        let work = |thread: &Thread| -> Vec<SleepingPlace> {
            let waits = thread.timeline.waits().iter();
            let waits = waits.filter(|wait| wait.user_stack != 0);
            let waits = waits.filter(|wait| !self.gets_a_job(model, wait));
            waits.map(place).collect()
        };
        let known: BTreeSet<SleepingPlace> = self.threads(model).flat_map(work).collect();
        let processes: BTreeSet<u32> = self.threads(model).map(|thread| thread.tgid).collect();
        let others = model.threads.values().filter(|thread| {
            processes.contains(&thread.tgid)
                && !self.hands.contains(&thread.tid)
                && !reading.contains_key(&thread.tid)
        });
        let alike = others.filter(|thread| {
            let same = work(thread)
                .iter()
                .filter(|place| known.contains(place))
                .count();
            same >= *EXECUTOR_MIN_JOBS
        });
        let alike: Vec<u32> = alike.map(|thread| thread.tid).collect();
        self.tids.extend(alike);
    }

    fn threads<'m>(&self, model: &'m Model) -> impl Iterator<Item = &'m Thread> {
        self.tids.iter().filter_map(|tid| model.threads.get(tid))
    }

    /// Of the time in which they could run, that in which they had no CPU.
    fn without_cpu(&self, model: &Model) -> Share {
        let used = self.threads(model).filter_map(|thread| {
            let used = model.cpu.threads.get(&(thread.tgid, thread.tid))?;
            Some((used.on_cpu_ns, used.runnable_ns))
        });
        let (on_cpu_ns, without_ns) = used.fold((0_u64, 0_u64), |sum, one| {
            (sum.0.saturating_add(one.0), sum.1.saturating_add(one.1))
        });
        Share::new(without_ns, on_cpu_ns.saturating_add(without_ns))
    }

    /// Whether most requests that waited were done with others, without a sleep of the workers
    /// between them, in which one's job would have waited.
    fn done_together(&self, model: &Model, jobs: &[QueuedJob<'_>]) -> bool {
        let waits = self
            .threads(model)
            .flat_map(|thread| thread.timeline.waits());
        let slept = waits.filter(|wait| !takes_a_lock(model, wait));
        let mut slept: Vec<Ns> = slept.map(Wait::woken_ns).collect();
        slept.sort_unstable();
        let mut after: BTreeMap<usize, usize> = BTreeMap::new();
        let waited = jobs.iter().filter(|job| job.waited_ns >= *SLOW_NS);
        let done = waited.filter_map(|job| job.request.first_send_ns);
        for done_ns in done {
            let sleeps = slept.partition_point(|woken_ns| *woken_ns <= done_ns);
            *after.entry(sleeps).or_default() += 1;
        }
        let all: usize = after.values().sum();
        let together: usize = after.values().filter(|count| **count > 1).sum();
        Share::counted(together, all).exceeds(*MOST)
    }

    /// The lock of the interpreter that runs their code, if they were seen to wait for it.
    fn interpreters_lock(&self, model: &Model) -> Option<Primitive> {
        let threads = self.hands.iter().filter_map(|tid| model.threads.get(tid));
        let waits = threads.flat_map(|thread| thread.timeline.waits());
        let mut locks = waits.filter_map(|wait| model.primitive_of(wait));
        locks.find(|lock| lock.is_single())
    }

    /// Whether a sleep ended with a job: who hands them out ended it, and it was no lock.
    fn gets_a_job(&self, model: &Model, wait: &Wait) -> bool {
        wait.wake_context == WakeContext::Task
            && self.hands.contains(&wait.waker_tid)
            && !takes_a_lock(model, wait)
    }

    /// Whether a worker sleeps where it waits for its next job. Of a sleep without a stack only who
    /// ended it tells.
    fn rests(&self, model: &Model, wait: &Wait) -> bool {
        match wait.user_stack {
            0 => self.gets_a_job(model, wait),
            _ => self.rests.contains(&place(wait)),
        }
    }

    /// When a worker notices the end of the stream for which it works. While it sleeps it does not.
    fn notices(&self, model: &Model, tid: u32, ended_ns: Ns) -> Ns {
        let worker = self.tids.get(&tid).and_then(|tid| model.threads.get(tid));
        let sleeps = worker.map_or(&[][..], |worker| {
            worker
                .timeline
                .overlapping(ended_ns, ended_ns.saturating_add(1))
        });
        let sleeps = sleeps.iter().filter(|wait| !self.rests(model, wait));
        let until_ns = sleeps.map(|wait| wait.over_ns().unwrap_or(model.end_ns));
        until_ns.max().unwrap_or(ended_ns).max(ended_ns)
    }

    /// Whether the answers follow on jobs: the workers write them, or the sleep of who does so was
    /// ended by a worker. Of threads that poll another one may have been woken, and told it.
    fn answers_follow(
        &self,
        model: &Model,
        readers: &BTreeSet<u32>,
        requests: &[RequestRef<'_>],
    ) -> bool {
        if self.answer {
            return true;
        }
        let of = |tid: &u32| model.threads.get(tid);
        let readers: BTreeMap<u32, &Thread> = readers
            .iter()
            .filter_map(|tid| Some((*tid, of(tid)?)))
            .collect();
        let mut waits = readers.values().flat_map(|one| one.timeline.waits());
        let poll = waits.any(|wait| wait.epoll != 0);
        let (mut follow, mut all) = (0, 0);
        for request in requests {
            let slow = request.latency_ns().is_some_and(|ns| ns >= *SLOW_NS);
            let Some(at_ns) = request.first_send_ns.filter(|_| slow) else {
                continue;
            };
            all += 1;
            let since_ns = at_ns.saturating_sub(*EXECUTOR_ANSWERED_NS);
            let told = readers
                .iter()
                .filter(|(tid, _)| poll || **tid == request.send_tid);
            let mut woken = told.flat_map(|(_, one)| one.timeline.overlapping(since_ns, at_ns));
            follow += usize::from(woken.any(|wait| {
                wait.wake_context == WakeContext::Task
                    && self.tids.contains(&wait.waker_tid)
                    && wait.woken_ns() <= at_ns
            }));
        }
        Share::counted(follow, all).is_at_least(*EXECUTOR_ANSWERS)
    }
}

/// Whether a sleep was for a lock between threads: who ended it has done nobody's job.
fn takes_a_lock(model: &Model, wait: &Wait) -> bool {
    model.is_lock_wait(wait) || model.class_of(wait) == Some(WaitClass::Lock)
}

fn is_lock(model: &Model, wait: &Wait) -> bool {
    model.is_lock_wait(wait) || locks_a_file(wait)
}

fn place(wait: &Wait) -> SleepingPlace {
    (wait.syscall, wait.user_stack)
}

/// How many jobs and requests are under way when.
struct Load {
    at_a_time: usize,
    /// When a worker had a job, each by itself.
    busy: Vec<Interval>,
    /// When as many jobs as ever were under way, and more requests: in order.
    full: Vec<Interval>,
    /// … and how many requests were, and those of them that certainly had their job, apart where
    /// they are others.
    open: Vec<(Interval, usize, usize)>,
    full_ns: u64,
    open_ns: u64,
    /// Streams that go on may each have a worker meanwhile: never were fewer of them busy.
    keeps_streams: bool,
}

impl Load {
    fn of(model: &Model, workers: &Workers, given: &[Given<'_>]) -> Option<Self> {
        let busy: Vec<Interval> = workers
            .threads(model)
            .flat_map(|thread| with_jobs(model, workers, thread))
            .collect();
        let open = given.iter().map(|one| (one.read_ns, one.free_ns));
        let open: Vec<Interval> = open.collect();
        // Streams that go on.
        let going = given.iter().map(|one| (one.done_ns, one.free_ns));
        let going: Vec<Interval> = going.collect();
        let mut edges: Vec<(Ns, usize, i64)> = Vec::new();
        for (what, intervals) in [(0, &busy), (1, &open), (2, &going)] {
            for (from_ns, to_ns) in intervals.iter().filter(|one| one.0 < one.1) {
                edges.push((*from_ns, what, 1));
                edges.push((*to_ns, what, -1));
            }
        }
        edges.sort_unstable();
        // From when until when how many jobs, requests and streams were under way.
        let mut spans: Vec<(Interval, [usize; 3])> = Vec::new();
        let mut now = [0_i64; 3];
        for (at, (from_ns, what, change)) in edges.iter().enumerate() {
            now[*what] += change;
            if let Some((to_ns, ..)) = edges.get(at + 1).filter(|next| next.0 > *from_ns) {
                let count = now.map(|count| usize::try_from(count).unwrap_or(0));
                spans.push(((*from_ns, *to_ns), count));
            }
        }
        let length = |span: &(Interval, [usize; 3])| span.0.1 - span.0.0;
        let waiting = spans.iter().filter(|(_, [busy, open, _])| open > busy);
        let mut by_busy: BTreeMap<usize, u64> = BTreeMap::new();
        for span in waiting {
            *by_busy.entry(span.1[0]).or_default() += length(span);
        }
        let all = workers.tids.len();
        let going = spans.iter().filter(|(_, [_, _, going])| *going > 0);
        let going_ns = sum(going.clone().map(length));
        let kept = going.filter(|(_, [busy, _, going])| busy >= going.min(&all));
        let kept = Share::new(sum(kept.map(length)), going_ns);
        let all_ns = sum(by_busy.values().copied());
        let mut up_to_ns = 0;
        // For a moment there is one more: who hands over, and who takes over.
        let at_a_time = by_busy.iter().find_map(|(busy, ns)| {
            up_to_ns += ns;
            Share::new(up_to_ns, all_ns)
                .is_at_least(*NEARLY_ALL)
                .then_some(*busy)
        })?;
        let more = |open: usize| open > at_a_time;
        let is_full = |busy: usize| Share::counted(busy, at_a_time).is_at_least(*EXECUTOR_FULL);
        let waiting_ns = sum(spans.iter().filter(|span| more(span.1[1])).map(length));
        let full = spans
            .iter()
            .filter(|(_, [busy, open, _])| more(*open) && is_full(*busy));
        let full: Vec<_> = full.collect();
        let full_ns = sum(full.iter().map(|span| length(span)));
        if at_a_time == 0 || Share::new(full_ns, waiting_ns).is_below(*QUEUE_FULL) {
            return None;
        }
        let open_ns = full
            .iter()
            .map(|span| length(span).saturating_mul(span.1[1] as u64));
        Some(Self {
            at_a_time,
            full_ns,
            open_ns: sum(open_ns),
            open: full
                .iter()
                .map(|span| (span.0, span.1[1], span.1[2]))
                .collect(),
            full: merged(full.iter().map(|span| span.0).collect()),
            busy,
            keeps_streams: going_ns > 0 && kept.is_at_least(*NEARLY_ALL),
        })
    }
}

impl Load {
    /// What each request waited if all that are under way wait for as long: of so many, all but
    /// those whose jobs are under way. A stream that goes on does not wait.
    fn in_proportion<'m>(&self, given: &[Given<'m>]) -> Vec<QueuedJob<'m>> {
        let mut before_ns = 0_u64;
        let waited: Vec<(Interval, u64, u64)> = self
            .open
            .iter()
            .map(|(span, open, going)| {
                let others = open - going;
                let wait = in_proportion(
                    span.1 - span.0,
                    (open - self.at_a_time) as u64,
                    others as u64,
                );
                let so_far_ns = before_ns;
                before_ns = before_ns.saturating_add(wait);
                (*span, wait, so_far_ns)
            })
            .collect();
        let until = |at_ns: Ns| {
            let after = waited.partition_point(|(span, ..)| span.0 < at_ns);
            let Some((span, wait, so_far_ns)) = after.checked_sub(1).map(|last| waited[last])
            else {
                return 0;
            };
            let part_ns = at_ns.min(span.1) - span.0;
            so_far_ns.saturating_add(in_proportion(wait, part_ns, span.1 - span.0))
        };
        let mut open = BinaryHeap::new();
        let jobs = given.iter().map(|one| {
            let waited_ns = until(one.done_ns).saturating_sub(until(one.read_ns));
            QueuedJob::new(*one, waited_ns, &mut open)
        });
        jobs.collect()
    }
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

/// When a worker had a job: all the time in which it did not wait for one.
fn with_jobs(model: &Model, workers: &Workers, thread: &Thread) -> Vec<Interval> {
    let mut jobs = Vec::new();
    let mut at_ns = thread
        .started
        .map_or(model.meta.started_ns, |(at_ns, _)| at_ns);
    let rests = thread.timeline.waits().iter();
    for wait in rests.filter(|wait| workers.rests(model, wait)) {
        jobs.push((at_ns, wait.out_ns));
        at_ns = wait.over_ns().unwrap_or(model.end_ns).max(at_ns);
    }
    jobs.push((at_ns, thread.ended_ns.unwrap_or(model.end_ns)));
    jobs.retain(|job| job.0 < job.1);
    jobs
}

/// How many jobs are under way at a time, the jobs, and whether they begin in order.
type Taken<'m> = (Load, Vec<QueuedJob<'m>>, bool);

/// See [`Taken`]. Streams that go on keep workers, as far as that fits.
fn taken<'m>(model: &Model, workers: &Workers, given: &[Given<'m>]) -> Option<Taken<'m>> {
    let kept = Load::of(model, workers, given).filter(|load| load.keeps_streams);
    let kept = match kept.map(|load| (in_turn(given, load.at_a_time), load)) {
        Some((Some(jobs), load)) => return Some((load, jobs, true)),
        Some((None, load)) => Some(load),
        None => None,
    };
    let of_loop: Vec<Given<'_>> = given.iter().map(|one| one.of_loop()).collect();
    let load = Load::of(model, workers, &of_loop);
    match load.map(|load| (in_turn(&of_loop, load.at_a_time), load)) {
        Some((Some(jobs), load)) => Some((load, jobs, true)),
        other => {
            let (load, given) = match kept {
                Some(load) => (load, given),
                None => (other?.1, &of_loop[..]),
            };
            let jobs = load.in_proportion(given);
            Some((load, jobs, false))
        }
    }
}

/// Workers that read requests are what unread ones wait for, too, if most of the time is waited by
/// those that were read. Else nobody may have polled: that is no matter of jobs.
fn with_unread<'m>(
    model: &Model,
    workers: &Workers,
    given: &[Given<'m>],
    read: Taken<'m>,
) -> Taken<'m> {
    let waited_ns = |taken: &Taken<'_>| sum(taken.1.iter().map(|job| job.waited_ns));
    let mut came: Vec<Given<'_>> = given.iter().map(|one| one.since_it_came()).collect();
    came.sort_by_key(|one| one.read_ns);
    match taken(model, workers, &came) {
        Some(all) if Share::new(waited_ns(&read), waited_ns(&all)).is_at_least(*MOST) => all,
        _ => read,
    }
}

/// When the job of each request began, in the order in which they were read; `None`: they are not
/// done in that order, for some were done before their turn.
fn in_turn<'m>(given: &[Given<'m>], at_a_time: usize) -> Option<Vec<QueuedJob<'m>>> {
    let mut free: BinaryHeap<Reverse<Ns>> = BinaryHeap::new();
    let mut open: BinaryHeap<Reverse<Ns>> = BinaryHeap::new();
    let mut jobs = Vec::new();
    let mut in_turn = 0;
    for one in given {
        let read_ns = one.read_ns;
        let turn_ns = match free.len() < at_a_time {
            true => read_ns,
            false => free.pop().map_or(read_ns, |Reverse(ns)| ns.max(read_ns)),
        };
        in_turn += usize::from(turn_ns <= one.done_ns);
        free.push(Reverse(one.free_ns.max(turn_ns)));
        let waited_ns = turn_ns.min(one.done_ns) - read_ns;
        jobs.push(QueuedJob::new(*one, waited_ns, &mut open));
    }
    Share::counted(in_turn, jobs.len())
        .is_at_least(*QUEUE_PAIRED)
        .then_some(jobs)
}
