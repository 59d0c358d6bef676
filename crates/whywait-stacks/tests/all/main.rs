//! Stacks and names of real programs.

mod asyncio;
mod common;
mod goroutines;
mod hostile;
mod interpreted;
mod java;
mod node;
mod programs;
mod python;
mod speed;
mod survey;
mod symbols;
