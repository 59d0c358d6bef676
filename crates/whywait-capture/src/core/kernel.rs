//! What differs between kernels, found out from BTF before loading; and who the machine is.

use std::fs;

use libbpf_rs::btf::{Btf, ReferencesType, types};
use whywait_events::recording::Host;

/// How far per-CPU variables are from a CPU's run queue, in bytes, as the kernel's BTF tells. See
/// `compat.bpf.h`.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct FromRunqueue {
    /// The preemption count.
    pub preempt_count: Option<i64>,
    /// What KVM says of the time that this virtual CPU had to do without a real one
    /// (`arch/x86/kernel/kvm.c`).
    pub steal: Option<i64>,
}

pub(crate) fn from_runqueue(btf: &Btf<'_>) -> FromRunqueue {
    let section = btf
        .type_by_kind::<types::DataSec<'_>>()
        .find(|section| section.name().is_some_and(|name| name == ".data..percpu"));
    let offset_of = |wanted: &str| {
        section.as_ref()?.iter().find_map(|entry| {
            let variable = btf.type_by_id::<types::Var<'_>>(entry.ty)?;
            (variable.name()? == wanted).then_some(i64::from(entry.offset))
        })
    };
    let Some(runqueue) = offset_of("runqueues") else {
        return FromRunqueue::default();
    };
    // Since 6.15 and before 6.2 a variable of its own; in between a field of `pcpu_hot`.
    let count = offset_of("__preempt_count").or_else(|| {
        let hot = btf.type_by_name::<types::Struct<'_>>("pcpu_hot")?;
        Some(offset_of("pcpu_hot")? + field_offset(btf, &hot, "preempt_count")?)
    });
    FromRunqueue {
        preempt_count: count.map(|count| count - runqueue),
        steal: offset_of("steal_time").map(|steal| steal - runqueue),
    }
}

/// Whether this is a virtual machine, as its processor says.
pub(crate) fn is_virtual() -> bool {
    let processor = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let mut flags = processor.lines().filter(|line| line.starts_with("flags"));
    flags.next().is_some_and(|line| {
        line.split_ascii_whitespace()
            .any(|flag| flag == "hypervisor")
    })
}

/// The byte offset of a field, also within unnamed structs and unions.
fn field_offset(btf: &Btf<'_>, composite: &types::Struct<'_>, wanted: &str) -> Option<i64> {
    composite.iter().find_map(|member| {
        let types::MemberAttr::Normal { offset } = member.attr else {
            return None;
        };
        let offset = i64::from(offset / 8);
        match member.name {
            Some(name) if name == wanted => Some(offset),
            Some(_) => None,
            None => {
                if let Some(inner) = btf.type_by_id::<types::Struct<'_>>(member.ty) {
                    Some(offset + field_offset(btf, &inner, wanted)?)
                } else {
                    let inner = btf.type_by_id::<types::Union<'_>>(member.ty)?;
                    inner.iter().find_map(|member| {
                        let inner = btf.type_by_id::<types::Struct<'_>>(member.ty)?;
                        Some(offset + field_offset(btf, &inner, wanted)?)
                    })
                }
            }
        }
    })
}

/// Whether `sched_switch` passes the previous task's state (Linux 5.18).
pub(crate) fn switch_passes_state(btf: &Btf<'_>) -> bool {
    // The first parameter of the prototype is the tracepoint's private data.
    tracepoint_parameters(btf, "sched_switch").is_none_or(|parameters| parameters >= 5)
}

/// How many parameters the prototype of a tracepoint has, if the kernel has it.
pub(crate) fn tracepoint_parameters(btf: &Btf<'_>, tracepoint: &str) -> Option<usize> {
    let prototype: types::Typedef<'_> = btf.type_by_name(&format!("btf_trace_{tracepoint}"))?;
    let pointer: types::Ptr<'_> = btf.type_by_id(prototype.referenced_type().type_id())?;
    let function: types::FuncProto<'_> = btf.type_by_id(pointer.referenced_type().type_id())?;
    Some(function.iter().count())
}

/// Whether the kernel has a tracepoint, as its BTF tells.
pub(crate) fn has_tracepoint(btf: &Btf<'_>, tracepoint: &str) -> bool {
    btf.type_by_name::<types::Typedef<'_>>(&format!("btf_trace_{tracepoint}"))
        .is_some()
}

/// Whether BPF can walk over the threads and files of one process (Linux 6.1, and older kernels of
/// distributions that have its BPF).
pub(crate) fn walks_one_process(btf: &Btf<'_>) -> bool {
    let link: Option<types::Union<'_>> = btf.type_by_name("bpf_iter_link_info");
    link.is_some_and(|link| {
        let mut members = link.iter().filter_map(|member| member.name);
        members.any(|member| member == "task")
    })
}

/// Whether programs may disable preemption and still call functions that are verified by themselves
/// (Linux 6.15).
pub(crate) fn calls_without_preemption(btf: &Btf<'_>) -> bool {
    let function = btf.type_by_name::<types::Struct<'_>>("bpf_subprog_info");
    function.is_some_and(|function| {
        let mut members = function.iter();
        members.any(|member| member.name.is_some_and(|name| name == "might_sleep"))
    })
}

/// Whether the kernel sets many probes in a program by one link (Linux 6.6).
pub(crate) fn sets_probes_at_once(btf: &Btf<'_>) -> bool {
    let link = btf.type_by_name::<types::Struct<'_>>("bpf_uprobe_multi_link");
    link.is_some()
}

/// Whether the kernel has a function, as its BTF tells.
pub(crate) fn has_function(btf: &Btf<'_>, function: &str) -> bool {
    btf.type_by_name::<types::Func<'_>>(function).is_some()
}

/// The thread that asks.
pub(crate) fn own_tid() -> u32 {
    rustix::thread::gettid().as_raw_nonzero().get() as u32
}

/// The machine.
pub fn host() -> Host {
    let line = |path: &str| {
        fs::read_to_string(path)
            .unwrap_or_default()
            .trim()
            .to_owned()
    };
    let memory_kib = line("/proc/meminfo")
        .lines()
        .find_map(|line| {
            line.strip_prefix("MemTotal:")?
                .split_whitespace()
                .next()?
                .parse::<u64>()
                .ok()
        })
        .unwrap_or(0);
    Host {
        hostname: line("/proc/sys/kernel/hostname"),
        kernel: line("/proc/sys/kernel/osrelease"),
        arch: std::env::consts::ARCH.to_owned(),
        cpus: std::thread::available_parallelism().map_or(1, |cpus| cpus.get() as u32),
        memory_bytes: memory_kib * 1024,
    }
}

/// `CLOCK_MONOTONIC`, in nanoseconds: the clock of the BPF programs.
pub(crate) fn now_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
