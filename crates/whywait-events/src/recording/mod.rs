//! A recording: a folder of Parquet segments and `meta.json`, written while the target runs and
//! read as often as wanted.
//!
//! ```text
//! REC/meta.json                    what was recorded, where and how; `complete` comes at the end
//! REC/seg-000001/waits.parquet …   a closed segment, one file a table
//! REC/seg-000002.open/…            the open segment; the rename that drops `.open` is its commit
//! ```
//!
//! One file may stand for the folder: `packed.rs`.
//!
//! `docs/recording.md` describes the tables for those who read them with SQL. [`Writer`] writes,
//! [`Recording`] reads. Nothing here knows what tables there are: each is declared once, in the
//! folder `tables`.
//!
//! A recording may come from anywhere. Whatever bytes are in the folder, the reader neither panics
//! nor allocates out of proportion: `guard.rs` checks what the Parquet decoder would otherwise take
//! on trust.

mod column;
mod context;
mod copy;
#[cfg(test)]
mod documentation;
mod error;
mod events;
mod guard;
mod held;
mod hold;
#[cfg(test)]
mod made_up;
mod meta;
mod packed;
mod reader;
mod shield;
mod stacks;
mod table;
mod table_file;
#[cfg(test)]
mod tests;
mod thrift;
mod value;
mod writer;

pub use error::{CopyError, Damage, ReadError, WriteError};
pub use hold::is_growing;
pub use meta::{Host, Meta, ProgramCost, RecordedServer, RecordingOptions, SegmentRange};
pub use packed::is_recording;
pub use reader::{Recording, RingsAndSums};
pub use stacks::{FrameName, NamedFrame, Stacks};
pub use table_file::Packing;
pub use writer::{Writer, WriterOptions};

#[cfg(test)]
pub(crate) use column::Layout;
pub(crate) use column::{look_at_text, static_text};
pub(crate) use events::tables;
#[cfg(test)]
pub(crate) use made_up::MadeUp;
pub(crate) use table::{Record, Sink, Tables, table};
pub(crate) use table_file::{SegmentPlace, TableWriter};
pub(crate) use value::Single;

/// What the declarations of tables and their list use.
pub(crate) mod declaration {
    pub(crate) use std::ops::Range;

    pub(crate) use parquet::errors::Result;
    #[cfg(test)]
    pub(crate) use proptest::strategy::{BoxedStrategy, Just, Strategy, Union};

    pub(crate) use super::column::{AnyColumn, Layout, Slot};
    #[cfg(test)]
    pub(crate) use super::made_up::{MadeUp, with_field};
    pub(crate) use super::table::{Column, Field, Record, Row, Sink, Table, Whose, field, of, set};
    pub(crate) use super::table_file::{Reason, TableReader, TableWriter};
    pub(crate) use super::value::{Moment, Value};
    pub(crate) use crate::part::parts_columns;
    pub(crate) use crate::{Ns, StackId, Writers};
}

/// The version of the format. It goes up when an old reader would misread a new recording; new
/// tables and new nullable columns leave it as it is.
pub const SCHEMA: u32 = 2;

/// The longest text a recording holds, in bytes. Names beyond it (a C++ template can be) are cut.
pub(crate) const MAX_TEXT: usize = 32 * 1024;

/// The most rows that a reader accepts in one file. Constant columns cost next to nothing on disk,
/// so that without a bound a file of a few kilobytes could keep a reader busy for hours.
pub(crate) const MAX_FILE_ROWS: i64 = 1 << 24;

/// How the note begins that says why a recording was cut short.
pub const CUT_SHORT: &str = "the recording was cut short: ";

const META: &str = "meta.json";
const OPEN_SUFFIX: &str = ".open";

/// The name of a closed segment's folder.
fn segment_name(number: u64) -> String {
    format!("seg-{number:06}")
}

/// The inverse of [`segment_name`]; `None` for any other name.
fn segment_number(name: &str) -> Option<u64> {
    let digits = name.strip_prefix("seg-")?;
    let number = digits.parse().ok()?;
    (segment_name(number) == name).then_some(number)
}
