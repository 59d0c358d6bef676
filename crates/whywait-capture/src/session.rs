//! A capture from attaching to the finished recording.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use libbpf_rs::{Link, RingBuffer, RingBufferBuilder};
use whywait_events::Event;
use whywait_events::recording::{Meta, Options as RecordedOptions, Writer, WriterOptions};
use whywait_stacks::{Symboliser, Unwinder};

use crate::burst::{self, Bursts};
use crate::cpu_limit::CpuLimits;
use crate::error::{CaptureError, one_line};
use crate::iterate::{self, Scope};
use crate::options::Options;
use crate::programs::{self, Programs};
use crate::recorder::Recorder;
use crate::records::{Record, decode};
use crate::thread_table::ThreadTable;
use crate::wakeups::{LONG_PAUSE, PAUSE, Wakeups};
use crate::{cost, counters, kernel, sockets, target, urings};

/// After a process began, others may, and end soon: what is to be read of one can be read while it
/// lives.
const YOUNG: Duration = Duration::from_millis(200);
/// The sweep over sleeping threads takes the kernel at most one part in so many of the time…
const SWEEP_SHARE: u32 = 100;
/// … but is not put off for longer than this.
const LONGEST_BETWEEN_SWEEPS: Duration = Duration::from_millis(100);
/// So often it is over all threads, whether one is known to have slept for long or not.
const FULL_SWEEP: Duration = Duration::from_secs(1);
/// Records that may wait in memory for being looked at.
const MAX_WAITING_BYTES: usize = 64 << 20;
/// A sweep over 10,000 threads that just fell asleep brings some 80 MB; that is not kept for the
/// next one.
const MAX_IDLE_BUFFER: usize = 1 << 20;
/// With more processes than this, one sweep over all tasks costs less than one each.
const SCOPED_PROCESSES: usize = 32;

/// A capture that runs. Dropping it takes everything off.
pub struct Session {
    // Declared before `programs`: links go first.
    sweeps: BTreeMap<u32, Link>,
    sweep_of_all: Option<Link>,
    rings: RingBuffer<'static>,
    wakeups: Wakeups,
    incoming: Incoming,
    bursts: Bursts,
    programs: Programs,
    threads: ThreadTable,
    recorder: Recorder,
    options: Options,
    meta: Meta,
    statistics: Option<OwnedFd>,
    cpu_limits: CpuLimits,
    pid: u32,
    /// Rings of io_uring that were closed when it was looked last.
    closed_urings: u32,
    next_sweep: Instant,
    next_full_sweep: Instant,
    next_roll: Instant,
    /// The target's processes are not that young any more.
    settled: Instant,
    buffer: Vec<u8>,
}

/// What a capture came to.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// Rows that were written.
    pub rows: u64,
}

