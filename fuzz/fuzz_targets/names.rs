//! The first bytes of a request or a call, of which a name is made. It can be seen, and is short.
#![no_main]

use libfuzzer_sys::fuzz_target;
use whywait_names::{LONGEST, Said, question, said};

fuzz_target!(|input: &[u8]| {
    let Some((head, bytes)) = input.split_first_chunk() else {
        return;
    };
    let number = u16::from_le_bytes(*head);
    let total = bytes.len() as u64 + u64::from(number);
    let said = said(bytes, total);
    let name = match said {
        Some(Said::Route(name) | Said::Statement(name) | Said::Prepares(_, name)) => name,
        Some(Said::Runs(_)) | None => question(number),
    };
    assert!(name.len() <= LONGEST && name.bytes().all(|byte| (b' '..=b'~').contains(&byte)));
});
