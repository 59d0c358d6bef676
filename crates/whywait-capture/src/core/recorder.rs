//! Hands each record to its collector, which turns it into events. What a collector keeps between
//! its records is a field here; how it takes them is in its folder, where it adds to `Recorder`.

use std::time::Instant;

use whywait_events::recording::{WriteError, Writer};
use whywait_stacks::Unwinder;

use super::output::Output;
use super::records::{Record, kernel_addresses};
use crate::collectors::accept_queues::Before;
use crate::collectors::burst::Suspects;
use crate::collectors::cpu::CpuTotals;
use crate::collectors::exchanges::Peers;
use crate::collectors::futex::Futexes;
use crate::collectors::sched::waits::Waits;
use crate::collectors::stacks::known_stacks::KnownStacks;
use crate::collectors::tasks::Tasks;
use crate::collectors::threads::processes::Processes;
use crate::collectors::uring::ring_counts::RingCounts;

/// Writes events in the order in which the records come.
pub(crate) struct Recorder {
    pub(crate) output: Output,
    pub(crate) processes: Processes,
    pub(crate) waits: Waits,
    /// The stacks to which records may refer.
    pub(crate) known: KnownStacks,
    pub(crate) futexes: Futexes,
    pub(crate) peers: Peers,
    pub(crate) tasks: Tasks,
    pub(crate) accept_queues: Before,
    pub(crate) cpu: CpuTotals,
    pub(crate) suspects: Suspects,
    pub(crate) rings: RingCounts,
    /// The recording ends: what sleeps now, sleeps on.
    pub(crate) last_look: bool,
    undecodable: u64,
}

impl Recorder {
    pub(crate) fn new(writer: Writer, unwinder: Unwinder) -> Self {
        Self {
            output: Output::new(writer, unwinder),
            processes: Processes::default(),
            waits: Waits::default(),
            known: KnownStacks::default(),
            futexes: Futexes::default(),
            peers: Peers::default(),
            tasks: Tasks::default(),
            accept_queues: Before::default(),
            cpu: CpuTotals::default(),
            suspects: Suspects::default(),
            rings: RingCounts::default(),
            last_look: false,
            undecodable: 0,
        }
    }

    pub(crate) fn take(&mut self, record: Record) -> Result<(), WriteError> {
        match record {
            Record::Thread(record) => self.thread(&record),
            Record::Wait(record) => self.wait(&record, &[]),
            Record::WholeWait(record) => {
                let len = record.wait.kernel_stack_len;
                self.wait(&record.wait, kernel_addresses(&record.kernel_stack, len))
            }
            Record::Busy(record) => self.busy(&record),
            Record::Preempted(record) => self.preempted(&record),
            Record::Request(record) => self.request(&record),
            Record::Exchange(record) => self.exchange(&record),
            Record::Tail(record) => self.tail(&record),
            Record::Abandoned(record) => self.abandoned(&record),
            Record::Dns(record) => self.dns(&record),
            Record::Sample(record, stack) => self.sample(&record, &stack),
            Record::Sleeper(record, stack) => self.sleeper(&record, &stack),
            Record::UserStack(record, stack) => self.user_stack(&record, &stack),
            Record::Waker(record, stack) => self.waker(&record, &stack),
            Record::UringOp(record) => self.ring_op(&record),
            Record::UringSample(record) => self.ring_sample(&record),
            Record::UringLag(record) => self.ring_lag(&record),
            Record::UringPending(record) => self.ring_pending(&record),
            Record::Socket(record) => self.connection(&record),
            Record::Suspect(record) => self.suspect(&record),
            Record::Cpu(record) => self.cpu_of_ended(&record),
            // These come from where only their collectors look.
            Record::Call(_) | Record::File(_) | Record::AcceptQueue(_) => {
                self.bad_record();
                Ok(())
            }
        }
    }

    /// One that could not be decoded, or came from where it does not belong.
    pub(crate) fn bad_record(&mut self) {
        self.undecodable += 1;
    }

    /// To be called now and then.
    pub(crate) fn turn(&mut self) -> Result<(), WriteError> {
        let now = Instant::now();
        self.release_late(now)?;
        self.futexes.words.look_up(now);
        Ok(())
    }

    /// Forgets processes that ended without a record: their last record was lost. Looks at
    /// some of them, the others are for the next call. `alive` costs a look into /proc.
    pub(crate) fn forget_ended(&mut self, alive: impl Fn(u32) -> bool) {
        for (tgid, threads) in self.processes.forget_ended(alive) {
            for tid in threads {
                self.forget_thread(tid);
            }
            self.output.unwinder.forget(tgid);
        }
    }

    pub(crate) fn forget_thread(&mut self, tid: u32) {
        self.waits.forget(tid);
        self.futexes.unfinished.forget(tid);
        self.suspects.forget(tid);
        self.known.forget(tid);
    }

    /// Whether stacks are to be taken soon after they were copied.
    pub(crate) fn reads_memory(&self) -> bool {
        self.output.unwinder.reads_memory()
    }

    /// Passes on the counters of the kernel side and adds those of this side.
    pub(crate) fn count(&mut self, kernel: impl IntoIterator<Item = (String, u64)>) {
        let of_rings = self.rings.total();
        for (name, value) in kernel {
            // The programs for io_uring count in the rings.
            let more = if name == "events" {
                of_rings.events()
            } else {
                0
            };
            self.output
                .writer
                .counter(&name, value.saturating_add(more));
        }
        let counters = [
            ("lost.ring-ops", of_rings.lost),
            ("lost.undecodable", self.undecodable),
            ("lost.held-locks", self.futexes.unfinished.unsearched()),
            ("waits.without-stack", self.waits.without_stack),
            ("waits.ended", self.waits.ended),
        ];
        for (name, value) in counters {
            self.output.writer.counter(name, value);
        }
        self.output.count();
    }
}
