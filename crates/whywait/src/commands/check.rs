//! `whywait check`: what this machine allows.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use whywait_capture::{Options, Refusal, Rehearsal};
use whywait_words::{Charset, escape};

use crate::errors::FAILED;
use crate::output;
use crate::privileges::NO_PTRACE;

pub(crate) fn run() -> anyhow::Result<u8> {
    let mut findings = Machine::read(Path::new("/")).judge();
    if findings
        .iter()
        .all(|finding| finding.verdict != CheckResult::No)
    {
        findings.extend(rehearsal(whywait_capture::rehearse(&Options::default())));
    }
    output::write(&render(&findings), None)?;
    Ok(
        if findings
            .iter()
            .any(|finding| finding.verdict == CheckResult::No)
        {
            FAILED
        } else {
            0
        },
    )
}

/// What the kernel says when the programs are loaded: for each feature that it lacks, a part of the
/// report is missing.
fn rehearsal(rehearsal: Result<Rehearsal, whywait_capture::CaptureError>) -> Vec<CheckLine> {
    let line = |verdict, what, text: &str| CheckLine {
        verdict,
        what,
        text: escape(text, Charset::Unicode, 400),
    };
    let what = "programs";
    let Rehearsal { functions, missing } = match rehearsal {
        Ok(rehearsal) => rehearsal,
        Err(error) => return vec![line(CheckResult::No, what, &error.to_string())],
    };
    let mut lines: Vec<_> = missing
        .iter()
        .map(|text| line(CheckResult::Partly, what, text))
        .collect();
    if lines.is_empty() {
        lines.push(line(CheckResult::Yes, what, "all can be loaded"));
    }
    lines.push(line(CheckResult::Yes, "kernel functions", &functions));
    lines
}

/// What the kernel says about itself and about whywait's privileges. Absent: it does not say.
#[derive(Debug, Default)]
struct Machine {
    release: Option<String>,
    has_btf: bool,
    lockdown: Option<String>,
    /// The process's effective capabilities, a mask.
    capabilities: Option<u64>,
    /// Whether it runs as root, if as one that lacks capabilities.
    is_root: bool,
    /// Whether this is another pid namespace than the machine's first, in whose numbers BPF speaks.
    own_pid_namespace: Option<bool>,
    /// Whether this is another user namespace than the first, whose root alone may use BPF.
    own_user_namespace: Option<bool>,
    /// Whether processes can be seen at all.
    has_proc: bool,
    x86_64: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CheckResult {
    Yes,
    /// Works, with less.
    Partly,
    No,
}

#[derive(Debug)]
struct CheckLine {
    verdict: CheckResult,
    what: &'static str,
    text: String,
}

/// Bits of the capability mask (linux/capability.h).
const CAP_SYS_PTRACE: u32 = 19;
const CAP_SYS_ADMIN: u32 = 21;
const CAP_PERFMON: u32 = 38;
const CAP_BPF: u32 = 39;

/// The first kernel with all that the default tier needs: task iterators that keep to one process
/// are of 6.1.
const OLDEST_KERNEL: (u32, u32) = (6, 1);

/// The inode of the first pid namespace (PROC_PID_INIT_INO).
const FIRST_PID_NAMESPACE: &str = "pid:[4026531836]";
/// The same of the first user namespace (PROC_USER_INIT_INO).
const FIRST_USER_NAMESPACE: &str = "user:[4026531837]";

impl Machine {
    fn read(root: &Path) -> Self {
        let text = |path: &str| {
            fs::read_to_string(root.join(path))
                .ok()
                .map(|text| text.trim().to_owned())
        };
        let status = text("proc/self/status");
        let capabilities = status.as_deref().and_then(|status| {
            let mask = status
                .lines()
                .find_map(|line| line.strip_prefix("CapEff:"))?;
            u64::from_str_radix(mask.trim(), 16).ok()
        });
        let is_own = |path: &str, first: &str| {
            let namespace = fs::read_link(root.join(path)).ok()?;
            Some(namespace != Path::new(first))
        };
        Machine {
            release: text("proc/sys/kernel/osrelease"),
            has_btf: fs::File::open(root.join("sys/kernel/btf/vmlinux")).is_ok(),
            lockdown: text("sys/kernel/security/lockdown"),
            capabilities,
            is_root: rustix::process::geteuid().is_root(),
            own_pid_namespace: is_own("proc/self/ns/pid", FIRST_PID_NAMESPACE),
            own_user_namespace: is_own("proc/self/ns/user", FIRST_USER_NAMESPACE),
            has_proc: status.is_some(),
            x86_64: cfg!(target_arch = "x86_64"),
        }
    }

