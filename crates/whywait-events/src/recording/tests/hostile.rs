//! Whatever bytes are in the folder: an error or a recording, never a panic, and no memory to speak
//! of.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

use super::{cases, event, record, scratch};
use crate::recording::Recording;
use crate::recording::table::{Table, Tables};
use crate::{Event, Wait, each_table};

/// The files of an intact recording of all kinds of events.
static INTACT: LazyLock<Vec<(PathBuf, Vec<u8>)>> = LazyLock::new(|| {
    let (_folder, dir) = scratch();
    let mut runner = TestRunner::deterministic();
    let events = vec(event(), 400)
        .new_tree(&mut runner)
        .expect("events can be made up")
        .current();
    record(&dir, &events);
    let mut files = vec![(
        PathBuf::from("meta.json"),
        fs::read(dir.join("meta.json")).unwrap(),
    )];
    for entry in fs::read_dir(dir.join("seg-000001")).unwrap() {
        let path = entry.unwrap().path();
        files.push((
            path.strip_prefix(&dir).unwrap().to_path_buf(),
            fs::read(&path).unwrap(),
        ));
    }
    files.sort();
    files
});

/// Lays out the intact recording, with one file replaced.
fn lay_out(dir: &Path, victim: usize, bytes: &[u8]) {
    fs::create_dir_all(dir.join("seg-000001")).unwrap();
    for (index, (path, intact)) in INTACT.iter().enumerate() {
        fs::write(dir.join(path), if index == victim { bytes } else { intact }).unwrap();
    }
}

/// Reads all there is, and counts the rows of each table. Any result is fine; this returning is the
/// test.
fn read_everything(dir: &Path) -> Option<(BTreeMap<&'static str, usize>, Recording)> {
    let recording = Recording::open(dir).ok()?;
    let mut counting = Counting {
        recording: &recording,
        rows: BTreeMap::new(),
    };
    each_table(&mut counting);
    let rows = counting.rows;
    recording.rings().expect("the folder is still there");
    recording.peers().expect("the folder is still there");
    let stacks = recording.stacks().expect("the folder is still there");
    stacks
        .ids()
        .for_each(|id| stacks.named(id).for_each(|_| ()));
    recording.counters().expect("the folder is still there");
    Some((rows, recording))
}

struct Counting<'a> {
    recording: &'a Recording,
    rows: BTreeMap<&'static str, usize>,
}

impl Tables for Counting<'_> {
    fn table<T: Table>(&mut self) {
        let mut rows = 0;
        self.recording
            .read::<T>(None, &mut |_| rows += 1)
            .expect("the folder is still there");
        self.rows.insert(T::NAME, rows);
    }
}

fn file_of(name: &str) -> usize {
    INTACT
        .iter()
        .position(|(path, _)| path.ends_with(name))
        .expect("the recording has such a file")
}

proptest! {
    #![proptest_config(cases(300))]

    #[test]
    fn cut_anywhere(victim in any::<prop::sample::Index>(), at in any::<prop::sample::Index>()) {
        let (_folder, dir) = scratch();
        let victim = victim.index(INTACT.len());
        let (path, intact) = &INTACT[victim];
        lay_out(&dir, victim, &intact[..at.index(intact.len())]);
        let read = read_everything(&dir);
        // The first file is `meta.json`, which may lose its last line's end.
        if victim > 0 {
            let (_, recording) = read.expect("meta.json is intact");
            let damaged = recording.damaged();
            prop_assert_eq!(damaged.len(), 1, "one file is damaged, and no other");
            prop_assert_eq!(Path::new(&damaged[0].what), path.as_path());
        }
    }

    #[test]
    fn bytes_flipped_anywhere(
        victim in any::<prop::sample::Index>(),
        flips in vec((any::<prop::sample::Index>(), 1u8..=255), 1..6),
        near_the_end in any::<bool>(),
    ) {
        let (_folder, dir) = scratch();
        let victim = victim.index(INTACT.len());
        let mut bytes = INTACT[victim].1.clone();
        // The footer, at the end, has the interesting lies.
        let from = if near_the_end { bytes.len() / 2 } else { 0 };
        for (at, flip) in flips {
            let at = from + at.index(bytes.len() - from);
            bytes[at] ^= flip;
        }
        lay_out(&dir, victim, &bytes);
        read_everything(&dir);
    }

    #[test]
    fn bytes_made_up(
        victim in any::<prop::sample::Index>(),
        bytes in vec(any::<u8>(), 0..400),
        framed in any::<bool>(),
    ) {
        let (_folder, dir) = scratch();
        let victim = victim.index(INTACT.len());
        let bytes = if framed { parquet_with_footer(&bytes) } else { bytes };
        lay_out(&dir, victim, &bytes);
        read_everything(&dir);
    }
}

fn parquet_with_footer(footer: &[u8]) -> Vec<u8> {
    let length = u32::try_from(footer.len()).unwrap().to_le_bytes();
    [b"PAR1", footer, &length, b"PAR1"].concat()
}

