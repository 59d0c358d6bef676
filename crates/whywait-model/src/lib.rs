//! Replays a recording into threads, waits, pools and requests, and accounts for each request's
//! time.
//!
//! A pure function of a recording: no kernel, no clock, no printing. The way of the data:
//!
//! ```text
//! recording ── input ──> rows that matter ── timeline ──> what each thread did when
//!                                          ├─ pools ────> which threads can stand in for each other
//!                                          ├─ accounting > where each request's time went
//!                                          └─ path ─────> a request's critical path
//! ```

mod coverage;
pub mod cpu;
mod input;
mod model;
pub mod path;
pub mod pools;
pub mod requests;
pub mod rings;
pub mod script;
mod stacks;
mod timeline;
pub mod waits;

pub use coverage::{Coverage, Target};
pub use input::{Input, Polls};
pub use model::Model;
pub use path::{Path, PathStep};
pub use pools::{EpollPool, Membership, PoolMember, StrandedInterval};
pub use requests::{Account, RequestRef};
pub use stacks::{FrameOrigin, Label, StackNames, StackText, app_frame, origin};
pub use timeline::{Activity, Thread, Timeline};
pub use waits::{
    SystemCall, WaitClass, WaitKind, descriptor, system_call, system_call_name, wait_kind,
};
