//! Sockets: when the kernel had a request's first byte, when the target read it and when it wrote
//! the response.

use std::collections::BTreeSet;
use std::os::fd::AsFd;

use libbpf_rs::{MapCore, MapFlags, ProgramInput};
use whywait_events::recording::WriteError;
use whywait_events::{Event, Part, Parts, Request, WorkKind};

use crate::collectors::cpu::connections;
use crate::core::collector::{Collector, Hook, HookFunction, Keeper};
use crate::core::counters::per_cpu_of;
use crate::core::error::CaptureError;
use crate::core::iterate::{self, Scope};
use crate::core::kernel;
use crate::core::programs::Programs;
use crate::core::records::Record;
use crate::core::shared::Shared;
use crate::core::skel::types::{self, record_type};
use crate::core::target::Target;
use crate::core::thread_table::ThreadTable;

const WITHOUT: &str =
    "requests are not seen, only threads and what they wait for (Linux 6.3 has it)";

pub(crate) const COLLECTOR: Collector = Collector {
    hooks: &[
        Hook::or("inet_sock_set_state", WITHOUT),
        Hook::or("sk_data_ready", WITHOUT).or_at(&[HookFunction::always("sock_def_readable")]),
        Hook::or("sock_recv_length", WITHOUT).or_at(&[
            HookFunction::always("inet_recvmsg"),
            HookFunction::always("inet6_recvmsg"),
            HookFunction::always("unix_stream_recvmsg"),
            HookFunction::always("unix_dgram_recvmsg"),
        ]),
        Hook::or("sock_send_length", WITHOUT).or_at(&[
            HookFunction::always("inet_sendmsg"),
            HookFunction::always("inet6_sendmsg"),
            HookFunction::always("unix_stream_sendmsg"),
            HookFunction::always("unix_dgram_sendmsg"),
            HookFunction::at_times("sock_sendpage"),
        ]),
    ],
    all_or_none: true,
    // The other way round than with threads: which end of a connection is the target's is known
    // only once its listeners are.
    before: find,
    after: followed,
    takes: &[record_type::RECORD_REQUEST],
    keeper: |_| Box::new(Sockets::default()),
    ..Collector::NONE
};

#[derive(Default)]
struct Sockets {
    /// Those that were open in the end, as the iterator over them wrote them.
    open: Vec<u8>,
}

impl Keeper for Sockets {
    fn take(&mut self, record: Record, shared: &mut Shared) -> Result<(), WriteError> {
        match record {
            Record::Request(record) => {
                shared.rows.add(&record);
                request(&record, shared)
            }
            _ => Ok(()),
        }
    }

    fn close(&mut self, programs: &mut Programs) -> Result<(), CaptureError> {
        self.open = flush(programs)?;
        Ok(())
    }

    fn finish(
        &mut self,
        _: &mut Programs,
        _: &ThreadTable,
        shared: &mut Shared,
    ) -> Result<(), CaptureError> {
        Ok(connections::write_open(&self.open, shared)?)
    }

    fn counters(&mut self, programs: &Programs) -> Vec<(String, u64)> {
        counters(programs)
    }
}

/// Takes the sockets that are there already into the target: first its listeners, then its
/// connections.
fn find(programs: &mut Programs, _: &Target) -> Result<(), CaptureError> {
    // What is read and answered is not seen then: what was read before would seem unanswered.
    if !programs.has_all(&COLLECTOR) {
        return Ok(());
    }
    if let Some(variables) = programs.variables_mut() {
        variables.began_ns = kernel::now_ns();
    }
    let found: Vec<u32> = programs.found.iter().copied().collect();
    take_in(programs, &found)?;
    let mut buffer = Vec::new();
    iterate::attach(&programs.skel.progs.queued_sockets, Scope::All)
        .and_then(|link| iterate::read(&link, &mut buffer))
        .map_err(|source| CaptureError::Iterate {
            what: "connections",
            source,
        })
}

/// Takes the sockets of processes into the target: first their listeners, then their connections.
pub(crate) fn take_in(programs: &mut Programs, tgids: &[u32]) -> Result<(), CaptureError> {
    if !programs.has_all(&COLLECTOR) {
        return Ok(());
    }
    let files = |source| CaptureError::Iterate {
        what: "files",
        source,
    };
    let mut buffer = Vec::new();
    for pass in 0..2 {
        if let Some(variables) = programs.variables_mut() {
            variables.file_pass = pass;
        }
        for &tgid in tgids {
            match iterate::attach(&programs.skel.progs.open_sockets, Scope::Process(tgid)) {
                Ok(link) => iterate::read(&link, &mut buffer).map_err(files)?,
                Err(_) if !whywait_target::alive(tgid) => {}
                Err(error) => return Err(files(error)),
            }
        }
        if pass == 0 {
            note_listeners_elsewhere(programs, tgids);
        }
    }
    Ok(())
}

