//! What is said when nothing, or not one thing, is meant.

use thiserror::Error;

/// No process is meant, or it is open which.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{message}")]
pub struct Unresolved {
    /// What is wrong.
    pub message: String,
    /// What to type instead, with the candidates.
    pub hint: String,
}

/// Whywait runs where processes have other numbers than BPF gives: what it would read of a process
/// might be another one's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error(
    "whywait runs in a PID namespace of its own, as most containers do, where processes have other \
     numbers than the kernel gives"
)]
pub struct OwnPidNamespace;

impl OwnPidNamespace {
    /// What to do.
    pub const HINT: &str = "start its container with the host's PID namespace (--pid=host; \
                            Kubernetes: hostPID: true), or run it on the host";
}

impl From<OwnPidNamespace> for Unresolved {
    fn from(error: OwnPidNamespace) -> Self {
        Self::new(error.to_string(), OwnPidNamespace::HINT)
    }
}

impl Unresolved {
    pub(crate) fn new(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            hint: hint.into(),
        }
    }
}
