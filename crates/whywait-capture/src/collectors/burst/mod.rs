//! Bursts: for a moment every system call of the target is traced, to see what a thread that polls
//! without moving anything goes round in.
//!
//! Tracing sends every process of the machine through the slow way into the kernel, so it is done
//! where samples or poll sleeps suggest that there is something to see (or was asked for), for
//! [`COUNT`] and [`RECORD`] at most, and at most for one part in [`SHARE`] of the time, but for the
//! first. The link that attaches it lives on the stack of [`BurstRounds::trace`]: however that
//! ends, the tracing is off.

mod calibrate;
mod files;
mod turns;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::{Duration, Instant};

use libbpf_rs::{RingBuffer, RingBufferBuilder};
use whywait_events::recording::WriteError;
use whywait_events::{Burst, BurstCall, Event};

use self::calibrate::Calibration;
use crate::collectors::cpu::totals;
use crate::core::collector::{Asking, Collector, Hook, Keeper};
use crate::core::error::CaptureError;
use crate::core::incoming::Incoming;
use crate::core::kernel;
use crate::core::options::Options;
use crate::core::programs::{Programs, load_error};
use crate::core::records::{Record, decode};
use crate::core::shared::Shared;
use crate::core::skel::types::{self, record_type};

pub(crate) const COLLECTOR: Collector = Collector {
    hooks: &[Hook {
        functions: &[],
        tracepoint: "sys_exit",
        program: "burst",
        without: Some("loops that spin are not looked into"),
    }],
    on_demand: true,
    takes: &[record_type::RECORD_SUSPECT],
    keeper: |_| Box::new(Bursts::default()),
    ..Collector::NONE
};

/// How long calls are only counted.
const COUNT: Duration = Duration::from_millis(60);
/// How long they are recorded, at most: until there are enough of each suspect.
const RECORD: Duration = Duration::from_millis(100);
const RECORD_AT_LEAST: Duration = Duration::from_millis(10);
/// Between two looks at the rings meanwhile.
const STEP: Duration = Duration::from_millis(5);
/// Tracing takes at most one part in so many of the time.
const SHARE: u32 = 20;

/// The bursts of a recording, once it has begun.
#[derive(Default)]
struct Bursts {
    rounds: Option<BurstRounds>,
}

impl Keeper for Bursts {
    fn take(&mut self, record: Record, shared: &mut Shared) -> Result<(), WriteError> {
        if let Record::Suspect(record) = record {
            shared.suspects.threads.insert(record.tid);
        }
        Ok(())
    }

    fn start(&mut self, programs: &mut Programs, options: &Options) -> Result<(), CaptureError> {
        if self.rounds.is_none() {
            self.rounds = Some(BurstRounds::new(programs, options.full)?);
        }
        Ok(())
    }

    fn ask(
        &mut self,
        programs: &mut Programs,
        asking: &mut Asking<'_>,
    ) -> Result<bool, CaptureError> {
        let due = |rounds: &&mut BurstRounds| !asking.last && rounds.due(asking.shared);
        let Some(rounds) = self.rounds.as_mut().filter(due) else {
            return Ok(false);
        };
        rounds.run(programs, asking.shared, asking.incoming)?;
        Ok(true)
    }
}

struct BurstRounds {
    rings: RingBuffer<'static>,
    arrived: Rc<RefCell<Vec<types::call_record>>>,
    full: bool,
    possible: bool,
    next: Instant,
    /// As many calls of a thread are recorded.
    thread_calls: usize,
    /// What a call takes; without it none is said to cost more while it is traced.
    calls: Option<Calibration>,
    count: u32,
    traced: Duration,
}

/// What a burst saw.
struct Traced {
    start_ns: u64,
    end_ns: u64,
    /// Of the time in which calls were only counted: the totals before and after it.
    before: BTreeMap<u32, types::cpu_record>,
    after: BTreeMap<u32, types::cpu_record>,
    counted_ns: u64,
    /// What tracing added to each call.
    overhead_ns: u64,
    took: Duration,
}

impl BurstRounds {
    fn new(programs: &Programs, full: bool) -> Result<Self, CaptureError> {
        let arrived: Rc<RefCell<Vec<types::call_record>>> = Rc::default();
        let mut builder = RingBufferBuilder::new();
        let into = arrived.clone();
        builder
            .add(&programs.skel.maps.calls, move |bytes| {
                if let Some((Record::Call(call), _)) = decode(bytes) {
                    into.borrow_mut().push(*call);
                }
                0
            })
            .map_err(|error| load_error(&error))?;
        let limits = programs.skel.maps.rodata_data;
        Ok(Self {
            rings: builder.build().map_err(|error| load_error(&error))?,
            arrived,
            full,
            possible: programs.has_all(&COLLECTOR),
            next: Instant::now(),
            thread_calls: limits.map_or(0, |limits| limits.burst_thread_calls as usize),
            calls: Calibration::new(),
            count: 0,
            traced: Duration::ZERO,
        })
    }

    /// Whether there is something to look at, and tracing is allowed again.
    fn due(&self, shared: &Shared) -> bool {
        self.possible
            && (self.full || !shared.suspects.threads.is_empty())
            && Instant::now() >= self.next
    }

