//! Measures how fast a recording is written and read, and how large it gets:
//!
//! ```text
//! cargo run --release -p whywait-events --example bench_recording [ROWS]
//! ```

mod generator;

use std::error::Error;
use std::path::Path;
use std::time::{Duration, Instant};

use generator::Server;
use whywait_events::recording::{Meta, Recording, Writer};
use whywait_events::{Busy, Event, Request, Sample, Wait};

fn main() -> Result<(), Box<dyn Error>> {
    let rows: usize = std::env::args()
        .nth(1)
        .map_or(Ok(2_000_000), |rows| rows.parse())?;
    let mut server = Server::new(1);
    measure(
        "waits",
        (0..rows).map(|_| Event::Wait(server.wait())).collect(),
    )?;
    measure(
        "samples",
        (0..rows).map(|_| Event::Sample(server.sample())).collect(),
    )?;
    measure(
        "requests",
        (0..rows / 4)
            .map(|_| Event::Request(server.request()))
            .collect(),
    )?;
    measure(
        "busy",
        (0..rows / 4).map(|_| Event::Busy(server.busy())).collect(),
    )?;
    Ok(())
}

fn measure(table: &str, events: Vec<Event>) -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let dir = folder.path().join("rec");
    let start = Instant::now();
    let mut writer = Writer::create(&dir, &Meta::default())?;
    for event in &events {
        writer.write(event)?;
    }
    writer.finish(&Meta::default())?;
    let written = start.elapsed();

    let start = Instant::now();
    let recording = Recording::open(&dir)?;
    let (mut rows, mut check) = (0usize, 0u64);
    let mut seen = |at: u64| {
        rows += 1;
        check = check.wrapping_add(at);
    };
    match table {
        "waits" => recording.read::<Wait>(None, &mut |row| seen(row.out_ns))?,
        "samples" => recording.read::<Sample>(None, &mut |row| seen(row.at_ns))?,
        "requests" => recording.read::<Request>(None, &mut |row| seen(row.ready_ns))?,
        _ => recording.read::<Busy>(None, &mut |row| seen(row.start_ns))?,
    }
    let read = start.elapsed();
    assert_eq!(
        rows,
        events.len(),
        "rows were lost; damage: {:?}",
        recording.damaged()
    );

    // To look at the files afterwards.
    if let Some(keep) = std::env::var_os("BENCH_KEEP") {
        std::fs::rename(&dir, Path::new(&keep).join(table))?;
        return Ok(());
    }
    let bytes = bytes_of(&dir, table)?;
    println!(
        "{table:9} {rows:8} rows  write {:6.2} M/s  read {:6.2} M/s  {:5.2} bytes a row  \
         (checksum {check:x})",
        per_second(rows, written),
        per_second(rows, read),
        bytes as f64 / rows as f64,
    );
    Ok(())
}

fn per_second(rows: usize, time: Duration) -> f64 {
    rows as f64 / time.as_secs_f64() / 1e6
}

fn bytes_of(dir: &Path, table: &str) -> std::io::Result<u64> {
    let mut bytes = 0;
    for entry in std::fs::read_dir(dir)? {
        if let Ok(found) = entry?.path().join(format!("{table}.parquet")).metadata() {
            bytes += found.len();
        }
    }
    Ok(bytes)
}
