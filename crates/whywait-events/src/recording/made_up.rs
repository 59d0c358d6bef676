//! Made-up values, for tests.

use std::collections::BTreeMap;

use proptest::arbitrary::any;
use proptest::collection::{btree_map, vec};
use proptest::prop_oneof;
use proptest::strategy::{BoxedStrategy, Strategy};

use super::column::Layout;
use crate::{Frame, PART_COUNT, Parts, Stack};

/// A type of which tests make up values.
pub(crate) trait MadeUp: Sized {
    /// Values for a column of this layout.
    fn made_up(layout: Layout) -> BoxedStrategy<Self>;
}

/// The rows, with a field set.
pub(crate) fn with_field<R, T>(
    rows: BoxedStrategy<R>,
    values: BoxedStrategy<T>,
    set: impl Fn(&mut R, T) + 'static,
) -> BoxedStrategy<R>
where
    R: std::fmt::Debug + 'static,
    T: std::fmt::Debug + 'static,
{
    (rows, values)
        .prop_map(move |(mut row, value)| {
            set(&mut row, value);
            row
        })
        .boxed()
}

macro_rules! any_number {
    ($($type:ty),+) => {
        $(impl MadeUp for $type {
            fn made_up(_: Layout) -> BoxedStrategy<Self> {
                any::<$type>().boxed()
            }
        })+
    };
}

any_number!(bool, i32, i64);

impl MadeUp for u32 {
    fn made_up(layout: Layout) -> BoxedStrategy<Self> {
        match layout {
            // Ids are few, so that rows refer to each other.
            Layout::Dictionary => prop_oneof![8 => 0u32..20, 1 => any::<u32>()].boxed(),
            _ => any::<u32>().boxed(),
        }
    }
}

impl MadeUp for u64 {
    fn made_up(layout: Layout) -> BoxedStrategy<Self> {
        match layout {
            // Times.
            Layout::DeltaBounds => {
                prop_oneof![8 => 1_000_000_000u64..9_000_000_000, 1 => any::<u64>()].boxed()
            }
            _ => any::<u64>().boxed(),
        }
    }
}

impl MadeUp for u16 {
    fn made_up(_: Layout) -> BoxedStrategy<Self> {
        prop_oneof![1 => 0u16..4, 1 => any::<u16>()].boxed()
    }
}

impl MadeUp for String {
    fn made_up(_: Layout) -> BoxedStrategy<Self> {
        prop_oneof![3 => "[a-z:<>]{0,30}", 1 => any::<String>()].boxed()
    }
}

impl<T: MadeUp + Clone + std::fmt::Debug + 'static> MadeUp for Option<T> {
    fn made_up(layout: Layout) -> BoxedStrategy<Self> {
        proptest::option::of(T::made_up(layout)).boxed()
    }
}

impl MadeUp for [u64; 3] {
    fn made_up(_: Layout) -> BoxedStrategy<Self> {
        any::<[u64; 3]>().boxed()
    }
}

impl MadeUp for Parts {
    fn made_up(_: Layout) -> BoxedStrategy<Self> {
        any::<[u64; PART_COUNT]>().prop_map(Parts).boxed()
    }
}

impl MadeUp for Frame {
    fn made_up(layout: Layout) -> BoxedStrategy<Self> {
        let address = prop_oneof![4 => 0u64..8, 1 => any::<u64>()];
        (u32::made_up(layout), address)
            .prop_map(|(module, address)| Frame { module, address })
            .boxed()
    }
}

impl MadeUp for Stack {
    fn made_up(layout: Layout) -> BoxedStrategy<Self> {
        let id = u32::made_up(Layout::Dictionary);
        (id, any::<bool>(), vec(Frame::made_up(layout), 0..12))
            .prop_map(|(id, truncated, frames)| Stack {
                id,
                truncated,
                frames,
            })
            .boxed()
    }
}

/// The buckets of a histogram.
impl MadeUp for BTreeMap<u16, u64> {
    fn made_up(_: Layout) -> BoxedStrategy<Self> {
        btree_map(0u16..64, any::<u64>(), 0..5).boxed()
    }
}

impl<T: MadeUp + std::fmt::Debug + 'static> MadeUp for Box<T> {
    fn made_up(layout: Layout) -> BoxedStrategy<Self> {
        T::made_up(layout).prop_map(Box::new).boxed()
    }
}
