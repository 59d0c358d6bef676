//! What `futile-wakeups` and `thundering-herd` share: how a cycle of system calls reads, and what
//! CPU time it burnt.

use crate::numbers::FEW_SAMPLES;
use std::collections::{BTreeMap, BTreeSet};

use whywait_events::{BurstCall, Sample};
use whywait_model::cpu::CpuUse;
use whywait_model::cpu::Spinner;
use whywait_model::{Label, Model, Thread};

pub(crate) const EPOLL_CTL: u32 = 233;
pub(crate) const IOCTL: u32 = 16;
pub(crate) const IO_URING_ENTER: u32 = 426;
/// `asm-generic/ioctls.h`
pub(crate) const SIOCOUTQ: u32 = 0x5411;
pub(crate) const EPOLLIN: u32 = 0x1;
pub(crate) const EPOLLOUT: u32 = 0x4;
pub(crate) const EPOLLERR: u32 = 0x8;
pub(crate) const EPOLLHUP: u32 = 0x10;
pub(crate) const EPOLLRDHUP: u32 = 0x2000;
pub(crate) const EAGAIN: i64 = -11;
pub(crate) const ENFILE: i64 = -23;
pub(crate) const EMFILE: i64 = -24;

/// What a thread used of the CPUs.
pub(crate) fn use_of(model: &Model, spinner: &Spinner) -> CpuUse {
    model
        .cpu
        .threads
        .get(&(spinner.tgid, spinner.tid))
        .cloned()
        .unwrap_or_default()
}

/// The threads that were seen going round in their poll, with nothing to do.
pub(crate) struct Rounds(BTreeMap<(u32, u32), Round>);

struct Round {
    /// Whether most of the thread's CPU time went by like that.
    mostly: bool,
    /// What it calls as it goes round, as kernel stacks have it.
    calls: BTreeSet<String>,
}

impl Rounds {
    pub(crate) fn of(model: &Model) -> Self {
        let round = |spinner: &Spinner| {
            let used_ns = use_of(model, spinner).on_cpu_ns;
            let calls = spinner.cycle.iter();
            Round {
                mostly: used_ns > 0 && model.cpu.futile_ns(spinner) >= used_ns.div_ceil(2),
                calls: calls
                    .map(|call| format!("_sys_{}", name(call.syscall)))
                    .collect(),
            }
        };
        let spinners = model.bursts.threads();
        let spinners = spinners.iter().filter(|spinner| spinner.goes_round());
        Rounds(
            spinners
                .map(|spinner| ((spinner.tgid, spinner.tid), round(spinner)))
                .collect(),
        )
    }

    /// Whether what a thread did when it was sampled like this was going round, and no work for a
    /// request: half of it in the calls of its round; of a thread that does little else a quarter,
    /// for what it does between them is its round as well.
    pub(crate) fn goes_round(&self, model: &Model, thread: &Thread, samples: &[Sample]) -> bool {
        let Some(round) = self.0.get(&(thread.tgid, thread.tid)) else {
            return false;
        };
        if samples.len() < *FEW_SAMPLES {
            return round.mostly;
        }
        let calls = |sample: &&Sample| {
            let stack = model.stacks.get(sample.kernel_stack);
            let of_round = |label: &Label| {
                let call = label.name.find("_sys_").map(|at| &label.name[at..]);
                call.is_some_and(|call| round.calls.contains(call))
            };
            stack.is_some_and(|stack| stack.labels.iter().any(of_round))
        };
        let weight = |sum: u64, sample: &Sample| sum.saturating_add(sample.weight());
        let all = samples.iter().fold(0, weight);
        let in_calls = samples.iter().filter(calls).fold(0, weight);
        in_calls.saturating_mul(if round.mostly { 4 } else { 2 }) >= all
    }
}

pub(crate) fn is_poll(call: &BurstCall) -> bool {
    matches!(
        call.syscall,
        7 | 23 | 232 | 270 | 271 | 281 | 441 | IO_URING_ENTER
    )
}

pub(crate) fn is_accept(call: &BurstCall) -> bool {
    matches!(call.syscall, 43 | 288)
}

pub(crate) fn is_read(call: &BurstCall) -> bool {
    matches!(call.syscall, 0 | 19 | 45 | 47 | 299)
}

/// The bits of epoll by name: `EPOLLIN|EPOLLHUP`.
pub(crate) fn bits(events: u32) -> String {
    const NAMES: [(u32, &str); 8] = [
        (EPOLLIN, "EPOLLIN"),
        (0x2, "EPOLLPRI"),
        (EPOLLOUT, "EPOLLOUT"),
        (EPOLLERR, "EPOLLERR"),
        (EPOLLHUP, "EPOLLHUP"),
        (EPOLLRDHUP, "EPOLLRDHUP"),
        (1 << 30, "EPOLLONESHOT"),
        (1 << 31, "EPOLLET"),
    ];
    let named: Vec<&str> = NAMES
        .iter()
        .filter(|(bit, _)| events & bit != 0)
        .map(|(_, name)| *name)
        .collect();
    if named.is_empty() {
        format!("{events:#x}")
    } else {
        named.join("|")
    }
}

