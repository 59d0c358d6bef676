//! The replay itself: events in order of time, queues in order of arrival.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap, HashSet, VecDeque};

use whywait_events::Ns;

use crate::relaxation::Relaxation;
use crate::schedule::{Schedule, Step, What};

/// What became of a work in a replay.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Replayed {
    /// When it came.
    pub ready_ns: Ns,
    /// When it had the first resource that it asked for; `None`: never, or it asked for none.
    pub taken_ns: Option<Ns>,
    /// When it was answered; `None`: it waits for something that does not come.
    pub answered_ns: Option<Ns>,
}

impl Replayed {
    /// From its arrival to its answer, nanoseconds.
    pub fn latency_ns(&self) -> Option<u64> {
        Some(self.answered_ns?.saturating_sub(self.ready_ns))
    }
}

impl Schedule {
    /// What would have become of each work, with queues in order of arrival. It says nothing of a
    /// change unless what was recorded comes out without one: see [`Reproduced`].
    pub fn replay(&self, relaxation: &Relaxation) -> Vec<Replayed> {
        Replay::new(self, relaxation, false).run()
    }

    /// The same with queues in the recorded order, in which nothing waits for longer than it did.
    pub(crate) fn replay_as_recorded(&self, relaxation: &Relaxation) -> Vec<Replayed> {
        Replay::new(self, relaxation, true).run()
    }
}

/// What happens next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// A slot of a resource can be had.
    Opens(usize),
    /// A work comes.
    Comes(usize),
    /// A work goes on with its next step.
    Goes(usize),
    /// A work that has waited so often, and still waits, waits no longer: in the recording it had
    /// not either.
    NoLater(usize, u32),
}

/// How far a work is.
#[derive(Debug, Clone, Default)]
struct State {
    /// The next step.
    step: usize,
    replayed: Replayed,
    /// How often it has begun to wait; what refers to a wait before is out of date.
    waits: u32,
    waits_for: Option<WaitsFor>,
    has: Vec<usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WaitsFor {
    Slot(usize),
    Event,
}

/// A resource's slots that are free, and who waits for them.
#[derive(Debug, Default)]
struct Slots {
    /// Below 0: some were taken because they had been taken by then.
    free: i64,
    unlimited: bool,
    queue: VecDeque<(usize, u32)>,
}

/// In which order events at the same time happen: a grant at the recorded instant is not late.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Turn(u64);

impl Turn {
    const LAST: u64 = 1 << 63;
}

struct Replay<'a> {
    schedule: &'a Schedule,
    relaxation: &'a Relaxation,
    /// Queues are served in the recorded order, and nothing waits for longer than it did.
    as_recorded: bool,
    now_ns: Ns,
    /// What is known from the beginning, the last first: many times as much as what arises.
    known: Vec<(Ns, Event)>,
    count: u64,
    /// What arises.
    events: BinaryHeap<Reverse<(Ns, Turn, Event)>>,
    states: Vec<State>,
    slots: Vec<Slots>,
    brought: HashSet<usize>,
    awaiting: HashMap<usize, Vec<(usize, u32)>>,
    /// By work: those that come some time after its answer.
    followers: BTreeMap<usize, Vec<usize>>,
}

impl<'a> Replay<'a> {
    fn new(schedule: &'a Schedule, relaxation: &'a Relaxation, as_recorded: bool) -> Self {
        let mut replay = Self {
            schedule,
            relaxation,
            as_recorded,
            now_ns: 0,
            known: Vec::with_capacity(schedule.works.len()),
            count: 0,
            events: BinaryHeap::new(),
            states: vec![State::default(); schedule.works.len()],
            slots: Vec::new(),
            brought: HashSet::new(),
            awaiting: HashMap::new(),
            followers: BTreeMap::new(),
        };
        for at in 0..schedule.resources.len() {
            replay.opens(at);
        }
        for (at, work) in schedule.works.iter().enumerate() {
            match work.follows.filter(|before| *before < at) {
                Some(before) => replay.followers.entry(before).or_default().push(at),
                None => replay.known.push((work.ready_ns, Event::Comes(at))),
            }
        }
        // Stable: at the same time slots open before works come, and these come in their order.
        replay.known.sort_by_key(|(at_ns, _)| *at_ns);
        replay.known.reverse();
        replay
    }

    fn opens(&mut self, resource: usize) {
        let more = self.relaxation.slots(resource);
        self.slots.push(Slots {
            unlimited: more.is_none(),
            ..Slots::default()
        });
        let slots = &self.schedule.resources[resource].slots;
        let open = slots.iter().copied().filter(|ns| *ns < Ns::MAX);
        let more = std::iter::repeat_n(0, more.unwrap_or(0));
        self.known
            .extend(open.chain(more).map(|ns| (ns, Event::Opens(resource))));
    }

    fn at(&mut self, at_ns: Ns, event: Event) {
        self.count += 1;
        let turn = match event {
            Event::NoLater(..) => Turn(Turn::LAST | self.count),
            _ => Turn(self.count),
        };
        self.events.push(Reverse((at_ns, turn, event)));
    }

    /// What happens next, and when. What was known before comes before what arises.
    fn next_event(&mut self) -> Option<(Ns, Event)> {
        let arises_ns = self.events.peek().map(|Reverse((at_ns, ..))| *at_ns);
        match self.known.last() {
            Some((at_ns, _)) if arises_ns.is_none_or(|ns| *at_ns <= ns) => self.known.pop(),
            _ => self
                .events
                .pop()
                .map(|Reverse((at_ns, _, event))| (at_ns, event)),
        }
    }

