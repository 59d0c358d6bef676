//! What a detector says. The field names are those of the JSON report (schema 1).

use serde::Serialize;
use serde_json::{Map, Value};
use whywait_events::StackId;
use whywait_model::{FrameOrigin, Model, StackText};

use crate::declaration::Code;

/// How bad it is. Ordered: `Note < Warning < Error`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs)]
pub enum Severity {
    Note,
    Warning,
    Error,
}

impl Severity {
    /// As reports write it.
    pub const fn name(self) -> &'static str {
        match self {
            Severity::Note => "note",
            Severity::Warning => "warning",
            Severity::Error => "error",
        }
    }
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
