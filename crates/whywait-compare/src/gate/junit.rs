//! A judgement as JUnit XML, which most CI servers show.

use std::fmt::Write as _;

use whywait_words::{Charset, escape};

use super::judge::{Judgement, LineOutcome};

/// A text of more columns is cut.
const MAX_WIDTH: usize = 4_096;

/// A judgement as JUnit XML. `budget`: the file's name; `fail_when_undecided`: what is undecided is
/// a failure, and not skipped.
pub fn render(judgement: &Judgement, budget: &str, fail_when_undecided: bool) -> String {
    let fails = |outcome| {
        outcome == LineOutcome::Broken || (outcome == LineOutcome::Undecided && fail_when_undecided)
    };
    let failures = judgement
        .lines
        .iter()
        .filter(|line| fails(line.outcome))
        .count();
    let undecided = judgement.with(LineOutcome::Undecided).count();
    let skipped = if fail_when_undecided { 0 } else { undecided };
    let mut xml = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    let _ = writeln!(
        xml,
        "<testsuites><testsuite name=\"whywait gate\" tests=\"{}\" failures=\"{failures}\" \
         skipped=\"{skipped}\" errors=\"0\">",
        judgement.lines.len()
    );
    for line in &judgement.lines {
        let _ = write!(
            xml,
            "  <testcase classname=\"{}\" name=\"{}\" file=\"{}\" line=\"{}\">",
            attribute(budget),
            attribute(&line.what),
            attribute(budget),
            line.line
        );
        let why = attribute(&line.why);
        let _ = match line.outcome {
            outcome if fails(outcome) => write!(xml, "<failure message=\"{why}\"/>"),
            LineOutcome::Undecided => write!(xml, "<skipped message=\"{why}\"/>"),
            _ => write!(xml, "<system-out>{why}</system-out>"),
        };
        xml.push_str("</testcase>\n");
    }
    xml.push_str("</testsuite></testsuites>\n");
    xml
}

/// Text that is safe in an attribute and between tags. What XML cannot hold at all is escaped as on
/// a terminal.
fn attribute(raw: &str) -> String {
    let mut text = String::with_capacity(raw.len());
    for c in escape(raw, Charset::Unicode, MAX_WIDTH).chars() {
        match c {
            '<' => text.push_str("&lt;"),
            '>' => text.push_str("&gt;"),
            '&' => text.push_str("&amp;"),
            '"' => text.push_str("&quot;"),
            '\'' => text.push_str("&apos;"),
            '\u{fffe}' | '\u{ffff}' => text.push('\u{fffd}'),
            c => text.push(c),
        }
    }
    text
}
