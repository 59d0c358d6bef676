//! What is written is read again; folders that are no recording are refused; segments come and go.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use proptest::collection::vec;
use proptest::prelude::*;

use super::{Contents, cases, event, meta, record, rows, scratch};
use crate::recording::{
    Meta, Packing, ReadError, Recording, SCHEMA, WriteError, Writer, WriterOptions,
};
use crate::*;

fn open(dir: &Path) -> Recording {
    Recording::open(dir).expect("the recording opens")
}

fn wait_at(out_ns: u64, in_ns: Option<u64>) -> Event {
    Event::Wait(Wait {
        tid: 1,
        out_ns,
        wake_ns: in_ns,
        in_ns,
        ..Wait::default()
    })
}

fn waits_in(recording: &Recording, range: std::ops::Range<u64>) -> Vec<u64> {
    let mut found = Vec::new();
    recording
        .read::<Wait>(Some(range), &mut |wait| found.push(wait.out_ns))
        .expect("waits are read");
    found
}

proptest! {
    #![proptest_config(cases(64))]

    #[test]
    fn all_events_survive(events in vec(event(), 0..300), segment in 1usize..400) {
        let (_folder, dir) = scratch();
        let options = WriterOptions { rows_per_segment: segment, ..WriterOptions::default() };
        let mut writer = Writer::create_with(&dir, &meta(), options).unwrap();
        for event in &events {
            writer.write(event).unwrap();
        }
        prop_assert_eq!(writer.rows(), events.len() as u64);
        writer.finish(&meta()).unwrap();

        let recording = open(&dir);
        prop_assert_eq!(recording.damaged(), vec![], "an intact recording has no damage");
        prop_assert!(recording.meta().complete, "a finished recording is complete");
        let mut expected = Contents::of(&events);
        let read = Contents::read(&recording);
        // `read` looks up the names of the frames that stacks have; the others are not asked for.
        let stacks = expected.stacks.values();
        let used: Vec<_> = stacks.flat_map(|(_, frames)| frames.clone()).collect();
        expected.symbols.retain(|(frame, _), _| used.contains(frame));
        prop_assert_eq!(read, expected);
    }

    #[test]
    fn a_copy_reads_the_same(events in vec(event(), 0..300), segment in 1usize..400) {
        let (_folder, dir) = scratch();
        let options = WriterOptions { rows_per_segment: segment, ..WriterOptions::default() };
        let mut writer = Writer::create_with(&dir, &meta(), options).unwrap();
        for event in &events {
            writer.write(event).unwrap();
            writer.counter("events", writer.rows());
        }
        writer.finish(&meta()).unwrap();
        let recording = open(&dir);

        let copy = dir.with_extension("copy");
        let options = WriterOptions { packing: Packing::Whole, ..WriterOptions::default() };
        let mut writer = Writer::create_with(&copy, recording.meta(), options).unwrap();
        writer.copy(&recording).unwrap();
        writer.finish(recording.meta()).unwrap();

        let copy = open(&copy);
        prop_assert_eq!(copy.segments(), [1]);
        prop_assert_eq!(copy.counters().unwrap(), recording.counters().unwrap());
        // Each segment has the counters again.
        let but_counters = |recording| {
            let mut contents = Contents::read(recording);
            contents.tables.remove("counters");
            contents
        };
        prop_assert_eq!(but_counters(&copy), but_counters(&recording));
    }

    #[test]
    fn a_time_range_selects_what_overlaps_with_it(
        spans in vec((0u64..1000, prop::option::of(0u64..1000)), 0..200),
        start in 0u64..1000,
        length in 1u64..500,
    ) {
        let (_folder, dir) = scratch();
        let events: Vec<_> = spans
            .iter()
            .map(|(out, length)| wait_at(*out, length.map(|length| out + length)))
            .collect();
        record(&dir, &events);
        let range = start..start + length;
        let expected: Vec<u64> = spans
            .iter()
            .filter(|(out, length)| {
                *out < range.end && length.is_none_or(|length| out + length > range.start)
            })
            .map(|(out, _)| *out)
            .collect();
        prop_assert_eq!(waits_in(&open(&dir), range), expected);
    }
}

#[test]
fn row_groups_outside_of_a_range_are_skipped_and_none_inside_is() {
    let (_folder, dir) = scratch();
    // Several row groups in one segment, each of one interval; the very first wait never
    // ends.
    let mut events = vec![wait_at(5, None)];
    events.extend((1..200_000).map(|n| wait_at(n * 100, Some(n * 100 + 50))));
    record(&dir, &events);
    let found = waits_in(&open(&dir), 10_000_000..10_000_200);
    assert_eq!(
        found,
        [5, 10_000_000, 10_000_100],
        "the wait without an end overlaps with every later range"
    );
}