/// A call of a cycle, as one reads it: `epoll_ctl MOD fd 7 EPOLLOUT`.
pub(crate) fn call(call: &BurstCall) -> String {
    let fd = if call.fd >= 0 {
        format!(" fd {}", call.fd)
    } else {
        String::new()
    };
    let failed = match call.ret {
        ret if ret >= 0 => String::new(),
        EAGAIN => " = EAGAIN".to_owned(),
        EMFILE => " = EMFILE".to_owned(),
        ENFILE => " = ENFILE".to_owned(),
        ret => format!(" = error {}", ret.unsigned_abs()),
    };
    match call.syscall {
        IO_URING_ENTER => format!(
            "io_uring_enter{fd} min_complete {}{failed} ({} in the queue)",
            call.armed, call.value
        ),
        _ if is_poll(call) => format!("{} →{fd} {}{failed}", name(call.syscall), bits(call.events)),
        EPOLL_CTL => {
            let op = match call.op {
                1 => "ADD",
                2 => "DEL",
                _ => "MOD",
            };
            let asked = if call.op == 2 {
                String::new()
            } else {
                format!(" {}", bits(call.events))
            };
            format!("epoll_ctl {op}{fd}{asked}{failed}")
        }
        IOCTL => match call.op {
            SIOCOUTQ => format!("ioctl SIOCOUTQ{fd} = {}", call.value),
            0x541b => format!("ioctl FIONREAD{fd} = {}", call.value),
            op => format!("ioctl {op:#x}{fd}{failed}"),
        },
        number if call.ret == 0 && is_read(call) => format!("{}{fd} = 0", name(number)),
        number => format!("{}{fd}{failed}", name(number)),
    }
}

/// All calls of a cycle; the same ones in a row stand once, with how many.
pub(crate) fn cycle(calls: &[BurstCall]) -> Vec<String> {
    let mut texts: Vec<(String, usize)> = Vec::new();
    for one in calls {
        let text = call(one);
        match texts.last_mut() {
            Some((last, count)) if *last == text => *count += 1,
            _ => texts.push((text, 1)),
        }
    }
    texts
        .into_iter()
        .map(|(text, count)| {
            if count > 1 {
                format!("{text} (×{count})")
            } else {
                text
            }
        })
        .collect()
}

pub(crate) fn name(number: u32) -> String {
    let name = match number {
        0 => "read",
        1 => "write",
        3 => "close",
        7 => "poll",
        9 => "mmap",
        11 => "munmap",
        12 => "brk",
        13 => "rt_sigaction",
        14 => "rt_sigprocmask",
        16 => "ioctl",
        19 => "readv",
        20 => "writev",
        23 => "select",
        24 => "sched_yield",
        28 => "madvise",
        39 => "getpid",
        42 => "connect",
        43 => "accept",
        44 => "sendto",
        45 => "recvfrom",
        46 => "sendmsg",
        47 => "recvmsg",
        51 => "getsockname",
        52 => "getpeername",
        54 => "setsockopt",
        55 => "getsockopt",
        72 => "fcntl",
        96 => "gettimeofday",
        186 => "gettid",
        201 => "time",
        202 => "futex",
        228 => "clock_gettime",
        232 => "epoll_wait",
        233 => "epoll_ctl",
        270 => "pselect6",
        271 => "ppoll",
        281 => "epoll_pwait",
        288 => "accept4",
        299 => "recvmmsg",
        307 => "sendmmsg",
        426 => "io_uring_enter",
        441 => "epoll_pwait2",
        _ => return format!("system call {number}"),
    };
    name.to_owned()
}

/// What a descriptor is, in words: `fd 7, tcp connection at port 8080 with peer port 4000`.
pub(crate) fn descriptor(call: &BurstCall) -> String {
    let fd = if call.fd >= 0 {
        format!("fd {}", call.fd)
    } else {
        "a descriptor".to_owned()
    };
    match call.kind.as_str() {
        "listener" if call.local_port != 0 => {
            format!("{fd} (listener at port {})", call.local_port)
        }
        "tcp" if call.peer_port != 0 => format!(
            "{fd} (connection at port {}, peer's port {})",
            call.local_port, call.peer_port
        ),
        "" => fd,
        kind => format!("{fd} ({kind})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_read_as_people_write_them() {
        let control = BurstCall {
            syscall: EPOLL_CTL,
            fd: 7,
            op: 3,
            events: EPOLLOUT,
            ..BurstCall::default()
        };
        let queue = BurstCall {
            syscall: IOCTL,
            fd: 7,
            op: SIOCOUTQ,
            value: 60_000,
            ..BurstCall::default()
        };
        assert_eq!(
            cycle(&[control, queue.clone(), queue]),
            [
                "epoll_ctl MOD fd 7 EPOLLOUT",
                "ioctl SIOCOUTQ fd 7 = 60000 (×2)"
            ]
        );
    }
}
