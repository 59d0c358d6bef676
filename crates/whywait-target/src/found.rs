//! What was found.

use std::path::PathBuf;

use whywait_words::list;

use crate::processes;

/// The processes that are meant.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FoundServers {
    /// Servers that have nothing to do with each other, as far as is known.
    pub servers: Vec<Server>,
    /// What the names came to, in one line each.
    pub said: Vec<String>,
}

/// A process or several that do one thing.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Server {
    /// The processes; what descends from them belongs to them. The one that stands for all is the
    /// first.
    pub pids: Vec<u32>,
    /// Cgroups, as folders. What is in them belongs to it, now and later.
    pub cgroups: Vec<PathBuf>,
    /// The TCP ports on which it listens, where that was asked.
    pub ports: Vec<u16>,
}

impl FoundServers {
    /// The processes, each once.
    pub fn pids(&self) -> Vec<u32> {
        let mut found = Vec::new();
        for pid in self.servers.iter().flat_map(|server| &server.pids) {
            if !found.contains(pid) {
                found.push(*pid);
            }
        }
        found
    }

    /// The cgroups, each once.
    pub fn cgroups(&self) -> Vec<PathBuf> {
        let mut found = Vec::new();
        for cgroup in self.servers.iter().flat_map(|server| &server.cgroups) {
            if !found.contains(cgroup) {
                found.push(cgroup.clone());
            }
        }
        found
    }
}

/// `nginx (pid 12) and nginx (pid 13)`, with how many descend from them.
pub(crate) fn shown(pids: &[u32]) -> String {
    let names: Vec<String> = pids.iter().map(|pid| processes::shown(*pid)).collect();
    let below = processes::with_descendants(pids)
        .len()
        .saturating_sub(pids.len());
    match below {
        0 => list(&names),
        1 => format!("{}, with its child process", list(&names)),
        _ => format!("{}, with {below} child processes", list(&names)),
    }
}
