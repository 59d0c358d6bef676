//! The replay itself: events in order of time, queues and locks in order of arrival.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};

use whywait_events::Ns;

use super::schedule::{Change, Group, Job, Schedule, What};

impl Schedule {
    /// How much earlier each job would be answered at most, nanoseconds: never more than it took.
    ///
    /// Queues are replayed in order of arrival. Where the recorded order was another one, nothing
    /// becomes later than it was: of both replays the better one counts.
    pub(crate) fn savings(&self, change: Change) -> Vec<u64> {
        let in_order = Replay::new(self, change, false).run();
        let as_recorded = Replay::new(self, change, true).run();
        let own_ns = |job: &Job| match change {
            Change::Without | Change::Unlocked(_) => job.gone_ns(),
            _ => 0,
        };
        self.jobs
            .iter()
            .zip(in_order.into_iter().zip(as_recorded))
            .map(|(job, (one, other))| {
                let latency_ns = one.into_iter().chain(other).min();
                let saved_ns = latency_ns.map_or(0, |ns| job.latency_ns().saturating_sub(ns));
                saved_ns.max(own_ns(job)).min(job.latency_ns())
            })
            .collect()
    }

    /// How long each job is under way, from its arrival to its answer, nanoseconds; `None`: it
    /// waits for something that does not come.
    pub(crate) fn latencies(&self, change: Change) -> Vec<Option<u64>> {
        Replay::new(self, change, false).run()
    }

    /// When each job is taken for the first time; `None`: never.
    pub(crate) fn taken(&self, change: Change) -> Vec<Option<Ns>> {
        let mut replay = Replay::new(self, change, false);
        replay.go_through();
        replay.states.iter().map(|state| state.taken_ns).collect()
    }
}

/// What happens next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// A server becomes available.
    Free(usize),
    /// A job comes.
    Comes(usize),
    /// A job goes on with its next step.
    Goes(usize),
    /// A job that has waited so often, and still waits, waits no longer: in the recording it had
    /// not either.
    NoLater(usize, u32),
}

/// How far a job is.
#[derive(Debug, Clone, Copy, Default)]
struct State {
    /// The next step.
    step: usize,
    ready_ns: Ns,
    taken_ns: Option<Ns>,
    answered_ns: Option<Ns>,
    /// How often it has begun to wait; what refers to a wait before is out of date.
    waits: u32,
    waiting: bool,
    has_server: bool,
}

/// A lock: who has it, and who waits for it.
#[derive(Debug, Default)]
struct Lock {
    holder: Option<usize>,
    queue: VecDeque<(usize, u32)>,
}

/// A group's servers that are free, and who waits for them.
#[derive(Debug, Default)]
struct Queue {
    /// Below 0: jobs were taken because they had been taken by then.
    free: i64,
    queue: VecDeque<(usize, u32)>,
}

struct Replay<'a> {
    schedule: &'a Schedule,
    change: Change,
    /// Nothing waits for longer than it did.
    no_later: bool,
    now_ns: Ns,
    count: u64,
    events: BinaryHeap<Reverse<(Ns, bool, u64, Event)>>,
    states: Vec<State>,
    queues: Vec<Queue>,
    locks: HashMap<usize, Lock>,
    brought: HashMap<usize, bool>,
    awaiting: HashMap<usize, Vec<(usize, u32)>>,
    followers: Vec<Vec<usize>>,
}

impl<'a> Replay<'a> {
    fn new(schedule: &'a Schedule, change: Change, no_later: bool) -> Self {
        let mut replay = Self {
            schedule,
            change,
            no_later,
            now_ns: 0,
            count: 0,
            events: BinaryHeap::new(),
            states: vec![State::default(); schedule.jobs.len()],
            queues: Vec::new(),
            locks: HashMap::new(),
            brought: HashMap::new(),
            awaiting: HashMap::new(),
            followers: vec![Vec::new(); schedule.jobs.len()],
        };
        for (at, group) in schedule.groups.iter().enumerate() {
            replay.queues.push(Queue::default());
            replay.opens(at, group);
        }
        for (at, job) in schedule.jobs.iter().enumerate() {
            match job.follows.filter(|before| *before < at) {
                Some(before) => replay.followers[before].push(at),
                None => replay.at(job.ready_ns, Event::Comes(at)),
            }
        }
        replay
    }

