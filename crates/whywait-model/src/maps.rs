//! Maps in which something is looked up for each row of a recording.
//!
//! A recording may come from a stranger, who could make up keys that all fall into one place. So
//! these maps are keyed at random, as the standard library's are; what they hash with takes a
//! fraction of the time.

use ahash::RandomState;

/// A map without order.
pub(crate) type HashMap<K, V> = std::collections::HashMap<K, V, RandomState>;
/// A set without order.
pub(crate) type HashSet<T> = std::collections::HashSet<T, RandomState>;
