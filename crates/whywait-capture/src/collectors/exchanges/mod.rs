//! Exchanges: what the target sends on connections that it made, and the replies; sums for each
//! peer, and rows of those that were slow.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};

use libbpf_rs::{MapCore, MapFlags};
use whywait_events::recording::WriteError;
use whywait_events::{Event, Exchange, PeerSums};

use crate::collectors::sockets::work_kind;
use crate::core::collector::{Collector, Keeper};
use crate::core::counters::per_cpu_of;
use crate::core::error::CaptureError;
use crate::core::programs::Programs;
use crate::core::records::{Record, view};
use crate::core::shared::Shared;
use crate::core::skel::types::{self, record_type};
use crate::core::thread_table::ThreadTable;
use local::LocalProcesses;

mod local;

/// Its programs are the hooks of sockets.
pub(crate) const COLLECTOR: Collector = Collector {
    takes: &[record_type::RECORD_EXCHANGE],
    keeper: |_| Box::new(Peers::default()),
    ..Collector::NONE
};

const UNIX: u16 = 1;

/// What is kept of peers while recording.
#[derive(Default)]
struct Peers {
    /// Each as it was written last, by its number.
    written: BTreeMap<u32, PeerSums>,
    processes: LocalProcesses,
}

/// Who a peer is.
struct Name {
    address: String,
    port: u16,
    /// Of a unix socket: the process that listens; 0: not known.
    tgid: u32,
    ip: Option<IpAddr>,
}

impl Keeper for Peers {
    fn take(&mut self, record: Record, shared: &mut Shared) -> Result<(), WriteError> {
        match record {
            Record::Exchange(record) => exchange(&record, shared),
            _ => Ok(()),
        }
    }

    fn look(&mut self, programs: &mut Programs, shared: &mut Shared) -> Result<(), CaptureError> {
        Ok(self.write(programs, shared)?)
    }

    fn finish(
        &mut self,
        programs: &mut Programs,
        _: &ThreadTable,
        shared: &mut Shared,
    ) -> Result<(), CaptureError> {
        Ok(self.write(programs, shared)?)
    }
}

impl Peers {
    /// Writes the sums of the peers that were talked to since they were written last.
    fn write(&mut self, programs: &Programs, shared: &mut Shared) -> Result<(), WriteError> {
        let names = names(programs);
        let mut changed = Vec::new();
        for (number, name) in &names {
            let sums = sums(programs, *number);
            let before = self.written.get(number);
            if before.is_some_and(|before| is_same(before, &sums)) {
                continue;
            }
            changed.push((*number, name, sums));
        }
        let target = shared.processes.all();
        let wanted: Vec<(IpAddr, u16)> = changed
            .iter()
            .filter_map(|(_, name, _)| Some((name.ip?, name.port)))
            .collect();
        self.processes.look_up(&wanted, &target);
        for (number, name, mut sums) in changed {
            let processes = &mut self.processes;
            let found = match name.ip {
                Some(ip) => processes.of(ip, name.port),
                None => processes.named(name.tgid),
            };
            sums.id = number;
            sums.address.clone_from(&name.address);
            sums.port = name.port;
            (sums.tgid, sums.process) = found.unwrap_or_default();
            shared.output.write(&Event::Peer(Box::new(sums.clone())))?;
            self.written.insert(number, sums);
        }
        Ok(())
    }
}

/// Nothing has come to them meanwhile.
fn is_same(before: &PeerSums, now: &PeerSums) -> bool {
    let of = |sums: &PeerSums| {
        let PeerSums {
            count,
            unanswered,
            total_ns,
            bytes_in,
            bytes_out,
            connections,
            failed,
            ..
        } = sums;
        [
            *count,
            *unanswered,
            *total_ns,
            *bytes_in,
            *bytes_out,
            *connections,
            *failed,
        ]
    };
    of(before) == of(now)
}

/// The peers that have sums of their own, and all others together.
fn names(programs: &Programs) -> BTreeMap<u32, Name> {
    let peers = &programs.skel.maps.peers;
    let mut names: BTreeMap<u32, Name> = peers
        .keys()
        .filter_map(|key| {
            let peer = peers.lookup(&key, MapFlags::ANY).ok()??;
            let key: types::peer_key = view(&key)?;
            let peer: types::peer = view(&peer)?;
            Some((peer.number, name(&key, &peer)))
        })
        .collect();
    if sums(programs, 0).connections > 0 {
        let all_others = Name {
            address: String::new(),
            port: 0,
            tgid: 0,
            ip: None,
        };
        names.insert(0, all_others);
    }
    names
}

fn name(key: &types::peer_key, peer: &types::peer) -> Name {
    if key.family == UNIX {
        return Name {
            address: unix_path(peer),
            port: 0,
            tgid: peer.tgid,
            ip: None,
        };
    }
    // An IPv4 peer, of a socket that takes both, too.
    let ip = Ipv6Addr::from(key.address).to_canonical();
    Name {
        address: ip.to_string(),
        port: u16::from_be(key.port),
        tgid: 0,
        ip: Some(ip),
    }
}

