//! One table's file of one segment: writing it row group by row group, and reading it batch by
//! batch.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Cursor};
use std::ops::Range;
use std::os::unix::fs::{FileExt, OpenOptionsExt, fchown};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use parquet::basic::{Compression, Encoding, LogicalType, Repetition, Type as Physical, ZstdLevel};
use parquet::column::reader::get_column_reader;
use parquet::errors::{ParquetError, Result};
use parquet::file::metadata::{ParquetMetaData, ParquetMetaDataReader, RowGroupMetaData};
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::reader::{ChunkReader, Length};
use parquet::file::serialized_reader::SerializedPageReader;
use parquet::file::statistics::Statistics;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::{ColumnPath, Type, TypePtr};

use super::MAX_FILE_ROWS;
use super::column::Layout;
use super::error::WriteError;
use super::guard::{MAX_FOOTER_BYTES, check_footer, check_pages};
use super::shield::quietly;
use super::table::{Spec, Table, specs};
use crate::Ns;

/// Rows of a row group: what the writer holds in memory and a reader skips at once.
pub(crate) const GROUP_ROWS: usize = 32 * 1024;

/// A file of fewer rows is small anyway, and is not compressed: zstd is set up anew for each column
/// of each file, which alongside a server that is busy and sound was a fifth of what whywait's own
/// thread did.
const FEW_ROWS: usize = 128;

/// Text of a row group: names may be long, and each column is one page, which a reader bounds.
const GROUP_TEXT_BYTES: usize = 2 << 20;

/// Rows decoded at once: the columns of a batch stay in the second-level cache.
const BATCH_ROWS: usize = 4 * 1024;

/// The writer's row groups have 32 Ki rows or 2 MiB of text: no column of theirs comes near this.
const MAX_CHUNK_BYTES: u64 = 16 << 20;

/// For what a recording's files are made small.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Packing {
    /// To be kept as they are: each page is packed, and compressed where it has many rows.
    Pages,
    /// To be compressed as a whole: nothing is compressed, and a number's bytes lie apart, the
    /// highest ones of all rows first. Differences that are packed to bits look like noise to what
    /// compresses them; so laid out, they take a ninth less.
    Whole,
}

/// Creates a file that only its owner can read; never one that is there already, nor through a
/// symbolic link.
pub(crate) fn create_private(path: &Path, owner: Option<(u32, u32)>) -> io::Result<File> {
    let file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)?;
    if let Some((uid, gid)) = owner {
        fchown(&file, Some(uid), Some(gid))?;
    }
    Ok(file)
}

/// The file of a table in a segment's folder.
pub(crate) fn table_path<T: Table>(segment: &Path) -> PathBuf {
    segment.join(format!("{}.parquet", T::NAME))
}

/// Collects rows of a table and writes them to the open segment.
pub struct TableWriter<T: Table> {
    columns: T::Columns,
    buffered: usize,
    buffered_text: usize,
    file: Option<SerializedFileWriter<File>>,
    schema: TypePtr,
}

impl<T: Table> Default for TableWriter<T> {
    fn default() -> Self {
        let specs = &specs::<T>();
        Self {
            columns: T::Columns::default(),
            buffered: 0,
            buffered_text: 0,
            file: None,
            schema: schema(T::NAME, specs),
        }
    }
}

impl<T: Table> TableWriter<T> {
    pub(crate) fn put(
        &mut self,
        row: &T,
        place: &SegmentPlace<'_>,
    ) -> std::result::Result<(), WriteError> {
        row.put(&mut self.columns);
        self.buffered += 1;
        self.buffered_text += row.text_bytes();
        if self.buffered < GROUP_ROWS && self.buffered_text < GROUP_TEXT_BYTES {
            return Ok(());
        }
        self.flush(place)
    }

    /// Writes what is buffered and ends the file. It is written even without rows, so that a file
    /// which is missing was lost, and `seg-*/TABLE.parquet` always matches.
    pub(crate) fn close(
        &mut self,
        place: &SegmentPlace<'_>,
    ) -> std::result::Result<(), WriteError> {
        self.flush(place)?;
        let Some(file) = self.file.take() else {
            return Ok(());
        };
        file.close()
            .map(drop)
            .map_err(|error| WriteError::parquet(&table_path::<T>(place.segment), error))
    }

    /// Drops what is buffered and what is open.
    pub(crate) fn abandon(&mut self) {
        self.file = None;
        let _ = T::each(&mut self.columns, &mut |column| {
            column.clear();
            Ok(())
        });
        self.buffered = 0;
        self.buffered_text = 0;
    }