#[test]
fn samples_at_the_edges_of_a_range() {
    let (_folder, dir) = scratch();
    let sample = |at_ns| {
        Event::Sample(Sample {
            at_ns,
            ..Sample::default()
        })
    };
    record(&dir, &[sample(10), sample(20), sample(30)]);
    let mut found = Vec::new();
    open(&dir)
        .read::<Sample>(Some(10..30), &mut |sample| found.push(sample.at_ns))
        .unwrap();
    assert_eq!(
        found,
        [10, 20],
        "a range includes its start and excludes its end"
    );
}

#[test]
fn every_table_has_a_file_even_in_an_empty_recording() {
    let (_folder, dir) = scratch();
    record(&dir, &[]);
    let names = Contents::of(&[]).tables.into_keys();
    for name in names {
        let path = dir.join("seg-000001").join(format!("{name}.parquet"));
        assert!(
            path.is_file(),
            "{} should exist, so that globs match",
            path.display()
        );
    }
}

#[test]
fn the_last_value_of_a_counter_counts() {
    let (_folder, dir) = scratch();
    let mut writer = Writer::create(&dir, &meta()).unwrap();
    writer.counter("requests.count", 1);
    writer.counter("lost.ring-full", 3);
    writer.write(&wait_at(1, None)).unwrap();
    writer.roll().unwrap();
    writer.counter("requests.count", u64::MAX);
    writer.finish(&meta()).unwrap();
    let counters = open(&dir).counters().unwrap();
    assert_eq!(counters.get("requests.count"), Some(&u64::MAX));
    assert_eq!(counters.get("lost.ring-full"), Some(&3));
}

#[test]
fn a_killed_writer_loses_the_open_segment_only() {
    let (_folder, dir) = scratch();
    let mut writer = Writer::create(&dir, &meta()).unwrap();
    writer.write(&wait_at(1, None)).unwrap();
    writer.roll().unwrap();
    writer.write(&wait_at(2, None)).unwrap();
    std::mem::forget(writer);

    let recording = open(&dir);
    assert!(
        !recording.meta().complete,
        "an unfinished recording must not claim to be complete"
    );
    assert_eq!(
        waits_in(&recording, 0..9),
        [1],
        "the closed segment is read"
    );
    let damaged = recording.damaged();
    assert_eq!(
        damaged.len(),
        1,
        "the open segment is reported: {damaged:?}"
    );
    assert_eq!(damaged[0].what, "seg-000002.open");
}

#[test]
fn rolling_without_rows_makes_no_segment() {
    let (_folder, dir) = scratch();
    let mut writer = Writer::create(&dir, &meta()).unwrap();
    for _ in 0..3 {
        writer.roll().unwrap();
    }
    writer.finish(&meta()).unwrap();
    assert_eq!(open(&dir).segments(), [1]);
}

#[test]
fn nobody_else_can_read_a_recording() {
    let (_folder, dir) = scratch();
    record(&dir, &[wait_at(1, None)]);
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    for folder in [dir.clone(), dir.join("seg-000001")] {
        assert_eq!(mode(&folder), 0o700, "mode of {}", folder.display());
    }
    for file in [dir.join("meta.json"), dir.join("seg-000001/waits.parquet")] {
        assert_eq!(mode(&file), 0o600, "mode of {}", file.display());
    }
}

#[test]
fn an_empty_folder_is_taken_and_made_private() {
    let (_folder, dir) = scratch();
    fs::create_dir(&dir).unwrap();
    fs::set_permissions(&dir, fs::Permissions::from_mode(0o755)).unwrap();
    record(&dir, &[]);
    assert_eq!(
        fs::metadata(&dir).unwrap().permissions().mode() & 0o777,
        0o700
    );
}

#[test]
fn nothing_is_overwritten() {
    let (_folder, dir) = scratch();
    record(&dir, &[]);
    let error = Writer::create(&dir, &meta())
        .err()
        .expect("an existing recording is refused");
    assert!(matches!(error, WriteError::Exists { .. }), "{error}");

    let (_folder, dir) = scratch();
    fs::create_dir(&dir).unwrap();
    fs::write(dir.join("thesis.tex"), "years of work").unwrap();
    let error = Writer::create(&dir, &meta())
        .err()
        .expect("a folder with files is refused");
    assert!(matches!(error, WriteError::Occupied { .. }), "{error}");

    let file = dir.join("thesis.tex");
    let error = Writer::create(&file, &meta())
        .err()
        .expect("a file is refused");
    assert!(matches!(error, WriteError::Occupied { .. }), "{error}");

    let error = Writer::create(&dir.join("no/such"), &meta())
        .err()
        .expect("parents are not made up");
    assert!(matches!(error, WriteError::Io { .. }), "{error}");
}

