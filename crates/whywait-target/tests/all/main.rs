//! Names of targets, with real processes.

mod cgroups;
mod common;
mod many;
mod names;
mod numbers;
mod ports;
