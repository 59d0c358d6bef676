//! What the tests of recording share.
#![allow(dead_code, reason = "each test takes what it needs")]

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use whywait_capture::Session;

/// Whether there is nothing to test with. Says so.
pub(crate) fn skipped() -> bool {
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
