//! A kernel may refuse a call of a function that its BTF has, or lack a tracepoint. The programs
//! are loaded without it then, and record all the same.
//!
//! Needs the privileges to record. With `WHYWAIT_NO_BPF=1` nothing is tested.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::Duration;

use whywait_capture::{CaptureError, Options, Session, rehearse};
use whywait_events::recording::Recording;
use whywait_events::{Request, Wait};

use crate::common::{self, Running};

const LEAVE_STACKS: [&str; 2] = [
    "bpf_task_work_schedule_resume_impl",
    "bpf_task_work_schedule_resume",
];
const CAST: &str = "bpf_rdonly_cast";

/// How many sleeps of 5 ms or longer of `sleep 0.02`'s kind a recording has, and how many of them
/// have a user stack.
fn sleeps(options: &Options) -> (usize, usize) {
    let temporary = tempfile::tempdir().expect("a temporary folder can be made");
    let dir = temporary.path().join("recording");
    let shell = Command::new("perl")
        .args(["-e", "<STDIN>; select(undef, undef, undef, 0.02) for 1..30"])
        .stdin(Stdio::piped())
        .spawn();
    let mut target = Running(shell.expect("perl is there"));
    let mut session =
        Session::start(target.0.id(), vec![], &dir, options).expect("the privileges to record");
    drop(target.0.stdin.take());
    common::record_until(&mut session, |_| target.0.try_wait().expect("a child"));
    session.finish(None).expect("the recording is finished");
    let recording = Recording::open(&dir).expect("a recording");
    let stacks = recording.stacks().expect("stacks");
    let (mut sleeps, mut with_stack) = (0, 0);
    let mut count = |wait: &Wait| {
        if wait
            .wake_ns
            .is_some_and(|at| at - wait.out_ns >= 15_000_000)
        {
            sleeps += 1;
            with_stack += usize::from(stacks.named(wait.user_stack).next().is_some());
        }
    };
    recording.read::<Wait>(None, &mut count).expect("waits");
    (sleeps, with_stack)
}

#[test]
fn without_each_of_the_kernels_functions_there_is_a_recording() {
    let Some(_turn) = common::together() else {
        return;
    };
    for refused in [
        vec![],
        LEAVE_STACKS.to_vec(),
        vec![CAST],
        [&LEAVE_STACKS[..], &[CAST]].concat(),
    ] {
        let options = Options {
            refused_functions: refused.clone(),
            ..Options::default()
        };
        let rehearsal = rehearse(&options).expect("the programs are loaded");
        for name in &refused {
            assert!(
                !rehearsal.functions.contains(&format!("{name} ")),
                "{rehearsal:?}"
            );
        }
        let (sleeps, with_stack) = sleeps(&options);
        assert!(sleeps >= 25, "without {refused:?}: {sleeps} sleeps of 30");
        // The sweep sees longer ones on any kernel.
        assert!(
            with_stack >= 20,
            "without {refused:?}: {with_stack} stacks of {sleeps}"
        );
    }
}

#[test]
fn the_program_that_a_kernel_refuses_is_named() {
    let Some(_turn) = common::together() else {
        return;
    };
    // As on a kernel that has no such field.
    let options = Options {
        refused_functions: vec!["on_cpu"],
        ..Options::default()
    };
    let error = rehearse(&options).expect_err("it is refused");
    let said = error.to_string();
    let CaptureError::Load { refused, .. } = error else {
        panic!("{said}");
    };
    let refused = refused.expect("a program");
    assert_eq!(refused.program, "find_threads", "{said}");
    assert!(refused.why.contains("task_struct"), "{said}");
    assert!(!said.contains("whywait check"), "{said}");
}

/// A server that reads what a client sends, and answers the first byte only.
const HALF: &str = r#"
import socket, sys
listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
client, _ = listener.accept()
client.recv(1)
client.sendall(b"x")
client.recv(1)
print("read", flush=True)
sys.stdin.read()
"#;

#[test]
fn where_no_request_is_seen_none_is_unanswered() {
    let Some(_turn) = common::together() else {
        return;
    };
    for (absent, expected) in [(vec![], 1), (vec!["sock_send_length"], 0)] {
        let (mut server, mut output, port) = common::server(HALF, &[]);
        let mut client = TcpStream::connect(("127.0.0.1", port)).expect("it listens");
        client.write_all(b"a").expect("it reads");
        client.read_exact(&mut [0]).expect("it answers");
        // The kernel tells which was last by its slow clock.
        std::thread::sleep(Duration::from_millis(50));
        client.write_all(b"b").expect("it reads");
        assert_eq!(common::line_of(&mut output), "read");
        let temporary = tempfile::tempdir().expect("a temporary folder can be made");
        let dir = temporary.path().join("recording");
        let options = Options {
            absent_tracepoints: absent.clone(),
            ..Options::default()
        };
        let mut session = Session::start(server.0.id(), vec![], &dir, &options)
            .expect("the privileges to record");
        std::thread::sleep(Duration::from_millis(50));
        session.turn().expect("it goes on");
        session.finish(None).expect("the recording is finished");
        drop(server.0.stdin.take());
        let recording = Recording::open(&dir).expect("a recording");
        let mut requests = 0;
        let mut count = |_: &Request| requests += 1;
        recording
            .read::<Request>(None, &mut count)
            .expect("requests");
        assert_eq!(requests, expected, "without {absent:?}");
    }
}
