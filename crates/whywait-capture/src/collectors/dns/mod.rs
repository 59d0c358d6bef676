//! DNS queries over UDP that were not answered in time.

use libbpf_rs::{MapCore, MapFlags};
use whywait_events::recording::WriteError;
use whywait_events::{DnsQuery, Event};

use crate::collectors::cpu::connections::address;
use crate::core::collector::Collector;
use crate::core::error::CaptureError;
use crate::core::kernel;
use crate::core::programs::Programs;
use crate::core::recorder::Recorder;
use crate::core::records::view;
use crate::core::skel::types;

/// What is asked and not answered when the recording ends may be on its way until then; as
/// `ASKED_AGAIN_NS` of `dns.bpf.h`.
const LATE_NS: u64 = 900_000_000;

pub(crate) const COLLECTOR: Collector = Collector {
    look,
    ..Collector::NONE
};

/// In the end: what was never answered, and not asked again either.
fn look(programs: &Programs, recorder: &mut Recorder) -> Result<(), CaptureError> {
    if !recorder.last_look {
        return Ok(());
    }
    let now = kernel::now_ns();
    let map = &programs.skel.maps.dns_queries;
    for key in map.keys() {
        let Ok(Some(bytes)) = map.lookup(&key, MapFlags::ANY) else {
            continue;
        };
        let Some(query) = view::<types::dns_query>(&bytes) else {
            continue;
        };
        if now.saturating_sub(query.sent_ns) < LATE_NS {
            continue;
        }
        recorder.output.write(&Event::Dns(DnsQuery {
            tgid: query.tgid,
            tid: query.tid,
            sent_ns: query.sent_ns,
            again_ns: None,
            answered_ns: None,
            asked: query.asked,
            server: address(query.family, query.server),
            server_port: u16::from_be(query.port),
            name_length: 0,
            question: 0,
        }))?;
    }
    Ok(())
}

impl Recorder {
    pub(crate) fn dns(&mut self, record: &types::dns_record) -> Result<(), WriteError> {
        let time = |ns: u64| (ns != 0).then_some(ns);
        self.output.write(&Event::Dns(DnsQuery {
            tgid: record.tgid,
            tid: record.tid,
            sent_ns: record.sent_ns,
            again_ns: time(record.again_ns),
            answered_ns: time(record.answered_ns),
            asked: record.asked,
            server: address(record.family, record.server),
            server_port: u16::from_be(record.port),
            name_length: record.name_length,
            question: record.question,
        }))
    }
}
