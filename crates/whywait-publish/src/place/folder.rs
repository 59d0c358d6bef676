//! A folder, which several machines may share.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use super::{Place, PlaceError};

/// A temporary file of this age was left by a publisher that is gone.
const LEFT_OVER: Duration = Duration::from_secs(3600);

/// A folder, which is made when it is not there.
#[derive(Debug, Clone)]
pub struct Folder(PathBuf);

impl Folder {
    /// This folder.
    pub fn new(path: &Path) -> Self {
        Self(path.to_path_buf())
    }
}

impl Place for Folder {
    /// The file gets its name when it is whole and on the disk: a reader sees the old one or the
    /// new one. Engines do not look at names that begin with a dot.
    fn put(&self, path: &str, bytes: Vec<u8>) -> Result<bool, PlaceError> {
        let path = self.0.join(path);
        let failed = |error| PlaceError::io(path.display().to_string(), error);
        if is_same(&path, &bytes) {
            return Ok(false);
        }
        let folder = path.parent().unwrap_or(&self.0);
        fs::create_dir_all(folder).map_err(failed)?;
        remove_left_over(folder);
        let temporary = temporary(folder);
        let written = write(&temporary, &bytes).and_then(|()| fs::rename(&temporary, &path));
        if let Err(error) = written {
            let _ = fs::remove_file(&temporary);
            return Err(failed(error));
        }
        // The name, too. Not every file system has that for folders.
        let _ = File::open(folder).and_then(|folder| folder.sync_all());
        Ok(true)
    }

    fn has(&self, path: &str) -> Result<bool, PlaceError> {
        let path = self.0.join(path);
        let mut file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(PlaceError::io(path.display().to_string(), error)),
        };
        // A Parquet file ends as it begins.
        let mut magic = [0; 4];
        let whole = file
            .seek(SeekFrom::End(-4))
            .and_then(|_| file.read_exact(&mut magic));
        Ok(whole.is_ok() && &magic == b"PAR1")
    }
}

fn is_same(path: &Path, bytes: &[u8]) -> bool {
    let same_size = fs::metadata(path).is_ok_and(|found| found.len() == bytes.len() as u64);
    same_size && fs::read(path).is_ok_and(|found| found == bytes)
}

fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).open(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

/// A name that no other publisher has, of this machine or another one.
fn temporary(folder: &Path) -> PathBuf {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let ns = since_1970.unwrap_or_default().as_nanos();
    folder.join(format!(
        ".whywait-{ns:x}-{}-{count}.tmp",
        std::process::id()
    ))
}

/// Removes what publishers left behind that were killed.
fn remove_left_over(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        let ours = name.starts_with(".whywait-") && name.ends_with(".tmp");
        let age = || entry.metadata().ok()?.modified().ok()?.elapsed().ok();
        if ours && age().is_some_and(|age| age > LEFT_OVER) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder() -> (tempfile::TempDir, Folder) {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let folder = Folder::new(&dir.path().join("published"));
        (dir, folder)
    }

    #[test]
    fn a_file_is_written_once() {
        let (dir, folder) = folder();
        let whole = b"PAR1PAR1".to_vec();
        assert!(!folder.has("a/b.parquet").expect("it can be asked"));
        assert!(
            folder
                .put("a/b.parquet", whole.clone())
                .expect("there is space")
        );
        assert!(folder.has("a/b.parquet").expect("it can be asked"));
        let path = dir.path().join("published/a/b.parquet");
        let written = fs::metadata(&path).expect("it is there").modified().ok();
        assert!(!folder.put("a/b.parquet", whole).expect("nothing to do"));
        assert_eq!(
            fs::metadata(&path).expect("it is there").modified().ok(),
            written
        );
        assert!(
            folder
                .put("a/b.parquet", b"other".to_vec())
                .expect("there is space")
        );
        assert!(
            !folder.has("a/b.parquet").expect("it can be asked"),
            "it is not whole"
        );
        let names = fs::read_dir(dir.path().join("published/a")).expect("it is there");
        assert_eq!(names.count(), 1, "no temporary file is left");
    }

    #[test]
    fn what_a_killed_publisher_left_goes_when_it_is_old() {
        let (dir, folder) = folder();
        let at = dir.path().join("published/a");
        fs::create_dir_all(&at).expect("a folder");
        for name in [".whywait-1-1-0.tmp", ".whywait-2-2-0.tmp", ".other.tmp"] {
            fs::write(at.join(name), "half").expect("a file");
        }
        let old = SystemTime::now() - Duration::from_secs(7200);
        for name in [".whywait-1-1-0.tmp", ".other.tmp"] {
            let file = File::options()
                .write(true)
                .open(at.join(name))
                .expect("a file");
            file.set_modified(old).expect("its time can be set");
        }
        folder
            .put("a/b.parquet", b"PAR1PAR1".to_vec())
            .expect("there is space");
        assert!(!at.join(".whywait-1-1-0.tmp").exists());
        assert!(
            at.join(".whywait-2-2-0.tmp").exists(),
            "another one may be writing it"
        );
        assert!(at.join(".other.tmp").exists(), "it is not ours");
    }

    #[test]
    fn where_a_file_is_in_the_way_it_is_named() {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let file = dir.path().join("file");
        fs::write(&file, "").expect("a file");
        let error = Folder::new(&file)
            .put("a/b", vec![1])
            .expect_err("it is a file");
        assert!(error.to_string().contains("cannot write"), "{error}");
    }
}
