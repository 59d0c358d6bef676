//! What the target asks of others is seen: sums for each peer, rows of what was slow.
//!
//! Needs the privileges to record. With `WHYWAIT_NO_BPF=1` nothing is tested.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use whywait_capture::{Options, Session};
use whywait_events::recording::Recording;
use whywait_events::{Exchange, PeerSums, Wait};

use crate::common::{self, Running};

/// The system call, on x86-64.
const POLL: u32 = 7;

/// Asks at two ports and a path when it is told to. It has made one of its connections to the first
/// port before.
const CLIENT: &str = "
import os, select, socket, sys
slow, fast, path = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
def ask(connection, *pieces):
    for piece in pieces:
        connection.sendall(piece)
    connection.recv(100)
early = socket.create_connection(('127.0.0.1', slow))
print('ready', flush=True)
sys.stdin.readline()
pair = socket.socketpair()
pair[0].sendall(b'to myself')
pair[1].recv(100)
late = socket.create_connection(('127.0.0.1', slow))
for _ in range(2):
    ask(early, b'slow?')
# As Ruby does: the reply, or whatever its own threads wake it by.
both = select.poll()
both.register(os.pipe()[0], select.POLLIN)
both.register(late, select.POLLIN)
late.sendall(b'in')
late.sendall(b' two')
both.poll()
late.recv(100)
quick = socket.create_connection(('127.0.0.1', fast))
for _ in range(50):
    ask(quick, b'fast?')
try:
    socket.create_connection(('127.0.0.1', 1))
except OSError:
    pass
# One has room there, and the next one has none.
full = socket.create_server(('127.0.0.1', 0), backlog=0)
first = socket.create_connection(full.getsockname())
try:
    socket.create_connection(full.getsockname(), timeout=0.05)
except TimeoutError:
    pass
for _ in range(3):
    with socket.socket(socket.AF_UNIX) as local:
        local.connect(path)
        ask(local, b'local?')
late.sendall(b'bye')
late.close()
early.sendall(b'silence')
print('asked', flush=True)
sys.stdin.readline()
";

/// Replies to what is asked on any connection, but for `bye` and `silence`.
fn serve(mut stream: impl Read + Write, after: Duration) {
    let mut asked = Vec::new();
    let mut buffer = [0; 100];
    while let Ok(size @ 1..) = stream.read(&mut buffer) {
        asked.extend_from_slice(&buffer[..size]);
        // One is asked in two pieces.
        if matches!(asked.as_slice(), b"in" | b"bye" | b"silence") {
            continue;
        }
        asked.clear();
        thread::sleep(after);
        if stream.write_all(b"a reply").is_err() {
            return;
        }
    }
}

fn listen(after: Duration) -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port is free");
    let port = listener.local_addr().expect("it has an address").port();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || serve(stream, after));
        }
    });
    port
}

const SLOW: Duration = Duration::from_millis(30);

