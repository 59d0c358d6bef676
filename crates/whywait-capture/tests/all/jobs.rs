//! Jobs from a broker are seen: what a worker does itself, what it hands on to a helper, and what
//! was fetched ahead.
//!
//! Needs the privileges to record. With `WHYWAIT_NO_BPF=1` nothing is tested.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use tempfile::TempDir;
use whywait_capture::{Options, Session};
use whywait_events::recording::Recording;
use whywait_events::{Exchange, Request, WorkKind};

use crate::common::{self, Running};

/// Has five messages and works on each, and five more that it gives to a helper.
const WORKER: &str = "
import os, socket, sys, time
broker = socket.create_connection(('127.0.0.1', int(sys.argv[1])))
def fetch():
    broker.sendall(b'*3\\r\\n$5\\r\\nBLPOP\\r\\n$4\\r\\njobs\\r\\n$1\\r\\n0\\r\\n')
    return broker.recv(100)
print('ready', flush=True)
sys.stdin.readline()
for _ in range(5):
    fetch()
    broker.sendall(b'*1\\r\\n$4\\r\\nPING\\r\\n')
    broker.recv(100)
    time.sleep(0.02)
read, write = os.pipe()
done, is_done = os.pipe()
if not os.fork():
    # Or it would never see that the worker has gone.
    os.close(write)
    while os.read(read, 1):
        time.sleep(0.05)
        os.write(is_done, b'x')
    os._exit(0)
time.sleep(0.01)
for _ in range(5):
    fetch()
    os.write(write, b'x')
    os.read(done, 1)
    time.sleep(0.01)
fetch()
print('asked', flush=True)
sys.stdin.readline()
";

const AFTER: Duration = Duration::from_millis(10);

/// Has messages ten times, and then none.
fn serve(mut stream: TcpStream) {
    let mut buffer = [0; 100];
    let mut left = 10;
    while let Ok(size @ 1..) = stream.read(&mut buffer) {
        let answer: &[u8] = match (buffer[..size].ends_with(b"PING\r\n"), left) {
            (true, _) => b"+PONG\r\n",
            (false, 0) => b"*-1\r\n",
            (false, _) => {
                left -= 1;
                b"*2\r\n$4\r\njobs\r\n$3\r\n123\r\n"
            }
        };
        thread::sleep(AFTER);
        if stream.write_all(answer).is_err() {
            return;
        }
    }
}

/// A worker that was watched.
struct Watched {
    recording: Recording,
    /// Of its jobs, in order.
    jobs: Vec<Request>,
    tgid: u32,
    /// Where its broker is.
    port: u16,
    _folder: TempDir,
}

impl Watched {
    /// The jobs of its helpers, by when they came.
    fn handed(&self) -> Vec<&Request> {
        let handed = |row: &&Request| row.kind == WorkKind::HandedJob;
        let mut jobs: Vec<_> = self.jobs.iter().filter(handed).collect();
        jobs.sort_by_key(|row| row.ready_ns);
        jobs
    }
}

/// Watches a worker from when it is ready until it says that it is done.
fn watch(program: &str, how: &str, serve: fn(TcpStream)) -> Watched {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port is free");
    let port = listener.local_addr().expect("it has an address").port();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || serve(stream));
        }
    });
    let child = Command::new("/usr/bin/python3")
        .args(["-c", program, &port.to_string(), how])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn();
    let mut worker = Running(child.expect("Python is there"));
    let mut input = worker.0.stdin.take().expect("it is piped");
    let mut output = worker.0.stdout.take().expect("it is piped");
    let mut said = [0; 6];
    output.read_exact(&mut said).expect("it is ready");
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let dir = folder.path().join("recording");
    let mut session = Session::start(worker.0.id(), vec![], &dir, &Options::default())
        .expect("the privileges to record");
    input.write_all(b"go\n").expect("it listens");
    let asked = thread::spawn(move || output.read_exact(&mut said));
    common::record_until(&mut session, |_| asked.is_finished().then_some(()));
    session.finish(None).expect("the recording is finished");

    let recording = Recording::open(&dir).expect("a recording");
    let mut jobs: Vec<Request> = Vec::new();
    recording
        .read::<Request>(None, &mut |row| jobs.push(row.clone()))
        .expect("it can be read");
    Watched {
        recording,
        jobs,
        tgid: worker.0.id(),
        port,
        _folder: folder,
    }
}

