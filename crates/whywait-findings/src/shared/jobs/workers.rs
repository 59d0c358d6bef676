//! Who does jobs of requests, and where they wait for the next one.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use whywait_events::{Ns, StackId, Wait, WakeContext};
use whywait_model::waits::Primitive;
use whywait_model::{
    Model, RequestRef, Role, SystemCall, Thread, WaitClass, system_call, system_call_name,
};

use super::QueuedJob;
use crate::facts::{Facts, Readers};
use crate::numbers::{
    EXECUTOR_ANSWERED_NS, EXECUTOR_ANSWERS, EXECUTOR_JOBS_A_SLEEP, EXECUTOR_MIN_JOBS, HANDED_ON,
    MOST, SLOW_NS, Share,
};
use crate::shared::intervals::{Interval, sum};
use crate::shared::reasons::locks_a_file;

/// Where a thread sleeps: the same place has the same call and the same stack.
pub(super) type SleepingPlace = (Option<u32>, StackId);

/// Who does the jobs, and where they wait for the next one.
pub(super) struct Workers {
    pub(super) tids: BTreeSet<u32>,
    pub(super) rests: BTreeSet<SleepingPlace>,
    /// Who hands jobs out: those who read requests, and the workers themselves.
    hands: BTreeSet<u32>,
    /// Who tells readers what workers have told them: they do no jobs.
    relays: BTreeSet<u32>,
    /// The workers write the answers.
    answer: bool,
    /// They read the requests, too: those wait for a worker since they came.
    pub(super) read: bool,
}

