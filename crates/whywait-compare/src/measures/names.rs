//! Names that hold from run to run, and from build to build.

use whywait_model::{Model, StackNames};

/// The role of a thread: its name with each number in it as `N`. Workers of a pool differ in
/// nothing else.
pub(super) fn role(model: &Model, tid: u32) -> String {
    if tid == 0 {
        return String::new();
    }
    without_numbers(model.thread_name(tid))
}

fn without_numbers(name: &str) -> String {
    let mut role = String::with_capacity(name.len());
    let mut in_number = false;
    for c in name.chars() {
        let digit = c.is_ascii_digit();
        if !digit {
            role.push(c);
        } else if !in_number {
            role.push('N');
        }
        in_number = digit;
    }
    role
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
        assert_eq!(without_numbers("worker-12"), "worker-N");
        assert_eq!(without_numbers("io1:2"), "ioN:N");
        assert_eq!(without_numbers("tokio-runtime-w"), "tokio-runtime-w");
        assert_eq!(stable("libfoo.so+0x12af"), "libfoo.so (no name)");
        assert_eq!(stable("a::b::h0123456789abcdef"), "a::b");
        assert_eq!(stable("a::handler"), "a::handler");
    }
}
