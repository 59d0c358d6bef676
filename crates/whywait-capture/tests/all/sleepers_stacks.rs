//! Stacks of long sleeps where a thread cannot leave its own on its way out of the kernel, as
//! before Linux 6.18: who wakes it, and what it reads next, tell them all the same.
//!
//! Needs the privileges to record. With `WHYWAIT_NO_BPF=1` nothing is tested.

use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use whywait_capture::{Options, Session};
use whywait_events::Wait;
use whywait_events::recording::Recording;

use crate::common::{self, Running};

const ROUNDS: usize = 300;

fn sleeper(dir: &std::path::Path) -> Running {
    let source = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/programs/sleeper.c");
    let program = dir.join("sleeper");
    let status = Command::new("cc")
        .args(["-O2", "-fomit-frame-pointer", "-pthread", "-o"])
        .arg(&program)
        .arg(&source)
        .status()
        .expect("a C compiler is there");
    assert!(status.success(), "cc {}: {status}", source.display());
    let child = Command::new(program)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn();
    Running(child.expect("the program starts"))
}

#[test]
fn sleeps_that_a_thread_or_a_read_ends_have_their_stack_on_any_kernel() {
    let Some(_turn) = common::alone() else {
        return;
    };
    let temporary = tempfile::tempdir().expect("a temporary folder can be made");
    let mut target = sleeper(temporary.path());
    let dir = temporary.path().join("recording");
    let options = Options {
        refused_functions: vec![
            "bpf_task_work_schedule_resume_impl",
            "bpf_task_work_schedule_resume",
        ],
        ..Options::default()
    };
    let mut session =
        Session::start(target.0.id(), vec![], &dir, &options).expect("the privileges to record");
    let mut input = target.0.stdin.take().expect("it is piped");
    input.write_all(b"go").expect("it reads");
    let mut output = target.0.stdout.take().expect("it is piped");
    let done = std::thread::spawn(move || output.read(&mut [0]));
    common::record_until(&mut session, |_| done.is_finished().then_some(()));
    session.finish(None).expect("the recording is finished");

    let recording = Recording::open(&dir).expect("a recording");
    let stacks = recording.stacks().expect("stacks");
    for (syscall, function) in [
        (libc::SYS_futex, "wait_for_ticket"),
        (libc::SYS_recvfrom, "wait_for_byte"),
    ] {
        let (mut sleeps, mut right) = (0, 0);
        let mut other = String::new();
        let mut count = |wait: &Wait| {
            let long = wait
                .wake_ns
                .is_some_and(|wake_ns| wake_ns - wait.out_ns >= 1_000_000);
            if wait.syscall != Some(syscall as u32) || !long {
                return;
            }
            let names: Vec<_> = stacks
                .named(wait.user_stack)
                .filter_map(|frame| frame.names.first().map(|name| name.name.to_string()))
                .collect();
            sleeps += 1;
            if names.iter().any(|name| name == function)
                && stacks.truncated(wait.user_stack) == Some(false)
            {
                right += 1;
            } else {
                other = names.join(" ");
            }
        };
        recording.read::<Wait>(None, &mut count).expect("waits");
        // Of so long a sleep the sweep reads none, unless the machine made it longer.
        assert!(
            sleeps >= ROUNDS * 9 / 10,
            "expected nearly {ROUNDS} long sleeps in {function}, got {sleeps}"
        );
        assert!(
            right * 100 >= sleeps * 95,
            "expected {function} in the stack of 95 % of {sleeps} sleeps, got \
             {right}; another one: {other:?}"
        );
    }
}
