//! A judgement for GitHub: workflow commands, which are annotations at the budget's lines, and
//! Markdown for a job's summary.

use std::fmt::Write as _;

use whywait_words::{Charset, counted, escape, markdown};

use super::judge::{Judgement, LineOutcome};
use super::text::name;

/// A text of more columns is cut.
const MAX_WIDTH: usize = 2_000;
/// Lines of each outcome in a summary: it has room for a megabyte.
const MAX_LINES: usize = 200;

/// The annotations, one a line. `budget`: the file's path from the repository's root;
/// `fail_when_undecided`: what is undecided is an error, and not a warning.
pub fn render(judgement: &Judgement, budget: &str, fail_when_undecided: bool) -> String {
    let mut text = String::new();
    for line in &judgement.lines {
        let level = match line.outcome {
            LineOutcome::Broken => "error",
            LineOutcome::Undecided if fail_when_undecided => "error",
            LineOutcome::Undecided => "warning",
            LineOutcome::Allowed => "notice",
            LineOutcome::Held => continue,
        };
        let _ = writeln!(
            text,
            "::{level} file={},line={},title={}::{}",
            property(budget),
            line.line,
            property(&format!("whywait gate: {}", line.what)),
            data(&line.why)
        );
    }
    text
}

/// For a job's summary: whether the gate holds, and a table of the budget's lines, the broken ones
/// first. `budget`: the file's path.
pub fn summary(judgement: &Judgement, budget: &str) -> String {
    let mut text = match judgement.failed {
        true => "### ❌ whywait gate: failed\n\n".to_owned(),
        false => "### ✅ whywait gate: passed\n\n".to_owned(),
    };
    let runs = counted(judgement.runs, "run");
    let _ = writeln!(text, "{runs} against {}\n", markdown::text(budget));
    text.push_str("| | budget | measured | line |\n| --- | --- | --- | ---: |\n");
    for outcome in [
        LineOutcome::Broken,
        LineOutcome::Undecided,
        LineOutcome::Allowed,
        LineOutcome::Held,
    ] {
        for line in judgement.with(outcome).take(MAX_LINES) {
            let _ = writeln!(
                text,
                "| {} | {} | {} | {} |",
                name(outcome),
                markdown::text(&line.what),
                markdown::text(&line.why),
                line.line
            );
        }
    }
    text.push('\n');
    for note in &judgement.notes {
        let _ = writeln!(text, "- {}", markdown::text(note));
    }
    text
}

/// A command's text: control characters are escaped as on a terminal, so that no line is taken for
/// a command of its own.
fn data(raw: &str) -> String {
    escape(raw, Charset::Unicode, MAX_WIDTH).replace('%', "%25")
}

fn property(raw: &str) -> String {
    data(raw).replace(':', "%3A").replace(',', "%2C")
}
