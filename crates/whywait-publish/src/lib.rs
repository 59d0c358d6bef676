//! Publishes recordings: what many machines' recordings are asked about, as tables that any engine
//! reads which knows Parquet or JSON Lines.
//!
//! ```text
//! recording ─┬─ model, report ──> tables ──> a file a table and hour ──> place (a folder, S3)
//!            └─ samples
//! ```
//!
//! A published row needs nothing else to be understood: ids that are only good within a recording
//! are names here, moments are wall-clock time, and who recorded is in each row. The figures are
//! those of the recording's own report. Each table is declared once, in the folder `tables`; the
//! files, the JSON and the table's section of `docs/fleet.md` come from that.
//!
//! Files have names that depend on the recording alone, the same bytes each time, and appear whole
//! or not at all: publishing twice changes nothing, and neither do two at once. A recording's row
//! in `recordings` comes last: who sees it sees all the others.

#[cfg(test)]
mod documentation;
mod identity;
mod json;
mod parquet_file;
mod place;
mod table;
mod tables;
mod text;

use whywait_events::recording::{ReadError, Recording};
use whywait_model::Model;
use whywait_model::waits::WaitRow;
use whywait_report::Report;

pub use identity::{Identity, Labels};
#[cfg(feature = "s3")]
pub use place::S3Bucket;
pub use place::{Folder, Place, PlaceError};
pub use tables::{Selection, TABLES};

use table::{AnyTable, PublishedRow};

/// A recording with what was found out about it.
pub struct Source<'a> {
    /// The recording.
    pub recording: &'a Recording,
    /// Its model.
    pub model: &'a Model,
    /// Its report: whose figures are published.
    pub report: &'a Report,
    /// Its table of waits.
    pub waits: &'a [WaitRow],
    /// Who recorded, and what.
    pub identity: &'a Identity,
}

/// What was published of a recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Published {
    /// Files that hold it.
    pub files: u64,
    /// Of these: that were there already, byte by byte.
    pub unchanged: u64,
    /// Rows in them.
    pub rows: u64,
    /// Bytes of them.
    pub bytes: u64,
}

/// Why a recording was not published.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PublishError {
    /// The recording went away.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The place refused.
    #[error(transparent)]
    Place(#[from] PlaceError),
    /// The encoder refused: a bug of whywait.
    #[error("cannot encode the table {table}: {reason}; please report this")]
    Encode {
        /// Which table.
        table: &'static str,
        /// What the encoder said.
        reason: String,
    },
}

/// Publishes the tables of a recording as Parquet files.
///
/// # Errors
/// When the recording went away, or the place refuses. What was there is as it was.
pub fn publish(
    source: &Source<'_>,
    selection: &Selection,
    place: &dyn Place,
) -> Result<Published, PublishError> {
    let mut published = Published::default();
    each_table::<PublishError>(source, selection, &mut |table| {
        for hour in table.hours(source.identity) {
            let rows = table.rows_of(&hour);
            let bytes =
                parquet_file::encode(table, source.identity, rows.clone()).map_err(|error| {
                    PublishError::Encode {
                        table: table.name,
                        reason: error.to_string(),
                    }
                })?;
            published.files += 1;
            published.rows += rows.len() as u64;
            published.bytes += bytes.len() as u64;
            let path = source.identity.path(table.name, &hour.at);
            if !place.put(&path, bytes)? {
                published.unchanged += 1;
            }
        }
        Ok(())
    })?;
    Ok(published)
}

/// Writes the tables of a recording as JSON Lines: an object a row, which names its table.
///
/// # Errors
/// When the recording went away, or `line` fails.
pub fn json_lines<E: From<ReadError>>(
    source: &Source<'_>,
    selection: &Selection,
    line: &mut dyn FnMut(&str) -> Result<(), E>,
) -> Result<(), E> {
    each_table(source, selection, &mut |table| {
        json::lines(table, source.identity, line)
    })
}

/// Whether a place has a complete recording's row already, and so all of its rows.
///
/// # Errors
/// When the place cannot be asked.
pub fn is_published(identity: &Identity, place: &dyn Place) -> Result<bool, PlaceError> {
    place.has(&identity.path(tables::LAST, &identity.first_hour()))
}

/// Makes the chosen tables, one after the other: each can be large.
fn each_table<E: From<ReadError>>(
    source: &Source<'_>,
    selection: &Selection,
    visit: &mut dyn FnMut(&AnyTable) -> Result<(), E>,
) -> Result<(), E> {
    for table in TABLES.iter().filter(|table| selection.has(table.name)) {
        visit(&(table.make)(source)?)?;
    }
    Ok(())
}

/// Rows of one type, as any table's.
fn any<R: PublishedRow>(rows: Vec<R>) -> AnyTable {
    AnyTable::of(rows)
}
