//! What can go wrong, each in one line that says what to do.

use std::io;

use libbpf_rs::ErrorKind;
use whywait_events::recording::WriteError;
use whywait_target::OwnPidNamespace;

use super::limits::Refusal;
use super::refused::Refused;

/// Why a capture could not begin or go on.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    /// The process does not exist (any more).
    #[error(
        "no process {0}: it has ended, or lives in another pid namespace; look it up with pgrep"
    )]
    NoSuchProcess(u32),
    /// What BPF says of processes cannot be looked up.
    #[error("{0}: {hint}", hint = OwnPidNamespace::HINT)]
    OwnPidNamespace(OwnPidNamespace),
    /// Missing privileges.
    #[error("not permitted to load BPF programs: {0}")]
    NotPermitted(Refusal),
    /// The limit of open files is too low.
    #[error(
        "too few file descriptors: whywait needs some {needed} and may open {free} more; raise \
         the limit of open files (ulimit -n, LimitNOFILE=)"
    )]
    Descriptors {
        /// How many it takes.
        needed: u64,
        /// How many there are.
        free: u64,
    },
    /// The whole machine has no more descriptors.
    #[error("this machine has no file descriptors left (fs.file-max): close files or raise it")]
    DescriptorsOfMachine,
    /// There is not enough memory for the BPF programs and their maps.
    #[error(
        "out of memory ({reason}): raise the limit of whywait's cgroup (memory.max) or of its \
         address space (ulimit -v)"
    )]
    Memory {
        /// What failed, on one line.
        reason: String,
    },
    /// The kernel has no type information.
    #[error(
        "this kernel has no type information (/sys/kernel/btf/vmlinux): whywait needs a kernel \
         built with CONFIG_DEBUG_INFO_BTF=y, as those of Debian 11, Ubuntu 20.10, RHEL 8.2 and \
         later are"
    )]
    NoBtf,
    /// The kernel is older than any that the programs run on.
    #[error(
        "this kernel is too old: BPF cannot walk over the threads of one process there; use Linux \
         6.1 or newer"
    )]
    TooOld,
    /// The BPF object was refused.
    #[error("the kernel refused whywait's BPF programs ({reason}): {}", report(.refused.as_ref()))]
    Load {
        /// What libbpf's error says, on one line.
        reason: String,
        /// The program that it was about, where one was.
        refused: Option<Refused>,
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

impl CaptureError {
    /// What went wrong at a call of libbpf, where that is not the kernel's lack but a limit that
    /// whywait runs under.
    pub(crate) fn of_limits(error: &libbpf_rs::Error) -> Option<Self> {
        let reason = one_line(error);
        // Not all of its errors have a kind of their own.
        let is = |number: i32| reason.contains(&format!("(os error {number})"));
        match error.kind() {
            // The verifier's, of a program that the kernel does not take.
            ErrorKind::PermissionDenied
                if is(libc::EACCES) && Refusal::look() == Refusal::SecurityModule =>
            {
                None
            }
            ErrorKind::PermissionDenied => Some(Self::NotPermitted(Refusal::look())),
            // From a filter that does not say what it is.
            _ if is(libc::ENOSYS) => Some(Self::NotPermitted(Refusal::look())),
            ErrorKind::OutOfMemory => Some(Self::Memory { reason }),
            _ if is(libc::ENOMEM) => Some(Self::Memory { reason }),
            _ if is(libc::EMFILE) => Some(Self::Descriptors {
                needed: super::limits::SOME_DESCRIPTORS,
                free: 0,
            }),
            _ if is(libc::ENFILE) => Some(Self::DescriptorsOfMachine),
            _ => None,
        }
    }
}

/// What to do about a refusal.
fn report(refused: Option<&Refused>) -> String {
    let program = refused.map_or_else(String::new, |refused| format!("{refused}; "));
    format!(
        "{program}use a newer whywait, or report this line with the kernel's version (uname -r)"
    )
}

/// An error of libbpf on one line.
pub(crate) fn one_line(error: &libbpf_rs::Error) -> String {
    format!("{error:#}")
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
}
