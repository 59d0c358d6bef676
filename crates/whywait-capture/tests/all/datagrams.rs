//! Whose questions datagrams are: of a program that was waiting for an answer when whywait
//! attached, and of one that speaks QUIC.
//!
//! Needs the privileges to record. With `WHYWAIT_NO_BPF=1` nothing is tested.

use std::collections::BTreeMap;
use std::net::UdpSocket;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use whywait_capture::{Options, Session};
use whywait_events::recording::Recording;
use whywait_events::{Exchange, Request};

use crate::common;

/// Has bound its socket, and asks through it. It waits for the first answer when it says so.
const CLIENT: &str = "
import socket, sys
asking = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
asking.bind(('127.0.0.1', 0))
print(0, flush=True)
server = ('127.0.0.1', int(sys.stdin.readline()))
for n in range(20):
    asking.sendto(b'%02d?' % n, server)
    asking.recv(100)
";

/// Answers what opens a connection of QUIC with the like, and the rest as QUIC goes on.
const QUIC: &str = "
import socket
bound = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
bound.bind(('127.0.0.1', 0))
print(bound.getsockname()[1], flush=True)
while True:
    read, client = bound.recvfrom(2000)
    bound.sendto((b'\\xc1\\0\\0\\0\\x01' if read[0] & 0x80 else b'\\x41') + bytes(20), client)
";

/// Port that no kernel gives to who names none, as it is below its range.
fn bind_as_servers_do() -> UdpSocket {
    let range = "/proc/sys/net/ipv4/ip_local_port_range";
    let range = std::fs::read_to_string(range).expect("it can be read");
    let first = range.split_whitespace().next().expect("two numbers");
    let first: u16 = first.parse().expect("a port");
    let mut below = (1024..first).rev();
    let bound = below.find_map(|port| UdpSocket::bind(("127.0.0.1", port)).ok());
    bound.expect("one is free")
}

struct Recorded {
    requests: usize,
    exchanges: usize,
    counters: BTreeMap<String, u64>,
}

fn recorded(dir: &std::path::Path) -> Recorded {
    let recording = Recording::open(dir).expect("a recording");
    let (mut requests, mut exchanges) = (0, 0);
    recording
        .read::<Request>(None, &mut |_| requests += 1)
        .expect("it can be read");
    recording
        .read::<Exchange>(None, &mut |_| exchanges += 1)
        .expect("it can be read");
    Recorded {
        requests,
        exchanges,
        counters: recording.counters().expect("it can be read"),
    }
}

#[test]
fn who_was_waiting_for_an_answer_asks() {
    let Some(_turn) = common::together() else {
        return;
    };
    let server = bind_as_servers_do();
    let port = server.local_addr().expect("it has one").port();
    let (mut client, _output, _) = common::server(CLIENT, &[]);
    let mut input = client.0.stdin.take().expect("it is piped");
    std::io::Write::write_all(&mut input, format!("{port}\n").as_bytes()).expect("it listens");
    let mut buffer = [0; 100];
    let (size, asker) = server.recv_from(&mut buffer).expect("it asks");
    let first = buffer[..size].to_vec();
    let temporary = tempfile::tempdir().expect("a temporary folder can be made");
    let dir = temporary.path().join("recording");
    let mut session = Session::start(client.0.id(), vec![], &dir, &Options::default())
        .expect("the privileges to record");
    server.send_to(&first, asker).expect("it waits");
    thread::spawn(move || {
        while let Ok((size, asker)) = server.recv_from(&mut buffer) {
            thread::sleep(Duration::from_millis(5));
            let _ = server.send_to(&buffer[..size], asker);
        }
    });
    common::record_until(&mut session, |_| client.0.try_wait().expect("it is ours"));
    session.finish(None).expect("the recording is finished");
    let recorded = recorded(&dir);
    // The first was asked before.
    assert_eq!((recorded.requests, recorded.exchanges), (0, 19));
    assert_eq!(recorded.counters["datagrams.answered"], 0);
}

#[test]
fn datagrams_of_quic_are_no_questions() {
    let Some(_turn) = common::together() else {
        return;
    };
    let (server, _output, port) = common::server(QUIC, &[]);
    let temporary = tempfile::tempdir().expect("a temporary folder can be made");
    let dir = temporary.path().join("recording");
    let mut session = Session::start(server.0.id(), vec![], &dir, &Options::default())
        .expect("the privileges to record");
    let (said, done) = channel();
    thread::spawn(move || {
        let socket = UdpSocket::bind(("127.0.0.1", 0)).expect("a port is free");
        socket.connect(("127.0.0.1", port)).expect("it is there");
        let ask = |question: &[u8]| {
            socket.send(question).expect("it is there");
            socket.recv(&mut [0; 100]).expect("it answers");
        };
        let mut opens = b"\xc3\0\0\0\x01".to_vec();
        opens.resize(1200, 0);
        ask(&opens);
        (0..10).for_each(|_| ask(b"\x42 and more"));
        said.send(()).expect("the test waits");
    });
    common::record_until(&mut session, |_| done.try_recv().ok());
    session.finish(None).expect("the recording is finished");
    let recorded = recorded(&dir);
    assert_eq!(recorded.requests, 0);
    // All but the one of which only the answer told.
    assert_eq!(recorded.counters["datagrams.quic"], 21);
    assert_eq!(recorded.counters["datagrams.answered"], 0);
}
