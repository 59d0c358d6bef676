//! `whywait publish`: what is published of real recordings, and what happens where it cannot be.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::{Disk, run, scratch, start, text, until, walk, whywait};
use serde_json::Value;

/// A recording of those that are kept, unpacked.
fn recording(folder: &Path, name: &str) -> PathBuf {
    let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/recordings");
    let archive = kept.join(format!("{name}.tar.gz"));
    let unpacked = Command::new("tar")
        .args(["-x", "-z", "--no-same-owner", "-f"])
        .arg(&archive)
        .current_dir(folder)
        .status()
        .expect("there is tar");
    assert!(unpacked.success(), "{} is an archive", archive.display());
    folder.join(name)
}

/// The files below a folder, with what is in them.
fn files(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut files: Vec<PathBuf> = walk(folder)
        .into_iter()
        .filter(|path| path.is_file())
        .collect();
    files.sort();
    files
        .into_iter()
        .map(|path| {
            let bytes = fs::read(&path).expect("it can be read");
            (path, bytes)
        })
        .collect()
}

/// The rows of a recording as JSON Lines have them.
fn lines(recording: &Path) -> Vec<Value> {
    let said = run(&mut whywait(&[
        "publish",
        text(recording),
        "--format",
        "jsonl",
        "-",
    ]))
    .exits(0);
    let lines = said.out.lines();
    lines
        .map(|line| serde_json::from_str(line).expect("it is JSON"))
        .collect()
}

fn sum(rows: &[Value], table: &str, key: &str) -> u64 {
    rows.iter()
        .filter(|row| row["table"] == table)
        .map(|row| row[key].as_u64().expect("a number"))
        .sum()
}

/// The figures of a report's table of time, added up.
fn total(time: &Value) -> u64 {
    match time {
        Value::Object(parts) => parts.values().map(total).sum(),
        time => time.as_u64().unwrap_or(0),
    }
}

#[test]
fn sums_are_those_of_the_recordings_own_report() {
    let dir = scratch();
    for name in [
        "asyncio-blocked-broken",
        "controls-go-http",
        "convoy-broken",
        "redis-healthy-default",
        "uring-http-blocked",
    ] {
        let recording = recording(dir.path(), name);
        let report = run(&mut whywait(&[
            "report",
            text(&recording),
            "--format",
            "json",
        ]));
        let report = report.exits(0).json();
        let waits = ["report", text(&recording), "--waits", "--format", "json"];
        let waits = run(&mut whywait(&waits)).exits(0).json();
        let rows = lines(&recording);
        let late = report["requests"]["open"]["late"].as_u64().unwrap_or(0);
        let count = report["requests"]["count"].as_u64().expect("a number");
        assert_eq!(sum(&rows, "requests", "weight"), count + late, "{name}");
        let time = total(&report["requests"]["time"]);
        assert_eq!(sum(&rows, "request_parts", "ns"), time, "{name}");
        let waits = waits["waits"].as_array().expect("rows");
        let of_report =
            |key: &str| -> u64 { waits.iter().map(|row| row[key].as_u64().unwrap_or(0)).sum() };
        for (ours, theirs) in [("total_ns", "total_ns"), ("times", "count")] {
            assert_eq!(
                sum(&rows, "waits", ours),
                of_report(theirs),
                "{name}: {ours}"
            );
        }
        let codes =
            |rows: &[Value]| -> Vec<Value> { rows.iter().map(|row| row["code"].clone()).collect() };
        let published: Vec<Value> = rows
            .iter()
            .filter(|row| row["table"] == "findings")
            .cloned()
            .collect();
        let found = report["findings"].as_array().expect("a list");
        assert_eq!(codes(&published), codes(found), "{name}");
    }
}

#[test]
fn a_slow_requests_parts_sum_to_its_latency() {
    let dir = scratch();
    let rows = lines(&recording(dir.path(), "convoy-broken"));
    let slow = rows
        .iter()
        .filter(|row| row["table"] == "requests" && !row["request"].is_null());
    let mut count = 0;
    for row in slow {
        let parts = rows
            .iter()
            .filter(|part| part["table"] == "request_parts" && part["request"] == row["request"]);
        let sum: u64 = parts
            .map(|part| part["ns"].as_u64().expect("a number"))
            .sum();
        assert_eq!(Some(sum), row["latency_ns"].as_u64(), "{row}");
        count += 1;
    }
    assert!(count > 10, "{count} requests");
}

