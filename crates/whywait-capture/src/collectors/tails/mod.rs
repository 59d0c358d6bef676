//! Responses that were at the peer long after they were written, or were held up before.

use whywait_events::recording::WriteError;
use whywait_events::{Event, Tail, TailReason};

use crate::collectors::cpu::connections::address;
use crate::core::collector::{Collector, Decodes, Hook};
use crate::core::records::Record;
use crate::core::shared::Shared;
use crate::core::skel::types::{self, record_type};

pub(crate) const COLLECTOR: Collector = Collector {
    hooks: &[Hook::or(
        "tcp_retransmit_skb",
        "packets that were sent again are not seen",
    )],
    takes: &[record_type::RECORD_TAIL],
    keeper: |_| Box::new(Decodes(take)),
    ..Collector::NONE
};

fn take(record: Record, shared: &mut Shared) -> Result<(), WriteError> {
    match record {
        Record::Tail(record) => tail(&record, shared),
        _ => Ok(()),
    }
}

fn tail(record: &types::tail_record, shared: &mut Shared) -> Result<(), WriteError> {
    shared.output.write(&Event::Tail(Tail {
        socket: record.socket,
        seq: record.seq,
        tgid: record.tgid,
        tid: record.tid,
        local_port: record.local_port,
        written_ns: record.written_ns,
        sent_ns: record.sent_ns,
        latency_ns: record.latency_ns,
        bytes_out: record.bytes_out,
        bytes: record.bytes,
        reason: match types::tail_reason(record.reason.into()) {
            types::tail_reason::TAIL_NAGLE => TailReason::Nagle,
            types::tail_reason::TAIL_WINDOW => TailReason::Window,
            types::tail_reason::TAIL_LOST => TailReason::Lost,
            types::tail_reason::TAIL_NETWORK => TailReason::Network,
            _ => TailReason::None,
        },
        unacknowledged: record.unacknowledged != 0,
        retransmits: record.retransmits,
        timeouts: record.timeouts,
        window_ns: record.window_ns,
        buffer_ns: record.buffer_ns,
        buffer_bytes: record.buffer_bytes,
        buffer_set: record.buffer_set != 0,
        room_bytes: record.room_bytes,
        peer: address(record.family, record.peer),
        peer_port: u16::from_be(record.peer_port),
    }))
}
