//! What a table is, and how one is declared.

use std::fmt::Debug;
use std::ops::Range;

use parquet::errors::Result;

use super::column::{AnyColumn, Kind, Layout};
use super::table_file::{Reason, TableReader, TableWriter};
use crate::{Ns, StackId, Writers};

/// A row, and how it becomes columns and back. [`table!`] implements it.
pub trait Row: Clone + Debug + Default + PartialEq {
    /// The buffers of its columns.
    type Columns: Default;

    /// Recordings from before there was this table do not have it, and miss nothing.
    const LATER: bool;

    /// Its fields, in the order of their columns.
    const FIELDS: &'static [Field];

    /// The column with a row's start, and those whose sum is its length; NULL in the last of them:
    /// it has no end yet. Without the latter a row is a point in time.
    const SPAN: Option<(&'static str, &'static [&'static str])>;

    /// What its documentation says of the table.
    #[cfg(test)]
    const ABOUT: &'static [&'static str];

    /// Calls `visit` with each column, in order.
    fn each(
        columns: &mut Self::Columns,
        visit: &mut dyn FnMut(&mut dyn AnyColumn) -> Result<()>,
    ) -> Result<()>;

    /// Puts the row into the columns.
    fn put(&self, columns: &mut Self::Columns);

    /// Becomes the next row; `false` when it holds something that this version does not understand.
    fn take(&mut self, columns: &mut Self::Columns) -> bool;

    /// How much text of the target's choosing the row has.
    fn text_bytes(&self) -> usize;

    /// When it begins, and when it ends if it does; `None` for rows that are of no time.
    fn span(&self) -> Option<(Ns, Option<Ns>)>;

    /// The stacks that it names.
    fn stacks(&self) -> Vec<StackId>;

    /// Whose it is; `None`: of no process alone.
    fn whose(&self) -> Option<Whose>;

    /// Whether the row overlaps with the time range.
    fn overlaps(&self, range: &Range<Ns>) -> bool {
        match (Self::SPAN, self.span()) {
            (Some((_, [])), Some((at, _))) => range.contains(&at),
            (Some(_), Some((start, end))) => {
                start < range.end && end.is_none_or(|end| end > range.start)
            }
            _ => true,
        }
    }
}

/// Whose a row is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Whose {
    /// The process; 0: not known.
    pub(crate) process: u32,
    /// The port on which it listens, for rows of which that may be all that is known; 0: none.
    pub(crate) port: u16,
}

/// A row that has a place in the list of tables. [`tables!`](super::tables) implements it.
pub trait Table: Row {
    /// The table's name; that of its file is this and `.parquet`.
    const NAME: &'static str;

    /// The table's writer.
    fn writer(writers: &mut Writers) -> &mut TableWriter<Self>;

    /// [`TableReader::rows`] of this table. It is here, and not called where the rows are wanted,
    /// to be compiled once and in this crate, where it is as fast as it can be.
    fn rows(
        file: &TableReader,
        range: Option<&Range<Ns>>,
        visit: &mut dyn FnMut(&Self),
    ) -> std::result::Result<u64, Reason>;
}

/// A field of a row as declared.
pub struct Field {
    pub(crate) columns: &'static [Column],
    pub(crate) kinds: &'static [Kind],
    pub(crate) layout: Layout,
    #[cfg(test)]
    pub(crate) about: &'static [&'static str],
    #[cfg(test)]
    pub(crate) type_name: &'static str,
    #[cfg(test)]
    pub(crate) default: Option<&'static str>,
    #[cfg(test)]
    pub(crate) choices: fn() -> Vec<(&'static str, &'static [&'static str])>,
}

/// A column of a field.
pub(crate) struct Column {
    pub(crate) name: &'static str,
    /// What there is to say of the column beyond its field.
    #[cfg(test)]
    pub(crate) about: &'static [&'static str],
}

/// A column as a file has it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Spec {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    pub(crate) layout: Layout,
}

/// The columns of a table, in order.
pub(crate) fn specs<T: Row>() -> Vec<Spec> {
    let of = |field: &'static Field| {
        let columns = field.columns.iter().zip(field.kinds);
        columns.map(|(column, kind)| Spec {
            name: column.name,
            kind: *kind,
            layout: field.layout,
        })
    };
    T::FIELDS.iter().flat_map(of).collect()
}

/// Takes the rows that an event is.
pub(crate) trait Sink {
    /// Why a row was not taken.
    type Error;

    /// Takes a row.
    fn row<T: Table>(&mut self, row: &T) -> std::result::Result<(), Self::Error>;
}

/// Something that is rows of tables.
pub(crate) trait Record {
    /// Gives the rows to `sink`.
    fn rows<S: Sink>(&self, sink: &mut S) -> std::result::Result<(), S::Error>;

    /// When it begins, and when it ends if it does.
    fn span(&self) -> Option<(Ns, Option<Ns>)> {
        None
    }

    /// The stacks that it names.
    fn stacks(&self) -> Vec<StackId> {
        Vec::new()
    }
}

