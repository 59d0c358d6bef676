//! The model, on scripts of events.

mod accounting;
mod critical_path;
mod open;
