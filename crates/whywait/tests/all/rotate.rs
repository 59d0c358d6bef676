//! `whywait record --rotate`: recordings one after the other, which end with their target.

use std::fs;
use std::path::{Path, PathBuf};

use crate::common::{self, Running, bpf, run, scratch, start, target, text, until, whywait};
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

/// When a recording began and ended.
fn times(recording: &Path) -> (u64, u64) {
    let meta = fs::read_to_string(recording.join("meta.json")).expect("it is there");
    let meta: serde_json::Value = serde_json::from_str(&meta).expect("it is JSON");
    let time = |name: &str| meta[name].as_u64().expect("a time");
    (time("started_ns"), time("ended_ns"))
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

fn until_two_are_complete(folder: &Path, server: &mut Running) {
    until("two recordings to be complete", || {
        server.ping("meanwhile");
        let complete = recordings(folder);
        complete.iter().filter(|path| is_complete(path)).count() >= 2
    });
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
    until_two_are_complete(&folder, &mut server);
    watcher.signal(Signal::SIGTERM);
    let ended = watcher.end().exits(0);
    server.ping("after");
    let mut watched_until = 0;
    for recording in recordings(&folder) {
        let (from, to) = times(&recording);
        assert!(
            watched_until == 0 || from <= watched_until,
            "nothing was watched for {} ns",
            from - watched_until
        );
        watched_until = to;
        for said in ["recording to", "recorded"] {
            let said = format!("whywait: {said} {}", text(&recording));
            assert!(ended.err.contains(&said), "{said:?} in {}", ended.err);
        }
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
fn a_command_is_recorded_from_its_first_instruction_until_it_ends() {
    if !bpf() {
        return;
    }
    let dir = scratch();
    let folder = dir.path().join("recordings");
    let args = ["record", "--rotate", "5s", "-o", text(&folder), "--"];
    let mut server = start(&mut whywait(&[&args[..], &[target(), "echo"]].concat()));
    until_two_are_complete(&folder, &mut server);
    server.close_input();
    server.end().exits(0);
    let found = recordings(&folder);
    assert!(found.iter().all(|path| is_complete(path)), "{found:?}");
    // The first one was begun while another program waited at the gate.
    for recording in found {
        let meta = fs::read_to_string(recording.join("meta.json")).expect("it is there");
        let meta: serde_json::Value = serde_json::from_str(&meta).expect("it is JSON");
        assert_eq!(meta["command"], serde_json::json!([target(), "echo"]));
    }
}

#[test]
fn a_commands_exit_code_and_signals_are_its_own() {
    if !bpf() {
        return;
    }
    let dir = scratch();
    let rotate = |folder: &str, command: &[&str]| {
        let folder = dir.path().join(folder);
        let args = ["record", "--rotate", "24h", "-o", text(&folder), "--"];
        (start(&mut whywait(&[&args[..], command].concat())), folder)
    };
    let (fails, folder) = rotate("fails", &["sh", "-c", "exit 7"]);
    fails.end().exits(7);
    assert_eq!(recordings(&folder).len(), 1);
    let (none, folder) = rotate("none", &["/no/such/program"]);
    none.end().exits(127).complains("/no/such/program");
    assert!(recordings(&folder).is_empty(), "there was no command");
    let (mut server, folder) = rotate("ended", &[target(), "echo"]);
    server.ping("before");
    server.signal(Signal::SIGTERM);
    until("the command to end", || !server.is_running());
    server.end().exits(128 + 15);
    let found = recordings(&folder);
    assert!(found.len() == 1 && is_complete(&found[0]), "{found:?}");
}

#[test]
fn what_makes_no_sense_is_refused() {
    let dir = scratch();
    let file = dir.path().join("file");
    fs::write(&file, "").expect("a file");
    let own = std::process::id().to_string();
    for (args, hint) in [
        (
            vec!["record", "--rotate", "1h", "-o", "x"],
            "nothing to watch",
        ),
        (
            vec!["record", "--rotate", "1h", "--", "true"],
            "name it with -o",
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
