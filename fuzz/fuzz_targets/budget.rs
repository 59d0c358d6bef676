//! A budget for `whywait gate`. What is wrong with it is said with a line and a column of it.
#![no_main]

use std::path::Path;

use libfuzzer_sys::fuzz_target;
use whywait_compare::gate::Budget;

fuzz_target!(|input: &[u8]| {
    if let Ok(text) = str::from_utf8(input)
        && let Err(error) = Budget::parse(text, Path::new("budget.toml"))
    {
        assert!(!error.to_string().is_empty());
    }
});
