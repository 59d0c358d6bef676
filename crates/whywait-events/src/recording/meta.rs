//! `meta.json`: what was recorded, where and how.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read, Write as _};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};

use super::error::{ReadError, WriteError};
use super::table_file::create_private;
use super::{META, SCHEMA};
use crate::Ns;

/// A `meta.json` beyond this is not ours: a command line is at most 2 MiB on Linux, and escapes
/// make it longer.
const MAX_META_BYTES: u64 = 16 << 20;

/// So much longer is the file while the recording goes on: it can be written again, with what is
/// known then, where the disk is full.
const SPARE_BYTES: usize = 2048;

/// What was recorded, where and how.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Meta {
    /// The version of the format. The writer sets it.
    pub schema: u32,
    /// The version of whywait that recorded.
    pub whywait: String,
    /// Whether the recording ended in order. The writer sets it, at the very end.
    pub complete: bool,
    /// Wall-clock time at `started_ns`, nanoseconds since 1970 (UTC).
    pub started_wall_unix_ns: u64,
    /// When the recording started.
    pub started_ns: Ns,
    /// When it ended; `None` while it runs or when it was cut off.
    pub ended_ns: Option<Ns>,
    /// The machine.
    pub host: Host,
    /// The command that was launched, or the watched process' command line.
    pub command: Vec<String>,
    /// The watched process, or the one that stands for all.
    pub pid: Option<u32>,
    /// Its number in its own PID namespace, where that is another one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inner_pid: Option<u32>,
    /// How the target was named, and what that came to; empty where it was named by its number.
    pub target: String,
    /// The servers that it has, if they are to be told apart. Their requests are counted apart,
    /// too: `server.1.requests.count` is of the first.
    pub servers: Vec<RecordedServer>,
    /// How it was recorded.
    pub options: RecordingOptions,
    /// By which of the kernel's means: `tracepoints`; `fexit` where it lacks those of sockets;
    /// `threads only` where it has neither, so that no request was seen. Empty: recorded before
    /// whywait said so, by the first or the last.
    pub tier: String,
    /// What each BPF program cost, by name, when it was measured.
    pub cost: BTreeMap<String, ProgramCost>,
    /// Exit status of the launched command, as a shell shows it (128 + signal when it was killed).
    pub exit_status: Option<i32>,
    /// What a reader of the recording should know, such as a feature that the kernel lacks.
    pub notes: Vec<String>,
    /// The segments that a complete recording has. The writer sets it, so that a reader can say
    /// which are gone.
    pub segments: Option<SegmentRange>,
}

/// One of several servers that were recorded together.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct RecordedServer {
    /// The process that stands for it.
    pub pid: u32,
    /// Its number in its own PID namespace, where that is another one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inner_pid: Option<u32>,
    /// Its command line.
    pub command: Vec<String>,
    /// The TCP ports on which it listens.
    pub ports: Vec<u16>,
    /// Its processes when the recording began. Those that they made later are in `threads`.
    pub processes: Vec<u32>,
}

/// The machine on which a recording was made.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Host {
    /// Host name.
    pub hostname: String,
    /// Kernel release, as `uname -r` says it.
    pub kernel: String,
    /// Architecture, as `uname -m` says it.
    pub arch: String,
    /// Online CPUs.
    pub cpus: u32,
    /// Memory, bytes.
    pub memory_bytes: u64,
}

/// How a recording was made.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct RecordingOptions {
    /// Sleeps, busy intervals and requests below this were only counted, nanoseconds.
    pub threshold_ns: u64,
    /// How much of a stack was copied to unwind it, bytes.
    pub stack_bytes: u32,
    /// Samples a second and CPU.
    pub sample_hz: u32,
    /// Level of detail, as given on the command line.
    pub detail: String,
}

/// What a BPF program cost, as the kernel's run-time statistics say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ProgramCost {
    /// Nanoseconds it ran.
    pub run_ns: u64,
    /// How often it ran.
    pub runs: u64,
}

