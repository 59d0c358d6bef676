//! Pushes: what a server sends unasked, to one connection after another.

use whywait_events::recording::WriteError;
use whywait_events::{Event, Push};

use crate::collectors::cpu::connections::address;
use crate::core::collector::{Collector, Decodes};
use crate::core::records::Record;
use crate::core::shared::Shared;
use crate::core::skel::types::{self, record_type};

/// Its programs are the hooks of sockets.
pub(crate) const COLLECTOR: Collector = Collector {
    takes: &[record_type::RECORD_PUSH],
    keeper: |_| Box::new(Decodes(take)),
    ..Collector::NONE
};

fn take(record: Record, shared: &mut Shared) -> Result<(), WriteError> {
    match record {
        Record::Push(record) => push(&record, shared),
        _ => Ok(()),
    }
}

fn push(record: &types::push_record, shared: &mut Shared) -> Result<(), WriteError> {
    let peer = match record.holder {
        0 => String::new(),
        _ => address(record.family, record.peer),
    };
    shared.output.write(&Event::Push(Push {
        tgid: record.tgid,
        tid: record.tid,
        local_port: record.local_port,
        first_ns: record.first_ns,
        last_ns: record.last_ns,
        connections: record.connections,
        held_ns: record.held_ns,
        after: record.after,
        holder: record.holder,
        peer,
        peer_port: u16::from_be(record.peer_port),
    }))
}