    fn flush(&mut self, place: &SegmentPlace<'_>) -> std::result::Result<(), WriteError> {
        let path = table_path::<T>(place.segment);
        if self.file.is_none() {
            let file =
                create_private(&path, place.owner).map_err(|error| WriteError::io(&path, error))?;
            // Where more row groups follow, this one is full.
            let few = self.buffered < FEW_ROWS;
            let properties = Arc::new(properties(&specs::<T>(), place.packing, few));
            let writer = SerializedFileWriter::new(file, self.schema.clone(), properties);
            self.file = Some(writer.map_err(|error| WriteError::parquet(&path, error))?);
        }
        if let Some(file) = &mut self.file
            && self.buffered > 0
        {
            encode::<T>(&mut self.columns, file)
                .map_err(|error| WriteError::parquet(&path, error))?;
        }
        self.buffered = 0;
        self.buffered_text = 0;
        Ok(())
    }
}

/// Where the open segment is, whose, and how its files are written.
pub(crate) struct SegmentPlace<'a> {
    pub(crate) segment: &'a Path,
    pub(crate) owner: Option<(u32, u32)>,
    pub(crate) packing: Packing,
}

fn encode<T: Table>(columns: &mut T::Columns, file: &mut SerializedFileWriter<File>) -> Result<()> {
    let mut group = file.next_row_group()?;
    T::each(columns, &mut |column| {
        let Some(mut writer) = group.next_column()? else {
            return Err(ParquetError::General(
                "the schema has too few columns".to_owned(),
            ));
        };
        column.encode(&mut writer)?;
        column.clear();
        writer.close()
    })?;
    group.close().map(drop)
}

fn schema(name: &str, specs: &[Spec]) -> TypePtr {
    let fields = specs.iter().map(|spec| {
        let repetition = if spec.kind.nullable {
            Repetition::OPTIONAL
        } else {
            Repetition::REQUIRED
        };
        let text = (spec.kind.physical == Physical::BYTE_ARRAY).then_some(LogicalType::String);
        let builder = Type::primitive_type_builder(spec.name, spec.kind.physical)
            .with_repetition(repetition)
            .with_logical_type(text);
        Arc::new(builder.build().expect("a column as declared is valid"))
    });
    let group = Type::group_type_builder(name).with_fields(fields.collect());
    Arc::new(group.build().expect("a table as declared is valid"))
}

fn zstd() -> Compression {
    Compression::ZSTD(ZstdLevel::try_new(1).expect("zstd has a level 1"))
}

fn properties(specs: &[Spec], packing: Packing, few: bool) -> WriterProperties {
    let compression = match packing {
        Packing::Pages if !few => zstd(),
        Packing::Pages | Packing::Whole => Compression::UNCOMPRESSED,
    };
    let mut builder = WriterProperties::builder()
        .set_created_by(concat!("whywait ", env!("CARGO_PKG_VERSION")).to_owned())
        .set_compression(compression)
        .set_statistics_enabled(EnabledStatistics::None)
        .set_offset_index_disabled(true)
        .set_data_page_row_count_limit(GROUP_ROWS)
        .set_dictionary_enabled(false)
        // A row group is handed over whole, in one call a column.
        .set_write_batch_size(GROUP_ROWS);
    for spec in specs {
        let path = ColumnPath::from(spec.name);
        match spec.layout {
            Layout::Plain | Layout::Delta | Layout::DeltaBounds
                if packing == Packing::Whole && is_number(spec) =>
            {
                builder = builder.set_column_encoding(path.clone(), Encoding::BYTE_STREAM_SPLIT)
            }
            Layout::Plain => (),
            Layout::Delta | Layout::DeltaBounds => {
                builder = builder.set_column_encoding(path.clone(), Encoding::DELTA_BINARY_PACKED)
            }
            Layout::Dictionary => {
                builder = builder.set_column_dictionary_enabled(path.clone(), true)
            }
        }
        if spec.layout == Layout::DeltaBounds {
            builder = builder.set_column_statistics_enabled(path, EnabledStatistics::Chunk);
        }
    }
    builder.build()
}

fn is_number(spec: &Spec) -> bool {
    matches!(spec.kind.physical, Physical::INT32 | Physical::INT64)
}

/// Why a file could not be read, in words.
pub(crate) type Reason = String;

/// A table's file, opened.
pub struct TableReader {
    file: File,
    length: u64,
    metadata: ParquetMetaData,
}

/// Whether the file looks whole, without decoding it.
pub(crate) fn probe(path: &Path) -> std::result::Result<(), Reason> {
    let (file, length) = open_regular(path)?;
    footer_length(&file, length).map(drop)
}

