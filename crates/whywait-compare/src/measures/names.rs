//! Names that hold from run to run, and from build to build.

use whywait_model::{Model, StackNames};

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
        .map(stable)
        .unwrap_or_default()
}

/// A function's name without what changes from build to build: the compiler's hash, and addresses
/// of code without names.
pub(super) fn stable(name: &str) -> String {
    if let Some((file, address)) = name.rsplit_once("+0x")
        && address.chars().all(|c| c.is_ascii_hexdigit())
    {
        return format!("{file} (no name)");
    }
    if let Some((function, hash)) = name.rsplit_once("::h")
        && hash.len() == 16
        && hash.chars().all(|c| c.is_ascii_hexdigit())
    {
        return function.to_owned();
    }
    name.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_hold_from_run_to_run() {
        assert_eq!(stable("libfoo.so+0x12af"), "libfoo.so (no name)");
        assert_eq!(stable("a::b::h0123456789abcdef"), "a::b");
        assert_eq!(stable("a::handler"), "a::handler");
    }
}
