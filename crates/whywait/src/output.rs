//! Where text goes, and what it may look like there.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, ErrorKind, IsTerminal, Write};
use std::os::unix::fs::fchown;
use std::path::Path;

use anyhow::{Context, bail};
use tempfile::TempDir;
use whywait_report::text::TextOptions;
use whywait_words::Charset;

use crate::closed;
use crate::errors::Usage;
use crate::user::Invoker;

/// Writes text to a file, or to standard output: see [`write_bytes`].
///
/// # Errors
/// Fails when the file or standard output cannot be written, or there is no standard output.
pub(crate) fn write(text: &str, file: Option<&Path>) -> anyhow::Result<()> {
    write_bytes(text.as_bytes(), file)
}

/// Writes a report to a file, or to standard output. A reader that closed the pipe has seen enough:
/// no error.
///
/// # Errors
/// Fails when the file or standard output cannot be written, or there is no standard output.
pub(crate) fn write_bytes(bytes: &[u8], file: Option<&Path>) -> anyhow::Result<()> {
    let Some(path) = file else {
        if closed::stdout() {
            bail!("standard output is closed: there is nowhere to write to");
        }
        let mut stdout = io::stdout().lock();
        return match stdout.write_all(bytes).and_then(|()| stdout.flush()) {
            Err(error) if error.kind() != ErrorKind::BrokenPipe => {
                Err(error).context("cannot write to standard output")
            }
            _ => Ok(()),
        };
    };
    let mut file = create(path).with_context(|| format!("cannot write {}", path.display()))?;
    file.write_all(bytes)
        .with_context(|| format!("cannot write {}", path.display()))
}

/// What is nothing to read does not go to a terminal.
///
/// # Errors
/// Fails when it would.
pub(crate) fn refuse_terminal(file: Option<&Path>) -> Result<(), Usage> {
    if file.is_none() && io::stdout().is_terminal() {
        return Err(Usage::new(
            "this format is nothing to read on a terminal",
            "write it to a file: -o FILE",
        ));
    }
    Ok(())
}

/// Under sudo a new file belongs to who called it. One that was there keeps its owner.
pub(crate) fn create(path: &Path) -> io::Result<File> {
    match File::create_new(path) {
        Ok(file) => {
            if let Some(user) = Invoker::from_env() {
                fchown(&file, Some(user.uid), Some(user.gid))?;
            }
            Ok(file)
        }
        Err(error) if error.kind() == ErrorKind::AlreadyExists => File::create(path),
        Err(error) => Err(error),
    }
}

/// A folder that is removed when dropped. Readable by its owner alone, as recordings are.
///
/// # Errors
/// Fails when no folder can be made where temporary files go.
pub(crate) fn temporary_folder() -> anyhow::Result<TempDir> {
    tempfile::Builder::new()
        .prefix("whywait-")
        .tempdir()
        .context(
            "cannot make a temporary folder: set TMPDIR to a folder that can be written, or use \
             --keep DIR",
        )
}

/// How text for standard output (or, when `to_file`, for a file) is to look.
pub(crate) fn text_options(to_file: bool) -> TextOptions {
    let stdout = io::stdout();
    let terminal = stdout.is_terminal() && !to_file;
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    let columns = set("COLUMNS")
        .and_then(|columns| columns.to_str()?.parse().ok())
        .filter(|columns| *columns > 0);
    let measured =
        || terminal_size::terminal_size_of(&stdout).map(|(width, _)| usize::from(width.0));
    let width = columns.or_else(|| if terminal { measured() } else { None });
    TextOptions {
        width: width.unwrap_or(TextOptions::DEFAULT_WIDTH).min(MAX_WIDTH),
        colour: terminal
            && set("NO_COLOR").is_none()
            && set("TERM").is_none_or(|term| term != "dumb"),
        charset: charset(
            ["LC_ALL", "LC_CTYPE", "LANG"]
                .into_iter()
                .find_map(set)
                .as_deref(),
        ),
    }
}

/// Longer lines than these are hard to read, however wide the terminal.
const MAX_WIDTH: usize = 160;

/// What a locale's terminal can show. Without a locale there is no promise beyond ASCII.
fn charset(locale: Option<&OsStr>) -> Charset {
    let locale = locale
        .unwrap_or_default()
        .to_string_lossy()
        .to_ascii_lowercase();
    if locale.contains("utf-8") || locale.contains("utf8") {
        Charset::Unicode
    } else {
        Charset::Ascii
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_utf_8_locales_get_more_than_ascii() {
        for (locale, expected) in [
            ("en_GB.UTF-8", Charset::Unicode),
            ("C.utf8", Charset::Unicode),
            ("C", Charset::Ascii),
            ("de_DE.ISO-8859-1", Charset::Ascii),
        ] {
            assert_eq!(charset(Some(OsStr::new(locale))), expected, "{locale}");
        }
        assert_eq!(charset(None), Charset::Ascii);
    }
}
