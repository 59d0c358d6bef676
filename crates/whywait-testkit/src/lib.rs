//! What the tests of several crates share.

mod generated;

pub use generated::{blessing, check_file, check_section, repository};
