//! What threads do while they run: samples of their stacks by a clock on each CPU.

use whywait_events::recording::WriteError;
use whywait_events::{Event, Sample};
use whywait_stacks::Registers;

use crate::core::collector::{Collector, Configuration, Decodes};
use crate::core::kernel;
use crate::core::programs::Programs;
use crate::core::records::{Record, kernel_addresses};
use crate::core::shared::Shared;
use crate::core::skel::types::{self, record_type};
use clock::{Clock, DENSE_CLOCK_NS};

mod clock;
pub(crate) mod perf;

pub(crate) const COLLECTOR: Collector = Collector {
    configure,
    takes: &[record_type::RECORD_SAMPLE],
    keeper: |_| Box::new(Decodes(take)),
    ..Collector::NONE
};

fn configure(configuration: &mut Configuration<'_>) {
    configuration.variables.dense_clock_ns = DENSE_CLOCK_NS;
}

/// The sampling clock, and what BPF is to know of it.
#[derive(Default)]
pub(crate) struct Sampling {
    clock: Clock,
}

impl Sampling {
    /// Starts the clock. Without it there are no stacks of threads that run: that is noted, not an
    /// error.
    pub(crate) fn start(&mut self, programs: &mut Programs, hz: u32) {
        if hz == 0 {
            return;
        }
        let without = self.clock.start(&programs.skel.progs.sample, hz);
        if let Some(variables) = programs.variables_mut() {
            variables.clock_ticks = without.is_empty();
        }
        programs
            .notes
            .extend(without.into_iter().map(|(cpu, reason)| {
                format!("no samples on CPU {cpu}: the kernel gives no cpu-clock event ({reason})")
            }));
    }

    /// Has the clock tick as often as is wanted; `dense`: as often as it can.
    pub(crate) fn set(&mut self, programs: &mut Programs, dense: bool) {
        if let Some(variables) = programs.variables_mut() {
            self.clock.set(variables.slow_ns, dense, kernel::now_ns());
            variables.clock_is_sparse = self.clock.is_sparse();
        }
    }

    /// Ends the sampling.
    pub(crate) fn stop(&mut self) {
        self.clock.stop();
    }

    pub(crate) fn is_sparse(&self) -> bool {
        self.clock.is_sparse()
    }
}

fn take(record: Record, shared: &mut Shared) -> Result<(), WriteError> {
    match record {
        Record::Sample(record, stack) => sample(&record, &stack, shared),
        _ => Ok(()),
    }
}

fn sample(
    record: &types::sample_record,
    stack: &[u8],
    shared: &mut Shared,
) -> Result<(), WriteError> {
    let registers = Registers {
        ip: record.ip,
        sp: record.sp,
        bp: record.bp,
    };
    let (tgid, tid) = (record.tgid, record.tid);
    let unwinder = &mut shared.output.unwinder;
    let unwound = unwinder.unwind_running(tgid, tid, record.at_ns, registers, stack);
    let (user_stack, _) = shared.output.unwound(unwound)?;
    let kernel_stack = shared.output.kernel_stack(kernel_addresses(
        &record.kernel_stack,
        record.kernel_stack_len,
    ))?;
    if record.futile != 0 && user_stack != 0 {
        shared.suspects.polls_in(tid, user_stack);
    }
    shared.output.write(&Event::Sample(Sample {
        at_ns: record.at_ns,
        tid,
        tgid,
        cpu: record.cpu,
        user_stack,
        kernel_stack,
        periods: record.periods,
    }))
}
