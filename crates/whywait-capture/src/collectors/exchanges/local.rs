//! Which process of this machine a peer is: who listens at its address.

use std::collections::BTreeMap;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};

use whywait_target::{all_processes, listeners, namespace, who_has};

/// A process, and its name.
pub(crate) type LocalProcess = (u32, String);

/// So often the descriptors of all processes are looked through, at most.
const MAX_LOOKS: u32 = 16;

/// The processes of local peers, as far as they were looked for.
#[derive(Default)]
pub(crate) struct LocalProcesses {
    found: BTreeMap<(IpAddr, u16), Option<LocalProcess>>,
    looks: u32,
    /// The target has whywait's network, as far as is known.
    own_network: bool,
}

impl LocalProcesses {
    /// Looks for the processes of those peers that were not looked for yet, in the network of the
    /// target.
    pub(crate) fn look_up(&mut self, peers: &[(IpAddr, u16)], target: &[u32]) {
        let alive = target.iter().find(|pid| in_proc(**pid));
        if let Some(pid) = alive {
            let own = namespace("self", "net");
            self.own_network = own.is_some() && own == namespace(pid, "net");
        }
        // When the target has ended, its network is still there if it is whywait's own.
        let of = match alive {
            Some(pid) => pid.to_string(),
            None if self.own_network => "self".to_owned(),
            None => return,
        };
        let new: Vec<(IpAddr, u16)> = peers
            .iter()
            .filter(|peer| !self.found.contains_key(peer))
            .copied()
            .collect();
        if new.is_empty() {
            return;
        }
        self.found.extend(new.iter().map(|peer| (*peer, None)));
        let mut asked: BTreeMap<u64, (IpAddr, u16)> = BTreeMap::new();
        for listens in listeners(of) {
            let is_it = |(peer, at): &&(IpAddr, u16)| {
                *at == listens.port
                    && is_local(*peer, self.own_network)
                    && accepts(listens.ip, *peer)
            };
            if let Some(peer) = new.iter().find(is_it) {
                asked.insert(listens.inode, *peer);
            }
        }
        if asked.is_empty() || self.looks >= MAX_LOOKS {
            return;
        }
        self.looks += 1;
        for (peer, tgid) in smallest(&asked) {
            let process = process(tgid);
            self.found.insert(peer, process);
        }
    }

    /// What was found.
    pub(crate) fn of(&self, ip: IpAddr, port: u16) -> Option<LocalProcess> {
        self.found.get(&(ip, port)).cloned().flatten()
    }

    /// The process of that number.
    pub(crate) fn named(&self, tgid: u32) -> Option<LocalProcess> {
        (tgid != 0).then(|| process(tgid)).flatten()
    }
}

fn in_proc(pid: u32) -> bool {
    fs::exists(format!("/proc/{pid}/net/tcp")).unwrap_or(false)
}

fn process(tgid: u32) -> Option<LocalProcess> {
    let name = fs::read(format!("/proc/{tgid}/comm")).ok()?;
    Some((tgid, String::from_utf8_lossy(&name).trim_end().to_owned()))
}

/// Whether it is an address of the machine itself.
fn is_local(ip: IpAddr, own_network: bool) -> bool {
    // Only own addresses can be bound.
    ip.is_loopback() || (own_network && UdpSocket::bind((ip, 0)).is_ok())
}

/// Whether a listener at one address takes connections to another.
fn accepts(listener: IpAddr, peer: IpAddr) -> bool {
    listener == peer
        || listener == IpAddr::V6(Ipv6Addr::UNSPECIFIED)
        || (listener == IpAddr::V4(Ipv4Addr::UNSPECIFIED) && peer.is_ipv4())
}

/// Of each peer, the process with the smallest number that has its listener open: the others are
/// its children, as a rule.
fn smallest(asked: &BTreeMap<u64, (IpAddr, u16)>) -> BTreeMap<(IpAddr, u16), u32> {
    let sockets: Vec<u64> = asked.keys().copied().collect();
    let mut found = BTreeMap::new();
    for (socket, pids) in who_has(&sockets, &all_processes()) {
        let (Some(peer), Some(pid)) = (asked.get(&socket), pids.first()) else {
            continue;
        };
        let smallest = found.entry(*peer).or_insert(*pid);
        *smallest = (*smallest).min(*pid);
    }
    found
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn the_process_that_listens_is_found() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port is free");
        let at = listener.local_addr().expect("it has an address");
        let mut processes = LocalProcesses::default();
        let elsewhere = (IpAddr::V4(Ipv4Addr::new(192, 0, 2, 7)), at.port());
        processes.look_up(&[(at.ip(), at.port()), elsewhere], &[std::process::id()]);
        let found = processes.of(at.ip(), at.port()).expect("it is this one");
        assert_eq!(found.0, std::process::id());
        assert_eq!(processes.of(elsewhere.0, elsewhere.1), None);
    }
}
