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

impl Unresolved {
    pub(crate) fn new(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            hint: hint.into(),
        }
    }
}
