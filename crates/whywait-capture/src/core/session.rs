//! A capture from attaching to the finished recording.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use whywait_events::recording::{
    CUT_SHORT, Meta, RecordedServer, RecordingOptions, Writer, WriterOptions,
};
use whywait_stacks::{Symboliser, Unwinder};
use whywait_target::OwnPidNamespace;

use super::error::CaptureError;
use super::incoming::{Incoming, sample_ns};
use super::options::Options;
use super::programs::Programs;
use super::recorder::Recorder;
use super::records::Record;
use super::shared::Stage;
use super::so_far::SoFar;
use super::target::Target;
use super::thread_table::ThreadTable;
use super::wakeups::{LONG_PAUSE, PAUSE, Wakeups};
use super::{cost, counters, kernel, names};
use crate::collectors;

/// After a process began, others may, and end soon: what is to be read of one can be read while it
/// lives.
const YOUNG: Duration = Duration::from_millis(200);

/// A capture that runs. Dropping it takes everything off.
pub struct Session {
    // Declared before `programs`: links go first, those of collectors too.
    recorder: Recorder,
    incoming: Incoming,
    wakeups: Wakeups,
    programs: Programs,
    threads: ThreadTable,
    symboliser: Symboliser,
    options: Options,
    meta: Meta,
    statistics: Option<OwnedFd>,
    next_roll: Instant,
    /// Looks since a segment was closed.
    looks: u32,
    /// The target's processes are not that young any more.
    settled: Instant,
}

/// What a capture came to.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// Rows that were written.
    pub rows: u64,
}

impl Session {
    /// Loads, attaches to the target with its threads and descendants, and begins to record into
    /// `dir`.
    /// The recording and the privileges are checked before anything is attached.
    pub fn start(
        target: impl Into<Target>,
        command: Vec<String>,
        dir: &Path,
        options: &Options,
    ) -> Result<Self, CaptureError> {
        let target = target.into();
        if whywait_target::in_own_pid_namespace() == Some(true) {
            return Err(CaptureError::OwnPidNamespace(OwnPidNamespace));
        }
        if !target.lives() {
            return Err(CaptureError::NoSuchProcess(target.head));
        }
        let mut unwinder = Box::new(Unwinder::new());
        unwinder.prepare();
        let programs = Programs::load(options, target.servers.len())?;
        unwinder.prepared();
        if let Some(at) = options.begin_at {
            wait_until(at);
        }
        let meta = Meta {
            tier: programs.tier().name().to_owned(),
            ..meta(&target, command, options)
        };
        let writer_options = WriterOptions {
            owner: options.owner,
            ..WriterOptions::default()
        };
        let writer = Box::new(Writer::create_with(dir, &meta, writer_options)?);
        let statistics = if options.measure_cost {
            cost::enable().ok()
        } else {
            None
        };
        let iterate = |what| move |source| CaptureError::Iterate { what, source };
        let maps = &programs.skel.maps;
        let mut session = Self {
            recorder: Recorder::new(&collectors::ALL, &target, writer, unwinder),
            incoming: Incoming::of(&programs)?,
            wakeups: Wakeups::of([&maps.records, &maps.stacks]).map_err(iterate("records"))?,
            threads: ThreadTable::new(&maps.bss_threads, options.sweep_min_ns())
                .map_err(iterate("threads"))?,
            programs,
            symboliser: Symboliser::new(),
            options: options.clone(),
            meta,
            statistics,
            looks: 0,
            next_roll: Instant::now() + Duration::from_nanos(options.segment_ns),
            settled: Instant::now() + YOUNG,
        };
        session.programs.begin(&target)?;
        session.recorder.start(&mut session.programs, options)?;
        session.drain()?;
        session.look(Stage::Begins)?;
        Ok(session)
    }

    /// Who gives names to the frames in the end.
    pub fn name_by(&mut self, symboliser: Symboliser) {
        self.symboliser = symboliser;
    }

    /// Something that whoever reads the recording should know.
    pub fn note(&mut self, note: &str) {
        self.programs.notes.push(note.to_owned());
    }

    /// For benchmarks: takes the hooks off, or puts them on again. What happens in between is in no
    /// recording.
    pub fn set_hooks(&mut self, on: bool) -> Result<(), CaptureError> {
        self.detach();
        if on {
            self.programs.attach_all()?;
            self.recorder.start(&mut self.programs, &self.options)?;
        }
        Ok(())
    }

    fn detach(&mut self) {
        self.recorder.stop();
        self.programs.detach();
    }

    /// What the requests came to so far.
    pub fn so_far(&self) -> SoFar {
        SoFar::of(&self.programs, &self.recorder.shared.rows)
    }

    /// For tests: whether the sampling clock ticks less often for now, because nothing is slow.
    pub fn clock_is_sparse(&self) -> bool {
        self.programs.clock_is_sparse()
    }

    /// Takes in what has come, sweeps over the sleeping threads and closes a segment, as far as
    /// each is due. Call it again after [`Session::sleep`].
    pub fn turn(&mut self) -> Result<(), CaptureError> {
        self.recorder.before_turn(&mut self.programs);
        let dense = self.options.full || self.recorder.is_urgent(&self.programs);
        self.recorder.pace(&mut self.programs, dense);
        self.drain()?;
        let now = Instant::now();
        if self.ask(false)? {
            self.drain()?;
        }
        if now >= self.next_roll {
            self.roll()?;
            self.next_roll = now + Duration::from_nanos(self.options.segment_ns);
        }
        Ok(())
    }

