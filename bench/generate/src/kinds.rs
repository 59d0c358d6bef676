//! What can be made up.

use whywait_events::recording::WriteError;
use whywait_events::{
    Event, Exchange, Ns, Part, PeerSums, Request, Sample, ThreadChange, ThreadEvent, Wait,
    WakeContext,
};

use crate::generator::Server;
use crate::output::Output;

/// A kind of recording.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The mix of tables of the example `make_recording`; requests of 2.3 ms on average.
    Mixed,
    /// The same with requests of 1 s on average, so that many are under way at a time.
    Long,
    /// Requests with a call each, which one process serves one after another …
    Process,
    /// … or 1,000 processes in turns.
    Processes,
    /// Requests that are all under way at the five moments of all samples.
    Moments,
}

impl Kind {
    const ALL: [(&str, Self); 5] = [
        ("mixed", Self::Mixed),
        ("long", Self::Long),
        ("process", Self::Process),
        ("processes", Self::Processes),
        ("moments", Self::Moments),
    ];

    pub(crate) fn names() -> [&'static str; 5] {
        Self::ALL.map(|(name, _)| name)
    }

    pub(crate) fn of_name(name: &str) -> Option<Self> {
        let mut all = Self::ALL.into_iter();
        all.find(|(known, _)| *known == name).map(|(_, kind)| kind)
    }

    /// Writes so many rows; gives when the last one ends.
    pub(crate) fn write(
        self,
        server: Server,
        rows: u64,
        output: &mut Output,
    ) -> Result<Ns, WriteError> {
        match self {
            Self::Mixed => mixed(server, rows, 1, output),
            Self::Long => mixed(server, rows, 1_000_000 / 2_300, output),
            Self::Process => processes(&server, rows, 1, output),
            Self::Processes => processes(&server, rows, 1_000, output),
            Self::Moments => moments(server, rows, output),
        }
    }
}

/// A server of threads that poll and take locks, with requests that take `times` as long as the
/// generator's.
fn mixed(mut server: Server, rows: u64, times: u64, output: &mut Output) -> Result<Ns, WriteError> {
    for event in server.preamble() {
        output.write(&event)?;
    }
    let mut end_ns = server.now();
    for round in 0_u64.. {
        if output.rows() >= rows {
            break;
        }
        let mut wait = server.wait();
        if wait.wake_context == WakeContext::Task {
            // The acceptor hands out all the work. It never sleeps here, as who wakes another
            // cannot.
            wait.waker_tid = wait.tgid;
        }
        output.write(&Event::Wait(wait))?;
        output.write(&Event::Sample(server.sample()))?;
        if round % 4 == 0 {
            let request = longer(server.request(), times);
            end_ns = end_ns.max(request.last_send_ns.unwrap_or(0));
            output.write(&Event::Request(request))?;
        }
        if round % 8 == 0 {
            output.write(&Event::Busy(server.busy()))?;
        }
    }
    Ok(end_ns.max(server.now()))
}

fn longer(mut request: Request, times: u64) -> Request {
    let recv_ns = request.recv_ns.unwrap_or(request.ready_ns);
    let later = |ns: Ns| recv_ns + (ns - recv_ns) * times;
    request.first_send_ns = request.first_send_ns.map(later);
    request.last_send_ns = request.last_send_ns.map(later);
    for part in Part::ALL {
        request.service[part] *= times;
    }
    request
}

const MS: Ns = 1_000_000;
const TGID: u32 = 10_000;
const RECVFROM: u32 = 45;

fn found(at_ns: Ns, tgid: u32, tid: u32) -> Event {
    Event::Thread(ThreadEvent {
        at_ns,
        tid,
        tgid,
        parent_tid: 0,
        change: ThreadChange::Found,
        comm: "worker".to_owned(),
        command: String::new(),
    })
}

/// Processes with a thread each that read a request, ask a peer, and answer: a request every 3 ms.
fn processes(
    server: &Server,
    rows: u64,
    count: u32,
    output: &mut Output,
) -> Result<Ns, WriteError> {
    const PEER: u32 = 1;
    let started_ns = server.now();
    for process in 0..count {
        output.write(&found(started_ns, TGID + process, TGID + process))?;
    }
    let requests = rows / 3;
    for n in 0..requests {
        let process = (n % u64::from(count)) as u32;
        let (tid, seq) = (TGID + process, (n / u64::from(count)) as u32 + 1);
        let ready_ns = started_ns + 3 * MS * n;
        let recv_ns = ready_ns + 10_000;
        let asked_ns = recv_ns + 50_000;
        let replied_ns = asked_ns + 3 * MS / 2;
        let answered_ns = replied_ns + 400_000;
        output.write(&Event::Wait(Wait {
            tid,
            tgid: tid,
            seq,
            out_ns: asked_ns + 10_000,
            wake_ns: Some(replied_ns),
            in_ns: Some(replied_ns + 5_000),
            syscall: Some(RECVFROM),
            args: [7, 0, 0],
            wake_context: WakeContext::Softirq,
            ..Wait::default()
        }))?;
        output.write(&Event::Exchange(Exchange {
            socket: 1_000_000 + u64::from(process),
            seq,
            tgid: tid,
            fd: 7,
            peer: PEER,
            first_send_ns: asked_ns,
            last_send_ns: asked_ns,
            arrived_ns: Some(replied_ns),
            first_read_ns: Some(replied_ns + 10_000),
            last_read_ns: Some(replied_ns + 10_000),
            send_tid: tid,
            read_tid: tid,
            bytes_out: 100,
            bytes_in: 1_000,
            ..Exchange::default()
        }))?;
        output.write(&Event::Request(Request {
            socket: 100 + u64::from(process),
            seq,
            tgid: tid,
            ready_ns,
            recv_ns: Some(recv_ns),
            first_send_ns: Some(answered_ns),
            last_send_ns: Some(answered_ns),
            recv_tid: tid,
            send_tid: tid,
            fd: 6,
            local_port: 8080,
            ..Request::default()
        }))?;
    }
    let total_ns = requests * (3 * MS / 2 + 10_000);
    output.write(&Event::Peer(Box::new(PeerSums {
        id: PEER,
        address: "10.0.0.7".to_owned(),
        port: 5432,
        count: requests,
        slow: requests,
        total_ns,
        first_ns: total_ns,
        max_ns: 3 * MS / 2 + 10_000,
        connections: u64::from(count),
        ..PeerSums::default()
    })))?;
    Ok(started_ns + 3 * MS * (requests + 1))
}

/// One request in so many rows; the others are samples.
const ROWS_A_REQUEST: u64 = 50;

/// Threads that work, and are all sampled at the same few moments.
fn moments(mut server: Server, rows: u64, output: &mut Output) -> Result<Ns, WriteError> {
    const MOMENTS: u64 = 5;
    for event in server.preamble() {
        output.write(&event)?;
    }
    let started_ns = server.now();
    let requests = rows / ROWS_A_REQUEST;
    for n in 0..requests {
        let request = server.request();
        let recv_ns = started_ns + 1_000 * n;
        let answered_ns = started_ns + 1_000 * MS + 1_000 * n;
        output.write(&Event::Request(Request {
            ready_ns: recv_ns,
            recv_ns: Some(recv_ns),
            first_send_ns: Some(answered_ns),
            last_send_ns: Some(answered_ns),
            ..request
        }))?;
    }
    for n in 0..rows - requests {
        output.write(&Event::Sample(Sample {
            at_ns: started_ns + 100 * MS * (1 + n % MOMENTS),
            ..server.sample()
        }))?;
    }
    Ok(started_ns + 2_000 * MS)
}
