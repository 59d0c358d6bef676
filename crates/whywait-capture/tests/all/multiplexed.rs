//! Connections that carry several requests at once are recognised, and no others.
//!
//! Needs the privileges to record. With `WHYWAIT_NO_BPF=1` nothing is tested.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use whywait_capture::{Options, Session};
use whywait_events::recording::Recording;

use crate::common::{self, Running};

/// A server, and a client that is a process of its own: what they say to each other is argument 1.
/// `C bytes`: the client sends; `r`: the server reads what is there, or at most so many bytes;
/// `w`: the server writes something, or these bytes, each with so many zeros (`~`); `v`: it writes
/// from several pieces of memory at once; `p`: a pause of 3 ms. `+`: one at once after the other;
/// the client then takes what it was sent. The connection may be older than the recording
/// (argument 2: `old`). Argument 3, `calls`: it is the one who is recorded who connects, and `C` is
/// what its peer sends.
const SCRIPT: &str = r"
import os, socket, sys, time
listener = socket.socket()
listener.bind(('127.0.0.1', 0))
listener.listen(8)
to_client, to_server = socket.socketpair()
calls = sys.argv[3:] == ['calls']
if not os.fork():
    to_client.close()
    if calls:
        client = listener.accept()[0]
    else:
        client = socket.create_connection(listener.getsockname())
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    # What it has it does not acknowledge at once, as one that talks much does not.
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 0)
    while order := to_server.recv(65536):
        if order == b'w':
            client.recv(65536)
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 0)
        else:
            client.sendall(order)
        to_server.sendall(b'done')
    os._exit(0)
to_server.close()
def connected():
    if calls:
        address = listener.getsockname()
        listener.close()
        return socket.create_connection(address)
    return listener.accept()[0]
def client(order):
    to_client.sendall(order)
    to_client.recv(4)
connection = None
if sys.argv[2] == 'old':
    connection = connected()
    client(b'hello')
    connection.recv(65536)
    connection.sendall(b'!')
    client(b'w')
print('ready', flush=True)
sys.stdin.readline()
connection = connection or connected()
for line in sys.argv[1].split('\n'):
    steps = line.split('+')
    for step in steps:
        if step.startswith('C '):
            client(bytes.fromhex(step[2:]))
        elif step[:1] == 'r':
            connection.recv(int(step[2:] or 65536))
        elif step[:1] == 'w':
            pieces = [piece.partition('~') for piece in step[2:].split()]
            said = [bytes.fromhex(said) + bytes(int(zeros or 0)) for said, _, zeros in pieces]
            connection.sendall(b''.join(said) or b'!')
        elif step[:1] == 'v':
            pieces = [bytes.fromhex(piece) for piece in step[2:].split(',')]
            assert os.writev(connection.fileno(), pieces) == sum(map(len, pieces))
        elif step == 'p':
            time.sleep(0.003)
    for _ in [step for step in steps if step.startswith(('w', 'v'))]:
        client(b'w')
print('over', flush=True)
sys.stdin.readline()
";

/// What is recorded of a conversation, and the folder that holds it.
pub(crate) fn recorded(conversation: &str, age: &str) -> (tempfile::TempDir, Recording) {
    recorded_as(&[conversation, age])
}

/// The same, with all arguments.
pub(crate) fn recorded_as(arguments: &[&str]) -> (tempfile::TempDir, Recording) {
    recorded_with(arguments, &Options::default())
}

/// … and with options.
pub(crate) fn recorded_with(
    arguments: &[&str],
    options: &Options,
) -> (tempfile::TempDir, Recording) {
    let child = Command::new("/usr/bin/python3")
        .args(["-c", SCRIPT])
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn();
    let mut server = Running(child.expect("Python is there"));
    let mut lines = BufReader::new(server.0.stdout.take().expect("it is piped")).lines();
    let mut says = |word: &str| {
        let line = lines.next().expect("the server speaks");
        assert_eq!(line.expect("text"), word);
    };
    let mut stdin = server.0.stdin.take().expect("it is piped");
    says("ready");
    let temporary = tempfile::tempdir().expect("a temporary folder can be made");
    let dir = temporary.path().join("recording");
    let session = Session::start(server.0.id(), vec![], &dir, options);
    let session = Box::new(session.expect("the privileges to record"));
    let mut go = || std::io::Write::write_all(&mut stdin, b"\n").expect("the server listens");
    go();
    says("over");
    session.finish(None).expect("the recording is finished");
    go();
    let recording = Recording::open(&dir).expect("a recording");
    (temporary, recording)
}

