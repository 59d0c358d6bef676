//! Who recorded what: the columns that all tables have, and the names of files.

use std::path::Path;

use whywait_compare::gate::Date;
use whywait_events::recording::{Meta, Recording};
use whywait_events::{Module, ModuleKind, Ns};
use whywait_words::program_name;

use crate::table::WallClock;
use crate::text::clean;

const HOUR_NS: u64 = 3_600_000_000_000;
/// A recording that is to begin and end on the hour does so to within this: it gets no files for
/// what is beyond.
const SLACK_NS: u64 = 10_000_000_000;

/// What the user says of a recording that it does not know itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Labels {
    /// The machine, if not by its host name.
    pub host: Option<String>,
    /// What runs there, if not by the program's name.
    pub service: Option<String>,
    /// Its version, if not by its build-id.
    pub release: Option<String>,
}

/// Who recorded what, and when.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    recording: String,
    host: String,
    service: String,
    release: String,
    build_id: Option<String>,
    program: String,
    started: WallClock,
    ended: Option<WallClock>,
    started_ns: Ns,
}

/// An hour, counted since 1970 UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Hour(u64);

impl Identity {
    /// Of a recording.
    pub fn of(recording: &Recording, labels: &Labels) -> Self {
        let meta = recording.meta();
        let program = program(meta);
        let mut build_id = None;
        // Without it the release is not known, which is said.
        let _ = recording.read::<Module>(None, &mut |module| {
            let named = Path::new(&module.path)
                .file_name()
                .and_then(|name| name.to_str());
            if module.kind == ModuleKind::Elf
                && !module.build_id.is_empty()
                && named == Some(program.as_str())
                && build_id.is_none()
            {
                build_id = Some(clean(&module.build_id));
            }
        });
        let or = |label: &Option<String>, default: &str| {
            let label = label.as_deref().unwrap_or(default);
            clean(label)
        };
        let started = WallClock(meta.started_wall_unix_ns);
        let host = or(&labels.host, &meta.host.hostname);
        Self {
            recording: id(meta),
            host: if host.is_empty() {
                "unknown".to_owned()
            } else {
                host
            },
            service: or(&labels.service, &program),
            release: or(&labels.release, build_id.as_deref().unwrap_or_default()),
            build_id,
            program,
            started,
            ended: meta.ended_ns.map(|ns| wall(meta, ns)),
            started_ns: meta.started_ns,
        }
    }

    /// Names the recording, among those of all machines.
    pub fn recording(&self) -> &str {
        &self.recording
    }

    /// The machine. Hostile, as all names are, but without control characters.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// What was watched.
    pub fn service(&self) -> &str {
        &self.service
    }

    /// Its version.
    pub fn release(&self) -> &str {
        &self.release
    }

    pub(crate) fn build_id(&self) -> Option<&str> {
        self.build_id.as_deref()
    }

    pub(crate) fn program(&self) -> &str {
        &self.program
    }

    pub(crate) fn started(&self) -> WallClock {
        self.started
    }

    pub(crate) fn ended(&self) -> Option<WallClock> {
        self.ended
    }

    /// A moment of the recording as wall-clock time. The clock's offset is taken as the recording
    /// began: what sets the clock later does not move the recording's moments.
    pub(crate) fn at(&self, ns: Ns) -> WallClock {
        let offset = i128::from(self.started.0) - i128::from(self.started_ns);
        let at = (i128::from(ns) + offset).clamp(0, i128::from(u64::MAX));
        WallClock(at as u64)
    }

    /// The wall clock less the monotonic one when the recording began, nanoseconds.
    pub(crate) fn clock_offset_ns(&self) -> i64 {
        let offset = i128::from(self.started.0) - i128::from(self.started_ns);
        i64::try_from(offset).unwrap_or(if offset < 0 { i64::MIN } else { i64::MAX })
    }

    /// The hour in which the recording began.
    pub(crate) fn first_hour(&self) -> Hour {
        Hour(self.started.0.saturating_add(SLACK_NS) / HOUR_NS)
    }

    /// The hour to which a moment counts: one of those in which the recording ran. Requests that
    /// were there before count to the first.
    pub(crate) fn hour(&self, at: WallClock) -> Hour {
        let last_ns = self.ended.map(|ended| ended.0.saturating_sub(SLACK_NS));
        let last = last_ns.map_or(u64::MAX, |ns| ns / HOUR_NS);
        let first = self.first_hour().0;
        Hour((at.0 / HOUR_NS).clamp(first, last.max(first)))
    }

