//! Stacks and names of real programs.

mod common;
mod goroutines;
mod hostile;
mod programs;
mod python;
mod speed;
mod survey;
mod symbols;
