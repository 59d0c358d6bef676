//! Writing a recording.

use std::collections::{BTreeMap, VecDeque};
use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::process::geteuid;

use super::context::Context;
use super::error::WriteError;
use super::held::Held;
use super::hold;
use super::meta::{Meta, SegmentRange};
use super::table::{Record, Sink, Table};
use super::table_file::{Packing, SegmentPlace};
use super::{CUT_SHORT, META, OPEN_SUFFIX, SCHEMA, segment_name};
use crate::{Counter, Event, Writers};

/// The most rows of a segment, whatever is asked for: readers hold a bound too.
const MAX_SEGMENT_ROWS: usize = 1 << 22;

/// How a recording is cut into segments, and to whom it belongs.
#[derive(Debug, Clone)]
pub struct WriterOptions {
    /// A segment is closed at this many rows. Default 262,144: some 2 MB.
    pub rows_per_segment: usize,
    /// A flight recorder: keep this many closed segments (at least one) and delete older ones.
    /// `None`: keep all.
    pub keep: Option<usize>,
    /// User and group to whom folders and files are given; `None`: they stay with the writing
    /// process' user.
    pub owner: Option<(u32, u32)>,
    /// Default [`Packing::Pages`].
    pub packing: Packing,
}

impl Default for WriterOptions {
    fn default() -> Self {
        Self {
            rows_per_segment: 256 * 1024,
            keep: None,
            owner: None,
            packing: Packing::Pages,
        }
    }
}

impl WriterOptions {
    fn place<'a>(&self, segment: &'a Path) -> SegmentPlace<'a> {
        SegmentPlace {
            segment,
            owner: self.owner,
            packing: self.packing,
        }
    }
}

/// Writes a recording.
///
/// Up to 32 Ki rows of each table are held in memory. A segment counts once it is closed: a writer
/// that is killed, or dropped without [`Writer::finish`], loses the open one only. Nothing is
/// synced to the disk on purpose: waiting for the disk is what is being measured here, so a power
/// failure may cost more than the open segment.
///
/// After an error nothing more is recorded: each further [`Writer::write`] fails with
/// [`WriteError::Stopped`], while [`Writer::finish`] still writes `meta.json`.
pub struct Writer {
    dir: PathBuf,
    meta: Meta,
    options: WriterOptions,
    writers: Writers,
    /// The open segment's folder, once it has a row.
    open: Option<Held>,
    number: u64,
    segment_rows: usize,
    rows: u64,
    counters: BTreeMap<String, u64>,
    counters_changed: bool,
    kept: VecDeque<u64>,
    context: Option<Context>,
    /// The first error: nothing was written since.
    stopped: Option<String>,
    /// Locked while the recording grows.
    folder: Held,
}

impl Writer {
    /// Starts a recording in `dir`, which must not exist yet or be an empty folder of one's own.
    ///
    /// # Errors
    /// When there is something else ([`WriteError::is_taken`]): a recording is never overwritten.
    pub fn create(dir: &Path, meta: &Meta) -> Result<Self, WriteError> {
        Self::create_with(dir, meta, WriterOptions::default())
    }

    /// Like [`Writer::create`], with options.
    ///
    /// # Errors
    /// As [`Writer::create`].
    pub fn create_with(
        dir: &Path,
        meta: &Meta,
        mut options: WriterOptions,
    ) -> Result<Self, WriteError> {
        options.rows_per_segment = options.rows_per_segment.clamp(1, MAX_SEGMENT_ROWS);
        options.keep = options.keep.map(|keep| keep.max(1));
        let folder = claim(dir, options.owner)?;
        hold::hold(folder.folder());
        let meta = Meta {
            schema: SCHEMA,
            complete: false,
            segments: None,
            ..meta.clone()
        };
        meta.store(&folder.path(), options.owner)
            .map_err(|error| shown(error, &[&folder]))?;
        Ok(Self {
            dir: dir.to_path_buf(),
            meta,
            writers: Writers::default(),
            open: None,
            number: 1,
            segment_rows: 0,
            rows: 0,
            counters: BTreeMap::new(),
            counters_changed: false,
            kept: VecDeque::new(),
            context: options.keep.map(|_| Context::default()),
            options,
            stopped: None,
            folder,
        })
    }

