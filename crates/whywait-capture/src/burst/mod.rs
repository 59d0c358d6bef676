//! Bursts: for a moment every system call of the target is traced, to see what a thread that polls
//! without moving anything goes round in.
//!
//! Tracing sends every process of the machine through the slow way into the kernel, so it is done
//! where samples or poll sleeps suggest that there is something to see (or was asked for), for
//! [`COUNT`] and [`TELL`] at most, and at most for one part in [`SHARE`] of the time, but for the
//! first. The link that attaches it lives on the stack of [`Bursts::run`]: however that ends, the
//! tracing is off.

mod calibrate;
mod files;
mod turns;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::{Duration, Instant};

use libbpf_rs::{RingBuffer, RingBufferBuilder};
use whywait_events::{Burst, Event};

use self::calibrate::Calibration;
use crate::error::{CaptureError, one_line};
use crate::iterate::{self, Scope};
use crate::kernel;
use crate::programs::Programs;
use crate::recorder::Recorder;
use crate::records::{Record, decode};
use crate::skel::types;

/// How long calls are only counted.
const COUNT: Duration = Duration::from_millis(60);
/// How long they are told, at most: until there are enough of each suspect.
const TELL: Duration = Duration::from_millis(100);
const TELL_AT_LEAST: Duration = Duration::from_millis(10);
/// Between two looks at the rings meanwhile.
const STEP: Duration = Duration::from_millis(5);
/// Tracing takes at most one part in so many of the time.
const SHARE: u32 = 20;
/// As many calls of a thread are told (`burst_thread_calls` of burst.bpf.h).
const THREAD_CALLS: usize = 1000;

/// The bursts of a recording.
pub(crate) struct Bursts {
    rings: RingBuffer<'static>,
    arrived: Rc<RefCell<Vec<types::call_record>>>,
    full: bool,
    possible: bool,
    next: Instant,
    /// What a call takes; without it none is said to cost more while it is traced.
    calls: Option<Calibration>,
    count: u32,
    traced: Duration,
}

impl Bursts {
    pub(crate) fn new(programs: &Programs, full: bool) -> Result<Self, CaptureError> {
        let load = |error: libbpf_rs::Error| CaptureError::Load {
            reason: one_line(&error),
        };
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
            .map_err(load)?;
        Ok(Self {
            rings: builder.build().map_err(load)?,
            arrived,
            full,
            possible: programs.bursts_possible,
            next: Instant::now(),
            calls: Calibration::new(),
            count: 0,
            traced: Duration::ZERO,
        })
    }

    /// Whether there is something to look at, and tracing is allowed again.
    pub(crate) fn due(&self, recorder: &Recorder) -> bool {
        self.possible && (self.full || !recorder.suspects.is_empty()) && Instant::now() >= self.next
    }

    /// Traces for a moment and writes what each thread that polled went round in. `consume` empties
    /// the other rings.
    pub(crate) fn run(
        &mut self,
        programs: &mut Programs,
        recorder: &mut Recorder,
        consume: &dyn Fn(&Programs),
    ) -> Result<(), CaptureError> {
        let suspects = std::mem::take(&mut recorder.suspects);
        let processes = recorder.processes();
        let before_ns = self.call_ns();
        self.count = self.count.saturating_add(1);
        programs.begin_burst(self.count);
        let Ok(link) = programs.attach_burst() else {
            // It could be loaded and cannot be attached: it would not be the next time either.
            self.possible = false;
            return Ok(());
        };
        let (start_ns, started) = (kernel::now_ns(), Instant::now());
        let before = totals(programs, &processes);
        let counted = Instant::now();
        while counted.elapsed() < COUNT {
            std::thread::sleep(STEP);
            consume(programs);
        }
        let after = totals(programs, &processes);
        let counted_ns = counted.elapsed().as_nanos() as u64;
        programs.calibrate(true);
        let traced_ns = self.call_ns();
        programs.calibrate(false);
        programs.tell_calls(true);
        let told = Instant::now();
        while told.elapsed() < TELL {
            std::thread::sleep(STEP);
            consume(programs);
            let _ = self.rings.consume();
            if told.elapsed() >= TELL_AT_LEAST && self.enough(&suspects) {
                break;
            }
        }
        drop(link);
        programs.tell_calls(false);
        let end_ns = kernel::now_ns();
        let took = started.elapsed();
        // On both sides of the burst, because the machine's speed changes from one moment to the
        // next.
        let untraced_ns = before_ns.midpoint(self.call_ns());
        let overhead_ns = traced_ns.saturating_sub(untraced_ns);
        let _ = self.rings.consume();
        self.traced += took;
        self.next = Instant::now() + took * (SHARE - 1);
        recorder
            .writer
            .counter("bursts.count", u64::from(self.count));
        recorder
            .writer
            .counter("bursts.traced-ns", self.traced.as_nanos() as u64);

        let mut calls: BTreeMap<u32, Vec<types::call_record>> = BTreeMap::new();
        for call in self.arrived.borrow_mut().drain(..) {
            calls.entry(call.tid).or_default().push(call);
        }
        let mut files: BTreeMap<u32, files::Files> = BTreeMap::new();
        for (tid, total) in &after {
            let zero = types::cpu_record::default();
            let from = before.get(tid).unwrap_or(&zero);
            let polls = total.polls.saturating_sub(from.polls);
            let on_cpu_ns = total.on_cpu_ns.saturating_sub(from.on_cpu_ns);
            // More than there was time: a switch was not seen, or the total was read amid one.
            // Better no burst than one that cannot be.
            if on_cpu_ns > counted_ns + STEP.as_nanos() as u64 {
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
            recorder.writer.write(&Event::Burst(Burst {
                burst: self.count,
                start_ns,
                end_ns,
                tid: *tid,
                tgid: total.tgid,
                counted_ns,
                on_cpu_ns,
                calls: total.calls.saturating_sub(from.calls),
                polls,
                overhead_ns,
                turns: seen.turns,
                spins: seen.spins,
                lost_races: seen.lost_races,
                progress: seen.progress,
                cycle_turns: seen.cycle_turns,
                cycle_length: seen.cycle_length,
                user_stack: recorder.futile_stack(*tid),
            }))?;
            for (step, call) in (0..).zip(seen.cycle) {
                recorder
                    .writer
                    .write(&Event::BurstCall(whywait_events::BurstCall {
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
        !suspects.is_empty()
            && suspects
                .iter()
                .all(|tid| arrived.iter().filter(|call| call.tid == *tid).count() >= THREAD_CALLS)
    }
}

/// The totals of the threads that live, by thread.
pub(crate) fn totals(programs: &Programs, processes: &[u32]) -> BTreeMap<u32, types::cpu_record> {
    /// With more processes than this, one walk over all tasks costs less than one each.
    const SCOPED_PROCESSES: usize = 32;
    let scopes: Vec<Scope> = if processes.len() <= SCOPED_PROCESSES {
        processes.iter().copied().map(Scope::Process).collect()
    } else {
        vec![Scope::All]
    };
    let mut found = BTreeMap::new();
    let mut buffer = Vec::new();
    for scope in scopes {
        // A process may have ended by now.
        let Ok(link) = iterate::attach(&programs.skel.progs.tell_cpu, scope) else {
            continue;
        };
        if iterate::read(&link, &mut buffer).is_err() {
            continue;
        }
        let mut rest = buffer.as_slice();
        while let Some((record, size)) = decode(rest) {
            if let Record::Cpu(record) = record {
                found.insert(record.tid, *record);
            }
            rest = &rest[size..];
        }
    }
    found
}
