//! Who had the CPU that a thread waited for.
//!
//! Needs the privileges to record. With `WHYWAIT_NO_BPF=1` nothing is tested.

use std::io::Write;
use std::process::{Command, Stdio};

use whywait_capture::{Options, Session};
use whywait_events::recording::Recording;
use whywait_events::{CpuWait, NoCpu};

use crate::common::{self, Running};

/// When it is told to: computes for 10 ms of CPU time after each sleep, 30 times.
const PROGRAM: &str = "
import sys, time
sys.stdin.readline()
for _ in range(30):
    time.sleep(0.010)
    until = time.process_time_ns() + 10_000_000
    while time.process_time_ns() < until:
        pass
";

/// Starts a program that stays on the first CPU, in a session of its own: the scheduler gives each
/// session as much.
fn on_first_cpu(command: &[&str]) -> Running {
    let child = Command::new("setsid")
        .args(["taskset", "-c", "0"])
        .args(command)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn();
    Running(child.expect("setsid and taskset are there"))
}

#[test]
fn the_process_that_had_the_cpu_is_named() {
    let Some(_turn) = common::alone() else {
        return;
    };
    let neighbour = on_first_cpu(&["sh", "-c", "while :; do :; done"]);
    let mut target = on_first_cpu(&["/usr/bin/python3", "-c", PROGRAM]);
    let pid = target.0.id();
    let dir = tempfile::tempdir().expect("a temporary folder can be made");
    let dir = dir.path().join("recording");
    let mut session =
        Session::start(pid, vec![], &dir, &Options::default()).expect("the privileges to record");
    let input = target.0.stdin.as_mut().expect("it is piped");
    input.write_all(b"go\n").expect("it reads");
    common::record_until(&mut session, |_| target.0.try_wait().ok().flatten());
    session.finish(None).expect("the recording is finished");

    let recording = Recording::open(&dir).expect("a recording");
    let (mut all_ns, mut by_neighbour_ns) = (0, 0);
    recording
        .read::<CpuWait>(None, &mut |row| {
            assert_eq!((row.tid, row.tgid), (pid, pid));
            assert!(row.in_ns - row.from_ns >= 1_000_000, "{row:?}");
            all_ns += row.in_ns - row.from_ns;
            if row.by_tgid == neighbour.0.id() {
                assert_eq!((row.why, row.by_name.as_str()), (NoCpu::Task, "sh"));
                by_neighbour_ns += row.by_ran_ns.min(row.in_ns - row.from_ns);
            }
        })
        .expect("its rows");
    assert!(all_ns > 0, "300 ms of work beside another program");
    assert!(
        by_neighbour_ns * 2 > all_ns,
        "the neighbour had the CPU for {by_neighbour_ns} of {all_ns} ns"
    );
}
