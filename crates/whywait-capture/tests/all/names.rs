//! What requests and calls are called, where that is wanted: by their first bytes, and nothing of
//! their values is in the recording.
//!
//! Needs the privileges to record. With `WHYWAIT_NO_BPF=1` nothing is tested.

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::path::Path;
use std::thread;
use std::time::Duration;

use whywait_capture::{NamesWanted, Options, Session};
use whywait_events::recording::Recording;
use whywait_events::{
    Connection, DnsQuery, Exchange, Module, NameKind, NameRow, Request, Symbol, ThreadEvent,
};

use crate::common;

/// In all that is no vocabulary of the program's.
pub(crate) const MARKER: &str = "MARKER7x";

/// Of each request it asks two databases and a cache. It also answers a question of DNS.
const SERVER: &str = "
import socket, struct, sys, threading, time
postgres, mysql, redis = (socket.create_connection(('127.0.0.1', int(port)))
                          for port in sys.argv[1:4])
marker = None

def ask(peer, *pieces):
    peer.sendmsg(pieces)
    return peer.recv(100)

def message(kind, content):
    return kind + struct.pack('!I', len(content) + 4) + content

def packet(command, content):
    return struct.pack('<I', len(content) + 1)[:3] + bytes([0, command]) + content

def work():
    ask(postgres, message(b'Q', b\"SELECT a FROM t WHERE b = '%s' -- %s\\0\" % (marker, marker)))
    ask(postgres, message(b'P', b's\\0DELETE FROM t WHERE a = $1\\0\\0\\0'), message(b'S', b''))
    ask(postgres, message(b'B', b'\\0s\\0' + marker), message(b'E', bytes(5)), message(b'S', b''))
    ask(mysql, packet(3, b'INSERT INTO u VALUES (1, \"%s\")' % marker))
    number = ask(mysql, packet(0x16, b'UPDATE u SET a = ? WHERE b = ?'))[5:9]
    ask(mysql, packet(0x17, number + bytes(5) + marker))
    ask(redis, b'*2\\r\\n$3\\r\\nGET\\r\\n$8\\r\\n' + marker + b'\\r\\n')

def answer_names(names):
    while True:
        query, client = names.recvfrom(512)
        time.sleep(0.005)
        names.sendto(query[:2] + b'\\x81\\x80' + query[4:], client)

names = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
names.bind(('127.0.0.1', 0))
listener = socket.create_server(('127.0.0.1', 0))
print(listener.getsockname()[1], flush=True)
print(names.getsockname()[1], flush=True)
threading.Thread(target=answer_names, args=(names,), daemon=True).start()
marker = sys.stdin.readline().strip().encode()
while True:
    client, _ = listener.accept()
    # The first line comes in pieces.
    read = client.recv(6)
    while b'\\r\\n\\r\\n' not in read:
        read += client.recv(4096)
    work()
    client.sendall(b'HTTP/1.1 200 OK\\r\\nContent-Length: 0\\r\\n\\r\\n')
    client.close()
";

/// As slow as a call must be to have a row.
const SLOW: Duration = Duration::from_millis(5);

/// Replies to all that is asked; to who prepares a statement with its number.
fn peer() -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port is free");
    let port = listener.local_addr().expect("it has an address").port();
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("the server connects");
        let mut buffer = [0; 1000];
        while let Ok(size @ 1..) = stream.read(&mut buffer) {
            thread::sleep(SLOW);
            let reply = [12, 0, 0, 1, 0, 7, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0];
            if size < 5 || stream.write_all(&reply).is_err() {
                return;
            }
        }
    });
    port
}

/// All rows of these tables, a line each.
macro_rules! rows {
    ($recording:expr, $($table:ty),*) => {{
        let mut text = String::new();
        $($recording
            .read::<$table>(None, &mut |row| text.push_str(&format!("{row:?}\n")))
            .expect("it can be read");)*
        text
    }};
}

