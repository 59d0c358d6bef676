//! The view of a gate for people: whether it holds in its first line, then the broken lines, then
//! the others.

use whywait_report::text::{self, Page, Style, TextOptions};
use whywait_words::counted;

use super::judge::{GateLine, Judgement, LineOutcome};

/// A judgement as text. `budget`: the file's name.
pub fn render(judgement: &Judgement, budget: &str, options: TextOptions) -> String {
    let mut page = text::page(options);
    let count = |outcome| judgement.with(outcome).count();
    let (broken, undecided) = (count(LineOutcome::Broken), count(LineOutcome::Undecided));
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
        LineOutcome::Broken,
        LineOutcome::Undecided,
        LineOutcome::Allowed,
        LineOutcome::Held,
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

fn show(page: &mut Page, budget: &str, line: &GateLine) {
    let style = match line.outcome {
        LineOutcome::Broken => Style::Error,
        LineOutcome::Undecided => Style::Warning,
        LineOutcome::Allowed => Style::Note,
        LineOutcome::Held => Style::Good,
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
pub(crate) fn name(outcome: LineOutcome) -> &'static str {
    match outcome {
        LineOutcome::Held => "held",
        LineOutcome::Broken => "broken",
        LineOutcome::Allowed => "allowed",
        LineOutcome::Undecided => "undecided",
    }
}
