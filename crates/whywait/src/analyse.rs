//! From a recording to a report.

use std::path::Path;

use whywait_events::recording::Recording;
use whywait_findings::Facts;
use whywait_model::{Input, Model};
use whywait_report::Report;

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

/// Everything that there is to say of a recording as a whole.
pub(crate) fn report(model: &Model) -> Report {
    let facts = Facts::of(model);
    let mut report = Report::new(
        model.target(),
        model.requests_summary(),
        whywait_findings::find(&facts),
        model.coverage(),
    );
    report.verdict = whywait_findings::verdict(&facts, &report.findings);
    report.calls = model.calls();
    report.uring = model.rings();
    report.cpu = model.cpu_summary();
    report.notes.clone_from(&model.meta.notes);
    report.looked_at = whywait_findings::looked_at(model);
    report
}
