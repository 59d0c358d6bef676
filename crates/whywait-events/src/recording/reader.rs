//! Reading a recording.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use tempfile::TempDir;

use super::error::{Damage, ReadError};
use super::meta::{Meta, RecordedServer};
use super::packed;
use super::stacks::{Stacks, StacksBuilder};
use super::table::{Row as _, Table, Tables, Whose};
use super::table_file::{TableReader, probe, table_path};
use super::{META, OPEN_SUFFIX, segment_name, segment_number};
use crate::uring::{Bucket, Ring, Sum};
use crate::{
    Counter, Exchange, Module, Ns, PeerBucket, PeerSums, StackRow, Symbol, ThreadChange,
    ThreadEvent, each_table,
};

/// More rings, or opcodes of rings, than any target has: a bound for forged files.
const MAX_RINGS: usize = 1 << 16;
/// More threads than a recording has: the same.
const MAX_THREADS: usize = 1 << 20;
/// What the counters of one of several servers begin with, before its number.
const SERVER: &str = "server.";

/// Rings by their id, and the sums of their operations by ring and opcode.
pub type RingsAndSums = (BTreeMap<u32, Ring>, BTreeMap<(u32, u32), Sum>);

/// A recording, opened for reading.
///
/// Rows come in the order in which they were written. What is damaged is left out, and
/// listed by [`Recording::damaged`].
///
/// A time range selects the rows that overlap with it: that begin before its end and end after its
/// start (or did not end). `None` selects all.
#[derive(Debug)]
pub struct Recording {
    dir: PathBuf,
    /// What an archive was unpacked to: removed with this.
    _unpacked: Option<TempDir>,
    meta: Meta,
    segments: Vec<u64>,
    damage: Mutex<BTreeSet<Damage>>,
    only: Option<OneServer>,
}

impl Recording {
    /// Opens a recording, which may be unfinished or still growing: closed segments are read. It is
    /// a folder, or an archive of one.
    ///
    /// # Errors
    /// When it is not a recording, or one of a newer version. A recording that is damaged opens.
    pub fn open(path: &Path) -> Result<Self, ReadError> {
        let unpacked = packed::unpack(path, packed::MAX_UNPACKED)?;
        let dir = unpacked
            .as_ref()
            .map_or(path, |unpacked| unpacked.folder.path());
        let meta = Meta::load(dir)?;
        let io = |source| ReadError::Io {
            path: dir.to_path_buf(),
            source,
        };
        let mut segments = Vec::new();
        let mut damage = BTreeSet::new();
        damage.extend(unpacked.as_ref().and_then(|found| found.damage.clone()));
        for entry in fs::read_dir(dir).map_err(io)? {
            let entry = entry.map_err(io)?;
            let name = entry.file_name();
            let Some(name) = name.to_str() else { continue };
            let is_dir = entry.file_type().is_ok_and(|kind| kind.is_dir());
            if let Some(number) = segment_number(name) {
                if is_dir {
                    segments.push(number);
                } else {
                    damage.insert(Damage {
                        what: name.to_owned(),
                        reason: "not a folder".to_owned(),
                    });
                }
            } else if name
                .strip_suffix(OPEN_SUFFIX)
                .and_then(segment_number)
                .is_some()
                && is_dir
            {
                let reason = "the segment was never closed; \
                              its rows are lost unless recording still goes on";
                damage.insert(Damage {
                    what: name.to_owned(),
                    reason: reason.to_owned(),
                });
            }
        }
        segments.sort_unstable();
        missing_segments(&segments, &meta, &mut damage);
        for number in &segments {
            each_table(&mut Probe {
                segment: &dir.join(segment_name(*number)),
                number: *number,
                damage: &mut damage,
            });
        }
        Ok(Self {
            dir: dir.to_path_buf(),
            _unpacked: unpacked.map(|unpacked| unpacked.folder),
            meta,
            segments,
            damage: Mutex::new(damage),
            only: None,
        })
    }

    /// The same, as if only this one of its servers had been recorded. What was lost may be any
    /// server's, and stays.
    ///
    /// # Errors
    /// When the whole recording went away.
    ///
    /// # Panics
    /// When there is no such server.
    pub fn of_server(mut self, number: usize) -> Result<Self, ReadError> {
        self.only = None;
        let server = self.meta.servers[number].clone();
        self.only = Some(OneServer::of(&self, number, &server)?);
        self.meta.pid = Some(server.pid);
        self.meta.inner_pid = server.inner_pid;
        self.meta.command = server.command;
        Ok(self)
    }

    /// What was recorded, where and how.
    pub fn meta(&self) -> &Meta {
        &self.meta
    }

    /// The folder that it is in, or was unpacked to.
    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    /// The numbers of the closed segments, ascending. A flight recorder's do not begin at 1.
    pub fn segments(&self) -> &[u64] {
        &self.segments
    }

    /// What could not be read, as far as known: opening sees files that are missing or cut off,
    /// reading sees the rest.
    pub fn damaged(&self) -> Vec<Damage> {
        self.damage
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .iter()
            .cloned()
            .collect()
    }

