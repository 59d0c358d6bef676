//! `whywait -- CMD` and `whywait -p PID`: record and report in one go.

use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::args::WatchArgs;
use crate::capture::capture;
use crate::commands::report;
use crate::config::{self, ReportConfig};
use crate::errors::{self, FOUND};
use crate::output;
use crate::user::Invoker;

pub(crate) fn run(args: WatchArgs) -> anyhow::Result<u8> {
    let target = config::target(&args.target)?;
    let folder = RecordingFolder::new(args.keep)?;
    let report_config = ReportConfig::new(args.output, false)?;
    let output = report_config.output.as_ref();
    let mut config = config::capture(
        target,
        args.target.duration,
        &args.capture,
        folder.path(),
        folder
            .removed_from()
            .into_iter()
            .chain(output.map(|file| file.name().to_owned()))
            .collect(),
        Invoker::from_env(),
    )?;
    config.quiet = args.target.quiet;
    let outcome = capture(&config)?;
    let reported = report::report(&outcome.recording, &report_config);
    drop(folder);
    let failed = reported.as_ref().err().map(errors::report).is_some();
    let code = outcome.exit_code(failed)?;
    Ok(if reported.is_ok_and(|found| found) {
        FOUND
    } else {
        code
    })
}

/// Where the recording goes.
enum RecordingFolder {
    Kept(PathBuf),
    /// Removed when dropped. Readable by its owner alone, as recordings are.
    Temporary(TempDir),
}

impl RecordingFolder {
    fn new(keep: Option<PathBuf>) -> anyhow::Result<Self> {
        if let Some(path) = keep {
            config::new_folder(&path)?;
            return Ok(RecordingFolder::Kept(path));
        }
        output::temporary_folder().map(RecordingFolder::Temporary)
    }

    fn path(&self) -> PathBuf {
        match self {
            RecordingFolder::Kept(path) => path.clone(),
            RecordingFolder::Temporary(dir) => dir.path().to_path_buf(),
        }
    }

    /// The folder that changes when this one goes.
    fn removed_from(&self) -> Option<PathBuf> {
        match self {
            RecordingFolder::Kept(_) => None,
            RecordingFolder::Temporary(dir) => dir.path().parent().map(Path::to_path_buf),
        }
    }
}