#[test]
fn a_link_to_an_empty_folder_is_refused() {
    let (folder, dir) = scratch();
    fs::create_dir(&dir).unwrap();
    let before = fs::metadata(&dir).unwrap().permissions().mode();
    let link = folder.path().join("link");
    std::os::unix::fs::symlink(&dir, &link).unwrap();
    for named in [link.clone(), link.join(""), link.join(".")] {
        let error = Writer::create(&named, &meta())
            .err()
            .expect("a link is refused");
        assert!(matches!(error, WriteError::Link { .. }), "{error}");
        assert!(error.is_taken());
    }
    assert_eq!(fs::metadata(&dir).unwrap().permissions().mode(), before);
    assert_eq!(fs::read_dir(&dir).unwrap().count(), 0);
}

#[test]
fn what_takes_a_recordings_name_meanwhile_gets_nothing() {
    let (folder, dir) = scratch();
    let (moved, other) = (folder.path().join("moved"), folder.path().join("other"));
    fs::create_dir(&other).unwrap();
    let mut writer = Writer::create(&dir, &meta()).unwrap();
    let event = |id| {
        Event::Module(Module {
            id,
            path: "/bin/true".to_owned(),
            ..Module::default()
        })
    };
    writer.write(&event(1)).unwrap();
    fs::rename(&dir, &moved).unwrap();
    symlink(&other, &dir).unwrap();
    writer.write(&event(2)).unwrap();
    writer.roll().unwrap();
    writer.write(&event(3)).unwrap();
    writer.finish(&meta()).unwrap();
    assert_eq!(fs::read_dir(&other).unwrap().count(), 0);
    let recording = Recording::open(&moved).unwrap();
    let mut ids = Vec::new();
    recording
        .read::<Module>(None, &mut |module| ids.push(module.id))
        .unwrap();
    assert_eq!(ids, [1, 2, 3]);
}

#[test]
fn an_error_names_the_path_that_was_given() {
    let (_folder, dir) = scratch();
    let mut writer = Writer::create(&dir, &meta()).unwrap();
    // In the way of the first segment.
    fs::write(dir.join("seg-000001.open"), "").unwrap();
    let event = Event::Module(Module::default());
    let error = writer.write(&event).expect_err("it is in the way");
    let path = dir.join("seg-000001.open");
    assert!(
        error.to_string().starts_with(path.to_str().unwrap()),
        "{error}"
    );
}

#[test]
fn another_users_empty_folder_is_refused() {
    const NOBODY: u32 = 65534;
    let (_folder, dir) = scratch();
    fs::create_dir(&dir).unwrap();
    if std::os::unix::fs::chown(&dir, Some(NOBODY), Some(NOBODY)).is_err() {
        // Only root can have a folder of another user.
        return;
    }
    let before = fs::metadata(&dir).unwrap().permissions().mode();
    let error = Writer::create(&dir, &meta())
        .err()
        .expect("another user's folder is refused");
    assert!(matches!(error, WriteError::Foreign { .. }), "{error}");
    assert!(error.is_taken());
    assert_eq!(fs::metadata(&dir).unwrap().permissions().mode(), before);

    // The user for whom the recording is.
    let options = WriterOptions {
        owner: Some((NOBODY, NOBODY)),
        ..WriterOptions::default()
    };
    Writer::create_with(&dir, &meta(), options).unwrap();
}

#[test]
fn folders_that_are_no_recording_are_refused_in_one_line() {
    let (_folder, dir) = scratch();
    let error = |dir: &Path| Recording::open(dir).expect_err("this is no recording");
    let one_line = |error: &ReadError| assert_eq!(error.to_string().lines().count(), 1, "{error}");

    let absent = error(&dir);
    assert!(
        matches!(absent, ReadError::NotARecording { .. }),
        "{absent}"
    );
    one_line(&absent);

    fs::create_dir(&dir).unwrap();
    let empty = error(&dir);
    assert!(matches!(empty, ReadError::NotARecording { .. }), "{empty}");

    for foreign in [
        "",
        "{",
        "[]",
        "{}",
        r#"{"schema": 1}"#,
        r#"{"schema": -1, "whywait": "x"}"#,
        "\u{0}\u{1}",
    ] {
        fs::write(dir.join("meta.json"), foreign).unwrap();
        let error = error(&dir);
        assert!(
            matches!(error, ReadError::ForeignMeta { .. }),
            "{foreign:?} gave {error}"
        );
        one_line(&error);
    }

    let nested = "[".repeat(1 << 20);
    fs::write(dir.join("meta.json"), nested).unwrap();
    assert!(
        matches!(error(&dir), ReadError::ForeignMeta { .. }),
        "deep nesting is refused"
    );

    fs::remove_file(dir.join("meta.json")).unwrap();
    symlink("/dev/zero", dir.join("meta.json")).unwrap();
    assert!(
        matches!(error(&dir), ReadError::ForeignMeta { .. }),
        "a link is not followed"
    );
}

