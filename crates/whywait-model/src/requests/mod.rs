//! Requests: their time, and where it went.

pub(crate) mod account;
pub(crate) mod histogram;
pub mod summary;
