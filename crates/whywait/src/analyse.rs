//! From a recording to a report.

use std::path::Path;

use whywait_events::recording::Recording;
use whywait_model::{Input, Model};

/// Analyses a recording.
///
/// # Errors
/// Fails when there is no recording at `dir`, or it cannot be read. What is damaged is left out,
/// and the report says so.
pub(crate) fn model(dir: &Path) -> anyhow::Result<Model> {
    let recording = Recording::open(dir)?;
    Ok(Model::new(Input::read(&recording)?))
}

/// Analyses one of the servers of a recording.
///
/// # Errors
/// As [`model`].
pub(crate) fn model_of_server(dir: &Path, number: usize) -> anyhow::Result<Model> {
    let recording = Recording::open(dir)?.of_server(number)?;
    Ok(Model::new(Input::read(&recording)?))
}