#[test]
fn exchanges_and_their_peers_are_seen() {
    let Some(_turn) = common::together() else {
        return;
    };
    let temporary = tempfile::tempdir().expect("a temporary folder can be made");
    let path = temporary.path().join("socket");
    let local = UnixListener::bind(&path).expect("the path is free");
    thread::spawn(move || {
        for stream in local.incoming().flatten() {
            thread::spawn(move || serve(stream, SLOW));
        }
    });
    let (slow, fast) = (listen(SLOW), listen(Duration::ZERO));
    let child = Command::new("/usr/bin/python3")
        .args(["-c", CLIENT, &slow.to_string(), &fast.to_string()])
        .arg(&path)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn();
    let mut client = Running(child.expect("Python is there"));
    let mut input = client.0.stdin.take().expect("it is piped");
    let mut output = client.0.stdout.take().expect("it is piped");
    let mut said = [0; 6];
    output.read_exact(&mut said).expect("it is ready");
    let dir = temporary.path().join("recording");
    let mut session = Session::start(client.0.id(), vec![], &dir, &Options::default())
        .expect("the privileges to record");
    input.write_all(b"go\n").expect("it listens");
    let asked = thread::spawn(move || output.read_exact(&mut said));
    common::record_until(&mut session, |_| asked.is_finished().then_some(()));
    // What nobody replies to is slow, too.
    thread::sleep(Duration::from_millis(5));
    session.finish(None).expect("the recording is finished");

    let recording = Recording::open(&dir).expect("a recording");
    let peers = recording.peers().expect("it can be read");
    let mut rows: Vec<Exchange> = Vec::new();
    recording
        .read::<Exchange>(None, &mut |row| rows.push(row.clone()))
        .expect("it can be read");
    let peer = |port: u16, address: &str| -> &PeerSums {
        let mut found = peers.values();
        found
            .find(|peer| peer.port == port && peer.address == address)
            .unwrap_or_else(|| panic!("no peer {address}:{port} in {peers:#?}"))
    };
    let own = std::process::id();
    let mut slept = false;
    let slow = peer(slow, "127.0.0.1");
    assert_eq!(counts(slow), (3, 3, 2), "{slow:#?}");
    assert_eq!((slow.connections, slow.connects), (2, 1), "{slow:#?}");
    assert_eq!(slow.bytes_out, 5 + 5 + 6 + 3 + 7, "{slow:#?}");
    assert_eq!((slow.bytes_in, slow.tgid), (3 * 7, own), "{slow:#?}");
    assert_eq!((slow.most_in_flight, slow.most_open), (Some(1), Some(2)));
    assert!(slow.total_ns >= 3 * SLOW.as_nanos() as u64, "{slow:#?}");
    let fast = peer(fast, "127.0.0.1");
    assert_eq!(fast.count, 50, "{fast:#?}");
    let in_buckets: u64 = fast.latency.values().sum();
    assert_eq!(in_buckets, 50, "{fast:#?}");
    assert_eq!(peer(1, "127.0.0.1").failed, 1);
    let local = peer(0, &path.to_string_lossy());
    assert_eq!(counts(local), (3, 3, 0), "{local:#?}");
    assert_eq!((local.connections, local.tgid), (3, own), "{local:#?}");
    assert_eq!(peers.len(), 5, "a pair of sockets is no peer: {peers:#?}");
    // Not of the one that was refused.
    let given_up: Vec<&Exchange> = rows.iter().filter(|row| row.bytes_out == 0).collect();
    let [given_up] = given_up[..] else {
        panic!("one was given up: {given_up:#?}");
    };
    assert_eq!(peers[&given_up.peer].failed, 1);
    assert_eq!(given_up.send_tid, client.0.id());
    assert!(given_up.fd > 2, "{given_up:?}");
    assert_eq!(given_up.connect_ns, Some(given_up.first_send_ns));
    let took_ns = given_up.gone_ns.expect("it is over") - given_up.first_send_ns;
    assert!(took_ns >= 50_000_000, "{given_up:?}");
    recording
        .read::<Wait>(None, &mut |wait| {
            let within = given_up.first_send_ns < wait.out_ns && wait.wake_ns < given_up.gone_ns;
            slept |= within && i64::try_from(wait.args[0]) == Ok(given_up.fd.into());
        })
        .expect("it can be read");
    assert!(slept, "the thread slept for that descriptor meanwhile");

    let of = |peer: &PeerSums| {
        let id = peer.id;
        rows.iter().filter(move |row| row.peer == id)
    };
    for row in of(slow)
        .chain(of(local))
        .filter(|row| row.last_read_ns.is_some())
    {
        assert_eq!((row.tgid, row.send_tid), (client.0.id(), client.0.id()));
        assert_eq!(row.read_tid, client.0.id(), "{row:?}");
        assert!(row.fd > 2 && row.bytes_in == 7, "{row:?}");
        let times = [
            Some(row.first_send_ns),
            Some(row.last_send_ns),
            row.arrived_ns,
            row.first_read_ns,
            row.last_read_ns,
        ];
        assert!(
            times.is_sorted() && times.iter().all(Option::is_some),
            "{row:?}"
        );
        let took_ns = row.last_read_ns.unwrap_or(0) - row.first_send_ns;
        assert!(took_ns >= SLOW.as_nanos() as u64, "{row:?}");
    }
    let answered = of(slow).filter(|row| row.last_read_ns.is_some()).count();
    assert_eq!((answered, of(local).count()), (3, 3), "{rows:#?}");
    assert_eq!(
        of(fast).count(),
        50,
        "short ones have rows, where they are few"
    );
    let new = of(slow).find(|row| row.connect_ns.is_some());
    let new = new.expect("one of the connections was seen being made");
    assert!(new.connect_ns <= new.connected_ns && new.connected_ns <= Some(new.first_send_ns));
    assert!(new.bytes_out == 6 && new.srtt_us > 0, "{new:?}");
    let mut polled = false;
    recording
        .read::<Wait>(None, &mut |wait| {
            let of_two = wait.syscall == Some(POLL) && wait.args[1] == 2;
            polled |= of_two && i64::try_from(wait.args[0]) == Ok(new.fd.into());
        })
        .expect("it can be read");
    assert!(polled, "of two that were polled the socket has a name");
    let silent = of(slow).find(|row| row.bytes_out == 7);
    let silent = silent.expect("what was not replied to has a row");
    assert_eq!((silent.first_read_ns, silent.gone_ns), (None, None));
}

fn counts(peer: &PeerSums) -> (u64, u64, u64) {
    (peer.count, peer.slow, peer.unanswered)
}
