//! Reading a recording.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use super::error::{Damage, ReadError};
use super::meta::Meta;
use super::socket_tables::SocketTable;
use super::spin_tables::{BurstTable, CallTable, CpuTable};
use super::stacks::{Stacks, StacksBuilder};
use super::table_file::{TableReader, probe, table_path};
use super::tables::{
    BusyTable, Counters, FutexTable, Modules, PreemptedTable, Requests, Samples, StackTable,
    Symbols, Table, Threads, Waits,
};
use super::uring_tables::{RingHistograms, RingLags, RingOps, RingSamples, RingSums, Rings};
use super::{META, OPEN_SUFFIX, segment_name, segment_number};
use crate::uring::{Lag, Op, Ring, RingSample, Sum};
use crate::{
    Burst, BurstCall, Busy, Cpu, FutexSum, Ns, Preempted, Request, Sample, SocketCpu, ThreadEvent,
    Wait,
};

/// More rings, or opcodes of rings, than any target has: a bound for forged files.
const MAX_RINGS: usize = 1 << 16;

/// Rings by their id, and the sums of their operations by ring and opcode.
pub type RingsAndSums = (BTreeMap<u32, Ring>, BTreeMap<(u32, u32), Sum>);

/// A recording, opened for reading.
///
/// Rows come in the order in which they were written. What is damaged is left out and told by
/// [`Recording::damaged`].
///
/// A time range selects the rows that overlap with it: that begin before its end and end after its
/// start (or did not end). `None` selects all.
#[derive(Debug)]
pub struct Recording {
    dir: PathBuf,
    meta: Meta,
    segments: Vec<u64>,
    damage: Mutex<BTreeSet<Damage>>,
}

