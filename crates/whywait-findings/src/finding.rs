//! What a detector says. The field names are those of the JSON report (schema 1).

use serde::{Serialize, Serializer};
use serde_json::{Map, Value};
use whywait_events::StackId;
use whywait_model::{FrameOrigin, Model, StackText};

/// How bad it is. Ordered: `Note < Warning < Error`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs)]
pub enum Severity {
    Note,
    Warning,
    Error,
}

/// How sure the detector is. Ordered: `Low < Medium < High`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs)]
pub enum Confidence {
    Low,
    Medium,
    High,
}

/// The catalogue of findings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Code {
    /// Requests were ready, capable threads idle, and nobody polled.
    StrandedReadiness,
    /// A single-threaded loop was away from its poll.
    BlockedLoop,
    /// Threads waited for a lock that another held for long, or across a wait.
    LockContention,
    /// One wait is where slow requests spent most of their time.
    SlowPathWait,
    /// One thread's CPU time is where slow requests spent most of theirs.
    SerialWork,
    /// A control group's CPU limit is what slow requests waited for.
    CpuLimit,
    /// Large waits that cost nothing.
    IdleWaiters,
    /// Threads wait for locks in a circle.
    Deadlock,
    /// A wait that nobody ended.
    UnfinishedWait,
    /// A thread polls again and again, and nothing moves.
    FutileWakeups,
    /// One event wakes several threads.
    ThunderingHerd,
    /// Completions of io_uring lay in their queue.
    UringUnreaped,
    /// Published entries of io_uring lay in their queue.
    UringUnsubmitted,
    /// All slots of a ring were taken, and something waited for one.
    UringSlotsExhausted,
    /// Completions found no room.
    UringOverflow,
    /// Operations were handed to worker threads that need none.
    UringPunted,
    /// The poller of a ring burnt a core for little, or slept when it was needed.
    UringIdleSqpoll,
    /// Something was lost that a finding may rest on.
    RecordingIncomplete,
}

impl Code {
    /// All codes, in the order of `whywait explain --list`.
    pub const ALL: [Code; 18] = [
        Code::StrandedReadiness,
        Code::BlockedLoop,
        Code::LockContention,
        Code::SlowPathWait,
        Code::SerialWork,
        Code::CpuLimit,
        Code::IdleWaiters,
        Code::Deadlock,
        Code::UnfinishedWait,
        Code::FutileWakeups,
        Code::ThunderingHerd,
        Code::UringUnreaped,
        Code::UringUnsubmitted,
        Code::UringSlotsExhausted,
        Code::UringOverflow,
        Code::UringPunted,
        Code::UringIdleSqpoll,
        Code::RecordingIncomplete,
    ];

    /// The name that reports use and `whywait explain` takes.
    pub const fn name(self) -> &'static str {
        match self {
            Code::StrandedReadiness => "stranded-readiness",
            Code::BlockedLoop => "blocked-loop",
            Code::LockContention => "lock-contention",
            Code::SlowPathWait => "slow-path-wait",
            Code::SerialWork => "serial-work",
            Code::CpuLimit => "cpu-limit",
            Code::IdleWaiters => "idle-waiters",
            Code::Deadlock => "deadlock",
            Code::UnfinishedWait => "unfinished-wait",
            Code::FutileWakeups => "futile-wakeups",
            Code::ThunderingHerd => "thundering-herd",
            Code::UringUnreaped => "uring-unreaped",
            Code::UringUnsubmitted => "uring-unsubmitted",
            Code::UringSlotsExhausted => "uring-slots-exhausted",
            Code::UringOverflow => "uring-overflow",
            Code::UringPunted => "uring-punted",
            Code::UringIdleSqpoll => "uring-idle-sqpoll",
            Code::RecordingIncomplete => "recording-incomplete",
        }
    }

    /// The code of that name.
    pub fn from_name(name: &str) -> Option<Code> {
        Code::ALL.into_iter().find(|code| code.name() == name)
    }
}

