//! A recording as one file: to send, to attach to a ticket, to fetch from a build.
//!
//! It is an archive of tar, compressed with zstd or gzip or not at all. [`Recording::pack`] writes
//! one, and [`Recording::open`] reads one as it reads a folder, whatever its name is. An archive
//! may come from anywhere: only files that a recording has are taken from it, their names lead
//! nowhere else, and there is a bound to what it may unpack to.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufReader, Read, Seek as _, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use flate2::read::MultiGzDecoder;
use rustix::fs::OFlags;
use tar::{Archive, EntryType, Header};
use tempfile::TempDir;

use super::error::{Damage, ReadError};
use super::meta::Meta;
use super::reader::Recording;
use super::table_file::{create_private, open_regular};
use super::{META, OPEN_SUFFIX, segment_name, segment_number};

/// What an archive may unpack to, in bytes: a few kilobytes can claim to be petabytes. Fuzzing has
/// no use for more than a little.
pub(super) const MAX_UNPACKED: u64 = if cfg!(fuzzing) { 1 << 20 } else { 4 << 30 };
/// The same, in files: each takes an inode, however small it is.
const MAX_FILES: usize = 1 << 16;
/// How hard zstd tries. The tables are compressed already; what is gained is between them.
const LEVEL: i32 = 9;

const ZSTD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
const GZIP: [u8; 2] = [0x1f, 0x8b];
/// Where an archive of tar says that it is one.
const TAR_AT: usize = 257;
const TAR: &[u8] = b"ustar";

/// What was unpacked.
#[derive(Debug)]
pub(super) struct Unpacked {
    pub(super) folder: TempDir,
    /// Why it is not all that was packed.
    pub(super) damage: Option<Damage>,
}

/// Whether a recording seems to be at a path: a folder with its `meta.json`, or an archive, by what
/// it begins with. Opening it says whether it is one.
pub fn is_recording(path: &Path) -> bool {
    path.join(META).is_file() || (is_file(path) && matches!(decompressed(path), Ok(Some(_))))
}

/// Looked at before it is opened: opening a pipe would block.
fn is_file(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|found| found.is_file())
}

/// Unpacks the recording at a path to a temporary folder, if it is an archive.
///
/// # Errors
/// When it cannot be read, is no recording's, or comes to more than `at_most` bytes.
pub(super) fn unpack(path: &Path, at_most: u64) -> Result<Option<Unpacked>, ReadError> {
    let io = |source| ReadError::Io {
        path: path.to_path_buf(),
        source,
    };
    if !is_file(path) {
        return Ok(None);
    }
    let Some(archive) = decompressed(path).map_err(io)? else {
        return Ok(None);
    };
    let mut archive = archive.take(at_most);
    let scratch = tempfile::Builder::new().prefix("whywait-").tempdir();
    let folder = scratch.map_err(io)?;
    let foreign = |reason: &str| ReadError::ForeignArchive {
        path: path.to_path_buf(),
        reason: reason.to_owned(),
    };
    let taken = take_files(&mut archive, folder.path());
    if archive.limit() == 0 {
        return Err(foreign(&format!(
            "it unpacks to more than {} MiB: unpack it yourself, and name the folder",
            at_most >> 20
        )));
    }
    let cut = match taken {
        Ok(Taken::All) => None,
        Ok(Taken::TooMany) => Some("it has more files than a recording has".to_owned()),
        Ok(Taken::Several) => {
            return Err(foreign(
                "it holds several recordings: unpack it, and name one",
            ));
        }
        Err(TakeError::Write(source)) => {
            return Err(ReadError::Io {
                path: folder.path().to_path_buf(),
                source,
            });
        }
        Err(TakeError::Read(error)) => Some(format!("the archive is damaged: {error}")),
    };
    if !folder.path().join(META).exists() {
        let reason = cut.as_deref().unwrap_or("it holds no recording");
        return Err(foreign(reason));
    }
    let damage = cut.map(|reason| Damage {
        what: "the archive".to_owned(),
        reason,
    });
    Ok(Some(Unpacked { folder, damage }))
}

/// The archive in a file, by what it begins with: a name may be anything.
fn decompressed(path: &Path) -> io::Result<Option<Box<dyn Read>>> {
    let mut file = File::options()
        .read(true)
        .custom_flags(OFlags::NONBLOCK.bits() as i32)
        .open(path)?;
    let mut head = Vec::new();
    let most = (TAR_AT + TAR.len()) as u64;
    Read::by_ref(&mut file).take(most).read_to_end(&mut head)?;
    file.rewind()?;
    let file = BufReader::new(file);
    Ok(if head.starts_with(&ZSTD) {
        Some(Box::new(zstd::Decoder::with_buffer(file)?))
    } else if head.starts_with(&GZIP) {
        Some(Box::new(MultiGzDecoder::new(file)))
    } else if head.get(TAR_AT..) == Some(TAR) {
        Some(Box::new(file))
    } else {
        None
    })
}

enum Taken {
    All,
    TooMany,
    Several,
}

