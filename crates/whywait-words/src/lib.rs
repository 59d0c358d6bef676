//! How whywait writes figures, lists and hostile names: one style for titles and evidence, text,
//! pages, Markdown, `diff` and `gate`.
//!
//! - A figure has three digits: `7.97 s`, `46.3 us`, `943,000`. One that is exact has no zeros
//!   behind it: `1 ms`, `1.5 s`.
//! - A count is exact, with commas between thousands: `12,345`.
//! - A share is in whole percent, with a decimal where that tells something: below 10 % and above
//!   99 %. `0 %` is nothing, `100 %` is all of it.
//! - Two bounds have their unit once: `120 to 220 ms`.
//!
//! This is all about how something is written. What is said, and where a line ends, is for others
//! to decide.

mod counts;
mod durations;
mod escape;
mod figures;
mod lists;
pub mod markdown;
mod percents;
mod processes;
mod secrets;

pub use counts::{Count, capitalised, count, counted, counted_as};
pub use durations::{duration, duration_range, mean_duration};
pub use escape::{Charset, columns, escape, shows, width};
pub use figures::{bytes, figure, rate};
pub use lists::{list, list_by, shares};
pub use percents::{percent, percent_change, percent_range, ratio_percent, whole_percent};
pub use processes::{KEPT_NAME_BYTES, pid, process_name, program_name};
pub use secrets::without_secrets;
