//! What goroutines wait in while their requests are slow.
//!
//! Needs the privileges to record. With `WHYWAIT_NO_BPF=1` nothing is tested.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use whywait_capture::{Options, Session};
use whywait_events::recording::Recording;
use whywait_events::{Request, TaskLook, TaskState};

use crate::common::{self, Running, line_of};

#[test]
fn what_goroutines_wait_in_is_seen_while_requests_are_slow() {
    let Some(_turn) = common::together() else {
        return;
    };
    let temporary = tempfile::tempdir().expect("a temporary folder can be made");
    let program = temporary.path().join("locked");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/locked.go");
    let built = Command::new("go")
        .args(["build", "-ldflags=-s -w", "-o"])
        .args([&program, &source])
        .status();
    assert!(built.expect("go is there").success());
    let child = Command::new(&program).stdout(Stdio::piped()).spawn();
    let mut server = Running(child.expect("it runs"));
    let mut output = BufReader::new(server.0.stdout.take().expect("it is piped"));
    let port: u16 = line_of(&mut output).parse().expect("it says its port");

    let dir = temporary.path().join("recording");
    let options = Options::default();
    let mut session =
        Session::start(server.0.id(), vec![], &dir, &options).expect("the privileges to record");
    let ask = |line: &str| {
        let mut connection = TcpStream::connect(("127.0.0.1", port)).expect("it listens");
        writeln!(connection, "{line}").expect("it reads");
        connection
    };
    let keeping = [ask("lock"), ask("lock")];
    // That anything is slow shows when it is answered.
    let mut answered = String::new();
    let answer = BufReader::new(ask("slow")).read_line(&mut answered);
    assert!(answer.is_ok() && answered == "done\n", "{answered:?}");
    let begun = Instant::now();
    let half_a_second = |_: &Session| (begun.elapsed() > Duration::from_millis(500)).then_some(());
    common::record_until(&mut session, half_a_second);
    session.finish(None).expect("the recording is finished");
    drop(keeping);

    let recording = Recording::open(&dir).expect("a recording");
    let mut tasks: BTreeMap<(u64, u32), u32> = BTreeMap::new();
    recording
        .read::<Request>(None, &mut |row| {
            tasks.insert((row.socket, row.seq), row.recv_task);
        })
        .expect("it can be read");
    let mut looks: Vec<TaskLook> = Vec::new();
    recording
        .read::<TaskLook>(None, &mut |row| looks.push(row.clone()))
        .expect("it can be read");
    let stacks = recording.stacks().expect("it can be read");
    let names = |look: &TaskLook| -> Vec<String> {
        let frames = stacks.named(look.stack);
        let names = frames.into_iter().flat_map(|frame| frame.names);
        names.map(|name| name.name.to_string()).collect()
    };
    let waiting = |within: &str| {
        let within = |look: &&TaskLook| {
            let names = names(look);
            let has = |wanted: &str| names.iter().any(|name| name == wanted);
            has("main.keepLock") && has(within)
        };
        looks.iter().filter(within).count()
    };
    // 25 times a second or so; a busy machine has fewer.
    let counts = [waiting("runtime.semacquire1"), waiting("runtime.chanrecv1")];
    assert!(counts.iter().all(|count| *count >= 3), "{counts:?}");
    for look in &looks {
        assert_eq!(look.tgid, server.0.id());
        assert!(
            look.state == TaskState::Waiting || look.stack == 0,
            "{look:?}"
        );
        assert_eq!(
            tasks.get(&(look.socket, look.seq)),
            Some(&look.task),
            "{look:?}"
        );
    }
}
