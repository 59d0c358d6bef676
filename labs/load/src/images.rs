//! The browser page that asks an image server for several images at once.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use lexopt::prelude::*;
use serde_json::json;

use crate::http::Connection;
use crate::promise::{Outcome, ms, print_ground_truth};

/// Each image is two seconds of work in the server, which has four workers.
const RENDER: Duration = Duration::from_secs(2);
const WORKERS: usize = 4;
/// Far below the two seconds that a wrong schedule differs by, far above the jitter of a busy
/// machine.
const TOLERANCE: Duration = Duration::from_millis(400);
/// The new connections come this long after a worker has read the first image's request: it must
/// have gone into the work.
const SECOND_WAVE_OF_BURST: Duration = Duration::from_millis(2);
/// Between the quick request and the first image: the server's pool comes to rest, with one worker
/// in the poll and three parked. A worker still looking for work would take over the poll, and the
/// fault would not show.
const THINK_TIME: Duration = Duration::from_millis(100);
/// Every worker is in its request well before this, and none of them is done.
const SECOND_WAVE_OF_SATURATED: Duration = Duration::from_millis(500);

pub(crate) fn run(mut parser: lexopt::Parser) -> Result<Outcome> {
    let mut address = None;
    let mut plan = None;
    let mut expect = Vec::new();
    while let Some(arg) = parser.next()? {
        match arg {
            Value(value) if address.is_none() => address = Some(value.parse()?),
            Long("plan") => plan = Some(parser.value()?.string()?),
            Long("expect") => {
                let list = parser.value()?.string()?;
                expect = list
                    .split(',')
                    .map(|ms| ms.parse().map(Duration::from_millis))
                    .collect::<Result<_, _>>()
                    .with_context(|| format!("not a list of milliseconds: {list}"))?;
            }
            _ => return Err(arg.unexpected().into()),
        }
    }
    let address = address.context("no address given")?;
    match plan.as_deref() {
        Some("burst") => burst(address, &expect),
        Some("saturated") => saturated(address),
        _ => bail!("--plan is burst or saturated"),
    }
}

/// One image on a connection that is already known to the server, then four on new connections.
///
/// The order is what makes the fault: all connections opened before, or one connection with several
/// streams, and the server's pool schedules them well.
fn burst(address: SocketAddr, expect: &[Duration]) -> Result<Outcome> {
    let mut first = Connection::open(address)?;
    first.get("/quick")?;
    thread::sleep(THINK_TIME);
    let start = Instant::now();
    first.send("/image")?;
    // With the first request and a new connection both at hand the worker would wake another, and
    // the fault would not show: on a busy machine it may take a while to get to the first.
    first.wait_until_read()?;
    let second = Instant::now() + SECOND_WAVE_OF_BURST;
    let mut pending: Vec<_> = (0..4)
        .map(|_| thread::spawn(move || new_image(address, second)))
        .collect();
    pending.insert(0, thread::spawn(move || received_image(&mut first, start)));
    let images = join(pending)?;

    let latencies: Vec<Duration> = images.iter().map(|image| image.latency).collect();
    print_ground_truth(&json!({
        "latency_ms": latencies.iter().copied().map(ms).collect::<Vec<_>>(),
        "threads": threads(&images),
    }));
    let mut sorted = latencies;
    sorted.sort_unstable();
    Ok(compare(&sorted, expect))
}

/// Four images which keep every worker busy, and four more that come while they do.
fn saturated(address: SocketAddr) -> Result<Outcome> {
    let start = Instant::now();
    let wave =
        |at: Instant| (0..WORKERS).map(move |_| thread::spawn(move || new_image(address, at)));
    let pending: Vec<_> = wave(start)
        .chain(wave(start + SECOND_WAVE_OF_SATURATED))
        .collect();
    let images = join(pending)?;

    let (busy, waiting) = images.split_at(WORKERS);
    let millis = |images: &[Image]| {
        images
            .iter()
            .map(|image| ms(image.latency))
            .collect::<Vec<_>>()
    };
    print_ground_truth(&json!({
        "latency_ms": millis(&images),
        "busy_ms": millis(busy),
        "waiting_ms": millis(waiting),
        "threads": threads(busy),
    }));
    if threads(busy) != WORKERS {
        return Ok(Outcome::NotReproduced(format!(
            "only {} workers were busy",
            threads(busy)
        )));
    }
    let second = RENDER - SECOND_WAVE_OF_SATURATED + RENDER;
    let expect: Vec<_> = [RENDER; WORKERS]
        .into_iter()
        .chain([second; WORKERS])
        .collect();
    Ok(compare(
        &images.iter().map(|image| image.latency).collect::<Vec<_>>(),
        &expect,
    ))
}

struct Image {
    latency: Duration,
    /// Names the server's thread that did the work.
    thread: String,
}

fn new_image(address: SocketAddr, at: Instant) -> Result<Image> {
    thread::sleep(at.saturating_duration_since(Instant::now()));
    let start = Instant::now();
    let mut connection = Connection::open(address)?;
    connection.send("/image")?;
    received_image(&mut connection, start)
}

fn received_image(connection: &mut Connection, start: Instant) -> Result<Image> {
    let thread = connection.response()?;
    Ok(Image {
        latency: start.elapsed(),
        thread,
    })
}

fn join(pending: Vec<thread::JoinHandle<Result<Image>>>) -> Result<Vec<Image>> {
    pending
        .into_iter()
        .map(|image| {
            image
                .join()
                .map_err(|_| anyhow!("a client thread panicked"))?
        })
        .collect()
}

fn threads(images: &[Image]) -> usize {
    images
        .iter()
        .map(|image| &image.thread)
        .collect::<BTreeSet<_>>()
        .len()
}

fn compare(seen: &[Duration], expect: &[Duration]) -> Outcome {
    let kept = seen.len() == expect.len()
        && seen
            .iter()
            .zip(expect)
            .all(|(a, b)| a.abs_diff(*b) <= TOLERANCE);
    if kept {
        return Outcome::Kept;
    }
    let list = |all: &[Duration]| {
        all.iter()
            .map(|one| one.as_millis().to_string())
            .collect::<Vec<_>>()
            .join(" ")
    };
    Outcome::NotReproduced(format!(
        "latencies of {} ms, promised are {}",
        list(seen),
        list(expect)
    ))
}