impl Recording {
    /// Opens a recording, which may be unfinished or still growing: closed segments are read.
    ///
    /// # Errors
    /// When the folder is not a recording, or one of a newer version. A recording that is damaged
    /// opens.
    pub fn open(dir: &Path) -> Result<Self, ReadError> {
        let meta = Meta::load(dir)?;
        let io = |source| ReadError::Io {
            path: dir.to_path_buf(),
            source,
        };
        let mut segments = Vec::new();
        let mut damage = BTreeSet::new();
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
                let reason = "the segment was never closed; its rows are lost unless recording still goes on";
                damage.insert(Damage {
                    what: name.to_owned(),
                    reason: reason.to_owned(),
                });
            }
        }
        segments.sort_unstable();
        missing_segments(&segments, &meta, &mut damage);
        for number in &segments {
            let segment = dir.join(segment_name(*number));
            probe_table::<Threads>(&segment, *number, &mut damage);
            probe_table::<Waits>(&segment, *number, &mut damage);
            probe_table::<BusyTable>(&segment, *number, &mut damage);
            probe_table::<PreemptedTable>(&segment, *number, &mut damage);
            probe_table::<FutexTable>(&segment, *number, &mut damage);
            probe_table::<Requests>(&segment, *number, &mut damage);
            probe_table::<Samples>(&segment, *number, &mut damage);
            probe_table::<StackTable>(&segment, *number, &mut damage);
            probe_table::<Modules>(&segment, *number, &mut damage);
            probe_table::<Symbols>(&segment, *number, &mut damage);
            probe_table::<Rings>(&segment, *number, &mut damage);
            probe_table::<RingSums>(&segment, *number, &mut damage);
            probe_table::<RingHistograms>(&segment, *number, &mut damage);
            probe_table::<RingOps>(&segment, *number, &mut damage);
            probe_table::<RingSamples>(&segment, *number, &mut damage);
            probe_table::<RingLags>(&segment, *number, &mut damage);
            probe_table::<Counters>(&segment, *number, &mut damage);
            probe_table::<CpuTable>(&segment, *number, &mut damage);
            probe_table::<SocketTable>(&segment, *number, &mut damage);
            probe_table::<BurstTable>(&segment, *number, &mut damage);
            probe_table::<CallTable>(&segment, *number, &mut damage);
        }
        Ok(Self {
            dir: dir.to_path_buf(),
            meta,
            segments,
            damage: Mutex::new(damage),
        })
    }

    /// What was recorded, where and how.
    pub fn meta(&self) -> &Meta {
        &self.meta
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

    /// Calls `visit` with each change of a thread.
    ///
    /// # Errors
    /// When the whole recording went away.
    pub fn threads(
        &self,
        range: Option<Range<Ns>>,
        visit: &mut dyn FnMut(&ThreadEvent),
    ) -> Result<(), ReadError> {
        self.rows::<Threads>(range, &mut |row| visit(&row))
    }

    /// Calls `visit` with each wait.
    ///
    /// # Errors
    /// When the whole recording went away.
    pub fn waits(
        &self,
        range: Option<Range<Ns>>,
        visit: &mut dyn FnMut(&Wait),
    ) -> Result<(), ReadError> {
        self.rows::<Waits>(range, &mut |row| visit(&row))
    }

    /// Calls `visit` with each busy stretch.
    ///
    /// # Errors
    /// When the whole recording went away.
    pub fn busy(
        &self,
        range: Option<Range<Ns>>,
        visit: &mut dyn FnMut(&Busy),
    ) -> Result<(), ReadError> {
        self.rows::<BusyTable>(range, &mut |row| visit(&row))
    }

    /// Calls `visit` with each stretch in which a thread that had not slept was without a CPU.
    ///
    /// # Errors
    /// When the whole recording went away.
    pub fn preempted(
        &self,
        range: Option<Range<Ns>>,
        visit: &mut dyn FnMut(&Preempted),
    ) -> Result<(), ReadError> {
        self.rows::<PreemptedTable>(range, &mut |row| visit(&row))
    }

    /// Calls `visit` with the sums of short sleeps on each futex word.
    ///
    /// # Errors
    /// When the whole recording went away.
    pub fn futexes(&self, visit: &mut dyn FnMut(&FutexSum)) -> Result<(), ReadError> {
        self.rows::<FutexTable>(None, &mut |row| visit(&row))
    }

    /// Calls `visit` with each request.
    ///
    /// # Errors
    /// When the whole recording went away.
    pub fn requests(
        &self,
        range: Option<Range<Ns>>,
        visit: &mut dyn FnMut(&Request),
    ) -> Result<(), ReadError> {
        self.rows::<Requests>(range, &mut |row| visit(&row))
    }

    /// Calls `visit` with each sample.
    ///
    /// # Errors
    /// When the whole recording went away.
    pub fn samples(
        &self,
        range: Option<Range<Ns>>,
        visit: &mut dyn FnMut(&Sample),
    ) -> Result<(), ReadError> {
        self.rows::<Samples>(range, &mut |row| visit(&row))
    }

    /// Each ring as it was in the end, by its id, and each of its opcodes' sums.
    ///
    /// # Errors
    /// When the whole recording went away.
    pub fn rings(&self) -> Result<RingsAndSums, ReadError> {
        let mut rings = BTreeMap::new();
        let mut sums: BTreeMap<(u32, u32), Sum> = BTreeMap::new();
        self.rows::<Rings>(None, &mut |row| {
            if rings.len() < MAX_RINGS || rings.contains_key(&row.id) {
                rings.insert(row.id, row);
            }
        })?;
        self.rows::<RingSums>(None, &mut |row| {
            let key = (row.ring, row.opcode);
            if sums.len() < MAX_RINGS || sums.contains_key(&key) {
                sums.insert(key, row);
            }
        })?;
        self.rows::<RingHistograms>(None, &mut |row| {
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

    /// Calls `visit` with each operation of a ring that is told.
    ///
    /// # Errors
    /// When the whole recording went away.
    pub fn ring_ops(
        &self,
        range: Option<Range<Ns>>,
        visit: &mut dyn FnMut(&Op),
    ) -> Result<(), ReadError> {
        self.rows::<RingOps>(range, &mut |row| visit(&row))
    }

    /// Calls `visit` with how it stood with a ring at each sample of a thread that uses it.
    ///
    /// # Errors
    /// When the whole recording went away.
    pub fn ring_samples(
        &self,
        range: Option<Range<Ns>>,
        visit: &mut dyn FnMut(&RingSample),
    ) -> Result<(), ReadError> {
        self.rows::<RingSamples>(range, &mut |row| visit(&row))
    }

    /// Calls `visit` with what waited in rings for long.
    ///
    /// # Errors
    /// When the whole recording went away.
    pub fn ring_lags(
        &self,
        range: Option<Range<Ns>>,
        visit: &mut dyn FnMut(&Lag),
    ) -> Result<(), ReadError> {
        self.rows::<RingLags>(range, &mut |row| visit(&row))
    }

    /// Calls `visit` with what threads and ports used of the CPUs.
    ///
    /// # Errors
    /// When the whole recording went away.
    pub fn cpu(&self, visit: &mut dyn FnMut(&Cpu)) -> Result<(), ReadError> {
        self.rows::<CpuTable>(None, &mut |row| visit(&row))
    }

    /// Calls `visit` with what connections used of the CPUs.
    ///
    /// # Errors
    /// When the whole recording went away.
    pub fn sockets(&self, visit: &mut dyn FnMut(&SocketCpu)) -> Result<(), ReadError> {
        self.rows::<SocketTable>(None, &mut |row| visit(&row))
    }

    /// Calls `visit` with what each burst saw of each thread.
    ///
    /// # Errors
    /// When the whole recording went away.
    pub fn bursts(&self, visit: &mut dyn FnMut(&Burst)) -> Result<(), ReadError> {
        self.rows::<BurstTable>(None, &mut |row| visit(&row))
    }

    /// Calls `visit` with the steps of the cycles that bursts saw.
    ///
    /// # Errors
    /// When the whole recording went away.
    pub fn calls(&self, visit: &mut dyn FnMut(&BurstCall)) -> Result<(), ReadError> {
        self.rows::<CallTable>(None, &mut |row| visit(&row))
    }

    /// All stacks with their modules and symbols, in memory.
    ///
    /// # Errors
    /// When the whole recording went away.
    pub fn stacks(&self) -> Result<Stacks, ReadError> {
        let mut builder = StacksBuilder::default();
        self.rows::<StackTable>(None, &mut |row| builder.frame(&row))?;
        self.rows::<Modules>(None, &mut |row| builder.module(row))?;
        self.rows::<Symbols>(None, &mut |row| builder.symbol(row))?;
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
        self.rows::<Counters>(None, &mut |(name, value)| {
            // Nobody counts that many things; the bound keeps a forged file from filling the
            // memory.
            if counters.len() < 1 << 16 || counters.contains_key(&name) {
                counters.insert(name, value);
            }
        })?;
        Ok(counters)
    }

    fn rows<T: Table>(
        &self,
        range: Option<Range<Ns>>,
        visit: &mut dyn FnMut(T::Row),
    ) -> Result<(), ReadError> {
        for number in &self.segments {
            let segment = self.dir.join(segment_name(*number));
            if T::LATER && !table_path::<T>(&segment).exists() {
                continue;
            }
            let read = TableReader::open::<T>(&segment)
                .and_then(|file| file.rows::<T>(range.as_ref(), visit));
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

fn file_name<T: Table>(number: u64) -> String {
    format!("{}/{}.parquet", segment_name(number), T::NAME)
}

fn probe_table<T: Table>(segment: &Path, number: u64, damage: &mut BTreeSet<Damage>) {
    let path = table_path::<T>(segment);
    if T::LATER && !path.exists() {
        return;
    }
    if let Err(reason) = probe(&path) {
        damage.insert(Damage {
            what: file_name::<T>(number),
            reason,
        });
    }
}

/// Tells of gaps between the segments, and of ends that a complete recording had.
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