/// The path of a unix socket, `@` for the zero before an abstract name.
fn unix_path(peer: &types::peer) -> String {
    let path = &peer.path[..(peer.path_len as usize).min(peer.path.len())];
    match path {
        [0, name @ ..] => format!("@{}", String::from_utf8_lossy(name)),
        _ => {
            let end = path.iter().position(|byte| *byte == 0);
            String::from_utf8_lossy(&path[..end.unwrap_or(path.len())]).into_owned()
        }
    }
}

/// What all CPUs have of a peer.
fn sums(programs: &Programs, number: u32) -> PeerSums {
    let cpus: Vec<types::peer_sums> = per_cpu_of(&programs.skel.maps.peer_sums, number);
    // What one CPU takes back another may have added.
    let sum =
        |field: fn(&types::peer_sums) -> u64| cpus.iter().map(field).fold(0, u64::wrapping_add);
    let buckets = cpus.first().map_or(0, |sums| sums.latency.len());
    let latency = (0..buckets).filter_map(|bucket| {
        let of_cpus = cpus.iter().map(|sums| sums.latency[bucket]);
        let count = of_cpus.fold(0, u32::wrapping_add);
        (count > 0).then_some((bucket as u16, u64::from(count)))
    });
    let now = now(programs, number).unwrap_or_default();
    let most = |most: i32| u32::try_from(most).ok().filter(|most| *most > 0);
    PeerSums {
        count: sum(|s| s.count),
        slow: sum(|s| s.slow),
        unanswered: sum(|s| s.unanswered),
        total_ns: sum(|s| s.total_ns),
        max_ns: cpus.iter().map(|s| s.max_ns).max().unwrap_or(0),
        sending_ns: sum(|s| s.sending_ns),
        first_ns: sum(|s| s.first_ns),
        unread_ns: sum(|s| s.unread_ns),
        bytes_out: sum(|s| s.bytes_out),
        bytes_in: sum(|s| s.bytes_in),
        connections: sum(|s| s.connections),
        connects: sum(|s| s.connects),
        connect_ns: sum(|s| s.connect_ns),
        failed: sum(|s| s.failed),
        retried: sum(|s| s.retried),
        retried_ns: sum(|s| s.retried_ns),
        rtt_min_us: sum(|s| s.rtt_min_us),
        retransmits: sum(|s| s.retransmits),
        most_in_flight: most(now.most_in_flight),
        most_open: most(now.most_open),
        latency: latency.collect(),
        ..PeerSums::default()
    }
}

fn now(programs: &Programs, number: u32) -> Option<types::peer_now> {
    let map = &programs.skel.maps.peers_now;
    let value = map.lookup(&number.to_ne_bytes(), MapFlags::ANY).ok()??;
    view(&value)
}

fn exchange(record: &types::exchange_record, shared: &mut Shared) -> Result<(), WriteError> {
    let time = |ns: u64| (ns != 0).then_some(ns);
    let task = shared.output.task(record.tgid, record.task);
    shared.output.write(&Event::Exchange(Exchange {
        socket: record.socket,
        seq: record.seq,
        tgid: record.tgid,
        task,
        fd: record.fd,
        peer: record.peer,
        first_send_ns: record.first_send_ns,
        last_send_ns: record.last_send_ns,
        arrived_ns: time(record.arrived_ns),
        first_read_ns: time(record.first_read_ns),
        last_read_ns: time(record.last_read_ns),
        gone_ns: time(record.gone_ns),
        connect_ns: time(record.connect_ns),
        connected_ns: time(record.connected_ns),
        send_tid: record.send_tid,
        read_tid: record.read_tid,
        bytes_out: record.bytes_out,
        bytes_in: record.bytes_in,
        srtt_us: record.srtt_us,
        rtt_min_us: record.rtt_min_us,
        retransmits: record.retransmits,
        kind: work_kind(record.kind),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(path: &[u8]) -> types::peer {
        let mut peer = types::peer {
            path_len: path.len() as u32,
            ..types::peer::default()
        };
        peer.path[..path.len()].copy_from_slice(path);
        peer
    }

    #[test]
    fn peers_have_their_addresses() {
        let mut key = types::peer_key {
            family: 2,
            port: 5432u16.to_be(),
            address: std::net::Ipv4Addr::new(192, 0, 2, 7)
                .to_ipv6_mapped()
                .octets(),
            ..types::peer_key::default()
        };
        let none = types::peer::default();
        assert_eq!(name(&key, &none).address, "192.0.2.7");
        assert_eq!(name(&key, &none).port, 5432);
        key.address = "2001:db8::1".parse::<Ipv6Addr>().expect("one").octets();
        assert_eq!(name(&key, &none).address, "2001:db8::1");
        key.family = UNIX;
        assert_eq!(name(&key, &peer(b"/run/db\0")).address, "/run/db");
        assert_eq!(name(&key, &peer(b"\0name")).address, "@name");
        let mut beyond = peer(b"/x");
        beyond.path_len = u32::MAX;
        assert_eq!(name(&key, &beyond).address, "/x");
    }
}