/// Notes on which ports others listen where these processes are: one may accept connections for
/// them, and hand them over.
fn note_listeners_elsewhere(programs: &Programs, tgids: &[u32]) {
    let kind = [types::listens::LISTENS_ELSEWHERE.0 as u8];
    let mut networks = BTreeSet::new();
    for tgid in tgids {
        // One that ended has none.
        let network = std::fs::read_link(format!("/proc/{tgid}/ns/net"));
        if !network.is_ok_and(|network| networks.insert(network)) {
            continue;
        }
        for listener in whywait_target::listeners(tgid) {
            let port = listener.port.to_ne_bytes();
            // Where the target listens itself, or there is no more room, it is not noted.
            let ports = &programs.skel.maps.listen_ports;
            let _ = ports.update(&port, &kind, MapFlags::NO_EXIST);
        }
    }
}

fn followed(programs: &mut Programs, _: &Target) -> Result<(), CaptureError> {
    let followed = programs.has_all(&COLLECTOR);
    if let Some(variables) = programs.variables_mut() {
        variables.sockets_followed = followed;
        variables.sockets_followed_ns = kernel::now_ns();
    }
    Ok(())
}

/// Closes the books on every socket: what the iterator over them wrote.
fn flush(programs: &Programs) -> Result<Vec<u8>, CaptureError> {
    let map = programs.skel.maps.sockets.as_fd();
    let program = &programs.skel.progs.flush_sockets;
    let buffer = iterate::over_sockets(program, map, "flush_sockets")?;
    // It cannot fail but for a lack of memory; then some are not counted.
    let ended = &programs.skel.progs.count_ended_unix_sockets;
    let _ = ended.test_run(ProgramInput::default());
    let unanswered = &programs.skel.progs.count_unanswered_datagrams;
    let _ = unanswered.test_run(ProgramInput::default());
    let map = programs.skel.maps.datagram_sockets.as_fd();
    let dropped = &programs.skel.progs.count_dropped_datagrams;
    iterate::over_sockets(dropped, map, "count_dropped_datagrams")?;
    let streams = &programs.skel.progs.count_open_streams;
    let _ = streams.test_run(ProgramInput::default());
    let _ = programs
        .skel
        .progs
        .end_jobs
        .test_run(ProgramInput::default());
    Ok(buffer)
}

/// The sums over the requests that are not in the table of requests: of others, of the target's own
/// to itself, and jobs.
fn counters(programs: &Programs) -> Vec<(String, u64)> {
    let all = |whose| {
        let servers = 0..=programs.servers;
        servers.flat_map(move |server| totals(programs, server, whose))
    };
    let mut found = sums_of("", &|whose| all(whose).collect());
    for server in 1..=programs.servers {
        let name = format!("server.{server}.");
        found.extend(sums_of(&name, &|whose| totals(programs, server, whose)));
    }
    found
}

fn sums_of(
    server: &str,
    totals: &dyn Fn(types::whose) -> Vec<types::request_totals>,
) -> Vec<(String, u64)> {
    let mut found = sums(server, &totals(types::whose::WHOSE_OTHERS));
    for (whose, name) in [
        (types::whose::WHOSE_OWN, "own."),
        (types::whose::WHOSE_JOBS, "jobs."),
        (types::whose::WHOSE_HANDED_JOBS, "handed-jobs."),
    ] {
        let totals = totals(whose);
        if totals.iter().any(|totals| totals.count > 0) {
            found.extend(sums(&format!("{server}{name}"), &totals));
        }
    }
    found
}

/// What each CPU has of these requests of one server; 0: of those that are not kept apart.
pub(crate) fn totals(
    programs: &Programs,
    server: u32,
    whose: types::whose,
) -> Vec<types::request_totals> {
    let place = types::whose::WHOSE_COUNT.0 * server + whose.0;
    per_cpu_of(&programs.skel.maps.totals, place)
}

