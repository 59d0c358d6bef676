//! Writes a recording of made-up events with many rows: `bench-generate ROWS DIR`. The same mix of
//! tables as the example `make_recording` has, as long as wanted; prints the rows of each table as
//! a line of JSON.

#[path = "../../../crates/whywait-events/examples/generator/mod.rs"]
mod generator;

use std::error::Error;
use std::path::Path;

use generator::Server;
use whywait_events::recording::{Host, Meta, Options, Writer};
use whywait_events::{Event, WakeContext};

/// A real recording closes a segment every two seconds; at the rate that a row budget allows, that
/// is about this much.
const ROWS_A_SEGMENT: u64 = 250_000;

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().collect();
    let [_, rows, dir] = args.as_slice() else {
        return Err("usage: bench-generate ROWS DIR".into());
    };
    let rows: u64 = rows.parse()?;
    let mut server = Server::new(7);
    let mut meta = Meta {
        whywait: env!("CARGO_PKG_VERSION").to_owned(),
        started_wall_unix_ns: 1_767_225_600_000_000_000,
        started_ns: server.now(),
        host: Host {
            hostname: "example".to_owned(),
            kernel: "6.18.0".to_owned(),
            arch: "x86_64".to_owned(),
            cpus: 2,
            memory_bytes: 8 << 30,
        },
        command: vec!["server".to_owned(), "--workers=8".to_owned()],
        pid: Some(4000),
        options: Options {
            threshold_ns: 1_000_000,
            stack_bytes: 8192,
            sample_hz: 199,
            detail: "waits".to_owned(),
        },
        ..Meta::default()
    };
    let mut writer = Writer::create(Path::new(dir), &meta)?;
    for event in server.preamble() {
        writer.write(&event)?;
    }
    let [mut waits, mut samples, mut requests, mut busy] = [0u64; 4];
    let mut rolled = 0;
    for round in 0u64.. {
        let written = waits + samples + requests + busy;
        if written >= rows {
            break;
        }
        if written / ROWS_A_SEGMENT > rolled {
            rolled = written / ROWS_A_SEGMENT;
            writer.roll()?;
        }
        let mut wait = server.wait();
        if wait.wake_context == WakeContext::Task {
            // The acceptor hands out all the work. It never sleeps here, as who wakes another
            // cannot.
            wait.waker_tid = wait.tgid;
        }
        writer.write(&Event::Wait(wait))?;
        waits += 1;
        writer.write(&Event::Sample(server.sample()))?;
        samples += 1;
        if round % 4 == 0 {
            writer.write(&Event::Request(server.request()))?;
            requests += 1;
        }
        if round % 8 == 0 {
            writer.write(&Event::Busy(server.busy()))?;
            busy += 1;
        }
    }
    meta.ended_ns = Some(server.now());
    writer.counter("requests.count", requests);
    writer.counter("requests.slow", requests);
    writer.finish(&meta)?;
    println!(
        "{{\"waits\": {waits}, \"samples\": {samples}, \"requests\": {requests}, \"busy\": {busy}}}"
    );
    Ok(())
}