/// `FileMetaData` in Thrift's compact protocol: version 1, the schema elements as given, no rows,
/// no row groups.
fn footer_with_schema(elements: &[Vec<u8>]) -> Vec<u8> {
    let mut footer = vec![0x15, 0x02, 0x19, 0xfc];
    footer.extend(varint(elements.len() as u64));
    footer.extend(elements.concat());
    footer.extend([0x16, 0x00, 0x19, 0x0c, 0x00]);
    footer
}

/// A schema element of the name "r" with that many children.
fn element(children: i64) -> Vec<u8> {
    let mut bytes = vec![0x48, 0x01, b'r', 0x15];
    bytes.extend(varint((children as u64) << 1));
    bytes.push(0);
    bytes
}

fn varint(mut value: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
    bytes
}

fn damage_of_footer(footer: &[u8]) -> String {
    let (_folder, dir) = scratch();
    lay_out(&dir, file_of("waits.parquet"), &parquet_with_footer(footer));
    let (rows, recording) = read_everything(&dir).expect("meta.json is intact");
    assert_eq!(rows["waits"], 0, "nothing can be read of a forged file");
    assert!(rows["samples"] > 0, "the other tables are read");
    let damaged = recording.damaged();
    assert_eq!(damaged.len(), 1, "{damaged:?}");
    damaged[0].to_string()
}

#[test]
fn a_schema_of_two_thousand_million_columns() {
    let damage = damage_of_footer(&footer_with_schema(&[element(i64::from(i32::MAX))]));
    assert_eq!(
        damage,
        "seg-000001/waits.parquet: damaged (the schema is not flat)"
    );
}

#[test]
fn a_schema_nested_a_hundred_thousand_levels_deep() {
    let damage = damage_of_footer(&footer_with_schema(&vec![element(1); 100_000]));
    assert_eq!(
        damage,
        "seg-000001/waits.parquet: damaged (the schema is not flat)"
    );
}

#[test]
fn a_schema_list_longer_than_the_file() {
    let mut footer = vec![0x15, 0x02, 0x19, 0xfc];
    footer.extend(varint(u64::MAX));
    let damage = damage_of_footer(&footer);
    assert_eq!(
        damage,
        "seg-000001/waits.parquet: damaged (a list is longer than the file)"
    );
}

#[test]
fn files_of_the_wrong_kind() {
    let (_folder, dir) = scratch();
    lay_out(&dir, usize::MAX, &[]);
    let segment = dir.join("seg-000001");
    // A link out of the folder, a folder, a pipe on which opening would wait for ever, another
    // table's file.
    for name in ["waits", "busy", "samples", "requests"] {
        fs::remove_file(segment.join(format!("{name}.parquet"))).unwrap();
    }
    symlink("/etc/passwd", segment.join("waits.parquet")).unwrap();
    fs::create_dir(segment.join("busy.parquet")).unwrap();
    let pipe = Command::new("mkfifo")
        .arg(segment.join("samples.parquet"))
        .status()
        .unwrap();
    assert!(pipe.success(), "a pipe can be made");
    fs::copy(
        segment.join("modules.parquet"),
        segment.join("requests.parquet"),
    )
    .unwrap();
    symlink("/", dir.join("seg-000002")).unwrap();

    let (rows, recording) = read_everything(&dir).expect("meta.json is intact");
    assert!(rows["threads"] > 0, "what is intact is read");
    let damaged: Vec<_> = recording
        .damaged()
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(
        damaged,
        [
            "seg-000001/busy.parquet: not a regular file",
            "seg-000001/requests.parquet: damaged (column socket is missing)",
            "seg-000001/samples.parquet: not a regular file",
            "seg-000001/waits.parquet: not a regular file",
            "seg-000002: not a folder",
        ]
    );
}

#[test]
fn missing_segments_are_reported_in_one_line_however_many() {
    let (_folder, dir) = scratch();
    record(&dir, &[Event::Wait(Wait::default())]);
    fs::rename(
        dir.join("seg-000001"),
        dir.join(format!("seg-{}", u64::MAX)),
    )
    .unwrap();
    let recording = Recording::open(&dir).unwrap();
    let damaged: Vec<_> = recording
        .damaged()
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(
        damaged,
        [format!("seg-000001 to seg-{}: missing", u64::MAX - 1)]
    );
}

#[test]
fn a_recording_that_goes_away_while_it_is_read() {
    let (_folder, dir) = scratch();
    record(&dir, &[]);
    let recording = Recording::open(&dir).unwrap();
    fs::remove_dir_all(&dir).unwrap();
    recording
        .read::<Wait>(None, &mut |_| ())
        .expect_err("nothing is there any more");
}

/// Runs this file's tests again with little memory to take: an allocation of what a header claims
/// would then abort.
#[test]
fn all_of_it_with_little_memory() {
    if std::env::var_os("HOSTILE_INNER").is_some() {
        return;
    }
    let this = std::env::current_exe().expect("this test has a path");
    let run = Command::new("sh")
        .args([
            "-c",
            "ulimit -v 1000000; exec \"$0\" hostile --test-threads=1",
        ])
        .arg(this)
        .env("HOSTILE_INNER", "1")
        .output()
        .expect("a shell can be run");
    let output = String::from_utf8_lossy(&run.stdout);
    assert!(
        run.status.success(),
        "under a limit of 1 GB: {}\n{output}",
        String::from_utf8_lossy(&run.stderr)
    );
}
