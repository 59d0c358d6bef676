//! Replays a recording into threads, waits, pools and requests, and accounts for each request's
//! time.
//!
//! A pure function of a recording: no kernel, no clock, no printing. It is built in layers. Each is
//! a struct that has the one below it and derefs to it, so that what is known below is known above;
//! none knows of one above it:
//!
//! ```text
//! Model     paths and accounts: where each request's time went           model.rs
//! Linked    which calls are which request's                              calls/linked.rs
//! Lives     how far each request got, and where its threads rest         requests/lives.rs
//! Locks     who let go of each lock                                      waits/locks.rs
//! Joined    what threads did when, pools, rings, objects, calls          joined.rs
//! Recorded  what the recording says by itself                            recorded.rs
//! Input     rows as they were read, capped by `Rows`                     input.rs
//! ```
//!
//! The sections of the report come after the last layer: `requests/summary.rs`, `waits/table/`,
//! `calls/table.rs`, `rings/row.rs`, `cpu/summary.rs`, `coverage.rs`.
//!
//! A room for each: [`requests`], [`calls`], [`waits`], [`path`], [`pools`], [`rings`] and
//! [`cpu`]. Each has its data, what is found out about it, and its section of the report.

pub mod calls;
mod coverage;
pub mod cpu;
pub mod dns;
mod file_locks;
mod incomplete;
mod input;
mod joined;
mod maps;
mod model;
mod names;
pub mod path;
pub mod pools;
mod recorded;
pub mod requests;
pub mod rings;
mod roles;
mod rows;
pub mod script;
mod stacks;
mod stops;
mod timeline;
pub mod waits;

pub use calls::Peer;
pub use calls::linked::Linked;
pub use coverage::{Coverage, Target};
pub use file_locks::{FileLockHolder, FileLocks, LockedFile};
pub use incomplete::{Incomplete, Lack};
pub use input::{Input, Polls};
pub use joined::Joined;
pub use model::Model;
pub use path::{Path, PathStep};
pub use pools::{EpollPool, Membership, PoolMember, StrandedInterval};
pub use recorded::Recorded;
pub use requests::{Account, RequestRef};
pub use roles::Role;
pub use rows::Rows;
pub use stacks::{
    FrameOrigin, Hidden, Label, StackNames, StackText, app_frame, app_frames, file_of_address,
    generic_frame, hidden, origin, stable_name,
};
pub use stops::Stopped;
pub use timeline::{Activity, Thread, Timeline};
pub use waits::{
    SystemCall, WaitClass, WaitKind, broad_kind, descriptor, is_accept, polls_unread, system_call,
    system_call_name, wait_kind,
};
