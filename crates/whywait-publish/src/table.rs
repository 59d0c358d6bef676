//! What a published table is, and how one is declared.

use std::ops::Range;

use crate::identity::{Hour, Identity};
use crate::text::clean;

/// What a column holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ColumnKind {
    /// UTF-8 without control characters.
    Text,
    /// A signed number of 64 bits.
    Integer,
    /// Yes or no.
    Boolean,
    /// A number of 64 bits with a fraction.
    Number,
    /// A moment, to the microsecond, UTC.
    Time,
}

/// A column as declared.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PublishedColumn {
    pub(crate) name: &'static str,
    pub(crate) kind: ColumnKind,
    pub(crate) nullable: bool,
    /// What its documentation says.
    #[cfg(test)]
    pub(crate) about: &'static [&'static str],
}

/// What is in a column of a row.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum ColumnValue {
    Null,
    Text(String),
    Integer(i64),
    Boolean(bool),
    Number(f64),
    /// Microseconds since 1970, UTC.
    Time(i64),
}

/// A moment of wall-clock time, nanoseconds since 1970, UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) struct WallClock(pub(crate) u64);

/// What a field of a row may be.
pub(crate) trait Cell {
    const KIND: ColumnKind;
    const NULLABLE: bool = false;

    fn value(self) -> ColumnValue;
}

impl Cell for String {
    const KIND: ColumnKind = ColumnKind::Text;

    fn value(self) -> ColumnValue {
        ColumnValue::Text(clean(&self))
    }
}

impl Cell for &'static str {
    const KIND: ColumnKind = ColumnKind::Text;

    fn value(self) -> ColumnValue {
        ColumnValue::Text(self.to_owned())
    }
}

impl Cell for u64 {
    const KIND: ColumnKind = ColumnKind::Integer;

    fn value(self) -> ColumnValue {
        ColumnValue::Integer(i64::try_from(self).unwrap_or(i64::MAX))
    }
}

impl Cell for i64 {
    const KIND: ColumnKind = ColumnKind::Integer;

    fn value(self) -> ColumnValue {
        ColumnValue::Integer(self)
    }
}

impl Cell for bool {
    const KIND: ColumnKind = ColumnKind::Boolean;

    fn value(self) -> ColumnValue {
        ColumnValue::Boolean(self)
    }
}

impl Cell for f64 {
    const KIND: ColumnKind = ColumnKind::Number;

    fn value(self) -> ColumnValue {
        // A share to six places, as reports have it: the rest is noise of the order of adding.
        match self.is_finite() {
            true => ColumnValue::Number((self * 1e6).round() / 1e6),
            false => ColumnValue::Number(0.0),
        }
    }
}

impl Cell for WallClock {
    const KIND: ColumnKind = ColumnKind::Time;

    fn value(self) -> ColumnValue {
        ColumnValue::Time(i64::try_from(self.0 / 1000).unwrap_or(i64::MAX))
    }
}

impl<C: Cell> Cell for Option<C> {
    const KIND: ColumnKind = C::KIND;
    const NULLABLE: bool = true;

    fn value(self) -> ColumnValue {
        self.map_or(ColumnValue::Null, C::value)
    }
}

/// A row of a table. [`published!`] implements it.
pub(crate) trait PublishedRow {
    /// The table's name.
    const NAME: &'static str;
    /// What its documentation says of the table.
    #[cfg(test)]
    const ABOUT: &'static [&'static str];
    /// Its columns, without those that all tables have.
    const COLUMNS: &'static [PublishedColumn];

    /// When it was, which says in which hour's file it is.
    fn at(&self) -> WallClock;

    /// What is in its columns, in order.
    fn values(self) -> Vec<ColumnValue>;
}

