//! What can go wrong, each in one line that says what to do.

use std::io;

use whywait_events::recording::WriteError;

/// Why a capture could not begin or go on.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    /// The process does not exist (any more).
    #[error(
        "no process {0}: it has ended, or lives in another pid namespace; look it up with pgrep"
    )]
    NoSuchProcess(u32),
    /// Missing privileges.
    #[error(
        "not permitted to load BPF programs: run whywait as root (sudo), or give it CAP_BPF, \
         CAP_PERFMON and CAP_SYS_PTRACE; `whywait check` says what is missing"
    )]
    NotPermitted,
    /// The kernel has no type information.
    #[error(
        "this kernel has no type information (/sys/kernel/btf/vmlinux): whywait needs a kernel \
         built with CONFIG_DEBUG_INFO_BTF=y, as those of Debian 11, Ubuntu 20.10, RHEL 8.2 and \
         later are"
    )]
    NoBtf,
    /// The BPF object was refused.
    #[error(
        "the kernel refused whywait's BPF programs ({reason}); `whywait check` says what it lacks"
    )]
    Load {
        /// What libbpf said, on one line.
        reason: String,
    },
    /// A program could not be attached.
    #[error(
        "the kernel has no {program} to attach to ({reason}); `whywait check` says what it lacks"
    )]
    Attach {
        /// Which program.
        program: &'static str,
        /// What libbpf said, on one line.
        reason: String,
    },
    /// A program over the target's threads or sockets failed.
    #[error("cannot walk the target's {what}: {source}")]
    Iterate {
        /// What was walked.
        what: &'static str,
        /// Why.
        source: io::Error,
    },
    /// The recording could not be written.
    #[error(transparent)]
    Write(#[from] WriteError),
}

/// An error of libbpf on one line.
pub(crate) fn one_line(error: &libbpf_rs::Error) -> String {
    format!("{error:#}")
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
}
