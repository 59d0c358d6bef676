//! A schedule: which works there were, and which resources they took for how long.

use whywait_events::Ns;

/// What was recorded of works and of the resources that they used.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Schedule {
    /// Workers, a loop, locks, connections: whatever only so many can have at a time.
    pub resources: Vec<Resource>,
    /// What came, in order of arrival.
    pub works: Vec<Work>,
}

/// Something that only so many works can have at a time. Whoever asks first has it first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Resource {
    /// When each of its slots can be had for the first time; [`Ns::MAX`]: never.
    pub slots: Vec<Ns>,
}

impl Resource {
    /// One with so many slots, which are free from the beginning.
    pub fn of(slots: usize) -> Self {
        Self {
            slots: vec![0; slots.max(1)],
        }
    }
}

/// A request, or something else that takes resources.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Work {
    /// When it came.
    pub ready_ns: Ns,
    /// When it was answered.
    pub answered_ns: Ns,
    /// It came so soon after the answer to this one that its client had waited for that.
    pub follows: Option<usize>,
    /// What it did, in order. It gives back what it has left after the last one.
    pub steps: Vec<Step>,
}

impl Work {
    /// From its arrival to its answer, nanoseconds.
    pub fn latency_ns(&self) -> u64 {
        self.answered_ns.saturating_sub(self.ready_ns)
    }

    /// Whether it is answered.
    pub(crate) fn answers(&self) -> bool {
        self.steps.iter().any(|step| step.what == What::Answers)
    }

    /// Its steps up to its answer.
    pub(crate) fn until_answered(&self) -> &[Step] {
        let answer = self
            .steps
            .iter()
            .position(|step| step.what == What::Answers);
        &self.steps[..answer.unwrap_or(self.steps.len())]
    }
}

/// A step of a work, and when it began in the recording: in the replay at the latest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// When it began.
    pub at_ns: Ns,
    /// What it is.
    pub what: What,
}

/// What a step is. Resources, causes and events are numbered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// It needs a slot of this resource, and waits for one.
    Takes(usize),
    /// It gives the slot back.
    Frees(usize),
    /// It spends time, whatever for.
    Spends {
        /// How long.
        ns: u64,
        /// What takes it so long: a peer, a device, a function, a part that a fix takes away.
        cause: Option<usize>,
    },
    /// It waits for this event, with all others that do.
    Until(usize),
    /// It brings the event about.
    Brings(usize),
    /// Its response is out.
    Answers,
}
