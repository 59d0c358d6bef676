//! The recordings of one side of a comparison.

use std::fs;
use std::path::{Path, PathBuf};

use thiserror::Error;
use whywait_events::recording::{ReadError, is_recording};

use crate::gate::baseline::{self, BaselineError};
use crate::measures::Run;

/// More runs than this say no more, and take long.
pub const MAX_RUNS: usize = 200;

/// Some runs of the same thing.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Side {
    /// What it is called: the paths, as they were given. Hostile.
    pub name: String,
    /// The runs, in the order of their names.
    pub runs: Vec<Run>,
}

/// Why a side cannot be read.
#[derive(Debug, Error)]
pub enum SideError {
    /// A recording cannot be read.
    #[error(transparent)]
    Recording(#[from] ReadError),
    /// A baseline cannot be read.
    #[error(transparent)]
    Baseline(#[from] BaselineError),
    /// There is no recording.
    #[error(
        "{} is no recording, and no folder of recordings: whywait record -o DIR makes one",
        .0.display()
    )]
    Empty(PathBuf),
    /// Too many.
    #[error("there are more than {MAX_RUNS} recordings in {}: name fewer", .0.display())]
    TooMany(PathBuf),
}

impl Side {
    /// Reads and analyses recordings. Each path is a recording, a folder of recordings, or a file
    /// that `whywait gate --save-baseline` wrote. `progress` is called with each recording
    /// before it is read.
    ///
    /// # Errors
    /// When a path is none of these.
    pub fn read(paths: &[PathBuf], progress: &mut dyn FnMut(&Path)) -> Result<Self, SideError> {
        let mut side = Side::default();
        for path in paths {
            if path.is_file() && !is_recording(path) {
                side.runs.extend(baseline::load(path)?.runs);
                continue;
            }
            for recording in recordings(path)? {
                progress(&recording);
                side.runs.push(Run::read(&recording)?);
            }
        }
        if side.runs.len() > MAX_RUNS {
            return Err(SideError::TooMany(
                paths.first().cloned().unwrap_or_default(),
            ));
        }
        let names: Vec<String> = paths
            .iter()
            .map(|path| path.display().to_string())
            .collect();
        side.name = names.join(", ");
        Ok(side)
    }

    /// A measure's value in each run.
    pub fn values(&self, name: &str) -> Vec<Option<f64>> {
        self.runs.iter().map(|run| run.value(name)).collect()
    }
}

/// The recordings at a path: itself, or those in it.
///
/// # Errors
/// When there are none, or too many.
pub fn recordings(path: &Path) -> Result<Vec<PathBuf>, SideError> {
    if is_recording(path) {
        return Ok(vec![path.to_path_buf()]);
    }
    let mut found = Vec::new();
    for entry in fs::read_dir(path).into_iter().flatten().flatten() {
        let entry = entry.path();
        // As the labs keep them: each in a folder with its ground truth.
        let nested = entry.join("recording");
        if is_recording(&entry) {
            found.push(entry);
        } else if is_recording(&nested) {
            found.push(nested);
        }
        if found.len() > MAX_RUNS {
            return Err(SideError::TooMany(path.to_path_buf()));
        }
    }
    if found.is_empty() {
        // The reader of recordings knows best what is wrong with it.
        whywait_events::recording::Recording::open(path).map_err(|error| match error {
            ReadError::NotARecording { .. } if path.is_dir() => {
                SideError::Empty(path.to_path_buf())
            }
            error => SideError::Recording(error),
        })?;
        return Err(SideError::Empty(path.to_path_buf()));
    }
    found.sort();
    Ok(found)
}
