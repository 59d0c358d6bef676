//! System calls in which threads sleep (x86-64 numbers), and what kind of wait each is.

use whywait_events::{Part, Wait, WakeContext};

/// What kind of call a thread sleeps in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Call {
    /// None: a page fault, or stopped.
    None,
    /// A futex wait.
    Futex,
    /// epoll, poll or select.
    Poll,
    /// A call that only sockets have.
    Socket,
    /// read, write and their like, on whatever the descriptor is.
    Stream,
    /// A call that only files have.
    File,
    /// nanosleep and its like.
    Sleep,
    /// `io_uring_enter`.
    Uring,
    /// Waiting for a child process.
    Child,
    /// Any other.
    Other,
}

/// The name and kind of each system call in which long waits are common. The kinds are those of
/// `syscalls.bpf.h`, which sums up the short waits.
const CALLS: &[(u32, &str, Call)] = &[
    (0, "read", Call::Stream),
    (1, "write", Call::Stream),
    (7, "poll", Call::Poll),
    (16, "ioctl", Call::Other),
    (17, "pread64", Call::File),
    (18, "pwrite64", Call::File),
    (19, "readv", Call::Stream),
    (20, "writev", Call::Stream),
    (23, "select", Call::Poll),
    (26, "msync", Call::File),
    (34, "pause", Call::Other),
    (35, "nanosleep", Call::Sleep),
    (40, "sendfile", Call::Stream),
    (42, "connect", Call::Socket),
    (43, "accept", Call::Socket),
    (44, "sendto", Call::Socket),
    (45, "recvfrom", Call::Socket),
    (46, "sendmsg", Call::Socket),
    (47, "recvmsg", Call::Socket),
    (61, "wait4", Call::Child),
    (72, "fcntl", Call::Other),
    (73, "flock", Call::Other),
    (74, "fsync", Call::File),
    (75, "fdatasync", Call::File),
    (128, "rt_sigtimedwait", Call::Other),
    (130, "rt_sigsuspend", Call::Other),
    (162, "sync", Call::File),
    (202, "futex", Call::Futex),
    (219, "restart_syscall", Call::Other),
    (230, "clock_nanosleep", Call::Sleep),
    (232, "epoll_wait", Call::Poll),
    (247, "waitid", Call::Child),
    (257, "openat", Call::Other),
    (270, "pselect6", Call::Poll),
    (271, "ppoll", Call::Poll),
    (275, "splice", Call::Stream),
    (277, "sync_file_range", Call::File),
    (281, "epoll_pwait", Call::Poll),
    (285, "fallocate", Call::File),
    (288, "accept4", Call::Socket),
    (295, "preadv", Call::File),
    (296, "pwritev", Call::File),
    (299, "recvmmsg", Call::Socket),
    (306, "syncfs", Call::File),
    (307, "sendmmsg", Call::Socket),
    (426, "io_uring_enter", Call::Uring),
    (441, "epoll_pwait2", Call::Poll),
    (449, "futex_waitv", Call::Futex),
    (455, "futex_wait", Call::Futex),
];

/// The kind of the call that a thread slept in.
pub fn call(wait: &Wait) -> Call {
    match wait.syscall {
        None => Call::None,
        Some(number) => entry(number).map_or(Call::Other, |(_, _, call)| *call),
    }
}

/// The name of the call that a thread slept in, for reports.
pub fn call_name(wait: &Wait) -> String {
    match wait.syscall {
        None if wait.uninterruptible || wait.io_wait => "a page fault".to_owned(),
        None => "no system call".to_owned(),
        Some(number) => name_of(number),
    }
}

/// The descriptor that a sleep was for, where it was for one. Of a poll, it stands in place of an
/// address, which is larger ("waits" in docs/recording.md).
pub fn descriptor(wait: &Wait) -> Option<i32> {
    let polls_one = matches!(wait.syscall, Some(7 | 271)) && wait.args[1] == 1;
    match call(wait) {
        Call::Socket | Call::Stream | Call::File => i32::try_from(wait.args[0] as u32).ok(),
        Call::Poll if polls_one => u16::try_from(wait.args[0]).ok().map(i32::from),
        _ => None,
    }
}

/// The name of a system call, for reports.
pub(crate) fn name_of(number: u32) -> String {
    entry(number).map_or_else(
        || format!("system call {number}"),
        |(_, name, _)| (*name).to_owned(),
    )
}

fn entry(number: u32) -> Option<&'static (u32, &'static str, Call)> {
    CALLS
        .binary_search_by_key(&number, |(number, _, _)| *number)
        .ok()
        .map(|at| &CALLS[at])
}

/// Which part of a request's time a sleep is, from the call and from who ended it.
/// `woken_by_target`: the waker is a thread of the target.
pub(crate) fn part(wait: &Wait, woken_by_target: bool) -> Part {
    let by_task = if woken_by_target {
        Part::Thread
    } else {
        Part::Network
    };
    match call(wait) {
        Call::None if wait.uninterruptible || wait.io_wait => Part::PageFault,
        Call::None => Part::Unknown,
        Call::Futex => match wait.wake_context {
            WakeContext::Task => Part::Thread,
            WakeContext::Hardirq => Part::Timer,
            _ => Part::Unknown,
        },
        Call::Poll => match wait.wake_context {
            WakeContext::Task => by_task,
            WakeContext::Softirq => Part::Network,
            WakeContext::Hardirq => Part::Timer,
            WakeContext::Unknown | WakeContext::Exit => Part::Unknown,
        },
        Call::Socket => Part::Network,
        Call::Stream if wait.io_wait || wait.uninterruptible => Part::Disk,
        Call::Stream => match wait.wake_context {
            WakeContext::Task => by_task,
            WakeContext::Softirq => Part::Network,
            WakeContext::Hardirq => Part::Timer,
            WakeContext::Unknown | WakeContext::Exit => Part::Unknown,
        },
        Call::File => Part::Disk,
        Call::Sleep => Part::Timer,
        Call::Uring => Part::Uring,
        Call::Child => Part::Thread,
        Call::Other if wait.io_wait || wait.uninterruptible => Part::Disk,
        Call::Other => Part::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_sorted_by_number() {
        assert!(
            CALLS.is_sorted_by_key(|(number, _, _)| *number),
            "binary search needs it"
        );
    }
}
