//! `whywait record --rotate`: recordings one after the other, which end with their target.

mod common;

use std::fs;
use std::path::{Path, PathBuf};

use common::{Running, bpf, run, scratch, start, target, text, until, whywait};
use nix::sys::signal::Signal;

/// The recordings in a folder, the oldest first.
fn recordings(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut found: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    found.sort();
    found
}

fn is_complete(recording: &Path) -> bool {
    let meta = fs::read_to_string(recording.join("meta.json")).unwrap_or_default();
    meta.contains("\"complete\": true")
}

/// A server, and a whywait that records it on and on in a folder.
fn watched(folder: &Path, rotation: &[&str]) -> (Running, Running) {
    let mut server = start(&mut common::program(target(), &["echo"]));
    server.ping("before");
    let pid = server.pid().to_string();
    let mut args = vec!["record", "-p", &pid, "-o", text(folder)];
    args.extend(rotation);
    let watcher = start(&mut whywait(&args));
    (server, watcher)
}

#[test]
fn each_recording_is_complete_and_the_target_goes_on() {
    if !bpf() {
        return;
    }
    let dir = scratch();
    let folder = dir.path().join("recordings");
    let rotation = ["--rotate", "5s", "--keep-for", "1h", "--max-size", "1G"];
    let (mut server, watcher) = watched(&folder, &rotation);
    until("two recordings to be complete", || {
        server.ping("meanwhile");
        recordings(&folder)
            .iter()
            .filter(|path| is_complete(path))
            .count()
            >= 2
    });
    watcher.signal(Signal::SIGTERM);
    watcher.end().exits(0);
    server.ping("after");
    for recording in recordings(&folder) {
        assert!(is_complete(&recording), "{}", recording.display());
        run(&mut whywait(&["report", text(&recording)]))
            .exits(0)
            .reports();
    }
}

#[test]
fn it_ends_with_the_target() {
    if !bpf() {
        return;
    }
    let dir = scratch();
    let folder = dir.path().join("recordings");
    let (mut server, watcher) = watched(&folder, &["--rotate", "24h"]);
    // It is attached when it has rows.
    until("a recording that goes on", || {
        server.ping("meanwhile");
        let growing = recordings(&folder);
        growing
            .iter()
            .any(|path| path.join("seg-000001.open").exists())
    });
    server.close_input();
    watcher.end().exits(0);
    let found = recordings(&folder);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(is_complete(&found[0]));
}

#[test]
fn what_makes_no_sense_is_refused() {
    let dir = scratch();
    let file = dir.path().join("file");
    fs::write(&file, "").expect("a file");
    let own = std::process::id().to_string();
    for (args, hint) in [
        (
            vec!["record", "--rotate", "1h", "-o", "x", "--", "true"],
            "with -p PID",
        ),
        (
            vec!["record", "--rotate", "1h", "-p", &own],
            "name it with -o",
        ),
        (vec!["record", "--keep-for", "7d", "-p", &own], "--rotate"),
        (
            vec!["record", "--rotate", "1h", "-p", &own, "-o", text(&file)],
            "is not a folder",
        ),
    ] {
        run(whywait(&args).current_dir(dir.path()))
            .exits(2)
            .complains(hint);
    }
}