fn ask(port: u16, first_line: &str) {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("it listens");
    let rest = format!("Cookie: {MARKER}\r\n\r\nbody {MARKER}");
    let request = format!("{first_line} HTTP/1.1\r\n{rest}");
    stream.write_all(request.as_bytes()).expect("it reads");
    let mut answer = String::new();
    // What is left unread resets the connection.
    let _ = stream.read_to_string(&mut answer);
}

fn ask_name(port: u16) {
    let socket = UdpSocket::bind(("127.0.0.1", 0)).expect("a port is free");
    let mut question = b"\x12\x34\x01\0\0\x01\0\0\0\0\0\0\x08".to_vec();
    question.extend(MARKER.as_bytes());
    question.extend(b"\0\0\x1c\0\x01");
    socket
        .send_to(&question, ("127.0.0.1", port))
        .expect("it is there");
    socket.recv(&mut [0; 512]).expect("it answers");
}

pub(crate) fn contains(path: &Path, marker: &str) -> bool {
    let files = fs::read_dir(path).expect("a folder").flatten();
    files.map(|file| file.path()).any(|path| {
        if path.is_dir() {
            return contains(&path, marker);
        }
        let bytes = fs::read(&path).expect("it can be read");
        bytes
            .windows(marker.len())
            .any(|at| at == marker.as_bytes())
    })
}

#[test]
fn names_have_no_values() {
    let Some(_turn) = common::together() else {
        return;
    };
    let ports = [peer(), peer(), peer()].map(|port| port.to_string());
    let (mut server, mut output, port) =
        common::server(SERVER, &ports.each_ref().map(String::as_str));
    let mut input = server.0.stdin.take().expect("it is piped");
    writeln!(input, "{MARKER}").expect("it listens");
    let names: u16 = common::line_of(&mut output).parse().expect("a port");
    let temporary = tempfile::tempdir().expect("a temporary folder can be made");
    let dir = temporary.path().join("recording");
    let options = Options {
        names: NamesWanted {
            routes: true,
            statements: true,
        },
        ..Options::default()
    };
    let mut session =
        Session::start(server.0.id(), vec![], &dir, &options).expect("the privileges to record");
    let load = thread::spawn(move || {
        ask(port, &format!("GET /orders/{MARKER}/items?token={MARKER}"));
        ask(port, &format!("POST /pay/{MARKER};{MARKER}"));
        ask_name(names);
    });
    common::record_until(&mut session, |_| load.is_finished().then_some(()));
    session.finish(None).expect("the recording is finished");

    let recording = Recording::open(&dir).expect("a recording");
    let mut routes = BTreeSet::new();
    let mut statements = BTreeSet::new();
    recording
        .read::<NameRow>(None, &mut |row| {
            match row.kind {
                NameKind::Route => routes.insert(row.name.clone()),
                NameKind::Statement => statements.insert(row.name.clone()),
            };
        })
        .expect("it can be read");
    assert_eq!(
        Vec::from_iter(routes),
        ["GET /orders/{id}/items", "POST /pay/{id}"]
    );
    assert_eq!(
        Vec::from_iter(statements),
        [
            "DELETE FROM t WHERE a = ?",
            "DNS AAAA",
            "GET",
            "INSERT INTO u VALUES (?)",
            "SELECT a FROM t WHERE b = ?",
            "UPDATE u SET a = ? WHERE b = ?",
        ]
    );
    // Each call has a name: those that run what was prepared, too.
    let calls = rows!(recording, Exchange).lines().count();
    let named = rows!(recording, NameRow).lines().count();
    let requests = rows!(recording, Request).lines().count();
    assert_eq!((calls, requests, named), (14, 3, 17));

    let all = rows!(
        recording,
        NameRow,
        Request,
        Exchange,
        ThreadEvent,
        Connection,
        DnsQuery,
        Module,
        Symbol
    );
    assert!(!all.contains("MARKER"), "{all}");
    assert!(!contains(&dir, "MARKER"), "a file has a value");
}
