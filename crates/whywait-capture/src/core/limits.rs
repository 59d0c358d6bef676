//! What whywait runs under besides the kernel: limits, and who refuses what root may do.

use std::fs;
use std::path::Path;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::error::CaptureError;
use super::perf;

/// What it takes besides programs and maps: files of the recording, of the target's processes and
/// modules, iterators.
const MORE_DESCRIPTORS: u64 = 96;
/// What all of it comes to on a machine with few CPUs.
pub(crate) const SOME_DESCRIPTORS: u64 = 300;

/// What its address space must have room for: maps, rings, and what it knows of the target.
const MEMORY_BYTES: usize = 256 << 20;

/// The inode of the first user namespace (PROC_USER_INIT_INO), whose root may load BPF programs.
const FIRST_USER_NAMESPACE: &str = "user:[4026531837]";

/// Sees to it that there are enough file descriptors, or says that there are not: where one is
/// missing at the wrong place, libbpf takes the kernel for an old one.
pub(crate) fn take_descriptors(programs: usize) -> Result<(), CaptureError> {
    let open = fs::read_dir("/proc/self/fd").map_or(0, |entries| entries.count() as u64);
    // A program and its link; a clock on each CPU and its link.
    let needed = 2 * programs as u64 + 2 * perf::online_cpus().len() as u64 + MORE_DESCRIPTORS;
    let limit = getrlimit(Resource::Nofile);
    let current = limit.current.unwrap_or(u64::MAX);
    let wanted = open.saturating_add(needed);
    if current >= wanted {
        return Ok(());
    }
    if limit.maximum.is_none_or(|maximum| maximum >= wanted) {
        let raised = Rlimit {
            current: Some(wanted),
            ..limit
        };
        if setrlimit(Resource::Nofile, raised).is_ok() {
            return Ok(());
        }
    }
    Err(CaptureError::Descriptors {
        needed,
        free: current.saturating_sub(open),
    })
}

/// Sees whether there is enough memory before something needs it that cannot say so.
pub(crate) fn take_memory() -> Result<(), CaptureError> {
    let mut room: Vec<u8> = Vec::new();
    room.try_reserve_exact(MEMORY_BYTES)
        .map_err(|_| CaptureError::Memory {
            reason: format!("no room for {} MB", MEMORY_BYTES >> 20),
        })
}

/// What a process of ours lacks of what reading the target's files needs, as users give it; empty:
/// nothing.
pub(crate) fn lacks_to_read() -> Vec<&'static str> {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    lacking(&status)
}

/// From the lines of `/proc/self/status`.
fn lacking(status: &str) -> Vec<&'static str> {
    // Each with those that include it: bits of linux/capability.h.
    const NEEDED: [(&str, u64); 3] = [
        ("CAP_CHECKPOINT_RESTORE", 1 << 40 | 1 << 21),
        ("CAP_DAC_READ_SEARCH", 1 << 2 | 1 << 1),
        ("CAP_SYS_PTRACE", 1 << 19),
    ];
    let effective = status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .unwrap_or(0);
    let lacks = |(_, any): &&(&str, u64)| effective & any == 0;
    NEEDED.iter().filter(lacks).map(|(name, _)| *name).collect()
}

/// What is missing where the kernel does not show its functions.
pub const NO_KERNEL_NAMES: &str = "functions of the kernel have no names, and less is known of \
                                   what waits were for: the kernel hides them without CAP_SYSLOG, \
                                   and with kernel.kptr_restrict=2";

/// Why the kernel does not permit what whywait asks for, and what to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// It does not run as root.
    NotRoot,
    /// Its root is that of a user namespace.
    UserNamespace,
    /// Its root lacks capabilities, as in most containers.
    Capabilities,
    /// A seccomp filter forbids the calls.
    Seccomp,
    /// It has all that it needs: a security module, or lockdown.
    SecurityModule,
}

impl Refusal {
    pub(crate) fn look() -> Self {
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let namespace = fs::read_link("/proc/self/ns/user").ok();
        Self::of(&status, namespace.as_deref())
    }

