//! What a sleep on a futex was for, by scored evidence.

use serde::Serialize;

/// What a thread waited for on a futex.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Class {
    /// For a lock that another thread held.
    Lock,
    /// For work to come: nothing was being kept waiting.
    Idle,
    /// For the answer to something that it had asked for, or for a thread's end.
    Result,
    /// For a time to come.
    Timer,
    /// The evidence does not say.
    Unknown,
}

impl Class {
    /// The name that reports use.
    pub const fn name(self) -> &'static str {
        match self {
            Class::Lock => "lock",
            Class::Idle => "idle",
            Class::Result => "result",
            Class::Timer => "timer",
            Class::Unknown => "unknown",
        }
    }
}
