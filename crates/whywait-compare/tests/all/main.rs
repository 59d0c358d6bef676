//! Comparisons and budgets.

mod budgets;
mod common;
mod diff;
mod gate;
mod permutation;
mod rates;