    fn run(mut self) -> Vec<Replayed> {
        while let Some((at_ns, event)) = self.next_event() {
            self.now_ns = at_ns;
            match event {
                Event::Opens(resource) => self.gives_back(resource),
                Event::Comes(work) => {
                    self.states[work].replayed.ready_ns = at_ns;
                    self.go_on(work);
                }
                Event::Goes(work) => self.go_on(work),
                Event::NoLater(work, waits) => {
                    if self.still_waits((work, waits)) {
                        self.gets_on(work);
                    }
                }
            }
        }
        self.states
            .into_iter()
            .map(|state| state.replayed)
            .collect()
    }

    fn next_step(&self, work: usize) -> Option<Step> {
        let steps = &self.schedule.works[work].steps;
        steps.get(self.states[work].step).copied()
    }

    /// A work waits; returns what refers to that wait.
    fn waits(&mut self, work: usize, waits_for: WaitsFor) -> (usize, u32) {
        // When the step after the wait began in the recording.
        let recorded_ns = self.next_step(work).map_or(Ns::MAX, |step| step.at_ns);
        let state = &mut self.states[work];
        state.waits_for = Some(waits_for);
        state.waits += 1;
        let wait = (work, state.waits);
        if self.as_recorded && recorded_ns < Ns::MAX {
            self.at(recorded_ns.max(self.now_ns), Event::NoLater(wait.0, wait.1));
        }
        wait
    }

    fn still_waits(&self, (work, waits): (usize, u32)) -> bool {
        let state = &self.states[work];
        state.waits_for.is_some() && state.waits == waits
    }

    /// What a work waited for is there, or it waits no longer than it did.
    fn gets_on(&mut self, work: usize) {
        if let Some(WaitsFor::Slot(resource)) = self.states[work].waits_for.take() {
            self.has_slot(work, resource);
        }
        self.at(self.now_ns, Event::Goes(work));
    }

    fn has_slot(&mut self, work: usize, resource: usize) {
        self.slots[resource].free -= 1;
        let state = &mut self.states[work];
        state.has.push(resource);
        state.replayed.taken_ns.get_or_insert(self.now_ns);
    }

    /// A slot is free: whoever has waited for longest has it.
    fn gives_back(&mut self, resource: usize) {
        self.slots[resource].free += 1;
        while self.slots[resource].free > 0 {
            let Some(wait) = self.next_in_queue(resource) else {
                return;
            };
            if self.still_waits(wait) {
                self.gets_on(wait.0);
            }
        }
    }

    /// Who has waited for longest; or, in the recorded order, had it first of those who wait.
    fn next_in_queue(&mut self, resource: usize) -> Option<(usize, u32)> {
        if !self.as_recorded {
            return self.slots[resource].queue.pop_front();
        }
        let mut queue = std::mem::take(&mut self.slots[resource].queue);
        // Else those who no longer wait would be looked at each time.
        queue.retain(|wait| self.still_waits(*wait));
        let had_ns = |(work, _): &(usize, u32)| self.next_step(*work).map(|step| step.at_ns);
        let waiting = queue.iter().enumerate();
        let next = waiting.min_by_key(|(at, wait)| (had_ns(wait), *at));
        let at = next.map(|(at, _)| at);
        let next = at.and_then(|at| queue.remove(at));
        self.slots[resource].queue = queue;
        next
    }

    fn frees(&mut self, work: usize, resource: usize) {
        let has = &mut self.states[work].has;
        if let Some(at) = has.iter().position(|one| *one == resource) {
            has.swap_remove(at);
            self.gives_back(resource);
        }
    }

    /// A work goes through its steps until one takes time.
    fn go_on(&mut self, work: usize) {
        while let Some(step) = self.next_step(work) {
            self.states[work].step += 1;
            match step.what {
                What::Spends { ns, cause } => {
                    let left_ns = self.relaxation.left_ns(ns, cause);
                    self.at(self.now_ns.saturating_add(left_ns), Event::Goes(work));
                    return;
                }
                What::Takes(resource) => {
                    if !self.takes(work, resource) {
                        return;
                    }
                }
                What::Frees(resource) => self.frees(work, resource),
                What::Until(event) => {
                    if !self.brought.contains(&event) {
                        let wait = self.waits(work, WaitsFor::Event);
                        self.awaiting.entry(event).or_default().push(wait);
                        return;
                    }
                }
                What::Brings(event) => {
                    self.brought.insert(event);
                    for wait in self.awaiting.remove(&event).unwrap_or_default() {
                        if self.still_waits(wait) {
                            self.gets_on(wait.0);
                        }
                    }
                }
                What::Answers => self.answers(work),
            }
        }
        for resource in std::mem::take(&mut self.states[work].has) {
            self.gives_back(resource);
        }
    }

    /// Whether a work has a slot of a resource now; otherwise it waits for one.
    fn takes(&mut self, work: usize, resource: usize) -> bool {
        let Some(slots) = self.slots.get(resource) else {
            return true;
        };
        if slots.unlimited || slots.free > 0 {
            self.has_slot(work, resource);
            return true;
        }
        let wait = self.waits(work, WaitsFor::Slot(resource));
        self.slots[resource].queue.push_back(wait);
        false
    }

    fn answers(&mut self, work: usize) {
        self.states[work]
            .replayed
            .answered_ns
            .get_or_insert(self.now_ns);
        let works = &self.schedule.works;
        for follower in self.followers.remove(&work).unwrap_or_default() {
            let pause_ns = works[follower]
                .ready_ns
                .saturating_sub(works[work].answered_ns);
            self.at(self.now_ns.saturating_add(pause_ns), Event::Comes(follower));
        }
    }
}