/// The numbers of the first and the last segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct SegmentRange {
    /// Of the oldest segment that was kept.
    pub first: u64,
    /// Of the newest one.
    pub last: u64,
}

impl Meta {
    /// Writes `meta.json` so that a reader sees either the old one or the new one.
    pub(crate) fn store(&self, dir: &Path, owner: Option<(u32, u32)>) -> Result<(), WriteError> {
        let path = dir.join(META);
        let temporary = dir.join("meta.json.new");
        let mut text = serde_json::to_string_pretty(self).map_err(|error| WriteError::Encode {
            path: path.clone(),
            reason: error.to_string(),
        })?;
        if !self.complete {
            text.push_str(&" ".repeat(SPARE_BYTES));
        }
        text.push('\n');
        // Left over from a write that failed.
        let _ = fs::remove_file(&temporary);
        let result = create_private(&temporary, owner)
            .and_then(|mut file| file.write_all(text.as_bytes()))
            .and_then(|()| fs::rename(&temporary, &path));
        let Err(error) = result else { return Ok(()) };
        let _ = fs::remove_file(&temporary);
        match WriteError::io(&path, error) {
            // What is there is overwritten, which takes no space.
            WriteError::DiskFull { .. } if overwrite(&path, text.trim_end()).is_ok() => Ok(()),
            error => Err(error),
        }
    }

    pub(crate) fn load(dir: &Path) -> Result<Self, ReadError> {
        let path = dir.join(META);
        let foreign = |reason: &str| ReadError::ForeignMeta {
            path: path.clone(),
            reason: reason.to_owned(),
        };
        let io = |source| ReadError::Io {
            path: path.clone(),
            source,
        };
        match fs::symlink_metadata(&path) {
            Ok(found) if found.is_file() && found.len() <= MAX_META_BYTES => (),
            Ok(found) if found.is_file() => {
                return Err(foreign("meta.json is too large to be whywait's"));
            }
            Ok(_) => return Err(foreign("meta.json is not a regular file")),
            Err(error) if is_absent(&error) => {
                return Err(ReadError::NotARecording {
                    path: dir.to_path_buf(),
                });
            }
            Err(error) => return Err(io(error)),
        }
        let mut text = Vec::new();
        fs::File::open(&path)
            .and_then(|file| file.take(MAX_META_BYTES).read_to_end(&mut text))
            .map_err(io)?;
        if text.is_empty() {
            return Err(foreign(
                "meta.json is empty; the recording was cut off as it began",
            ));
        }
        let value: serde_json::Value = serde_json::from_slice(&text)
            .map_err(|error| foreign(&format!("meta.json is damaged or foreign ({error})")))?;
        // The schema is looked at before the rest: a newer one may have changed the rest.
        let schema = value.get("schema").and_then(serde_json::Value::as_u64);
        let (Some(schema), Some(_)) = (
            schema,
            value.get("whywait").and_then(serde_json::Value::as_str),
        ) else {
            return Err(foreign(
                "meta.json has no whywait version and schema, so it belongs to another program",
            ));
        };
        if schema > u64::from(SCHEMA) {
            return Err(ReadError::Newer {
                path: dir.to_path_buf(),
                schema,
                supported: SCHEMA,
            });
        }
        serde_json::from_value(value)
            .map_err(|error| foreign(&format!("meta.json is damaged ({error})")))
    }
}

/// Writes over a file that is there and is not shorter.
fn overwrite(path: &Path, text: &str) -> io::Result<()> {
    let file = fs::OpenOptions::new()
        .write(true)
        .custom_flags(OFlags::NOFOLLOW.bits() as i32)
        .open(path)?;
    if file.metadata()?.len() < text.len() as u64 {
        return Err(io::ErrorKind::StorageFull.into());
    }
    file.write_all_at(text.as_bytes(), 0)?;
    file.set_len(text.len() as u64)
}

fn is_absent(error: &std::io::Error) -> bool {
    matches!(
        error.kind(),
        std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory
    )
}
