//! Switches that the kernel does not trace: the thread that was switched to is put right as soon as
//! it is seen to run.
//!
//! Needs the privileges to record. With `WHYWAIT_NO_BPF=1` nothing is tested.

use std::io::Read;
use std::process::{Command, Stdio};

use whywait_capture::{Options, Session};
use whywait_events::recording::Recording;
use whywait_events::{Cpu, Wait};

use crate::common::{self, Running};

const MS: u64 = 1_000_000;
const SLEEP_MS: u64 = 30;
const ROUNDS: usize = 40;

/// Sleeps for 30 ms and computes for 5 ms of CPU time, 40 times; then says what it used in all of
/// it.
const PROGRAM: &str = "
import sys, time
sys.stdin.readline()
begun = time.process_time_ns()
for _ in range(40):
    time.sleep(0.030)
    until = time.process_time_ns() + 5_000_000
    while time.process_time_ns() < until:
        pass
print(time.process_time_ns() - begun, flush=True)
sys.stdin.readline()
";

/// Starts a program that stays on the first CPU.
fn on_first_cpu(command: &[&str]) -> Running {
    let child = Command::new("taskset")
        .args(["-c", "0"])
        .args(command)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn();
    Running(child.expect("taskset is there"))
}

#[test]
fn a_thread_that_was_not_seen_getting_its_cpu_is_put_right() {
    let Some(_turn) = common::alone() else {
        return;
    };
    let neighbour = on_first_cpu(&["sh", "-c", "while :; do :; done"]);
    let mut target = on_first_cpu(&["/usr/bin/python3", "-c", PROGRAM]);
    let pid = target.0.id();
    let dir = tempfile::tempdir().expect("a temporary folder can be made");
    let dir = dir.path().join("recording");
    let options = Options {
        untraced_process: Some(neighbour.0.id()),
        ..Options::default()
    };
    let mut session =
        Session::start(pid, vec![], &dir, &options).expect("the privileges to record");
    let mut input = target.0.stdin.take().expect("it is piped");
    std::io::Write::write_all(&mut input, b"go\n").expect("it reads");
    let mut output = target.0.stdout.take().expect("it is piped");
    let used = std::thread::spawn(move || {
        let mut digits = Vec::new();
        let mut byte = [0];
        while output.read(&mut byte).is_ok_and(|read| read == 1) && byte != [b'\n'] {
            digits.push(byte[0]);
        }
        String::from_utf8_lossy(&digits).parse::<u64>().ok()
    });
    common::record_until(&mut session, |_| used.is_finished().then_some(()));
    session.finish(None).expect("the recording is finished");
    let used_ns = used.join().ok().flatten().expect("it says what it used");

    let recording = Recording::open(&dir).expect("a recording");
    let counters = recording.counters().expect("counters");
    let unseen = counters.get("unseen-switches").copied().unwrap_or(0);
    assert!(
        unseen >= ROUNDS as u64 / 2,
        "expected most of {ROUNDS} sleeps to end without a switch that is seen, got {unseen}"
    );
    let mut slept = Vec::new();
    let mut sleeps = |wait: &Wait| {
        if wait.syscall == Some(libc::SYS_clock_nanosleep as u32)
            && let Some(wake_ns) = wait.wake_ns
        {
            slept.push((wake_ns - wait.out_ns) / MS);
        }
    };
    recording.read::<Wait>(None, &mut sleeps).expect("waits");
    // The timer runs from a moment before the thread leaves its CPU: 29.93 ms are a whole sleep.
    let whole = slept
        .iter()
        .filter(|ms| (SLEEP_MS - 1..SLEEP_MS * 2).contains(ms))
        .count();
    // A thread that loses its CPU to the other program just as it begins to sleep does so for less,
    // or not at all.
    assert!(
        whole >= ROUNDS - 2,
        "expected a row with an end for each of {ROUNDS} sleeps of {SLEEP_MS} ms, but for two \
         at most, got {slept:?} ms"
    );
    let mut on_cpu_ns = 0;
    recording
        .read::<Cpu>(None, &mut |row| on_cpu_ns += row.on_cpu_ns)
        .expect("CPU times");
    assert!(
        on_cpu_ns > used_ns * 9 / 10 && on_cpu_ns < used_ns * 13 / 10,
        "expected about {} ms of CPU time, as the program counted, got {} ms",
        used_ns / MS,
        on_cpu_ns / MS
    );
}
