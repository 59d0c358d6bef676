//! `whywait explain`: what a finding means, like `rustc --explain`; and what a report rests on.

use whywait_findings::Code;
use whywait_report::text::{prose, words};

use crate::args::ExplainArgs;
use crate::output;

/// The topic that is no finding: what a report rests on, and what a recording may lack.
pub(crate) const COVERAGE: &str = "coverage";
/// The other one: what the parts of a request's time are.
pub(crate) const PARTS: &str = "parts";
const COVERAGE_PAGE: &str = include_str!("../../../../docs/coverage.md");

pub(crate) fn run(args: &ExplainArgs) -> anyhow::Result<u8> {
    let text = match &args.code {
        Some(name) => {
            let text = match Code::from_name(name) {
                Some(code) => code.explain(),
                // The parser lets nothing else pass but topics.
                None if name == PARTS => words::explained(),
                None => COVERAGE_PAGE.to_owned(),
            };
            prose(&text, output::text_options(false))
        }
        None if args.list => names(),
        None => prose(&meanings(), output::text_options(false)),
    };
    output::write(&text, None)?;
    Ok(0)
}

/// One code a line, and nothing else: for programs.
fn names() -> String {
    Code::all()
        .map(|code| format!("{}\n", code.name()))
        .collect()
}

/// All codes with what they mean, to pick from.
fn meanings() -> String {
    let lines = Code::all().map(|code| format!("- {}: {}\n", code.name(), code.meaning()));
    format!(
        "{}\n`whywait explain CODE` says more, `whywait explain {PARTS}` what the parts of a \
         request's time are, `whywait explain {COVERAGE}` what a report rests on.\n",
        lines.collect::<String>()
    )
}
