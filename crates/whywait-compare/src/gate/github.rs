//! A judgement as GitHub's workflow commands: annotations at the budget's lines.

use std::fmt::Write as _;

use whywait_report::text::{Charset, escape};

use super::judge::{Judgement, Outcome};

/// A text of more columns is cut.
const MAX_WIDTH: usize = 2_000;

/// The annotations, one a line. `budget`: the file's path from the repository's root;
/// `fail_when_undecided`: what is undecided is an error, and not a warning.
pub fn render(judgement: &Judgement, budget: &str, fail_when_undecided: bool) -> String {
    let mut text = String::new();
    for line in &judgement.lines {
        let level = match line.outcome {
            Outcome::Broken => "error",
            Outcome::Undecided if fail_when_undecided => "error",
            Outcome::Undecided => "warning",
            Outcome::Allowed => "notice",
            Outcome::Held => continue,
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

/// A command's text: control characters are escaped as on a terminal, so that no line is taken for
/// a command of its own.
fn data(raw: &str) -> String {
    escape(raw, Charset::Unicode, MAX_WIDTH).replace('%', "%25")
}

fn property(raw: &str) -> String {
    data(raw).replace(':', "%3A").replace(',', "%2C")
}
