//! DNS queries over UDP that were not answered in time.

use libbpf_rs::{MapCore, MapFlags};
use whywait_events::recording::WriteError;
use whywait_events::{DnsQuery, Event};

use crate::collectors::cpu::connections::address;
use crate::core::collector::{Collector, Keeper};
use crate::core::error::CaptureError;
use crate::core::kernel;
use crate::core::programs::Programs;
use crate::core::records::{Record, view};
use crate::core::shared::{Shared, Stage};
use crate::core::skel::types::{self, record_type};

/// What is asked and not answered when the recording ends may be on its way until then; as
/// `ASKED_AGAIN_NS` of `dns.bpf.h`.
const LATE_NS: u64 = 900_000_000;

pub(crate) const COLLECTOR: Collector = Collector {
    takes: &[record_type::RECORD_DNS],
    keeper: |_| Box::new(Dns),
    ..Collector::NONE
};

struct Dns;

impl Keeper for Dns {
    fn take(&mut self, record: Record, shared: &mut Shared) -> Result<(), WriteError> {
        match record {
            Record::Dns(record) => dns(&record, shared),
            _ => Ok(()),
        }
    }

    fn look(&mut self, programs: &mut Programs, shared: &mut Shared) -> Result<(), CaptureError> {
        match shared.stage {
            Stage::Ends => Ok(unanswered(programs, shared)?),
            _ => Ok(()),
        }
    }
}

/// In the end: what was never answered, and not asked again either.
fn unanswered(programs: &Programs, shared: &mut Shared) -> Result<(), WriteError> {
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
        shared.output.write(&Event::Dns(DnsQuery {
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

fn dns(record: &types::dns_record, shared: &mut Shared) -> Result<(), WriteError> {
    let time = |ns: u64| (ns != 0).then_some(ns);
    shared.output.write(&Event::Dns(DnsQuery {
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