#[test]
fn jobs_are_seen_and_what_asks_for_them_is_no_call() {
    let Some(_turn) = common::together() else {
        return;
    };
    let watched = watch(WORKER, "", serve);
    let (recording, jobs, tgid) = (&watched.recording, &watched.jobs, watched.tgid);
    let of = |kind: WorkKind| jobs.iter().filter(move |row| row.kind == kind);
    let took_ms = |row: &Request| row.last_send_ns.map(|ns| (ns - row.ready_ns) / 1_000_000);
    // Ten of its own, of which it hands five on; the last answer has no message.
    assert_eq!(of(WorkKind::Job).count(), 10, "{jobs:#?}");
    for row in of(WorkKind::Job).take(5) {
        assert!(took_ms(row) >= Some(30), "with its call: {row:?}");
        assert_eq!((row.recv_tid, row.tgid), (tgid, tgid));
    }
    assert_eq!(of(WorkKind::HandedJob).count(), 5, "{jobs:#?}");
    for row in of(WorkKind::HandedJob) {
        assert!(took_ms(row) >= Some(50), "{row:?}");
        assert_ne!(row.tgid, tgid, "{row:?}");
        assert_eq!(row.handed_by, tgid, "{row:?}");
        assert_eq!(row.recv_tid, row.send_tid, "{row:?}");
    }
    let peers = recording.peers().expect("it can be read");
    let broker = peers.values().find(|peer| peer.port == watched.port);
    let broker = broker.expect("it is a peer");
    assert_eq!((broker.count, broker.unanswered), (5, 0), "{broker:#?}");
    assert!(jobs.iter().all(|row| row.broker == broker.id), "{jobs:#?}");
    let mut calls = 0;
    recording
        .read::<Exchange>(None, &mut |_| calls += 1)
        .expect("it can be read");
    assert_eq!(calls, 5);
    let counters = recording.counters().expect("it can be read");
    assert_eq!(counters.get("jobs.fetches"), Some(&11), "{counters:#?}");
}

/// Asks for the next message when it has one, as Celery's parent process does, and has one helper,
/// which works for 25 ms on each. When that is done it has more to do, and reads what has come,
/// before it gives it the next one. Of four more it gives the last one alone.
const GIVES_LATE: &str = "
import os, select, socket, sys, time
broker = socket.create_connection(('127.0.0.1', int(sys.argv[1])))
read, write = os.pipe()
done, is_done = os.pipe()
if not os.fork():
    os.close(write)
    while os.read(read, 1):
        time.sleep(0.025)
        os.write(is_done, b'x')
    os._exit(0)
poll = select.epoll()
poll.register(broker, select.EPOLLIN)
poll.register(done, select.EPOLLIN)
asked = come = given = 0
def ask():
    global asked
    broker.sendall(b'*3\\r\\n$5\\r\\nBLPOP\\r\\n$4\\r\\njobs\\r\\n$1\\r\\n0\\r\\n')
    asked += 1
def has():
    global come
    broker.recv(100)
    come += 1
    if asked not in (6, 10):
        ask()
print('ready', flush=True)
sys.stdin.readline()
time.sleep(0.01)
ask()
is_free = True
while given < 6 or not is_free:
    if is_free and come > given:
        os.write(write, b'x')
        is_free = False
        given += 1
    events = [fd for fd, _ in poll.poll()]
    if done in events:
        os.read(done, 1)
        is_free = True
        time.sleep(0.011)
        events = [fd for fd, _ in poll.poll(0)]
    if broker.fileno() in events:
        has()
ask()
for _ in range(4):
    poll.poll()
    has()
os.write(write, b'x')
os.read(done, 1)
print('asked', flush=True)
sys.stdin.readline()
";

#[test]
fn messages_wait_for_a_helper_and_are_forgotten_where_none_gets_them() {
    let Some(_turn) = common::together() else {
        return;
    };
    let watched = watch(GIVES_LATE, "", serve);
    let handed = watched.handed();
    let took: Vec<_> = handed
        .iter()
        .map(|row| (row.last_send_ns.unwrap_or_default() - row.ready_ns) / 1_000_000)
        .collect();
    assert_eq!(took.len(), 7, "{handed:#?}");
    for (took_ms, at_least) in took.iter().zip([25, 45, 70, 90, 110, 130, 25]) {
        assert!(*took_ms >= at_least, "{at_least} ms at least: {took:?}");
    }
    assert!(took[6] < 45, "from when it came itself: {took:?}");
}

/// Gives each message to a thread through memory, which writes it to a pipe that two child
/// processes read, as a `multiprocessing.Pool` does. They have more to do than they can, and work
/// for 25 ms on each; another thread hears when one is done.
const TWO_HANDS: &str = "
import os, queue, socket, sys, threading, time
broker = socket.create_connection(('127.0.0.1', int(sys.argv[1])))
ASK = b'*3\\r\\n$5\\r\\nBLPOP\\r\\n$4\\r\\njobs\\r\\n$1\\r\\n0\\r\\n'
read, write = os.pipe()
done, is_done = os.pipe()
for _ in range(2):
    if not os.fork():
        os.close(write)
        while os.read(read, 1):
            time.sleep(0.025)
            os.write(is_done, b'x')
        os._exit(0)
