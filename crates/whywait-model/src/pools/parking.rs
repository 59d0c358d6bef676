//! Whether a thread that sleeps could as well be polling, by its stack.

use whywait_events::ModuleKind;

use crate::stacks::Label;

/// Parts of the names of functions that only wait: what a runtime calls between deciding to idle
/// and the kernel.
const WAITING: &[&str] = &[
    "park",
    "wait",
    "futex",
    "syscall",
    "sleep",
    "condvar",
    "cond_",
    "semaphore",
    "stopm",
    "lll_lock",
];

/// The most frames that a runtime puts between deciding to idle and the system call.
const MAX_WAITING_FRAMES: usize = 8;

/// Whether a thread that sleeps in `park` could as well be polling in `poll`: from the thread's
/// start, both stacks go through the same functions to where the runtime decides; from there `park`
/// has nothing but waiting in it, and `poll` is not far from its system call either. Innermost
/// first, as stacks are.
///
/// An idle thread of another kind (a helper, a blocking pool) parts from the pollers early, so that
/// what is left of `poll` is long. A worker that waits for a lock inside a request has functions
/// between that do more than wait.
pub(super) fn parks_beside(park: &[Label], poll: &[Label]) -> bool {
    let common = park
        .iter()
        .rev()
        .zip(poll.iter().rev())
        .take_while(|(a, b)| a.name == b.name && a.module == b.module && names_a_function(a))
        .count();
    let park_rest = &park[..park.len() - common];
    let poll_rest = &poll[..poll.len() - common];
    let decided_by_the_runtime = common * 2 > poll.len() && common >= 2;
    decided_by_the_runtime
        && !park_rest.is_empty()
        && park_rest.len() <= MAX_WAITING_FRAMES
        && poll_rest.len() <= MAX_WAITING_FRAMES
        && park_rest
            .iter()
            .all(|label| label.named && only_waits(&label.name))
}

/// Whether a frame says which function it is. Just-in-time compiled code without a name is any
/// function: all threads of a JVM go through the same few such frames, its helpers as well as its
/// pollers.
fn names_a_function(label: &Label) -> bool {
    label.named || !matches!(label.kind, ModuleKind::Jit | ModuleKind::Unknown)
}

fn only_waits(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    WAITING.iter().any(|part| name.contains(part))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Outermost first, as one reads a call.
    fn stack(calls: &[&str]) -> Vec<Label> {
        let label = |name: &&str| Label {
            name: (*name).into(),
            named: true,
            file: "".into(),
            line: 0,
            module: "/srv/app".into(),
            kind: ModuleKind::Elf,
        };
        calls.iter().rev().map(label).collect()
    }

    const WORKER: &[&str] = &[
        "thread_start",
        "pool::run",
        "Task::poll",
        "worker::run",
        "Context::run",
    ];

    fn worker(rest: &[&str]) -> Vec<Label> {
        stack(&[WORKER, rest].concat())
    }

    #[test]
    fn a_worker_that_parks_could_poll() {
        let poll = worker(&["Context::park", "Driver::turn", "epoll_wait"]);
        assert!(parks_beside(
            &worker(&[
                "Context::park",
                "Inner::park_condvar",
                "Condvar::wait",
                "syscall"
            ]),
            &poll
        ));
    }

    #[test]
    fn a_thread_of_the_blocking_pool_could_not() {
        let poll = worker(&["Context::park", "Driver::turn", "epoll_wait"]);
        assert!(!parks_beside(
            &stack(&["thread_start", "pool::run", "Condvar::wait", "syscall"]),
            &poll
        ));
    }

    #[test]
    fn a_worker_that_waits_for_a_lock_in_a_request_is_not_idle() {
        let poll = worker(&["Context::park", "Driver::turn", "epoll_wait"]);
        let locked = worker(&[
            "run_task",
            "handler",
            "Mutex::lock_contended",
            "futex_wait",
            "syscall",
        ]);
        assert!(!parks_beside(&locked, &poll));
        let inlined = worker(&["handler", "futex_wait", "syscall"]);
        assert!(!parks_beside(&inlined, &poll));
    }

    #[test]
    fn code_without_a_name_is_no_evidence_of_parking_beside_a_poller() {
        let compiled = |rest: &[&str]| {
            let mut stack = stack(&[&["[jit]", "[jit]", "[jit]", "[jit]"], rest].concat());
            for label in &mut stack {
                if &*label.name == "[jit]" {
                    label.named = false;
                    label.kind = ModuleKind::Jit;
                }
            }
            stack
        };
        let poll = compiled(&["EPoll_wait", "epoll_wait"]);
        let helper = compiled(&["Unsafe_Park", "Parker::park", "pthread_cond_wait"]);
        assert!(!parks_beside(&helper, &poll));
    }

    #[test]
    fn a_helper_beside_a_single_threaded_loop_could_not() {
        let poll = stack(&["_start", "main", "aeMain", "aeProcessEvents", "epoll_wait"]);
        assert!(!parks_beside(
            &stack(&[
                "clone3",
                "start_thread",
                "bioProcessBackgroundJobs",
                "pthread_cond_wait"
            ]),
            &poll
        ));
    }
}