impl Session {
    /// Loads, attaches to `pid` with its threads and descendants, and begins to record into `dir`.
    /// The recording and the privileges are checked before anything is attached.
    pub fn start(
        pid: u32,
        command: Vec<String>,
        dir: &Path,
        options: &Options,
    ) -> Result<Self, CaptureError> {
        if !target::alive(pid) {
            return Err(CaptureError::NoSuchProcess(pid));
        }
        let mut unwinder = Unwinder::new();
        unwinder.prepare();
        let mut programs = Programs::load(options)?;
        unwinder.prepared();
        let meta = Meta {
            whywait: env!("CARGO_PKG_VERSION").to_owned(),
            started_wall_unix_ns: SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .map_or(0, |d| d.as_nanos() as u64),
            started_ns: kernel::now_ns(),
            host: kernel::host(),
            command,
            pid: Some(pid),
            options: RecordedOptions {
                threshold_ns: options.threshold_ns,
                stack_bytes: options.stack_bytes,
                sample_hz: options.sample_hz,
                detail: if options.full { "full" } else { "waits" }.to_owned(),
            },
            ..Meta::default()
        };
        let writer = Writer::create_with(
            dir,
            &meta,
            WriterOptions {
                owner: options.owner,
                ..WriterOptions::default()
            },
        )?;
        let statistics = if options.measure_cost {
            cost::enable().ok()
        } else {
            None
        };

        let incoming = Incoming::default();
        let rings = rings(&programs, &incoming)?;
        let maps = &programs.skel.maps;
        let wakeups =
            Wakeups::of([&maps.records, &maps.stacks]).map_err(|source| CaptureError::Iterate {
                what: "records",
                source,
            })?;
        let bursts = Bursts::new(&programs, options.full)?;
        let sweep_min = programs::sweep_min_ns(options);
        let threads =
            ThreadTable::new(&programs.skel.maps.bss_threads, sweep_min).map_err(|source| {
                CaptureError::Iterate {
                    what: "threads",
                    source,
                }
            })?;
        // Threads are followed before they are looked for, so that none slips through in between.
        programs.attach_threads()?;
        let mut session = Self {
            sweeps: BTreeMap::new(),
            sweep_of_all: None,
            rings,
            wakeups,
            incoming,
            bursts,
            programs,
            threads,
            recorder: Recorder::new(writer, unwinder),
            options: options.clone(),
            meta,
            statistics,
            cpu_limits: CpuLimits::of(pid),
            pid,
            closed_urings: 0,
            next_sweep: Instant::now(),
            next_full_sweep: Instant::now(),
            next_roll: Instant::now() + Duration::from_nanos(options.segment_ns),
            settled: Instant::now() + YOUNG,
            buffer: Vec::new(),
        };
        session.find_threads()?;
        // The other way round: which end of a connection is the target's is known only once its
        // listeners are.
        session.find_sockets()?;
        session.programs.attach_sockets()?;
        session.programs.attach_urings()?;
        session.find_urings()?;
        session.programs.sample(options.sample_hz);
        session.drain()?;
        Ok(session)
    }

    /// For benchmarks: takes the hooks off, or puts them on again. What happens in between is in no
    /// recording.
    pub fn set_hooks(&mut self, on: bool) -> Result<(), CaptureError> {
        self.programs.detach();
        if on {
            self.programs.attach_threads()?;
            self.programs.attach_sockets()?;
            self.programs.attach_urings()?;
            self.programs.sample(self.options.sample_hz);
        }
        Ok(())
    }

    /// For tests: whether the sampling clock ticks less often for now, because nothing is slow.
    pub fn clock_is_sparse(&self) -> bool {
        self.programs.clock_is_sparse()
    }

    /// Takes the threads that are there already into the target.
    fn find_threads(&mut self) -> Result<(), CaptureError> {
        let threads = |source| CaptureError::Iterate {
            what: "threads",
            source,
        };
        // A process made between two looks descends from one that is followed by then, so two looks
        // suffice.
        for _ in 0..2 {
            for tgid in target::with_descendants(self.pid) {
                match iterate::attach(&self.programs.skel.progs.find_threads, Scope::Process(tgid))
                {
                    Ok(link) => iterate::read(&link, &mut self.buffer).map_err(threads)?,
                    // It ended in between.
                    Err(error)
                        if !target::alive(tgid) || error.raw_os_error() == Some(libc::ESRCH) => {}
                    Err(error) => return Err(threads(error)),
                }
            }
        }
        if !target::alive(self.pid) {
            return Err(CaptureError::NoSuchProcess(self.pid));
        }
        Ok(())
    }

    /// Takes the sockets that are there already into the target: first its listeners, then its
    /// connections.
    fn find_sockets(&mut self) -> Result<(), CaptureError> {
        let files = |source| CaptureError::Iterate {
            what: "files",
            source,
        };
        for pass in 0..2 {
            self.programs.set_pass(pass);
            for tgid in target::with_descendants(self.pid) {
                match iterate::attach(&self.programs.skel.progs.open_sockets, Scope::Process(tgid))
                {
                    Ok(link) => iterate::read(&link, &mut self.buffer).map_err(files)?,
                    Err(_) if !target::alive(tgid) => {}
                    Err(error) => return Err(files(error)),
                }
            }
        }
        Ok(())
    }

    /// Takes the rings that are there already into the target.
    fn find_urings(&mut self) -> Result<(), CaptureError> {
        let processes: Vec<u32> = target::with_descendants(self.pid).into_iter().collect();
        urings::find(&mut self.programs, &processes).map_err(|source| CaptureError::Iterate {
            what: "files",
            source,
        })
    }

