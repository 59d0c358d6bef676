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
pub use cpu::bursts as spin;
pub use cpu::sockets;
pub use input::{Input, Polls};
pub use model::Model;
pub use path::{Path, PathStep, Step};
pub use pools::{Evidence, Member, Pool, Stranded};
pub use requests::{Account, RequestRef, RequestSums};
pub use stacks::{FrameOrigin, Label, StackNames, StackText, app_frame, origin};
pub use timeline::{Activity, Thread, Timeline};
pub use waits::futex::{self, Class};
pub use waits::kernel::{Kind, kind};
pub use waits::locks::{Across, Hold};
pub use waits::objects;
pub use waits::system_call::{Call, call, call_name, descriptor};
