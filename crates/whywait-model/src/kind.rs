//! What a sleep was for where the system call alone does not say: from the kernel's stack.

use whywait_events::{Part, Wait};

use crate::stacks::StackText;

/// What a thread waited for in the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Kind {
    /// For reports, in a word or two: `fsync, journal commit`.
    pub name: &'static str,
    /// The part of a request's time that it is; `None`: the call and the waker say.
    pub part: Option<Part>,
}

/// What a wait was for, as its kernel stack tells; `None` when it does not.
pub fn kind(_wait: &Wait, _kernel: &StackText) -> Option<Kind> {
    None
}
