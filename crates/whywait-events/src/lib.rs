//! The vocabulary of whywait: what the capture records, what a recording holds and what the model
//! replays.
//!
//! Everything here is plain data. This crate knows nothing of BPF, needs no kernel and has no
//! `unsafe` code, so that a recording can be read on any machine.
//!
//! All times are nanoseconds of `CLOCK_MONOTONIC` (what `bpf_ktime_get_ns` returns), all durations
//! nanoseconds.

mod names;
mod part;
pub mod recording;
mod tables;

pub use part::{PART_COUNT, Part, Parts};
pub use tables::*;

/// A point in time: nanoseconds of `CLOCK_MONOTONIC`.
pub type Ns = u64;

/// Identifies a stack within a recording; 0 means "no stack was taken".
pub type StackId = u32;
