//! What threads do while they run: samples of their stacks by a clock on each CPU.

use whywait_events::recording::WriteError;
use whywait_events::{Event, Sample};
use whywait_stacks::{Registers, RunningThread};

use crate::core::collector::{Collector, Configuration, Keeper};
use crate::core::error::CaptureError;
use crate::core::kernel;
use crate::core::options::Options;
use crate::core::programs::Programs;
use crate::core::records::{Record, kernel_addresses};
use crate::core::shared::Shared;
use crate::core::skel::types::{self, record_type};
use clock::{Clock, DENSE_CLOCK_NS, period_ns};

mod clock;

pub(crate) const COLLECTOR: Collector = Collector {
    configure,
    takes: &[record_type::RECORD_SAMPLE],
    keeper: |_| Box::new(Sampling::default()),
    ..Collector::NONE
};

fn configure(configuration: &mut Configuration<'_>) {
    let variables = &mut *configuration.variables;
    variables.dense_clock_ns = DENSE_CLOCK_NS;
    variables.clock_period_ns = period_ns(configuration.options.sample_hz);
    variables.clock_tells_stolen = kernel::is_virtual();
}

/// The sampling clock, and what BPF is to know of it.
#[derive(Default)]
struct Sampling {
    clock: Clock,
}

impl Keeper for Sampling {
    fn take(&mut self, record: Record, shared: &mut Shared) -> Result<(), WriteError> {
        match record {
            Record::Sample(record, stack) => sample(&record, &stack, shared),
            _ => Ok(()),
        }
    }

    /// Starts the clock. Without it there are no stacks of threads that run: that is noted, not an
    /// error.
    fn start(&mut self, programs: &mut Programs, options: &Options) -> Result<(), CaptureError> {
        let hz = options.sample_hz;
        if hz == 0 {
            return Ok(());
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
        Ok(())
    }

    fn stop(&mut self) {
        self.clock.stop();
    }

    /// Has the clock tick as often as is wanted.
    fn pace(&mut self, programs: &mut Programs, dense: bool) {
        if let Some(variables) = programs.variables_mut() {
            let (slow_ns, set) = (variables.slow_ns, &mut variables.clock_set);
            self.clock
                .set(slow_ns, dense, kernel::now_ns(), || *set += 1);
            variables.clock_is_sparse = self.clock.is_sparse();
        }
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
        lr: record.lr,
    };
    let running = RunningThread {
        tgid: record.tgid,
        tid: record.tid,
        at_ns: record.at_ns,
        registers,
        kept: Some(record.kept),
    };
    let (tgid, tid) = (record.tgid, record.tid);
    let unwound = shared.output.unwinder.unwind_running(running, stack);
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
