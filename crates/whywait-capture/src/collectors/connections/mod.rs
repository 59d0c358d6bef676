//! The connections that the target has accepted and on which its threads may sleep, when whywait
//! attaches and in the end.

use whywait_events::{Connection, Event};

use crate::collectors::cpu::connections::address;
use crate::core::collector::{Collector, Keeper};
use crate::core::error::CaptureError;
use crate::core::iterate::{self, Scope};
use crate::core::kernel;
use crate::core::programs::Programs;
use crate::core::records::{Record, decode};
use crate::core::shared::{Shared, Stage};
use crate::core::skel::types;

/// So many are recorded at each look; others are counted. A process with more threads than this is
/// not looked at for workers that are kept.
const MAX_ROWS: usize = 1000;

pub(crate) const COLLECTOR: Collector = Collector {
    keeper: |_| Box::new(ConnectionLooks::default()),
    ..Collector::NONE
};

/// The looks so far.
#[derive(Debug, Default)]
struct ConnectionLooks {
    not_recorded: u64,
}

impl Keeper for ConnectionLooks {
    fn look(&mut self, programs: &mut Programs, shared: &mut Shared) -> Result<(), CaptureError> {
        let connections = |source| CaptureError::Iterate {
            what: "connections",
            source,
        };
        if shared.stage == Stage::Lasts {
            return Ok(());
        }
        let at_ns = kernel::now_ns();
        let (mut buffer, mut rows) = (Vec::new(), 0);
        for tgid in shared.processes.all() {
            match iterate::attach(&programs.skel.progs.open_connections, Scope::Process(tgid)) {
                Ok(link) => iterate::read(&link, &mut buffer).map_err(connections)?,
                Err(_) if !whywait_target::alive(tgid) => continue,
                Err(error) => return Err(connections(error)),
            }
            let mut bytes = buffer.as_slice();
            while let Some((record, size)) = decode(bytes) {
                bytes = &bytes[size..];
                let Record::Connection(record) = record else {
                    continue;
                };
                rows += 1;
                if rows > MAX_ROWS {
                    self.not_recorded += 1;
                    continue;
                }
                let row = row(&record, at_ns);
                shared.output.write(&Event::Connection(row))?;
            }
        }
        Ok(())
    }

    fn counters(&mut self, _: &Programs) -> Vec<(String, u64)> {
        vec![("connections.over-limit".to_owned(), self.not_recorded)]
    }
}

fn row(record: &types::connection_record, at_ns: u64) -> Connection {
    Connection {
        at_ns,
        tgid: record.tgid,
        fd: record.fd,
        socket: record.socket,
        local_port: record.local_port,
        peer: address(record.family, record.peer),
        peer_port: u16::from_be(record.peer_port),
        owes_answer: match record.owes {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        },
    }
}