    /// Calls `visit` with each row of a table: `recording.read::<Wait>(None, &mut |wait| …)`.
    ///
    /// # Errors
    /// When the whole recording went away.
    pub fn read<T: Table>(
        &self,
        range: Option<Range<Ns>>,
        visit: &mut dyn FnMut(&T),
    ) -> Result<(), ReadError> {
        match &self.only {
            None => self.read_all(range, visit),
            Some(only) => self.read_all(range, &mut |row: &T| {
                if row.whose().is_none_or(|whose| only.has(whose)) {
                    visit(row);
                }
            }),
        }
    }

    fn read_all<T: Table>(
        &self,
        range: Option<Range<Ns>>,
        visit: &mut dyn FnMut(&T),
    ) -> Result<(), ReadError> {
        for number in &self.segments {
            let segment = self.dir.join(segment_name(*number));
            if T::LATER && !table_path::<T>(&segment).exists() {
                continue;
            }
            let read = TableReader::open::<T>(&segment)
                .and_then(|file| T::rows(&file, range.as_ref(), visit));
            match read {
                Ok(0) => (),
                Ok(strange) => {
                    let reason = format!(
                        "{strange} rows hold something that this version does not understand"
                    );
                    self.note(&file_name::<T>(*number), reason);
                }
                Err(_) if !self.dir.join(META).exists() => {
                    return Err(ReadError::NotARecording {
                        path: self.dir.clone(),
                    });
                }
                Err(reason) => self.note(&file_name::<T>(*number), reason),
            }
        }
        Ok(())
    }

    /// Each ring as it was in the end, by its id, and each of its opcodes' sums.
    ///
    /// # Errors
    /// When the whole recording went away.
    pub fn rings(&self) -> Result<RingsAndSums, ReadError> {
        let mut rings = BTreeMap::new();
        let mut sums: BTreeMap<(u32, u32), Sum> = BTreeMap::new();
        self.read::<Ring>(None, &mut |row| {
            if rings.len() < MAX_RINGS || rings.contains_key(&row.id) {
                rings.insert(row.id, row.clone());
            }
        })?;
        self.read::<Sum>(None, &mut |row| {
            let key = (row.ring, row.opcode);
            if sums.len() < MAX_RINGS || sums.contains_key(&key) {
                sums.insert(key, row.clone());
            }
        })?;
        self.read::<Bucket>(None, &mut |row| {
            if let Some(sum) = sums.get_mut(&(row.ring, row.opcode)) {
                let histogram = if row.kernel {
                    &mut sum.kernel
                } else {
                    &mut sum.unreaped
                };
                histogram.insert(row.bucket, row.count);
            }
        })?;
        Ok((rings, sums))
    }

    /// What the exchanges with each peer came to in the end, by its number.
    ///
    /// # Errors
    /// When the whole recording went away.
    pub fn peers(&self) -> Result<BTreeMap<u32, PeerSums>, ReadError> {
        let mut peers: BTreeMap<u32, PeerSums> = BTreeMap::new();
        self.read::<PeerSums>(None, &mut |row| {
            if peers.len() < MAX_RINGS || peers.contains_key(&row.id) {
                peers.insert(row.id, row.clone());
            }
        })?;
        self.read::<PeerBucket>(None, &mut |row| {
            if let Some(peer) = peers.get_mut(&row.peer) {
                peer.latency.insert(row.bucket, row.count);
            }
        })?;
        match &self.only {
            None => Ok(peers),
            Some(only) => self.peers_of(only, peers),
        }
    }

    /// The sums are of all servers. Of a peer that only one of them has rows of, they are that
    /// one's; of others a server's own are what its rows come to.
    fn peers_of(
        &self,
        only: &OneServer,
        mut peers: BTreeMap<u32, PeerSums>,
    ) -> Result<BTreeMap<u32, PeerSums>, ReadError> {
        let mut own: BTreeMap<u32, PeerSums> = BTreeMap::new();
        let mut others: BTreeSet<u32> = BTreeSet::new();
        self.read_all::<Exchange>(None, &mut |row| {
            let Some(known) = peers.get(&row.peer) else {
                return;
            };
            if row.whose().is_none_or(|whose| !only.has(whose)) {
                others.insert(row.peer);
                return;
            }
            let sums = own.entry(row.peer).or_insert_with(|| PeerSums {
                id: known.id,
                address: known.address.clone(),
                port: known.port,
                tgid: known.tgid,
                process: known.process.clone(),
                ..PeerSums::default()
            });
            if let Some(read_ns) = row.last_read_ns {
                let ns = read_ns.saturating_sub(row.first_send_ns);
                sums.count += 1;
                sums.slow += 1;
                sums.total_ns = sums.total_ns.saturating_add(ns);
                sums.max_ns = sums.max_ns.max(ns);
            }
        })?;
        for (id, sums) in &mut own {
            if !others.contains(id)
                && let Some(whole) = peers.remove(id)
            {
                *sums = whole;
            }
        }
        Ok(own)
    }

