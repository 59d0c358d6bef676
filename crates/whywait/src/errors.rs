//! How whywait fails: one line that says what happened and what to do, and an exit code that means
//! something.

use whywait_words::{Charset, escape};

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue};
use thiserror::Error;

/// whywait failed.
pub(crate) const FAILED: u8 = 1;
/// The command line was wrong.
pub(crate) const USAGE: u8 = 2;
/// A finding at or above `--fail-on`.
pub(crate) const FOUND: u8 = 3;

/// The command line was wrong in a way that no single flag shows.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("{message}")]
pub(crate) struct Usage {
    /// What is wrong.
    pub(crate) message: String,
    /// What to type instead.
    pub(crate) hint: String,
}

impl Usage {
    pub(crate) fn new(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Usage {
            message: message.into(),
            hint: hint.into(),
        }
    }
}

impl From<whywait_target::Unresolved> for Usage {
    fn from(error: whywait_target::Unresolved) -> Self {
        Usage::new(error.message, error.hint)
    }
}

/// Something went wrong that was already reported where it happened: only the exit code is left to
/// pass on.
#[derive(Debug, Error)]
#[error("exit code {0}")]
pub(crate) struct Reported(pub(crate) u8);

/// Prints an error and gives the exit code for it.
pub(crate) fn report(error: &anyhow::Error) -> u8 {
    if let Some(usage) = error.downcast_ref::<Usage>() {
        return report_usage(&usage.message, &usage.hint);
    }
    if let Some(Reported(code)) = error.downcast_ref() {
        return *code;
    }
    complain(&with_causes(error));
    FAILED
}

/// An error with its causes. A cause that the error's own text ends with is not repeated.
pub(crate) fn with_causes(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain() {
        let cause = cause.to_string();
        if text.is_empty() {
            text = cause;
        } else if !text.ends_with(&cause) {
            let _ = write!(text, ": {cause}");
        }
    }
    text
}

/// One line that says what is wrong.
pub(crate) fn complain(text: &str) {
    eprintln_quietly(&format!("whywait: {}", line(text)));
}

/// Prints what clap has to say: help and version as they are, an error as one line and a hint.
pub(crate) fn report_clap(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() {
        // A reader that closed the pipe has seen what it wanted.
        let _ = error.print();
        return ExitCode::SUCCESS;
    }
    let text = error.to_string();
    let mut paragraphs = text
        .split("\n\n")
        .map(|text| text.split_whitespace().collect::<Vec<_>>().join(" "));
    let first = paragraphs.next().unwrap_or_default();
    let tip = paragraphs.find_map(|text| text.strip_prefix("tip: ").map(str::to_owned));
    let message = first.strip_prefix("error: ").unwrap_or(&first);
    let hint = forgotten_dashes(error)
        .or(tip)
        .unwrap_or_else(|| "whywait --help lists commands, options and examples".to_owned());
    ExitCode::from(report_usage(message, &hint))
}

/// A hint for `whywait redis-server`, where `whywait -- redis-server` was meant.
fn forgotten_dashes(error: &clap::Error) -> Option<String> {
    let kinds = [ContextKind::InvalidArg, ContextKind::InvalidSubcommand];
    let word = match kinds.into_iter().find_map(|kind| error.get(kind))? {
        ContextValue::String(word) if !word.starts_with('-') => word,
        _ => return None,
    };
    let first = std::env::args_os().nth(1)?;
    (first == OsStr::new(word)).then(|| {
        format!(
            "to watch a command put -- before it: whywait -- {word}; whywait --help lists \
             whywait's own commands"
        )
    })
}

fn report_usage(message: &str, hint: &str) -> u8 {
    eprintln_quietly(&format!(
        "whywait: {}\n  hint: {}",
        line(message),
        line(hint)
    ));
    USAGE
}

/// A panic is a fault of whywait. Its user gets one line to report, not a backtrace to wonder at.
pub(crate) fn install_panic_hook() {
    std::panic::set_hook(Box::new(|info| {
        let payload = info.payload();
        let message = payload.downcast_ref::<&str>().copied();
        let message = message
            .or_else(|| payload.downcast_ref::<String>().map(String::as_str))
            .unwrap_or("no message");
        let mut text = format!("whywait: internal error: {}", line(message));
        if let Some(place) = info.location() {
            let _ = write!(text, " ({}:{})", place.file(), place.line());
        }
        text.push_str("; this is a bug: please report it with the command that you ran");
        eprintln_quietly(&text);
        // Not left to unwinding: a thread that died must not leave the others waiting for it.
        std::process::exit(FAILED.into());
    }));
}

/// A line to standard error. Nobody may be there to read it, which is no reason to fail
/// (`eprintln!` would panic).
pub(crate) fn eprintln_quietly(text: &str) {
    use std::io::Write as _;
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// One line, and safe to print: errors carry paths and names from outside.
pub(crate) fn line(text: &str) -> String {
    const MAX_WIDTH: usize = 1_000;
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    escape(&text, Charset::Unicode, MAX_WIDTH)
}
