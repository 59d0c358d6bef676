//! What the CPU time of the target was for, by connection: from the records of `socket_cpu.bpf.h`.

use std::cmp::Reverse;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use whywait_events::recording::WriteError;
use whywait_events::{Event, SocketCpu};

use crate::core::records::{Record, decode};
use crate::core::shared::Shared;
use crate::core::skel::types;

/// The connections that are recorded when the recording ends: those that used most.
const MAX_OPEN: usize = 1000;
/// `AF_INET` and `AF_INET6`.
const INET: u16 = 2;
const INET6: u16 = 10;

/// A peer's address as text; empty for unix sockets.
pub(crate) fn address(family: u16, bytes: [u8; 16]) -> String {
    let [a, b, c, d, ..] = bytes;
    let peer = match family {
        INET => Some(IpAddr::V4(Ipv4Addr::new(a, b, c, d))),
        // An IPv4 peer of a socket that takes both.
        INET6 => Some(Ipv6Addr::from(bytes).to_canonical()),
        _ => None,
    };
    peer.map_or_else(String::new, |peer| peer.to_string())
}

/// A row of the recording.
fn row(record: &types::socket_record) -> SocketCpu {
    SocketCpu {
        at_ns: record.at_ns,
        tgid: record.tgid,
        socket: record.socket,
        local_port: record.local_port,
        peer: address(record.family, record.peer),
        peer_port: u16::from_be(record.peer_port),
        requests: u64::from(record.requests),
        bytes_in: record.bytes_in,
        bytes_out: record.bytes_out,
        cpu_ns: record.cpu_ns,
        answering_ns: record.answering_ns,
        futile_ns: record.futile_ns,
        user_samples: u64::from(record.user_samples),
        system_samples: u64::from(record.system_samples),
    }
}

/// Of the connections that were open in the end, as the iterator over sockets wrote them, those
/// that used most; and how many more there are.
pub(crate) fn write_open(mut bytes: &[u8], shared: &mut Shared) -> Result<(), WriteError> {
    let mut rows = Vec::new();
    while let Some((record, size)) = decode(bytes) {
        if let Record::Socket(record) = record {
            rows.push(row(&record));
        }
        bytes = &bytes[size..];
    }
    rows.sort_by_key(|row| (Reverse(row.cpu_ns), row.socket));
    let more = rows.len().saturating_sub(MAX_OPEN) as u64;
    rows.truncate(MAX_OPEN);
    for row in rows {
        shared.output.write(&Event::SocketCpu(row))?;
    }
    shared.output.writer.counter("sockets.not-told", more);
    Ok(())
}

/// An expensive connection has ended.
pub(super) fn write_ended(
    record: &types::socket_record,
    shared: &mut Shared,
) -> Result<(), WriteError> {
    shared.output.write(&Event::SocketCpu(row(record)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peers_have_their_addresses() {
        let mut record = types::socket_record {
            family: INET,
            peer_port: 8080u16.to_be(),
            ..types::socket_record::default()
        };
        record.peer[..4].copy_from_slice(&[192, 0, 2, 7]);
        assert_eq!(row(&record).peer, "192.0.2.7");
        assert_eq!(row(&record).peer_port, 8080);
        record.family = INET6;
        record.peer = "2001:db8::1".parse::<Ipv6Addr>().expect("one").octets();
        assert_eq!(row(&record).peer, "2001:db8::1");
        record.peer = Ipv4Addr::LOCALHOST.to_ipv6_mapped().octets();
        assert_eq!(row(&record).peer, "127.0.0.1");
        record.family = 1;
        assert_eq!(row(&record).peer, "");
    }
}
