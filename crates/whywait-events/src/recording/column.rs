//! Typed column buffers: rows are put in on one side and encoded on the other, or decoded and
//! taken out.

use bytes::Bytes;
use parquet::basic::Type;
use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DataType, Int32Type, Int64Type};
use parquet::errors::{ParquetError, Result};
use parquet::file::writer::SerializedColumnWriter;

use super::MAX_TEXT;

/// How the values of a column are laid out, before zstd.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Layout {
    /// As they are.
    Plain,
    /// Differences, packed to the bits they need: times, durations and counts.
    Delta,
    /// The same, and each row group says the smallest and the greatest value, to be skipped without
    /// decoding.
    DeltaBounds,
    /// Numbers of entries in a dictionary: ids and names.
    Dictionary,
}

/// What is known of a column from its type alone.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Kind {
    pub(crate) physical: Type,
    pub(crate) nullable: bool,
}

/// The buffers of a field: as a rule those of one column.
pub(crate) trait Slot: Default {
    /// Of each of its columns.
    const KINDS: &'static [Kind];

    /// Calls `visit` with each of its columns.
    fn each(&mut self, visit: &mut dyn FnMut(&mut dyn AnyColumn) -> Result<()>) -> Result<()>;
}

/// A column whose type does not matter to the one who moves it.
pub trait AnyColumn {
    /// Encodes all rows.
    fn encode(&self, writer: &mut SerializedColumnWriter<'_>) -> Result<()>;
    /// Drops all rows.
    fn clear(&mut self);
    /// Takes rows from this reader from now on; `None`: the file has no such column, all its values
    /// are NULL.
    fn attach(&mut self, reader: Option<ColumnReader>) -> Result<()>;
    /// Replaces the buffer by the next `rows` rows.
    fn fill(&mut self, rows: usize) -> Result<()>;
}

/// A column without NULLs.
pub(crate) struct Required<D: DataType> {
    values: Vec<D::T>,
    next: usize,
    reader: Option<ColumnReaderImpl<D>>,
}

/// A column that may hold NULLs.
pub(crate) struct Nullable<D: DataType> {
    values: Vec<D::T>,
    /// One a row: 1 for a value, 0 for NULL (Parquet's definition levels).
    levels: Vec<i16>,
    next: usize,
    next_level: usize,
    reader: Option<ColumnReaderImpl<D>>,
}

impl<D: DataType> Default for Required<D> {
    fn default() -> Self {
        Self {
            values: Vec::new(),
            next: 0,
            reader: None,
        }
    }
}

impl<D: DataType> Default for Nullable<D> {
    fn default() -> Self {
        Self {
            values: Vec::new(),
            levels: Vec::new(),
            next: 0,
            next_level: 0,
            reader: None,
        }
    }
}

impl<D: DataType> Required<D> {
    pub(crate) fn put(&mut self, value: D::T) {
        self.values.push(value);
    }

    /// The next value; the type's zero beyond the end, which `fill` makes sure is never reached.
    pub(crate) fn take(&mut self) -> D::T {
        let value = self
            .values
            .get_mut(self.next)
            .map(std::mem::take)
            .unwrap_or_default();
        self.next += 1;
        value
    }
}

impl<D: DataType> Nullable<D> {
    pub(crate) fn put(&mut self, value: Option<D::T>) {
        self.levels.push(i16::from(value.is_some()));
        self.values.extend(value);
    }

    pub(crate) fn take(&mut self) -> Option<D::T> {
        let present = self
            .levels
            .get(self.next_level)
            .is_some_and(|level| *level != 0);
        self.next_level += 1;
        if !present {
            return None;
        }
        let value = self.values.get_mut(self.next).map(std::mem::take);
        self.next += 1;
        value
    }
}

/// A text as a column holds it, cut at [`MAX_TEXT`].
pub(crate) fn text(text: &str) -> ByteArray {
    let mut end = text.len().min(MAX_TEXT);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    ByteArray::from(&text[..end])
}

/// A name that the program knows, as a column holds it: no allocation.
pub(crate) fn static_text(text: &'static str) -> ByteArray {
    ByteArray::from(Bytes::from_static(text.as_bytes()))
}

/// Looks at a text. `None` when it is not UTF-8 or longer than any that is written.
pub(crate) fn look_at_text<T>(value: &ByteArray, look: impl FnOnce(&str) -> T) -> Option<T> {
    // A forged dictionary may leave entries unset, at whose bytes it panics to look.
    if *value == ByteArray::new() {
        return None;
    }
    let value = value.data();
    if value.len() > MAX_TEXT {
        return None;
    }
    std::str::from_utf8(value).ok().map(look)
}

impl<D: PhysicalType> Slot for Required<D> {
    const KINDS: &'static [Kind] = &[Kind {
        physical: D::TYPE,
        nullable: false,
    }];

    fn each(&mut self, visit: &mut dyn FnMut(&mut dyn AnyColumn) -> Result<()>) -> Result<()> {
        visit(self)
    }
}