    fn judge(&self) -> Vec<CheckLine> {
        vec![
            self.kernel(),
            self.processor(),
            self.type_information(),
            self.privileges(),
            self.lockdown(),
            self.processes(),
        ]
    }

    fn kernel(&self) -> CheckLine {
        let what = "kernel";
        let Some(release) = &self.release else {
            return CheckLine {
                verdict: CheckResult::No,
                what,
                text: "its version is unknown: is /proc mounted?".to_owned(),
            };
        };
        let (major, minor) = OLDEST_KERNEL;
        let shown = escape(release, Charset::Unicode, 60);
        match version(release) {
            Some(version) if version >= OLDEST_KERNEL => CheckLine {
                verdict: CheckResult::Yes,
                what,
                text: shown,
            },
            _ => CheckLine {
                verdict: CheckResult::No,
                what,
                text: format!("{shown}: whywait needs {major}.{minor} or newer"),
            },
        }
    }

    fn processor(&self) -> CheckLine {
        match self.x86_64 {
            true => CheckLine {
                verdict: CheckResult::Yes,
                what: "processor",
                text: "x86-64".to_owned(),
            },
            false => CheckLine {
                verdict: CheckResult::No,
                what: "processor",
                text: format!(
                    "{}: whywait supports only x86-64 so far",
                    std::env::consts::ARCH
                ),
            },
        }
    }

    fn type_information(&self) -> CheckLine {
        let what = "type information";
        match self.has_btf {
            true => CheckLine {
                verdict: CheckResult::Yes,
                what,
                text: "/sys/kernel/btf/vmlinux".to_owned(),
            },
            false => CheckLine {
                verdict: CheckResult::No,
                what,
                text: "no /sys/kernel/btf/vmlinux: use a kernel built with \
                       CONFIG_DEBUG_INFO_BTF=y, as distributions' kernels are"
                    .to_owned(),
            },
        }
    }

    fn privileges(&self) -> CheckLine {
        let what = "privileges";
        let Some(mask) = self.capabilities else {
            return CheckLine {
                verdict: CheckResult::No,
                what,
                text: "unknown: is /proc mounted?".to_owned(),
            };
        };
        let has = |bit: u32| mask >> bit & 1 == 1;
        // CAP_SYS_ADMIN is what the two were part of once, and still includes them.
        let can_trace = has(CAP_SYS_ADMIN) || (has(CAP_BPF) && has(CAP_PERFMON));
        if can_trace && self.own_user_namespace == Some(true) {
            return CheckLine {
                verdict: CheckResult::No,
                what,
                text: Refusal::UserNamespace.to_string(),
            };
        }
        match (can_trace, has(CAP_SYS_PTRACE)) {
            (true, true) => CheckLine {
                verdict: CheckResult::Yes,
                what,
                text: "enough to trace and to read stacks".to_owned(),
            },
            (true, false) => CheckLine {
                verdict: CheckResult::Partly,
                what,
                text: NO_PTRACE.to_owned(),
            },
            (false, _) => CheckLine {
                verdict: CheckResult::No,
                what,
                text: match self.is_root {
                    true => Refusal::Capabilities.to_string(),
                    false => "run it with sudo, or give it CAP_BPF, CAP_PERFMON and CAP_SYS_PTRACE"
                        .to_owned(),
                },
            },
        }
    }

    fn lockdown(&self) -> CheckLine {
        let what = "lockdown";
        // The file lists all modes and brackets the one in force.
        let mode = self
            .lockdown
            .as_deref()
            .and_then(|text| text.split_once('[')?.1.split_once(']'));
        match mode.map(|(mode, _)| mode) {
            None | Some("none") => CheckLine {
                verdict: CheckResult::Yes,
                what,
                text: "none".to_owned(),
            },
            Some("confidentiality") => CheckLine {
                verdict: CheckResult::No,
                what,
                text: "confidentiality: the kernel does not let BPF read memory; boot with \
                       lockdown=integrity or without lockdown"
                    .to_owned(),
            },
            Some(mode) => CheckLine {
                verdict: CheckResult::Yes,
                what,
                text: escape(mode, Charset::Unicode, 30),
            },
        }
    }

