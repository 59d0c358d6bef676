//! Programs that need no load: they do their work, and leave the ground truth in a folder. Some
//! work with a slow device, which is here, outside of what is watched.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use lexopt::prelude::*;
use rustix::time::{ClockId, clock_gettime};
use serde_json::Value as Json;

use crate::promise::{self, Outcome, Rule, print_ground_truth};

/// A program's work takes some three seconds.
const PATIENCE: Duration = Duration::from_secs(40);
const LOOK_AGAIN: Duration = Duration::from_millis(20);

pub(crate) fn run(mut parser: lexopt::Parser) -> Result<Outcome> {
    let mut folder: Option<PathBuf> = None;
    let mut delay = None;
    let mut read_kib = None;
    let mut rules = Vec::new();
    while let Some(arg) = parser.next()? {
        match arg {
            Value(value) if folder.is_none() => folder = Some(value.into()),
            Long("device-ms") => delay = Some(Duration::from_millis(parser.value()?.parse()?)),
            Long("reader-kib-per-ms") => read_kib = Some(parser.value()?.parse()?),
            Long("expect") => rules.push(Rule::parse(&parser.value()?.string()?)?),
            _ => return Err(arg.unexpected().into()),
        }
    }
    let folder = folder.context("no folder given")?;
    if let Some(delay) = delay {
        let listener = UnixListener::bind(folder.join("device.sock"))?;
        thread::spawn(move || open_device(&listener, delay));
    }
    if let Some(kib) = read_kib {
        let listener = UnixListener::bind(folder.join("reader.sock"))?;
        thread::spawn(move || open_reader(&listener, kib));
    }
    let begun = Instant::now();
    let truth: Json = loop {
        let text = std::fs::read_to_string(folder.join("truth.json")).unwrap_or_default();
        if let Some(line) = text.strip_suffix('\n') {
            break serde_json::from_str(line)
                .with_context(|| format!("the truth is not JSON: {line:?}"))?;
        }
        ensure!(begun.elapsed() < PATIENCE, "the program tells no truth");
        thread::sleep(LOOK_AGAIN);
    };
    print_ground_truth(&truth);
    promise::check(&rules, &truth)
}

/// Serves each connection on its own. The programs have one request at a time on each, so that any
/// number of requests is served side by side.
fn open_device(listener: &UnixListener, delay: Duration) {
    for connection in listener.incoming().map_while(std::result::Result::ok) {
        thread::spawn(move || serve(connection, delay));
    }
}

/// Reads each connection at this pace.
fn open_reader(listener: &UnixListener, kib_per_ms: usize) {
    for connection in listener.incoming().map_while(std::result::Result::ok) {
        thread::spawn(move || read(connection, kib_per_ms));
    }
}

/// Reads so much a millisecond, in the mean. Whatever goes wrong means that the program has ended.
fn read(mut connection: UnixStream, kib_per_ms: usize) -> Result<()> {
    let mut bytes = vec![0; kib_per_ms << 10];
    let (begun, mut taken) = (Instant::now(), 0);
    loop {
        let length = connection.read(&mut bytes)?;
        ensure!(length > 0, "the program has gone");
        taken += length;
        let due = Duration::from_secs_f64(taken as f64 / (kib_per_ms << 10) as f64 / 1e3);
        thread::sleep(due.saturating_sub(begun.elapsed()));
    }
}

/// Answers each request of eight bytes after a fixed time, with the time when it does. Whatever
/// goes wrong means that the program has ended.
fn serve(mut connection: UnixStream, delay: Duration) -> Result<()> {
    let mut request = [0; 8];
    loop {
        connection.read_exact(&mut request)?;
        thread::sleep(delay);
        let now = clock_gettime(ClockId::Monotonic);
        let ns = now.tv_sec * 1_000_000_000 + now.tv_nsec;
        connection.write_all(&ns.to_ne_bytes())?;
    }
}