impl Workers {
    /// All who may do the jobs together. Then, if their names say that they are of several kinds,
    /// each kind by itself that was seen to be handed some: a runtime has threads that work for
    /// readers without having their jobs (a JVM's compilers).
    pub(super) fn crews(
        facts: &Facts<'_>,
        readers: &BTreeSet<u32>,
        requests: &[RequestRef<'_>],
    ) -> Vec<Self> {
        let mut known = Self::known(facts, readers, requests);
        let relays = without_relays(facts, readers, &mut known);
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
        let of = |tids| Self::of(facts, readers, requests, (tids, &relays));
        let kinds = kinds.filter_map(|(_, tids)| of(tids));
        let crews = of(all).into_iter();
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
            relays: BTreeSet::new(),
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

    /// Who ends sleeps of the readers or answers their requests, and how often. Not who accepts
    /// their connections, and hands them those.
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
                && !reading.contains_key(tid)
                && model.threads.get(tid).is_some_and(|one| !accepts(one))
        });
        times
    }

    fn of(
        facts: &Facts<'_>,
        readers: &BTreeSet<u32>,
        requests: &[RequestRef<'_>],
        (tids, relays): (BTreeSet<u32>, &BTreeSet<u32>),
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
            relays: relays.clone(),
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

    pub(super) fn threads<'m>(&self, model: &'m Model) -> impl Iterator<Item = &'m Thread> {
        self.tids.iter().filter_map(|tid| model.threads.get(tid))
    }

    /// Of the time in which they could run, that in which they had no CPU.
    pub(super) fn without_cpu(&self, model: &Model) -> Share {
        let used = self.threads(model).filter_map(|thread| {
            let used = model.cpu.threads.get(&(thread.tgid, thread.tid))?;
            Some((used.on_cpu_ns, used.runnable_ns))
        });
        let (on_cpu_ns, without_ns) = used.fold((0_u64, 0_u64), |sum, one| {
            (sum.0.saturating_add(one.0), sum.1.saturating_add(one.1))
        });
        Share::new(without_ns, on_cpu_ns.saturating_add(without_ns))
    }

    /// Whether most requests that waited were told all at once: they were done with others, without
    /// a sleep of the workers between them, in which one's job would have waited. Of a queue that
    /// many are done side by side as jobs are under way, each may be followed by one that does not
    /// sleep, and they are answered together when their reader has a CPU; the others stay open.
    pub(super) fn done_together(
        &self,
        model: &Model,
        jobs: &[QueuedJob<'_>],
        at_a_time: usize,
    ) -> bool {
        let waits = self
            .threads(model)
            .flat_map(|thread| thread.timeline.waits());
        let slept = waits.filter(|wait| !takes_a_lock(model, wait));
        let mut slept: Vec<Ns> = slept.map(Wait::woken_ns).collect();
        slept.sort_unstable();
        let mut read: Vec<Ns> = jobs.iter().map(|job| job.worked.ready_ns).collect();
        read.sort_unstable();
        let mut done: Vec<Ns> = jobs.iter().map(|job| job.worked.answered_ns).collect();
        done.sort_unstable();
        let open = |at_ns: Ns| {
            let before = |all: &[Ns]| all.partition_point(|one| *one < at_ns);
            before(&read).saturating_sub(before(&done))
        };
        // From when on how many were done after so many sleeps.
        let mut after: BTreeMap<usize, (Ns, usize)> = BTreeMap::new();
        let waited = jobs.iter().filter(|job| job.waited_ns >= *SLOW_NS);
        for done_ns in waited.filter_map(|job| job.request.first_send_ns) {
            let sleeps = slept.partition_point(|woken_ns| *woken_ns <= done_ns);
            let (from_ns, count) = after.entry(sleeps).or_insert((done_ns, 0));
            *from_ns = done_ns.min(*from_ns);
            *count += 1;
        }
        let all: usize = after.values().map(|(_, count)| count).sum();
        let told = after.into_values().filter(|(from_ns, count)| {
            let most_of_all = || Share::counted(*count, open(*from_ns)).exceeds(*MOST);
            *count > *EXECUTOR_JOBS_A_SLEEP * at_a_time || *count > at_a_time && most_of_all()
        });
        Share::counted(told.map(|(_, count)| count).sum(), all).exceeds(*MOST)
    }

    /// The lock of the interpreter that runs their code, if they were seen to wait for it.
    pub(super) fn interpreters_lock(&self, model: &Model) -> Option<Primitive> {
        let threads = self.hands.iter().filter_map(|tid| model.threads.get(tid));
        let waits = threads.flat_map(|thread| thread.timeline.waits());
        let mut locks = waits.filter_map(|wait| model.primitive_of(wait));
        locks.find(|lock| lock.is_interpreters())
    }

    /// Whether a sleep ended with a job: who hands them out ended it, and it was no lock.
    fn gets_a_job(&self, model: &Model, wait: &Wait) -> bool {
        wait.wake_context == WakeContext::Task
            && self.hands.contains(&wait.waker_tid)
            && !takes_a_lock(model, wait)
    }

    /// Threads by the queue at which they wait for jobs: those that were seen to wait at one futex
    /// word have the same. Who was not seen to, as it has a word of its own, is not in it.
    pub(super) fn queues(&self, model: &Model) -> BTreeMap<u32, u32> {
        let processes: BTreeSet<u32> = self.threads(model).map(|thread| thread.tgid).collect();
        let threads = model.threads.values();
        let threads = threads.filter(|thread| processes.contains(&thread.tgid));
        let waits = threads.flat_map(|thread| thread.timeline.waits());
        let mut at_word: BTreeMap<(u32, u64), BTreeSet<u32>> = BTreeMap::new();
        for wait in waits.filter(|wait| system_call(wait) == SystemCall::Futex) {
            if self.gets_a_job(model, wait) {
                let word = (wait.tgid, wait.args[0]);
                at_word.entry(word).or_default().insert(wait.tid);
            }
        }
        // Each queue is named by one of its threads.
        let mut queues: BTreeMap<u32, u32> = BTreeMap::new();
        for together in at_word.into_values().filter(|tids| tids.len() > 1) {
            let known = together.iter().filter_map(|tid| queues.get(tid));
            let known: BTreeSet<u32> = known.copied().collect();
            let Some(name) = known.first().or(together.first()).copied() else {
                continue;
            };
            for queue in queues.values_mut().filter(|queue| known.contains(queue)) {
                *queue = name;
            }
            queues.extend(together.into_iter().map(|tid| (tid, name)));
        }
        queues
    }

    /// Whether a worker sleeps where it waits for its next job. Of a sleep without a stack only who
    /// ended it tells.
    pub(super) fn rests(&self, model: &Model, wait: &Wait) -> bool {
        match wait.user_stack {
            0 => self.gets_a_job(model, wait),
            _ => self.rests.contains(&place(wait)),
        }
    }

    /// When a worker notices the end of the stream for which it works. While it sleeps it does not.
    pub(super) fn notices(&self, model: &Model, tid: u32, ended_ns: Ns) -> Ns {
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
    pub(super) fn answers_follow(
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
                    && (self.tids.contains(&wait.waker_tid)
                        || self.relays.contains(&wait.waker_tid))
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

pub(super) fn is_lock(model: &Model, wait: &Wait) -> bool {
    model.is_lock_wait(wait) || locks_a_file(wait)
}

/// Takes out who only tells readers what others have told it, as a thread does that takes the
/// answers of a helper process for all: who told it has the jobs. Whom a worker asks for its jobs'
/// sake tells it something, too, but that is an answer.
fn without_relays(
    facts: &Facts<'_>,
    readers: &BTreeSet<u32>,
    known: &mut BTreeMap<u32, usize>,
) -> BTreeSet<u32> {
    let (model, reading) = (facts.model, facts.readers());
    let mut relays = BTreeSet::new();
    for tid in known.keys().copied().collect::<Vec<u32>>() {
        let waits = model.threads.get(&tid).into_iter();
        let waits = waits.flat_map(|thread| thread.timeline.waits());
        let mut told: BTreeMap<u32, usize> = BTreeMap::new();
        let (mut by_others_ns, mut all_ns, mut handed) = (0_u64, 0_u64, 0);
        for wait in waits.filter(|wait| !takes_a_lock(model, wait)) {
            let slept_ns = wait.woken_ns().saturating_sub(wait.out_ns);
            all_ns = all_ns.saturating_add(slept_ns);
            let (waker, by_task) = (wait.waker_tid, wait.wake_context == WakeContext::Task);
            let of_target = by_task && model.threads.contains_key(&waker);
            if of_target && readers.contains(&waker) {
                handed += 1;
            } else if of_target && !reading.contains_key(&waker) && !known.contains_key(&waker) {
                by_others_ns = by_others_ns.saturating_add(slept_ns);
                *told.entry(waker).or_default() += 1;
            }
        }
        told.retain(|teller, times| *times >= *EXECUTOR_MIN_JOBS && !is_asked(model, *teller, tid));
        let is_told = Share::new(by_others_ns, all_ns).exceeds(*MOST);
        if handed < *EXECUTOR_MIN_JOBS && is_told && !told.is_empty() {
            relays.insert(tid);
            known.remove(&tid);
            for (teller, times) in told {
                *known.entry(teller).or_default() += times;
            }
        }
    }
    relays
}

/// Whether a thread was given something to do by that other one, again and again.
fn is_asked(model: &Model, tid: u32, by: u32) -> bool {
    let thread = model.threads.get(&tid);
    let waits = thread.map_or(&[][..], |thread| thread.timeline.waits());
    let asked = waits.iter().filter(|wait| {
        let by_it = wait.wake_context == WakeContext::Task && wait.waker_tid == by;
        by_it && !takes_a_lock(model, wait)
    });
    asked.count() >= *EXECUTOR_MIN_JOBS
}

/// Whether a thread is there to accept connections: most of its sleep is for the next one.
fn accepts(thread: &Thread) -> bool {
    let waits = thread.timeline.waits().iter();
    let asleep_ns = |wait: &Wait| wait.woken_ns().saturating_sub(wait.out_ns);
    let accepts = waits
        .clone()
        .filter(|wait| system_call_name(wait).starts_with("accept"));
    let accepts_ns = sum(accepts.map(asleep_ns));
    accepts_ns > 0 && Share::new(accepts_ns, sum(waits.map(asleep_ns))).is_at_least(*MOST)
}

fn place(wait: &Wait) -> SleepingPlace {
    (wait.syscall, wait.user_stack)
}

/// When a worker had a job: all the time in which it did not wait for one.
pub(super) fn with_jobs(model: &Model, workers: &Workers, thread: &Thread) -> Vec<Interval> {
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
