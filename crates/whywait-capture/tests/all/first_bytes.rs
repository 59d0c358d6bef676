//! The first bytes of a connection that come in the moment in which a thread reads them: two CPUs
//! learn of the socket at once, and neither must lose what it has seen.
//!
//! Needs the privileges to record. With `WHYWAIT_NO_BPF=1` nothing is tested.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use whywait_capture::{Options, Session};

use crate::common;

const CONNECTIONS: u64 = 3000;
/// A thread that waits for a connection reads from it so long after, or sooner.
const READ_WITHIN: Duration = Duration::from_micros(120);

/// Reads from each connection as soon as it is there.
const SERVER: &str = "
import os, socket, sys, threading
tcp = socket.create_server(('127.0.0.1', 0), backlog=64)
unix = socket.socket(socket.AF_UNIX)
unix.bind(sys.argv[1])
unix.listen(64)
print(tcp.getsockname()[1], flush=True)
listener = tcp if os.fork() else unix
# The one ends with the test, the other one with it.
threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()
while True:
    s, _ = listener.accept()
    s.recv(1)
    s.send(b'.')
    s.close()
";

/// Each asks a little later after it has connected than the one before.
fn ask<S: Read + Write>(connect: impl Fn() -> std::io::Result<S>) {
    for n in 0..CONNECTIONS {
        let mut connection = connect().expect("the server listens");
        let connected = Instant::now();
        let later = READ_WITHIN * u32::try_from(n % 600).expect("it is small") / 600;
        while connected.elapsed() < later {}
        connection.write_all(b"?").expect("the server reads");
        let read = connection.read(&mut [0]).expect("the server answers");
        assert_eq!(read, 1, "the server answers");
    }
}

#[test]
fn first_bytes_that_are_read_as_they_come_are_a_request() {
    let Some(_turn) = common::together() else {
        return;
    };
    let temporary = tempfile::tempdir().expect("a temporary folder can be made");
    let socket = temporary.path().join("socket");
    let path = socket.to_str().expect("it is text");
    let (server, _, port) = common::server(SERVER, &[path]);
    let dir = temporary.path().join("recording");
    let mut session = Session::start(server.0.id(), vec![], &dir, &Options::default())
        .expect("the privileges to record");
    let load = std::thread::spawn(move || {
        ask(|| TcpStream::connect(("127.0.0.1", port)));
        ask(|| UnixStream::connect(&socket));
    });
    common::record_until(&mut session, |_| load.is_finished().then_some(()));
    load.join().expect("all is answered");
    session.finish(None).expect("the recording is finished");
    assert_eq!(common::answered(&dir), (2 * CONNECTIONS, 0));
}
