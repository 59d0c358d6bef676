//! A table's file: the same rows always make the same bytes.

use std::sync::Arc;

use parquet::basic::{
    Compression, Encoding, LogicalType, Repetition, TimeUnit, Type as Physical, ZstdLevel,
};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DataType, DoubleType, Int64Type};
use parquet::errors::{ParquetError, Result};
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::types::{ColumnPath, Type, TypePtr};

use crate::identity::Identity;
use crate::table::{AnyTable, COMMON, ColumnKind, ColumnValue, PublishedColumn, Rows};

/// Rows of a row group: engines read them side by side, and skip those that cannot matter.
const GROUP_ROWS: usize = 64 * 1024;

/// Encodes rows of a table, with the columns that all tables have.
pub(crate) fn encode(table: &AnyTable, identity: &Identity, rows: Rows<'_>) -> Result<Vec<u8>> {
    let schema = schema(table);
    let properties = Arc::new(properties(table));
    let mut file = SerializedFileWriter::new(Vec::new(), schema, properties)?;
    for group in rows.chunks(GROUP_ROWS) {
        let mut writer = file.next_row_group()?;
        let count = group.len();
        let numbers = group.iter().map(|(number, _)| number as i64);
        text(&mut writer, identity.recording(), count)?;
        column::<Int64Type>(&mut writer, &numbers.collect::<Vec<_>>(), None)?;
        text(&mut writer, identity.host(), count)?;
        text(&mut writer, identity.service(), count)?;
        text(&mut writer, identity.release(), count)?;
        for (at, declared) in table.columns.iter().enumerate() {
            values(&mut writer, declared, group.iter().map(|(_, row)| &row[at]))?;
        }
        writer.close()?;
    }
    file.into_inner()
}

type RowGroup<'a> = SerializedRowGroupWriter<'a, Vec<u8>>;

/// A column that is the same in all rows.
fn text(writer: &mut RowGroup<'_>, text: &str, count: usize) -> Result<()> {
    let text = ByteArray::from(text.as_bytes().to_vec());
    column::<ByteArrayType>(writer, &vec![text; count], None)
}

fn values<'v>(
    writer: &mut RowGroup<'_>,
    declared: &PublishedColumn,
    values: impl Iterator<Item = &'v ColumnValue>,
) -> Result<()> {
    let (mut integers, mut texts) = (Vec::new(), Vec::new());
    let (mut numbers, mut booleans) = (Vec::new(), Vec::new());
    let mut levels = Vec::new();
    for value in values {
        levels.push(i16::from(*value != ColumnValue::Null));
        match value {
            ColumnValue::Null => {}
            ColumnValue::Text(text) => texts.push(ByteArray::from(text.as_bytes().to_vec())),
            ColumnValue::Integer(integer) | ColumnValue::Time(integer) => integers.push(*integer),
            ColumnValue::Boolean(boolean) => booleans.push(*boolean),
            ColumnValue::Number(number) => numbers.push(*number),
        }
    }
    let levels = declared.nullable.then_some(levels.as_slice());
    match declared.kind {
        ColumnKind::Text => column::<ByteArrayType>(writer, &texts, levels),
        ColumnKind::Integer | ColumnKind::Time => column::<Int64Type>(writer, &integers, levels),
        ColumnKind::Boolean => column::<BoolType>(writer, &booleans, levels),
        ColumnKind::Number => column::<DoubleType>(writer, &numbers, levels),
    }
}

fn column<D: DataType>(
    writer: &mut RowGroup<'_>,
    values: &[D::T],
    levels: Option<&[i16]>,
) -> Result<()> {
    let Some(mut column) = writer.next_column()? else {
        return Err(ParquetError::General(
            "the schema has too few columns".to_owned(),
        ));
    };
    column.typed::<D>().write_batch(values, levels, None)?;
    column.close()
}

fn columns(table: &AnyTable) -> impl Iterator<Item = &PublishedColumn> {
    COMMON.iter().chain(table.columns)
}

fn schema(table: &AnyTable) -> TypePtr {
    let fields = columns(table).map(|column| {
        let (physical, logical) = match column.kind {
            ColumnKind::Text => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
            ColumnKind::Integer => (Physical::INT64, None),
            ColumnKind::Boolean => (Physical::BOOLEAN, None),
            ColumnKind::Number => (Physical::DOUBLE, None),
            // Nanoseconds are what Spark does not read.
            ColumnKind::Time => (
                Physical::INT64,
                Some(LogicalType::timestamp(true, TimeUnit::MICROS)),
            ),
        };
        let repetition = match column.nullable {
            true => Repetition::OPTIONAL,
            false => Repetition::REQUIRED,
        };
        let field = Type::primitive_type_builder(column.name, physical)
            .with_repetition(repetition)
            .with_logical_type(logical)
            .build();
        Arc::new(field.expect("a column as declared is valid"))
    });
    let group = Type::group_type_builder(table.name).with_fields(fields.collect());
    Arc::new(group.build().expect("a table as declared is valid"))
}

fn properties(table: &AnyTable) -> WriterProperties {
    let mut properties = WriterProperties::builder()
        .set_created_by(concat!("whywait ", env!("CARGO_PKG_VERSION")).to_owned())
        .set_compression(Compression::ZSTD(
            ZstdLevel::try_new(3).expect("zstd has a level 3"),
        ))
        .set_statistics_enabled(EnabledStatistics::Chunk)
        .set_dictionary_enabled(true);
    for column in columns(table) {
        // Times and durations have few equals.
        if column.kind == ColumnKind::Time || column.name == "line" || column.name.ends_with("_ns")
        {
            let path = ColumnPath::from(column.name);
            properties = properties
                .set_column_dictionary_enabled(path.clone(), false)
                .set_column_encoding(path, Encoding::DELTA_BINARY_PACKED);
        }
    }
    properties.build()
}
