//! The sweep over sleeping threads, which reads the stacks of those that have slept for long.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::time::{Duration, Instant};

use libbpf_rs::Link;
use whywait_events::Event;
use whywait_events::recording::WriteError;
use whywait_stacks::Registers;

use crate::core::collector::{Collector, Configuration, Decodes};
use crate::core::error::CaptureError;
use crate::core::incoming::Incoming;
use crate::core::iterate::{self, Scope};
use crate::core::kernel;
use crate::core::options::Options;
use crate::core::programs::Programs;
use crate::core::recorder::Recorder;
use crate::core::records::{Record, decode, kernel_addresses};
use crate::core::shared::Shared;
use crate::core::skel::types::{self, record_type};
use crate::core::sleeps::StacksSeen;
use crate::core::sleeps::unfinished::awaited;
use crate::core::thread_table::ThreadTable;
use crate::core::wakeups::PAUSE;

/// Shorter sleeps end before a sweep would see them.
const MIN_NS: u64 = 4_000_000;
/// It takes the kernel at most one part in so many of the time…
const SHARE: u32 = 100;
/// … but is not put off for longer than this.
const LONGEST_BETWEEN: Duration = Duration::from_millis(100);
/// So often it is over all threads, whether one is known to have slept for long or not.
const FULL: Duration = Duration::from_secs(1);
/// A sweep over 10,000 threads that just fell asleep brings some 80 MB; that is not kept for the
/// next one.
const MAX_IDLE_BUFFER: usize = 1 << 20;
/// With more processes than this, one sweep over all tasks costs less than one each.
const SCOPED_PROCESSES: usize = 32;

pub(crate) const COLLECTOR: Collector = Collector {
    configure,
    takes: &[record_type::RECORD_SLEEPER],
    keeper: |_| Box::new(Decodes(take)),
    ..Collector::NONE
};

fn configure(configuration: &mut Configuration<'_>) {
    configuration.variables.sweep_min_ns = min_ns(configuration.options);
}

/// The sweep reads the stack of a thread that has slept for this long.
pub(crate) fn min_ns(options: &Options) -> u64 {
    options.threshold_ns.max(MIN_NS)
}

/// From now on a sweep gives every sleeping thread.
pub(crate) fn all_from_now_on(programs: &mut Programs) {
    if let Some(variables) = programs.variables_mut() {
        variables.sweep_all = true;
    }
}

/// Sweeps, when it is time.
pub(crate) struct Sweeper {
    links: BTreeMap<u32, Link>,
    link_of_all: Option<Link>,
    next: Instant,
    next_full: Instant,
    buffer: Vec<u8>,
}

impl Default for Sweeper {
    fn default() -> Self {
        Self {
            links: BTreeMap::new(),
            link_of_all: None,
            next: Instant::now(),
            next_full: Instant::now(),
            buffer: Vec::new(),
        }
    }
}

impl Sweeper {
    /// Sweeps if that is due.
    pub(crate) fn turn(
        &mut self,
        programs: &Programs,
        threads: &ThreadTable,
        recorder: &mut Recorder,
        incoming: &Incoming,
    ) -> Result<(), CaptureError> {
        let now = Instant::now();
        if now < self.next {
            return Ok(());
        }
        let unread = self.unread(threads, recorder, now);
        let looked = now.elapsed();
        let took = looked + self.sweep(programs, &unread, recorder, incoming)?;
        self.next = Instant::now() + (took * SHARE).clamp(PAUSE, LONGEST_BETWEEN);
        Ok(())
    }

    /// The processes with threads that have slept for long and were not read yet. Now and then all
    /// of them: a thread whose beginning was lost is not known.
    fn unread(&mut self, threads: &ThreadTable, recorder: &Recorder, now: Instant) -> Vec<u32> {
        if now >= self.next_full {
            self.next_full = now + FULL;
            return recorder.shared.processes.all();
        }
        let now_ns = kernel::now_ns();
        recorder
            .shared
            .processes
            .with(|tid| threads.may_be_unread(tid, now_ns))
    }