    /// Looks at all that is looked at now and then, and closes a segment when that is due.
    fn roll(&mut self) -> Result<(), CaptureError> {
        self.look(Stage::Lasts)?;
        self.count();
        self.looks += 1;
        if self.looks >= self.options.looks_in_segment {
            self.looks = 0;
            self.recorder.shared.output.writer.roll()?;
        }
        self.recorder.shared.forget_ended(whywait_target::alive);
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
        // memory that changes, it is to be read soon; and so are io_uring rings looked at.
        let may_wait = self.programs.user_stacks_exact
            && !self.recorder.shared.reads_memory()
            && !self.recorder.is_urgent(&self.programs)
            && Instant::now() >= self.settled;
        if may_wait && at_most > PAUSE {
            self.programs.wake_for_what_is_urgent(true);
            self.wakeups.sleep(at_most.min(LONG_PAUSE) - PAUSE);
            self.programs.wake_for_what_is_urgent(false);
        }
    }

    fn drain(&mut self) -> Result<(), CaptureError> {
        self.incoming.consume();
        let arrived = self.incoming.take();
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
            self.incoming.keep_up(&mut consumed);
        }
        self.recorder.turn(&mut self.programs)?;
        for sample in samples {
            self.recorder.take(sample)?;
            self.incoming.keep_up(&mut consumed);
        }
        for _ in 0..arrived.undecodable {
            self.recorder.shared.refuse();
        }
        Ok(())
    }

    fn ask(&mut self, last: bool) -> Result<bool, CaptureError> {
        let (programs, threads) = (&mut self.programs, &self.threads);
        self.recorder.ask(programs, threads, &self.incoming, last)
    }

    fn look(&mut self, stage: Stage) -> Result<(), CaptureError> {
        self.recorder.look(&mut self.programs, stage)
    }

    fn count(&mut self) {
        let losses = counters::losses(&self.programs.skel.maps.counters);
        self.recorder.count(losses, &self.programs);
    }

    /// Records who still sleeps, closes the books on every socket, takes everything off, names the
    /// frames and finishes the recording. Where that fails, as on a full disk, a recording of what
    /// came before is left, with a note.
    pub fn finish(mut self, exit_status: Option<i32>) -> Result<Outcome, CaptureError> {
        self.meta.exit_status = exit_status;
        if let Err(error) = self.close() {
            self.abandon(&error.to_string());
            return Err(error);
        }
        let writer = self.recorder.shared.output.writer;
        let rows = writer.rows();
        writer.finish(&self.meta)?;
        Ok(Outcome { rows })
    }

    fn close(&mut self) -> Result<(), CaptureError> {
        self.recorder.before_turn(&mut self.programs);
        self.drain()?;
        self.ask(true)?;
        // A sample after the last look at the totals would be recorded and not counted.
        self.recorder.stop();
        self.look(Stage::Ends)?;
        self.recorder.close(&mut self.programs)?;
        self.meta.ended_ns = Some(kernel::now_ns());
        self.detach();
        self.drain()?;
        self.recorder.finish(&mut self.programs, &self.threads)?;
        self.count();
        let missed = cost::missed_runs(self.programs.all());
        self.recorder
            .shared
            .output
            .writer
            .counter("runs.left-out", missed);
        if self.statistics.is_some() {
            self.meta.cost = cost::of_programs(self.programs.all());
        }
        self.meta.notes = std::mem::take(&mut self.programs.notes);
        let output = &mut self.recorder.shared.output;
        let unnamed = names::name_frames(output, &mut self.symboliser)?;
        self.meta.notes.extend(unnamed);
        Ok(())
    }

    /// Ends a capture that failed: takes everything off and leaves a recording of what came before,
    /// with a note.
    pub fn abandon(mut self, why: &str) {
        self.detach();
        self.meta.ended_ns = Some(kernel::now_ns());
        self.meta.notes.append(&mut self.programs.notes);
        self.meta.notes.push(format!("{CUT_SHORT}{why}"));
        self.count();
        // Where the disk is full not even this may be possible, and the caller says why already.
        let _ = self.recorder.shared.output.writer.finish(&self.meta);
    }
}

/// Sleeps until the wall clock is there, which may be set meanwhile.
fn wait_until(at: SystemTime) {
    const STEP: Duration = Duration::from_millis(50);
    while let Ok(left) = at.duration_since(SystemTime::now())
        && !left.is_zero()
    {
        std::thread::sleep(left.min(STEP));
    }
}

fn servers(target: &Target) -> Vec<RecordedServer> {
    let processes = target.processes_of_servers();
    let each = target.servers.iter().zip(processes);
    each.map(|(server, processes)| {
        let pid = server.pids.first().copied().unwrap_or_default();
        RecordedServer {
            pid,
            inner_pid: whywait_target::inner_number(pid),
            command: whywait_target::command_line(pid),
            ports: server.ports.clone(),
            processes: processes.into_iter().collect(),
        }
    })
    .collect()
}

/// What is known of the recording when it begins.
fn meta(target: &Target, command: Vec<String>, options: &Options) -> Meta {
    Meta {
        whywait: env!("CARGO_PKG_VERSION").to_owned(),
        started_wall_unix_ns: SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |d| d.as_nanos() as u64),
        started_ns: kernel::now_ns(),
        host: kernel::host(),
        command,
        pid: Some(target.head),
        inner_pid: whywait_target::inner_number(target.head),
        target: target.named.clone(),
        servers: servers(target),
        options: RecordingOptions {
            threshold_ns: options.threshold_ns,
            stack_bytes: options.stack_bytes,
            sample_hz: options.sample_hz,
            detail: if options.full { "full" } else { "waits" }.to_owned(),
        },
        ..Meta::default()
    }
}
