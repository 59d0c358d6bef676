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
    /// The servers that it has, if they are to be told apart.
    pub servers: Vec<TargetServer>,
    /// How it was named, and what that came to, in words; empty: by its number.
    pub named: String,
}

/// One of several servers.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TargetServer {
    /// Its processes, without those that descend from them. The first stands for all.
    pub pids: Vec<u32>,
    /// The TCP ports on which it listens.
    pub ports: Vec<u16>,
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

    /// Of each server, the processes. One that descends from those of two is the nearer one's.
    pub(crate) fn processes_of_servers(&self) -> Vec<BTreeSet<u32>> {
        let mut of_servers: Vec<BTreeSet<u32>> = self
            .servers
            .iter()
            .map(|server| whywait_target::with_descendants(&server.pids))
            .collect();
        for inner in 0..of_servers.len() {
            for outer in 0..of_servers.len() {
                let heads = &self.servers[inner].pids;
                if inner != outer && heads.iter().all(|pid| of_servers[outer].contains(pid)) {
                    let below = of_servers[inner].clone();
                    of_servers[outer].retain(|pid| !below.contains(pid));
                }
            }
        }
        of_servers
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