messages, left = queue.SimpleQueue(), threading.Semaphore(0)
def hand_on():
    while True:
        os.write(write, messages.get())
def hear():
    while True:
        os.read(done, 1)
        left.release()
threading.Thread(target=hand_on, daemon=True).start()
threading.Thread(target=hear, daemon=True).start()
print('ready', flush=True)
sys.stdin.readline()
for _ in range(10):
    broker.sendall(ASK)
    broker.recv(100)
    messages.put(b'x')
for _ in range(10):
    left.acquire()
print('asked', flush=True)
sys.stdin.readline()
";

#[test]
fn jobs_that_go_through_a_thread_to_a_child_process_are_the_childs() {
    let Some(_turn) = common::together() else {
        return;
    };
    let watched = watch(TWO_HANDS, "", serve);
    let handed = watched.handed();
    // Of the first ones nobody knows yet that they are handed on.
    assert!((6..=10).contains(&handed.len()), "{handed:#?}");
    for row in &handed {
        let end_ns = row.last_send_ns.expect("it is over");
        let took_ms = (end_ns - row.ready_ns) / 1_000_000;
        let worked_ms = (end_ns - row.recv_ns.expect("it was read")) / 1_000_000;
        assert!((25..45).contains(&worked_ms), "25 ms of work: {row:?}");
        assert!((25..100).contains(&took_ms), "with its wait: {row:?}");
        assert_ne!(row.tgid, watched.tgid, "a child's: {row:?}");
        assert_eq!(row.handed_by, watched.tgid, "who has the messages: {row:?}");
    }
}

/// Hands ten messages to a thread that always finds another one, and wakes a third one after every
/// second, which does something else: it computes for a while.
const BACKLOG: &str = "
import collections, socket, sys, threading, time
broker = socket.create_connection(('127.0.0.1', int(sys.argv[1])))
messages = collections.deque([b''] * 1000)
collects = threading.Lock()
collects.acquire()
def works():
    while messages.popleft() != b'end':
        time.sleep(0.005)
def computes():
    while collects.acquire():
        until = time.monotonic() + 0.003
        while time.monotonic() < until:
            pass
for other in works, computes:
    threading.Thread(target=other, daemon=True).start()
print('ready', flush=True)
sys.stdin.readline()
for number in range(11):
    time.sleep(0.01)
    broker.sendall(b'*3\\r\\n$5\\r\\nBLPOP\\r\\n$4\\r\\njobs\\r\\n$1\\r\\n0\\r\\n')
    messages.append(broker.recv(100))
    if number % 2:
        collects.release()
print('asked', flush=True)
sys.stdin.readline()
";

/// Has messages at once.
fn serve_backlog(mut stream: TcpStream) {
    let mut buffer = [0; 100];
    while let Ok(1..) = stream.read(&mut buffer) {
        if stream
            .write_all(b"*2\r\n$4\r\njobs\r\n$3\r\n123\r\n")
            .is_err()
        {
            return;
        }
    }
}

#[test]
fn who_is_passed_over_by_messages_is_given_none() {
    let Some(_turn) = common::together() else {
        return;
    };
    let watched = watch(BACKLOG, "", serve_backlog);
    assert_eq!(watched.handed(), Vec::<&Request>::new());
}

/// Has five messages at once, four times, and is done with one every 20 ms: one after the other,
/// or ("loop") as a loop that waits for other events meanwhile.
const FETCHES_AHEAD: &str = "
import select, socket, sys, time
broker = socket.create_connection(('127.0.0.1', int(sys.argv[1])))
poll = select.epoll()
poll.register(broker, select.EPOLLIN)
ACK = bytes([1, 0, 1, 0, 0, 0, 13, 0, 60, 0, 80]) + bytes(9) + bytes([0xce])
print('ready', flush=True)
sys.stdin.readline()
for _ in range(4):
    broker.sendall(b'more, please')
    poll.poll()
    broker.recv(1000)
    for _ in range(5):
        if sys.argv[2] == 'loop':
            poll.poll(0.02)
        else:
            time.sleep(0.02)
        broker.sendall(ACK)
print('asked', flush=True)
sys.stdin.readline()
";

/// Five messages for who wants more.
fn send_ahead(mut stream: TcpStream) {
    let mut buffer = [0; 200];
    while let Ok(size @ 1..) = stream.read(&mut buffer) {
        if buffer[..size].ends_with(b"please") {
            thread::sleep(AFTER);
            if stream.write_all(&[7; 500]).is_err() {
                return;
            }
        }
    }
}

