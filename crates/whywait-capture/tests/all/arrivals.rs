//! Since when a request waits: since its first byte came, whatever came, was read or was answered
//! before and after.
//!
//! Needs the privileges to record. With `WHYWAIT_NO_BPF=1` nothing is tested.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;
use whywait_capture::{Options, Session};
use whywait_events::Request;
use whywait_events::recording::Recording;

use crate::common::{self, Running};

/// Does with its one connection what it is recorded, and says so.
const SERVER: &str = "
import os, socket, sys
listener = socket.socket()
listener.bind(('127.0.0.1', 0))
listener.listen(8)
print(listener.getsockname()[1], flush=True)
connection = listener.accept()[0]
into, out_of = os.pipe()[::-1]
for line in sys.stdin:
    match line.strip():
        case 'read':
            connection.recv(1)
        case 'splice':
            left = 100
            while left:
                left -= os.splice(connection.fileno(), into, left)
        case 'answer':
            connection.send(b'!')
    print('done', flush=True)
";

/// Long enough to be recorded from what a machine that is busy adds.
const LONG: Duration = Duration::from_millis(300);
/// Long enough for a request to be recorded.
const SHORT: Duration = Duration::from_millis(2);

struct Conversation {
    /// It is large, and a test's stack is not.
    session: Box<Session>,
    peer: TcpStream,
    orders: ChildStdin,
    said: BufReader<ChildStdout>,
    dir: PathBuf,
    _server: Running,
    _temporary: TempDir,
}

impl Conversation {
    fn begin() -> Self {
        let child = Command::new("/usr/bin/python3")
            .args(["-c", SERVER])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn();
        let mut server = Running(child.expect("Python is there"));
        let mut said = BufReader::new(server.0.stdout.take().expect("it is piped"));
        let orders = server.0.stdin.take().expect("it is piped");
        let mut port = String::new();
        said.read_line(&mut port).expect("it says its port");
        let port: u16 = port.trim().parse().expect("a port");
        let temporary = tempfile::tempdir().expect("a temporary folder can be made");
        let dir = temporary.path().join("recording");
        let session = Session::start(server.0.id(), vec![], &dir, &Options::default());
        let session = Box::new(session.expect("the privileges to record"));
        let peer = TcpStream::connect(("127.0.0.1", port)).expect("it listens");
        Self {
            session,
            peer,
            orders,
            said,
            dir,
            _server: server,
            _temporary: temporary,
        }
    }

    fn send(&mut self, bytes: &[u8]) {
        self.peer.write_all(bytes).expect("it is connected");
    }

    fn server(&mut self, order: &str) {
        writeln!(self.orders, "{order}").expect("the server listens");
        let mut line = String::new();
        self.said.read_line(&mut line).expect("the server speaks");
        assert_eq!(line.trim(), "done", "after {order}");
        if order == "answer" {
            self.peer.read_exact(&mut [0]).expect("its answer comes");
        }
    }

    fn pass(&mut self) {
        self.pass_time(LONG);
    }

    fn pass_time(&mut self, time: Duration) {
        let since = Instant::now();
        common::record_until(&mut self.session, |_| {
            (since.elapsed() >= time).then_some(())
        });
    }

    /// How long each request waited to be read, in the order in which they were read.
    fn waits(self) -> Vec<Duration> {
        let wait = |request: &Request| {
            let recv_ns = request.recv_ns.expect("all are read");
            Duration::from_nanos(recv_ns - request.ready_ns)
        };
        self.requests().iter().map(wait).collect()
    }

    /// How long each request that was answered took, from its first byte to its answer.
    fn took(self) -> Vec<Duration> {
        let took = |request: &Request| {
            let answered_ns = request.last_send_ns?;
            Some(Duration::from_nanos(answered_ns - request.ready_ns))
        };
        self.requests().iter().filter_map(took).collect()
    }

    /// All that took long enough to be recorded.
    fn requests(self) -> Vec<Request> {
        self.session.finish(None).expect("the recording ends");
        let mut requests: Vec<Request> = Vec::new();
        Recording::open(&self.dir)
            .expect("a recording")
            .read::<Request>(None, &mut |row| requests.push(row.clone()))
            .expect("requests");
        requests.sort_by_key(|request| request.seq);
        requests.dedup_by_key(|request| request.seq);
        requests
    }
}

#[test]
fn a_request_waits_since_it_came_and_not_since_the_last_packet() {
    let Some(_turn) = common::together() else {
        return;
    };
    let mut it = Conversation::begin();
    it.send(b"1");
    it.pass();
    it.send(b"2"); // behind it
    it.server("read");
    it.server("answer");
    let waits = it.waits();
    let first = waits.first().expect("a request that waited long");
    assert!(*first >= LONG, "expected the whole wait: {waits:?}");
}

#[test]
fn what_comes_before_the_answer_to_what_was_read_waits_since_then() {
    let Some(_turn) = common::together() else {
        return;
    };
    let mut it = Conversation::begin();
    it.send(b"1");
    it.server("read");
    it.send(b"2");
    it.pass();
    it.server("answer");
    it.server("read");
    it.server("answer");
    let waits = it.waits();
    assert_eq!(waits.len(), 2, "expected two requests: {waits:?}");
    assert!(waits[0] < LONG / 2, "the first was read at once: {waits:?}");
    assert!(
        waits[1] >= LONG,
        "the second came before the answer: {waits:?}"
    );
}

#[test]
fn what_splice_has_taken_does_not_wait_any_more() {
    let Some(_turn) = common::together() else {
        return;
    };
    let mut it = Conversation::begin();
    it.send(b"1");
    it.server("read");
    it.send(&[b'.'; 100]);
    it.server("splice");
    it.server("answer");
    it.pass();
    it.send(b"2");
    it.server("read");
    it.pass(); // so that it is slow, and told
    it.server("answer");
    let waits = it.waits();
    let second = waits.last().expect("a request that took long");
    assert!(*second < LONG / 2, "it was read at once: {waits:?}");
}

#[test]
fn what_wants_no_answer_is_no_part_of_what_is_asked_later() {
    let Some(_turn) = common::together() else {
        return;
    };
    let mut it = Conversation::begin();
    it.send(b"1");
    it.server("read");
    it.server("answer");
    it.send(b"."); // so much for that
    it.server("read");
    it.pass_time(4 * LONG);
    it.send(b"2");
    it.pass_time(SHORT);
    it.server("read");
    it.server("answer");
    let took = it.took();
    let last = took.last().expect("a request that took a moment");
    assert!(*last < LONG, "nobody asked for it before: {took:?}");
}

#[test]
fn what_is_answered_late_began_with_what_came_first() {
    let Some(_turn) = common::together() else {
        return;
    };
    let mut it = Conversation::begin();
    it.send(b"1");
    it.server("read");
    it.server("answer");
    it.send(b"2");
    it.server("read");
    it.pass();
    it.send(b"3"); // beside it
    it.server("read");
    it.pass();
    it.server("answer");
    let took = it.took();
    let last = took.last().expect("a request that took long");
    assert!(*last >= 2 * LONG, "asked for before the pause: {took:?}");
}
