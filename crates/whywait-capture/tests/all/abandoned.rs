//! Requests that are worked on for a client that has reset its connection, or closed it; not those
//! of one that only says that it sends no more.
//!
//! Needs the privileges to record. With `WHYWAIT_NO_BPF=1` nothing is tested.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use whywait_capture::{Options, Session};
use whywait_events::Abandoned;
use whywait_events::recording::Recording;

use crate::common::{self, line_of};

/// Reads a byte of each of three connections; works for 50 ms on each when it is told to, and
/// answers.
const SERVER: &str = "
import socket, sys, time
listener = socket.create_server(('127.0.0.1', 0))
print(listener.getsockname()[1], flush=True)
for _ in range(3):
    connection = listener.accept()[0]
    connection.recv(1)
    print('read', flush=True)
    sys.stdin.readline()
    end = time.thread_time() + 0.05
    while time.thread_time() < end:
        pass
    try:
        connection.sendall(b'!')
        connection.sendall(b'!')
    except OSError:
        pass
    connection.close()
";

#[test]
fn work_for_a_client_that_has_gone_is_recorded() {
    let Some(_turn) = common::together() else {
        return;
    };
    let (mut server, mut output, port) = common::server(SERVER, &[]);
    let temporary = tempfile::tempdir().expect("a temporary folder can be made");
    let dir = temporary.path().join("recording");
    let mut session = Session::start(server.0.id(), vec![], &dir, &Options::default())
        .expect("the privileges to record");
    let mut stdin = server.0.stdin.take().expect("it is piped");
    let mut ports = Vec::new();
    for how in ["reset", "close", "half"] {
        let mut client = TcpStream::connect(("127.0.0.1", port)).expect("it listens");
        ports.push(client.local_addr().expect("it is connected").port());
        client.write_all(b"?").expect("it is connected");
        assert_eq!(line_of(&mut output), "read");
        match how {
            "reset" => {
                let at_once = Some(Duration::ZERO);
                rustix::net::sockopt::set_socket_linger(&client, at_once).expect("an option");
                drop(client);
                stdin.write_all(b"\n").expect("it reads");
            }
            "close" => {
                drop(client);
                stdin.write_all(b"\n").expect("it reads");
            }
            _ => {
                client.shutdown(Shutdown::Write).expect("it is connected");
                stdin.write_all(b"\n").expect("it reads");
                client.read_exact(&mut [0; 2]).expect("it answers");
            }
        }
    }
    let end = common::record_until(&mut session, |_| server.0.try_wait().expect("it is ours"));
    assert!(end.success(), "the server ended with {end}");
    session.finish(None).expect("the recording is finished");

    let recording = Recording::open(&dir).expect("a recording");
    let mut rows = Vec::new();
    recording
        .read::<Abandoned>(None, &mut |row| rows.push(row.clone()))
        .expect("abandoned requests");
    let whose: Vec<(u16, bool)> = rows.iter().map(|row| (row.peer_port, row.fin)).collect();
    assert_eq!(whose, [(ports[0], false), (ports[1], true)], "{rows:#?}");
    for row in &rows {
        assert!(
            row.cpu_ns >= 45_000_000 && row.ended_ns - row.gone_ns >= 45_000_000,
            "{row:#?}"
        );
    }
}
