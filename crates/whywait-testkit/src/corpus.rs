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
    /// Codes that must not be found, not even as notes.
    pub must_not: Vec<String>,
    /// No finding may be worse than this, unless it is justified.
    pub max_severity: Option<String>,
    /// Codes that may be found besides, or be worse. Nothing else may, but notes of
    /// `labs/notes.json`.
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

/// What was found, as labels see it.
#[derive(Debug)]
pub struct Found<'a> {
    /// Which.
    pub code: &'a str,
    /// How bad: the name. `None`: it is a line of another finding, and none of its own.
    pub severity: Option<&'a str>,
    /// What a fix saves at most.
    pub at_most_ns: u64,
}

impl Labels {
    /// Which of them do not hold of what was found, the first finding first, and of whether
    /// requests are said to be late.
    pub fn violations(&self, found: &[Found<'_>], late: bool) -> Vec<String> {
        let with = |code: &str| found.iter().find(|finding| finding.code == code);
        let mut wrong = Vec::new();
        for code in &self.must {
            if with(code).is_none() {
                wrong.push(format!("{code} is missing"));
            }
        }
        for code in &self.must_not {
            if with(code).is_some() {
                wrong.push(format!("{code} is wrong"));
            }
        }
        let own = || {
            let own = found.iter();
            own.filter_map(|finding| Some((finding.code, finding.severity?)))
        };
        for Found { code, severity, .. } in found {
            let severity = severity.unwrap_or(LINE);
            if !self.expect(code, severity) {
                wrong.push(format!("{severity} {code} is not expected"));
            }
        }
        if let Some(fault) = self.must.first()
            && found.first().is_none_or(|first| first.code != fault)
        {
            wrong.push(format!("{fault} is not first"));
        }
        if let Some(most) = &self.max_severity {
            let worse = own().filter(|(code, found)| {
                severity(found) > severity(most)
                    && !self.justified.iter().any(|justified| justified == code)
            });
            wrong.extend(worse.map(|(code, severity)| format!("{severity} {code} is too bad")));
            if late {
                wrong.push("requests are said to be late".to_owned());
            }
        }
        for saving in &self.savings {
            // The worst comes first: it is the fault that the lab was given.
            let bound_ns = with(&saving.code).map_or(0, |finding| finding.at_most_ns);
            if (bound_ns as f64) < (saving.saved_ns - saving.noise_ns) as f64 {
                wrong.push(format!(
                    "{} saves {:.1} ms at most, {} saved {:.1} ms, give or take {:.1}",
                    saving.code,
                    bound_ns as f64 / MS,
                    saving.against,
                    saving.saved_ns as f64 / MS,
                    saving.noise_ns as f64 / MS
                ));
            }
        }
        wrong
    }
}

impl Labels {
    /// Whether this may be found.
    fn expect(&self, found: &str, severity: &str) -> bool {
        let is_in = |codes: &[String]| codes.iter().any(|code| code == found);
        is_in(&self.must)
            || is_in(&self.justified)
            || (matches!(severity, "note" | LINE) && is_in(NOTES.as_slice()))
    }
}

/// Findings that are no faults as notes.
static NOTES: LazyLock<Vec<String>> = LazyLock::new(|| {
    let path = repository("labs/notes.json");
    let file = File::open(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_reader(file).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
});

/// In place of a severity: a line of another finding.
const LINE: &str = "a line of";

const MS: f64 = 1e6;

fn severity(name: &str) -> Option<usize> {
    ["note", "warning", "error"]
        .iter()
        .position(|severity| *severity == name)
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
