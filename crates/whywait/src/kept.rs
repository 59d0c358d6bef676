//! The recordings of a rotation, the oldest of which go when they are too old, or all take too much
//! space.

use std::collections::{BTreeMap, VecDeque};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use whywait_events::recording::is_growing;

use crate::config::timestamp;
use crate::errors::complain;

const SUFFIX: &str = ".whywait";

/// The recordings of a folder, and what they may take.
pub(crate) struct Kept {
    folder: PathBuf,
    keep_for: Option<Duration>,
    max_bytes: Option<u64>,
    /// Those that have ended, the oldest first, with the space that they take.
    ended: VecDeque<(PathBuf, u64)>,
    /// Of the recording that goes on: what its segments take.
    growing: BTreeMap<PathBuf, u64>,
}

impl Kept {
    /// Those that are in the folder already.
    pub(crate) fn new(folder: PathBuf, keep_for: Option<Duration>, max_bytes: Option<u64>) -> Self {
        let mut found: Vec<PathBuf> = fs::read_dir(&folder)
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| entry.path())
            .filter(|path| is_ours(path))
            .collect();
        // Of the same second the first has no number.
        found.sort_by_key(|path| path.with_extension(""));
        remove_half_deleted(&folder);
        let mut kept = Self {
            folder,
            keep_for,
            max_bytes,
            ended: VecDeque::new(),
            growing: BTreeMap::new(),
        };
        found.into_iter().for_each(|path| kept.add(path));
        kept
    }

    /// Whether there is none.
    pub(crate) fn is_empty(&self) -> bool {
        self.ended.is_empty()
    }

    /// Where the next recording goes.
    pub(crate) fn next_path(&mut self, now: SystemTime) -> PathBuf {
        self.growing.clear();
        let since = now.duration_since(UNIX_EPOCH).unwrap_or_default();
        let stem = timestamp(since.as_secs());
        let name = |n: u32| match n {
            1 => format!("{stem}{SUFFIX}"),
            n => format!("{stem}-{n}{SUFFIX}"),
        };
        let free = (1..)
            .map(|n| self.folder.join(name(n)))
            .find(|path| !path.exists());
        free.expect("some number is free")
    }

    /// A recording has ended.
    pub(crate) fn add(&mut self, path: PathBuf) {
        if is_ours(&path) {
            let bytes = space(&path);
            self.ended.push_back((path, bytes));
        }
        self.growing.clear();
    }

    /// Deletes what is too old or too much.
    pub(crate) fn prune(&mut self) {
        self.prune_besides(0);
    }

    /// The same while a recording goes on. Gives whether that alone takes too much.
    pub(crate) fn prune_with(&mut self, growing: &Path) -> bool {
        let bytes = self.space_of_growing(growing);
        self.prune_besides(bytes);
        self.max_bytes.is_some_and(|max| bytes > max)
    }

    fn prune_besides(&mut self, more_bytes: u64) {
        let mut bytes = self
            .ended
            .iter()
            .map(|(_, bytes)| *bytes)
            .fold(more_bytes, u64::saturating_add);
        while let Some((path, own_bytes)) = self.ended.front() {
            let too_much = self.max_bytes.is_some_and(|max| bytes > max);
            let too_old = self.keep_for.is_some_and(|keep| age(path) > Some(keep));
            if !too_much && !too_old {
                return;
            }
            bytes = bytes.saturating_sub(*own_bytes);
            if !is_growing(path) {
                delete(path);
            }
            self.ended.pop_front();
        }
    }

    /// Segments that are closed do not change: each is looked at once.
    fn space_of_growing(&mut self, path: &Path) -> u64 {
        for entry in fs::read_dir(path).into_iter().flatten().flatten() {
            let path = entry.path();
            let open = path
                .extension()
                .is_some_and(|extension| extension == "open");
            if open || !self.growing.contains_key(&path) {
                let bytes = space(&path);
                self.growing.insert(path, bytes);
            }
        }
        // What was open has another name by now.
        self.growing.retain(|path, _| path.exists());
        self.growing.values().copied().fold(0, u64::saturating_add)
    }
}

