//! What a sleep was for where the system call alone does not say: from the kernel's stack.
//!
//! The kernel leaves its scheduler's own functions out of the stack of a sleeping thread: all of
//! the section `.sched.text`, and with it `io_schedule`, `__mutex_lock`,
//! `rwsem_down_write_slowpath`, `wait_for_completion` and `do_nanosleep`. What they wait for shows
//! in the function that called them, which is then the innermost one, and from the thread's state:
//! uninterruptible and not waiting for I/O, in a function that takes a lock, is a wait for the
//! lock.
//!
//! Several functions of a stack may say it: an fsync that waits for the journal waits for a block
//! device in the end. The order of [`RULES`] decides, so that the answer is the one which leads to
//! the cause. Names are those of Linux 5.15 to 6.18; those that a kernel has inlined into their
//! callers have their callers next to them.

use whywait_events::{Part, Wait};

use crate::stacks::StackText;
use crate::waits::futex::Primitive;
use rules::RULES;

mod rules;

/// The kind of a thread that waits for more of a TCP stream.
pub(crate) const TCP_RECEIVE: &str = "network receive (TCP)";

/// What a sleep was for, by the functions in its kernel stack: a name, and the part of time that it
/// is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct WaitKind {
    /// For reports, in a word or two: `fsync (journal commit)`.
    pub name: &'static str,
    /// The part of a request's time that it is; `None`: the call and the waker say.
    pub part: Option<Part>,
}

impl WaitKind {
    /// Whether it was for a grace period of RCU: the kernel replaces something that others may
    /// still read, such as the table of descriptors of a process with several threads, as it grows.
    pub fn is_grace_period(self) -> bool {
        self.name == rules::GRACE_PERIOD
    }

    /// The lock that it was for, if that is one of which it can be told who held it.
    pub(crate) fn lock(self) -> Option<Primitive> {
        match self.name {
            rules::MMAP | rules::FAULT_MMAP => Some(Primitive::MemoryMap),
            rules::INODE => Some(Primitive::Inode),
            _ => None,
        }
    }
}

/// What a wait was for, by its kernel stack; `None` when that does not say it.
///
/// Futex waits are none of these: what they are for is in the user's stack and in who wakes whom.
pub fn wait_kind(wait: &Wait, kernel: &StackText) -> Option<WaitKind> {
    let stack: Vec<&str> = kernel
        .labels
        .iter()
        .filter(|label| label.named)
        .map(|label| function(&label.name))
        .collect();
    RULES
        .iter()
        .flat_map(|rules| *rules)
        .find(|rule| rule.matches(wait, &stack))
        .map(|rule| rule.kind)
        .or_else(|| {
            // Whatever called `io_schedule`; the stack may be missing.
            wait.io_wait.then_some(WaitKind {
                name: "block I/O",
                part: None,
            })
        })
}

/// Kinds of which reports say what in them it was: `fsync (writeback)`.
const BROAD: &[&str] = &[
    "FUSE server",
    "block I/O",
    "close",
    "connect",
    "fanotify",
    "fsync",
    "io_uring poller",
    "io_uring worker",
    "network send",
    "page fault",
    "pipe write",
    "sync",
    "synchronous write",
    "unix send",
];

/// What a kind is one of: `fsync` for `fsync (journal commit)`. Others are their own.
pub fn broad_kind(name: &str) -> &str {
    BROAD
        .iter()
        .find(|broad| {
            name.strip_prefix(**broad)
                .is_some_and(|rest| rest.starts_with(" ("))
        })
        .map_or(name, |broad| *broad)
}

/// The name in the source: compilers add `.isra.0`, `.constprop.0`, `.part.0`, `.cold`,
/// `.llvm.123`.
fn function(name: &str) -> &str {
    name.split_once('.').map_or(name, |(function, _)| function)
}

/// When a stack is a certain kind of wait.
struct Rule {
    /// One of these functions is in it. `a*`: any whose name begins so; `*a`: ends so.
    on: &'static [&'static str],
    /// And one of each of these, wherever; empty: no matter.
    under: [&'static [&'static str]; 2],
    state: State,
    kind: WaitKind,
}

/// In which state a thread sleeps in a rule's functions.
#[derive(PartialEq, Eq)]
enum State {
    Any,
    /// A signal would wake it. In the same function it may also wait for a lock, and then none
    /// does.
    Interruptible,
    /// It waits for a lock that the innermost function takes.
    Lock,
    /// The innermost function waits itself.
    Innermost,
}

impl Rule {
    fn matches(&self, wait: &Wait, stack: &[&str]) -> bool {
        let in_state = match self.state {
            State::Any | State::Innermost => true,
            State::Interruptible => !wait.uninterruptible,
            State::Lock => wait.uninterruptible && !wait.io_wait,
        };
        let searched = match self.state {
            State::Lock | State::Innermost => stack.get(..1).unwrap_or_default(),
            _ => stack,
        };
        in_state
            && has(searched, self.on)
            && self
                .under
                .iter()
                .all(|functions| functions.is_empty() || has(stack, functions))
    }

    const fn under(self, functions: &'static [&'static str]) -> Self {
        Self {
            under: [functions, self.under[0]],
            ..self
        }
    }
}

fn has(stack: &[&str], functions: &[&str]) -> bool {
    stack.iter().any(|frame| {
        functions.iter().any(|function| {
            if let Some(begin) = function.strip_suffix('*') {
                frame.starts_with(begin)
            } else if let Some(end) = function.strip_prefix('*') {
                frame.ends_with(end)
            } else {
                frame == function
            }
        })
    })
}

/// With one of these functions in the stack, it is this.
const fn on(on: &'static [&'static str], name: &'static str, part: Part) -> Rule {
    rule(on, State::Any, name, Some(part))
}

/// A block device or file system.
const fn disk(on: &'static [&'static str], name: &'static str) -> Rule {
    rule(on, State::Any, name, Some(Part::Disk))
}

/// It waits for something that comes from elsewhere; the call and the waker say which part that is.
const fn event(on: &'static [&'static str], name: &'static str) -> Rule {
    rule(on, State::Interruptible, name, None)
}

/// A lock that one of these functions takes.
const fn lock(on: &'static [&'static str], name: &'static str) -> Rule {
    rule(on, State::Lock, name, Some(Part::Lock))
}

const fn rule(
    on: &'static [&'static str],
    state: State,
    name: &'static str,
    part: Option<Part>,
) -> Rule {
    Rule {
        on,
        under: [&[], &[]],
        state,
        kind: WaitKind { name, part },
    }
}

#[cfg(test)]
mod tests;