    /// All stacks with their modules and symbols, in memory.
    ///
    /// # Errors
    /// When the whole recording went away.
    pub fn stacks(&self) -> Result<Stacks, ReadError> {
        let mut builder = StacksBuilder::default();
        self.read::<StackRow>(None, &mut |row| builder.frame(row))?;
        self.read::<Module>(None, &mut |row| builder.module(row))?;
        self.read::<Symbol>(None, &mut |row| builder.symbol(row))?;
        if builder.overflowed() {
            self.note(
                "stacks",
                "there are more than fit into memory; the rest was left out".to_owned(),
            );
        }
        Ok(builder.finish())
    }

    /// The counters' last values.
    ///
    /// # Errors
    /// When the whole recording went away.
    pub fn counters(&self) -> Result<BTreeMap<String, u64>, ReadError> {
        let mut counters = BTreeMap::new();
        self.read::<Counter>(None, &mut |row| {
            // Nobody counts that many things; the bound keeps a forged file from filling the
            // memory.
            if counters.len() < 1 << 16 || counters.contains_key(&row.name) {
                counters.insert(row.name.clone(), row.value);
            }
        })?;
        Ok(match &self.only {
            None => counters,
            Some(only) => only.counters(counters),
        })
    }

    fn note(&self, what: &str, reason: String) {
        let damage = Damage {
            what: what.to_owned(),
            reason,
        };
        self.damage
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(damage);
    }
}

/// One of the servers of a recording.
#[derive(Debug)]
struct OneServer {
    /// From 1.
    number: usize,
    processes: BTreeSet<u32>,
    ports: Vec<u16>,
}

impl OneServer {
    fn of(
        recording: &Recording,
        number: usize,
        server: &RecordedServer,
    ) -> Result<Self, ReadError> {
        let mut processes: BTreeSet<u32> = server.processes.iter().copied().collect();
        let mut of_threads: BTreeMap<u32, u32> = BTreeMap::new();
        recording.read_all::<ThreadEvent>(None, &mut |row| {
            if of_threads.len() < MAX_THREADS || of_threads.contains_key(&row.tid) {
                of_threads.insert(row.tid, row.tgid);
            }
            let parent = of_threads.get(&row.parent_tid);
            let begins = row.change == ThreadChange::Fork && row.tid == row.tgid;
            if begins && parent.is_some_and(|parent| processes.contains(parent)) {
                processes.insert(row.tgid);
            }
        })?;
        Ok(Self {
            number: number + 1,
            processes,
            ports: server.ports.clone(),
        })
    }

    fn has(&self, whose: Whose) -> bool {
        match whose.process {
            0 => self.ports.contains(&whose.port),
            process => self.processes.contains(&process),
        }
    }

    /// Those that are counted for each server are this one's.
    fn counters(&self, all: BTreeMap<String, u64>) -> BTreeMap<String, u64> {
        let apart: BTreeSet<String> = all
            .keys()
            .filter_map(|name| Some(name.strip_prefix(SERVER)?.split_once('.')?.1.to_owned()))
            .collect();
        let own = format!("{SERVER}{}.", self.number);
        let mut counters: BTreeMap<String, u64> = BTreeMap::new();
        for (name, value) in all {
            if let Some(name) = name.strip_prefix(&own) {
                counters.insert(name.to_owned(), value);
            } else if !name.starts_with(SERVER) && !apart.contains(&name) {
                counters.insert(name, value);
            }
        }
        counters
    }
}

fn file_name<T: Table>(number: u64) -> String {
    format!("{}/{}.parquet", segment_name(number), T::NAME)
}

/// Notes the tables of a segment whose files are not whole, as far as shows without decoding them.
struct Probe<'a> {
    segment: &'a Path,
    number: u64,
    damage: &'a mut BTreeSet<Damage>,
}

impl Tables for Probe<'_> {
    fn table<T: Table>(&mut self) {
        let path = table_path::<T>(self.segment);
        if T::LATER && !path.exists() {
            return;
        }
        if let Err(reason) = probe(&path) {
            self.damage.insert(Damage {
                what: file_name::<T>(self.number),
                reason,
            });
        }
    }
}

/// Notes gaps between the segments, and of ends that a complete recording had.
fn missing_segments(segments: &[u64], meta: &Meta, damage: &mut BTreeSet<Damage>) {
    let mut gap = |from: u64, to: u64| {
        let what = if from == to {
            segment_name(from)
        } else {
            format!("{} to {}", segment_name(from), segment_name(to))
        };
        damage.insert(Damage {
            what,
            reason: "missing".to_owned(),
        });
    };
    let mut next = meta
        .segments
        .map(|known| known.first)
        .or(segments.first().copied())
        .unwrap_or(1);
    for number in segments {
        if *number > next {
            gap(next, *number - 1);
        }
        next = number.saturating_add(1);
    }
    if let Some(known) = meta.segments
        && known.last >= next
    {
        gap(next, known.last);
    }
}
