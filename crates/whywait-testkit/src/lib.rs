//! What the tests of several crates share.

mod generated;
mod markdown;

pub use generated::{blessing, check_file, check_section, repository};
pub use markdown::{paragraphs, wrapped};
