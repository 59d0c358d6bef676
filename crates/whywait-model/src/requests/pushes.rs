//! Pushes: what the target sent unasked, to one connection after another.

use whywait_events::Push;

use crate::rows::Rows;

/// Those of a recording that took long.
pub type Pushes = Rows<Push, 100_000>;
