//! Launching a command from behind a gate, with the built whywait as the one that waits there.
//!
//! A test program of its own: it has the program's modules at its root, as they name each other.

#![allow(dead_code)] // Only parts of these modules are of interest here.

#[path = "../src/errors.rs"]
mod errors;
#[path = "../src/launch.rs"]
mod launch;
#[path = "../src/user.rs"]
mod user;

use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use errors::Reported;
use launch::{Launch, exit_code};

fn prepare(command: &[&str]) -> Launch {
    let command: Vec<OsString> = command.iter().map(OsString::from).collect();
    Launch::prepare_from(Path::new(env!("CARGO_BIN_EXE_whywait")), &command, None)
        .expect("a process can be made")
}

fn until(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(
            start.elapsed() < Duration::from_secs(10),
            "waited in vain: {what}"
        );
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn the_command_waits_for_the_gate_and_keeps_its_pid() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let file = dir.path().join("pid");
    let mut launch = prepare(&["sh", "-c", &format!("echo $$ > {}; exit 7", file.display())]);
    std::thread::sleep(Duration::from_millis(100));
    assert!(!file.exists());
    assert_eq!(launch.try_wait().expect("it can be waited for"), None);
    launch.go().expect("it starts");
    assert_eq!(exit_code(launch.wait().expect("it can be waited for")), 7);
    assert_eq!(
        fs::read_to_string(file).expect("it ran").trim(),
        launch.pid().to_string()
    );
}

#[test]
fn the_command_has_no_descriptor_and_no_signal_setting_of_whywaits() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let file = dir.path().join("out");
    // The shell's own open file is closed before it looks.
    let script = format!(
        "(ls /proc/$$/fd; grep -E 'Sig(Ign|Blk)' /proc/$$/status) > {}",
        file.display()
    );
    let mut launch = prepare(&["sh", "-c", &script]);
    launch.go().expect("it starts");
    assert!(launch.wait().expect("it can be waited for").success());
    let seen = fs::read_to_string(file).expect("it ran");
    let (fds, masks): (Vec<&str>, Vec<&str>) =
        seen.lines().partition(|line| line.parse::<u32>().is_ok());
    // What the test's own caller left open stays open: only sockets can be a gate's.
    assert!(
        fds.contains(&"0") && fds.contains(&"1") && fds.contains(&"2"),
        "{seen}"
    );
    let pipe_ignored = masks.iter().any(|line| {
        let mask = line
            .split_whitespace()
            .last()
            .and_then(|mask| u64::from_str_radix(mask, 16).ok());
        mask.expect("a mask") >> 12 & 1 == 1
    });
    assert!(!pipe_ignored, "{seen}");
}

#[test]
fn a_command_that_cannot_run_is_told_from_one_that_fails() {
    for (command, code) in [
        ("/no/such/command", 127),
        ("no-such-command-anywhere", 127),
        ("/etc/passwd", 126),
        ("/", 126),
    ] {
        let error = prepare(&[command]).go().expect_err("it cannot run");
        assert_eq!(
            error.downcast_ref::<Reported>().map(|reported| reported.0),
            Some(code),
            "{command}"
        );
    }
    let mut launch = prepare(&["sh", "-c", "exit 127"]);
    launch.go().expect("sh can run");
    assert_eq!(exit_code(launch.wait().expect("it can be waited for")), 127);
}

#[test]
fn a_launch_that_comes_to_nothing_leaves_nothing() {
    let launch = prepare(&["sleep", "60"]);
    let pid = launch.pid();
    drop(launch);
    assert!(!Path::new(&format!("/proc/{pid}")).exists());
}

#[test]
fn signals_reach_the_command() {
    let mut launch = prepare(&["sleep", "60"]);
    launch.go().expect("it starts");
    launch.signal(15);
    until("sleep to end", || {
        launch.try_wait().expect("it can be waited for").is_some()
    });
    assert_eq!(exit_code(launch.wait().expect("it can be waited for")), 143);
    // Its number may be somebody else's now.
    launch.signal(15);
}

#[test]
fn a_child_killed_at_the_gate_is_no_failure_to_start() {
    let mut launch = prepare(&["true"]);
    launch.signal(9);
    until("the child to end", || {
        launch.try_wait().expect("it can be waited for").is_some()
    });
    launch.go().expect("nothing to report");
    assert_eq!(exit_code(launch.wait().expect("it can be waited for")), 137);
}