    fn processes(&self) -> CheckLine {
        let what = "processes";
        match (self.has_proc, self.own_pid_namespace) {
            (false, _) => CheckLine {
                verdict: CheckResult::No,
                what,
                text: "/proc is not mounted: mount it".to_owned(),
            },
            (true, Some(true)) => CheckLine {
                verdict: CheckResult::Partly,
                what,
                text: "this container has a pid namespace of its own: run whywait on the host, or \
                       start the container with --pid=host"
                    .to_owned(),
            },
            (true, _) => CheckLine {
                verdict: CheckResult::Yes,
                what,
                text: "visible with the host's process numbers".to_owned(),
            },
        }
    }
}

/// `(6, 18)` of `6.18.3-generic`.
fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

fn render(findings: &[CheckLine]) -> String {
    let mut text = String::new();
    for CheckLine {
        verdict,
        what,
        text: line,
    } in findings
    {
        let mark = match verdict {
            CheckResult::Yes => "yes",
            CheckResult::Partly => "partly",
            CheckResult::No => "no",
        };
        let _ = writeln!(text, "{mark:<7} {what:<17} {line}");
    }
    let worst = |verdict| findings.iter().any(|finding| finding.verdict == verdict);
    text.push_str(match (worst(CheckResult::No), worst(CheckResult::Partly)) {
        (true, _) => "whywait cannot watch here: fix the lines marked `no`.\n",
        (false, true) => "whywait can watch here, but reports less.\n",
        (false, false) => "whywait can watch here.\n",
    });
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good() -> Machine {
        Machine {
            release: Some("6.18.3-generic".to_owned()),
            has_btf: true,
            lockdown: Some("none [integrity] confidentiality".to_owned()),
            capabilities: Some(u64::MAX),
            is_root: false,
            own_pid_namespace: Some(false),
            own_user_namespace: Some(false),
            has_proc: true,
            x86_64: true,
        }
    }

    fn verdicts(machine: &Machine) -> Vec<(&'static str, CheckResult)> {
        let wrong = |line: CheckLine| {
            (line.verdict != CheckResult::Yes).then_some((line.what, line.verdict))
        };
        machine.judge().into_iter().filter_map(wrong).collect()
    }

    #[test]
    fn a_good_machine_has_nothing_against_it() {
        assert_eq!(verdicts(&good()), []);
        assert!(render(&good().judge()).ends_with("whywait can watch here.\n"));
    }

    #[test]
    fn each_lack_is_named() {
        let no = CheckResult::No;
        let release = |text: &str| Some(text.to_owned());
        assert_eq!(
            verdicts(&Machine {
                release: release("5.14.21"),
                ..good()
            }),
            [("kernel", no)]
        );
        assert_eq!(
            verdicts(&Machine {
                release: release("nonsense"),
                ..good()
            }),
            [("kernel", no)]
        );
        assert_eq!(
            verdicts(&Machine {
                has_btf: false,
                ..good()
            }),
            [("type information", no)]
        );
        assert_eq!(
            verdicts(&Machine {
                capabilities: Some(0),
                ..good()
            }),
            [("privileges", no)]
        );
        let confined = Machine {
            capabilities: Some(0),
            is_root: true,
            ..good()
        };
        let said = confined.privileges().text;
        assert!(
            said.contains("root lacks CAP_BPF") && !said.contains("sudo"),
            "{said}"
        );
        let lockdown = Some("none integrity [confidentiality]".to_owned());
        assert_eq!(
            verdicts(&Machine { lockdown, ..good() }),
            [("lockdown", no)]
        );
        let container = Machine {
            own_pid_namespace: Some(true),
            ..good()
        };
        assert_eq!(verdicts(&container), [("processes", CheckResult::Partly)]);
        let rootless = Machine {
            own_user_namespace: Some(true),
            ..good()
        };
        assert_eq!(verdicts(&rootless), [("privileges", no)]);
        let no_ptrace = Machine {
            capabilities: Some(1 << CAP_BPF | 1 << CAP_PERFMON),
            ..good()
        };
        assert_eq!(verdicts(&no_ptrace), [("privileges", CheckResult::Partly)]);
    }

    #[test]
    fn an_unknown_machine_is_not_a_good_one() {
        let dir = tempfile::tempdir().expect("a temporary folder");
        assert!(
            Machine::read(dir.path())
                .judge()
                .iter()
                .any(|line| line.verdict == CheckResult::No)
        );
    }
}
