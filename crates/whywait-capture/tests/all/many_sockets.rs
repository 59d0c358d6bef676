//! More connections than there are slots for their states: those whose slot is taken are followed
//! all the same.
//!
//! Needs the privileges to record. With `WHYWAIT_NO_BPF=1` nothing is tested.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use whywait_capture::{Options, Session};
use whywait_events::Request;
use whywait_events::recording::Recording;

use crate::common::{self, Running};

/// `SOCKET_STATES` of `sockets.bpf.h`, and a tenth more.
const CONNECTIONS: usize = 9000;

/// Answers each byte by a byte, on as many connections as may come.
const SERVER: &str = "
import resource, select, socket
resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
listener = socket.socket()
listener.bind(('127.0.0.1', 0))
listener.listen(512)
print(listener.getsockname()[1], flush=True)
poll = select.epoll()
poll.register(listener, select.EPOLLIN)
connections = {}
while True:
    for fd, _ in poll.poll():
        if fd == listener.fileno():
            connection, _ = listener.accept()
            connections[connection.fileno()] = connection
            poll.register(connection, select.EPOLLIN)
        elif data := connections[fd].recv(16):
            connections[fd].send(data)
        else:
            poll.unregister(fd)
            connections.pop(fd).close()
";

/// Asks once on each connection, and again when all are open.
const CLIENT: &str = "
import resource, socket, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
def ask(connection):
    connection.sendall(b'?')
    assert connection.recv(1) == b'?'
    return connection
address = ('127.0.0.1', int(sys.argv[1]))
connections = [ask(socket.create_connection(address)) for _ in range(int(sys.argv[2]))]
for connection in connections:
    ask(connection)
";

#[test]
fn connections_whose_slot_is_taken_are_followed_all_the_same() {
    let Some(_turn) = common::together() else {
        return;
    };
    let child = Command::new("/usr/bin/python3")
        .args(["-c", SERVER])
        .stdout(Stdio::piped())
        .spawn();
    let mut server = Running(child.expect("Python is there"));
    let mut line = String::new();
    BufReader::new(server.0.stdout.take().expect("it is piped"))
        .read_line(&mut line)
        .expect("it says its port");
    let temporary = tempfile::tempdir().expect("a temporary folder can be made");
    let dir = temporary.path().join("recording");
    let mut session = Session::start(server.0.id(), vec![], &dir, &Options::default())
        .expect("the privileges to record");
    let child = Command::new("/usr/bin/python3")
        .args(["-c", CLIENT, line.trim(), &CONNECTIONS.to_string()])
        .spawn();
    let mut client = Running(child.expect("Python is there"));
    let asked = common::record_until(&mut session, |_| {
        client.0.try_wait().expect("it can be waited for")
    });
    assert!(asked.success(), "each byte is answered: {asked}");
    session.finish(None).expect("the recording is finished");

    let recording = Recording::open(&dir).expect("a recording");
    let counters = recording.counters().expect("counters");
    let of = |name: &str| counters.get(name).copied().unwrap_or(0);
    // Slow requests are not in the sums, but in rows of their own.
    let mut rows = 0;
    recording
        .read::<Request>(None, &mut |_| rows += 1)
        .expect("requests");
    assert_eq!(
        of("requests.count") + rows,
        2 * CONNECTIONS as u64,
        "expected two requests on each of {CONNECTIONS} connections, {rows} of them in \
         rows; counters: {counters:?}"
    );
}
