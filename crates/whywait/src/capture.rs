//! The seam to the recording itself.

use std::path::PathBuf;

use crate::config::CaptureConfig;
use crate::session::Running;

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
/// Fails when this machine does not allow it, when the target is gone, or when the recording cannot be written.
pub(crate) fn capture(config: &CaptureConfig) -> anyhow::Result<CaptureOutcome> {
    // With the capture in place this becomes:
    //   let mut session = Session::begin(config)?;              a command waits at its gate from here on
    //   let mut capture = start the capture of session.pid()    so that nothing of it is missed
    //   session.go()?;
    //   while session.running()? { capture.turn()?; sleep for capture.pause() }
    //   capture.finish(session.exit_status())?;
    //   Ok(CaptureOutcome { recording, command: session.finish() })
    let _ = config;
    anyhow::bail!(
        "recording is not built yet: only `report`, `explain` and `check` work in this version"
    )
}
