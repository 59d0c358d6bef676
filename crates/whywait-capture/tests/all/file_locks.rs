//! Files that others have locked are seen in the kernel's list of locks, if the target has them
//! open.
//!
//! Needs the privileges to record. With `WHYWAIT_NO_BPF=1` nothing is tested.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use whywait_capture::{Options, Session};
use whywait_events::FileLock;
use whywait_events::recording::Recording;

use crate::common::{self, Running};

/// Has two files open, locks a third one for itself, and sleeps until it has the second one.
const TARGET: &str = "
import fcntl, sys
tried, waited, own = [open(name, 'a') for name in sys.argv[1:]]
fcntl.flock(own, fcntl.LOCK_EX)
print('open', flush=True)
fcntl.flock(waited, fcntl.LOCK_EX)
sys.stdin.read()
";

#[test]
fn what_others_have_locked_and_the_target_has_open_is_seen() {
    let Some(_turn) = common::together() else {
        return;
    };
    let temporary = tempfile::tempdir().expect("a temporary folder can be made");
    let path = |name: &str| temporary.path().join(name);
    let locked = ["tried", "waited", "strange"].map(|name| {
        let file = File::create(path(name)).expect("a file can be made");
        file.lock().expect("nobody else has it");
        file
    });
    let child = Command::new("/usr/bin/python3")
        .args(["-c", TARGET])
        .args(["tried", "waited", "own"].map(path))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn();
    let mut target = Running(child.expect("Python is there"));
    let mut output = BufReader::new(target.0.stdout.take().expect("it is piped"));
    let mut line = String::new();
    output.read_line(&mut line).expect("the target speaks");
    // Until it sleeps for the second one, the list says so.
    let waiter = format!(" {} ", target.0.id());
    let waits = || {
        let list = std::fs::read_to_string("/proc/locks").expect("the kernel has a list");
        let mut waiters = list.lines().filter(|line| line.contains("->"));
        waiters.any(|line| line.contains(&waiter))
    };
    let begun = Instant::now();
    while !waits() {
        assert!(begun.elapsed() < Duration::from_secs(60), "it never sleeps");
        std::thread::sleep(Duration::from_millis(5));
    }

    let dir = path("recording");
    let options = Options::default();
    let mut session =
        Session::start(target.0.id(), vec![], &dir, &options).expect("the privileges to record");
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(1) {
        session.turn().expect("the recording goes on");
        session.sleep();
    }
    session.finish(None).expect("the recording is finished");
    drop(locked);

    let recording = Recording::open(&dir).expect("a recording");
    let mut seen: BTreeMap<String, FileLock> = BTreeMap::new();
    recording
        .read::<FileLock>(None, &mut |row| {
            seen.insert(row.path.clone(), row.clone());
        })
        .expect("it can be read");
    let names: Vec<_> = ["tried", "waited"]
        .map(|name| path(name).display().to_string())
        .into();
    let found: Vec<_> = seen.keys().cloned().collect();
    assert_eq!(
        found, names,
        "the files that are locked and open there: {seen:#?}"
    );
    let looks = recording.counters().expect("counters")["file-locks.looks"];
    for (name, waiters) in [("tried", 0), ("waited", 1)] {
        let row = &seen[&path(name).display().to_string()];
        assert_eq!(row.tgid, target.0.id(), "{row:?}");
        assert_eq!(row.by_tgid, std::process::id(), "{row:?}");
        assert_eq!(row.waiters, waiters, "{row:?}");
        assert_eq!(u64::from(row.looks), looks, "in all looks: {row:?}");
        assert!(looks > 2, "{looks} looks in a second");
    }
}