#[test]
fn a_newer_schema_says_to_update() {
    let (_folder, dir) = scratch();
    record(&dir, &[]);
    let text = fs::read_to_string(dir.join("meta.json")).unwrap();
    // The newer version may have changed everything else as well.
    fs::write(
        dir.join("meta.json"),
        text.replace(&format!("\"schema\": {SCHEMA}"), "\"schema\": 7")
            .replace("[]", "{}"),
    )
    .unwrap();
    let error = Recording::open(&dir).expect_err("a newer schema is refused");
    assert!(
        error.to_string().ends_with(
            "made by a newer whywait (schema 7; this one reads up to 2): update whywait"
        ),
        "{error}"
    );
}

#[test]
fn meta_ignores_what_it_does_not_know_and_defaults_what_it_lacks() {
    let (_folder, dir) = scratch();
    fs::create_dir(&dir).unwrap();
    fs::write(
        dir.join("meta.json"),
        r#"{"schema": 1, "whywait": "0.0.1", "weather": "fine"}"#,
    )
    .unwrap();
    let recording = open(&dir);
    let expected = Meta {
        schema: 1,
        whywait: "0.0.1".to_owned(),
        ..Meta::default()
    };
    assert_eq!(*recording.meta(), expected);
    assert_eq!(recording.damaged(), []);
}

#[test]
fn a_flight_recorder_keeps_what_its_segments_need() {
    let (_folder, dir) = scratch();
    let options = WriterOptions {
        keep: Some(2),
        ..WriterOptions::default()
    };
    let mut writer = Writer::create_with(&dir, &meta(), options).unwrap();
    let frame = Frame {
        module: 3,
        address: 64,
    };
    let thread = |tid, change, comm: &str| {
        let comm = comm.to_owned();
        Event::Thread(ThreadEvent {
            at_ns: 1,
            tid,
            tgid: 10,
            parent_tid: 0,
            change,
            comm,
            command: "python3 job.py --all".to_owned(),
        })
    };
    for event in [
        thread(10, ThreadChange::Found, "main"),
        thread(11, ThreadChange::Fork, "main"),
        thread(11, ThreadChange::Rename, "worker"),
        thread(12, ThreadChange::Fork, "short"),
        Event::Module(Module {
            id: 3,
            kind: ModuleKind::Elf,
            build_id: "ab".to_owned(),
            path: "/bin/x".to_owned(),
        }),
        Event::Stack(Stack {
            id: 5,
            truncated: true,
            frames: vec![frame],
        }),
        Event::Stack(Stack {
            id: 6,
            truncated: false,
            frames: vec![frame, frame],
        }),
        Event::Symbol(Symbol {
            frame,
            depth: 0,
            name: "f".to_owned(),
            file: "x.c".to_owned(),
            line: 9,
        }),
        thread(12, ThreadChange::Exit, "short"),
    ] {
        writer.write(&event).unwrap();
    }
    for segment in 1..=6u64 {
        let out_ns = segment * 100;
        let row = Wait {
            tid: 11,
            out_ns,
            in_ns: Some(out_ns + 1),
            user_stack: 5,
            ..Wait::default()
        };
        writer.write(&Event::Wait(row)).unwrap();
        writer.roll().unwrap();
    }
    writer.finish(&meta()).unwrap();

    let recording = open(&dir);
    assert_eq!(
        recording.damaged(),
        [],
        "deleting old segments is no damage"
    );
    assert_eq!(recording.segments(), [5, 6], "two segments were asked for");
    let contents = Contents::read(&recording);
    assert_eq!(
        rows::<Wait>(&recording)
            .iter()
            .map(|wait| wait.out_ns)
            .collect::<Vec<_>>(),
        [500, 600]
    );
    assert_eq!(
        contents.stacks.get(&5),
        Some(&(true, vec![frame])),
        "the waits' stack is still there"
    );
    assert_eq!(
        contents.stacks.len(),
        1,
        "a stack that nothing names any more is gone"
    );
    assert!(contents.modules.contains_key(&3), "and its module");
    assert_eq!(contents.symbols[&(frame, 0)].0, "f", "and its symbol");
    let threads = rows::<ThreadEvent>(&recording);
    let names: Vec<_> = threads
        .iter()
        .map(|thread| (thread.tid, thread.comm.as_str()))
        .collect();
    assert_eq!(
        names[..2],
        [(10, "main"), (11, "worker")],
        "a segment begins with the threads that live"
    );
    assert!(
        names.iter().all(|(tid, _)| *tid != 12),
        "a thread that ended is not repeated"
    );
}

