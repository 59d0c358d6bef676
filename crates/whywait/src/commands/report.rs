//! `whywait report`: says what a recording shows.

use std::fmt::Write as _;
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
        Format::Json => printable_json(&to_json(report)?),
    })
}

/// JSON leaves most control characters as they are: those of Latin-1's upper half, which some terminals act on, and those
/// that turn the direction of writing. They can only be within strings, where an escape means the same.
fn printable_json(json: &str) -> String {
    let mut text = String::with_capacity(json.len());
    for c in json.chars() {
        match c {
            '\n' => text.push(c),
            '\u{061c}'
            | '\u{200e}'
            | '\u{200f}'
            | '\u{202a}'..='\u{202e}'
            | '\u{2066}'..='\u{2069}' => {
                let _ = write!(text, "\\u{:04x}", u32::from(c));
            }
            c if c.is_control() => {
                let _ = write!(text, "\\u{:04x}", u32::from(c));
            }
            c => text.push(c),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_says_the_same_in_printable_characters() {
        let value = "a\nb\u{9b}31m\u{7f}\u{202e}é";
        let json = serde_json::to_string_pretty(&[value]).expect("a string");
        let printable = printable_json(&json);
        assert!(
            !printable.contains(|c: char| c.is_control() && c != '\n'),
            "{printable:?}"
        );
        assert!(!printable.contains('\u{202e}') && printable.contains('é'));
        let back: Vec<String> = serde_json::from_str(&printable).expect("JSON");
        assert_eq!(back, [value]);
    }
}
