//! Writes a recording anew, for an archive: as one segment, packed as a whole. It reads the same.
//!
//! ```text
//! cargo run -p whywait-events --example one_segment FROM TO
//! ```
//!
//! `labs/record-all` keeps recordings so. Each segment has a file for each table, with a schema of
//! its own, and what was compressed apart does not compress together.

use std::error::Error;
use std::path::Path;

use whywait_events::recording::{Packing, Recording, Writer, WriterOptions};

fn main() -> Result<(), Box<dyn Error>> {
    let folders: Vec<_> = std::env::args_os().skip(1).collect();
    let [from, to] = &folders[..] else {
        return Err("usage: one_segment FROM TO".into());
    };
    let recording = Recording::open(Path::new(from))?;
    if !recording.meta().complete {
        return Err("the recording is not complete".into());
    }
    let options = WriterOptions {
        packing: Packing::Whole,
        ..WriterOptions::default()
    };
    let mut writer = Writer::create_with(Path::new(to), recording.meta(), options)?;
    writer.copy(&recording)?;
    writer.finish(recording.meta())?;
    Ok(())
}
