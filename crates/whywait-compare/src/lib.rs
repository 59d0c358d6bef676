//! Comparing recordings: `whywait diff` and `whywait gate`.
//!
//! ```text
//! recordings ── measures ──> what each run's analysis gives, by names that hold from run to run
//!                 ├─ changes ──> what differs between two sides: how much, and how sure
//!                 │    │         (permutation, effect)
//!                 │    └─ diff > what got worse, what got better, what is new, and why (explain);
//!                 │              text, JSON
//!                 └─ gate ─────> what breaks a budget; text, JSON, JUnit, annotations
//! ```
//! No kernel, no clock, nothing printed: views are strings.

pub mod changes;
pub mod diff;
pub mod effect;
pub mod explain;
pub mod gate;
pub mod json;
pub mod measures;
pub mod permutation;
pub mod side;
pub mod text;

pub use changes::{Change, ChangeOptions, Trend};
pub use diff::Diff;
pub use measures::{Better, Group, Measure, Run, Unit};
pub use side::Side;
