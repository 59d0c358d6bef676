//! A baseline: the measures of some runs in a file, so that later ones can be held against them
//! without their recordings.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::measures::Run;
use crate::side::MAX_RUNS;

/// The version of the file's shape that this version writes.
pub const SCHEMA: u32 = 1;
/// A longer file is not a baseline.
const MAX_BYTES: u64 = 64 << 20;

/// The measures of some runs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Baseline {
    /// The version of the file's shape.
    pub schema: u32,
    /// What it is, for who finds the file.
    #[serde(default)]
    pub what: String,
    /// The runs.
    pub runs: Vec<Run>,
}

/// Why a baseline cannot be read.
#[derive(Debug, Error)]
pub enum BaselineError {
    /// The file cannot be read.
    #[error(
        "cannot read the baseline {} (whywait gate --save-baseline FILE writes one): {source}",
        .path.display()
    )]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// It is something else.
    #[error("{} is no baseline: {reason}", .path.display())]
    Not {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
}

impl Baseline {
    /// One of these runs.
    pub fn new(runs: Vec<Run>) -> Self {
        Self {
            schema: SCHEMA,
            what: "measures of whywait recordings: written by whywait gate --save-baseline"
                .to_owned(),
            runs,
        }
    }
}

/// Reads a baseline.
///
/// # Errors
/// When the file cannot be read, is no baseline, or one of a newer version.
pub fn load(path: &Path) -> Result<Baseline, BaselineError> {
    let io = |source| BaselineError::Io {
        path: path.to_path_buf(),
        source,
    };
    let not = |reason: String| BaselineError::Not {
        path: path.to_path_buf(),
        reason,
    };
    let mut text = String::new();
    let read = File::open(path)
        .map_err(io)?
        .take(MAX_BYTES + 1)
        .read_to_string(&mut text);
    match read {
        Ok(bytes) if bytes as u64 > MAX_BYTES => return Err(not("it is too long".to_owned())),
        Ok(_) => {}
        Err(error) if error.kind() == std::io::ErrorKind::InvalidData => {
            return Err(not("it is no text".to_owned()));
        }
        Err(error) => return Err(io(error)),
    }
    let baseline: Baseline = serde_json::from_str(&text).map_err(|error| {
        not(format!(
            "{error}; whywait gate --save-baseline FILE writes one"
        ))
    })?;
    if baseline.schema > SCHEMA {
        return Err(not(format!(
            "it has schema {}; this version knows {SCHEMA}: update whywait",
            baseline.schema
        )));
    }
    if baseline.runs.is_empty() || baseline.runs.len() > MAX_RUNS {
        return Err(not(format!(
            "it has {} runs, and not 1 to {MAX_RUNS}",
            baseline.runs.len()
        )));
    }
    Ok(baseline)
}
