//! Real waits of many kinds, and what the model makes of their kernel stacks: these names are the
//! kernel's, and change with it.

use std::collections::HashMap;
use std::path::Path;

use crate::common::{bpf, compiled, run, scratch, text, whywait};
use whywait_events::recording::Recording;
use whywait_events::{ThreadChange, ThreadEvent, Wait};
use whywait_model::{StackNames, StackText, WaitKind, wait_kind};

/// For each thread name: what its threads waited for, the longest wait first, with the kernel
/// stacks.
type Kinds = HashMap<String, Vec<(Option<WaitKind>, String)>>;

fn kinds(dir: &Path) -> Kinds {
    let recording =
        Recording::open(dir).unwrap_or_else(|error| panic!("expected a recording, got {error}"));
    let mut names: Vec<ThreadEvent> = Vec::new();
    recording
        .read::<ThreadEvent>(None, &mut |event| {
            if event.change == ThreadChange::Rename {
                names.push(event.clone());
            }
        })
        .expect("readable");
    let mut waits: Vec<Wait> = Vec::new();
    recording
        .read::<Wait>(None, &mut |wait| {
            if wait.in_ns.is_some() {
                waits.push(wait.clone());
            }
        })
        .expect("readable");
    waits
        .sort_by_key(|wait| std::cmp::Reverse(wait.in_ns.unwrap_or(0).saturating_sub(wait.out_ns)));
    let stacks = StackNames::read(&recording.stacks().expect("readable"));
    let none = StackText::default();
    let mut found = Kinds::new();
    for wait in &waits {
        let name = names
            .iter()
            .rfind(|event| event.tid == wait.tid && event.at_ns <= wait.out_ns);
        if let Some(name) = name {
            let kernel = stacks.get(wait.kernel_stack).unwrap_or(&none);
            found.entry(name.comm.clone()).or_default().push((
                wait_kind(wait, kernel),
                stacks.names(wait.kernel_stack).join(" "),
            ));
        }
    }
    found
}

#[test]
fn waits_are_called_what_they_are() {
    if !bpf() {
        return;
    }
    let dir = scratch();
    let recording = dir.path().join("recording");
    // On a disk, unlike the temporary folder of some systems.
    let files = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a temporary folder");
    let program = compiled("waits");
    run(&mut whywait(&[
        "record",
        "--threshold",
        "10us",
        "-o",
        text(&recording),
        "--",
        &program,
        text(files.path()),
    ]))
    .exits(0);
    let found = kinds(&recording);
    let expected = [
        ("pipe-read", "pipe read"),
        ("pipe-write", "pipe write (pipe full)"),
        ("eventfd", "eventfd"),
        ("timerfd", "timerfd"),
        ("inotify", "inotify"),
        ("poll", "poll"),
        ("select", "select"),
        ("epoll", "epoll"),
        ("accept", "accept"),
        ("connect", "connect (unix backlog full)"),
        ("tcp-read", "network receive (TCP)"),
        ("tcp-write", "network send (buffer full)"),
        ("udp", "network receive (UDP)"),
        ("unix-read", "unix receive"),
        ("unix-write", "unix send (buffer full)"),
        ("flock", "file lock (flock)"),
        ("sleep", "sleep"),
        ("child", "child"),
        ("vfork", "child (vfork)"),
    ];
    for (thread, name) in expected {
        let waits = found.get(thread).map(Vec::as_slice).unwrap_or_default();
        assert!(
            waits
                .iter()
                .any(|(kind, _)| kind.is_some_and(|kind| kind.name == name)),
            "expected {thread} to wait for {name:?}, got {waits:?}"
        );
    }
    // What these wait for is up to the file system and the device, and a file system in memory lets
    // nobody wait.
    let remote = ["FUSE", "9P", "NFS"];
    for (thread, name) in [("fsync", "fsync"), ("fault", "page fault")] {
        for (kind, stack) in found.get(thread).map(Vec::as_slice).unwrap_or_default() {
            let of_call = match thread {
                "fsync" => stack.contains("fsync"),
                _ => stack.contains("page_fault"),
            };
            if of_call {
                assert!(
                    kind.is_some_and(|kind| {
                        kind.name.contains(name) || remote.contains(&kind.name)
                    }),
                    "expected {name:?} in {stack:?}, got {kind:?}"
                );
            }
        }
    }
}

/// Tens of thousands of reads a second that each outlast the threshold: few are recorded one by
/// one, and none is lost.
#[test]
fn a_storm_of_reads_is_counted_whole() {
    if !bpf() {
        return;
    }
    let dir = scratch();
    let recording = dir.path().join("recording");
    let pingpong = compiled("pingpong");
    let recorded = run(&mut whywait(&[
        "record",
        "--threshold",
        "20us",
        "-o",
        text(&recording),
        "--",
        &pingpong,
        "20000",
    ]))
    .exits(0);
    let slept: u64 = recorded
        .out
        .trim()
        .strip_prefix("slept ")
        .and_then(|count| count.parse().ok())
        .unwrap_or_else(|| panic!("expected \"slept N\", got {:?}", recorded.out));
    let report = run(&mut whywait(&[
        "report",
        text(&recording),
        "--waits",
        "--format",
        "json",
    ]))
    .exits(0)
    .json();
    let sum = |field: &str| -> u64 {
        let rows = report["waits"].as_array().expect("rows");
        rows.iter()
            .filter(|row| row["what"] == "pipe read")
            .filter_map(|row| row[field].as_u64())
            .sum()
    };
    let (count, summed_up) = (sum("count"), sum("short"));
    assert!(
        count <= slept && count * 10 >= slept * 9,
        "expected about {slept} reads that slept, got {count}"
    );
    assert!(
        summed_up > 0,
        "expected that not all of {count} reads were recorded one by one"
    );
}

/// The findings about a job that serves nobody, as JSON.
fn findings_of_a_job(args: &[&str]) -> Vec<serde_json::Value> {
    let dir = scratch();
    let recording = dir.path().join("recording");
    let job = compiled("batch");
    let mut command = vec!["record", "-o", text(&recording), "--", &job];
    command.extend(args);
    run(&mut whywait(&command)).exits(0);
    let report = run(&mut whywait(&[
        "report",
        text(&recording),
        "--format",
        "json",
    ]))
    .exits(0);
    let report: serde_json::Value = serde_json::from_str(&report.out).expect("JSON");
    report["findings"].as_array().expect("a list").clone()
}

#[test]
fn a_job_without_requests_may_contend_for_a_lock() {
    if !bpf() {
        return;
    }
    let findings = findings_of_a_job(&[]);
    let lock = findings
        .iter()
        .find(|finding| finding["code"] == "lock-contention")
        .unwrap_or_else(|| panic!("expected lock-contention, got {findings:#?}"));
    assert_eq!(lock["saving"]["kind"], "throughput");
    let title = lock["title"].as_str().expect("a title");
    assert!(title.contains("rebuild_table"), "who held it: {title}");
    let findings = findings_of_a_job(&["idle"]);
    assert!(
        findings.iter().all(|finding| finding["severity"] == "note"),
        "threads that wait for the end harm nobody: {findings:#?}"
    );
}
