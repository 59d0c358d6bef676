//! What the BPF programs cost, as the kernel counts it.
#![allow(unsafe_code)]

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use whywait_events::recording::ProgramCost;

/// Turns the run-time statistics on for as long as the result lives; the machine's own setting
/// stays as it is.
pub(crate) fn enable() -> io::Result<OwnedFd> {
    // SAFETY: the call takes a number and returns a descriptor that nobody else has, or an error.
    unsafe {
        let fd = libbpf_sys::bpf_enable_stats(libbpf_sys::BPF_STATS_RUN_TIME);
        if fd < 0 {
            Err(io::Error::last_os_error())
        } else {
            Ok(OwnedFd::from_raw_fd(fd))
        }
    }
}

fn info(program: BorrowedFd<'_>) -> Option<libbpf_sys::bpf_prog_info> {
    let mut info = libbpf_sys::bpf_prog_info::default();
    let mut size = size_of::<libbpf_sys::bpf_prog_info>() as u32;
    // SAFETY: the descriptor is the program's, and the kernel writes at most `size` bytes.
    let failed = unsafe {
        libbpf_sys::bpf_prog_get_info_by_fd(program.as_raw_fd(), &raw mut info, &raw mut size)
    };
    (failed == 0).then_some(info)
}

/// What each program that ran has cost.
pub(crate) fn of_programs<'a>(
    programs: impl Iterator<Item = (Cow<'a, str>, BorrowedFd<'a>)>,
) -> BTreeMap<String, ProgramCost> {
    programs
        .filter_map(|(name, program)| {
            let info = info(program).filter(|info| info.run_cnt > 0)?;
            Some((
                name.into_owned(),
                ProgramCost {
                    run_ns: info.run_time_ns,
                    runs: info.run_cnt,
                },
            ))
        })
        .collect()
}

/// How often the kernel left out a run of a program, because the CPU was just running it.
pub(crate) fn missed_runs<'a>(
    programs: impl Iterator<Item = (Cow<'a, str>, BorrowedFd<'a>)>,
) -> u64 {
    programs
        .filter_map(|(_, program)| Some(info(program)?.recursion_misses))
        .sum()
}