impl<D: PhysicalType> Slot for Nullable<D> {
    const KINDS: &'static [Kind] = &[Kind {
        physical: D::TYPE,
        nullable: true,
    }];

    fn each(&mut self, visit: &mut dyn FnMut(&mut dyn AnyColumn) -> Result<()>) -> Result<()> {
        visit(self)
    }
}

/// Several columns of the same type.
pub(crate) struct Many<S, const N: usize>(pub(crate) [S; N]);

impl<S: Default, const N: usize> Default for Many<S, N> {
    fn default() -> Self {
        Self(std::array::from_fn(|_| S::default()))
    }
}

impl<S: Slot, const N: usize> Slot for Many<S, N> {
    const KINDS: &'static [Kind] = &[S::KINDS[0]; N];

    fn each(&mut self, visit: &mut dyn FnMut(&mut dyn AnyColumn) -> Result<()>) -> Result<()> {
        self.0.iter_mut().try_for_each(|slot| slot.each(visit))
    }
}

impl<A: Slot, B: Slot> Slot for (A, B) {
    const KINDS: &'static [Kind] = &[A::KINDS[0], B::KINDS[0]];

    fn each(&mut self, visit: &mut dyn FnMut(&mut dyn AnyColumn) -> Result<()>) -> Result<()> {
        self.0.each(visit)?;
        self.1.each(visit)
    }
}

/// The physical type as a constant; the library has it as a function only.
pub(crate) trait PhysicalType: DataType {
    const TYPE: Type;
}

impl PhysicalType for BoolType {
    const TYPE: Type = Type::BOOLEAN;
}

impl PhysicalType for Int32Type {
    const TYPE: Type = Type::INT32;
}

impl PhysicalType for Int64Type {
    const TYPE: Type = Type::INT64;
}

impl PhysicalType for ByteArrayType {
    const TYPE: Type = Type::BYTE_ARRAY;
}

impl<D: DataType> AnyColumn for Required<D> {
    fn encode(&self, writer: &mut SerializedColumnWriter<'_>) -> Result<()> {
        writer
            .typed::<D>()
            .write_batch(&self.values, None, None)
            .map(drop)
    }

    fn clear(&mut self) {
        self.values.clear();
        self.next = 0;
    }

    fn attach(&mut self, reader: Option<ColumnReader>) -> Result<()> {
        self.reader = reader.and_then(D::get_column_reader);
        match self.reader {
            Some(_) => Ok(()),
            None => Err(ParquetError::General("a column is missing".to_owned())),
        }
    }

    fn fill(&mut self, rows: usize) -> Result<()> {
        self.clear();
        let read = match &mut self.reader {
            Some(reader) => reader.read_records(rows, None, None, &mut self.values)?.0,
            None => 0,
        };
        enough(read, rows)
    }
}

impl<D: DataType> AnyColumn for Nullable<D> {
    fn encode(&self, writer: &mut SerializedColumnWriter<'_>) -> Result<()> {
        writer
            .typed::<D>()
            .write_batch(&self.values, Some(&self.levels), None)
            .map(drop)
    }

    fn clear(&mut self) {
        self.values.clear();
        self.levels.clear();
        self.next = 0;
        self.next_level = 0;
    }

    fn attach(&mut self, reader: Option<ColumnReader>) -> Result<()> {
        self.reader = reader.and_then(D::get_column_reader);
        Ok(())
    }

    fn fill(&mut self, rows: usize) -> Result<()> {
        self.clear();
        let Some(reader) = &mut self.reader else {
            self.levels.resize(rows, 0);
            return Ok(());
        };
        let (read, _, _) =
            reader.read_records(rows, Some(&mut self.levels), None, &mut self.values)?;
        enough(read, rows)
    }
}

fn enough(read: usize, rows: usize) -> Result<()> {
    if read == rows {
        return Ok(());
    }
    Err(ParquetError::General(format!(
        "a column has {read} rows where {rows} were expected"
    )))
}
