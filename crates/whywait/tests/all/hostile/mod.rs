//! What others made is not trusted: names of a target, and recordings that come from who knows
//! where. Whatever they hold, `whywait report` gives a report or one clear line, in bounded time
//! and memory.

mod made_up;
mod made_up_elf;
mod overlapping;
mod targets;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::common::{Run, binary, bpf, program, run, scratch, start, target, text, walk, whywait};
use made_up::{Random, made_up};
use whywait_events::ThreadEvent;

/// Escape sequences, a bell, markup, another direction of writing, and bytes that are no text.
const NAME: &str = "\x1b[31m\x07<b>&\u{202e}";

#[track_caller]
fn is_clean(output: &str) {
    let raw = |c: char| {
        (c.is_control() && c != '\n')
            || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    assert!(
        !output.contains(raw),
        "expected no raw control character, got {output:?}"
    );
}

#[test]
fn hostile_names_reach_no_terminal_raw() {
    if !bpf() {
        return;
    }
    let dir = scratch();
    let folder = dir.path().join("a\n\x1b]0;title\x07<i>\u{202e}");
    fs::create_dir(&folder).expect("a folder");
    let command = folder.join("\x1b[2J");
    fs::copy(target(), &command).expect("copied");
    let recording = dir.path().join("recording");
    let args = [
        "record",
        "-o",
        text(&recording),
        "--",
        text(&command),
        "named",
        NAME,
    ];
    let mut watcher = start(&mut whywait(&args));
    watcher.until_line("ready");
    std::thread::sleep(Duration::from_millis(100));
    is_clean(&watcher.end().exits(0).err);
    let mut seen = false;
    let read = whywait_events::recording::Recording::open(&recording).expect("readable");
    read.read::<ThreadEvent>(None, &mut |thread| {
        seen |= thread.comm.contains("\x1b[31m\x07<b>&")
    })
    .expect("readable");
    assert!(seen, "expected the hostile name in the recording");
    for locale in ["C", "C.UTF-8"] {
        let report = run(whywait(&["report", text(&recording)]).env("LC_ALL", locale)).exits(0);
        is_clean(&report.out);
    }
    let json = run(&mut whywait(&[
        "report",
        text(&recording),
        "--format",
        "json",
    ]))
    .exits(0);
    assert!(
        json.json()["target"]["command"]
            .as_str()
            .is_some_and(|command| command.contains("[2J"))
    );
    let raw = |c: char| c.is_control() && c != '\n';
    assert!(
        !json.out.contains(raw),
        "expected escapes, got {:?}",
        json.out
    );
    // The folder's own name is hostile too.
    let hostile = folder.join("recording");
    let run = run(&mut whywait(&[
        "record",
        "-o",
        text(&hostile),
        "--",
        "true",
    ]))
    .exits(0);
    is_clean(&run.err);
}

/// Reads a recording with bounds on time and memory. Gives what a report may come to.
#[track_caller]
fn report(recording: &Path, what: &str, format: &str) -> Run {
    // Virtual memory, in KiB: whywait itself takes some 100 MiB of it in a debug build.
    let script = "ulimit -v 1500000; exec timeout -s KILL 50 \"$@\"";
    let args = [
        "-c",
        script,
        "bash",
        binary(),
        "report",
        text(recording),
        "--format",
        format,
    ];
    let run = run(&mut program("bash", &args));
    let keep = |reason: &str| -> ! {
        let kept = Path::new(env!("CARGO_TARGET_TMPDIR")).join("bad-recording");
        let _ = fs::remove_dir_all(&kept);
        let _ = std::process::Command::new("cp")
            .arg("-r")
            .arg(recording)
            .arg(&kept)
            .status();
        panic!(
            "{what}: expected a report or one line, got {reason} (kept in {}): exit code {}\n\
             out: {:.2000}\nerr: {:.2000}",
            kept.display(),
            run.code,
            run.out,
            run.err
        );
    };
    match run.code {
        0 if format == "json" && serde_json::from_str::<serde_json::Value>(&run.out).is_err() => {
            keep("broken JSON")
        }
        0 if !run.err.is_empty() => keep("words on standard error"),
        0 => {}
        1 if run.err.lines().count() != 1 || !run.err.starts_with("whywait: ") => {
            keep("more than a line")
        }
        1 if run.err.contains("internal error") => keep("a panic"),
        1 => {}
        _ => keep("another end"),
    }
    is_clean(&run.out);
    is_clean(&run.err);
    run
}

/// How many recordings to make up: `usual`, or as many as the environment asks for.
fn seeds(usual: u64) -> u64 {
    std::env::var("WHYWAIT_TEST_SEEDS").map_or(usual, |seeds| seeds.parse().expect("a number"))
}

/// A recording to damage, and the paths of its files within.
fn intact() -> (tempfile::TempDir, PathBuf, Vec<PathBuf>) {
    let dir = scratch();
    let recording = dir.path().join("recording");
    made_up(7, false).record(&recording, 400);
    assert_eq!(report(&recording, "intact", "json").code, 0);
    let mut files: Vec<PathBuf> = walk(&recording)
        .into_iter()
        .filter(|path| path.is_file())
        .collect();
    files.sort();
    assert!(
        files.len() > 18,
        "expected two segments of nine tables, got {files:?}"
    );
    (dir, recording, files)
}

#[test]
fn numbers_that_no_machine_makes() {
    for seed in 1..=seeds(80) {
        let dir = scratch();
        let recording = dir.path().join("recording");
        made_up(seed, true).record(&recording, 40 + seed as usize % 120 * 3);
        let format = if seed % 2 == 0 { "json" } else { "text" };
        let run = report(&recording, &format!("seed {seed}"), format);
        assert_eq!(run.code, 0, "seed {seed}: {}", run.err);
    }
}

#[test]
fn events_in_any_order_and_overlapping() {
    for seed in 1..=seeds(40) {
        let dir = scratch();
        let recording = dir.path().join("recording");
        made_up(seed, false).record(&recording, 300);
        let format = if seed % 2 == 0 { "json" } else { "text" };
        let run = report(&recording, &format!("seed {seed}"), format);
        assert_eq!(run.code, 0, "seed {seed}: {}", run.err);
    }
}

#[test]
fn everything_at_once() {
    for shape in overlapping::SHAPES {
        let dir = scratch();
        let recording = dir.path().join("recording");
        overlapping::record(&recording, shape);
        let run = report(&recording, shape.name, "json");
        assert_eq!(run.code, 0, "{}: {}", shape.name, run.err);
    }
}

#[test]
fn files_cut_off() {
    let (_dir, recording, files) = intact();
    let mut random = Random(11);
    for file in &files {
        let whole = fs::read(file).expect("readable");
        for length in [0, 1, random.below(whole.len()), whole.len() - 1] {
            fs::write(file, &whole[..length]).expect("writable");
            let what = format!("{} cut to {length} bytes", file.display());
            let run = report(&recording, &what, "json");
            let is_meta = file.ends_with("meta.json");
            assert!(
                run.code == 0 || is_meta,
                "{what}: expected a report, got {}",
                run.err
            );
            if run.code == 0 && !is_meta {
                assert!(
                    run.out.contains("\"incomplete\""),
                    "{what}: expected that the recording is incomplete"
                );
            }
        }
        fs::write(file, &whole).expect("writable");
    }
}

#[test]
fn bytes_changed() {
    let (_dir, recording, files) = intact();
    let mut random = Random(13);
    for round in 0..60 {
        let file = random.pick(&files);
        let whole = fs::read(&file).expect("readable");
        let mut bytes = whole.clone();
        for _ in 0..1 + random.below(4) {
            let at = random.below(bytes.len());
            bytes[at] = random.next() as u8;
        }
        fs::write(&file, &bytes).expect("writable");
        report(
            &recording,
            &format!("round {round}, {}", file.display()),
            "json",
        );
        fs::write(&file, &whole).expect("writable");
    }
}

#[test]
fn files_swapped_missing_or_something_else() {
    let (dir, recording, files) = intact();
    let mut random = Random(17);
    for round in 0..30 {
        let (one, other) = (random.pick(&files), random.pick(&files));
        let (first, second) = (
            fs::read(&one).expect("readable"),
            fs::read(&other).expect("readable"),
        );
        fs::write(&one, &second).expect("writable");
        fs::write(&other, &first).expect("writable");
        report(
            &recording,
            &format!("round {round}, {} and {}", one.display(), other.display()),
            "json",
        );
        fs::write(&one, &first).expect("writable");
        fs::write(&other, &second).expect("writable");
    }
    for file in files.iter().filter(|file| !file.ends_with("meta.json")) {
        let whole = fs::read(file).expect("readable");
        fs::remove_file(file).expect("a file");
        report(&recording, &format!("without {}", file.display()), "json");
        // A pipe that nobody writes to must not be waited for; a device gives bytes for ever.
        run(&mut program("mkfifo", &[text(file)])).exits(0);
        report(&recording, &format!("{} is a pipe", file.display()), "json");
        fs::remove_file(file).expect("a file");
        std::os::unix::fs::symlink("/dev/zero", file).expect("a link");
        report(
            &recording,
            &format!("{} is a device", file.display()),
            "json",
        );
        fs::remove_file(file).expect("a file");
        fs::write(file, &whole).expect("writable");
    }
    drop(dir);
}

#[test]
fn meta_of_any_kind() {
    let (_dir, recording, _) = intact();
    let path = recording.join("meta.json");
    let meta: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(&path).expect("readable")).expect("JSON");
    let mut places = Vec::new();
    pointers(&meta, String::new(), &mut places);
    assert!(places.len() > 20, "expected many fields, got {places:?}");
    let values = [
        "0",
        "1",
        "-1",
        "18446744073709551615",
        "18446744073709551616",
        "1e400",
        "0.5",
        "null",
        "true",
        "\"\"",
        "[]",
        "{}",
    ];
    for place in &places {
        for value in values {
            let Ok(value) = serde_json::from_str::<serde_json::Value>(value) else {
                continue;
            };
            let mut changed = meta.clone();
            *changed.pointer_mut(place).expect("a place") = value.clone();
            fs::write(&path, changed.to_string()).expect("writable");
            report(&recording, &format!("{place} is {value}"), "json");
        }
    }
    for (content, complaint) in [
        ("", "empty"),
        ("{", "meta.json"),
        ("[]", "not a whywait recording"),
        ("{\"schema\": 1e400, \"whywait\": \"1\"}", "meta.json"),
        ("{\"schema\": 4000000000, \"whywait\": \"9.0\"}", "newer"),
        ("{\"name\": \"somebody else's\"}", "not a whywait recording"),
    ] {
        fs::write(&path, content).expect("writable");
        let run = report(&recording, content, "text");
        run.exits(1).in_one_line().complains(complaint);
    }
    let deep = "[".repeat(100_000);
    fs::write(&path, deep).expect("writable");
    report(&recording, "a deep nest", "text")
        .exits(1)
        .in_one_line();
}