    /// Takes in what has come, sweeps over the sleeping threads and closes a segment, as far as
    /// each is due. Call it again after [`Session::sleep`].
    pub fn turn(&mut self) -> Result<(), CaptureError> {
        urings::look(&mut self.programs);
        // What lies in a ring for long is told apart by what the thread did meanwhile, however
        // short that was.
        let dense = self.options.full || urings::used(&self.programs);
        self.programs.set_clock(dense);
        self.drain()?;
        let now = Instant::now();
        if now >= self.next_sweep {
            let unread = self.processes_to_sweep(now);
            let looked = now.elapsed();
            let took = looked + self.sweep(&unread)?;
            self.next_sweep =
                Instant::now() + (took * SWEEP_SHARE).clamp(PAUSE, LONGEST_BETWEEN_SWEEPS);
        }
        if self.bursts.due(&self.recorder) {
            let rings = &self.rings;
            // An error of consume is that of the callback, which has none.
            let consume = |_: &Programs| drop(rings.consume());
            self.bursts
                .run(&mut self.programs, &mut self.recorder, &consume)?;
            self.drain()?;
        }
        self.take_closed_urings()?;
        if now >= self.next_roll {
            self.recorder.rings(urings::read(&self.programs))?;
            self.account_cpu()?;
            urings::forget_ended(&mut self.programs, target::alive);
            self.count();
            self.recorder.writer.roll()?;
            self.recorder.forget_ended(target::alive);
            let processes = self.recorder.processes();
            self.sweeps
                .retain(|tgid, _| processes.binary_search(tgid).is_ok());
            self.next_roll = now + Duration::from_nanos(self.options.segment_ns);
        }
        Ok(())
    }

    /// Sleeps until the next turn is due.
    pub fn sleep(&mut self) {
        self.sleep_at_most(LONG_PAUSE);
    }

    /// As [`Session::sleep`], but not for longer than this.
    pub fn sleep_at_most(&mut self, at_most: Duration) {
        std::thread::sleep(PAUSE.min(at_most));
        // Where a stack is there only for as long as its thread sleeps, or a part of it is in
        // memory that changes, it is to be read soon; and so are rings of io_uring looked at.
        let may_wait = self.programs.user_stacks_exact
            && !self.recorder.reads_memory()
            && !urings::used(&self.programs)
            && Instant::now() >= self.settled;
        if may_wait && at_most > PAUSE {
            self.programs.wake_for_what_is_urgent(true);
            self.wakeups.sleep(at_most.min(LONG_PAUSE) - PAUSE);
            self.programs.wake_for_what_is_urgent(false);
        }
    }

    fn drain(&mut self) -> Result<(), CaptureError> {
        self.consume();
        let arrived = std::mem::take(&mut *self.incoming.borrow_mut());
        let mut samples = arrived.samples.into_iter().peekable();
        let mut consumed = Instant::now();
        for record in arrived.records {
            // A sample is read with the mappings that its process had then: before those of another
            // program, or none.
            if let Record::Thread(thread) = &record {
                while let Some(sample) = samples.next_if(|sample| sample_ns(sample) <= thread.at_ns)
                {
                    self.recorder.take(sample)?;
                }
                if thread.tid == thread.tgid {
                    self.settled = Instant::now() + YOUNG;
                }
            }
            self.recorder.take(record)?;
            self.keep_up(&mut consumed);
        }
        self.recorder.turn()?;
        for sample in samples {
            self.recorder.take(sample)?;
            self.keep_up(&mut consumed);
        }
        for _ in 0..arrived.undecodable {
            self.recorder.bad_record();
        }
        if !self.recorder.stacks_repeat() {
            self.programs.stacks_do_not_repeat();
        }
        Ok(())
    }

    /// Rings of io_uring that were closed are told, and make room for others.
    fn take_closed_urings(&mut self) -> Result<(), CaptureError> {
        let closed = urings::closed(&self.programs);
        if closed != self.closed_urings {
            self.closed_urings = closed;
            self.recorder
                .closed_rings(urings::take_closed(&mut self.programs))?;
        }
        Ok(())
    }

    /// Empties the rings into memory.
    fn consume(&self) {
        // An error of consume is that of the callback, which has none.
        let _ = self.rings.consume();
    }

