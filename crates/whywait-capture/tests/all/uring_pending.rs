//! Operations of io_uring that nothing ends are seen in the end, and whether their descriptors were
//! closed.
//!
//! Needs the privileges to record. With `WHYWAIT_NO_BPF=1` nothing is tested.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use whywait_capture::{Options, Session};
use whywait_events::recording::Recording;
use whywait_events::uring::Pending;

use crate::common::{self, Running};

/// When asked to, makes a ring and submits three reads: of a pipe, of a connection, and of one that
/// it closes then. Nothing will come on any.
const PROGRAM: &str = "
import ctypes, mmap, os, socket, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
print('ready', flush=True)
sys.stdin.readline()
parameters = ctypes.create_string_buffer(120)
ring = libc.syscall(425, 8, parameters)
if ring < 0:
    sys.exit('no ring: ' + os.strerror(ctypes.get_errno()))
fields = struct.unpack('30I', parameters.raw)
sq_tail, sq_mask, sq_array = fields[11], fields[12], fields[16]
queue = mmap.mmap(ring, sq_array + 4 * 8, offset=0)
entries = mmap.mmap(ring, 8 * 64, offset=0x10000000)
buffer = ctypes.create_string_buffer(64)
from_pipe, to_pipe = os.pipe()
pairs = [socket.socketpair() for _ in range(2)]
numbers = [from_pipe] + [ours.fileno() for ours, _ in pairs]
for at, number in enumerate(numbers):
    READ, ADDRESS = 22, ctypes.addressof(buffer)
    entry = struct.pack('=BBHiQQI', READ, 0, 0, number, 0, ADDRESS, 8)
    entries[64 * at:64 * at + len(entry)] = entry
    queue[sq_array + 4 * at:sq_array + 4 * at + 4] = struct.pack('I', at)
queue[sq_tail:sq_tail + 4] = struct.pack('I', len(numbers))
submitted = libc.syscall(426, ring, len(numbers), 0, 0, None, 0)
pairs[1][0].close()
print(submitted, *numbers, flush=True)
sys.stdin.readline()
";

#[test]
fn operations_that_nothing_ends_are_seen() {
    let Some(_turn) = common::together() else {
        return;
    };
    let temporary = tempfile::tempdir().expect("a temporary folder can be made");
    let child = Command::new("/usr/bin/python3")
        .args(["-c", PROGRAM])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn();
    let mut program = Running(child.expect("Python is there"));
    let mut output = BufReader::new(program.0.stdout.take().expect("it is piped"));
    let mut input = program.0.stdin.take().expect("it is piped");
    let mut line = String::new();
    output.read_line(&mut line).expect("the program speaks");

    let folder = temporary.path().join("recording");
    let pid = program.0.id();
    let mut session =
        Session::start(pid, Vec::new(), &folder, &Options::default()).expect("the session starts");
    input.write_all(b"go\n").expect("the program listens");
    line.clear();
    output.read_line(&mut line).expect("the program speaks");
    let said: Vec<i32> = line
        .split_whitespace()
        .map(|word| word.parse().expect("a number"))
        .collect();
    assert_eq!(said.len(), 4, "{line}");
    assert_eq!(said[0], 3, "all were submitted");
    for _ in 0..15 {
        session.turn().expect("it goes on");
        thread::sleep(Duration::from_millis(100));
    }
    session.finish(None).expect("the recording is finished");

    let recording = Recording::open(&folder).expect("there is a recording");
    let mut pending: Vec<Pending> = Vec::new();
    recording
        .read::<Pending>(None, &mut |row| pending.push(row.clone()))
        .expect("it can be read");
    let seen: Vec<(i32, u32, u32, bool)> = said[1..]
        .iter()
        .filter_map(|fd| pending.iter().find(|row| row.fd == *fd))
        .map(|row| (row.fd, row.kind, row.socket_type, row.closed))
        .collect();
    let (pipe, socket, stream) = (1, 12, 1);
    let wanted = [
        (said[1], pipe, 0, false),
        (said[2], socket, stream, false),
        (said[3], socket, stream, true),
    ];
    assert_eq!(seen, wanted, "{pending:#?}");
    assert_eq!(pending.len(), 3);
    for row in &pending {
        assert!(row.seen_ns - row.submit_ns >= 1_000_000_000, "{row:?}");
    }
}
