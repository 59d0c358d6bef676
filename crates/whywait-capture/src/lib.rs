//! Watches a process with BPF and writes what it waited for into a recording.
//!
//! The only crate that needs a kernel. Each collector has a folder in `src/collectors`, with its BPF
//! subsystem; they keep sums for everything and send records only for what is slow, rare or new.
//! [`Session`] loads and attaches them, turns their records into the vocabulary of
//! `whywait-events`, unwinds stacks on arrival and writes the recording.
//!
//! Nothing is pinned: when whywait goes, however it goes, the kernel takes the programs off.

mod burst;
mod check;
mod clock;
mod cost;
mod counters;
mod cpu;
mod cpu_limit;
mod error;
mod iterate;
mod kernel;
mod known_stacks;
mod options;
mod perf;
mod programs;
mod recorder;
mod records;
mod session;
mod skel;
mod sockets;
mod target;
mod thread_table;
mod urings;
mod wakeups;

pub use check::rehearse;
pub use error::CaptureError;
pub use kernel::host;
pub use options::Options;
pub use session::{Outcome, Session};
pub use target::{alive, command_line};