#[test]
fn publishing_again_or_twice_at_once_changes_nothing() {
    let dir = scratch();
    let recording = recording(dir.path(), "convoy-broken");
    let fleet = dir.path().join("fleet");
    let args = ["publish", text(&recording), text(&fleet)];
    let (one, other) = (start(&mut whywait(&args)), start(&mut whywait(&args)));
    one.end().exits(0);
    other.end().exits(0);
    let before = files(&fleet);
    assert_eq!(before.len(), 7, "a file a table, and none besides");
    run(&mut whywait(&args))
        .exits(0)
        .complains("published 1 recording (0 new files");
    assert!(files(&fleet) == before);
    let new = ["publish", "--new", text(&recording), text(&fleet)];
    run(&mut whywait(&new))
        .exits(0)
        .complains("published 0 recordings");
    assert!(files(&fleet) == before);
}

#[test]
fn labels_and_a_choice_of_tables() {
    let dir = scratch();
    let recording = recording(dir.path(), "convoy-broken");
    let fleet = dir.path().join("fleet");
    run(&mut whywait(&[
        "publish",
        "--host",
        "web/1",
        "--service",
        "shop",
        "--release",
        "1.5",
        "--tables",
        "findings",
        text(&recording),
        text(&fleet),
    ]))
    .exits(0);
    let paths: Vec<String> = files(&fleet)
        .into_iter()
        .map(|(path, _)| text(&path).to_owned())
        .collect();
    assert_eq!(paths.len(), 2, "{paths:?}");
    assert!(
        paths[0].contains("/findings/date=") && paths[0].contains("/host=web%2F1/"),
        "{paths:?}"
    );
    assert!(paths[1].contains("/recordings/date="), "{paths:?}");
    run(&mut whywait(&[
        "publish",
        "--tables",
        "none",
        text(&recording),
        text(&fleet),
    ]))
    .exits(2)
    .complains("the tables are");
}

#[test]
fn a_newer_or_damaged_recording_keeps_no_other_from_being_published() {
    let dir = scratch();
    let all = dir.path().join("all");
    fs::create_dir(&all).expect("a folder");
    let newer = recording(&all, "convoy-broken");
    let meta = fs::read_to_string(newer.join("meta.json")).expect("it is there");
    let mut meta: Value = serde_json::from_str(&meta).expect("it is JSON");
    meta["schema"] = 99.into();
    fs::write(newer.join("meta.json"), meta.to_string()).expect("it can be written");
    // Half of a file, as after a crash of the machine.
    let half = recording(&all, "controls-go-http");
    let waits = half.join("seg-000001/waits.parquet");
    let bytes = fs::read(&waits).expect("it is there");
    fs::write(&waits, &bytes[..bytes.len() / 2]).expect("it can be written");
    let fleet = dir.path().join("fleet");
    run(&mut whywait(&["publish", text(&all), text(&fleet)]))
        .exits(1)
        .complains("made by a newer whywait (schema 99")
        .complains("published 1 recording");
    let rows = lines(&half);
    let of = rows
        .iter()
        .find(|row| row["table"] == "recordings")
        .expect("its row");
    assert_eq!(of["complete"], false);
    let notes = of["notes"].as_str().expect("text");
    assert!(
        notes.contains("seg-000001/waits.parquet: truncated"),
        "{notes}"
    );
}

#[test]
fn a_place_that_cannot_be_written_is_one_line() {
    let dir = scratch();
    let recording = recording(dir.path(), "convoy-broken");
    let file = dir.path().join("file");
    fs::write(&file, "mine").expect("a file");
    let into = file.join("fleet");
    run(&mut whywait(&["publish", text(&recording), text(&into)]))
        .exits(1)
        .complains("cannot write")
        .in_one_line();
    assert_eq!(fs::read_to_string(&file).expect("it is there"), "mine");
    run(&mut whywait(&["publish", text(&recording), "ftp://fleet"]))
        .exits(2)
        .complains("cannot publish to ftp://fleet");
    run(&mut whywait(&["publish", text(&recording)]))
        .exits(2)
        .complains("nowhere to publish to");
    run(&mut whywait(&[
        "publish",
        text(&dir.path().join("none")),
        text(&dir.path().join("fleet")),
    ]))
    .exits(1)
    .complains("not a whywait recording");
}

