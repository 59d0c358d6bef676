//! Two threads whose states want the same slot: both are followed, and the second one for as long
//! as it lives.
//!
//! Needs the privileges to record. With `WHYWAIT_NO_BPF=1` nothing is tested.

use whywait_capture::{Options, Session};
use whywait_events::recording::Recording;
use whywait_events::{ThreadChange, ThreadEvent, Wait};

use crate::common;

/// Makes a process whose id is `THREAD_SLOTS` of `threads.bpf.h` above or below its own, or a
/// multiple of that, has it sleep five times, and says its id. Where ids end at 32,768, there are
/// three of them. Who sleeps is off its CPU for less than it asks for: the timer runs already.
const PROGRAM: &str = "
import ctypes, os, sys, time
libc = ctypes.CDLL(None, use_errno=True)
print(1, flush=True)
sys.stdin.readline()
def clone(pid):
    wanted = (ctypes.c_int * 1)(pid)
    words = [0, 0, 0, 0, 17, 0, 0, 0, ctypes.addressof(wanted), 1, 0]
    return libc.syscall(435, (ctypes.c_uint64 * 11)(*words), 88)
for times in sorted(range(-400, 400), key=abs):
    child = clone(os.getpid() + 8192 * times)
    if child == 0:
        for _ in range(5):
            time.sleep(0.012)
        os._exit(0)
    if child > 0:
        break
for _ in range(5):
    time.sleep(0.012)
os.waitpid(child, 0)
print(child, flush=True)
sys.stdin.readline()
";

#[test]
fn threads_of_one_slot_are_both_followed() {
    let Some(_turn) = common::together() else {
        return;
    };
    let (mut server, mut output, _) = common::server(PROGRAM, &[]);
    let temporary = tempfile::tempdir().expect("a temporary folder can be made");
    let dir = temporary.path().join("recording");
    let parent = server.0.id();
    let mut session = Session::start(parent, vec![], &dir, &Options::default())
        .expect("the privileges to record");
    let mut input = server.0.stdin.take().expect("it is piped");
    std::io::Write::write_all(&mut input, b"\n").expect("it reads");
    let child = std::thread::spawn(move || common::line_of(&mut output));
    common::record_until(&mut session, |_| child.is_finished().then_some(()));
    let child = child.join().expect("it says a line");
    let child: u32 = child.parse().expect("a process could be made");
    session.finish(None).expect("the recording is finished");

    let recording = Recording::open(&dir).expect("a recording");
    let mut sleeps = [0; 2];
    recording
        .read::<Wait>(None, &mut |wait: &Wait| {
            let tids = [parent, child];
            if let Some(at) = tids.iter().position(|tid| *tid == wait.tid)
                && wait
                    .wake_ns
                    .is_some_and(|ns| ns - wait.out_ns >= 10_000_000)
            {
                sleeps[at] += 1;
            }
        })
        .expect("waits");
    assert!(sleeps[0] >= 5 && sleeps[1] == 5, "sleeps seen: {sleeps:?}");
    let mut ended = false;
    recording
        .read::<ThreadEvent>(None, &mut |thread: &ThreadEvent| {
            ended |= thread.tid == child && thread.change == ThreadChange::Exit;
        })
        .expect("threads");
    assert!(ended, "the end of {child} is seen");
}
