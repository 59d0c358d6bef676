//! From a configuration to a recording: launches or finds the target, and drives the capture while it lasts.

use std::path::PathBuf;

use whywait_capture::{CaptureError, Options};

use crate::config::{CaptureConfig, Target};
use crate::errors::eprintln_quietly;
use crate::session::{Running, Session};

/// What a capture leaves behind.
pub(crate) struct CaptureOutcome {
    /// The recording's folder.
    pub(crate) recording: PathBuf,
    /// The launched command, if one was: it has ended, or goes on after `-d`.
    pub(crate) command: Option<Running>,
}

/// Watches the target until it ends, its time is up or a signal says so, and writes the recording.
///
/// # Errors
/// Fails when this machine does not allow it, when the target is gone, or when the recording cannot be written. A launched
/// command that runs by then goes on to its own end first.
pub(crate) fn capture(config: &CaptureConfig) -> anyhow::Result<CaptureOutcome> {
    // A command waits at its gate from here on, so that nothing of it is missed.
    let mut session = Session::begin(config)?;
    let command = match &config.target {
        Target::Process(pid) => whywait_capture::command_line(*pid),
        Target::Command(command) => command.iter().map(|part| part.to_string_lossy().into_owned()).collect(),
    };
    let options = Options {
        threshold_ns: config.threshold_ns,
        stack_bytes: config.stack_bytes,
        // For benchmarks; the kernel's clock around each program costs more than most of the programs.
        measure_cost: std::env::var_os("WHYWAIT_MEASURE_COST").is_some(),
        owner: config.owner.map(|owner| (owner.uid, owner.gid)),
        ..Options::default()
    };
    let folder = Folder::before(&config.recording);
    let started = whywait_capture::Session::start(session.pid(), command, &config.recording, &options)
        .map_err(anyhow::Error::from)
        .and_then(|capture| {
            privileges::drop_unneeded(config).context("cannot give up privileges")?;
            Ok(capture)
        });
    let mut capture = started.inspect_err(|_| folder.restore())?;
    if let Target::Process(pid) = config.target {
        let end = if config.duration.is_some() { "Ctrl-C ends it early" } else { "Ctrl-C ends it" };
        eprintln_quietly(&format!("whywait: watching process {pid}; {end}"));
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
            std::thread::sleep(capture.pause());
        }
        Ok(())
    };
    let watched = watch();
    let exit_status = session.exit_status();
    let running = session.finish();
    // Whatever went wrong here, everything is taken off before anything else, and the command goes on.
    let recorded = match watched {
        Ok(()) => capture.finish(exit_status).map(drop).map_err(anyhow::Error::from),
        Err(error) => {
            drop(capture);
            Err(error)
        }
    };
    match recorded {
        Ok(()) => Ok(CaptureOutcome { recording: config.recording.clone(), command: running }),
        Err(error) => {
            if let Some(running) = running
                && error.downcast_ref::<CaptureError>().is_some()
            {
                eprintln_quietly(&format!("whywait: {error}; the command goes on"));
                running.wait()?;
            }
            Err(error)
        }
    }
}