enum TakeError {
    Read(io::Error),
    Write(io::Error),
}

/// Takes a recording's files out of an archive.
fn take_files(archive: &mut impl Read, folder: &Path) -> Result<Taken, TakeError> {
    let mut archive = Archive::new(archive);
    let mut files = 0_usize;
    let mut stood_in: Option<Vec<u8>> = None;
    // Raw: the names that extensions give can be as long as an archive says, and would be kept in
    // memory. A recording's are short.
    for entry in archive.entries().map_err(TakeError::Read)?.raw(true) {
        let mut entry = entry.map_err(TakeError::Read)?;
        if !entry.header().entry_type().is_file() {
            continue;
        }
        let Some((before, at)) = place(&entry.path_bytes()) else {
            continue;
        };
        match &stood_in {
            None => stood_in = Some(before),
            Some(other) if *other == before => (),
            Some(_) => return Ok(Taken::Several),
        }
        files += 1;
        if files > MAX_FILES {
            return Ok(Taken::TooMany);
        }
        let to = folder.join(at);
        if let Some(segment) = to.parent() {
            fs::create_dir_all(segment).map_err(TakeError::Write)?;
        }
        let mut to = match create_private(&to, None) {
            // Twice the same: the first counts.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
            to => to.map_err(TakeError::Write)?,
        };
        copy(&mut entry, &mut to)?;
    }
    Ok(Taken::All)
}

/// Copies all of it, and says on which side it failed.
fn copy(from: &mut impl Read, to: &mut impl Write) -> Result<(), TakeError> {
    let mut buffer = vec![0; 64 << 10];
    loop {
        let read = match from.read(&mut buffer) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            read => read.map_err(TakeError::Read)?,
        };
        if read == 0 {
            return Ok(());
        }
        to.write_all(&buffer[..read]).map_err(TakeError::Write)?;
    }
}

/// Where in a recording a file of an archive belongs, and the folder that the archive has it in.
/// `None` for what no recording has.
fn place(name: &[u8]) -> Option<(Vec<u8>, PathBuf)> {
    let mut parts: Vec<&[u8]> = name
        .split(|byte| *byte == b'/')
        .filter(|part| !part.is_empty() && *part != b".")
        .collect();
    let file = std::str::from_utf8(parts.pop()?).ok()?;
    let at = if file == META {
        PathBuf::from(META)
    } else {
        let table = file.strip_suffix(".parquet")?;
        let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
        if !table.bytes().all(plain) {
            return None;
        }
        let segment = std::str::from_utf8(parts.pop()?).ok()?;
        segment_number(segment.strip_suffix(OPEN_SUFFIX).unwrap_or(segment))?;
        Path::new(segment).join(file)
    };
    Some((parts.join(&b'/'), at))
}

impl Recording {
    /// Writes the recording as one file, with `meta` as its `meta.json`: the recording's own, or
    /// one in which something is masked. `name` is the folder that the archive has it in. Gives
    /// how many bytes the files have.
    ///
    /// The same recording gives the same bytes: no time, no user and no machine is in them that is
    /// not in the recording.
    ///
    /// # Errors
    /// When the recording cannot be read, or `to` not written.
    pub fn pack(&self, name: &str, meta: &Meta, to: impl Write) -> io::Result<u64> {
        let mut archive = tar::Builder::new(zstd::Encoder::new(to, LEVEL)?);
        let meta = serde_json::to_vec_pretty(meta)?;
        let mut bytes = meta.len() as u64;
        append(&mut archive, &format!("{name}/{META}"), bytes, &*meta)?;
        for number in self.segments() {
            let segment = segment_name(*number);
            let mut tables: BTreeMap<String, PathBuf> = BTreeMap::new();
            for entry in fs::read_dir(self.dir().join(&segment))? {
                let entry = entry?;
                let Ok(file) = entry.file_name().into_string() else {
                    continue;
                };
                let within = format!("{segment}/{file}");
                if place(within.as_bytes()).is_some() {
                    tables.insert(within, entry.path());
                }
            }
            for (within, path) in tables {
                // What is no file is not in it: the reader says that it is missing.
                let Ok((file, length)) = open_regular(&path) else {
                    continue;
                };
                bytes = bytes.saturating_add(length);
                append(&mut archive, &format!("{name}/{within}"), length, file)?;
            }
        }
        archive.into_inner()?.finish()?.flush()?;
        Ok(bytes)
    }
}

fn append(
    archive: &mut tar::Builder<impl Write>,
    name: &str,
    length: u64,
    content: impl Read,
) -> io::Result<()> {
    let mut header = Header::new_ustar();
    header.set_entry_type(EntryType::Regular);
    header.set_mode(0o600);
    header.set_size(length);
    archive.append_data(&mut header, name, content.take(length))
}

#[cfg(test)]
mod tests {
    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    /// An archive with files of these names and contents.
    fn archive(files: &[(&str, &[u8])]) -> Vec<u8> {
        let mut archive = tar::Builder::new(Vec::new());
        for (name, content) in files {
            append(&mut archive, name, content.len() as u64, *content).expect("it is packed");
        }
        archive.into_inner().expect("it is packed")
    }

