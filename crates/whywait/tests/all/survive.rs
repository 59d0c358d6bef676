//! What is left when something goes wrong while recording: the target goes on, and what was
//! recorded can be read.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::common::{
    self, Disk, Running, binary, bpf, bpf_objects, bpf_objects_of, program, run, scratch, start,
    target, text, until, walk, whywait,
};
use nix::sys::signal::Signal;
use whywait_events::recording::Recording;
use whywait_events::{Busy, Request, Sample, ThreadEvent, Wait};

fn first_segment(recording: &Path) -> PathBuf {
    recording.join("seg-000001")
}

/// Keeps an echoing target busy until a condition holds: so there is something to record.
#[track_caller]
fn echo_until(echo: &mut Running, what: &str, mut done: impl FnMut() -> bool) {
    until(what, || {
        echo.ping("still here");
        std::thread::sleep(std::time::Duration::from_millis(15));
        done()
    });
}

/// The child of a process.
fn child_of(parent: u32) -> u32 {
    let path = format!("/proc/{parent}/task/{parent}/children");
    let children = fs::read_to_string(path).expect("the kernel lists children");
    let child = children.split_whitespace().next().expect("it has a child");
    child.parse().expect("a number")
}

/// The recording reads, for what was closed, and its report says that it was cut off.
#[track_caller]
fn reports_a_cut(recording: &Path) {
    let json = run(&mut whywait(&[
        "report",
        text(recording),
        "--format",
        "json",
    ]))
    .exits(0)
    .json();
    let coverage = &json["coverage"];
    assert!(
        coverage["incomplete"]["what"]
            .as_str()
            .is_some_and(|what| what.contains("cut off")),
        "expected that it was cut off, got {coverage:#}"
    );
    let lacks = coverage["incomplete"]["lacks"].as_array();
    assert!(lacks.is_some_and(|lacks| !lacks.is_empty()), "{coverage:#}");
    run(&mut whywait(&["report", text(recording)]))
        .exits(0)
        .says("incomplete: ");
    // A fault of the recording never fails a gate.
    run(&mut whywait(&[
        "report",
        text(recording),
        "--fail-on",
        "note",
    ]))
    .exits(0);
}

#[test]
fn killed_while_it_watches_a_process() {
    if !bpf() {
        return;
    }
    let dir = scratch();
    let recording = dir.path().join("recording");
    let mut echo = start(&mut program(target(), &["echo"]));
    let number = echo.pid().to_string();
    let mut watcher = start(&mut whywait(&[
        "record",
        "-o",
        text(&recording),
        "-p",
        &number,
    ]));
    watcher.until_err("watching process");
    let held = bpf_objects_of(watcher.pid());
    for kind in ["program", "link", "map"] {
        assert!(
            held.iter().any(|(held, _)| *held == kind),
            "expected whywait to hold a BPF {kind}, got {held:?}"
        );
    }
    let seen = bpf_objects();
    assert!(
        held.is_subset(&seen),
        "expected the kernel to list {held:?}, got {seen:?}"
    );
    let segment = first_segment(&recording);
    echo_until(&mut echo, "a closed segment", || segment.exists());
    // It reads while it is being made, too.
    reports_a_cut(&recording);
    watcher.signal(Signal::SIGKILL);
    watcher.end().exits(137);
    echo.ping("still here");
    // The kernel takes them off when the last reader is through, some time after the end.
    until("all BPF objects to go", || held.is_disjoint(&bpf_objects()));
    echo.ping("still here");
    reports_a_cut(&recording);
    let mut waits = 0;
    let read = Recording::open(&recording).expect("readable");
    read.read::<Wait>(None, &mut |_| waits += 1)
        .expect("readable");
    assert!(
        waits > 10,
        "expected the waits of the closed segment, got {waits}"
    );
    echo.end().exits(0);
}

#[test]
fn killed_while_it_watches_a_command() {
    if !bpf() {
        return;
    }
    let dir = scratch();
    let recording = dir.path().join("recording");
    let args = ["record", "-o", text(&recording), "--", target(), "echo"];
    let mut watcher = start(&mut whywait(&args));
    watcher.ping("ready");
    let command = child_of(watcher.pid());
    let held = bpf_objects_of(watcher.pid());
    let segment = first_segment(&recording);
    echo_until(&mut watcher, "a closed segment", || segment.exists());
    watcher.signal(Signal::SIGKILL);
    until("whywait's end", || !watcher.is_running());
    // The command comes first: it goes on, with its standard input and output.
    watcher.ping("still here");
    assert!(
        Path::new(&format!("/proc/{command}")).exists(),
        "expected the command to go on"
    );
    until("all BPF objects to go", || held.is_disjoint(&bpf_objects()));
    watcher.ping("still here");
    reports_a_cut(&recording);
    // Nobody is left to wait for the command but its new parent.
    watcher.end().exits(137);
    until("the command's end", || {
        !Path::new(&format!("/proc/{command}")).exists()
            || fs::read_to_string(format!("/proc/{command}/stat"))
                .is_ok_and(|stat| stat.contains(") Z "))
    });
}

