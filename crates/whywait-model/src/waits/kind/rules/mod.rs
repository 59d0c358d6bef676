//! Which functions of the kernel say what a sleep in them was for. The first rule that matches
//! decides, so the order of the groups, and of the rules in them, is part of what they say.

use whywait_events::Part;

use super::{Rule, State, on, rule};
use disk::{DISK, REMOTE, THROTTLED};
use durable::{FSYNC, OSYNC, SYNC};
use events::EVENTS;
use locks::LOCKS;
use memory::{MEMORY, PAGE_FAULT};
use network::NETWORK;

mod disk;
mod durable;
mod events;
mod locks;
mod memory;
mod network;

/// Kinds that are waits for a lock of which it can be told who held it.
pub(super) const MMAP: &str = "mmap lock";
pub(super) const FAULT_MMAP: &str = "page fault (mmap lock)";
pub(super) const INODE: &str = "file lock (inode)";

/// The first rule that matches says what it is.
pub(super) const RULES: &[&[Rule]] = &[
    STOPPED, MEMORY, PAGE_FAULT, THROTTLED, REMOTE, OSYNC, FSYNC, SYNC, LOCKS, DISK, NETWORK,
    EVENTS, REST,
];

/// Not waiting for anything of its own.
const STOPPED: &[Rule] = &[
    // A recorder such as whywait reads the thread's stack, before the thread returns to its
    // program.
    on(
        &["bpf_task_work_callback", "bpf_task_work_irq"],
        "being measured",
        Part::Unknown,
    ),
    on(
        &["do_signal_stop", "ptrace_stop", "do_jobctl_trap"],
        "stopped",
        Part::Unknown,
    ),
    // The freezer of cgroups, version 2 and 1.
    on(
        &["cgroup_enter_frozen", "do_freezer_trap", "__refrigerator"],
        "frozen (cgroup)",
        Part::Unknown,
    ),
    on(
        &["do_coredump", "vfs_coredump", "coredump_task_exit"],
        "core dump",
        Part::Unknown,
    ),
    // The freezer again, inlined.
    rule(
        &["get_signal"],
        State::Innermost,
        "frozen (cgroup)",
        Some(Part::Unknown),
    ),
];

/// A wait until every CPU has left what it did with something that is to be replaced.
pub(super) const GRACE_PERIOD: &str = "RCU grace period";

/// Things of the kernel's own. A grace period ends when whatever runs on the other CPUs has been
/// interrupted once, queued work when a thread of the kernel's has done it.
const REST: &[Rule] = &[
    on(
        &[
            "synchronize_rcu*",
            "__wait_rcu_gp",
            "wait_rcu_exp_gp",
            "exp_funnel_lock",
            "rcu_barrier",
            "synchronize_srcu*",
            "__synchronize_srcu",
        ],
        GRACE_PERIOD,
        Part::Thread,
    ),
    on(
        &[
            "__flush_work*",
            "flush_work",
            "__flush_workqueue",
            "__lru_add_drain_all",
        ],
        "kernel work queue",
        Part::Thread,
    ),
    on(&["wait_for_random_bytes"], "randomness", Part::Unknown),
    on(
        &[
            "dma_fence_*",
            "drm_ioctl",
            "drm_syncobj_*",
            "amdgpu_*",
            "i915_*",
            "nvidia_*",
            "uvm_*",
            "kfd_*",
        ],
        "GPU",
        Part::Unknown,
    ),
];