impl Serialize for Code {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

/// A fault that was found.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Finding {
    /// Which.
    pub code: Code,
    /// How bad.
    pub severity: Severity,
    /// How sure.
    pub confidence: Confidence,
    /// One line that says what happened, in the reader's words, with the figures that matter. May
    /// contain hostile names.
    pub title: String,
    /// What it is about: machine-readable keys (`pid`, `epoll`, `port`, `threads`, …).
    pub subject: Map<String, Value>,
    /// What a fix saves at most.
    pub saving: Saving,
    /// What it rests on, most important first.
    pub evidence: Vec<Evidence>,
    /// Who caused it, where known.
    pub cause: Option<Cause>,
    /// What to do about it, by name where the runtime is known.
    pub fix: String,
}

/// What kind of thing a fix saves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs)]
pub enum SavingKind {
    Latency,
    Cpu,
    Throughput,
}

/// An upper bound of what a fix saves.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Saving {
    /// What is saved.
    pub kind: SavingKind,
    /// At most this much, summed over the requests that it concerns.
    pub at_most_ns: u64,
    /// How many requests it concerns.
    pub requests: u64,
    /// The bound for each of those requests, largest first (the first 100).
    pub each_at_most_ns: Vec<u64>,
}

/// One piece of evidence.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Evidence {
    /// In words. May contain hostile names.
    pub text: String,
    /// The duration it speaks of, if it speaks of one.
    pub ns: Option<u64>,
}

/// Who caused it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Cause {
    /// The thread.
    pub tid: u32,
    /// Its name, hostile.
    pub thread: String,
    /// What it was doing, in words (`asleep in clock_nanosleep`, `on CPU`).
    pub doing: String,
    /// Its stack while it did, function names innermost first. Hostile.
    pub stack: Vec<String>,
    /// For each function of `stack`, whether it is the application's own; empty: not known. For
    /// views.
    #[serde(skip)]
    pub own: Vec<bool>,
}

impl Cause {
    /// Thread `tid` of a recording, doing this in the stack `stack`.
    pub(crate) fn new(model: &Model, tid: u32, doing: String, stack: StackId) -> Self {
        let frames = model
            .stacks
            .get(stack)
            .map(StackText::names)
            .unwrap_or_default();
        let own = frames
            .iter()
            .map(|(_, origin)| *origin == FrameOrigin::App)
            .collect();
        let stack = frames.into_iter().map(|(name, _)| name).collect();
        Self {
            tid,
            thread: model.thread_name(tid).to_owned(),
            doing,
            stack,
            own,
        }
    }
}

impl Code {
    /// What the finding means, how it is measured and how to fix it: markdown with short
    /// paragraphs.
    pub const fn explain(self) -> &'static str {
        match self {
            Code::StrandedReadiness => crate::detectors::stranded_readiness::EXPLAIN,
            Code::BlockedLoop => crate::detectors::blocked_loop::EXPLAIN,
            Code::LockContention => crate::detectors::lock_contention::EXPLAIN,
            Code::SlowPathWait => crate::detectors::slow_path_wait::EXPLAIN,
            Code::SerialWork => crate::detectors::serial_work::EXPLAIN,
            Code::CpuLimit => crate::detectors::cpu_limit::EXPLAIN,
            Code::IdleWaiters => crate::detectors::idle_waiters::EXPLAIN,
            Code::Deadlock => crate::detectors::deadlock::EXPLAIN,
            Code::UnfinishedWait => crate::detectors::unfinished_wait::EXPLAIN,
            Code::FutileWakeups => crate::detectors::futile_wakeups::EXPLAIN,
            Code::ThunderingHerd => crate::detectors::thundering_herd::EXPLAIN,
            Code::UringUnreaped => crate::detectors::uring_unreaped::EXPLAIN,
            Code::UringUnsubmitted => crate::detectors::uring_unsubmitted::EXPLAIN,
            Code::UringSlotsExhausted => crate::detectors::uring_slots_exhausted::EXPLAIN,
            Code::UringOverflow => crate::detectors::uring_overflow::EXPLAIN,
            Code::UringPunted => crate::detectors::uring_punted::EXPLAIN,
            Code::UringIdleSqpoll => crate::detectors::uring_idle_sqpoll::EXPLAIN,
            Code::RecordingIncomplete => crate::detectors::recording_incomplete::EXPLAIN,
        }
    }
}
