//! `whywait explain`: what a finding means, like `rustc --explain`.

use anyhow::Context;
use whywait_findings::Code;
use whywait_report::text::prose;

use crate::args::ExplainArgs;
use crate::output;

pub(crate) fn run(args: &ExplainArgs) -> anyhow::Result<u8> {
    let text = match &args.code {
        Some(name) => {
            let code = Code::from_name(name).context("the finding is not known")?;
            prose(&code.explain(), output::text_options(false))
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
        "{}\n`whywait explain CODE` says more.\n",
        lines.collect::<String>()
    )
}
