//! Writing a recording again, for an archive.

use super::error::{CopyError, WriteError};
use super::reader::Recording;
use super::table::{Table, Tables};
use super::writer::Writer;
use crate::{Counter, each_table};

impl Writer {
    /// Writes what a recording has into the open segment, whatever segments that one has. It reads
    /// the same: the rows of each table in their order, the counters' last values.
    ///
    /// # Errors
    /// When a part of the recording cannot be read, or as [`Writer::write`].
    pub fn copy(&mut self, recording: &Recording) -> Result<(), CopyError> {
        self.guarded(Self::begin_segment)?;
        let mut copying = Copying {
            from: recording,
            to: self,
            done: Ok(()),
        };
        each_table(&mut copying);
        copying.done?;
        for (name, value) in recording.counters()? {
            self.counter(&name, value);
        }
        match recording.damaged().into_iter().next() {
            Some(damage) => Err(CopyError::Damaged(damage)),
            None => Ok(()),
        }
    }
}

struct Copying<'a> {
    from: &'a Recording,
    to: &'a mut Writer,
    done: Result<(), CopyError>,
}

impl Copying<'_> {
    fn rows<T: Table>(&mut self) -> Result<(), CopyError> {
        let (to, mut written) = (&mut *self.to, Ok::<_, WriteError>(()));
        self.from.read::<T>(None, &mut |row| {
            if written.is_ok() {
                written = to.guarded(|writer| writer.put(row));
            }
        })?;
        Ok(written?)
    }
}

impl Tables for Copying<'_> {
    fn table<T: Table>(&mut self) {
        // The writer adds counters when the segment is closed.
        if self.done.is_ok() && T::NAME != Counter::NAME {
            self.done = self.rows::<T>();
        }
    }
}