    /// Unwinding thousands of stacks takes longer than the rings last: empties them in between, for
    /// [`Session::drain`] to see to later. Memory is bounded: beyond that the rings fill, and count
    /// what they lose.
    fn keep_up(&self, consumed: &mut Instant) {
        if consumed.elapsed() >= PAUSE && self.incoming.borrow().bytes < MAX_WAITING_BYTES {
            self.consume();
            *consumed = Instant::now();
        }
    }

    /// The processes with threads that have slept for long and were not read yet. Now and then all
    /// of them: a thread whose beginning was lost is not known.
    fn processes_to_sweep(&mut self, now: Instant) -> Vec<u32> {
        if now >= self.next_full_sweep {
            self.next_full_sweep = now + FULL_SWEEP;
            return self.recorder.processes();
        }
        let now_ns = kernel::now_ns();
        self.recorder
            .processes_with(|tid| self.threads.may_be_unread(tid, now_ns))
    }

    /// Reads the stacks of the threads of these processes that have slept for long and were not
    /// read yet. Says how long the kernel took.
    fn sweep(&mut self, processes: &[u32]) -> Result<Duration, CaptureError> {
        let mut took = Duration::ZERO;
        let program = &self.programs.skel.progs.sweep;
        let scoped = processes.len() <= SCOPED_PROCESSES;
        if scoped {
            if self.sweeps.len() > SCOPED_PROCESSES {
                self.sweeps.clear();
            }
            for tgid in processes {
                if let Entry::Vacant(entry) = self.sweeps.entry(*tgid) {
                    // It may have ended by now.
                    if let Ok(link) = iterate::attach(program, Scope::Process(*tgid)) {
                        entry.insert(link);
                    }
                }
            }
        } else if self.sweep_of_all.is_none() {
            let link =
                iterate::attach(program, Scope::All).map_err(|source| CaptureError::Iterate {
                    what: "threads",
                    source,
                })?;
            self.sweep_of_all = Some(link);
        }
        let links: Vec<&Link> = if scoped {
            processes
                .iter()
                .filter_map(|tgid| self.sweeps.get(tgid))
                .collect()
        } else {
            self.sweep_of_all.iter().collect()
        };
        let mut buffer = std::mem::take(&mut self.buffer);
        for link in links {
            let begun = Instant::now();
            let walked = iterate::read(link, &mut buffer);
            took += begun.elapsed();
            match walked {
                Ok(()) => {}
                Err(error) if error.raw_os_error() == Some(libc::ESRCH) => continue,
                Err(source) => {
                    return Err(CaptureError::Iterate {
                        what: "threads",
                        source,
                    });
                }
            }
            let mut consumed = Instant::now();
            let mut rest = buffer.as_slice();
            while !rest.is_empty() {
                let Some((record, size)) = decode(rest) else {
                    self.recorder.bad_record();
                    break;
                };
                self.recorder.take(record)?;
                rest = &rest[size..];
                self.keep_up(&mut consumed);
            }
        }
        if buffer.capacity() <= MAX_IDLE_BUFFER {
            self.buffer = buffer;
        }
        Ok(took)
    }

    /// Writes what was used of the CPUs since the last time.
    fn account_cpu(&mut self) -> Result<(), CaptureError> {
        let threads: Vec<_> = burst::totals(&self.programs, &self.recorder.processes())
            .into_values()
            .collect();
        let ports = &self.programs.skel.maps.listeners;
        for row in self.recorder.cpu.look(kernel::now_ns(), &threads, ports) {
            self.recorder.writer.write(&Event::Cpu(row))?;
        }
        Ok(())
    }

    fn count(&mut self) {
        self.recorder
            .count(counters::losses(&self.programs.skel.maps.counters));
        self.recorder
            .count(counters::requests(&self.programs.skel.maps.totals));
        self.recorder
            .count(counters::herds(&self.programs.skel.maps.herds));
        self.recorder.count(self.cpu_limits.look());
    }

