//! Waits: what threads slept for.

pub mod futex;
pub(crate) mod kernel;
pub(crate) mod locks;
pub mod objects;
pub(crate) mod sleeps;
pub(crate) mod system_call;
pub(crate) mod table;

pub use table::{WaitRow, WaitThread, WaitWaker};
