//! Which process of this machine a peer is: who listens at its address.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::os::linux::fs::MetadataExt;

/// A process, and its name.
pub(crate) type LocalProcess = (u32, String);

/// So often the descriptors of all processes are looked through, at most.
const MAX_LOOKS: u32 = 16;
/// The state of a listening socket in /proc/net/tcp (`TCP_LISTEN`).
const LISTENS: &str = "0A";

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
            self.own_network = network("self").is_some() && network("self") == network(pid);
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
        let mut listeners: BTreeMap<u64, (IpAddr, u16)> = BTreeMap::new();
        for table in ["tcp", "tcp6"] {
            let text = fs::read_to_string(format!("/proc/{of}/net/{table}")).unwrap_or_default();
            for (ip, port, inode) in text.lines().filter_map(listener) {
                let is_it = |(peer, at): &&(IpAddr, u16)| {
                    *at == port && is_local(*peer, self.own_network) && accepts(ip, *peer)
                };
                if let Some(peer) = new.iter().find(is_it) {
                    listeners.insert(inode, *peer);
                }
            }
        }
        if listeners.is_empty() || self.looks >= MAX_LOOKS {
            return;
        }
        self.looks += 1;
        for (peer, tgid) in who_has(&listeners) {
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

/// What tells network namespaces apart.
fn network(pid: impl std::fmt::Display) -> Option<u64> {
    fs::metadata(format!("/proc/{pid}/ns/net"))
        .ok()
        .map(|namespace| namespace.st_ino())
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

/// Address, port and inode of a listener, from a line of /proc/net/tcp or tcp6.
fn listener(line: &str) -> Option<(IpAddr, u16, u64)> {
    let mut fields = line.split_ascii_whitespace().skip(1);
    let (address, port) = fields.next()?.split_once(':')?;
    if fields.nth(1)? != LISTENS {
        return None;
    }
    let inode = fields.nth(5)?.parse().ok()?;
    let ip = ip_of(address)?;
    Some((ip, u16::from_str_radix(port, 16).ok()?, inode))
}

/// An address, as these tables have it: words of 32 bits, as the machine has them.
fn ip_of(digits: &str) -> Option<IpAddr> {
    let mut bytes = Vec::new();
    for at in (0..digits.len()).step_by(8) {
        let word = u32::from_str_radix(digits.get(at..at + 8)?, 16).ok()?;
        bytes.extend(word.to_ne_bytes());
    }
    match bytes.len() {
        4 => Some(<[u8; 4]>::try_from(bytes).ok()?.into()),
        16 => {
            let ip = Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?);
            // What listens at all addresses of both kinds has IPv6's.
            Some(if ip.is_unspecified() {
                ip.into()
            } else {
                ip.to_canonical()
            })
        }
        _ => None,
    }
}

/// Of each peer, the process with the smallest number that has its listener open: the others are
/// its children, as a rule.
fn who_has(listeners: &BTreeMap<u64, (IpAddr, u16)>) -> BTreeMap<(IpAddr, u16), u32> {
    let mut found = BTreeMap::new();
    let pids: BTreeSet<u32> = fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .collect();
    for pid in pids {
        let files = fs::read_dir(format!("/proc/{pid}/fd"));
        for file in files.into_iter().flatten().flatten() {
            let Ok(link) = fs::read_link(file.path()) else {
                continue;
            };
            let inode = link.to_str().and_then(|link| {
                link.strip_prefix("socket:[")?
                    .strip_suffix(']')?
                    .parse()
                    .ok()
            });
            if let Some(peer) = inode.and_then(|inode: u64| listeners.get(&inode)) {
                found.entry(*peer).or_insert(pid);
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn lines_of_listeners_are_read() {
        let line = "   0: 0100007F:1B59 00000000:0000 0A 00000000:00000000 00:00000000 00000000 \
                    0        0 4711 1 0000000000000000 100 0 0 10 0";
        assert_eq!(
            listener(line),
            Some((IpAddr::V4(Ipv4Addr::LOCALHOST), 7001, 4711))
        );
        assert_eq!(listener(&line.replace(" 0A ", " 01 ")), None);
        assert_eq!(listener(&line.replace("0100007F", "éé00007F")), None);
        let six = line.replace("0100007F", "00000000000000000000000001000000");
        assert_eq!(
            listener(&six),
            Some((IpAddr::V6(Ipv6Addr::LOCALHOST), 7001, 4711))
        );
        let head = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt";
        assert_eq!(listener(head), None);
    }

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
