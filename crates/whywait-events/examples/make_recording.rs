//! Writes a small recording of made-up events, always the same: what `docs/recording.md` is tested
//! with.
//!
//! ```text
//! cargo run -p whywait-events --example make_recording DIR
//! ```

mod generator;

use std::error::Error;
use std::path::PathBuf;

use generator::Server;
use whywait_events::Event;
use whywait_events::recording::{Host, Meta, RecordingOptions, Writer};

const ROUNDS: u32 = 4000;

fn main() -> Result<(), Box<dyn Error>> {
    let dir = PathBuf::from(
        std::env::args_os()
            .nth(1)
            .ok_or("usage: make_recording DIR")?,
    );
    let mut meta = Meta {
        whywait: env!("CARGO_PKG_VERSION").to_owned(),
        started_wall_unix_ns: 1_767_225_600_000_000_000,
        started_ns: 5_000_000_000_000,
        host: Host {
            hostname: "example".to_owned(),
            kernel: "6.18.0".to_owned(),
            arch: "x86_64".to_owned(),
            cpus: 2,
            memory_bytes: 8 << 30,
        },
        command: vec!["server".to_owned(), "--workers=8".to_owned()],
        pid: Some(4000),
        options: RecordingOptions {
            threshold_ns: 1_000_000,
            stack_bytes: 8192,
            sample_hz: 99,
            detail: "waits".to_owned(),
        },
        ..Meta::default()
    };
    let mut server = Server::new(7);
    let mut writer = Writer::create(&dir, &meta)?;
    for event in server.preamble() {
        writer.write(&event)?;
    }
    for round in 0..ROUNDS {
        writer.write(&Event::Wait(server.wait()))?;
        writer.write(&Event::Sample(server.sample()))?;
        if round % 4 == 0 {
            writer.write(&Event::Request(server.request()))?;
        }
        if round % 8 == 0 {
            writer.write(&Event::Busy(server.busy()))?;
        }
        if round == ROUNDS / 2 {
            writer.counter("requests.count", 5_000);
            writer.roll()?;
        }
    }
    for event in server.futexes() {
        writer.write(&event)?;
    }
    meta.ended_ns = Some(server.now());
    // Most requests are fast and only counted; those above the threshold have rows too.
    for (name, value) in [
        ("requests.count", 10_000),
        ("requests.time.on-cpu", 2_400_000_000),
        ("requests.time.disk", 900_000_000),
        ("requests.time.network", 100_000_000),
        ("latency.bucket.137", 9_000),
        ("latency.bucket.160", 1_000),
        ("events.sched-switch", 120_000),
        ("lost.ring-full", 0),
    ] {
        writer.counter(name, value);
    }
    writer.finish(&meta)?;
    Ok(())
}