pub(crate) fn open_regular(path: &Path) -> std::result::Result<(File, u64), Reason> {
    // Looked at before it is opened: opening a pipe would block, opening a device might do
    // anything.
    match fs::symlink_metadata(path) {
        Ok(found) if found.is_file() => (),
        Ok(_) => return Err("not a regular file".to_owned()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Err("missing".to_owned()),
        Err(error) => return Err(error.to_string()),
    }
    let file = File::open(path).map_err(|error| error.to_string())?;
    let length = file.metadata().map_err(|error| error.to_string())?.len();
    Ok((file, length))
}

fn footer_length(file: &File, length: u64) -> std::result::Result<u64, Reason> {
    let mut tail = [0; 8];
    // Magic at both ends, and the footer's length.
    if length < 12 {
        return Err("truncated".to_owned());
    }
    file.read_exact_at(&mut tail, length - 8)
        .map_err(|error| error.to_string())?;
    let [a, b, c, d, magic @ ..] = tail;
    let footer = u64::from(u32::from_le_bytes([a, b, c, d]));
    if &magic != b"PAR1" || footer > length - 12 {
        return Err("truncated or damaged at its end".to_owned());
    }
    if footer > MAX_FOOTER_BYTES {
        return Err("damaged (its footer claims an absurd size)".to_owned());
    }
    Ok(footer)
}

impl TableReader {
    pub(crate) fn open<T: Table>(segment: &Path) -> std::result::Result<Self, Reason> {
        let (file, length) = open_regular(&table_path::<T>(segment))?;
        let footer = footer_length(&file, length)?;
        let mut bytes = vec![0; footer as usize];
        file.read_exact_at(&mut bytes, length - 8 - footer)
            .map_err(|error| error.to_string())?;
        check_footer(&bytes).map_err(damaged)?;
        let metadata = shielded(|| ParquetMetaDataReader::decode_metadata(&bytes))?;
        let mut rows = 0i64;
        for group in metadata.row_groups() {
            rows = rows.saturating_add(group.num_rows());
            if group.num_rows() < 0 || rows > MAX_FILE_ROWS {
                return Err(damaged("it claims an absurd number of rows"));
            }
        }
        Ok(Self {
            file,
            length,
            metadata,
        })
    }

    /// Calls `visit` with each row that overlaps with `range`. Says how many rows it did not
    /// understand.
    pub(crate) fn rows<T: Table>(
        &self,
        range: Option<&Range<Ns>>,
        visit: &mut dyn FnMut(&T),
    ) -> std::result::Result<u64, Reason> {
        let mut strange = 0;
        let mut columns = T::Columns::default();
        let mut row = T::default();
        for group in self.metadata.row_groups() {
            if range.is_some_and(|range| !shielded_overlap::<T>(group, range)) {
                continue;
            }
            shielded(|| self.attach::<T>(group, &mut columns))?;
            let mut left = usize::try_from(group.num_rows()).unwrap_or(0);
            while left > 0 {
                let batch = left.min(BATCH_ROWS);
                shielded(|| T::each(&mut columns, &mut |column| column.fill(batch)))?;
                for _ in 0..batch {
                    if !row.take(&mut columns) {
                        strange += 1;
                    } else if range.is_none_or(|range| row.overlaps(range)) {
                        visit(&row);
                    }
                }
                left -= batch;
            }
        }
        Ok(strange)
    }

    /// Loads a row group's columns and checks them, by name: a newer version may have added
    /// columns.
    fn attach<T: Table>(&self, group: &RowGroupMetaData, columns: &mut T::Columns) -> Result<()> {
        let general = |text: String| ParquetError::General(text);
        let mut specs = specs::<T>().into_iter();
        T::each(columns, &mut |column| {
            let spec = specs
                .next()
                .ok_or_else(|| general("a column was not declared".to_owned()))?;
            let Some(chunk) = group
                .columns()
                .iter()
                .find(|chunk| chunk.column_path().parts() == [spec.name])
            else {
                return column
                    .attach(None)
                    .map_err(|_| general(format!("column {} is missing", spec.name)));
            };
            let described = chunk.column_descr();
            if chunk.column_type() != spec.kind.physical
                || described.max_rep_level() != 0
                || described.max_def_level() != i16::from(spec.kind.nullable)
            {
                return Err(general(format!("column {} has another type", spec.name)));
            }
            if !matches!(
                chunk.compression(),
                Compression::ZSTD(_) | Compression::UNCOMPRESSED
            ) {
                return Err(general(format!(
                    "column {} has another compression than zstd",
                    spec.name
                )));
            }
            let (start, length) = chunk.byte_range();
            if length > MAX_CHUNK_BYTES
                || start
                    .checked_add(length)
                    .is_none_or(|end| end > self.length)
            {
                return Err(general(format!(
                    "column {} lies outside of the file",
                    spec.name
                )));
            }
            let mut bytes = vec![0; length as usize];
            self.file.read_exact_at(&mut bytes, start)?;
            check_pages(&bytes, spec.kind.physical, group.num_rows())
                .map_err(|bad| general(format!("column {}: {bad}", spec.name)))?;
            let rows = usize::try_from(group.num_rows())?;
            let chunk_bytes = Arc::new(Chunk {
                start,
                bytes: bytes.into(),
            });
            let pages = SerializedPageReader::new(chunk_bytes, chunk, rows, None)?;
            column.attach(Some(get_column_reader(
                chunk.column_descr_ptr(),
                Box::new(pages),
            )))
        })
    }
}

fn damaged(why: &str) -> Reason {
    format!("damaged ({why})")
}

/// Runs the Parquet decoder, whose errors and panics both mean damage.
fn shielded<T>(decode: impl FnOnce() -> Result<T>) -> std::result::Result<T, Reason> {
    match quietly(decode) {
        Some(Ok(value)) => Ok(value),
        // The library says "Parquet error: …" and the like; the path says already that it is about
        // a Parquet file.
        Some(Err(ParquetError::General(reason) | ParquetError::EOF(reason))) => {
            Err(damaged(&reason))
        }
        Some(Err(other)) => Err(damaged(&other.to_string())),
        None => Err(damaged("it cannot be decoded")),
    }
}

fn shielded_overlap<T: Table>(group: &RowGroupMetaData, range: &Range<Ns>) -> bool {
    quietly(|| may_overlap::<T>(group, range)).unwrap_or(true)
}

/// Whether rows of the group may overlap with the range, as far as its statistics say.
fn may_overlap<T: Table>(group: &RowGroupMetaData, range: &Range<Ns>) -> bool {
    let Some((start, lengths)) = T::SPAN else {
        return true;
    };
    // No time of `CLOCK_MONOTONIC` is negative when signed; where one is, the order of the
    // statistics is not ours.
    let Some((first, last, _)) = bounds(group, start).filter(|(first, _, _)| *first >= 0) else {
        return true;
    };
    if first as u64 >= range.end {
        return false;
    }
    let mut end = last as u64;
    for (index, length) in lengths.iter().enumerate() {
        let open_ended = index + 1 == lengths.len();
        match bounds(group, length) {
            Some((_, longest, nulls)) if nulls == 0 || !open_ended => {
                end = end.saturating_add(u64::try_from(longest).unwrap_or(0));
            }
            _ => return true,
        }
    }
    // For points in time, `end` is the last of them, and a range includes its start.
    end >= range.start
}

/// The smallest value, the greatest value and the number of NULLs of a column; `None` when not all
/// are known.
fn bounds(group: &RowGroupMetaData, column: &str) -> Option<(i64, i64, u64)> {
    let chunk = group
        .columns()
        .iter()
        .find(|chunk| chunk.column_path().parts() == [column])?;
    let Some(Statistics::Int64(statistics)) = chunk.statistics() else {
        return None;
    };
    let nulls = statistics.null_count_opt()?;
    match (statistics.min_opt(), statistics.max_opt()) {
        (Some(min), Some(max)) => Some((*min, *max, nulls)),
        // All are NULL.
        _ => Some((0, 0, nulls)),
    }
}

/// The bytes of a column chunk, at their place in the file.
struct Chunk {
    start: u64,
    bytes: Bytes,
}

impl Chunk {
    fn slice(&self, start: u64, length: Option<usize>) -> Result<Bytes> {
        let outside = || ParquetError::EOF("a page lies outside of its column".to_owned());
        let from = usize::try_from(start.checked_sub(self.start).ok_or_else(outside)?)?;
        let end = match length {
            Some(length) => from.checked_add(length).ok_or_else(outside)?,
            None => self.bytes.len(),
        };
        if from > end || end > self.bytes.len() {
            return Err(outside());
        }
        Ok(self.bytes.slice(from..end))
    }
}

impl Length for Chunk {
    fn len(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }
}

impl ChunkReader for Chunk {
    type T = Cursor<Bytes>;

    fn get_read(&self, start: u64) -> Result<Self::T> {
        self.slice(start, None).map(Cursor::new)
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes> {
        self.slice(start, Some(length))
    }
}
