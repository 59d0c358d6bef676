//! When threads run, sleep and are woken, and by whom: long sleeps, and time without a CPU or
//! without I/O.

use whywait_events::recording::WriteError;
use whywait_events::{Busy, Event, Part, Preempted};

use crate::core::collector::{Collector, Configuration, Decodes, Hook};
use crate::core::kernel;
use crate::core::records::{Record, kernel_addresses};
use crate::core::shared::Shared;
use crate::core::skel::types::{self, record_type};

pub(crate) const COLLECTOR: Collector = Collector {
    hooks: &[Hook::always("sched_waking"), Hook::always("sched_switch")],
    configure,
    takes: &[
        record_type::RECORD_WAIT,
        record_type::RECORD_WHOLE_WAIT,
        record_type::RECORD_BUSY,
        record_type::RECORD_PREEMPTED,
    ],
    keeper: |_| Box::new(Decodes(take)),
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
        None => configuration
            .notes
            .push("this kernel does not tell in which context a wake is made".to_owned()),
    }
}

fn take(record: Record, shared: &mut Shared) -> Result<(), WriteError> {
    match record {
        Record::Wait(record) => shared.sleep_ends(&record, &[]),
        Record::WholeWait(record) => {
            let len = record.wait.kernel_stack_len;
            shared.sleep_ends(&record.wait, kernel_addresses(&record.kernel_stack, len))
        }
        Record::Busy(record) => busy(&record, shared),
        Record::Preempted(record) => preempted(&record, shared),
        _ => Ok(()),
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