/// Declares the row of a table:
///
/// ```text
/// published! {
///     /// What the table is about.
///     "name": struct Example {
///         /// The meaning, of the field and of its column.
///         ts: At,
///         function: Option<String>,
///     }
/// }
/// ```
macro_rules! published {
    (
        $(#[doc = $about:literal])+
        $name:literal: struct $row:ident {
            $($(#[doc = $doc:literal])+ $field:ident: $type:ty),+ $(,)?
        }
    ) => {
        $(#[doc = $about])+
        #[derive(Debug, Clone, PartialEq)]
        pub(crate) struct $row {
            $($(#[doc = $doc])+ pub(crate) $field: $type,)+
        }

        impl $crate::table::PublishedRow for $row {
            const NAME: &'static str = $name;
            #[cfg(test)]
            const ABOUT: &'static [&'static str] = &[$($about),+];
            const COLUMNS: &'static [$crate::table::PublishedColumn] = &[
                $($crate::table::PublishedColumn {
                    name: stringify!($field),
                    kind: <$type as $crate::table::Cell>::KIND,
                    nullable: <$type as $crate::table::Cell>::NULLABLE,
                    #[cfg(test)]
                    about: &[$($doc),+],
                }),+
            ];

            fn at(&self) -> $crate::table::WallClock {
                self.ts
            }

            fn values(self) -> Vec<$crate::table::ColumnValue> {
                vec![$($crate::table::Cell::value(self.$field)),+]
            }
        }
    };
}
pub(crate) use published;

/// What each row of each table says of where it comes from.
pub(crate) const COMMON: [PublishedColumn; 5] = [
    PublishedColumn {
        name: "recording",
        kind: ColumnKind::Text,
        nullable: false,
        #[cfg(test)]
        about: &[" The recording: when it began, and a hash of what it is of."],
    },
    PublishedColumn {
        name: "line",
        kind: ColumnKind::Integer,
        nullable: false,
        #[cfg(test)]
        about: &[" With `recording` the key of the row in its table, from 0."],
    },
    PublishedColumn {
        name: "host",
        kind: ColumnKind::Text,
        nullable: false,
        #[cfg(test)]
        about: &[" The machine: its host name, or what `--host` said."],
    },
    PublishedColumn {
        name: "service",
        kind: ColumnKind::Text,
        nullable: false,
        #[cfg(test)]
        about: &[" What was watched: the program's name, or what `--service` said."],
    },
    PublishedColumn {
        name: "release",
        kind: ColumnKind::Text,
        nullable: false,
        #[cfg(test)]
        about: &[
            " Its version: what `--release` said, or else the program's build-id; empty:",
            " not known.",
        ],
    },
];

/// A table's rows, whatever they are, in the order of their hours.
pub(crate) struct AnyTable {
    pub(crate) name: &'static str,
    pub(crate) columns: &'static [PublishedColumn],
    rows: Vec<(WallClock, Vec<ColumnValue>)>,
}

/// The rows of an hour: their numbers.
pub(crate) struct RowsOfHour {
    pub(crate) at: Hour,
    rows: Range<usize>,
}

impl AnyTable {
    /// The rows, which are in the order that they are to have within an hour.
    pub(crate) fn of<R: PublishedRow>(rows: Vec<R>) -> Self {
        Self {
            name: R::NAME,
            columns: R::COLUMNS,
            rows: rows
                .into_iter()
                .map(|row| (row.at(), row.values()))
                .collect(),
        }
    }

    /// The hours that have rows. The first hour of the recording is always among them, so that each
    /// table has a file of each recording.
    pub(crate) fn hours(&self, identity: &Identity) -> Vec<RowsOfHour> {
        let mut hours = vec![RowsOfHour {
            at: identity.first_hour(),
            rows: 0..0,
        }];
        for (at, (moment, _)) in self.rows.iter().enumerate() {
            let hour = identity.hour(*moment);
            match hours.last_mut() {
                Some(last) if last.at >= hour => last.rows.end = at + 1,
                _ => hours.push(RowsOfHour {
                    at: hour,
                    rows: at..at + 1,
                }),
            }
        }
        hours
    }

    /// The rows of an hour, with their numbers.
    pub(crate) fn rows_of(&self, hour: &RowsOfHour) -> Rows<'_> {
        Rows {
            first: hour.rows.start,
            rows: &self.rows[hour.rows.clone()],
        }
    }

    /// All rows, with their numbers.
    pub(crate) fn rows(&self) -> Rows<'_> {
        Rows {
            first: 0,
            rows: &self.rows,
        }
    }
}

/// Rows of a table, one after the other.
#[derive(Clone)]
pub(crate) struct Rows<'a> {
    first: usize,
    rows: &'a [(WallClock, Vec<ColumnValue>)],
}

impl<'a> Rows<'a> {
    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }

    /// Parts of at most so many rows.
    pub(crate) fn chunks(&self, size: usize) -> impl Iterator<Item = Rows<'a>> + use<'a> {
        let first = self.first;
        self.rows
            .chunks(size)
            .enumerate()
            .map(move |(at, rows)| Rows {
                first: first + at * size,
                rows,
            })
    }

    /// The number of each row in its table, and its values.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, &'a [ColumnValue])> + use<'a> {
        let first = self.first;
        self.rows
            .iter()
            .enumerate()
            .map(move |(at, (_, values))| ((first + at) as u64, values.as_slice()))
    }
}
