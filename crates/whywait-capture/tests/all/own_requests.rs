//! A gateway that calls itself: its clients' requests are told from its own. A load that the target
//! starts is a client.
//!
//! Needs the privileges to record. With `WHYWAIT_NO_BPF=1` nothing is tested.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use whywait_capture::{Options, Session};

use crate::common::{self, Running};

const REQUESTS: u64 = 40;

/// Two processes take connections at the same two listeners, each with a thread for each. `f` is
/// answered at once (`i`) or after 3 ms (`s`) by a request of their own to either of them, on a
/// new connection. `l`: a child of theirs asks for `i` instead, by itself, as a load would.
const GATEWAY: &str = "
import os, socket, sys, threading, time
tcp = socket.create_server(('127.0.0.1', 0), backlog=64)
path = sys.argv[1]
unix = socket.socket(socket.AF_UNIX)
unix.bind(path)
unix.listen(64)
address = tcp.getsockname()
def ask(family, address, what):
    with socket.socket(family) as s:
        s.connect(address)
        s.sendall(what)
        assert s.recv(1) == b'.'
def connect(what):
    ask(socket.AF_INET, address, what)
    ask(socket.AF_UNIX, path, what)
def serve(s):
    while what := s.recv(1):
        if what == b's':
            time.sleep(0.003)
        if what == b'f':
            connect(b'i')
            connect(b's')
        if what == b'l' and os.fork() == 0:
            connect(b'i')
            os._exit(0)
        s.sendall(b'.')
    s.close()
def accept(listener):
    while True:
        s, _ = listener.accept()
        threading.Thread(target=serve, args=(s,), daemon=True).start()
if os.fork():
    print(address[1], flush=True)
else:
    # It ends with the one that the test ends.
    threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()
threading.Thread(target=accept, args=(unix,), daemon=True).start()
accept(tcp)
";

const CLIENT: &str = "
import socket, sys
for n in range(int(sys.argv[2])):
    with socket.create_connection(('127.0.0.1', int(sys.argv[1]))) as s:
        s.sendall(sys.argv[3].encode())
        assert s.recv(1) == b'.'
";

/// How many requests there were, of others and of the target's own.
fn asked(what: &str) -> (u64, u64) {
    let temporary = tempfile::tempdir().expect("a temporary folder can be made");
    let child = Command::new("/usr/bin/python3")
        .args(["-c", GATEWAY])
        .arg(temporary.path().join("socket"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn();
    let mut gateway = Running(child.expect("Python is there"));
    let mut line = String::new();
    BufReader::new(gateway.0.stdout.take().expect("it is piped"))
        .read_line(&mut line)
        .expect("it says its port");
    let dir = temporary.path().join("recording");
    let mut session = Session::start(gateway.0.id(), vec![], &dir, &Options::default())
        .expect("the privileges to record");
    let child = Command::new("/usr/bin/python3")
        .args(["-c", CLIENT, line.trim(), &REQUESTS.to_string(), what])
        .spawn();
    let mut client = Running(child.expect("Python is there"));
    let asked = common::record_until(&mut session, |_| {
        client.0.try_wait().expect("it can be waited for")
    });
    assert!(asked.success(), "each byte is answered: {asked}");
    // The load's requests end later.
    let until = std::time::Instant::now() + std::time::Duration::from_millis(300);
    common::record_until(&mut session, |_| {
        (std::time::Instant::now() > until).then_some(())
    });
    session.finish(None).expect("the recording is finished");

    common::answered(&dir)
}

#[test]
fn a_gateways_requests_to_itself_are_its_own() {
    let Some(_turn) = common::together() else {
        return;
    };
    // Four each, by TCP and a unix socket, fast and slow.
    assert_eq!(asked("f"), (REQUESTS, 4 * REQUESTS));
}

#[test]
fn a_load_that_the_target_starts_is_a_client() {
    let Some(_turn) = common::together() else {
        return;
    };
    // The load's own are two each.
    assert_eq!(asked("l"), (3 * REQUESTS, 0));
}
