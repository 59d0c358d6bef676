//! How the value of a field becomes columns and back.
//!
//! Parquet's plain signed integers hold our unsigned ones bit by bit: DuckDB then shows `BIGINT`
//! and `INTEGER`, whose differences may be negative without an error, and -100 for the descriptor
//! `AT_FDCWD` rather than 2^64 - 100.

use parquet::data_type::{BoolType, ByteArray, ByteArrayType, Int32Type, Int64Type};

use super::column::{Many, Nullable, PhysicalType, Required, Slot, look_at_text, text};
use crate::{Frame, Ns, PART_COUNT, Parts};

/// A type that a field of a table may have.
pub(crate) trait Value: Sized {
    /// Its columns.
    type Slot: Slot;

    /// Puts it in.
    fn put(&self, slot: &mut Self::Slot);

    /// Takes out the next one; `None` when it is something that this version does not understand.
    fn take(slot: &mut Self::Slot) -> Option<Self>;

    /// How much text of the target's choosing it is.
    fn text_bytes(&self) -> usize {
        0
    }

    /// For a type with few values: the name and the meaning of each.
    #[cfg(test)]
    fn choices() -> Vec<(&'static str, &'static [&'static str])> {
        Vec::new()
    }
}

/// A value that is one column: without NULLs, or as an `Option` with them.
pub(crate) trait Single: Sized {
    /// The column's type.
    type Data: PhysicalType;

    /// As the column has it.
    fn store(&self) -> <Self::Data as parquet::data_type::DataType>::T;

    /// The inverse; `None` when it is something that this version does not understand.
    fn restore(stored: <Self::Data as parquet::data_type::DataType>::T) -> Option<Self>;

    /// See [`Value::text_bytes`].
    fn text_bytes(&self) -> usize {
        0
    }

    /// See [`Value::choices`].
    #[cfg(test)]
    fn choices() -> Vec<(&'static str, &'static [&'static str])> {
        Vec::new()
    }
}

impl<T: Single> Value for T {
    type Slot = Required<T::Data>;

    fn put(&self, slot: &mut Self::Slot) {
        slot.put(self.store());
    }

    fn take(slot: &mut Self::Slot) -> Option<Self> {
        T::restore(slot.take())
    }

    fn text_bytes(&self) -> usize {
        Single::text_bytes(self)
    }

    #[cfg(test)]
    fn choices() -> Vec<(&'static str, &'static [&'static str])> {
        <T as Single>::choices()
    }
}

impl<T: Single> Value for Option<T> {
    type Slot = Nullable<T::Data>;

    fn put(&self, slot: &mut Self::Slot) {
        slot.put(self.as_ref().map(Single::store));
    }

    fn take(slot: &mut Self::Slot) -> Option<Self> {
        match slot.take() {
            Some(stored) => T::restore(stored).map(Some),
            None => Some(None),
        }
    }
}

/// Numbers that are stored as they are, or bit by bit as signed ones.
macro_rules! numbers {
    ($($type:ty as $data:ty),+) => {
        $(impl Single for $type {
            type Data = $data;

            fn store(&self) -> <$data as parquet::data_type::DataType>::T {
                *self as _
            }

            fn restore(stored: <$data as parquet::data_type::DataType>::T) -> Option<Self> {
                Some(stored as _)
            }
        })+
    };
}

numbers!(
    bool as BoolType,
    i32 as Int32Type,
    u32 as Int32Type,
    i64 as Int64Type,
    u64 as Int64Type
);

impl Single for u16 {
    type Data = Int32Type;

    fn store(&self) -> i32 {
        i32::from(*self)
    }

    fn restore(stored: i32) -> Option<Self> {
        Self::try_from(stored).ok()
    }
}

impl Single for String {
    type Data = ByteArrayType;

    fn store(&self) -> ByteArray {
        text(self)
    }

    fn restore(stored: ByteArray) -> Option<Self> {
        look_at_text(&stored, str::to_owned)
    }

    fn text_bytes(&self) -> usize {
        self.len()
    }
}

impl<const N: usize> Value for [u64; N] {
    type Slot = Many<Required<Int64Type>, N>;

    fn put(&self, slot: &mut Self::Slot) {
        for (column, value) in slot.0.iter_mut().zip(self) {
            column.put(*value as i64);
        }
    }

    fn take(slot: &mut Self::Slot) -> Option<Self> {
        Some(std::array::from_fn(|index| slot.0[index].take() as u64))
    }
}

impl Value for Parts {
    type Slot = Many<Required<Int64Type>, PART_COUNT>;

    fn put(&self, slot: &mut Self::Slot) {
        self.0.put(slot);
    }

    fn take(slot: &mut Self::Slot) -> Option<Self> {
        Value::take(slot).map(Parts)
    }
}

impl Value for Frame {
    type Slot = (Required<Int32Type>, Required<Int64Type>);

    fn put(&self, slot: &mut Self::Slot) {
        self.module.put(&mut slot.0);
        self.address.put(&mut slot.1);
    }

    fn take(slot: &mut Self::Slot) -> Option<Self> {
        let (module, address) = (u32::take(&mut slot.0), u64::take(&mut slot.1));
        Some(Frame {
            module: module?,
            address: address?,
        })
    }
}

impl Value for Option<Frame> {
    type Slot = (Nullable<Int32Type>, Nullable<Int64Type>);

    fn put(&self, slot: &mut Self::Slot) {
        self.map(|frame| frame.module).put(&mut slot.0);
        self.map(|frame| frame.address).put(&mut slot.1);
    }

    fn take(slot: &mut Self::Slot) -> Option<Self> {
        let module = <Option<u32> as Value>::take(&mut slot.0);
        let address = <Option<u64> as Value>::take(&mut slot.1);
        let frame = module?.zip(address?);
        Some(frame.map(|(module, address)| Frame { module, address }))
    }
}

/// A time that is stored as its distance from another one: small numbers pack well and are what
/// queries ask for.
pub(crate) trait Moment: Sized {
    /// How long after `start` it is.
    fn since(self, start: Ns) -> Self;

    /// How long before `end` it is. Its own inverse.
    fn until(self, end: Ns) -> Self;

    /// The inverse of `since`.
    fn after(self, start: Ns) -> Self;
}

impl Moment for Ns {
    fn since(self, start: Ns) -> Self {
        self.wrapping_sub(start)
    }

    fn until(self, end: Ns) -> Self {
        end.wrapping_sub(self)
    }

    fn after(self, start: Ns) -> Self {
        start.wrapping_add(self)
    }
}

impl Moment for Option<Ns> {
    fn since(self, start: Ns) -> Self {
        self.map(|at| at.since(start))
    }

    fn until(self, end: Ns) -> Self {
        self.map(|at| at.until(end))
    }

    fn after(self, start: Ns) -> Self {
        self.map(|length| length.after(start))
    }
}
