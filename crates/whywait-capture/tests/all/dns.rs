//! DNS queries that are lost, asked through a socket that is connected, one that is not, and two
//! servers at once: what is recorded of them, and that nothing is of those that are answered.
//!
//! Needs the privileges to record. With `WHYWAIT_NO_BPF=1` nothing is tested.

use whywait_capture::{Options, Session};
use whywait_events::DnsQuery;
use whywait_events::recording::Recording;

use crate::common;

/// In a network namespace of its own, two servers, of which the first loses the first query for
/// each name that begins with `lost`. Asks when it is told to, and again after 1 s. Ends then.
const RESOLVER: &str = "
import ctypes, socket, struct, subprocess, sys, threading, time
libc = ctypes.CDLL(None)
assert libc.unshare(0x40000000) == 0
subprocess.run(['/sbin/ip', 'link', 'set', 'lo', 'up'], check=True)
servers = ['127.0.0.1', '127.0.0.2']

def answer(server, loses):
    seen = set()
    while True:
        query, client = server.recvfrom(512)
        if loses and query[13:17] == b'lost' and query[12:] not in seen:
            seen.add(query[12:])
            continue
        server.sendto(query[:2] + b'\\x81\\x80' + query[4:], client)

for address in servers:
    bound = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    bound.bind((address, 53))
    threading.Thread(target=answer, args=(bound, address == servers[0]), daemon=True).start()

def query(name, kind):
    labels = b''.join(bytes([len(one)]) + one for one in name.split(b'.'))
    return struct.pack('!6H', 7, 0x100, 1, 0, 0, 0) + labels + struct.pack('!BHH', 0, kind, 1)

def ask(send, receive, message):
    for _ in range(2):
        send(message)
        try:
            return receive(512)
        except TimeoutError:
            pass
    raise SystemExit('no answer')

print(0, flush=True)
sys.stdin.read(1)
for connected in (True, False):
    for name, kind in ((b'lost.example', 28 - 27 * connected), (b'kept.example', 1)):
        asking = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        asking.settimeout(1)
        if connected:
            asking.connect((servers[0], 53))
            ask(asking.send, asking.recv, query(name, kind))
        else:
            to = lambda message: asking.sendto(message, (servers[0], 53))
            ask(to, asking.recv, query(name, kind))
# Both servers at once: that one does not answer is no wait.
asking = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
asking.settimeout(1)
for server in reversed(servers):
    asking.sendmsg([query(b'lost.both.example', 1)], [], 0, (server, 53))
asking.recv(512)
# Both servers at once, through a socket each: the second one's answer is not waited for.
tasks = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in servers]
for asking, server in zip(tasks, servers):
    asking.connect((server, 53))
    asking.send(query(b'lost.race.example', 1))
tasks[1].recv(512)
for asking in tasks:
    asking.close()
time.sleep(1)
# One thread asks for two tasks, through a socket each, and both give up.
tasks = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2)]
for number, asking in enumerate(tasks):
    asking.connect((servers[0], 53))
    asking.send(query(b'lost%d.task.example' % number, 1))
time.sleep(2)
for asking in tasks:
    asking.close()
";

#[test]
fn what_is_asked_again_is_recorded_with_its_question() {
    let Some(_turn) = common::together() else {
        return;
    };
    let (mut server, _output, _) = common::server(RESOLVER, &[]);
    let temporary = tempfile::tempdir().expect("a temporary folder can be made");
    let dir = temporary.path().join("recording");
    let mut session = Session::start(server.0.id(), vec![], &dir, &Options::default())
        .expect("the privileges to record");
    // It may ask now.
    drop(server.0.stdin.take());
    let end = common::record_until(&mut session, |_| server.0.try_wait().expect("it is ours"));
    assert!(end.success(), "the resolver ended with {end}");
    session.finish(None).expect("the recording is finished");

    let recording = Recording::open(&dir).expect("a recording");
    let mut rows = Vec::new();
    recording
        .read::<DnsQuery>(None, &mut |row| rows.push(row.clone()))
        .expect("queries");
    let given_up = rows.split_off(rows.len().min(2));
    assert_eq!(given_up.len(), 2, "those of the tasks: {given_up:#?}");
    let asked: Vec<(&str, u16, u16)> = rows
        .iter()
        .map(|row| (row.server.as_str(), row.name_length, row.question))
        .collect();
    let length = "lost.example".len() as u16;
    assert_eq!(
        asked,
        [("127.0.0.1", length, 1), ("127.0.0.1", length, 28)],
        "{rows:#?}"
    );
    for row in &given_up {
        let none = row.again_ns.is_none() && row.answered_ns.is_none();
        assert!(none && row.server == "127.0.0.1", "{row:#?}");
    }
    for row in &rows {
        let again_after_ms = row.again_ns.map(|ns| (ns - row.sent_ns) / 1_000_000);
        assert!(
            again_after_ms.is_some_and(|ms| ms >= 990) && row.server_port == 53,
            "{row:#?}"
        );
    }
}
