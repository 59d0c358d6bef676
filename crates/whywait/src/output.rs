//! Where text goes, and what it may look like there.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, ErrorKind, IsTerminal, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, fchown};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use tempfile::TempDir;
use whywait_events::recording::is_growing;
use whywait_report::text::TextOptions;
use whywait_words::Charset;

use crate::closed;
use crate::errors::Usage;
use crate::user::Invoker;

/// A file that the user named, in the folder that had the name then: until the file is written,
/// which may be minutes later, whoever owns the folder around that one can have a link take its
/// place.
#[derive(Debug, Clone)]
pub(crate) struct Destination {
    name: PathBuf,
    folder: Option<Arc<OwnedFd>>,
}

impl Destination {
    pub(crate) fn new(name: PathBuf) -> Self {
        let folder = match name.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        // Writing will say what is wrong with it.
        let opened = rustix::fs::open(folder, flags, Mode::empty()).ok();
        // The name of a folder, not of a file in one.
        let of_folder = name.as_os_str().as_bytes().ends_with(b"/");
        let folder = opened.filter(|_| !of_folder).map(Arc::new);
        Self { name, folder }
    }

    /// As the user knows it.
    pub(crate) fn name(&self) -> &Path {
        &self.name
    }

    /// A path that leads there, in this process.
    fn path(&self) -> PathBuf {
        match (&self.folder, self.name.file_name()) {
            (Some(folder), Some(file)) => {
                PathBuf::from(format!("/proc/self/fd/{}", folder.as_raw_fd())).join(file)
            }
            _ => self.name.clone(),
        }
    }
}

/// Writes text to a file, or to standard output: see [`write_bytes`].
///
/// # Errors
/// Fails when the file or standard output cannot be written, or there is no standard output.
pub(crate) fn write(text: &str, file: Option<&Destination>) -> anyhow::Result<()> {
    write_bytes(text.as_bytes(), file)
}

/// Writes a report to a file, or to standard output. A reader that closed the pipe has seen enough:
/// no error.
///
/// # Errors
/// Fails when the file or standard output cannot be written, or there is no standard output.
pub(crate) fn write_bytes(bytes: &[u8], file: Option<&Destination>) -> anyhow::Result<()> {
    let Some(file) = file else {
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
    create(file)
        .and_then(|mut file| file.write_all(bytes))
        .with_context(|| format!("cannot write {}", file.name().display()))
}

/// What is nothing to read does not go to a terminal.
///
/// # Errors
/// Fails when it would.
pub(crate) fn refuse_terminal(file: Option<&Destination>) -> Result<(), Usage> {
    if file.is_none() && io::stdout().is_terminal() {
        return Err(Usage::new(
            "this format is nothing to read on a terminal",
            "write it to a file: -o FILE",
        ));
    }
    Ok(())
}

/// Makes or overwrites the file that the user named; not what a link of that name leads to, which
/// whoever owns the folder may have made. Only its owner can read a new one: reports have the
/// target's command line in them. Under sudo it belongs to who called it; one that was there keeps
/// its owner and mode.
///
/// # Errors
/// Fails when the file cannot be written, or is a link of somebody else than root, as `/dev/stdout`
/// is one.
pub(crate) fn create(file: &Destination) -> io::Result<File> {
    let path = &file.path();
    match new_file(path) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
        other => return other,
    }
    let links = match path.symlink_metadata()? {
        found if !found.is_symlink() => OFlags::NOFOLLOW,
        found if found.uid() == 0 => OFlags::empty(),
        _ => return Err(io::Error::other(LINK)),
    };
    let opened = File::options()
        .write(true)
        .truncate(true)
        .custom_flags(links.bits() as i32)
        .open(path);
    opened.map_err(|error| match error.raw_os_error() {
        // A link by now.
        Some(code) if code == Errno::LOOP.raw_os_error() => io::Error::other(LINK),
        _ => error,
    })
}

const LINK: &str = "it is a symbolic link: name the file that it leads to";

/// Writes a file whose name is whywait's choice, in the place of what has this name.
///
/// # Errors
/// Fails when the file cannot be written.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    replaced(path)?
        .write_all(bytes)
        .with_context(|| format!("cannot write {}", path.display()))
}

/// Makes such a file.
///
/// # Errors
/// Fails when it cannot be made.
pub(crate) fn replaced(path: &Path) -> anyhow::Result<File> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => new_file(path),
    }
    .with_context(|| format!("cannot write {}", path.display()))
}

/// The recording's name with something behind it: where what is made of it goes by default.
pub(crate) fn beside(recording: &Path, suffix: &str) -> PathBuf {
    // A name for `.`, and none of a slash at the end.
    let full = recording.canonicalize();
    let mut file = match recording.file_name() {
        Some(_) => recording.components().collect::<PathBuf>(),
        None => full.unwrap_or_else(|_| recording.to_owned()),
    }
    .into_os_string();
    file.push(suffix);
    file.into()
}

