//! What is watched.

use std::collections::BTreeSet;
use std::path::PathBuf;

/// What is watched: processes, and what descends from them; and what is in cgroups.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Target {
    /// The process that stands for all, in reports.
    pub head: u32,
    /// Processes. What descends from them belongs to the target, now and later.
    pub pids: Vec<u32>,
    /// Cgroups, as folders. What is in them and in those below them belongs to the target, now and
    /// later.
    pub cgroups: Vec<PathBuf>,
    /// How it was named, and what that came to, in words; empty: by its number.
    pub named: String,
}

impl From<u32> for Target {
    fn from(pid: u32) -> Self {
        Self {
            head: pid,
            pids: vec![pid],
            ..Self::default()
        }
    }
}

impl Target {
    /// All processes that it has now.
    pub(crate) fn processes(&self) -> BTreeSet<u32> {
        let mut found = whywait_target::with_descendants(&self.pids);
        found.extend(self.in_cgroups());
        found
    }

    /// Those that it has by a cgroup.
    pub(crate) fn in_cgroups(&self) -> BTreeSet<u32> {
        let each = self.cgroups.iter();
        each.flat_map(|cgroup| whywait_target::processes_in(cgroup))
            .collect()
    }

    /// Whether any of it lives.
    pub fn lives(&self) -> bool {
        self.pids.iter().copied().any(whywait_target::alive) || self.lives_in_cgroups()
    }

    /// Whether any of it lives that belongs to it by a cgroup.
    pub fn lives_in_cgroups(&self) -> bool {
        self.in_cgroups().into_iter().any(whywait_target::alive)
    }
}
