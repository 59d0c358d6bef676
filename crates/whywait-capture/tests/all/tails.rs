//! The end of a response that the kernel holds back, by the client's own clock.
//!
//! Needs the privileges to record. With `WHYWAIT_NO_BPF=1` nothing is tested.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Instant;

use whywait_capture::{Options, Session};
use whywait_events::Tail;
use whywait_events::recording::Recording;

use crate::common;

const MS: u64 = 1_000_000;
const ROUNDS: usize = 10;

/// Answers each byte of its first connection with ten bytes and one, in two writes; then the same
/// on a second one, without Nagle's algorithm.
const SERVER: &str = "
import socket
listener = socket.create_server(('127.0.0.1', 0))
print(listener.getsockname()[1], flush=True)
for nodelay in (0, 1):
    connection = listener.accept()[0]
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, nodelay)
    while connection.recv(1):
        connection.send(b'0123456789')
        connection.send(b'.')
";

/// Has the kernel acknowledge late, as it does on a connection that asks and is answered in turns.
fn acknowledge_late(connection: &TcpStream) {
    rustix::net::sockopt::set_tcp_quickack(connection, false).expect("the option is known");
}

#[test]
fn what_is_held_back_is_what_the_client_waits_for() {
    let Some(_turn) = common::alone() else {
        return;
    };
    let (mut server, _output, port) = common::server(SERVER, &[]);
    let temporary = tempfile::tempdir().expect("a temporary folder can be made");
    let dir = temporary.path().join("recording");
    let mut session = Session::start(server.0.id(), vec![], &dir, &Options::default())
        .expect("the privileges to record");

    let mut waited_ms = Vec::new();
    for _ in 0..2 {
        let mut connection = TcpStream::connect(("127.0.0.1", port)).expect("it listens");
        for _ in 0..ROUNDS {
            acknowledge_late(&connection);
            connection.write_all(b"?").expect("it is connected");
            connection.read_exact(&mut [0; 10]).expect("it answers");
            let since = Instant::now();
            connection.read_exact(&mut [0]).expect("it answers");
            waited_ms.push(since.elapsed().as_secs_f64() * 1e3);
        }
        drop(connection);
    }
    let end = server.0.wait().expect("it is ours");
    assert!(end.success(), "the server ended with {end}");
    common::record_until(&mut session, |_| Some(()));
    session.finish(None).expect("the recording is finished");

    let recording = Recording::open(&dir).expect("a recording");
    let mut held_ms = Vec::new();
    let mut bytes = Vec::new();
    recording
        .read::<Tail>(None, &mut |row| {
            held_ms.push((row.sent_ns - row.written_ns) as f64 / MS as f64);
            bytes.push((row.bytes_out, row.bytes, row.local_port));
        })
        .expect("tails");
    waited_ms.retain(|ms| *ms >= 1.0);
    assert!(
        waited_ms.len() >= ROUNDS / 2,
        "expected the client to wait in most rounds of {ROUNDS}, got {waited_ms:?} ms"
    );
    assert_eq!(
        held_ms.len(),
        waited_ms.len(),
        "expected one for each wait of the client, {waited_ms:?} ms, got {held_ms:?} ms"
    );
    // Where the client got its CPU late its clock is off, in either direction.
    let mut apart: Vec<f64> = held_ms
        .iter()
        .zip(&waited_ms)
        .map(|(held, waited)| (held - waited).abs())
        .collect();
    apart.sort_by(f64::total_cmp);
    assert!(
        apart[apart.len() / 2] < 2.0,
        "expected the client's {waited_ms:?} ms give or take two, as a rule, got {held_ms:?} ms"
    );
    assert_eq!(bytes, vec![(11, 1, port); bytes.len()]);
}
