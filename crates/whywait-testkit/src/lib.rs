//! What the tests of several crates share.

mod corpus;
mod generated;
mod markdown;
mod parallel;
#[cfg(test)]
mod type_names;

pub use corpus::{Found, Kept, Labels, TrueSaving, kept_recordings};
pub use generated::{blessing, check_file, check_section, repository};
pub use markdown::{paragraphs, wrapped};
pub use parallel::in_parallel;
