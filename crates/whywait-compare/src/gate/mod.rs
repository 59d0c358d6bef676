//! `whywait gate`: holds recordings against a budget.

pub mod baseline;
pub mod budget;
pub mod date;
pub mod github;
pub mod init;
pub mod judge;
pub mod junit;
pub mod limit;
mod regression;
pub mod text;

pub use baseline::Baseline;
pub use budget::{Budget, BudgetError};
pub use date::Date;
pub use judge::{GateLine, Judgement, LineOutcome, judge};
