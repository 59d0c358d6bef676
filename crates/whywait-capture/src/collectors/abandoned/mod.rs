//! Requests that were answered for clients that had gone.

use whywait_events::recording::WriteError;
use whywait_events::{Abandoned, Event};

use crate::collectors::cpu::connections::address;
use crate::core::collector::{Collector, Decodes, Hook};
use crate::core::records::Record;
use crate::core::shared::Shared;
use crate::core::skel::types::{self, record_type};

pub(crate) const COLLECTOR: Collector = Collector {
    hooks: &[Hook::or(
        "tcp_receive_reset",
        "work for clients that have gone is not seen",
    )],
    takes: &[record_type::RECORD_ABANDONED],
    keeper: |_| Box::new(Decodes(take)),
    ..Collector::NONE
};

fn take(record: Record, shared: &mut Shared) -> Result<(), WriteError> {
    match record {
        Record::Abandoned(record) => abandoned(&record, shared),
        _ => Ok(()),
    }
}

fn abandoned(record: &types::abandoned_record, shared: &mut Shared) -> Result<(), WriteError> {
    shared.output.write(&Event::Abandoned(Abandoned {
        socket: record.socket,
        seq: record.seq,
        tgid: record.tgid,
        recv_tid: record.recv_tid,
        send_tid: record.send_tid,
        local_port: record.local_port,
        ready_ns: record.ready_ns,
        recv_ns: record.recv_ns,
        gone_ns: record.gone_ns,
        ended_ns: record.ended_ns,
        cpu_ns: record.cpu_ns,
        fin: record.fin != 0,
        alone: record.alone != 0,
        peer: address(record.family, record.peer),
        peer_port: u16::from_be(record.peer_port),
    }))
}
