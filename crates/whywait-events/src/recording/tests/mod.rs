//! Recordings, from outside: what is written is read again, and whatever else is in a folder does
//! no harm.

mod hostile;
mod round_trip;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use proptest::strategy::BoxedStrategy;
use proptest::test_runner::Config as ProptestConfig;

use super::column::Layout;
use super::made_up::MadeUp;
use super::table::{Record, Sink, Table, Tables};
use super::{Meta, Recording, RingsAndSums, Writer};
use crate::{Event, Frame, Module, PeerSums, each_table};

/// A folder for a test, removed with it.
fn scratch() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let path = folder.path().join("rec");
    (folder, path)
}

fn meta() -> Meta {
    Meta {
        schema: 1,
        whywait: "0.1.0".to_owned(),
        command: vec!["server".to_owned()],
        ..Meta::default()
    }
}

/// Writes a finished recording.
fn record(dir: &Path, events: &[Event]) {
    let mut writer = Writer::create(dir, &meta()).expect("a recording can be created");
    for event in events {
        writer.write(event).expect("an event can be written");
    }
    writer.counter("requests.count", 7);
    writer.finish(&meta()).expect("a recording can be finished");
}

/// Runs a property this many times.
fn cases(cases: u32) -> ProptestConfig {
    ProptestConfig {
        cases,
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

/// Any event at all.
fn event() -> BoxedStrategy<Event> {
    Event::made_up(Layout::Plain)
}

/// All rows of a table.
fn rows<T: Table>(recording: &Recording) -> Vec<T> {
    let mut rows = Vec::new();
    recording
        .read::<T>(None, &mut |row| rows.push(row.clone()))
        .expect("the table is read");
    rows
}

/// Everything that a recording gives.
#[derive(Debug, Default, PartialEq)]
struct Contents {
    /// The rows of each table, as text.
    tables: BTreeMap<&'static str, Vec<String>>,
    /// What is put together of several rows.
    rings: RingsAndSums,
    peers: BTreeMap<u32, PeerSums>,
    stacks: BTreeMap<u32, (bool, Vec<Frame>)>,
    modules: BTreeMap<u32, Module>,
    symbols: BTreeMap<(Frame, u16), (String, String, u32)>,
}

impl Contents {
    /// What a recording of these events should give.
    fn of(events: &[Event]) -> Self {
        let mut contents = Self::default();
        each_table(&mut Names(&mut contents));
        for event in events {
            let Ok(()) = event.rows(&mut contents);
            contents.assemble(event.clone());
        }
        contents
    }

    fn assemble(&mut self, event: Event) {
        match event {
            Event::Ring(row) => {
                self.rings.0.insert(row.id, row);
            }
            Event::RingSum(mut row) => {
                let key = (row.ring, row.opcode);
                // Counts never fall, so that no bucket is ever empty again.
                if let Some(before) = self.rings.1.remove(&key) {
                    for (bucket, count) in before.kernel {
                        row.kernel.entry(bucket).or_insert(count);
                    }
                    for (bucket, count) in before.unreaped {
                        row.unreaped.entry(bucket).or_insert(count);
                    }
                }
                self.rings.1.insert(key, *row);
            }
            Event::Peer(mut row) => {
                if let Some(before) = self.peers.remove(&row.id) {
                    for (bucket, count) in before.latency {
                        row.latency.entry(bucket).or_insert(count);
                    }
                }
                self.peers.insert(row.id, *row);
            }
            Event::Stack(row) => {
                self.stacks
                    .entry(row.id)
                    .or_insert((row.truncated, row.frames));
            }
            Event::Module(row) => {
                self.modules.insert(row.id, row);
            }
            Event::Symbol(row) => {
                self.symbols
                    .insert((row.frame, row.depth), (row.name, row.file, row.line));
            }
            _ => (),
        }
    }

    /// What the recording gives.
    fn read(recording: &Recording) -> Self {
        let mut contents = Self::default();
        each_table(&mut Reading {
            recording,
            contents: &mut contents,
        });
        contents.rings = recording.rings().expect("rings are read");
        contents.peers = recording.peers().expect("peers are read");
        let stacks = recording.stacks().expect("stacks are read");
        for id in stacks.ids() {
            let frames = stacks
                .frames(id)
                .expect("a stack that is listed has frames")
                .to_vec();
            for frame in stacks.named(id) {
                for name in frame.names {
                    let text = (name.name.to_string(), name.file.to_string(), name.line);
                    contents.symbols.insert((frame.frame, name.depth), text);
                }
            }
            contents
                .stacks
                .insert(id, (stacks.truncated(id).unwrap_or_default(), frames));
        }
        contents.modules = stacks
            .modules()
            .map(|module| (module.id, module.clone()))
            .collect();
        contents
    }

    fn add<T: Table>(&mut self, row: &T) {
        let text = format!("{row:?}");
        // The histograms of a ring's sums and of a peer's are rows of another table.
        let histograms = [", kernel: {", ", latency: {"];
        let end = histograms.iter().find_map(|name| text.find(name));
        let text = &text[..end.unwrap_or(text.len())];
        self.tables
            .entry(T::NAME)
            .or_default()
            .push(text.to_owned());
    }
}

impl Sink for Contents {
    type Error = std::convert::Infallible;

    fn row<T: Table>(&mut self, row: &T) -> Result<(), Self::Error> {
        self.add(row);
        Ok(())
    }
}

/// Adds each table, without rows.
struct Names<'a>(&'a mut Contents);

impl Tables for Names<'_> {
    fn table<T: Table>(&mut self) {
        self.0.tables.insert(T::NAME, Vec::new());
    }
}

/// Adds each table's rows.
struct Reading<'a> {
    recording: &'a Recording,
    contents: &'a mut Contents,
}

impl Tables for Reading<'_> {
    fn table<T: Table>(&mut self) {
        Names(self.contents).table::<T>();
        for row in rows::<T>(self.recording) {
            self.contents.add(&row);
        }
    }
}

/// Tables with a process that say of no row whose it is.
#[derive(Default)]
struct OfNobody(Vec<&'static str>);

impl Tables for OfNobody {
    fn table<T: Table>(&mut self) {
        let columns = T::FIELDS.iter().flat_map(|field| field.columns);
        let has_process = columns.into_iter().any(|column| column.name == "tgid");
        if has_process && T::default().whose().is_none() {
            self.0.push(T::NAME);
        }
    }
}

/// Else the report on one of several servers has what the others did.
#[test]
fn what_a_process_did_is_its_servers() {
    let mut found = OfNobody::default();
    each_table(&mut found);
    // The process of a peer is nobody's that is watched.
    assert_eq!(found.0, ["peers"], "these need `#[process(tgid)]`");
}
