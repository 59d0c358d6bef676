//! Replays a recording into threads, waits, pools and requests, and accounts for each request's time.
//!
//! A pure function of a recording: no kernel, no clock, no printing.

pub mod summary;
