//! Whose connections threads have slept on since before whywait shows, whatever they sleep in.
//!
//! Needs the privileges to record. With `WHYWAIT_NO_BPF=1` nothing is tested.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::Duration;

use whywait_capture::{Options, Session};
use whywait_events::recording::Recording;
use whywait_events::{Connection, Wait};

use crate::common::{self, Running};

/// Accepts five connections. An epoll instance says when there is something to read on the first;
/// on each of the others a thread sleeps, which says so, its thread id and its descriptor.
const SERVER: &str = "
import select, socket, sys, threading
listener = socket.create_server(('127.0.0.1', 0))
print(listener.getsockname()[1], flush=True)
watched, *others = [listener.accept()[0] for _ in range(5)]
epoll = select.epoll()
epoll.register(watched, select.EPOLLIN)

def poll_one(one):
    poll = select.poll()
    poll.register(one, select.POLLIN)
    poll.poll(60_000)

def poll_two(one):
    poll = select.poll()
    poll.register(one, select.POLLIN)
    poll.register(sys.stdin, select.POLLIN)
    poll.poll(60_000)

others[3].recv(1)
waits = [lambda one: one.recv(100), poll_one, poll_two, lambda one: select.select([one], [], [])]
for wait, one in zip(waits, others):
    thread = threading.Thread(target=wait, args=(one,), daemon=True)
    thread.start()
    print(thread.native_id, one.fileno(), flush=True)
print(watched.fileno(), flush=True)
sys.stdin.read()
";

const RECVFROM: u32 = 45;
const POLL: u32 = 7;
/// What the C library makes of a select.
const SELECT: u32 = 270;

fn sleeps(tid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{tid}/stat")).unwrap_or_default();
    stat.rsplit(')')
        .next()
        .is_some_and(|rest| rest.starts_with(" S"))
}

#[test]
fn whom_threads_have_waited_for_since_before_shows() {
    let Some(_turn) = common::together() else {
        return;
    };
    let child = Command::new("/usr/bin/python3")
        .args(["-c", SERVER])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn();
    let mut server = Running(child.expect("Python is there"));
    let mut output = BufReader::new(server.0.stdout.take().expect("it is piped"));
    let mut numbers = || -> Vec<u32> {
        let mut line = String::new();
        output.read_line(&mut line).expect("the server speaks");
        let numbers = line.split_whitespace().map(str::parse);
        numbers.collect::<Result<_, _>>().expect("numbers")
    };
    let port = u16::try_from(numbers()[0]).expect("a port");
    let mut clients: Vec<TcpStream> = (0..5)
        .map(|_| TcpStream::connect(("127.0.0.1", port)).expect("it listens"))
        .collect();
    // The last one asks for something, of which a byte is read.
    clients[4].write_all(b"x").expect("it is open");
    let threads: Vec<(u32, u32)> = (0..4)
        .map(|_| numbers())
        .map(|numbers| (numbers[0], numbers[1]))
        .collect();
    let watched = numbers()[0];
    while !threads.iter().all(|(tid, _)| sleeps(*tid)) {
        std::thread::sleep(Duration::from_millis(1));
    }

    let temporary = tempfile::tempdir().expect("a temporary folder can be made");
    let dir = temporary.path().join("recording");
    let options = Options::default();
    let session =
        Session::start(server.0.id(), vec![], &dir, &options).expect("the privileges to record");
    session.finish(None).expect("the recording is finished");

    let recording = Recording::open(&dir).expect("a recording");
    let mut looks: Vec<Connection> = Vec::new();
    recording
        .read::<Connection>(None, &mut |row| looks.push(row.clone()))
        .expect("it can be read");
    for (number, (_, fd)) in threads.iter().enumerate() {
        let of_it: Vec<&Connection> = looks.iter().filter(|look| look.fd == *fd).collect();
        assert_eq!(of_it.len(), 2, "at first and in the end: {looks:#?}");
        for look in of_it {
            let client = &clients[number + 1];
            let address = client.local_addr().expect("it is connected");
            assert_eq!((look.tgid, look.local_port), (server.0.id(), port));
            assert_eq!(
                (look.peer.as_str(), look.peer_port),
                ("127.0.0.1", address.port())
            );
            assert_eq!(look.owes_answer, Some(number == 3), "{look:?}");
        }
    }
    assert!(looks.iter().all(|look| look.fd != watched), "{looks:#?}");

    let mut waits: Vec<Wait> = Vec::new();
    recording
        .read::<Wait>(None, &mut |row| waits.push(row.clone()))
        .expect("it can be read");
    let named = |number: usize| {
        let (tid, _) = threads[number];
        let of_it: Vec<&Wait> = waits.iter().filter(|wait| wait.tid == tid).collect();
        let last = of_it.last().expect("it sleeps");
        let at = usize::from(last.syscall == Some(SELECT));
        (last.syscall, last.args[at])
    };
    let calls = [RECVFROM, POLL, POLL, SELECT];
    for (number, call) in calls.into_iter().enumerate() {
        let fd = u64::from(threads[number].1);
        assert_eq!(named(number), (Some(call), fd), "thread {number}");
    }
}
