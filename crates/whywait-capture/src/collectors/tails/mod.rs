//! Ends of responses that the kernel held back.

use whywait_events::recording::WriteError;
use whywait_events::{Event, Tail};

use crate::core::recorder::Recorder;
use crate::core::skel::types;

impl Recorder {
    pub(crate) fn tail(&mut self, record: &types::tail_record) -> Result<(), WriteError> {
        self.output.write(&Event::Tail(Tail {
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
        }))
    }
}
