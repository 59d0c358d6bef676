//! Watches a process with BPF and writes what it waited for into a recording.
//!
//! The only crate that needs a kernel. `collectors` has a folder for each thing that is watched,
//! with its BPF programs and the Rust that loads, decodes and counts what they give, side by side.
//! The programs keep sums for everything and send records only for what is slow, rare or new.
//! `core` has what collectors share: [`Session`] loads and attaches the programs, hands their
//! records to the collectors, which turn them into the vocabulary of `whywait-events`, and writes
//! the recording.
//!
//! Nothing is pinned: when whywait ends, however it ends, the kernel takes the programs off.

mod collectors;
mod core;

pub use core::check::{Rehearsal, rehearse};
pub use core::error::CaptureError;
pub use core::kernel::host;
pub use core::limits::{NO_KERNEL_NAMES, Refusal};
pub use core::options::{NamesWanted, Options};
pub use core::refused::Refused;
pub use core::session::{Outcome, Session};
pub use core::so_far::SoFar;
pub use core::target::{Target, TargetServer};
pub use core::tier::Tier;
