//! Names that hold from run to run, and from build to build.

use whywait_model::{Model, StackNames, stable_name};

/// The name of a thread's role; empty when it is not known.
pub(super) fn role(model: &Model, tid: u32) -> String {
    if tid == 0 {
        return String::new();
    }
    model.role_name(tid)
}

/// What a stack is in; empty when no stack was taken.
pub(super) fn function(stacks: &StackNames, stack: u32) -> String {
    stacks
        .telling(stack)
        .as_deref()
        .map(stable_name)
        .unwrap_or_default()
}