fn new_file(path: &Path) -> io::Result<File> {
    let file = File::options()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)?;
    if let Some(user) = Invoker::from_env() {
        fchown(&file, Some(user.uid), Some(user.gid))?;
    }
    Ok(file)
}

/// What the names of temporary recordings begin with.
const TEMPORARY: &str = "whywait-";
/// Once a recording has ended, its report takes no such time.
const LEFT_AFTER: Duration = Duration::from_secs(3600);

/// A folder that is removed when dropped. Readable by its owner alone, as recordings are.
///
/// # Errors
/// Fails when no folder can be made where temporary files go.
pub(crate) fn temporary_folder() -> anyhow::Result<TempDir> {
    remove_abandoned(&std::env::temp_dir());
    tempfile::Builder::new()
        .prefix(TEMPORARY)
        .tempdir()
        .context(
            "cannot make a temporary folder: set TMPDIR to a folder that can be written, or use \
             --keep DIR",
        )
}

/// Removes temporary recordings whose whywait was killed: nobody else does.
fn remove_abandoned(folder: &Path) {
    let own = rustix::process::geteuid().as_raw();
    let theirs = Invoker::from_env().map_or(own, |user| user.uid);
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    for path in entries.map(|entry| entry.path()) {
        let name = path.file_name().unwrap_or_default();
        let named = name.as_encoded_bytes().starts_with(TEMPORARY.as_bytes());
        let is_ours = || {
            path.symlink_metadata()
                .is_ok_and(|found| found.is_dir() && [own, theirs].contains(&found.uid()))
        };
        if named && is_ours() && was_left(&path) {
            let _ = fs::remove_dir_all(path);
        }
    }
}

/// Whether a recording was begun long ago, and neither grows nor is being read by its whywait.
fn was_left(recording: &Path) -> bool {
    let written = recording
        .join("meta.json")
        .symlink_metadata()
        .and_then(|meta| meta.modified());
    let since = written.ok().and_then(|written| written.elapsed().ok());
    since.is_some_and(|since| since > LEFT_AFTER) && !is_growing(recording)
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
        ends_with_answer: terminal,
        ..TextOptions::default()
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
    use std::time::SystemTime;

    use super::*;

    #[test]
    fn no_link_is_followed_and_nobody_else_reads_it() {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let [file, precious, link] = ["new", "precious", "link"].map(|name| dir.path().join(name));
        let write = |text, path: &Path| super::write(text, Some(&Destination::new(path.into())));
        write("report", &file).expect("it can be made");
        let mode = |path: &Path| path.metadata().expect("a file").mode() & 0o777;
        assert_eq!(mode(&file), 0o600);
        fs::write(&precious, "precious").expect("a file");
        std::os::unix::fs::symlink(&precious, &link).expect("a link");
        // Root's own links are followed: these are another user's.
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::lchown(&link, Some(1), Some(1)).expect("it is root's");
        }
        let error = write("report", &link).expect_err("a link");
        assert!(format!("{error:#}").contains(LINK), "{error:#}");
        // What is whywait's to name takes the link's place.
        replace(&link, b"page").expect("it can be made");
        assert_eq!(fs::read(&precious).expect("a file"), b"precious");
        assert_eq!(fs::read(&link).expect("a file"), b"page");
        assert_eq!(mode(&link), 0o600);
        // What was there is overwritten.
        write("re", &file).expect("it can be written");
        assert_eq!(fs::read(&file).expect("a file"), b"re");
        // A folder's name is none of a file in it.
        write("report", &dir.path().join("folder/")).expect_err("no file");
    }

    #[test]
    fn a_report_goes_to_the_folder_that_was_named() {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let [named, moved, other] = ["named", "moved", "other"].map(|name| dir.path().join(name));
        for folder in [&named, &other] {
            fs::create_dir(folder).expect("a folder");
        }
        let file = Destination::new(named.join("report"));
        fs::rename(&named, &moved).expect("it can be moved");
        std::os::unix::fs::symlink(&other, &named).expect("a link");
        write("report", Some(&file)).expect("it can be made");
        assert_eq!(fs::read(moved.join("report")).expect("a file"), b"report");
        assert_eq!(fs::read_dir(&other).expect("a folder").count(), 0);
    }

    #[test]
    fn temporary_recordings_that_were_left_are_removed() {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let hours = |hours: u64| SystemTime::now() - Duration::from_secs(hours * 3600);
        let recording = |name: &str, written| {
            let path = dir.path().join(name);
            fs::create_dir(&path).expect("a folder");
            let meta = File::create(path.join("meta.json")).expect("a file");
            meta.set_modified(written).expect("it is ours");
            path
        };
        let left = recording("whywait-left", hours(2));
        let mine = recording("mine", hours(2));
        let new = recording("whywait-new", hours(0));
        let other = dir.path().join("whywait-other");
        fs::create_dir(&other).expect("a folder");
        remove_abandoned(dir.path());
        assert!(!left.exists());
        assert!(mine.exists() && new.exists() && other.exists());
    }

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
