//! `whywait diff`: compares two sides.

use std::path::Path;

use whywait_compare::{ChangeOptions, Diff, Side, json, text};

use crate::args::{DiffArgs, DiffFormat};
use crate::commands::report::printable_json;
use crate::errors::eprintln_quietly;
use crate::output;

pub(crate) fn run(args: &DiffArgs) -> anyhow::Result<u8> {
    if args.format == DiffFormat::Html {
        output::refuse_terminal(args.output.as_ref())?;
    }
    let read = |path: &Path| Side::read(&[path.to_path_buf()], &mut progress);
    let (base, head) = (read(&args.base)?, read(&args.head)?);
    let options = ChangeOptions {
        alpha: args.alpha,
        min_effect: args.min_effect,
    };
    let diff = Diff::new(&base, &head, options);
    let text = match args.format {
        DiffFormat::Text => text::render(&diff, output::text_options(args.output.is_some())),
        DiffFormat::Json => printable_json(&json::to_json(&diff)?),
        DiffFormat::Html => whywait_view::diff(&diff),
    };
    output::write(&text, args.output.as_ref())?;
    Ok(0)
}

/// Long work shows that it goes on, to whoever looks.
pub(crate) fn progress(recording: &Path) {
    use std::io::IsTerminal as _;
    use whywait_words::{Charset, escape};
    if std::io::stderr().is_terminal() {
        let name = escape(&recording.to_string_lossy(), Charset::Unicode, 400);
        eprintln_quietly(&format!("whywait: reading {name}"));
    }
}