#[test]
fn nothing_stays_after_an_ordinary_end() {
    if !bpf() {
        return;
    }
    let dir = scratch();
    let mut command = whywait(&["--", target(), "echo"]);
    let mut watcher = start(command.env("TMPDIR", dir.path()));
    watcher.ping("ready");
    let held = bpf_objects_of(watcher.pid());
    assert!(!held.is_empty(), "expected BPF objects, got none");
    watcher.end().exits(0).reports();
    until("all BPF objects to go", || held.is_disjoint(&bpf_objects()));
    let left = walk(dir.path());
    assert!(left.len() == 1, "expected no temporary files, got {left:?}");
}

#[test]
fn a_full_disk_ends_the_recording_and_not_the_command() {
    if !bpf() {
        return;
    }
    let disk = Disk::new("size=4m");
    let recording = disk.path().join("recording");
    let args = ["record", "-o", text(&recording), "--", target(), "echo"];
    let mut watcher = start(&mut whywait(&args));
    watcher.ping("ready");
    let segment = first_segment(&recording);
    echo_until(&mut watcher, "a closed segment", || segment.exists());
    disk.fill();
    let began = std::time::Instant::now();
    while !watcher.err().contains("disk is full") {
        assert!(
            began.elapsed() < common::DEADLINE,
            "expected an error, got {:?}",
            watcher.err()
        );
        watcher.ping("still here");
        std::thread::sleep(std::time::Duration::from_millis(15));
    }
    for _ in 0..10 {
        watcher.ping("still here");
    }
    assert!(
        watcher.is_running(),
        "expected whywait to wait for its command"
    );
    let ended = watcher.end().exits(1).complains("the command goes on");
    let lines: Vec<&str> = ended.err.lines().collect();
    assert!(
        matches!(
            lines[..],
            [line] if line.starts_with("whywait: ")
                && line.contains(text(&recording))
                && line.contains("free some space")
        ),
        "expected one line that names the disk and says what to do, got:\n{}",
        ended.err
    );
    // Still full: the report is made of what is there.
    says_that_the_disk_was_full(&recording);
    fs::remove_file(disk.path().join("filler")).expect("a file");
    reports_a_cut(&recording);
}

#[track_caller]
fn says_that_the_disk_was_full(recording: &Path) {
    run(&mut whywait(&["report", text(recording)]))
        .exits(0)
        .reports()
        .says("because the disk was full");
}

/// Runs a command that fills the disk, does something else and fails; gives what came of it.
fn fills_and_fails(disk: &Disk, args: &[&str], code: &str) -> common::Run {
    let script = "dd if=/dev/zero of=\"$0/filler\" bs=4k 2>/dev/null; sleep 0.3; exit $1";
    let command = ["--", "sh", "-c", script, text(disk.path()), code];
    run(whywait(&[args, &command].concat()).env("TMPDIR", disk.path()))
}

#[test]
fn a_full_disk_keeps_the_commands_exit_code() {
    if !bpf() {
        return;
    }
    // Whatever is left for the recording: nothing at all, or some pages.
    for size in ["size=64k", "size=200k"] {
        for (code, expected) in [("7", 7), ("0", 1)] {
            let disk = Disk::new(size);
            let recording = disk.path().join("recording");
            let args = ["record", "-o", text(&recording)];
            fills_and_fails(&disk, &args, code)
                .exits(expected)
                .in_one_line()
                .complains("disk is full");
            says_that_the_disk_was_full(&recording);
        }
        // In one go, the report comes all the same.
        let disk = Disk::new(size);
        fills_and_fails(&disk, &[], "7")
            .exits(7)
            .complains("disk is full")
            .reports()
            .says("because the disk was full");
        let left = walk(disk.path());
        assert_eq!(left.len(), 2, "expected the filler alone, got {left:?}");
    }
}

#[test]
fn a_disk_that_is_full_from_the_start_is_one_error() {
    if !bpf() {
        return;
    }
    let disk = Disk::new("size=64k");
    disk.fill();
    let recording = disk.path().join("recording");
    let ran = disk.path().join("ran");
    let args = ["record", "-o", text(&recording), "--", "touch", text(&ran)];
    run(&mut whywait(&args))
        .exits(1)
        .in_one_line()
        .complains("disk is full");
    assert!(!recording.exists(), "expected no recording");
    assert!(!ran.exists(), "expected the command not to have run");
}

