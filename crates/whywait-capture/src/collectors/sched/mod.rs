//! When threads run, sleep and are woken, and by whom: long sleeps, and time without a CPU or
//! without I/O, and who had the CPU meanwhile.

use whywait_events::recording::WriteError;
use whywait_events::{Busy, CpuWait, Event, NoCpu, Part, Preempted};

use crate::core::collector::{Collector, Configuration, Hook, Keeper};
use crate::core::kernel;
use crate::core::records::{Record, kernel_addresses};
use crate::core::shared::Shared;
use crate::core::skel::types::{self, cpu_wait_why, record_type};
use cgroups::Cgroups;

mod cgroups;

pub(crate) const COLLECTOR: Collector = Collector {
    hooks: &[Hook::always("sched_waking"), Hook::always("sched_switch")],
    configure,
    takes: &[
        record_type::RECORD_WAIT,
        record_type::RECORD_WHOLE_WAIT,
        record_type::RECORD_BUSY,
        record_type::RECORD_PREEMPTED,
        record_type::RECORD_CPU_WAIT,
    ],
    keeper: |target| Box::new(Sched(Cgroups::seen_from(target.head))),
    ..Collector::NONE
};

/// The recording's kinds of time are those of `enum part`, in their order.
const _: () = {
    assert!(types::part::PART_COUNT.0 as usize == Part::ALL.len());
    assert!(types::part::PART_ON_CPU.0 == Part::OnCpu as u32);
    assert!(types::part::PART_RUNNABLE.0 == Part::Runnable as u32);
    assert!(types::part::PART_LOCK.0 == Part::Lock as u32);
    assert!(types::part::PART_THREAD.0 == Part::Thread as u32);
    assert!(types::part::PART_DISK.0 == Part::Disk as u32);
    assert!(types::part::PART_NETWORK.0 == Part::Network as u32);
    assert!(types::part::PART_TIMER.0 == Part::Timer as u32);
    assert!(types::part::PART_URING.0 == Part::Uring as u32);
    assert!(types::part::PART_PAGE_FAULT.0 == Part::PageFault as u32);
    assert!(types::part::PART_UNKNOWN.0 == Part::Unknown as u32);
};

fn configure(configuration: &mut Configuration<'_>) {
    let variables = &mut *configuration.variables;
    variables.untraced_process = configuration.options.untraced_process.unwrap_or(0);
    variables.switch_passes_state = kernel::switch_passes_state(configuration.kernel);
    let from_runqueue = kernel::from_runqueue(configuration.kernel);
    if let Some(distance) = from_runqueue.steal {
        variables.steal_known = true;
        variables.steal_from_runqueue = distance;
    }
    match from_runqueue.preempt_count {
        Some(distance) => {
            variables.preempt_count_known = true;
            variables.preempt_count_from_runqueue = distance;
        }
        // It has its place in the task (compat.bpf.h).
        None if cfg!(target_arch = "aarch64") => {}
        None => configuration
            .notes
            .push("this kernel does not tell in which context a wake is made".to_owned()),
    }
}

struct Sched(Cgroups);

impl Keeper for Sched {
    fn take(&mut self, record: Record, shared: &mut Shared) -> Result<(), WriteError> {
        match record {
            Record::Wait(record) => shared.sleep_ends(&record, &[]),
            Record::WholeWait(record) => {
                let len = record.wait.kernel_stack_len;
                shared.sleep_ends(&record.wait, kernel_addresses(&record.kernel_stack, len))
            }
            Record::Busy(record) => busy(&record, shared),
            Record::Preempted(record) => preempted(&record, shared),
            Record::CpuWait(record) => self.cpu_wait(&record, shared),
            _ => Ok(()),
        }
    }
}

impl Sched {
    fn cpu_wait(
        &mut self,
        record: &types::cpu_wait_record,
        shared: &mut Shared,
    ) -> Result<(), WriteError> {
        let by_kernel = record.by_kernel != 0;
        let named = record.by_comm.split(|byte| *byte == 0).next();
        let by_cgroup = if by_kernel || record.by_tid == 0 {
            String::new()
        } else {
            self.0.other(record.by_tgid)
        };
        shared.output.write(&Event::CpuWait(CpuWait {
            tid: record.tid,
            tgid: record.tgid,
            from_ns: record.from_ns,
            in_ns: record.in_ns,
            why: match cpu_wait_why(record.why) {
                cpu_wait_why::CPU_WAIT_QUOTA => NoCpu::Quota,
                cpu_wait_why::CPU_WAIT_HOST => NoCpu::Host,
                _ => NoCpu::Task,
            },
            by_tid: record.by_tid,
            by_tgid: record.by_tgid,
            by_kernel,
            by_ran_ns: record.by_ran_ns,
            by_name: String::from_utf8_lossy(named.unwrap_or_default()).into_owned(),
            by_cgroup,
        }))
    }
}

fn busy(record: &types::busy_record, shared: &mut Shared) -> Result<(), WriteError> {
    shared.output.write(&Event::Busy(Busy {
        tid: record.tid,
        tgid: record.tgid,
        start_ns: record.start_ns,
        end_ns: record.end_ns,
        on_cpu_ns: record.on_cpu_ns,
        runnable_ns: record.runnable_ns,
    }))
}

fn preempted(record: &types::preempted_record, shared: &mut Shared) -> Result<(), WriteError> {
    shared.output.write(&Event::Preempted(Preempted {
        tid: record.tid,
        tgid: record.tgid,
        out_ns: record.out_ns,
        in_ns: record.in_ns,
    }))
}