/// Whether it is a recording of a rotation: nothing else is ever deleted.
fn is_ours(path: &Path) -> bool {
    let folder = fs::symlink_metadata(path).is_ok_and(|found| found.is_dir());
    is_dated(path) && folder && path.join("meta.json").is_file()
}

/// Whether it has the name of one.
fn is_dated(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    let stem = name.and_then(|name| name.strip_suffix(SUFFIX));
    stem.is_some_and(|stem| {
        let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        let parts: Vec<&str> = stem.split('-').collect();
        matches!(parts.as_slice(), [day, time, ..] if day.len() == 8 && time.len() == 6)
            && parts.len() <= 3
            && parts.into_iter().all(digits)
    })
}

/// For how long it has not been written to: `meta.json` is written as a recording ends.
fn age(path: &Path) -> Option<Duration> {
    let written = fs::metadata(path.join("meta.json")).ok()?.modified().ok()?;
    SystemTime::now().duration_since(written).ok()
}

/// The space that a file or folder takes on the disk, with all that is in it.
fn space(path: &Path) -> u64 {
    let Ok(found) = fs::symlink_metadata(path) else {
        return 0;
    };
    let own = found.blocks().saturating_mul(512);
    if !found.is_dir() {
        return own;
    }
    let within = fs::read_dir(path).into_iter().flatten().flatten();
    within
        .map(|entry| space(&entry.path()))
        .fold(own, u64::saturating_add)
}

/// What a deletion left that was cut off.
fn remove_half_deleted(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        let before = path.with_extension("");
        if path.extension().is_some_and(|extension| extension == "old") && is_dated(&before) {
            let _ = fs::remove_dir_all(path);
        }
    }
}

/// Deletes a recording. The rename comes first, so that nobody sees half of it.
pub(crate) fn delete(path: &Path) {
    let doomed = path.with_extension("whywait.old");
    let deleted = fs::rename(path, &doomed).and_then(|()| fs::remove_dir_all(&doomed));
    if let Err(error) = deleted {
        complain(&format!("cannot delete {}: {error}", path.display()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    fn recording(folder: &Path, name: &str) -> PathBuf {
        let path = folder.join(name);
        fs::create_dir(&path).expect("a folder");
        fs::write(path.join("meta.json"), "{}").expect("a file");
        fs::write(path.join("rows"), vec![7; MIB]).expect("a file");
        path
    }

    #[test]
    fn the_oldest_go_when_all_take_too_much() {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let names = [
            "20260101-000000.whywait",
            "20260101-010000.whywait",
            "20260101-010000-2.whywait",
            "20260101-020000.whywait",
            "mine",
            "20260101-030000",
        ];
        for name in names {
            recording(dir.path(), name);
        }
        let mut kept = Kept::new(dir.path().to_path_buf(), None, Some(3 * MIB as u64));
        kept.prune();
        let left = names.map(|name| dir.path().join(name).exists());
        assert_eq!(left.iter().filter(|left| **left).count(), 4, "{left:?}");
        assert!(!left[0] && left[3] && left[4] && left[5], "{left:?}");
        let growing = recording(dir.path(), "20260101-040000.whywait");
        assert!(!kept.prune_with(&growing));
        assert!(!dir.path().join(names[1]).exists());
        fs::write(growing.join("seg"), vec![7; 4 * MIB]).expect("a file");
        assert!(kept.prune_with(&growing), "it alone takes more");
        assert!(kept.is_empty() && growing.exists());
    }

    #[test]
    fn the_old_go() {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let old = recording(dir.path(), "20260101-000000.whywait");
        let new = recording(dir.path(), "20260101-010000.whywait");
        let meta = fs::File::options()
            .write(true)
            .open(old.join("meta.json"))
            .expect("a file");
        let hours_ago = |hours: u64| SystemTime::now() - Duration::from_secs(hours * 3600);
        meta.set_modified(hours_ago(5))
            .expect("its time can be set");
        let keep = Some(Duration::from_secs(4 * 3600));
        Kept::new(dir.path().to_path_buf(), keep, None).prune();
        assert!(!old.exists() && new.exists());
    }
}
