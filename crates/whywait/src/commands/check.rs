//! `whywait check`: what this machine allows.

use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;

use whywait_capture::{NO_KERNEL_NAMES, Options, Refusal, Rehearsal, Tier};
use whywait_target::OwnPidNamespace;
use whywait_words::{Charset, escape};

use crate::errors::FAILED;
use crate::output;
use crate::privileges::{NO_MEMORY, NO_PTRACE};

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
    let Rehearsal {
        functions,
        tier,
        missing,
    } = match rehearsal {
        Ok(rehearsal) => rehearsal,
        Err(error) => return vec![line(CheckResult::No, what, &error.to_string())],
    };
    let (verdict, sees) = match tier {
        Tier::Tracepoints => (CheckResult::Yes, "requests are seen"),
        Tier::Fexit => (CheckResult::Yes, "requests are seen, at a higher price"),
        Tier::ThreadsOnly => (CheckResult::Partly, "requests are not seen"),
    };
    let mut lines = vec![line(verdict, "tier", &format!("{}: {sees}", tier.name()))];
    lines.extend(
        missing
            .iter()
            .map(|text| line(CheckResult::Partly, what, text)),
    );
    if missing.is_empty() {
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
    /// Whether the kernel shows where its functions are.
    kernel_is_named: bool,
    /// Whether processes can be seen at all.
    has_proc: bool,
    architecture: &'static str,
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
const CAP_DAC_READ_SEARCH: u32 = 2;
const CAP_SYS_PTRACE: u32 = 19;
const CAP_SYS_ADMIN: u32 = 21;
const CAP_PERFMON: u32 = 38;
const CAP_BPF: u32 = 39;

/// The inode of the first user namespace (PROC_USER_INIT_INO).
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
        let user_namespace = fs::read_link(root.join("proc/self/ns/user")).ok();
        Machine {
            release: text("proc/sys/kernel/osrelease"),
            has_btf: fs::File::open(root.join("sys/kernel/btf/vmlinux")).is_ok(),
            lockdown: text("sys/kernel/security/lockdown"),
            capabilities,
            is_root: rustix::process::geteuid().is_root(),
            own_pid_namespace: whywait_target::in_own_pid_namespace(),
            own_user_namespace: user_namespace
                .map(|namespace| namespace != Path::new(FIRST_USER_NAMESPACE)),
            kernel_is_named: is_named(&root.join("proc/kallsyms")),
            has_proc: status.is_some(),
            architecture: std::env::consts::ARCH,
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
        // Whether it will do, loading the programs tells, not its number: distributions' kernels
        // have what newer ones brought.
        CheckLine {
            verdict: CheckResult::Yes,
            what,
            text: escape(release, Charset::Unicode, 60),
        }
    }

    fn processor(&self) -> CheckLine {
        let (verdict, text) = match self.architecture {
            "x86_64" => (CheckResult::Yes, "x86-64".to_owned()),
            "aarch64" => (
                CheckResult::Partly,
                "arm64: tried on an emulated processor only".to_owned(),
            ),
            other => (
                CheckResult::No,
                format!("{other}: whywait knows x86-64 and arm64 only"),
            ),
        };
        CheckLine {
            verdict,
            what: "processor",
            text,
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
        if !can_trace {
            return CheckLine {
                verdict: CheckResult::No,
                what,
                text: match self.is_root {
                    true => Refusal::Capabilities.to_string(),
                    false => "run it with sudo, or give it CAP_BPF, CAP_PERFMON and CAP_SYS_PTRACE"
                        .to_owned(),
                },
            };
        }
        let lacks: Vec<&str> = [
            (has(CAP_SYS_PTRACE), NO_PTRACE),
            (has(CAP_DAC_READ_SEARCH), NO_MEMORY),
            (self.kernel_is_named, NO_KERNEL_NAMES),
        ]
        .into_iter()
        .filter_map(|(has, lack)| (!has).then_some(lack))
        .collect();
        match lacks[..] {
            [] => CheckLine {
                verdict: CheckResult::Yes,
                what,
                text: "enough to trace and to read stacks".to_owned(),
            },
            _ => CheckLine {
                verdict: CheckResult::Partly,
                what,
                text: lacks.join("; "),
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
                verdict: CheckResult::No,
                what,
                text: format!("{OwnPidNamespace}: {}", OwnPidNamespace::HINT),
            },
            (true, _) => CheckLine {
                verdict: CheckResult::Yes,
                what,
                text: "visible with the host's process numbers".to_owned(),
            },
        }
    }
}

/// Whether the functions in a list as /proc/kallsyms have addresses: all have, or none. What is not
/// a function has small numbers there, and 0 too.
fn is_named(list: &Path) -> bool {
    let Ok(file) = fs::File::open(list) else {
        return false;
    };
    let mut lines = BufReader::new(file).lines().map_while(Result::ok);
    let is_function = |line: &String| matches!(line.split(' ').nth(1), Some("T" | "t"));
    lines
        .find(is_function)
        .and_then(|line| u64::from_str_radix(line.split(' ').next()?, 16).ok())
        .is_some_and(|address| address != 0)
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
            kernel_is_named: true,
            has_proc: true,
            architecture: "x86_64",
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
        let unknown = Machine {
            release: None,
            ..good()
        };
        assert_eq!(verdicts(&unknown), [("kernel", no)]);
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
        assert_eq!(verdicts(&container), [("processes", no)]);
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
        assert!(no_ptrace.privileges().text.contains("CAP_SYS_PTRACE"));
        let no_files = Machine {
            capabilities: Some(1 << CAP_BPF | 1 << CAP_PERFMON | 1 << CAP_SYS_PTRACE),
            ..good()
        };
        assert_eq!(verdicts(&no_files), [("privileges", CheckResult::Partly)]);
        assert_eq!(no_files.privileges().text, NO_MEMORY);
        let no_syslog = Machine {
            kernel_is_named: false,
            ..good()
        };
        assert_eq!(verdicts(&no_syslog), [("privileges", CheckResult::Partly)]);
        assert!(no_syslog.privileges().text.contains("CAP_SYSLOG"));
    }

    #[test]
    fn hidden_functions_have_no_address() {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let list = dir.path().join("kallsyms");
        for (text, named) in [
            (
                "0000000000000000 A fixed\nffffffff81000000 T _stext\n",
                true,
            ),
            (
                "0000000000000000 A fixed\n0000000000000000 T _stext\n",
                false,
            ),
            ("", false),
        ] {
            fs::write(&list, text).expect("a file");
            assert_eq!(is_named(&list), named, "{text}");
        }
        assert!(!is_named(&dir.path().join("none")));
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