#[test]
fn texts_beyond_the_limit_are_cut_between_characters() {
    let (_folder, dir) = scratch();
    let frame = Frame {
        module: 1,
        address: 1,
    };
    let name = format!("x{}", "é".repeat(40_000));
    record(
        &dir,
        &[
            Event::Stack(Stack {
                id: 1,
                truncated: false,
                frames: vec![frame],
            }),
            Event::Symbol(Symbol {
                frame,
                depth: 0,
                name: name.clone(),
                file: String::new(),
                line: 0,
            }),
        ],
    );
    let stacks = open(&dir).stacks().unwrap();
    let read = &stacks.names(frame)[0].name;
    assert!(
        read.len() >= 32 * 1024 - 1 && read.len() <= 32 * 1024,
        "{} bytes are left",
        read.len()
    );
    assert!(name.starts_with(&**read), "what is left is the beginning");
}

#[test]
fn many_long_names_survive() {
    let (_folder, dir) = scratch();
    let names: Vec<_> = (0..20_000u64).map(|n| format!("{n:02000}")).collect();
    let frame = |n| Frame {
        module: 1,
        address: n,
    };
    let symbol = |(n, name): (u64, &String)| {
        Event::Symbol(Symbol {
            frame: frame(n),
            depth: 0,
            name: name.clone(),
            file: String::new(),
            line: 0,
        })
    };
    let events: Vec<_> = (0..).zip(&names).map(symbol).collect();
    record(&dir, &events);
    let recording = open(&dir);
    let stacks = recording.stacks().unwrap();
    assert_eq!(
        recording.damaged(),
        [],
        "the reader accepts what the writer writes"
    );
    for (n, name) in (0..).zip(&names) {
        let read = stacks.names(frame(n)).first().map(|name| &*name.name);
        assert_eq!(read, Some(name.as_str()), "the name of frame {n}");
    }
}

/// Needs root, for a filesystem of its own.
#[test]
fn a_full_disk_is_said_to_be_full_and_loses_only_the_open_segment() {
    let (folder, _) = scratch();
    let mount = |options: &str| {
        let target = folder.path();
        std::process::Command::new("mount")
            .args(["-t", "tmpfs", "-o", options, "none"])
            .arg(target)
            .output()
    };
    if !mount("size=256k").is_ok_and(|done| done.status.success()) {
        eprintln!("skipped: mounting a small filesystem needs root");
        return;
    }
    let unmount = Unmount(folder.path().to_path_buf());
    let dir = folder.path().join("rec");

    let mut writer = Writer::create(&dir, &meta()).unwrap();
    writer.write(&wait_at(1, None)).unwrap();
    writer.roll().unwrap();
    let mut random = 1u64;
    let failed = (0..1_000_000).find_map(|_| {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        writer
            .write(&Event::Wait(Wait {
                out_ns: random,
                args: [random; 3],
                ..Wait::default()
            }))
            .err()
    });
    let error = failed.expect("256 KiB cannot hold a million random waits");
    assert!(matches!(error, WriteError::DiskFull { .. }), "{error}");
    let again = writer
        .write(&wait_at(2, None))
        .expect_err("nothing more is recorded");
    assert!(matches!(again, WriteError::Stopped { .. }), "{again}");
    writer.finish(&meta()).expect_err("finishing says it again");

    let recording = open(&dir);
    assert!(!recording.meta().complete, "it was cut short");
    assert_eq!(
        recording.meta().notes.len(),
        1,
        "and says why: {:?}",
        recording.meta().notes
    );
    assert_eq!(
        waits_in(&recording, 0..9),
        [1],
        "the closed segment is intact"
    );
    drop(unmount);
}

struct Unmount(std::path::PathBuf);

impl Drop for Unmount {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg(&self.0).status();
    }
}
