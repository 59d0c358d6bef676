//! Which processes are one server: a master and its workers, or those that share a port.
//!
//! One rule for all: a process belongs to the server of its parent when both run the same file and
//! have the same listening socket open. That is what fork(2) after listen(2) leaves, whatever the
//! server is.

use std::collections::{BTreeMap, BTreeSet};

use crate::listeners::{self, ListeningSocket};
use crate::processes;

/// The process at the top of the server that a process belongs to: its master, or itself.
pub(crate) fn top(pid: u32) -> u32 {
    let mut at = pid;
    let mut own = None;
    while let Some(parent) = processes::parent(at) {
        let same_file = processes::executable(parent)
            .is_some_and(|file| Some(file) == processes::executable(at));
        if !same_file {
            break;
        }
        let listening = own.get_or_insert_with(|| listening_sockets(pid));
        let of_parent = listeners::sockets_of(parent).unwrap_or_default();
        if !of_parent.iter().any(|socket| listening.contains(socket)) {
            break;
        }
        at = parent;
    }
    at
}

/// The sockets that a process has open and that listen.
fn listening_sockets(pid: u32) -> BTreeSet<u64> {
    let open: BTreeSet<u64> = listeners::sockets_of(pid)
        .unwrap_or_default()
        .into_iter()
        .collect();
    if open.is_empty() {
        return open;
    }
    let tcp = listeners::listeners(pid).into_iter().map(|it| it.inode);
    let unix = listeners::unix_listeners(pid).into_iter();
    tcp.chain(unix).filter(|it| open.contains(it)).collect()
}

/// Of those that have a socket open, the ones that nobody else of them has made: masters, not
/// their workers. One that only hands the socket over is left out.
///
/// A service manager listens for a service that it starts later, and keeps the socket: it is an
/// ancestor of the service, and in another cgroup. To take it in would take in all that it ever
/// started.
pub(crate) fn tops(holders: &[u32]) -> Vec<u32> {
    let above: BTreeMap<u32, Vec<u32>> = holders
        .iter()
        .map(|pid| (*pid, processes::ancestors(*pid)))
        .collect();
    let cgroup = |pid: u32| std::fs::read(format!("/proc/{pid}/cgroup")).ok();
    let hands_over = |pid: u32| {
        holders.iter().any(|other| {
            above[other].contains(&pid)
                && processes::executable(pid) != processes::executable(*other)
                && (pid == 1 || cgroup(pid) != cgroup(*other))
        })
    };
    let serve: Vec<u32> = holders
        .iter()
        .copied()
        .filter(|pid| !hands_over(*pid))
        .collect();
    let is_top = |pid: &u32| !above[pid].iter().any(|ancestor| serve.contains(ancestor));
    serve.iter().copied().filter(is_top).collect()
}

/// Sorts processes into servers: those belong together that run the same file and listen at the
/// same address, be it one socket or several (SO_REUSEPORT).
pub(crate) fn servers(pids: &[u32]) -> Vec<Vec<u32>> {
    let mut found: Vec<SameServer> = Vec::new();
    for pid in pids {
        let one = SameServer {
            pids: vec![*pid],
            file: processes::executable(*pid),
            places: places(*pid),
        };
        match found.iter_mut().find(|other| other.is_one_with(&one)) {
            Some(other) => {
                other.pids.extend(one.pids);
                other.places.extend(one.places);
            }
            None => found.push(one),
        }
    }
    found.into_iter().map(|alike| alike.pids).collect()
}

/// Processes that are one server.
struct SameServer {
    pids: Vec<u32>,
    file: Option<(u64, u64)>,
    places: BTreeSet<ServedPlace>,
}

impl SameServer {
    fn is_one_with(&self, other: &SameServer) -> bool {
        self.file.is_some() && self.file == other.file && !self.places.is_disjoint(&other.places)
    }
}

/// A network namespace, and an address in it; or a unix socket.
type ServedPlace = (u64, Option<(std::net::IpAddr, u16)>);

fn places(pid: u32) -> BTreeSet<ServedPlace> {
    let network = processes::namespace(pid, "net").unwrap_or(0);
    let sockets = listening_sockets(pid);
    let tcp = listeners::listeners(pid);
    let place = |socket: u64| match tcp.iter().find(|it| it.inode == socket) {
        Some(ListeningSocket { ip, port, .. }) => (network, Some((*ip, *port))),
        None => (socket, None),
    };
    sockets.into_iter().map(place).collect()
}

/// Whether a process has children that are of the same server.
pub(crate) fn has_workers(pid: u32) -> bool {
    let listening = listening_sockets(pid);
    let file = processes::executable(pid);
    let is_worker = |child: u32| {
        let open = listeners::sockets_of(child).unwrap_or_default();
        processes::executable(child) == file && open.iter().any(|it| listening.contains(it))
    };
    file.is_some()
        && !listening.is_empty()
        && processes::with_descendants(&[pid])
            .into_iter()
            .any(|child| child != pid && is_worker(child))
}