    /// Where the rows of an hour are: `TABLE/date=…/host=…/HH-RECORDING.parquet`.
    pub(crate) fn path(&self, table: &str, hour: &Hour) -> String {
        let date = Date::of_unix(hour.0 * 3600);
        let host = file_name(&self.host);
        let hour = hour.0 % 24;
        let recording = &self.recording;
        format!("{table}/date={date}/host={host}/{hour:02}-{recording}.parquet")
    }
}

fn wall(meta: &Meta, ns: Ns) -> WallClock {
    let after = ns.saturating_sub(meta.started_ns);
    WallClock(meta.started_wall_unix_ns.saturating_add(after))
}

/// The program's name, without its arguments: they may hold what nobody else is to know.
fn program(meta: &Meta) -> String {
    match program_name(&meta.command) {
        "" => "unknown".to_owned(),
        name => name.chars().take(64).collect(),
    }
}

/// `20261125T070354Z-0123456789abcdef`: when it began, and a hash of what says which it is. Nothing
/// in it changes while the recording goes on.
fn id(meta: &Meta) -> String {
    let mut hash = Fnv::default();
    hash.add(&meta.started_wall_unix_ns.to_le_bytes());
    hash.add(&meta.started_ns.to_le_bytes());
    hash.add(&meta.pid.unwrap_or(0).to_le_bytes());
    for text in [&meta.host.hostname, &meta.host.kernel]
        .into_iter()
        .chain(&meta.command)
    {
        hash.add(text.as_bytes());
        hash.add(&[0]);
    }
    let seconds = meta.started_wall_unix_ns / 1_000_000_000;
    let Date { year, month, day } = Date::of_unix(seconds);
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    format!(
        "{year:04}{month:02}{day:02}T{hour:02}{minute:02}{second:02}Z-{:016x}",
        hash.0
    )
}

/// Fowler, Noll and Vo's hash, 1a, of 64 bits: it has to be the same in every version.
struct Fnv(u64);

impl Default for Fnv {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Fnv {
    fn add(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}

/// A moment as text, `2026-11-25T07:03:54.123456Z`.
pub(crate) fn iso(us: i64) -> String {
    let us = us.max(0) as u64;
    let (seconds, us) = (us / 1_000_000, us % 1_000_000);
    let date = Date::of_unix(seconds);
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    format!("{date}T{hour:02}:{minute:02}:{second:02}.{us:06}Z")
}

/// A name as part of a path that any system takes: other characters as `%` and their code, as Hive
/// has it.
fn file_name(name: &str) -> String {
    let mut file = String::new();
    for byte in name.bytes().take(200) {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' => {
                file.push(char::from(byte));
            }
            _ => file.push_str(&format!("%{byte:02X}")),
        }
    }
    file
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meta() -> Meta {
        Meta {
            started_wall_unix_ns: 1_767_225_599_500_000_000,
            started_ns: 1000,
            ended_ns: Some(2_000_000_000),
            command: vec!["/usr/sbin/nginx: master".to_owned()],
            ..Meta::default()
        }
    }

    #[test]
    fn a_program_is_named_without_its_arguments() {
        for (command, name) in [
            (
                vec!["/usr/bin/redis-server", "--requirepass", "x"],
                "redis-server",
            ),
            (vec!["nginx: master process /usr/sbin/nginx -c x"], "nginx"),
            (vec![], "unknown"),
        ] {
            let command = command.into_iter().map(str::to_owned).collect();
            assert_eq!(
                program(&Meta {
                    command,
                    ..Meta::default()
                }),
                name
            );
        }
    }

    #[test]
    fn an_id_stays_when_the_recording_ends() {
        let one = id(&meta());
        let ended = Meta {
            complete: true,
            ended_ns: Some(3_000_000_000),
            ..meta()
        };
        assert_eq!(one, id(&ended));
        assert!(one.starts_with("20251231T235959Z-"), "{one}");
        let other = Meta {
            pid: Some(7),
            ..meta()
        };
        assert_ne!(one, id(&other));
    }

    #[test]
    fn hosts_make_harmless_paths() {
        assert_eq!(file_name("web-1.example"), "web-1.example");
        assert_eq!(file_name("../a b"), "..%2Fa%20b");
    }

    #[test]
    fn moments_are_text_that_sorts() {
        assert_eq!(iso(1_767_225_599_500_000), "2025-12-31T23:59:59.500000Z");
    }
}