#[test]
fn what_a_killed_publisher_left_is_whole_and_the_next_one_completes_it() {
    let dir = scratch();
    let recording = recording(dir.path(), "convoy-broken");
    let (whole, fleet) = (dir.path().join("whole"), dir.path().join("fleet"));
    run(&mut whywait(&["publish", text(&recording), text(&whole)])).exits(0);
    // Their paths below the folder, for which the two are compared.
    let below = |folder: &Path| -> Vec<(PathBuf, Vec<u8>)> {
        let strip = |path: PathBuf| path.strip_prefix(folder).expect("below").to_path_buf();
        let found = files(folder).into_iter();
        found.map(|(path, bytes)| (strip(path), bytes)).collect()
    };
    let expected = below(&whole);
    let args = ["publish", "--new", text(&recording), text(&fleet)];
    let mut first = start(&mut whywait(&args));
    until("the first file, or the end", || {
        fleet.exists() && !files(&fleet).is_empty() || !first.is_running()
    });
    // This kills it.
    drop(first);
    let is_whole = |path: &Path| path.extension().is_some_and(|end| end == "parquet");
    for (path, bytes) in below(&fleet) {
        let whole = !is_whole(&path) || expected.contains(&(path.clone(), bytes));
        assert!(whole, "{} is not as it should be", path.display());
    }
    run(&mut whywait(&args)).exits(0);
    let mut found = below(&fleet);
    found.retain(|(path, _)| is_whole(path));
    assert!(found == expected, "all files, each as it should be");
}

#[test]
fn half_a_published_file_is_written_again() {
    let dir = scratch();
    let recording = recording(dir.path(), "convoy-broken");
    let fleet = dir.path().join("fleet");
    let new = ["publish", "--new", text(&recording), text(&fleet)];
    run(&mut whywait(&new)).exits(0);
    let before = files(&fleet);
    // As a file system may leave them that lost what it had said was on the disk.
    for (path, bytes) in &before {
        fs::write(path, &bytes[..bytes.len() / 2]).expect("it can be written");
    }
    run(&mut whywait(&new))
        .exits(0)
        .complains("published 1 recording (7 new files");
    assert!(files(&fleet) == before);
}

#[cfg(not(feature = "s3"))]
#[test]
fn without_s3_the_error_says_how_to_build_with_it() {
    let dir = scratch();
    let recording = recording(dir.path(), "convoy-broken");
    run(&mut whywait(&["publish", text(&recording), "s3://fleet/w"]))
        .exits(2)
        .complains("cannot publish to s3://fleet/w: this whywait was built without S3")
        .complains("make FEATURES=s3");
}

#[test]
fn a_place_that_is_read_only_is_one_line_and_stays_as_it_is() {
    let dir = scratch();
    let recording = recording(dir.path(), "convoy-broken");
    let disk = Disk::new("size=4m");
    let fleet = disk.path().join("fleet");
    run(&mut whywait(&["publish", text(&recording), text(&fleet)])).exits(0);
    let before = files(&fleet);
    disk.make_read_only();
    let again = ["publish", "--release", "2", text(&recording), text(&fleet)];
    run(&mut whywait(&again))
        .exits(1)
        .complains("Read-only file system")
        .in_one_line();
    assert!(files(&fleet) == before);
}

#[test]
fn a_full_disk_is_one_line_and_damages_nothing() {
    let dir = scratch();
    let recording = recording(dir.path(), "convoy-broken");
    let disk = Disk::new("size=256k");
    let fleet = disk.path().join("fleet");
    let one = [
        "publish",
        "--tables",
        "findings",
        text(&recording),
        text(&fleet),
    ];
    run(&mut whywait(&one)).exits(0);
    let before = files(&fleet);
    disk.fill();
    let all = ["publish", "--release", "2", text(&recording), text(&fleet)];
    run(&mut whywait(&all))
        .exits(1)
        .complains("the disk is full")
        .in_one_line();
    assert!(
        files(&fleet) == before,
        "what was there is as it was, and nothing came"
    );
    fs::remove_file(disk.path().join("filler")).expect("it is there");
    run(&mut whywait(&all)).exits(0);
}
