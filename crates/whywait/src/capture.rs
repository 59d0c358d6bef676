//! From a configuration to a recording: launches or finds the target, and drives the capture while
//! it lasts.

use std::ffi::OsString;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;
use whywait_capture::{CaptureError, Options, Target};
use whywait_words::list;

use crate::config::{CaptureConfig, WatchTarget};
use crate::errors::{FAILED, complain, eprintln_quietly, with_causes};
use crate::naming::Naming;
use crate::privileges;
use crate::progress::Progress;
use crate::session::{LaunchedTarget, TargetSession};

/// What a capture leaves behind.
pub(crate) struct CaptureOutcome {
    /// The recording's folder.
    pub(crate) recording: PathBuf,
    /// The launched command, if one was: it has ended, or goes on after `-d`.
    pub(crate) command: Option<LaunchedTarget>,
    /// The recording was cut short, which was reported: what came before is there.
    pub(crate) cut_short: bool,
}

impl CaptureOutcome {
    /// Waits for the launched command, and gives the exit code: the command's own where it failed,
    /// whatever became of the recording. `failed`: whywait did, in a way that was reported.
    ///
    /// # Errors
    /// Fails when the kernel will not say how the command ended.
    pub(crate) fn exit_code(self, failed: bool) -> anyhow::Result<u8> {
        // After `-d` the command still runs.
        let own = self.command.map_or(Ok(0), LaunchedTarget::wait)?;
        let failed = failed || self.cut_short;
        Ok(if failed && own == 0 { FAILED } else { own })
    }
}

/// Watches the target until it ends, its time is up or a signal says so, and writes the recording.
/// Where that fails meanwhile, as on a full disk, it says so at once, and the outcome has what was
/// recorded so far.
///
/// # Errors
/// Fails when this machine does not allow it, when the target is gone, or when no recording can be
/// begun.
pub(crate) fn capture(config: &CaptureConfig) -> anyhow::Result<CaptureOutcome> {
    // A command waits at its gate from here on, so that nothing of it is missed.
    let mut session = TargetSession::begin(config)?;
    let command = match &config.target {
        WatchTarget::Running(target) if config.launched.is_empty() => {
            whywait_target::command_line(target.head)
        }
        WatchTarget::Running(_) => words(&config.launched),
        WatchTarget::Command(command) => words(command),
    };
    let options = Options {
        threshold_ns: config.threshold_ns,
        stack_bytes: config.stack_bytes,
        full: config.full,
        names: config.names,
        tls: config.tls,
        looks_in_segment: if config.in_rotation { 30 } else { 1 },
        // For benchmarks; the kernel's clock around each program costs more than most of the
        // programs.
        measure_cost: std::env::var_os("WHYWAIT_MEASURE_COST").is_some(),
        owner: config.owner.map(|owner| (owner.uid, owner.gid)),
        begin_at: config.begin_at,
        target_waits: matches!(config.target, WatchTarget::Command(_))
            || !config.launched.is_empty(),
        ..Options::default()
    };
    let mut naming = Naming::start().context("cannot make a socket pair")?;
    let mut symboliser = naming.symboliser();
    if let Some(folder) = &config.debug_files {
        // Now: whywait may still open it, and it is the one that was named.
        symboliser
            .look_below(folder)
            .with_context(|| format!("cannot open {}", folder.display()))?;
    }
    let folder = FolderBefore::before(&config.recording);
    let mut progress = Progress::new(config.quiet || config.in_rotation);
    progress.attaching();
    let started =
        whywait_capture::Session::start(session.target(), command, &config.recording, &options)
            .map_err(anyhow::Error::from)
            .and_then(|capture| {
                privileges::drop_unneeded(config).context("cannot give up privileges")?;
                Ok(capture)
            });
    progress.clear();
    let mut capture = started.inspect_err(|error| {
        if !is_taken(error) {
            folder.restore();
        }
    })?;
    capture.name_by(symboliser);
    if let Some(lack) = privileges::lacks(session.target().head) {
        complain(lack);
        capture.note(lack);
    }
    if let WatchTarget::Running(target) = &config.target
        && !config.in_rotation
        && !config.quiet
    {
        let end = if config.duration.is_some() {
            "Ctrl-C ends the recording early"
        } else {
            "Ctrl-C ends the recording"
        };
        eprintln_quietly(&format!("whywait: watching {}; {end}", processes(target)));
    }
    if config.in_rotation {
        // Whoever waits for it and is gone needs no line any more.
        let _ = io::stdout().write_all(b"\n");
        let _ = io::stdout().flush();
    }
    if let Err(error) = session.go() {
        // There was no command to record. The capture first, or it would write on.
        drop(capture);
        folder.restore();
        return Err(error);
    }
    let mut watch = || -> anyhow::Result<()> {
        while session.running()? {
            capture.turn()?;
            // A command writes to the same terminal.
            if matches!(config.target, WatchTarget::Running(_)) {
                progress.watching(|| capture.so_far(), session.left());
            }
            capture.sleep();
        }
        Ok(())
    };
    let watched = watch();
    progress.clear();
    let exit_status = session.exit_status();
    let running = session.finish();
    // Whatever went wrong here, everything is taken off before anything else, and the command goes
    // on.
    let recorded = match watched {
        Ok(()) => capture
            .finish(exit_status)
            .map(drop)
            .map_err(anyhow::Error::from),
        Err(error) => {
            capture.abandon(&with_causes(&error));
            Err(error)
        }
    };
    let mut outcome = CaptureOutcome {
        recording: config.recording.clone(),
        command: running,
        cut_short: false,
    };
    if let Err(error) = recorded {
        outcome.cut_short = true;
        let goes_on = outcome
            .command
            .as_mut()
            .is_some_and(LaunchedTarget::goes_on);
        let more = if goes_on { "; the command goes on" } else { "" };
        complain(&format!("{}{more}", with_causes(&error)));
    }
    Ok(outcome)
}

/// `process 12`, `processes 12 and 13`, or what is in a cgroup.
pub(crate) fn processes(target: &Target) -> String {
    match &target.pids[..] {
        [pid] if target.cgroups.is_empty() => {
            let inner = whywait_target::inner_number(*pid);
            format!("process {}", whywait_words::pid(*pid, inner))
        }
        pids if target.cgroups.is_empty() => {
            let pids: Vec<String> = pids.iter().map(u32::to_string).collect();
            format!("processes {}", list(&pids))
        }
        _ => format!("process {} and what runs with it", target.head),
    }
}

fn words(command: &[OsString]) -> Vec<String> {
    command
        .iter()
        .map(|part| part.to_string_lossy().into_owned())
        .collect()
}

/// Whether the folder was taken: something was in it already.
fn is_taken(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(CaptureError::Write(error)) if error.is_taken())
}

/// The recording's folder as it was before: a recording that did not come about leaves nothing
/// behind.
struct FolderBefore<'a> {
    path: &'a Path,
    existed: bool,
}

impl<'a> FolderBefore<'a> {
    /// To be called when the path is known to be free: there is nothing, or an empty folder.
    fn before(path: &'a Path) -> Self {
        Self {
            path,
            existed: path.exists(),
        }
    }

    fn restore(&self) {
        // Should this fail, there is nothing useful to say: the reason was reported already.
        if !self.existed {
            let _ = fs::remove_dir_all(self.path);
            return;
        }
        for entry in fs::read_dir(self.path).into_iter().flatten().flatten() {
            let path = entry.path();
            let _ = if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                fs::remove_dir_all(path)
            } else {
                fs::remove_file(path)
            };
        }
    }
}
