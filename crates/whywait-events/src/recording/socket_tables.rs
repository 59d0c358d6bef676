//! The table `sockets`.

use std::ops::Range;

use super::column::{AnyColumn, Int, Kind, Layout, Long, Spec, Text};
use super::tables::{Columns, Table, columns};
use crate::{Ns, SocketCpu};

columns!(SocketColumns {
    at_ns: Long Delta bounds,
    tgid: Int Dictionary,
    socket: Long Delta,
    local_port: Int Dictionary,
    peer: Text Dictionary,
    peer_port: Int Dictionary,
    requests: Long Delta,
    bytes_in: Long Delta,
    bytes_out: Long Delta,
    cpu_ns: Long Delta,
    futile_ns: Long Delta,
    user_samples: Long Delta,
    system_samples: Long Delta,
});

pub(crate) struct SocketTable;

impl Table for SocketTable {
    const NAME: &'static str = "sockets";
    const LATER: bool = true;
    const SPAN: Option<(&'static str, &'static [&'static str])> = Some(("at_ns", &[]));
    type Row = SocketCpu;
    type Columns = SocketColumns;

    fn put(columns: &mut SocketColumns, row: &SocketCpu) {
        columns.at_ns.put(row.at_ns as i64);
        columns.tgid.put(row.tgid as i32);
        columns.socket.put(row.socket as i64);
        columns.local_port.put(i32::from(row.local_port));
        columns.peer.put_text(&row.peer);
        columns.peer_port.put(i32::from(row.peer_port));
        columns.requests.put(row.requests as i64);
        columns.bytes_in.put(row.bytes_in as i64);
        columns.bytes_out.put(row.bytes_out as i64);
        columns.cpu_ns.put(row.cpu_ns as i64);
        columns.futile_ns.put(row.futile_ns as i64);
        columns.user_samples.put(row.user_samples as i64);
        columns.system_samples.put(row.system_samples as i64);
    }

    fn text_bytes(row: &SocketCpu) -> usize {
        row.peer.len()
    }

    fn take(columns: &mut SocketColumns) -> Option<SocketCpu> {
        let row = SocketCpu {
            at_ns: columns.at_ns.take() as u64,
            tgid: columns.tgid.take() as u32,
            socket: columns.socket.take() as u64,
            requests: columns.requests.take() as u64,
            bytes_in: columns.bytes_in.take() as u64,
            bytes_out: columns.bytes_out.take() as u64,
            cpu_ns: columns.cpu_ns.take() as u64,
            futile_ns: columns.futile_ns.take() as u64,
            user_samples: columns.user_samples.take() as u64,
            system_samples: columns.system_samples.take() as u64,
            ..SocketCpu::default()
        };
        let local_port = u16::try_from(columns.local_port.take());
        let peer = columns.peer.take_text(str::to_owned);
        let peer_port = u16::try_from(columns.peer_port.take());
        Some(SocketCpu {
            local_port: local_port.ok()?,
            peer: peer?,
            peer_port: peer_port.ok()?,
            ..row
        })
    }

    fn overlaps(row: &SocketCpu, range: &Range<Ns>) -> bool {
        range.contains(&row.at_ns)
    }
}