/// The places of all values within a JSON value.
fn pointers(value: &serde_json::Value, at: String, found: &mut Vec<String>) {
    match value {
        serde_json::Value::Object(fields) => {
            for (name, value) in fields {
                pointers(value, format!("{at}/{name}"), found);
            }
        }
        serde_json::Value::Array(items) => {
            for (index, value) in items.iter().enumerate() {
                pointers(value, format!("{at}/{index}"), found);
            }
        }
        _ => {}
    }
    if !at.is_empty() {
        found.push(at);
    }
}

#[test]
fn segments_without_number() {
    let (_dir, recording, _) = intact();
    for name in [
        "seg-18446744073709551615",
        "seg-18446744073709551616",
        "seg-",
        "seg-0",
        "seg--1",
        "seg-000002.open",
        "seg-\x1b[31m",
    ] {
        fs::create_dir(recording.join(name)).expect("a folder");
        report(&recording, name, "text").exits(0);
        report(&recording, name, "json").exits(0);
        fs::remove_dir(recording.join(name)).expect("a folder");
    }
    for number in 10..5_010 {
        fs::create_dir(recording.join(format!("seg-{number:06}"))).expect("a folder");
    }
    let run = report(&recording, "thousands of segments", "json").exits(0);
    assert!(
        run.out.len() < 200_000,
        "expected a bounded report, got {} bytes",
        run.out.len()
    );
    assert!(run.out.contains("\"incomplete\""));
}

#[test]
fn a_report_to_a_closed_pipe_is_quiet() {
    let (_dir, recording, _) = intact();
    for format in ["text", "json"] {
        let script =
            format!("(sleep 0.1; \"$0\" report \"$1\" --format {format}; echo $? >&2) | true");
        let run = run(&mut program(
            "bash",
            &["-c", &script, binary(), text(&recording)],
        ))
        .exits(0);
        assert_eq!(run.err, "0\n", "{format}");
    }
    let script = "\"$0\" report \"$1\" > /dev/full";
    run(&mut program(
        "bash",
        &["-c", script, binary(), text(&recording)],
    ))
    .exits(1)
    .in_one_line()
    .complains("standard output");
}
