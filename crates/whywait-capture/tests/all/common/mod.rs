//! What the tests of recording share.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::{Duration, Instant};

use whywait_capture::Session;
use whywait_events::Request;
use whywait_events::recording::Recording;

static TURNS: RwLock<()> = RwLock::new(());

/// A test's turn to record, alongside others. None where BPF is not to be tested.
pub(crate) fn together() -> Option<RwLockReadGuard<'static, ()>> {
    (!skipped()).then(|| TURNS.read().unwrap_or_else(PoisonError::into_inner))
}

/// The same, while no other test records: for a test of times and rates, which a second program
/// on the same CPUs changes.
pub(crate) fn alone() -> Option<RwLockWriteGuard<'static, ()>> {
    (!skipped()).then(|| TURNS.write().unwrap_or_else(PoisonError::into_inner))
}

/// Whether there is nothing to test with. Says so.
fn skipped() -> bool {
    let skipped = std::env::var_os("WHYWAIT_NO_BPF").is_some();
    if skipped {
        println!("skipped: WHYWAIT_NO_BPF");
    }
    skipped
}

/// A program that ends with the test.
pub(crate) struct Running(pub(crate) Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A line that a program says.
pub(crate) fn line_of(output: &mut BufReader<ChildStdout>) -> String {
    let mut line = String::new();
    output.read_line(&mut line).expect("the server speaks");
    line.trim().to_owned()
}

/// A server in Python that says its port first, what it says after that, and the port.
pub(crate) fn server(program: &str, args: &[&str]) -> (Running, BufReader<ChildStdout>, u16) {
    let child = Command::new("/usr/bin/python3")
        .args(["-c", program])
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn();
    let mut server = Running(child.expect("Python is there"));
    let mut output = BufReader::new(server.0.stdout.take().expect("it is piped"));
    let port = line_of(&mut output).parse().expect("it says its port");
    (server, output, port)
}

/// Records until `ended` has something to say, which must be within a minute.
pub(crate) fn record_until<T>(
    session: &mut Session,
    mut ended: impl FnMut(&Session) -> Option<T>,
) -> T {
    let begun = Instant::now();
    loop {
        if let Some(said) = ended(session) {
            return said;
        }
        assert!(
            begun.elapsed() < Duration::from_secs(60),
            "the program does not come to its end"
        );
        session.turn().expect("the recording goes on");
        session.sleep();
    }
}

/// How many answered requests there were, of others and of the target's own.
pub(crate) fn answered(recording: &Path) -> (u64, u64) {
    let recording = Recording::open(recording).expect("a recording");
    let counters = recording.counters().expect("counters");
    let of = |name: &str| counters.get(name).copied().unwrap_or(0);
    let (mut others, mut own) = (of("requests.count"), of("own.requests.count"));
    let mut rows = BTreeSet::new();
    let visit = &mut |row: &Request| {
        if row.last_send_ns.is_some() && rows.insert((row.socket, row.seq)) {
            *(if row.own { &mut own } else { &mut others }) += 1;
        }
    };
    recording.read::<Request>(None, visit).expect("requests");
    // What a test that fails has to say.
    for (name, value) in counters
        .iter()
        .filter(|(name, _)| name.starts_with("lost."))
    {
        println!("{name} {value}");
    }
    (others, own)
}
