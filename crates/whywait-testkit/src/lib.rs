//! What the tests of several crates share.

mod generated;

pub use generated::{check_file, check_section, repository};
