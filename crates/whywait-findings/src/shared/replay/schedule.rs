//! A schedule: what was served, by whom, in which pieces.

use whywait_events::Ns;

/// What was recorded of requests and of those who served them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Schedule {
    /// Servers that take from one queue: workers, or a loop alone.
    pub(crate) groups: Vec<Group>,
    /// What is served, in order of arrival.
    pub(crate) jobs: Vec<Job>,
}

/// Servers that take from one queue, whoever came first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Group {
    /// When each of them can take something for the first time.
    pub(crate) free_ns: Vec<Ns>,
}

impl Group {
    /// So many servers that are free from the beginning.
    pub(crate) fn of(servers: usize) -> Self {
        Self {
            free_ns: vec![0; servers.max(1)],
        }
    }
}

/// A request, or something else that keeps a server.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Job {
    /// When it came.
    pub(crate) ready_ns: Ns,
    /// When a server took it.
    pub(crate) taken_ns: Ns,
    /// When it was answered.
    pub(crate) answered_ns: Ns,
    /// Who served it; `None`: a server of its own.
    pub(crate) group: Option<usize>,
    /// It came so soon after the answer to this one that its client had waited for that.
    pub(crate) follows: Option<usize>,
    /// What it was served with, in order. Its server is free after the last one.
    pub(crate) steps: Vec<Step>,
}

impl Job {
    /// From its arrival to its answer.
    pub(crate) fn latency_ns(&self) -> u64 {
        self.answered_ns.saturating_sub(self.ready_ns)
    }

    /// How much of its own steps a change takes away.
    pub(crate) fn gone_ns(&self) -> u64 {
        let answer = self.steps.iter().position(|step| step.what == What::Answer);
        self.steps[..answer.unwrap_or(self.steps.len())]
            .iter()
            .map(|step| match step.what {
                What::Work(time) => time.gone_ns.min(time.ns),
                _ => 0,
            })
            .fold(0, u64::saturating_add)
    }
}

/// A piece of a job, and when it began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Step {
    /// At the latest: a change makes nothing later.
    pub(crate) at_ns: Ns,
    pub(crate) what: What,
}

/// How long a piece takes, and how much of it is the part that a change is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Time {
    pub(crate) ns: u64,
    pub(crate) gone_ns: u64,
}

impl Time {
    /// Nothing of it goes.
    pub(crate) const fn kept(ns: u64) -> Self {
        Self { ns, gone_ns: 0 }
    }

    /// What stays of it.
    pub(crate) const fn left_ns(self) -> u64 {
        self.ns.saturating_sub(self.gone_ns)
    }
}

/// What a piece of a job is. Locks and events are numbered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum What {
    /// It keeps its server.
    Work(Time),
    /// It needs this lock, and waits for whoever has it.
    Lock(usize),
    /// It lets the lock go.
    Unlock(usize),
    /// It waits for this event, with all others that do.
    Until(usize),
    /// It brings the event about.
    Brings(usize),
    /// Its response is out.
    Answer,
}

/// What is changed in a replay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change {
    /// Nothing.
    Nothing,
    /// The part in question takes no time.
    Without,
    /// Nobody waits for this lock, and the part in question takes no time.
    Unlocked(usize),
    /// Each group has so many servers more.
    MoreServers(usize),
}