    /// Reads the stacks of the threads of these processes that have slept for long and were not
    /// read yet. Says how long the kernel took.
    pub(crate) fn sweep(
        &mut self,
        programs: &Programs,
        processes: &[u32],
        recorder: &mut Recorder,
        incoming: &Incoming,
    ) -> Result<Duration, CaptureError> {
        let mut took = Duration::ZERO;
        let mut buffer = std::mem::take(&mut self.buffer);
        for link in self.links_to(programs, processes)? {
            let begun = Instant::now();
            let walked = iterate::read(link, &mut buffer);
            took += begun.elapsed();
            match walked {
                Ok(()) => {}
                Err(error) if error.raw_os_error() == Some(libc::ESRCH) => continue,
                Err(error) => return Err(threads_error(error)),
            }
            let mut consumed = Instant::now();
            let mut rest = buffer.as_slice();
            while !rest.is_empty() {
                let Some((record, size)) = decode(rest) else {
                    recorder.shared.refuse();
                    break;
                };
                recorder.take(record)?;
                rest = &rest[size..];
                incoming.keep_up(&mut consumed);
            }
        }
        if buffer.capacity() <= MAX_IDLE_BUFFER {
            self.buffer = buffer;
        }
        Ok(took)
    }

    /// The iterators over these processes, or one over all.
    fn links_to(
        &mut self,
        programs: &Programs,
        processes: &[u32],
    ) -> Result<Vec<&Link>, CaptureError> {
        let program = &programs.skel.progs.sweep;
        if processes.len() > SCOPED_PROCESSES {
            if self.link_of_all.is_none() {
                let link = iterate::attach(program, Scope::All).map_err(threads_error)?;
                self.link_of_all = Some(link);
            }
            return Ok(self.link_of_all.iter().collect());
        }
        if self.links.len() > SCOPED_PROCESSES {
            self.links.clear();
        }
        for tgid in processes {
            if let Entry::Vacant(entry) = self.links.entry(*tgid) {
                // It may have ended by now.
                if let Ok(link) = iterate::attach(program, Scope::Process(*tgid)) {
                    entry.insert(link);
                }
            }
        }
        let links = processes.iter().filter_map(|tgid| self.links.get(tgid));
        Ok(links.collect())
    }

    /// Keeps the iterators over these processes only.
    pub(crate) fn keep(&mut self, processes: &[u32]) {
        self.links
            .retain(|tgid, _| processes.binary_search(tgid).is_ok());
        if processes.is_empty() {
            self.link_of_all = None;
        }
    }
}

fn threads_error(source: std::io::Error) -> CaptureError {
    CaptureError::Iterate {
        what: "threads",
        source,
    }
}

fn take(record: Record, shared: &mut Shared) -> Result<(), WriteError> {
    match record {
        Record::Sleeper(record, stack) => sleeper(&record, &stack, shared),
        _ => Ok(()),
    }
}

/// A thread that sleeps now: its stack is kept for when the sleep ends, and the sleep so far is
/// written already, so that it is not lost if it never ends.
fn sleeper(
    record: &types::sleeper_record,
    stack: &[u8],
    shared: &mut Shared,
) -> Result<(), WriteError> {
    let registers = Registers {
        ip: record.ip,
        sp: record.sp,
        bp: record.bp,
    };
    let thread = (record.sleep.tgid, record.sleep.tid);
    let (user_stack, _) = shared.output.stack_of_sleeper(thread, registers, stack)?;
    let kernel_stack = shared.output.kernel_stack(kernel_addresses(
        &record.kernel_stack,
        record.kernel_stack_len,
    ))?;
    let mut wait = shared.sleep(&record.sleep);
    shared.sleeps.words.note(&wait);
    wait.user_stack = user_stack;
    wait.kernel_stack = kernel_stack;
    if awaited(&wait) != 0 {
        shared.sleeps.unfinished.sleeps(&wait, stack);
    }
    let seen = StacksSeen {
        seq: record.sleep.seq,
        user_stack,
        kernel_stack,
    };
    shared.sleeps.seen.insert(record.sleep.tid, seen);
    shared.output.write(&Event::Wait(wait))
}
