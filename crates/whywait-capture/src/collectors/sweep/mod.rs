//! The sweep over sleeping threads, which reads the stacks of those that have slept for long.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::time::{Duration, Instant};

use libbpf_rs::Link;
use whywait_events::Event;
use whywait_events::recording::WriteError;
use whywait_stacks::Registers;

use crate::collectors::stacks::functions_came;
use crate::core::collector::{Asking, Collector, Configuration, Keeper};
use crate::core::error::CaptureError;
use crate::core::iterate::{self, Scope};
use crate::core::kernel;
use crate::core::programs::Programs;
use crate::core::records::{Record, decode, kernel_addresses};
use crate::core::shared::{Shared, Stage};
use crate::core::skel::types;
use crate::core::sleeps::StacksSeen;
use crate::core::sleeps::unfinished::awaited;
use crate::core::wakeups::PAUSE;

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
    keeper: |_| Box::new(Sweeper::default()),
    ..Collector::NONE
};

fn configure(configuration: &mut Configuration<'_>) {
    configuration.variables.sweep_min_ns = configuration.options.sweep_min_ns();
}

/// From now on a sweep gives every sleeping thread.
fn all_from_now_on(programs: &mut Programs) {
    if let Some(variables) = programs.variables_mut() {
        variables.sweep_all = true;
    }
}

/// Sweeps, when it is time.
struct Sweeper {
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

impl Keeper for Sweeper {
    /// Sweeps if that is due, and in the end over all threads that sleep.
    fn ask(
        &mut self,
        programs: &mut Programs,
        asking: &mut Asking<'_>,
    ) -> Result<bool, CaptureError> {
        let now = Instant::now();
        if asking.last {
            all_from_now_on(programs);
            let all = asking.shared.processes.all();
            self.sweep(programs, &all, asking)?;
        } else if now >= self.next {
            let unread = self.unread(asking, now);
            let looked = now.elapsed();
            let took = looked + self.sweep(programs, &unread, asking)?;
            self.next = Instant::now() + (took * SHARE).clamp(PAUSE, LONGEST_BETWEEN);
        }
        Ok(false)
    }

    fn look(&mut self, _: &mut Programs, shared: &mut Shared) -> Result<(), CaptureError> {
        if shared.stage == Stage::Lasts {
            self.keep(&shared.processes.all());
        }
        Ok(())
    }

    fn stop(&mut self) {
        self.keep(&[]);
    }
}

impl Sweeper {
    /// The processes with threads that have slept for long and were not read yet. Now and then all
    /// of them: a thread whose beginning was lost is not known.
    fn unread(&mut self, asking: &Asking<'_>, now: Instant) -> Vec<u32> {
        let processes = &asking.shared.processes;
        if now >= self.next_full {
            self.next_full = now + FULL;
            return processes.all();
        }
        let now_ns = kernel::now_ns();
        processes.with(|tid| asking.threads.may_be_unread(tid, now_ns))
    }

    /// Reads the stacks of the threads of these processes that have slept for long and were not
    /// read yet. Says how long the kernel took.
    fn sweep(
        &mut self,
        programs: &Programs,
        processes: &[u32],
        asking: &mut Asking<'_>,
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
                    asking.shared.refuse();
                    break;
                };
                match record {
                    Record::Sleeper(record, stack) => sleeper(&record, &stack, asking.shared)?,
                    Record::Functions(record, functions) => {
                        functions_came(&record, &functions, asking.shared);
                    }
                    _ => asking.shared.refuse(),
                }
                rest = &rest[size..];
                asking.incoming.keep_up(&mut consumed);
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
    fn keep(&mut self, processes: &[u32]) {
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
        lr: record.lr,
    };
    let thread = (record.sleep.tgid, record.sleep.tid);
    let kept = Some(record.kept);
    let (user_stack, _) = shared
        .output
        .stack_of_sleeper(thread, registers, kept, stack)?;
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
