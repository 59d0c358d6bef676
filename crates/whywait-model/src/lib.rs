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

mod accounting;
mod call;
pub mod cpu;
pub mod futex;
mod input;
mod kind;
mod latency;
mod locks;
mod model;
pub mod objects;
mod path;
mod pools;
pub mod ring_sockets;
pub mod rings;
pub mod script;
mod sleeps;
pub mod sockets;
pub mod spin;
mod stacks;
pub mod summary;
mod timeline;
pub mod waits;

pub use accounting::Account;
pub use call::{Call, call, call_name, descriptor};
pub use futex::Class;
pub use input::{Input, Polls, RequestSums};
pub use kind::{Kind, kind};
pub use locks::{Across, Hold};
pub use model::Model;
pub use path::{Path, PathStep};
pub use pools::{Evidence, Member, Pool, Stranded};
pub use stacks::{FrameOrigin, Label, StackNames, StackText, app_frame, origin};
pub use timeline::{Activity, Thread, Timeline};