    fn opens(&mut self, at: usize, group: &Group) {
        for free_ns in group.free_ns.iter().filter(|ns| **ns < Ns::MAX) {
            self.at(*free_ns, Event::Free(at));
        }
        if let Change::MoreServers(more) = self.change {
            for _ in 0..more {
                self.at(0, Event::Free(at));
            }
        }
    }

    fn at(&mut self, at_ns: Ns, event: Event) {
        self.count += 1;
        // Whoever gets what it waits for at the time at which it had it has not waited for longer.
        let last = matches!(event, Event::NoLater(..));
        self.events.push(Reverse((at_ns, last, self.count, event)));
    }

    fn run(mut self) -> Vec<Option<u64>> {
        self.go_through();
        let latency_ns = |state: &State| Some(state.answered_ns?.saturating_sub(state.ready_ns));
        self.states.iter().map(latency_ns).collect()
    }

    fn go_through(&mut self) {
        while let Some(Reverse((at_ns, .., event))) = self.events.pop() {
            self.now_ns = at_ns;
            match event {
                Event::Free(group) => {
                    self.queues[group].free += 1;
                    self.serve(group);
                }
                Event::Comes(job) => {
                    self.states[job].ready_ns = at_ns;
                    self.queue_up(job);
                }
                Event::Goes(job) => self.go_on(job),
                Event::NoLater(job, waits) => {
                    if self.states[job].waiting && self.states[job].waits == waits {
                        self.gets_on(job);
                    }
                }
            }
        }
    }

    /// The group whose servers a job needs.
    fn group_of(&self, job: usize) -> Option<usize> {
        let group = self.schedule.jobs[job].group;
        group.filter(|group| *group < self.queues.len())
    }

    /// When the next step of a job began in the recording.
    fn recorded_ns(&self, job: usize) -> Ns {
        let steps = &self.schedule.jobs[job].steps;
        let step = steps.get(self.states[job].step);
        step.map_or(Ns::MAX, |step| step.at_ns)
    }

    /// A job waits; returns what refers to that wait.
    fn waits(&mut self, job: usize) -> (usize, u32) {
        let recorded_ns = self.recorded_ns(job);
        let state = &mut self.states[job];
        state.waiting = true;
        state.waits += 1;
        let wait = (job, state.waits);
        if self.no_later && recorded_ns < Ns::MAX {
            self.at(recorded_ns.max(self.now_ns), Event::NoLater(wait.0, wait.1));
        }
        wait
    }

    fn still_waits(&self, (job, waits): (usize, u32)) -> bool {
        self.states[job].waiting && self.states[job].waits == waits
    }

    /// What a job waited for is there, or it does not wait for it any longer.
    fn gets_on(&mut self, job: usize) {
        let state = &mut self.states[job];
        state.waiting = false;
        if state.has_server || self.group_of(job).is_none() {
            // It waited for a lock or an event.
            self.at(self.now_ns, Event::Goes(job));
        } else {
            self.takes(job);
        }
    }

    /// A job queues for a server.
    fn queue_up(&mut self, job: usize) {
        let Some(group) = self.group_of(job) else {
            self.states[job].taken_ns.get_or_insert(self.now_ns);
            self.at(self.now_ns, Event::Goes(job));
            return;
        };
        let wait = self.waits(job);
        self.queues[group].queue.push_back(wait);
        self.serve(group);
    }

    /// Free servers take what waits.
    fn serve(&mut self, group: usize) {
        while self.queues[group].free > 0 {
            let Some(wait) = self.queues[group].queue.pop_front() else {
                return;
            };
            if self.still_waits(wait) {
                self.states[wait.0].waiting = false;
                self.takes(wait.0);
            }
        }
    }

