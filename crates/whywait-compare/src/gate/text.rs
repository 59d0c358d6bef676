//! The view of a gate for people: whether it holds in its first line, then the broken lines, then
//! the others.

use whywait_report::text::{self, Page, Style, TextOptions};
use whywait_words::counted;

use super::judge::{Judgement, Line, Outcome};

/// A judgement as text. `budget`: the file's name.
pub fn render(judgement: &Judgement, budget: &str, options: TextOptions) -> String {
    let mut page = text::page(options);
    let count = |outcome| judgement.with(outcome).count();
    let (broken, undecided) = (count(Outcome::Broken), count(Outcome::Undecided));
    let (style, verdict) = if judgement.failed {
        (Style::Error, "gate: failed")
    } else {
        (Style::Good, "gate: passed")
    };
    let runs = counted(judgement.runs, "run");
    let mut rest = format!(", {runs}, {} lines, {broken} broken", judgement.lines.len());
    if undecided > 0 {
        rest = format!("{rest}, {undecided} undecided");
    }
    page.paragraph("", "  ", &[(style, verdict), (Style::Plain, &rest)]);
    for outcome in [
        Outcome::Broken,
        Outcome::Undecided,
        Outcome::Allowed,
        Outcome::Held,
    ] {
        for line in judgement.with(outcome) {
            show(&mut page, budget, line);
        }
    }
    for note in &judgement.notes {
        page.paragraph("", "  ", &[(Style::Strong, "note: "), (Style::Plain, note)]);
    }
    page.into_text()
}

fn show(page: &mut Page, budget: &str, line: &Line) {
    let style = match line.outcome {
        Outcome::Broken => Style::Error,
        Outcome::Undecided => Style::Warning,
        Outcome::Allowed => Style::Note,
        Outcome::Held => Style::Good,
    };
    let place = format!("  ({budget}:{})", line.line);
    page.paragraph(
        "  ",
        "      ",
        &[
            (style, name(line.outcome)),
            (Style::Plain, "  "),
            (Style::Strong, &line.what),
            (Style::Plain, ": "),
            (Style::Plain, &line.why),
            (Style::Dim, &place),
        ],
    );
}

/// An outcome in a word.
pub(crate) fn name(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Held => "held",
        Outcome::Broken => "broken",
        Outcome::Allowed => "allowed",
        Outcome::Undecided => "undecided",
    }
}
