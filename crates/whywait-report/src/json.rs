//! The JSON view, schema 1.

use crate::Report;

/// The report as indented JSON with a newline at its end.
///
/// Keys have a fixed order, so that two reports can be compared line by line. What is not known is `null`. Strings
/// from outside are as they were seen: JSON's own escaping makes them safe to parse, not safe to print.
///
/// # Errors
/// Fails only if a value cannot be written as JSON, which no field of a report allows.
pub fn to_json(report: &Report) -> serde_json::Result<String> {
    let mut report = report.clone();
    // Shares are ratios of large counts: more digits say nothing, and differ between two runs of the same analysis
    // when the sums are made in another order.
    for share in [
        &mut report.requests.closure,
        &mut report.coverage.frames_symbolised,
    ]
    .into_iter()
    .flatten()
    {
        *share = (*share * 1e6).round() / 1e6;
    }
    let mut text = serde_json::to_string_pretty(&report)?;
    text.push('\n');
    Ok(text)
}
