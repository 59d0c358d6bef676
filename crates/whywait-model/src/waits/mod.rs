//! Waits: what threads slept for.

mod at_a_time;
pub(crate) mod futex;
pub(crate) mod handover;
pub(crate) mod kind;
pub(crate) mod locks;
pub(crate) mod meaning;
pub(crate) mod monitors;
pub(crate) mod objects;
pub(crate) mod sleeps;
pub(crate) mod system_call;
pub(crate) mod table;

pub use futex::{Primitive, Seen, WaitClass};
pub use kind::{WaitKind, broad_kind, wait_kind};
pub use locks::{Across, Hold, Locks};
pub use objects::{WaitKey, WaitObject, WaitObjects, WaitSums};
pub use system_call::{
    SystemCall, descriptor, is_accept, polls_unread, system_call, system_call_name,
};
pub use table::{WaitRow, WaitThread, WaitWaker};
