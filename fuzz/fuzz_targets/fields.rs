//! Blocks of HTTP/2's fields, one after another on a connection. A name can be seen, and is short.
#![no_main]

use libfuzzer_sys::fuzz_target;
use whywait_names::{FieldTable, LONGEST};

fuzz_target!(|input: &[u8]| {
    let mut table = FieldTable::default();
    for block in input.split(|byte| *byte == b'\n') {
        let Ok(Some(name)) = table.name(block) else {
            continue;
        };
        assert!(name.len() <= LONGEST && name.bytes().all(|byte| (b' '..=b'~').contains(&byte)));
    }
});