    /// Traces for a moment and writes what each thread that polled went round in. Meanwhile empties
    /// the other rings.
    fn run(
        &mut self,
        programs: &mut Programs,
        shared: &mut Shared,
        incoming: &Incoming,
    ) -> Result<(), CaptureError> {
        let suspects = std::mem::take(&mut shared.suspects.threads);
        let processes = shared.processes.all();
        self.count = self.count.saturating_add(1);
        let Some(traced) = self.trace(programs, &processes, &suspects, incoming) else {
            // It could be loaded and cannot be attached: it would not be the next time either.
            self.possible = false;
            return Ok(());
        };
        let _ = self.rings.consume();
        self.traced += traced.took;
        self.next = Instant::now() + traced.took * (SHARE - 1);
        let writer = &mut shared.output.writer;
        writer.counter("bursts.count", u64::from(self.count));
        writer.counter("bursts.traced-ns", self.traced.as_nanos() as u64);
        self.write(&traced, programs, shared, &suspects)?;
        Ok(())
    }

    /// `None`: the kernel does not let it.
    fn trace(
        &self,
        programs: &mut Programs,
        processes: &[u32],
        suspects: &BTreeSet<u32>,
        incoming: &Incoming,
    ) -> Option<Traced> {
        let before_ns = self.call_ns();
        begin(programs, self.count);
        let links = programs.attach(&COLLECTOR).ok()?;
        let (start_ns, started) = (kernel::now_ns(), Instant::now());
        let before = totals(programs, processes);
        let counted = Instant::now();
        while counted.elapsed() < COUNT {
            std::thread::sleep(STEP);
            incoming.consume();
        }
        let after = totals(programs, processes);
        let counted_ns = counted.elapsed().as_nanos() as u64;
        calibrate(programs, true);
        let traced_ns = self.call_ns();
        calibrate(programs, false);
        record_calls(programs, true);
        let recording = Instant::now();
        while recording.elapsed() < RECORD {
            std::thread::sleep(STEP);
            incoming.consume();
            let _ = self.rings.consume();
            if recording.elapsed() >= RECORD_AT_LEAST && self.enough(suspects) {
                break;
            }
        }
        drop(links);
        record_calls(programs, false);
        let end_ns = kernel::now_ns();
        let took = started.elapsed();
        // On both sides of the burst, because the machine's speed changes from one moment to the
        // next.
        let untraced_ns = before_ns.midpoint(self.call_ns());
        Some(Traced {
            start_ns,
            end_ns,
            before,
            after,
            counted_ns,
            overhead_ns: traced_ns.saturating_sub(untraced_ns),
            took,
        })
    }

    /// Writes what each thread that polled went round in.
    fn write(
        &self,
        traced: &Traced,
        programs: &Programs,
        shared: &mut Shared,
        suspects: &BTreeSet<u32>,
    ) -> Result<(), WriteError> {
        let mut calls: BTreeMap<u32, Vec<types::call_record>> = BTreeMap::new();
        for call in self.arrived.borrow_mut().drain(..) {
            calls.entry(call.tid).or_default().push(call);
        }
        let mut files: BTreeMap<u32, files::Files> = BTreeMap::new();
        for (tid, total) in &traced.after {
            let zero = types::cpu_record::default();
            let from = traced.before.get(tid).unwrap_or(&zero);
            let polls = total.polls.saturating_sub(from.polls);
            let on_cpu_ns = total.on_cpu_ns.saturating_sub(from.on_cpu_ns);
            // More than there was time: a switch was not seen, or the total was read amid one.
            // Better no burst than one that cannot be.
            if on_cpu_ns > traced.counted_ns + STEP.as_nanos() as u64 {
                continue;
            }
            let calls = calls.remove(tid).unwrap_or_default();
            if polls == 0 && calls.is_empty() {
                continue;
            }
            let of_process = files
                .entry(total.tgid)
                .or_insert_with(|| files::Files::read(programs, total.tgid));
            let seen = turns::look(calls, of_process);
            if !suspects.contains(tid) && seen.spins == 0 && seen.lost_races == 0 {
                continue;
            }
            shared.output.write(&Event::Burst(Burst {
                burst: self.count,
                start_ns: traced.start_ns,
                end_ns: traced.end_ns,
                tid: *tid,
                tgid: total.tgid,
                counted_ns: traced.counted_ns,
                on_cpu_ns,
                calls: total.calls.saturating_sub(from.calls),
                polls,
                overhead_ns: traced.overhead_ns,
                turns: seen.turns,
                spins: seen.spins,
                lost_races: seen.lost_races,
                progress: seen.progress,
                cycle_turns: seen.cycle_turns,
                cycle_length: seen.cycle_length,
                user_stack: shared.suspects.stack_of(*tid),
            }))?;
            for (step, call) in (0..).zip(seen.cycle) {
                shared.output.write(&Event::BurstCall(BurstCall {
                    burst: self.count,
                    tid: *tid,
                    step,
                    ..call
                }))?;
            }
        }
        Ok(())
    }

    fn call_ns(&self) -> u64 {
        self.calls.as_ref().map_or(0, Calibration::call_ns)
    }

    fn enough(&self, suspects: &BTreeSet<u32>) -> bool {
        let arrived = self.arrived.borrow();
        let calls_of = |tid: u32| arrived.iter().filter(|call| call.tid == tid).count();
        !suspects.is_empty()
            && suspects
                .iter()
                .all(|tid| calls_of(*tid) >= self.thread_calls)
    }
}

/// The next burst, which only counts calls at first.
fn begin(programs: &mut Programs, id: u32) {
    if let Some(variables) = programs.variables_mut() {
        variables.burst_records = false;
        variables.burst_id = id;
        variables.burst_recorded = 0;
    }
}

/// Calls are recorded, or only counted.
fn record_calls(programs: &mut Programs, on: bool) {
    if let Some(variables) = programs.variables_mut() {
        variables.burst_records = on;
    }
}

/// whywait's own calls are handled as those of the target, or not.
fn calibrate(programs: &mut Programs, on: bool) {
    if let Some(variables) = programs.variables_mut() {
        variables.calibrating_tid = if on { kernel::own_tid() } else { 0 };
    }
}
