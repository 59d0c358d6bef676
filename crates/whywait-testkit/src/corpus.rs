//! The recordings that are kept of all labs, in `tests/corpus`, and what must be said of them.

use std::fs::{self, File};
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use serde::Deserialize;
use tempfile::TempDir;
use zstd::dict::DecoderDictionary;

use crate::repository;

/// One lab variant of which a recording is kept.
#[derive(Debug, Deserialize)]
pub struct Kept {
    /// The lab.
    pub lab: String,
    /// Its variant.
    pub variant: String,
    /// What must be said of it.
    #[serde(flatten)]
    pub labels: Labels,
}

/// What a report must and must not find: of a line of `tests/corpus/labels.json`, which
/// `labs/record-all` derives from the labs.
#[derive(Debug, Deserialize)]
pub struct Labels {
    /// Codes that must be found. The first is the fault, and so the first finding.
    pub must: Vec<String>,
    /// Codes that must not be found.
    pub must_not: Vec<String>,
    /// No finding may be worse than this, unless it is justified.
    pub max_severity: Option<String>,
    /// Codes that may be worse.
    pub justified: Vec<String>,
    /// What fixed twins saved.
    pub savings: Vec<TrueSaving>,
}

/// What a fix saved, by the clocks of clients or servers.
#[derive(Debug, Deserialize)]
pub struct TrueSaving {
    /// The finding that promises it.
    pub code: String,
    /// The fixed twin.
    pub against: String,
    /// What it saved, over all requests of the recording.
    pub saved_ns: i64,
    /// By how much that may be wrong.
    pub noise_ns: i64,
}

/// All recordings that are kept, by lab and variant.
///
/// # Panics
/// When there is no list of them.
pub fn kept_recordings() -> Vec<Kept> {
    let path = folder().join("labels.json");
    let file = File::open(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_reader(file).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// What recordings have in common.
static DICTIONARY: LazyLock<DecoderDictionary<'static>> = LazyLock::new(|| {
    let dictionary = fs::read(folder().join("dictionary")).expect("there is a dictionary");
    DecoderDictionary::copy(&dictionary)
});

/// To make a hundred files in memory takes a tenth of what it takes on a disk.
const MEMORY: &str = "/dev/shm";

fn folder() -> PathBuf {
    repository("tests/corpus")
}

impl Kept {
    /// As tables name it: `LAB VARIANT`.
    pub fn name(&self) -> String {
        format!("{} {}", self.lab, self.variant)
    }

    /// Unpacks it. The recording is the folder `recording` of what is returned.
    ///
    /// # Panics
    /// When it cannot be.
    pub fn unpack(&self) -> TempDir {
        let path = folder()
            .join(&self.lab)
            .join(format!("{}.tar.zst", self.variant));
        let scratch = match Path::new(MEMORY).is_dir() {
            true => tempfile::tempdir_in(MEMORY),
            false => tempfile::tempdir(),
        };
        let scratch = scratch.expect("a temporary folder can be made");
        File::open(&path)
            .and_then(|file| {
                zstd::Decoder::with_prepared_dictionary(BufReader::new(file), &DICTIONARY)
            })
            .and_then(|archive| tar::Archive::new(archive).unpack(scratch.path()))
            .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        scratch
    }
}