    /// Records an event.
    ///
    /// # Errors
    /// When the filesystem refuses; see [`Writer`] for what happens then.
    pub fn write(&mut self, event: &Event) -> Result<(), WriteError> {
        self.guarded(|writer| {
            writer.begin_segment()?;
            if let Some(context) = &mut writer.context {
                for before in context.learn(event) {
                    writer.put(&before)?;
                }
            }
            writer.put(event)?;
            writer.rows += 1;
            if writer.segment_rows >= writer.options.rows_per_segment {
                writer.close_segment()
            } else {
                Ok(())
            }
        })
    }

    /// Sets a counter: its value since the recording began, not an increment.
    pub fn counter(&mut self, name: &str, value: u64) {
        self.counters_changed = true;
        match self.counters.get_mut(name) {
            Some(known) => *known = value,
            None => drop(self.counters.insert(name.to_owned(), value)),
        }
    }

    /// Closes the open segment. Does nothing while it has no rows.
    ///
    /// # Errors
    /// As [`Writer::write`].
    pub fn roll(&mut self) -> Result<(), WriteError> {
        self.guarded(|writer| {
            if writer.open.is_some() {
                writer.close_segment()
            } else {
                Ok(())
            }
        })
    }

    /// How many events were recorded.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Closes the last segment and marks the recording as complete. `meta` replaces what
    /// [`Writer::create`] was given.
    ///
    /// # Errors
    /// As [`Writer::write`]. After an earlier error it writes `meta` with `complete` false, a note,
    /// and fails.
    pub fn finish(mut self, meta: &Meta) -> Result<(), WriteError> {
        self.meta = Meta {
            schema: SCHEMA,
            complete: false,
            segments: None,
            ..meta.clone()
        };
        let closed = self.guarded(|writer| {
            // At least one segment, so that every table has a file.
            if writer.open.is_none() && (writer.counters_changed || writer.kept.is_empty()) {
                writer.begin_segment()?;
            }
            if writer.open.is_some() {
                writer.close_segment()
            } else {
                Ok(())
            }
        });
        if let Some((first, last)) = self.kept.front().copied().zip(self.kept.back().copied()) {
            self.meta.segments = Some(SegmentRange { first, last });
        }
        match &closed {
            Ok(()) => self.meta.complete = true,
            Err(error) => {
                let why = self.stopped.take().unwrap_or_else(|| error.to_string());
                let note = format!("{CUT_SHORT}{why}");
                if !self.meta.notes.contains(&note) {
                    self.meta.notes.push(note);
                }
            }
        }
        let stored = self.meta.store(&self.folder.path(), self.options.owner);
        closed.and(stored.map_err(|error| shown(error, &[&self.folder])))
    }

    /// Runs a step unless an earlier one failed. When it fails, gives up the open segment: its
    /// files cannot be completed, and on a full disk the space is needed for `meta.json`.
    pub(super) fn guarded(
        &mut self,
        step: impl FnOnce(&mut Self) -> Result<(), WriteError>,
    ) -> Result<(), WriteError> {
        if self.stopped.is_some() {
            return Err(WriteError::Stopped {
                path: self.dir.clone(),
            });
        }
        let result = step(self).map_err(|error| match &self.open {
            Some(open) => shown(error, &[open, &self.folder]),
            None => shown(error, &[&self.folder]),
        });
        if let Err(error) = &result {
            self.stopped = Some(error.to_string());
            self.writers.abandon();
            if self.open.take().is_some() {
                let _ = fs::remove_dir_all(self.folder.at(&self.open_name()));
            }
        }
        result
    }

    pub(super) fn begin_segment(&mut self) -> Result<(), WriteError> {
        if self.open.is_some() {
            return Ok(());
        }
        let open = self.folder.at(&self.open_name());
        let held = Held::make(&open, self.options.owner);
        self.open = Some(held.map_err(|error| WriteError::io(&open, error))?);
        self.segment_rows = 0;
        for event in self
            .context
            .as_mut()
            .map(Context::begin_segment)
            .unwrap_or_default()
        {
            self.put(&event)?;
        }
        // What is repeated does not fill the segment, or a target with many threads would get
        // nothing else.
        self.segment_rows = 0;
        Ok(())
    }

    /// What the open segment's folder is called.
    fn open_name(&self) -> String {
        segment_name(self.number) + OPEN_SUFFIX
    }