#[test]
fn what_was_fetched_ahead_waits_for_who_works_on_one_after_the_other() {
    let Some(_turn) = common::together() else {
        return;
    };
    let took_ms = |row: &Request| row.last_send_ns.map(|ns| (ns - row.ready_ns) / 1_000_000);
    // That acknowledgements come is known from the first one on.
    let in_order = watch(FETCHES_AHEAD, "", send_ahead);
    assert_eq!(in_order.jobs.len(), 15, "{:#?}", in_order.jobs);
    for burst in in_order.jobs.chunks(5) {
        for (row, at_least) in burst.iter().zip([20, 40, 60, 80, 100]) {
            assert!(took_ms(row) >= Some(at_least), "{at_least} ms: {row:?}");
        }
        let read: Vec<u64> = burst.iter().filter_map(|row| row.recv_ns).collect();
        assert!(read[4] - read[0] >= 80_000_000, "begun in turn: {burst:#?}");
    }
    // A loop may be at all of them: nobody knows that any waits.
    let in_loop = watch(FETCHES_AHEAD, "loop", send_ahead);
    assert_eq!(in_loop.jobs.len(), 3, "{:#?}", in_loop.jobs);
    for row in &in_loop.jobs {
        let waited_ns = row.recv_ns.map_or(0, |ns| ns - row.ready_ns);
        assert!(waited_ns < 20_000_000, "{row:?}");
    }
}

/// Has four messages of NATS JetStream, and acknowledges three: the second first, after it has said
/// that it is still at work on the first, and the last two in one write.
const OUT_OF_ORDER: &str = "
import socket, sys, time
broker = socket.create_connection(('127.0.0.1', int(sys.argv[1])))
print('ready', flush=True)
sys.stdin.readline()
broker.sendall(b'SUB a 1\\r\\nPUB $JS.API.CONSUMER.MSG.NEXT.J.w a 2\\r\\n{}\\r\\n')
got = b''
while not got.endswith(b'last\\r\\n'):
    got += broker.recv(32768)
time.sleep(0.02)
broker.sendall(b'PUB $JS.ACK.J.w.1.2.2.12.0 4\\r\\n+ACK\\r\\n')
time.sleep(0.02)
broker.sendall(b'PUB $JS.ACK.J.w.1.1.1.11.0 4\\r\\n+WPI\\r\\n')
time.sleep(0.02)
broker.sendall(b'PUB $JS.ACK.J.w.1.3.3.13.0 0\\r\\n\\r\\n'
               b'PUB $JS.ACK.J.w.1.1.1.11.0 b 4\\r\\n+ACK\\r\\n')
print('asked', flush=True)
sys.stdin.readline()
";

/// Sends them as a stream of bytes may come: a line and a payload are cut in two.
fn sends_messages(mut stream: TcpStream) {
    let pieces = [
        "MSG x 1 $JS.ACK.J.w.1.1.1.11.0 5\r\nMSG \n\r\n\
         MSG x 1 $JS.ACK.J.w.1.2.2.12.0 0\r\n\r\nMSG x 1 $JS.ACK.J.w.1.3",
        ".3.13.0 5\r\nhe",
        "llo\r\nHMSG x 1 $JS.ACK.J.w.1.4.4.14.0 12 16\r\nNATS/1.0\r\n\r\nlast\r\n",
    ];
    let _ = stream.set_nodelay(true);
    let _ = stream.read(&mut [0; 100]);
    for piece in pieces {
        thread::sleep(AFTER);
        if stream.write_all(piece.as_bytes()).is_err() {
            return;
        }
    }
    while let Ok(1..) = stream.read(&mut [0; 100]) {}
}

#[test]
fn messages_with_names_are_jobs_until_they_are_acknowledged() {
    let Some(_turn) = common::together() else {
        return;
    };
    let watched = watch(OUT_OF_ORDER, "", sends_messages);
    let took: Vec<_> = watched
        .jobs
        .iter()
        .map(|row| (row.last_send_ns.unwrap_or_default() - row.ready_ns) / 1_000_000)
        .collect();
    // The one that was never acknowledged is none that is known to be over.
    assert_eq!(took.len(), 3, "{:#?}", watched.jobs);
    assert!((40..60).contains(&took[0]), "the second: {took:?}");
    assert!(
        (70..90).contains(&took[1]),
        "the third came later: {took:?}"
    );
    assert!((80..100).contains(&took[2]), "the first: {took:?}");
    assert!(watched.jobs.iter().all(|row| row.kind == WorkKind::Job));
}