    fn unpacked(bytes: &[u8]) -> Result<Option<Unpacked>, ReadError> {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let file = folder.path().join("any name");
        fs::write(&file, bytes).expect("a file");
        unpack(&file, 1 << 20)
    }

    fn refused(bytes: &[u8]) -> String {
        let refused = unpacked(bytes).expect_err("it is refused");
        assert!(
            matches!(refused, ReadError::ForeignArchive { .. }),
            "{refused}"
        );
        refused.to_string()
    }

    #[test]
    fn only_what_a_recording_has_is_taken() {
        for (name, expected) in [
            ("run1/meta.json", Some(("run1", "meta.json"))),
            ("./meta.json", Some(("", "meta.json"))),
            (
                "a/b/seg-000002/waits.parquet",
                Some(("a/b", "seg-000002/waits.parquet")),
            ),
            (
                "seg-000002.open/waits.parquet",
                Some(("", "seg-000002.open/waits.parquet")),
            ),
            ("/etc/meta.json", Some(("etc", "meta.json"))),
            ("run1/../../etc/passwd", None),
            ("run1/seg-2/waits.parquet", None),
            ("run1/seg-000002/../x.parquet", None),
            ("run1/seg-000002/..parquet", None),
            ("run1/waits.parquet", None),
            ("run1/seg-000002/notes.txt", None),
            ("", None),
        ] {
            let expected = expected.map(|(before, at)| (before.as_bytes().to_vec(), at.into()));
            assert_eq!(place(name.as_bytes()), expected, "{name}");
        }
    }

    #[test]
    fn compression_is_known_by_its_beginning() {
        let plain = archive(&[
            ("r/meta.json", b"{}"),
            ("r/seg-000001/waits.parquet", b"rows"),
        ]);
        let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
        gzip.write_all(&plain).expect("it is compressed");
        let gzip = gzip.finish().expect("it is compressed");
        let zstd = zstd::encode_all(&*plain, 3).expect("it is compressed");
        for bytes in [plain, gzip, zstd] {
            let unpacked = unpacked(&bytes).expect("it is read").expect("an archive");
            let file = unpacked.folder.path().join("seg-000001/waits.parquet");
            assert_eq!(fs::read(file).expect("a file"), b"rows");
            assert_eq!(unpacked.damage, None);
        }
        assert!(unpacked(b"no archive").expect("it is read").is_none());
        assert!(unpacked(b"").expect("it is read").is_none());
    }

    #[test]
    fn an_archive_of_something_else_is_refused() {
        let said = refused(&archive(&[("etc/passwd", b"root")]));
        assert!(said.contains("it holds no recording"), "{said}");
        let several = archive(&[("a/meta.json", b"{}"), ("b/meta.json", b"{}")]);
        assert!(refused(&several).contains("several recordings"));
        let zeros = vec![0; 2 << 20];
        let large = archive(&[
            ("r/meta.json", b"{}"),
            ("r/seg-000001/waits.parquet", &zeros),
        ]);
        let large = zstd::encode_all(&*large, 3).expect("it is compressed");
        assert!(large.len() < 1 << 10, "it is a small file");
        assert!(refused(&large).contains("more than 1 MiB"));
        // As large, but of what is not taken.
        let other = archive(&[("r/meta.json", b"{}"), ("r/notes.txt", &zeros)]);
        assert!(refused(&other).contains("more than 1 MiB"));
    }

    #[test]
    fn what_an_archive_lost_is_said() {
        let whole = archive(&[
            ("r/meta.json", b"{}"),
            ("r/seg-000001/waits.parquet", &[1; 4096]),
        ]);
        let cut = unpacked(&whole[..2048])
            .expect("it is read")
            .expect("an archive");
        assert!(cut.damage.is_some(), "half of it is missing");
        let twice = archive(&[("r/meta.json", b"{}"), ("r/meta.json", b"{\"a\":1}")]);
        let twice = unpacked(&twice).expect("it is read").expect("an archive");
        assert_eq!(
            fs::read(twice.folder.path().join(META)).expect("a file"),
            b"{}"
        );
    }

    #[test]
    fn links_and_long_names_lead_nowhere() {
        let mut links = tar::Builder::new(Vec::new());
        for kind in [EntryType::Symlink, EntryType::Link, EntryType::Fifo] {
            let mut header = Header::new_ustar();
            header.set_entry_type(kind);
            header.set_size(0);
            links
                .append_link(&mut header, "r/meta.json", "/etc/passwd")
                .expect("it is packed");
        }
        let links = links.into_inner().expect("it is packed");
        assert!(refused(&links).contains("it holds no recording"));
        // A name that claims to be as long as memory allows.
        let mut header = Header::new_gnu();
        header.set_entry_type(EntryType::GNULongName);
        header.set_size(1 << 40);
        header.set_cksum();
        refused(header.as_bytes());
    }
}