fn sums(whose: &str, cpus: &[types::request_totals]) -> Vec<(String, u64)> {
    let sum = |field: fn(&types::request_totals) -> u64| cpus.iter().map(field).sum::<u64>();
    let max_ns = cpus.iter().map(|totals| totals.max_ns).max();
    let mut found: Vec<(String, u64)> = [
        ("requests.count", sum(|t| t.count)),
        ("requests.slow", sum(|t| t.slow)),
        ("requests.total-ns", sum(|t| t.total_ns)),
        ("requests.max-ns", max_ns.unwrap_or(0)),
        ("requests.unserved-ns", sum(|t| t.unserved_ns)),
        ("requests.unserved-wakeup-ns", sum(|t| t.unserved_wakeup_ns)),
        ("requests.multiplexed", sum(|t| t.multiplexed)),
        ("requests.tails", sum(|t| t.tails)),
        ("requests.tails-ns", sum(|t| t.tails_ns)),
        ("requests.abandoned", sum(|t| t.abandoned)),
        ("requests.abandoned-ns", sum(|t| t.abandoned_ns)),
        ("requests.abandoned-cpu-ns", sum(|t| t.abandoned_cpu_ns)),
        ("requests.retransmitted", sum(|t| t.retransmitted)),
        (
            "wire.max-ns",
            cpus.iter()
                .map(|totals| totals.wire_max_ns)
                .max()
                .unwrap_or(0),
        ),
        ("connections.http2", sum(|t| t.http2_connections)),
        (
            "connections.overlapping",
            sum(|t| t.overlapping_connections),
        ),
    ]
    .map(|(name, value)| (format!("{whose}{name}"), value))
    .into();
    for part in Part::ALL {
        let of_part = cpus.iter().map(|totals| totals.service[part as usize]);
        let name = format!("{whose}requests.service.{}", part.name());
        found.push((name, of_part.sum()));
    }
    let buckets = cpus.first().map_or(0, |totals| totals.latency.len());
    for bucket in 0..buckets {
        let count: u64 = cpus.iter().map(|totals| totals.latency[bucket]).sum();
        if count > 0 {
            found.push((format!("{whose}latency.bucket.{bucket}"), count));
        }
        let from = cpus
            .iter()
            .map(|totals| u64::from(totals.wire_from[bucket]));
        let to = cpus.iter().map(|totals| u64::from(totals.wire_to[bucket]));
        for (name, count) in [("from", from.sum::<u64>()), ("to", to.sum())] {
            if count > 0 {
                found.push((format!("{whose}wire.{name}.{bucket}"), count));
            }
        }
    }
    found
}

fn request(record: &types::request_record, shared: &mut Shared) -> Result<(), WriteError> {
    let time = |ns: u64| (ns != 0).then_some(ns);
    let request = Request {
        socket: record.socket,
        seq: record.seq,
        tgid: record.tgid,
        ready_ns: record.ready_ns,
        recv_ns: time(record.recv_ns),
        first_send_ns: time(record.first_send_ns),
        last_send_ns: time(record.last_send_ns),
        recv_tid: record.recv_tid,
        send_tid: record.send_tid,
        bytes_in: record.bytes_in,
        bytes_out: record.bytes_out,
        fd: record.fd,
        epoll: shared.output.epoll(record.epoll),
        read_armed: match record.read_armed {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        },
        before_accept: record.before_accept != 0,
        local_port: record.local_port,
        unserved_wakeup_ns: record.unserved_wakeup_ns,
        service: Parts(record.service),
        taken_ns: time(record.taken_ns),
        ended_ns: time(record.ended_ns),
        gone_ns: time(record.gone_ns),
        unaccepted: record.unaccepted != 0,
        since_before: record.since_before != 0,
        multiplexed: record.multiplexed != 0,
        own: record.own != 0,
        broker: record.broker,
        handed_by: record.handed_by,
        kind: work_kind(record.kind),
        recv_task: shared.output.task(record.tgid, record.recv_task),
        send_task: shared.output.task(record.tgid, record.send_task),
    };
    shared.output.write(&Event::Request(request))
}

/// As the BPF programs name it.
pub(crate) fn work_kind(kind: u32) -> WorkKind {
    match types::work_kind(kind) {
        types::work_kind::WORK_DATAGRAM => WorkKind::Datagram,
        types::work_kind::WORK_HTTP2 => WorkKind::Http2,
        types::work_kind::WORK_JOB => WorkKind::Job,
        types::work_kind::WORK_HANDED_JOB => WorkKind::HandedJob,
        _ => WorkKind::Stream,
    }
}
