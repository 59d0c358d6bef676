//! What collectors share: the BPF object, the session that drives them, and the recorder.

pub(crate) mod check;
pub(crate) mod collector;
pub(crate) mod cost;
pub(crate) mod counters;
pub(crate) mod error;
pub(crate) mod functions;
pub(crate) mod hooks;
pub(crate) mod incoming;
pub(crate) mod iterate;
pub(crate) mod kernel;
pub(crate) mod limits;
mod names;
pub(crate) mod options;
pub(crate) mod output;
pub(crate) mod perf;
pub(crate) mod processes;
pub(crate) mod programs;
pub(crate) mod recorder;
pub(crate) mod records;
pub(crate) mod refused;
pub(crate) mod session;
pub(crate) mod shared;
pub(crate) mod skel;
pub(crate) mod sleeps;
pub(crate) mod so_far;
mod stack_numbers;
#[cfg(test)]
mod stack_tests;
pub(crate) mod suspects;
pub(crate) mod target;
pub(crate) mod thread_table;
pub(crate) mod tier;
pub(crate) mod wakeups;
