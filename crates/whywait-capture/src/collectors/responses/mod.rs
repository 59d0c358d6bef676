//! Responses that are under way when whywait attaches, when a segment is closed and in the end.

use std::cmp::Reverse;
use std::os::fd::AsFd;

use whywait_events::{Event, ResponseLook};

use crate::collectors::cpu::connections::address;
use crate::collectors::sockets;
use crate::core::collector::{Collector, Keeper};
use crate::core::error::CaptureError;
use crate::core::iterate;
use crate::core::kernel;
use crate::core::programs::Programs;
use crate::core::records::{Record, decode};
use crate::core::shared::{Shared, Stage};
use crate::core::skel::types::{self, responses_look};

/// So many are recorded at each look, the oldest; others are counted.
const MAX_ROWS: usize = 1000;

pub(crate) const COLLECTOR: Collector = Collector {
    keeper: |_| Box::new(Responses::default()),
    ..Collector::NONE
};

/// The looks so far.
#[derive(Debug, Default)]
struct Responses {
    looks: u32,
    not_recorded: u64,
}

impl Keeper for Responses {
    fn look(&mut self, programs: &mut Programs, shared: &mut Shared) -> Result<(), CaptureError> {
        // Which connections the target has is not known.
        if !programs.has_all(&sockets::COLLECTOR) {
            return Ok(());
        }
        self.looks += 1;
        let which = match shared.stage {
            _ if self.looks == 1 => responses_look::RESPONSES_FIRST,
            Stage::Ends => responses_look::RESPONSES_LAST,
            Stage::Begins | Stage::Lasts => responses_look::RESPONSES_BETWEEN,
        };
        if let Some(variables) = programs.variables_mut() {
            variables.responses_look = self.looks;
            variables.responses_which = which.0;
        }
        let at_ns = kernel::now_ns();
        let mut rows: Vec<ResponseLook> = records(programs)?
            .iter()
            .map(|record| row(record, at_ns, which == responses_look::RESPONSES_LAST))
            .collect();
        rows.sort_by_key(|row| (Reverse(row.asked_ago_ns), row.socket));
        self.not_recorded += rows.len().saturating_sub(MAX_ROWS) as u64;
        for row in rows.into_iter().take(MAX_ROWS) {
            shared.output.write(&Event::Response(row))?;
        }
        Ok(())
    }

    fn counters(&mut self, _: &Programs) -> Vec<(String, u64)> {
        vec![("responses.not-told".to_owned(), self.not_recorded)]
    }
}

/// Walks over the target's connections.
fn records(programs: &Programs) -> Result<Vec<types::response_record>, CaptureError> {
    let map = programs.skel.maps.sockets.as_fd();
    let program = &programs.skel.progs.responses_under_way;
    let buffer = iterate::over_sockets(program, map, "responses_under_way")?;
    let mut bytes = buffer.as_slice();
    let mut found = Vec::new();
    while let Some((record, size)) = decode(bytes) {
        bytes = &bytes[size..];
        if let Record::Response(record) = record {
            found.push(*record);
        }
    }
    Ok(found)
}

fn row(record: &types::response_record, at_ns: u64, last: bool) -> ResponseLook {
    ResponseLook {
        since_ns: record.since_ns.min(at_ns),
        at_ns,
        last,
        tgid: record.tgid,
        tid: record.tid,
        socket: record.socket,
        seq: record.seq,
        local_port: record.local_port,
        peer: address(record.family, record.peer),
        peer_port: u16::from_be(record.peer_port),
        acknowledged: record.acknowledged,
        unacknowledged: record.unacknowledged,
        asked_ago_ns: record.asked_ago_ns,
        sent_ago_ns: record.sent_ago_ns,
        window_ns: record.window_ns,
        buffer_ns: record.buffer_ns,
        network_ns: record.network_ns,
    }
}