/// How many connections were found to carry several requests at once: by HTTP/2, by overlaps.
fn found(conversation: &str, age: &str) -> (u64, u64) {
    let (_folder, recording) = recorded(conversation, age);
    let counters = recording.counters().expect("counters");
    let of = |name: &str| counters.get(name).copied().unwrap_or(0);
    (of("streams.connections"), of("connections.overlapping"))
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
pub(crate) const SETTINGS: &[u8] = &[0, 0, 0, 4, 0, 0, 0, 0, 0];
const HEADERS: &[u8] = &[0, 0, 3, 1, 5, 0, 0, 0, 1, 0x82, 0x86, 0x84];

#[test]
fn http2_is_known_by_how_it_begins() {
    let Some(_turn) = common::together() else {
        return;
    };
    let begins = [PREFACE, SETTINGS].concat();
    let conversation = format!("C {}\nr\nw\nC 31\nr\nw", hex(&begins));
    assert_eq!(found(&conversation, "new"), (1, 0));
    let other = hex(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    let conversation = format!("C {other}\nr\nw\nC {}\nr\nw", hex(&begins));
    assert_eq!(found(&conversation, "new"), (0, 0), "not at its beginning");
}

#[test]
fn http2_may_come_behind_a_proxys_head() {
    let Some(_turn) = common::together() else {
        return;
    };
    let first = b"PROXY TCP4 192.0.2.1 192.0.2.2 40000 443\r\n".to_vec();
    let signature = b"\r\n\r\n\0\r\nQUIT\n";
    let address = [192, 0, 2, 1, 192, 0, 2, 2, 0x9c, 0x40, 1, 0xbb];
    let second = [&signature[..], &[0x21, 0x11, 0, 12], &address].concat();
    let begins = [PREFACE, SETTINGS].concat();
    for head in [first, second] {
        // Read alone, or with what comes behind it: then the next read shows it.
        let alone = format!("C {}\nr\nC {}\nr\nw", hex(&head), hex(&begins));
        assert_eq!(found(&alone, "new"), (1, 0), "{head:?}, alone");
        let together = format!(
            "C {}\nr\nw\nC {}\nr\nw",
            hex(&[&head[..], &begins].concat()),
            hex(HEADERS)
        );
        assert_eq!(found(&together, "new"), (1, 0), "{head:?}");
        let other = format!(
            "C {}\nr\nC {}\nr\nw",
            hex(&head),
            hex(b"GET / HTTP/1.1\r\n\r\n")
        );
        assert_eq!(found(&other, "new"), (0, 0), "{head:?}");
    }
}

#[test]
fn http2_may_come_behind_an_upgrade() {
    let Some(_turn) = common::together() else {
        return;
    };
    let conversation = format!(
        "C {}\nr\nw {}\nC {}\nr\nw",
        hex(b"GET / HTTP/1.1\r\nUpgrade: h2c\r\n\r\n"),
        hex(b"HTTP/1.1 101 Switching Protocols\r\n\r\n"),
        hex(&[PREFACE, SETTINGS].concat()),
    );
    assert_eq!(found(&conversation, "new"), (1, 0));
}

#[test]
fn http2_that_was_there_before_is_known_by_its_frames() {
    let Some(_turn) = common::together() else {
        return;
    };
    let ping = [0, 0, 8, 6, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8];
    let asks = [&ping, HEADERS].concat();
    let conversation = format!("C 31\nr\nw\nC {}\nr\nw", hex(&asks));
    assert_eq!(found(&conversation, "old"), (1, 0));
    for others in [&asks[..20], &[&asks[..], b"."].concat(), &ping, SETTINGS] {
        let conversation = format!("C {}\nr\nw", hex(others));
        assert_eq!(found(&conversation, "old"), (0, 0), "{others:?}");
    }
    // Clients of streams of messages send nothing but what is of the connection.
    let room = [0, 0, 4, 8, 0, 0, 0, 0, 0, 0, 0, 1, 0];
    let several = format!("C {}\nr\nw", hex(&[&room[..], &ping].concat()));
    assert_eq!(found(&several, "old"), (1, 0));
    let one_by_one = format!("C {}\nr\nw\n", hex(&ping)).repeat(2);
    assert_eq!(found(&one_by_one, "old"), (1, 0), "two are no chance");
}

#[test]
fn http2_of_which_heads_are_read_first_is_known_by_two_of_them() {
    let Some(_turn) = common::together() else {
        return;
    };
    // As Go's net/http reads what has a body: the head, what belongs to it, the next head.
    let body = [0, 0, 4, 0, 1, 0, 0, 0, 1, 1, 2, 3, 4];
    let asks = [HEADERS, &body].concat();
    let turn = format!("C {}\nr 9\nr 3\nr 9\nr 4\nw\n", hex(&asks));
    assert_eq!(found(&turn.repeat(2), "old"), (1, 0));
    assert_eq!(found(&turn, "old"), (0, 0), "one head may be anything");
    // What is behind it is too short for another frame.
    let turn = format!("C {}\nr 9\nr\nw\n", hex(&asks[..18]));
    assert_eq!(found(&turn.repeat(2), "old"), (0, 0));
}

#[test]
fn requests_that_are_sent_before_the_answer_overlap() {
    let Some(_turn) = common::together() else {
        return;
    };
    // The second one comes before the first one is answered, and so on.
    let conversation = format!("C 31\nr\n{}w", "C 32\nw+r\n".repeat(6));
    assert_eq!(found(&conversation, "new"), (0, 1));
    let few = format!("C 31\nr\n{}w", "C 32\nw+r\n".repeat(3));
    assert_eq!(found(&few, "new"), (0, 0), "that may be anything");
}

#[test]
fn pieces_are_no_several_requests() {
    let Some(_turn) = common::together() else {
        return;
    };
    let pieces = "C 31\nr\nC 32\nr\nC 33\nr\nw\nw\nw\n".repeat(6);
    assert_eq!(found(&pieces, "new"), (0, 0));
    let continues = "C 31\nr\nw\nC 32\nr\nw\n".repeat(6);
    assert_eq!(found(&continues, "new"), (0, 0));
    let rest_is_read_late = "C 31\nr\nC 32\nw+r\nC 33\nr\nw\n".repeat(6);
    assert_eq!(found(&rest_is_read_late, "new"), (0, 0));
}
