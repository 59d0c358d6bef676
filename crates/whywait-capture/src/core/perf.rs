//! The sampling clock: one perf event for each CPU.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// `PERF_TYPE_SOFTWARE` and `PERF_COUNT_SW_CPU_CLOCK` of `linux/perf_event.h`: needs no hardware
/// counter.
const TYPE_SOFTWARE: u32 = 1;
const COUNT_SW_CPU_CLOCK: u64 = 0;
/// `PERF_EVENT_IOC_ENABLE` and `PERF_EVENT_IOC_DISABLE`
const IOC_ENABLE: libc::Ioctl = 0x2400;
const IOC_DISABLE: libc::Ioctl = 0x2401;
/// `PERF_FLAG_FD_CLOEXEC`
const FD_CLOEXEC: libc::c_ulong = 8;

/// The front of `struct perf_event_attr` (its first published size, 64 bytes, which every kernel
/// takes).
#[repr(C)]
#[derive(Default)]
struct Attributes {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_events: u32,
    bp_type: u32,
    bp_addr: u64,
}

/// A clock that ticks every `period_ns` on `cpu`.
pub(crate) fn cpu_clock(cpu: u32, period_ns: u64) -> io::Result<OwnedFd> {
    let attributes = Attributes {
        kind: TYPE_SOFTWARE,
        size: size_of::<Attributes>() as u32,
        config: COUNT_SW_CPU_CLOCK,
        sample_period: period_ns,
        ..Attributes::default()
    };
    // SAFETY: the attributes outlive the call and say their size; the result is checked.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            &raw const attributes,
            -1,
            cpu as libc::c_int,
            -1,
            FD_CLOEXEC,
        )
    };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call returned a descriptor that nobody else has.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as libc::c_int) })
}

/// Has a clock tick, or not.
pub(crate) fn set_ticking(clock: BorrowedFd<'_>, ticks: bool) {
    let request = if ticks { IOC_ENABLE } else { IOC_DISABLE };
    // SAFETY: both requests take no pointer. They fail on nothing that is a clock.
    unsafe { libc::ioctl(clock.as_raw_fd(), request, 0) };
}

/// The CPUs that are online, from the kernel's list such as `0-3,5`.
pub(crate) fn online_cpus() -> Vec<u32> {
    let list = std::fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
    let cpus = parse_cpu_list(&list);
    if cpus.is_empty() { vec![0] } else { cpus }
}

fn parse_cpu_list(list: &str) -> Vec<u32> {
    list.trim()
        .split(',')
        .filter_map(|range| {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            Some(first.parse::<u32>().ok()?..=last.parse::<u32>().ok()?)
        })
        .flatten()
        .collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn cpu_lists_are_ranges_and_single_cpus() {
        assert_eq!(super::parse_cpu_list("0-2,5\n"), [0, 1, 2, 5]);
        assert_eq!(super::parse_cpu_list("0\n"), [0]);
        assert!(super::parse_cpu_list("").is_empty());
    }
}
