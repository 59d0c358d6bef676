//! DNS queries over UDP that were not answered in time.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::time::{Duration, Instant};

use libbpf_rs::{MapCore, MapFlags};
use whywait_events::recording::WriteError;
use whywait_events::{DnsQuery, Event};

use crate::collectors::cpu::connections::address;
use crate::core::collector::{Asking, Collector, Keeper};
use crate::core::error::CaptureError;
use crate::core::kernel;
use crate::core::programs::Programs;
use crate::core::records::{Record, view};
use crate::core::shared::{Shared, Stage};
use crate::core::skel::types::{self, record_type};

/// What is asked and not answered when the recording ends may be on its way until then; as
/// `ASKED_AGAIN_NS` of `dns.bpf.h`.
const LATE_NS: u64 = 900_000_000;

/// From one look at what is late to the next one. Resolvers give up after a second at the earliest.
const PAUSE: Duration = Duration::from_millis(50);

pub(crate) const COLLECTOR: Collector = Collector {
    takes: &[record_type::RECORD_DNS],
    keeper: |_| Box::new(Dns::default()),
    ..Collector::NONE
};

/// A query: its socket, as the map has it, and when it was sent.
type SentQuery = (Vec<u8>, u64);

struct Dns {
    next: Instant,
    /// What was late while its socket was open: somebody waits for it, or did.
    waited_for: HashSet<SentQuery>,
}

impl Default for Dns {
    fn default() -> Self {
        Self {
            next: Instant::now(),
            waited_for: HashSet::new(),
        }
    }
}

impl Keeper for Dns {
    fn take(&mut self, record: Record, shared: &mut Shared) -> Result<(), WriteError> {
        match record {
            Record::Dns(record) => dns(&record, shared),
            _ => Ok(()),
        }
    }

    fn ask(
        &mut self,
        programs: &mut Programs,
        asking: &mut Asking<'_>,
    ) -> Result<bool, CaptureError> {
        let now = Instant::now();
        if asking.last || now >= self.next {
            self.next = now + PAUSE;
            self.forget_given_up(programs);
        }
        Ok(false)
    }

    fn look(&mut self, programs: &mut Programs, shared: &mut Shared) -> Result<(), CaptureError> {
        match shared.stage {
            Stage::Ends => Ok(self.unanswered(programs, shared)?),
            _ => Ok(()),
        }
    }
}

impl Dns {
    /// Takes away what had no answer when its socket was closed, if that was before it was late:
    /// nobody waits for it.
    fn forget_given_up(&mut self, programs: &Programs) {
        let mut open: HashMap<u32, HashSet<u16>> = HashMap::new();
        let mut waited_for = HashSet::new();
        for (key, query) in late(programs) {
            let ports = open.entry(query.tgid);
            let asked = (key, query.sent_ns);
            let known = self.waited_for.contains(&asked);
            if known
                || ports
                    .or_insert_with_key(udp_ports)
                    .contains(&query.local_port)
            {
                waited_for.insert(asked);
            } else {
                // It may have been answered meanwhile.
                let _ = programs.skel.maps.dns_queries.delete(&asked.0);
            }
        }
        self.waited_for = waited_for;
    }

    /// In the end: what was never answered, and not asked again either.
    fn unanswered(&self, programs: &Programs, shared: &mut Shared) -> Result<(), WriteError> {
        for (key, query) in late(programs) {
            if !self.waited_for.contains(&(key, query.sent_ns)) {
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
}

/// What was asked so long ago that it is late, and has had no answer.
fn late(programs: &Programs) -> Vec<(Vec<u8>, types::dns_query)> {
    let now = kernel::now_ns();
    let map = &programs.skel.maps.dns_queries;
    let all = map.keys().filter_map(|key| {
        let bytes = map.lookup(&key, MapFlags::ANY).ok()??;
        Some((key, view::<types::dns_query>(&bytes)?))
    });
    all.filter(|(_, query)| now.saturating_sub(query.sent_ns) >= LATE_NS)
        .collect()
}

/// The ports of the UDP sockets that are open in the network namespace of a process.
fn udp_ports(tgid: &u32) -> HashSet<u16> {
    let read = |table: &str| fs::read_to_string(format!("/proc/{tgid}/net/{table}"));
    let tables = ["udp", "udp6"].map(|table| read(table).unwrap_or_default());
    tables.iter().flat_map(|table| ports_in(table)).collect()
}

/// The local ports in the text of /proc/PID/net/udp (proc_pid_net(5)).
fn ports_in(table: &str) -> impl Iterator<Item = u16> + '_ {
    table.lines().skip(1).filter_map(|line| {
        let (_, port) = line.split_ascii_whitespace().nth(1)?.rsplit_once(':')?;
        u16::from_str_radix(port, 16).ok()
    })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ports_are_the_local_ones() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue\n\
                     3: 0100007F:A1B2 0200007F:0035 01 00000000:00000000\n\
                     4: 00000000:14E9 00000000:0000 07\n5:\n6: x\n7: 0:zz 1:1\n";
        assert_eq!(ports_in(table).collect::<Vec<_>>(), [0xa1b2, 0x14e9]);
    }
}