    /// Tells who still sleeps, closes the books on every socket, takes everything off, names the
    /// frames and finishes the recording.
    pub fn finish(mut self, exit_status: Option<i32>) -> Result<Outcome, CaptureError> {
        urings::look(&mut self.programs);
        self.programs.sweep_all();
        self.drain()?;
        self.recorder.last_look();
        self.sweep(&self.recorder.processes())?;
        // A sample after the last look at the totals would be told and not counted.
        self.programs.stop_clock();
        self.account_cpu()?;
        let flush = self.programs.attach_flush()?;
        let flushed = iterate::read(&flush, &mut self.buffer);
        drop(flush);
        let (open, more) = sockets::open(&self.buffer);
        self.meta.ended_ns = Some(kernel::now_ns());
        self.programs.detach();
        self.sweeps.clear();
        self.sweep_of_all = None;
        flushed.map_err(|source| CaptureError::Iterate {
            what: "sockets",
            source,
        })?;
        self.drain()?;
        for row in open {
            self.recorder.writer.write(&Event::SocketCpu(row))?;
        }
        self.recorder.writer.counter("sockets.not-told", more);
        self.recorder.settle()?;
        let maps = &self.programs.skel.maps;
        let short = counters::futexes(&maps.futexes, &self.threads, &maps.more_threads);
        self.recorder.futexes(short)?;
        self.take_closed_urings()?;
        self.recorder.rings(urings::read(&self.programs))?;
        self.count();
        let missed = cost::missed_runs(self.programs.object().progs_mut());
        self.recorder.writer.counter("runs.left-out", missed);
        if self.statistics.is_some() {
            self.meta.cost = cost::of_programs(self.programs.object().progs_mut());
        }
        self.meta.notes = std::mem::take(&mut self.programs.notes);
        self.meta.exit_status = exit_status;
        self.name_frames()?;
        let Recorder { writer, .. } = self.recorder;
        let rows = writer.rows();
        writer.finish(&self.meta)?;
        Ok(Outcome { rows })
    }

    fn name_frames(&mut self) -> Result<(), CaptureError> {
        let frames = self.recorder.frames();
        let modules = self.recorder.modules().to_vec();
        for symbol in Symboliser::new().symbolise(&modules, &frames, None) {
            self.recorder.writer.write(&Event::Symbol(symbol))?;
        }
        Ok(())
    }

    /// Ends a capture that failed: takes everything off and leaves a recording of what came before,
    /// with a note.
    pub fn abandon(mut self, why: &str) {
        self.programs.detach();
        self.sweeps.clear();
        self.sweep_of_all = None;
        self.meta.ended_ns = Some(kernel::now_ns());
        self.meta.notes = std::mem::take(&mut self.programs.notes);
        self.meta
            .notes
            .push(format!("the recording was cut short: {why}"));
        self.count();
        let Recorder { writer, .. } = self.recorder;
        // Where the disk is full not even this may be possible, and the caller tells why already.
        let _ = writer.finish(&self.meta);
    }
}

/// What has come out of the rings and was not looked at yet.
type Incoming = Rc<RefCell<Arrived>>;

#[derive(Default)]
struct Arrived {
    records: Vec<Record>,
    /// From a ring of their own, in the order of time as the others.
    samples: Vec<Record>,
    undecodable: usize,
    bytes: usize,
}

impl Arrived {
    fn add(&mut self, bytes: &[u8]) {
        self.bytes += bytes.len();
        match decode(bytes) {
            Some((record @ Record::Sample(..), _)) => self.samples.push(record),
            Some((record, _)) => self.records.push(record),
            None => self.undecodable += 1,
        }
    }
}

fn sample_ns(record: &Record) -> u64 {
    match record {
        Record::Sample(sample, _) => sample.at_ns,
        _ => 0,
    }
}

fn rings(programs: &Programs, incoming: &Incoming) -> Result<RingBuffer<'static>, CaptureError> {
    let load = |error: libbpf_rs::Error| CaptureError::Load {
        reason: one_line(&error),
    };
    let mut builder = RingBufferBuilder::new();
    for map in [&programs.skel.maps.records, &programs.skel.maps.stacks] {
        let incoming = incoming.clone();
        builder
            .add(map, move |bytes| {
                incoming.borrow_mut().add(bytes);
                0
            })
            .map_err(load)?;
    }
    builder.build().map_err(load)
}

impl From<io::Error> for CaptureError {
    fn from(source: io::Error) -> Self {
        CaptureError::Iterate {
            what: "threads",
            source,
        }
    }
}
