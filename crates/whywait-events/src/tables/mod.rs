//! The tables of a recording: each is declared once, in a file of this folder, and listed in
//! `list.rs`.
//!
//! A declaration ([`table!`](crate::recording::table)) is the struct of a row and, of each field,
//! its column. Reading, writing, the rows that tests make up and the table's section of
//! `docs/recording.md` come from it. A new column is one line there, and `or 0` (or another value
//! that older recordings have instead): they do not have the column.
//!
//! A new table is a declaration marked `#[table(later)]`, and a line in the list. Without an event
//! of its own (`as …`) somebody else's [`Record`](crate::recording::Record) has to write its rows.

mod bursts;
mod busy;
mod counters;
mod cpu;
mod futexes;
mod list;
mod preempted;
mod requests;
mod samples;
mod sockets;
mod stacks;
mod threads;
pub mod uring;
mod waits;

pub use bursts::*;
pub use busy::*;
pub(crate) use counters::*;
pub use cpu::*;
pub use futexes::*;
pub use list::Event;
pub(crate) use list::{Writers, each_table};
pub use preempted::*;
pub use requests::*;
pub use samples::*;
pub use sockets::*;
pub use stacks::*;
pub use threads::*;
pub use waits::*;
