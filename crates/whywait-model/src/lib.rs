//! Replays a recording into threads, waits, pools and requests, and accounts for each request's
//! time.
//!
//! A pure function of a recording: no kernel, no clock, no printing. The path of the data:
//!
//! ```text
//! recording ── input ──> rows that matter ── timeline ──> what each thread did when
//!                                          ├─ pools ────> which threads stand in for each other
//!                                          ├─ path ─────> a request's critical path
//!                                          └─ requests ─> where each request's time went
//! ```
//!
//! A room for each: [`requests`], [`calls`], [`waits`], [`path`], [`pools`], [`rings`] and
//! [`cpu`]. Each has its data, what is found out about it, and its section of the report.

pub mod calls;
mod coverage;
pub mod cpu;
pub mod dns;
mod incomplete;
mod input;
mod model;
pub mod path;
pub mod pools;
pub mod requests;
pub mod rings;
mod roles;
mod rows;
pub mod script;
mod secrets;
mod stacks;
mod stops;
mod timeline;
pub mod waits;

pub use calls::Peer;
pub use coverage::{Coverage, Target};
pub use incomplete::{Incomplete, Lack};
pub use input::{Input, Polls};
pub use model::Model;
pub use path::{Path, PathStep};
pub use pools::{EpollPool, Membership, PoolMember, StrandedInterval};
pub use requests::{Account, RequestRef};
pub use roles::Role;
pub use rows::Rows;
pub use stacks::{
    FrameOrigin, Hidden, Label, StackNames, StackText, app_frame, app_frames, generic_frame,
    hidden, origin, stable_name,
};
pub use stops::Stopped;
pub use timeline::{Activity, Thread, Timeline};
pub use waits::{
    SystemCall, WaitClass, WaitKind, broad_kind, descriptor, is_accept, system_call,
    system_call_name, wait_kind,
};