impl<T: Table> Record for T {
    fn rows<S: Sink>(&self, sink: &mut S) -> std::result::Result<(), S::Error> {
        sink.row(self)
    }

    fn span(&self) -> Option<(Ns, Option<Ns>)> {
        Row::span(self)
    }

    fn stacks(&self) -> Vec<StackId> {
        Row::stacks(self)
    }
}

/// Visits the tables of the list.
pub(crate) trait Tables {
    /// Called with each.
    fn table<T: Table>(&mut self);
}

/// What a declaration says of a row: an expression in its terms.
pub(crate) fn of<R, T>(row: &R, look: impl FnOnce(&R) -> T) -> T {
    look(row)
}

/// Sets a field to what was read; `false` when that is nothing.
pub(crate) fn set<T>(field: &mut T, read: Option<T>) -> bool {
    match read {
        Some(read) => {
            *field = read;
            true
        }
        None => false,
    }
}

/// Declares a row of a table:
///
/// ```text
/// table! {
///     /// What the table is about.
///     #[table(later)]                                      recordings from before may lack it
///     #[span(out_ns, [duration_ns], |row| row.in_ns)]      or #[span(at_ns)]: a point in time
///     #[stacks(user_stack)]                                fields with ids of stacks
///     #[process(tgid)]                                     whose it is; or #[process(tgid, port)]
///     #[valid(|row| row.bucket < 64)]                      other rows are not read
///     pub struct Example {
///         /// The meaning, of the field and of its column.
///         tid: u32 = Dictionary,                           the column's layout
///         out_ns: Ns = DeltaBounds,                        bounds: the columns that `span` names
///         lock: u64 = Dictionary or 0,                     a later column: what older ones have
///         id: u32 = Delta { example },                     the column has another name
///         in_ns: Ns = DeltaBounds {
///             /// The meaning of the column.
///             duration_ns since |row| row.out_ns           or `until`
///         },
///         frame: Frame = Dictionary { module, address },   two columns
///         service: Parts = Delta { parts "service" },      a column for each part of time
///     }
///     with {                                               fields without a column, optional
///         /// What they are.
///         buckets: BTreeMap<u16, u64>,
///     }
/// }
/// ```
macro_rules! table {
    (
        $(#[doc = $about:literal])+
        $(#[table($later:ident)])?
        $(#[span($start:ident $(, [$($length:ident),+], $end:expr)?)])?
        $(#[stacks($($stack:ident),+)])?
        $(#[process($process:ident $(, $port:ident)?)])?
        $(#[valid($valid:expr)])?
        $vis:vis struct $row:ident {
            $(
                $(#[doc = $doc:literal])+
                $field:ident: $type:ty = $layout:ident $(or $default:tt)? $({ $($how:tt)+ })?
            ),+ $(,)?
        }
        $(with {
            $($(#[doc = $extra_doc:literal])+ $extra:ident: $extra_type:ty),+ $(,)?
        })?
    ) => {
        $(#[doc = $about])+
        #[derive(Debug, Clone, PartialEq, Eq, Default)]
        $vis struct $row {
            $($(#[doc = $doc])+ $vis $field: $type,)+
            $($($(#[doc = $extra_doc])+ $vis $extra: $extra_type,)+)?
        }

        const _: () = {
            use $crate::recording::declaration::*;

            #[derive(Default)]
            $vis struct Columns {
                $($field: field!(@slot $type $(, $default)?),)+
            }

            impl Row for $row {
                type Columns = Columns;

                const LATER: bool = field!(@later $($later)?);

                const FIELDS: &'static [Field] = &[$(Field {
                    columns: field!(@columns $field $({ $($how)+ })?),
                    kinds: <field!(@slot $type $(, $default)?) as Slot>::KINDS,
                    layout: Layout::$layout,
                    #[cfg(test)]
                    about: &[$($doc),+],
                    #[cfg(test)]
                    type_name: stringify!($type),
                    #[cfg(test)]
                    default: field!(@default $($default)?),
                    #[cfg(test)]
                    choices: <$type as Value>::choices,
                }),+];

                const SPAN: Option<(&'static str, &'static [&'static str])> =
                    field!(@span $($start $(, $($length)+)?)?);

                #[cfg(test)]
                const ABOUT: &'static [&'static str] = &[$($about),+];

                fn each(
                    columns: &mut Columns,
                    visit: &mut dyn FnMut(&mut dyn AnyColumn) -> Result<()>,
                ) -> Result<()> {
                    $(columns.$field.each(visit)?;)+
                    Ok(())
                }

                fn put(&self, columns: &mut Columns) {
                    $(field!(
                        @put self, columns, $field $(or $default)? $({ $($how)+ })?
                    );)+
                }

                fn take(&mut self, columns: &mut Columns) -> bool {
                    // All columns move on, whatever one of them has.
                    let mut understood = true;
                    $(understood &= field!(
                        @take self, columns, $field: $type $(, or $default)? $({ $($how)+ })?
                    );)+
                    understood $(&& of(&*self, $valid))?
                }

                fn text_bytes(&self) -> usize {
                    0 $(+ Value::text_bytes(&self.$field))+
                }

                fn span(&self) -> Option<(Ns, Option<Ns>)> {
                    field!(@times self $(, $start $(, $end)?)?)
                }

                fn stacks(&self) -> Vec<StackId> {
                    vec![$($(self.$stack),+)?]
                }

                fn whose(&self) -> Option<Whose> {
                    field!(@whose self $(, $process $(, $port)?)?)
                }
            }

            #[cfg(test)]
            impl MadeUp for $row {
                fn made_up(_: Layout) -> BoxedStrategy<Self> {
                    let row = Just(Self::default()).boxed();
                    $(let row = with_field(
                        row,
                        <$type>::made_up(Layout::$layout),
                        |row, value| row.$field = value,
                    );)+
                    $($(let row = with_field(
                        row,
                        <$extra_type>::made_up(Layout::Plain),
                        |row, value| row.$extra = value,
                    );)+)?
                    row
                }
            }
        };
    };
}

/// What [`table!`] says of one column.
macro_rules! field {
    (@slot $type:ty) => { <$type as Value>::Slot };
    (@slot $type:ty, $default:tt) => { <Option<$type> as Value>::Slot };

    (@later) => { false };
    (@later later) => { true };

    (@default) => { None };
    (@default $default:tt) => { Some(stringify!($default)) };

    (@span) => { None };
    (@span $start:ident $(, $($length:ident)+)?) => {
        Some((stringify!($start), &[$($(stringify!($length)),+)?]))
    };

    (@whose $row:ident) => { None };
    (@whose $row:ident, $process:ident) => {
        Some(Whose { process: $row.$process, port: 0 })
    };
    (@whose $row:ident, $process:ident, $port:ident) => {
        Some(Whose { process: $row.$process, port: $row.$port })
    };

    (@times $row:ident) => { None };
    (@times $row:ident, $start:ident) => { Some(($row.$start, None)) };
    (@times $row:ident, $start:ident, $end:expr) => {
        Some(($row.$start, of($row, $end).into()))
    };

    (@columns $field:ident) => { field!(@columns $field { $field }) };
    (@columns $field:ident { parts $prefix:literal }) => { parts_columns!($prefix) };
    (@columns $field:ident {
        $(#[doc = $doc:literal])+ $name:ident since $start:expr
    }) => { field!(@columns $field { $(#[doc = $doc])+ $name }) };
    (@columns $field:ident {
        $(#[doc = $doc:literal])+ $name:ident until $end:expr
    }) => { field!(@columns $field { $(#[doc = $doc])+ $name }) };
    (@columns $field:ident { $($(#[doc = $doc:literal])* $name:ident),+ $(,)? }) => {
        &[$(Column {
            name: stringify!($name),
            #[cfg(test)]
            about: &[$($doc),*],
        }),+]
    };

    (@put $row:ident, $columns:ident, $field:ident or $default:tt) => {
        Value::put(&Some(Clone::clone(&$row.$field)), &mut $columns.$field)
    };
    (@put $row:ident, $columns:ident, $field:ident {
        $(#[doc = $doc:literal])+ $name:ident since $start:expr
    }) => { Value::put(&$row.$field.since(of($row, $start)), &mut $columns.$field) };
    (@put $row:ident, $columns:ident, $field:ident {
        $(#[doc = $doc:literal])+ $name:ident until $end:expr
    }) => { Value::put(&$row.$field.until(of($row, $end)), &mut $columns.$field) };
    (@put $row:ident, $columns:ident, $field:ident $({ $($how:tt)+ })?) => {
        Value::put(&$row.$field, &mut $columns.$field)
    };

    (@take $row:ident, $columns:ident, $field:ident: $type:ty, or $default:tt) => {
        set(
            &mut $row.$field,
            <Option<$type> as Value>::take(&mut $columns.$field)
                .map(|value| value.unwrap_or($default)),
        )
    };
    (@take $row:ident, $columns:ident, $field:ident: $type:ty {
        $(#[doc = $doc:literal])+ $name:ident since $start:expr
    }) => {{
        let length = <$type as Value>::take(&mut $columns.$field);
        let time = length.map(|length| length.after(of(&*$row, $start)));
        set(&mut $row.$field, time)
    }};
    (@take $row:ident, $columns:ident, $field:ident: $type:ty {
        $(#[doc = $doc:literal])+ $name:ident until $end:expr
    }) => {{
        let length = <$type as Value>::take(&mut $columns.$field);
        let time = length.map(|length| length.until(of(&*$row, $end)));
        set(&mut $row.$field, time)
    }};
    (@take $row:ident, $columns:ident, $field:ident: $type:ty $({ $($how:tt)+ })?) => {
        set(&mut $row.$field, <$type as Value>::take(&mut $columns.$field))
    };
}
pub(crate) use {field, table};
