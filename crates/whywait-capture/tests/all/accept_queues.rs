//! What nobody accepts is seen in the accept queue, when whywait attaches and in the end.
//!
//! Needs the privileges to record. With `WHYWAIT_NO_BPF=1` nothing is tested.

use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};

use whywait_capture::{Options, Session};
use whywait_events::AcceptQueue;
use whywait_events::recording::Recording;

use crate::common::{self, Running};

/// Listens at a port and at a path, for two connections each, and accepts none. The port is one of
/// this protocol: TCP, or Multipath TCP, as Go's servers have it.
const SERVER: &str = "
import socket, sys
tcp = socket.socket(socket.AF_INET, socket.SOCK_STREAM, int(sys.argv[2]))
tcp.bind(('127.0.0.1', 0))
tcp.listen(2)
local = socket.socket(socket.AF_UNIX)
local.bind(sys.argv[1])
local.listen(2)
print(tcp.getsockname()[1], flush=True)
sys.stdin.read()
";

#[test]
fn accept_queues_are_seen_at_the_beginning_and_in_the_end() {
    seen_with("6");
}

#[test]
fn the_queue_of_multipath_tcp_is_that_of_the_socket_below() {
    let enabled = std::fs::read_to_string("/proc/sys/net/mptcp/enabled");
    if enabled.is_ok_and(|enabled| enabled.trim() == "1") {
        seen_with("262");
    }
}

fn seen_with(protocol: &str) {
    let Some(_turn) = common::together() else {
        return;
    };
    let temporary = tempfile::tempdir().expect("a temporary folder can be made");
    let path = temporary.path().join("socket");
    let child = Command::new("/usr/bin/python3")
        .args(["-c", SERVER])
        .arg(&path)
        .arg(protocol)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn();
    let mut server = Running(child.expect("Python is there"));
    let mut output = BufReader::new(server.0.stdout.take().expect("it is piped"));
    let mut line = String::new();
    output.read_line(&mut line).expect("the server speaks");
    let port: u16 = line.trim().parse().expect("it says its port");
    let connect = || TcpStream::connect(("127.0.0.1", port)).expect("it listens");

    let first = connect();
    let dir = temporary.path().join("recording");
    let options = Options::default();
    let session =
        Session::start(server.0.id(), vec![], &dir, &options).expect("the privileges to record");
    // One more than the limit has room.
    let more = [connect(), connect()];
    let local = UnixStream::connect(&path).expect("it listens");
    session.finish(None).expect("the recording is finished");
    drop((first, more, local));

    let recording = Recording::open(&dir).expect("a recording");
    let mut looks: Vec<AcceptQueue> = Vec::new();
    recording
        .read::<AcceptQueue>(None, &mut |row| looks.push(row.clone()))
        .expect("it can be read");
    let queued = |port: u16| -> Vec<u32> {
        let looks = looks.iter().filter(|look| look.local_port == port);
        looks.map(|look| look.queued).collect()
    };
    assert_eq!(queued(port), [1, 3], "at the port: {looks:#?}");
    assert_eq!(queued(0), [0, 1], "at the path: {looks:#?}");
    for look in &looks {
        assert_eq!((look.tgid, look.limit), (server.0.id(), 2), "{look:?}");
        let known = look.descriptors > 0 && look.descriptors <= look.descriptors_limit;
        assert_eq!(known, look.queued > 0, "{look:?}");
    }
}