    pub(super) fn put(&mut self, record: &impl Record) -> Result<(), WriteError> {
        let Some(segment) = self.open.as_ref().map(Held::path) else {
            return Ok(());
        };
        let mut open = OpenSegment {
            writers: &mut self.writers,
            place: self.options.place(&segment),
            rows: 0,
        };
        let written = record.rows(&mut open);
        self.segment_rows += open.rows;
        written
    }

    fn close_segment(&mut self) -> Result<(), WriteError> {
        let Some(segment) = self.open.as_ref().map(Held::path) else {
            return Ok(());
        };
        let place = self.options.place(&segment);
        for (name, value) in &self.counters {
            let counter = Counter {
                name: name.clone(),
                value: *value,
            };
            Counter::writer(&mut self.writers).put(&counter, &place)?;
        }
        self.writers.close(&place)?;
        let closed = self.folder.at(&segment_name(self.number));
        fs::rename(self.folder.at(&self.open_name()), &closed)
            .map_err(|error| WriteError::io(&closed, error))?;
        self.open = None;
        self.counters_changed = false;
        self.kept.push_back(self.number);
        self.number += 1;
        while self.options.keep.is_some_and(|keep| self.kept.len() > keep) {
            if let Some(oldest) = self.kept.pop_front() {
                self.delete_segment(oldest)?;
            }
        }
        Ok(())
    }

    /// Deletes a closed segment. The rename comes first, so that a reader never sees half of it.
    fn delete_segment(&self, number: u64) -> Result<(), WriteError> {
        let path = self.folder.at(&segment_name(number));
        let doomed = self.folder.at(&(segment_name(number) + ".old"));
        fs::rename(&path, &doomed)
            .and_then(|()| fs::remove_dir_all(&doomed))
            .map_err(|error| WriteError::io(&path, error))
    }
}

/// Where rows go.
struct OpenSegment<'a> {
    writers: &'a mut Writers,
    place: SegmentPlace<'a>,
    /// Rows so far.
    rows: usize,
}

impl Sink for OpenSegment<'_> {
    type Error = WriteError;

    fn row<T: Table>(&mut self, row: &T) -> Result<(), WriteError> {
        self.rows += 1;
        T::writer(self.writers).put(row, &self.place)
    }
}

/// Makes `dir` ours, or says why it cannot be. An empty folder that is there already is taken if it
/// belongs to who writes, or to whom the recording is for, and no link leads to it: whoever made it
/// could read the recording, or have another folder given away.
fn claim(dir: &Path, owner: Option<(u32, u32)>) -> Result<Held, WriteError> {
    let io = |error| WriteError::io(dir, error);
    let path = || dir.to_path_buf();
    match Held::make(dir, owner) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => (),
        result => return result.map_err(io),
    }
    // "link/" is the folder that the link leads to; without what follows it is the link.
    let named: PathBuf = dir.components().collect();
    if fs::symlink_metadata(&named).map_err(io)?.is_symlink() {
        return Err(WriteError::Link { path: path() });
    }
    let held = Held::open(&named).map_err(|error| match error.kind() {
        io::ErrorKind::NotADirectory => WriteError::Occupied { path: path() },
        _ => io(error),
    })?;
    if fs::symlink_metadata(held.at(META)).is_ok() {
        return Err(WriteError::Exists { path: path() });
    }
    if fs::read_dir(held.path()).map_err(io)?.next().is_some() {
        return Err(WriteError::Occupied { path: path() });
    }
    let theirs = held.folder().metadata().map_err(io)?.uid();
    if theirs != geteuid().as_raw() && owner.is_none_or(|(uid, _)| uid != theirs) {
        return Err(WriteError::Foreign { path: path() });
    }
    // It was made for us, with whatever mode.
    held.folder()
        .set_permissions(fs::Permissions::from_mode(0o700))
        .and_then(|()| held.give(owner))
        .map_err(io)?;
    Ok(held)
}

/// An error with the path as people know it.
fn shown(mut error: WriteError, held: &[&Held]) -> WriteError {
    // The open segment lies in the recording's folder.
    for held in held {
        let path = error.path_mut();
        if let Some(shown) = held.shown(path) {
            *path = shown;
        }
    }
    error
}
