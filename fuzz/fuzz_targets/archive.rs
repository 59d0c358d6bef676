//! A file that should be a recording in one piece.
#![no_main]

use std::io::Write;

use libfuzzer_sys::fuzz_target;
use tempfile::NamedTempFile;
use whywait_events::recording::Recording;
use whywait_model::{Input, Model};

fuzz_target!(init: whywait_fuzz::only_ours_end_it(), |input: &[u8]| {
    let mut file = NamedTempFile::new().expect("a temporary file");
    file.write_all(input).expect("the file is writable");
    if let Ok(recording) = Recording::open(file.path()) {
        Model::new(Input::read(&recording).expect("it was unpacked here"));
    }
});
