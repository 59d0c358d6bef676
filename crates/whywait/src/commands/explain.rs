//! `whywait explain`: what a finding means, like `rustc --explain`.

use anyhow::Context;
use whywait_findings::Code;
use whywait_report::text::prose;

use crate::args::ExplainArgs;
use crate::output;

pub(crate) fn run(args: &ExplainArgs) -> anyhow::Result<u8> {
    let text = match &args.code {
        None => list(),
        Some(name) => {
            let code = Code::from_name(name).context("the finding is not known")?;
            prose(code.explain(), output::text_options(false))
        }
    };
    output::write(&text, None)?;
    Ok(0)
}

/// One code a line, and nothing else: a list to pick from, by eye or by program.
fn list() -> String {
    Code::ALL.map(|code| format!("{}\n", code.name())).concat()
}
