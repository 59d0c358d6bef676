//! `whywait report`: says what a recording shows.

use std::path::Path;

use whywait_report::{Report, fails, text, to_json};

use crate::analyse::analyse;
use crate::args::{Format, ReportArgs};
use crate::config::ReportConfig;
use crate::errors::FOUND;
use crate::output;

pub(crate) fn run(args: ReportArgs) -> anyhow::Result<u8> {
    let failed = report(&args.recording, &args.output.into())?;
    Ok(if failed { FOUND } else { 0 })
}

/// Analyses a recording and writes the report. Gives whether it has a finding that fails the run.
///
/// # Errors
/// Fails when the recording cannot be read, or the report cannot be written.
pub(crate) fn report(recording: &Path, config: &ReportConfig) -> anyhow::Result<bool> {
    let report = analyse(recording)?;
    output::write(&render(&report, config)?, config.output.as_deref())?;
    Ok(config
        .fail_on
        .is_some_and(|fail_on| fails(&report, fail_on)))
}

fn render(report: &Report, config: &ReportConfig) -> anyhow::Result<String> {
    Ok(match config.format {
        Format::Text => text::render(report, output::text_options(config.output.is_some())),
        Format::Json => to_json(report)?,
    })
}
