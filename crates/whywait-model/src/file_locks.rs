//! Files that the target has open and that other processes had locked, as the kernel's list of
//! locks said when somebody looked.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use whywait_events::{FileLock, Ns};

use crate::recorded::Recorded;
use crate::rows::Rows;

/// Such files.
#[derive(Debug, Clone, Default)]
pub struct FileLocks(Rows<FileLock, 100_000>);

/// A file that processes had open, and others had locked for themselves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockedFile<'a> {
    /// The path of the file. Hostile.
    pub path: &'a str,
    /// Who had it, the most often first.
    pub holders: Vec<FileLockHolder<'a>>,
    /// In how many looks somebody had it.
    pub looks: u64,
    /// When one of them had it, from the first to the last look of each time.
    pub at: Vec<(Ns, Ns)>,
    /// How many threads slept until they get the lock, at most.
    pub waiters: u32,
}

/// A process that had a file locked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileLockHolder<'a> {
    /// Its number.
    pub tgid: u32,
    /// Its name. Hostile.
    pub name: &'a str,
    /// In how many looks.
    pub looks: u64,
}

impl fmt::Display for FileLockHolder<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (pid {})", self.name, self.tgid)
    }
}

impl FileLocks {
    pub(crate) fn add(&mut self, row: &FileLock) {
        self.0.push(row.clone());
    }

    pub(crate) fn left_out(&self) -> u64 {
        self.0.left_out()
    }

    /// How often was looked.
    pub fn looks(&self, recorded: &Recorded) -> u64 {
        let looks = recorded.counters.get("file-locks.looks");
        looks.copied().unwrap_or(0)
    }

    /// Those that some of these processes had open, by path. What one had locked in all looks
    /// nobody can have tried for and got: that is left out.
    pub fn tried_by(&self, tgids: &BTreeSet<u32>, all_looks: u64) -> Vec<LockedFile<'_>> {
        // Of several processes that have a file open each has a row of the same lock.
        let mut runs: BTreeMap<(&str, u32, Ns), &FileLock> = BTreeMap::new();
        for row in self.0.iter().filter(|row| tgids.contains(&row.tgid)) {
            let run = runs
                .entry((&row.path, row.by_tgid, row.from_ns))
                .or_insert(row);
            if run.to_ns < row.to_ns {
                *run = row;
            }
        }
        let mut by_holder: BTreeMap<(&str, u32), Vec<&FileLock>> = BTreeMap::new();
        for ((path, holder, _), row) in runs {
            by_holder.entry((path, holder)).or_default().push(row);
        }
        let mut found: BTreeMap<&str, LockedFile<'_>> = BTreeMap::new();
        for ((path, tgid), rows) in by_holder {
            let looks: u64 = rows.iter().map(|row| u64::from(row.looks)).sum();
            if looks >= all_looks {
                continue;
            }
            let file = found.entry(path).or_insert_with(|| LockedFile {
                path,
                holders: Vec::new(),
                looks: 0,
                at: Vec::new(),
                waiters: 0,
            });
            let name = rows.first().map_or("", |row| row.by_name.as_str());
            file.holders.push(FileLockHolder { tgid, name, looks });
            file.looks = file.looks.saturating_add(looks).min(all_looks);
            file.at
                .extend(rows.iter().map(|row| (row.from_ns, row.to_ns)));
            let waiters = rows.iter().map(|row| row.waiters).max();
            file.waiters = file.waiters.max(waiters.unwrap_or(0));
        }
        let mut found: Vec<_> = found.into_values().collect();
        for file in &mut found {
            file.holders
                .sort_by_key(|holder| std::cmp::Reverse(holder.looks));
        }
        found
    }
}
