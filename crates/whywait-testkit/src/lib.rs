//! What the tests of several crates share.

mod generated;
mod markdown;

pub use generated::{check_file, check_section, repository};
pub use markdown::{paragraphs, wrapped};
