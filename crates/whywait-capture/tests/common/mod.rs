//! What the tests of recording share.
#![allow(dead_code, reason = "each test takes what it needs")]

use std::process::Child;
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