    /// From the lines of `/proc/self/status`, and the user namespace.
    fn of(status: &str, namespace: Option<&Path>) -> Self {
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            line.unwrap_or_default()
                .split_whitespace()
                .collect::<Vec<_>>()
        };
        // Bits of linux/capability.h.
        const CAP_SYS_ADMIN: u64 = 1 << 21;
        const CAP_PERFMON: u64 = 1 << 38;
        const CAP_BPF: u64 = 1 << 39;
        let effective = field("CapEff:")
            .first()
            .and_then(|mask| u64::from_str_radix(mask, 16).ok())
            .unwrap_or(0);
        let may_trace = effective & CAP_SYS_ADMIN != 0
            || effective & CAP_BPF != 0 && effective & CAP_PERFMON != 0;
        // Real, effective, saved, of the filesystem.
        let is_root = field("Uid:").get(1) == Some(&"0");
        let nested = namespace.is_some_and(|it| it != Path::new(FIRST_USER_NAMESPACE));
        if nested && (is_root || may_trace) {
            Self::UserNamespace
        } else if !may_trace && is_root {
            Self::Capabilities
        } else if !may_trace {
            Self::NotRoot
        } else if field("Seccomp:") == ["2"] {
            Self::Seccomp
        } else {
            Self::SecurityModule
        }
    }
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::NotRoot => {
                "run whywait as root (sudo), or give it CAP_BPF, CAP_PERFMON and CAP_SYS_PTRACE; \
                 `whywait check` says what is missing"
            }
            Self::UserNamespace => {
                "root of a user namespace, such as a rootless container's, may not; run whywait as \
                 root of the host"
            }
            Self::Capabilities => {
                "root lacks CAP_BPF and CAP_PERFMON here; give them to the container (--cap-add \
                 BPF,PERFMON,SYS_PTRACE), or run whywait on the host"
            }
            Self::Seccomp => {
                "a seccomp filter forbids it, as containers have one; start the container with \
                 --security-opt seccomp=unconfined, or run whywait on the host"
            }
            Self::SecurityModule => {
                "a security module or lockdown forbids it (the kernel's log may say which); \
                 `whywait check` says more"
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(uid: u32, capabilities: u64, seccomp: u32) -> String {
        format!(
            "Name:\twhywait\nUid:\t1000\t{uid}\t{uid}\t{uid}\nCapEff:\t{capabilities:016x}\n\
             Seccomp:\t{seccomp}\nSeccomp_filters:\t1\n"
        )
    }

    #[test]
    fn what_is_missing_to_read_files_is_named() {
        let has = |mask: u64| lacking(&status(0, mask, 0));
        assert_eq!(has(u64::MAX >> 23), [""; 0]);
        assert_eq!(has(1 << 21 | 1 << 1), ["CAP_SYS_PTRACE"]);
        assert_eq!(has(1 << 40 | 1 << 19), ["CAP_DAC_READ_SEARCH"]);
        assert_eq!(lacking("").len(), 3);
    }

    #[test]
    fn who_refuses_shows_in_the_status() {
        let first = Some(Path::new(FIRST_USER_NAMESPACE));
        let nested = Some(Path::new("user:[4026532000]"));
        let all = u64::MAX >> 23;
        let bpf = 1 << 38 | 1 << 39;
        for (uid, capabilities, seccomp, namespace, expected) in [
            (1000, 0, 0, first, Refusal::NotRoot),
            (1000, 0, 2, nested, Refusal::NotRoot),
            (0, all, 2, nested, Refusal::UserNamespace),
            (0, 0xa804_25fb, 2, first, Refusal::Capabilities),
            (0, all, 2, first, Refusal::Seccomp),
            (1000, bpf, 2, first, Refusal::Seccomp),
            (0, all, 0, first, Refusal::SecurityModule),
        ] {
            assert_eq!(
                Refusal::of(&status(uid, capabilities, seccomp), namespace),
                expected,
                "{uid} {capabilities:x} {seccomp} {namespace:?}"
            );
        }
        assert_eq!(Refusal::of("", None), Refusal::NotRoot);
    }
}
