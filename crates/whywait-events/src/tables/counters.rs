//! The table `counters`.

use crate::recording::table;

table! {
    /// What was counted since the recording began, as it stood when the segment was closed. The
    /// value in the last segment that has a name is the one for the whole recording; counts never
    /// fall, so that is the greatest one.
    pub(crate) struct Counter {
        /// See [below](#counters).
        name: String = Plain,
        /// The count.
        value: u64 = Plain,
    }
}
