//! The end of a connection is no request, even if nobody reads it; a byte that nobody reads is one.
//! Of a request that has no answer it is known whether somebody closed its connection.
//!
//! Needs the privileges to record. With `WHYWAIT_NO_BPF=1` nothing is tested.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use whywait_capture::{Options, Session};
use whywait_events::Request;
use whywait_events::recording::Recording;

use crate::common::{self, line_of};

/// Takes two connections, answers one byte on each, and then looks at neither of them until it is
/// told to end.
const SERVER: &str = "
import socket, sys
listener = socket.socket()
listener.bind(('127.0.0.1', 0))
listener.listen(8)
print(listener.getsockname()[1], flush=True)
connections = [listener.accept()[0] for _ in range(2)]
for connection in connections:
    connection.send(connection.recv(1))
print('answered', flush=True)
sys.stdin.read()
";

#[test]
fn the_end_of_a_connection_is_no_request() {
    let Some(_turn) = common::together() else {
        return;
    };
    let (server, mut output, port) = common::server(SERVER, &[]);
    let temporary = tempfile::tempdir().expect("a temporary folder can be made");
    let dir = temporary.path().join("recording");
    let options = Options::default();
    let mut session =
        Session::start(server.0.id(), vec![], &dir, &options).expect("the privileges to record");

    let connect = || TcpStream::connect(("127.0.0.1", port)).expect("it listens");
    let (leaves, mut asks_again) = (connect(), connect());
    for mut connection in [&leaves, &asks_again] {
        connection.write_all(b"?").expect("it is connected");
    }
    for mut connection in [&leaves, &asks_again] {
        connection.read_exact(&mut [0]).expect("it answers");
    }
    assert_eq!(line_of(&mut output), "answered");
    asks_again.write_all(b"?").expect("it is connected");
    drop(leaves);
    // Both wait for longer than what counts as slow.
    let since = Instant::now();
    let long = Duration::from_nanos(20 * options.threshold_ns);
    common::record_until(&mut session, |_| (since.elapsed() > long).then_some(()));
    session.finish(None).expect("the recording is finished");

    let recording = Recording::open(&dir).expect("a recording");
    let mut unread = 0;
    recording
        .read::<Request>(None, &mut |row| {
            unread += usize::from(row.recv_ns.is_none())
        })
        .expect("requests");
    assert_eq!(
        unread, 1,
        "expected the byte that nobody read, and not the end of the other connection"
    );
}

/// Its child takes two connections and reads one byte of each. Told to, it closes the first; told
/// to again, it ends. Its parent stays.
const PARENT: &str = "
import os, socket, sys
listener = socket.socket()
listener.bind(('127.0.0.1', 0))
listener.listen(8)
if os.fork() == 0:
    connections = [listener.accept()[0] for _ in range(2)]
    for connection in connections:
        connection.recv(1)
    print('read', flush=True)
    os.read(0, 1)
    connections[0].close()
    print('closed', flush=True)
    os.read(0, 1)
    os._exit(0)
print(listener.getsockname()[1], flush=True)
os.wait()
print('ended', flush=True)
while os.read(0, 1):
    pass
";

#[test]
fn nobody_gives_up_where_the_process_ends() {
    let Some(_turn) = common::together() else {
        return;
    };
    let (mut server, mut output, port) = common::server(PARENT, &[]);
    let mut input = server.0.stdin.take().expect("it is piped");
    let temporary = tempfile::tempdir().expect("a temporary folder can be made");
    let dir = temporary.path().join("recording");
    let options = Options::default();
    let mut session =
        Session::start(server.0.id(), vec![], &dir, &options).expect("the privileges to record");
    // Longer than what counts as slow.
    let mut wait = || {
        let since = Instant::now();
        let long = Duration::from_nanos(20 * options.threshold_ns);
        common::record_until(&mut session, |_| (since.elapsed() > long).then_some(()));
    };

    let connect = || TcpStream::connect(("127.0.0.1", port)).expect("it listens");
    let (gives_up, mut waits) = (connect(), connect());
    for mut connection in [&gives_up, &waits] {
        connection.write_all(b"?").expect("it is connected");
    }
    assert_eq!(line_of(&mut output), "read");
    wait();
    drop(gives_up);
    input.write_all(b"1").expect("it reads");
    assert_eq!(line_of(&mut output), "closed");
    input.write_all(b"2").expect("it reads");
    assert_eq!(line_of(&mut output), "ended");
    // The connection's last step is ours: it ends in our context.
    assert_eq!(waits.read(&mut [0]).expect("it is connected"), 0);
    drop(waits);
    wait();
    session.finish(None).expect("the recording is finished");

    let recording = Recording::open(&dir).expect("a recording");
    let mut gone = Vec::new();
    recording
        .read::<Request>(None, &mut |row| gone.push(row.gone_ns.is_some()))
        .expect("requests");
    gone.sort_unstable();
    assert_eq!(
        gone,
        [false, true],
        "expected of two requests the one to be given up that was closed while the process ran"
    );
}