    /// A server takes a job.
    fn takes(&mut self, job: usize) {
        if let Some(group) = self.group_of(job) {
            self.queues[group].free -= 1;
        }
        let state = &mut self.states[job];
        state.has_server = true;
        state.taken_ns.get_or_insert(self.now_ns);
        self.at(self.now_ns, Event::Goes(job));
    }

    fn leaves_server(&mut self, job: usize) {
        if std::mem::take(&mut self.states[job].has_server)
            && let Some(group) = self.group_of(job)
        {
            self.at(self.now_ns, Event::Free(group));
        }
    }

    /// A job goes through its steps until one takes time.
    fn go_on(&mut self, job: usize) {
        loop {
            let steps = &self.schedule.jobs[job].steps;
            let Some(step) = steps.get(self.states[job].step).copied() else {
                self.leaves_server(job);
                return;
            };
            match step.what {
                What::Work(time) => {
                    self.states[job].step += 1;
                    let ns = match self.change {
                        Change::Without | Change::Unlocked(_) => time.left_ns(),
                        _ => time.ns,
                    };
                    self.at(self.now_ns.saturating_add(ns), Event::Goes(job));
                    return;
                }
                What::Lock(lock) if self.change != Change::Unlocked(lock) => {
                    self.states[job].step += 1;
                    if !self.gets_lock(job, lock) {
                        return;
                    }
                }
                What::Until(event) => {
                    self.states[job].step += 1;
                    if !self.brought.get(&event).copied().unwrap_or(false) {
                        let wait = self.waits(job);
                        self.awaiting.entry(event).or_default().push(wait);
                        return;
                    }
                }
                What::Unlock(lock) => {
                    self.states[job].step += 1;
                    self.lets_go(job, lock);
                }
                What::Brings(event) => {
                    self.states[job].step += 1;
                    self.brought.insert(event, true);
                    for wait in self.awaiting.remove(&event).unwrap_or_default() {
                        if self.still_waits(wait) {
                            self.gets_on(wait.0);
                        }
                    }
                }
                What::Lock(_) => self.states[job].step += 1,
                What::Answer => {
                    self.states[job].step += 1;
                    self.answers(job);
                }
            }
        }
    }

    /// Whether a job has a lock now; otherwise it waits for it.
    fn gets_lock(&mut self, job: usize, lock: usize) -> bool {
        let state = self.locks.entry(lock).or_default();
        if state.holder.is_none() {
            state.holder = Some(job);
            return true;
        }
        let wait = self.waits(job);
        self.locks.entry(lock).or_default().queue.push_back(wait);
        false
    }

    /// A job lets a lock go, and the next one has it. Of those that had it at the same time,
    /// because they had had it by then in the recording, the first one's counts.
    fn lets_go(&mut self, job: usize, lock: usize) {
        let Some(state) = self.locks.get_mut(&lock) else {
            return;
        };
        if state.holder != Some(job) {
            return;
        }
        state.holder = None;
        while let Some(state) = self.locks.get_mut(&lock) {
            let Some(wait) = state.queue.pop_front() else {
                return;
            };
            if self.still_waits(wait) {
                if let Some(state) = self.locks.get_mut(&lock) {
                    state.holder = Some(wait.0);
                }
                self.gets_on(wait.0);
                return;
            }
        }
    }

    fn answers(&mut self, job: usize) {
        self.states[job].answered_ns.get_or_insert(self.now_ns);
        for follower in std::mem::take(&mut self.followers[job]) {
            let jobs = &self.schedule.jobs;
            let pause_ns = jobs[follower]
                .ready_ns
                .saturating_sub(jobs[job].answered_ns);
            let comes_ns = self.now_ns.saturating_add(pause_ns);
            self.at(comes_ns, Event::Comes(follower));
        }
    }
}
