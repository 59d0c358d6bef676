//! Stacks as they were recorded, on Linux 6.18 if nothing else is said.

use std::sync::Arc;

use whywait_events::ModuleKind;

use super::*;
use crate::stacks::Label;

mod disk;
mod durable;
mod events;
mod locks;
mod memory;
mod network;

/// As the recording has the state.
#[derive(Clone, Copy)]
enum Sleep {
    /// A signal would end it.
    Light,
    /// State D, and accounted as I/O.
    Io,
    /// State D.
    Deep,
}

const S: Sleep = Sleep::Light;
const IO: Sleep = Sleep::Io;
const D: Sleep = Sleep::Deep;

/// Innermost function first.
fn kind_of(state: Sleep, stack: &str) -> Option<WaitKind> {
    let wait = Wait {
        uninterruptible: !matches!(state, Sleep::Light),
        io_wait: matches!(state, Sleep::Io),
        ..Wait::default()
    };
    let label = |name: &str| Label {
        name: Arc::from(name),
        named: true,
        file: "".into(),
        line: 0,
        module: "[kernel]".into(),
        kind: ModuleKind::Kernel,
    };
    let stack = StackText {
        labels: stack
            .split_ascii_whitespace()
            .chain(["do_syscall_64", "entry_SYSCALL_64_after_hwframe"])
            .map(label)
            .collect(),
        truncated: false,
    };
    wait_kind(&wait, &stack)
}

#[track_caller]
fn check(rows: &[(Sleep, &str, &str, Option<Part>)]) {
    for (state, stack, name, part) in rows {
        let found = kind_of(*state, stack).map(|kind| (kind.name, kind.part));
        assert_eq!(found, Some((*name, *part)), "{stack}");
    }
}

const DISK: Option<Part> = Some(Part::Disk);
const LOCK: Option<Part> = Some(Part::Lock);
const FAULT: Option<Part> = Some(Part::PageFault);
const NET: Option<Part> = Some(Part::Network);

#[test]
fn what_the_stack_does_not_say_is_left_to_others() {
    assert_eq!(
        kind_of(
            S,
            "futex_do_wait __futex_wait futex_wait do_futex __x64_sys_futex"
        ),
        None
    );
    assert_eq!(
        kind_of(S, "futex_wait_queue futex_wait do_futex __x64_sys_futex"),
        None
    );
    assert_eq!(kind_of(D, "a_driver_of_a_later_kernel"), None);
    assert_eq!(wait_kind(&Wait::default(), &StackText::default()), None);
}

#[test]
fn names_of_kinds_can_stand_in_a_list() {
    for rule in RULES.iter().flat_map(|rules| *rules) {
        let name = rule.kind.name;
        assert!(!name.contains(", "), "{name}");
        assert!(!name.contains("((") && !name.contains("))"), "{name}");
    }
}

#[test]
fn what_is_in_brackets_is_a_part_of_a_broad_kind_or_of_the_name() {
    for (name, broad) in [
        ("fsync (journal commit)", "fsync"),
        ("block I/O (discard)", "block I/O"),
        ("block I/O", "block I/O"),
        ("file lock (inode)", "file lock (inode)"),
        ("I/O throttling (cgroup)", "I/O throttling (cgroup)"),
    ] {
        assert_eq!(broad_kind(name), broad);
    }
}
