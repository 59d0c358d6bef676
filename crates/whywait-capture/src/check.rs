//! What this machine allows, and what would be missing: `whywait check`.

use std::fs;

use crate::{kernel, options::Options, perf, programs::Programs};

/// How a requirement stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Requirement {
    /// There.
    Met,
    /// Missing; whywait works without a part.
    Degraded,
    /// Missing; whywait cannot record.
    Missing,
}

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Check {
    /// What.
    pub what: &'static str,
    /// How it stands.
    pub state: Requirement,
    /// What was found and, where something is missing, what that takes away and what to do.
    pub detail: String,
}

/// Looks at everything that recording needs. Loads the BPF programs without attaching them.
pub fn check() -> Vec<Check> {
    let host = kernel::host();
    let mut found = vec![
        Check { what: "kernel", state: Requirement::Met, detail: format!("Linux {} {}", host.kernel, host.arch) },
        btf(),
        lockdown(),
    ];
    match Programs::load(&Options::default()) {
        Ok(programs) => {
            found.push(Check {
                what: "BPF programs",
                state: Requirement::Met,
                detail: "all programs load (scheduler, sockets, samples, iterators)".to_owned(),
            });
            for note in &programs.notes {
                found.push(Check { what: "wake context", state: Requirement::Degraded, detail: note.clone() });
            }
        }
        Err(error) => {
            found.push(Check { what: "BPF programs", state: Requirement::Missing, detail: error.to_string() });
        }
    }
    found.push(match perf::cpu_clock(perf::online_cpus()[0], 199) {
        Ok(_) => Check {
            what: "samples",
            state: Requirement::Met,
            detail: "cpu-clock perf events (no hardware counter needed)".to_owned(),
        },
        Err(error) => Check {
            what: "samples",
            state: Requirement::Degraded,
            detail: format!("no perf events ({error}): no stacks of threads that run"),
        },
    });
    found.push(kernel_symbols());
    found
}

fn btf() -> Check {
    match fs::metadata("/sys/kernel/btf/vmlinux") {
        Ok(file) => Check {
            what: "BTF",
            state: Requirement::Met,
            detail: format!("/sys/kernel/btf/vmlinux, {} KiB", file.len() / 1024),
        },
        Err(_) => Check {
            what: "BTF",
            state: Requirement::Missing,
            detail: crate::CaptureError::NoBtf.to_string(),
        },
    }
}

fn lockdown() -> Check {
    // The mode in force is in brackets. `confidentiality` forbids BPF to read kernel memory.
    let modes = fs::read_to_string("/sys/kernel/security/lockdown").unwrap_or_default();
    let mode = modes.split_once('[').and_then(|(_, rest)| rest.split_once(']')).map_or("none", |(mode, _)| mode);
    if mode == "confidentiality" {
        Check {
            what: "lockdown",
            state: Requirement::Missing,
            detail: "confidentiality: the kernel lets no program read its memory; boot with lockdown=integrity or none"
                .to_owned(),
        }
    } else {
        Check {
            what: "lockdown",
            state: Requirement::Met,
            detail: format!("{mode}; neither kprobes nor fentry are needed"),
        }
    }
}

fn kernel_symbols() -> Check {
    let readable = fs::read_to_string("/proc/kallsyms")
        .is_ok_and(|symbols| symbols.lines().take(1000).any(|line| !line.starts_with("0000000000000000")));
    if readable {
        Check { what: "kernel symbols", state: Requirement::Met, detail: "/proc/kallsyms shows addresses".to_owned() }
    } else {
        Check {
            what: "kernel symbols",
            state: Requirement::Degraded,
            detail: "/proc/kallsyms hides addresses (kernel.kptr_restrict): kernel frames stay without names".to_owned(),
        }
    }
}