#[test]
fn a_recording_is_private_and_never_overwritten() {
    if !bpf() {
        return;
    }
    let dir = scratch();
    let recording = dir.path().join("recording");
    // Whatever the user's mask lets through.
    let script = "umask 0; exec \"$@\"";
    let args = [
        "-c",
        script,
        "sh",
        binary(),
        "record",
        "-o",
        text(&recording),
        "--",
        "true",
    ];
    run(&mut program("sh", &args)).exits(0);
    for path in walk(&recording) {
        let found = fs::metadata(&path).expect("it is there");
        let expected = if found.is_dir() { 0o700 } else { 0o600 };
        let mode = found.permissions().mode() & 0o7777;
        assert!(
            mode == expected,
            "expected mode {expected:o}, got {mode:o}: {path:?}"
        );
    }
    let before: Vec<i64> = walk(&recording).iter().map(|path| modified(path)).collect();
    run(&mut whywait(&[
        "record",
        "-o",
        text(&recording),
        "--",
        "true",
    ]))
    .exits(2)
    .complains("is not empty");
    let after: Vec<i64> = walk(&recording).iter().map(|path| modified(path)).collect();
    assert_eq!(before, after, "the recording was touched");
}

fn modified(path: &Path) -> i64 {
    let found = fs::metadata(path).expect("it is there");
    found.mtime() * 1_000_000_000 + found.mtime_nsec()
}

/// Runs a target with a secret all over its stack until both whywait's ways of looking at a stack
/// had time to see it.
#[test]
fn the_bytes_of_stacks_never_reach_the_disk() {
    if !bpf() {
        return;
    }
    let dir = scratch();
    let secret = fs::read("/proc/sys/kernel/random/uuid").expect("the kernel gives random numbers");
    // 32 bytes of letters: also whatever passes for text would be found.
    let secret: Vec<u8> = secret.into_iter().filter(u8::is_ascii_hexdigit).collect();
    assert_eq!(secret.len(), 32);
    let file = dir.path().join("secret");
    fs::write(&file, &secret).expect("written");
    let recording = dir.path().join("recording");
    let args = [
        "record",
        "-o",
        text(&recording),
        "--stack-bytes",
        "32K",
        "--",
        target(),
        "secret",
        text(&file),
    ];
    let mut watcher = start(&mut whywait(&args));
    watcher.until_line("ready");
    let segment = first_segment(&recording);
    until("a closed segment", || segment.exists());
    watcher.end().exits(0);

    let read = Recording::open(&recording).expect("readable");
    let mut with_stack = 0;
    let mut shown = String::new();
    let mut say = |row: &dyn std::fmt::Debug| shown.push_str(&format!("{row:?}\n"));
    read.read::<Wait>(None, &mut |row| {
        with_stack += usize::from(row.user_stack != 0);
        say(row);
        // Numbers are shown in decimal: as bytes they are looked at too.
        say(&row
            .args
            .map(|arg| String::from_utf8_lossy(&arg.to_le_bytes()).into_owned()));
    })
    .expect("readable");
    assert!(with_stack > 0, "expected waits with stacks, got none");
    read.read::<ThreadEvent>(None, &mut |row| say(row))
        .expect("readable");
    read.read::<Busy>(None, &mut |row| say(row))
        .expect("readable");
    read.read::<Request>(None, &mut |row| say(row))
        .expect("readable");
    read.read::<Sample>(None, &mut |row| say(row))
        .expect("readable");
    let stacks = read.stacks().expect("readable");
    for id in stacks.ids() {
        say(&stacks.named(id).collect::<Vec<_>>());
        let frames = stacks.frames(id).unwrap_or_default();
        say(&frames
            .iter()
            .map(|frame| String::from_utf8_lossy(&frame.address.to_le_bytes()).into_owned())
            .collect::<Vec<_>>());
    }
    say(&stacks.modules().collect::<Vec<_>>());
    say(read.meta());
    say(&read.counters().expect("readable"));
    assert!(
        shown.contains("wait_for_input"),
        "expected the stack's functions, got {shown}"
    );
    // A word of the secret is as bad as all of it. Its name is the file's, which the command line
    // has.
    let words: Vec<&[u8]> = secret.windows(8).collect();
    let found = |bytes: &[u8]| {
        words
            .iter()
            .any(|word| bytes.windows(8).any(|at| at == *word))
    };
    assert!(
        !found(shown.as_bytes()),
        "a part of the stack is in the recording's columns"
    );
    for path in walk(&recording).into_iter().filter(|path| path.is_file()) {
        let bytes = fs::read(&path).expect("readable");
        assert!(!found(&bytes), "a part of the stack is in {path:?}");
    }
}
