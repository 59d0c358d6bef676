//! A file of a recording that holds anything, among files of a sound one: the whole report.
//!
//! An input is the table's name, a zero byte and the file.
#![no_main]

use std::fs;
use std::path::PathBuf;
use std::sync::LazyLock;

use flate2::read::GzDecoder;
use libfuzzer_sys::fuzz_target;
use tar::Archive;
use tempfile::TempDir;
use whywait_events::recording::Recording;
use whywait_model::{Input, Model};
use whywait_report::{Report, to_json};

static SOUND: &[u8] = include_bytes!("../../tests/recordings/snapshot-mutex.tar.gz");

/// A sound recording, for as long as the process runs.
static FOLDER: LazyLock<TempDir> = LazyLock::new(|| {
    let folder = TempDir::new().expect("a temporary folder");
    let unpacked = Archive::new(GzDecoder::new(SOUND)).unpack(&folder);
    unpacked.expect("the recording unpacks");
    folder
});

fuzz_target!(init: whywait_fuzz::only_ours_end_it(), |input: &[u8]| {
    let Some(end) = input.iter().position(|byte| *byte == 0) else {
        return;
    };
    let (name, file) = (&input[..end], &input[end + 1..]);
    let is_name = |byte: &u8| byte.is_ascii_lowercase() || *byte == b'_';
    if name.len() > 32 || !name.iter().all(is_name) {
        return;
    }
    let recording = FOLDER.path().join("snapshot-mutex");
    let name = String::from_utf8_lossy(name);
    let path: PathBuf = recording.join(format!("seg-000001/{name}.parquet"));
    let Ok(sound) = fs::read(&path) else { return };
    fs::write(&path, file).expect("the folder is writable");
    let read = Recording::open(&recording).and_then(|it| Input::read(&it));
    let report = Report::of(&Model::new(
        read.expect("it is a recording, if a damaged one"),
    ));
    to_json(&report).expect("the report can be written");
    fs::write(&path, sound).expect("the folder is writable");
});
