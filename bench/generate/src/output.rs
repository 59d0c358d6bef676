//! Where the events go: a recording, and how many rows each table has.

use std::path::Path;

use whywait_events::recording::{Host, Meta, RecordingOptions, WriteError, Writer};
use whywait_events::{Event, Ns};

/// A real recording closes a segment every two seconds; at the rate that a row budget allows, that
/// is about this much.
const ROWS_A_SEGMENT: u64 = 250_000;

/// A recording that is being written.
pub(crate) struct Output {
    writer: Writer,
    meta: Meta,
    rows: Rows,
    rolled: u64,
}

/// How many rows each table has.
#[derive(Default)]
struct Rows {
    waits: u64,
    samples: u64,
    requests: u64,
    busy: u64,
    exchanges: u64,
}

impl Rows {
    fn by_table(&self) -> [(&'static str, u64); 5] {
        [
            ("waits", self.waits),
            ("samples", self.samples),
            ("requests", self.requests),
            ("busy", self.busy),
            ("exchanges", self.exchanges),
        ]
    }
}

impl Output {
    pub(crate) fn create(dir: &Path, started_ns: Ns) -> Result<Self, WriteError> {
        let meta = Meta {
            whywait: env!("CARGO_PKG_VERSION").to_owned(),
            started_wall_unix_ns: 1_767_225_600_000_000_000,
            started_ns,
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
                sample_hz: 199,
                detail: "waits".to_owned(),
            },
            ..Meta::default()
        };
        Ok(Self {
            writer: Writer::create(dir, &meta)?,
            meta,
            rows: Rows::default(),
            rolled: 0,
        })
    }

    /// How many rows there are, but for those of threads, stacks and peers.
    pub(crate) fn rows(&self) -> u64 {
        self.rows.by_table().iter().map(|(_, rows)| rows).sum()
    }

    pub(crate) fn write(&mut self, event: &Event) -> Result<(), WriteError> {
        let segment = self.rows() / ROWS_A_SEGMENT;
        if segment > self.rolled {
            self.rolled = segment;
            self.writer.roll()?;
        }
        match event {
            Event::Wait(_) => self.rows.waits += 1,
            Event::Sample(_) => self.rows.samples += 1,
            Event::Request(_) => self.rows.requests += 1,
            Event::Busy(_) => self.rows.busy += 1,
            Event::Exchange(_) => self.rows.exchanges += 1,
            _ => {}
        }
        self.writer.write(event)
    }

    /// The rows of each table, as JSON.
    pub(crate) fn finish(mut self, end_ns: Ns) -> Result<String, WriteError> {
        self.meta.ended_ns = Some(end_ns);
        let requests = self.rows.requests;
        self.writer.counter("requests.count", requests);
        self.writer.counter("requests.slow", requests);
        self.writer.finish(&self.meta)?;
        let tables = self.rows.by_table();
        let tables = tables.into_iter().filter(|(_, rows)| *rows > 0);
        let each: Vec<String> = tables
            .map(|(table, rows)| format!("\"{table}\": {rows}"))
            .collect();
        Ok(format!("{{{}}}", each.join(", ")))
    }
}
