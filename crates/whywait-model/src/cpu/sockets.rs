//! What CPU time was for, by connection; and which of them kept loops awake for nothing.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;
use whywait_events::SocketCpu;

use crate::cpu::bursts::Spinner;

/// Connections that are kept apart.
const MAX_SOCKETS: usize = 100_000;
/// Fewer samples do not separate user from system time.
const MIN_SAMPLES: u64 = 10;
/// A single burst says which connection keeps a loop awake if all others had less than one part in
/// so many of what it burnt.
const OTHERS: u64 = 10;
/// Connections that are reported.
const MAX_TOLD: usize = 50;

/// All connections of a recording.
#[derive(Debug, Clone, Default)]
pub struct Sockets {
    rows: BTreeMap<u64, SocketCpu>,
}

impl Sockets {
    /// Adds a row of the recording.
    pub fn add(&mut self, row: &SocketCpu) {
        if let Some(sum) = self.rows.get_mut(&row.socket) {
            let add = |sum: &mut u64, more: u64| *sum = sum.saturating_add(more);
            add(&mut sum.cpu_ns, row.cpu_ns);
            add(&mut sum.answering_ns, row.answering_ns);
            add(&mut sum.futile_ns, row.futile_ns);
            add(&mut sum.user_samples, row.user_samples);
            add(&mut sum.system_samples, row.system_samples);
            // These count from the connection's beginning in each row.
            sum.requests = sum.requests.max(row.requests);
            sum.bytes_in = sum.bytes_in.max(row.bytes_in);
            sum.bytes_out = sum.bytes_out.max(row.bytes_out);
        } else if self.rows.len() < MAX_SOCKETS {
            self.rows.insert(row.socket, row.clone());
        }
    }

    /// What all of them used between reads and answers; `None`: not recorded.
    pub(crate) fn answering_ns(&self) -> Option<u64> {
        let each = self.rows.values().map(|row| row.answering_ns);
        let all_ns = each.fold(0, u64::saturating_add);
        (all_ns > 0).then_some(all_ns)
    }

    /// The most expensive ones, and how many more there are. `spinners`: threads that bursts saw
    /// going round, with what that cost them in nanoseconds.
    pub(crate) fn summary(&self, spinners: &[(Spinner, u64)]) -> (Vec<SocketUse>, u64) {
        let spins = |pid: u32| spinners.iter().any(|(spinner, _)| spinner.tgid == pid);
        let mut rows: Vec<SocketUse> = self
            .rows
            .values()
            .map(|row| SocketUse {
                futile_ns: if spins(row.tgid) { row.futile_ns } else { 0 },
                ..SocketUse::of(row)
            })
            .collect();
        for (spinner, ns) in spinners {
            let Some((local_port, peer_port)) = spinner
                .connection
                .filter(|(local_port, peer_port)| *local_port != 0 && *peer_port != 0)
            else {
                continue;
            };
            let is_it = |row: &SocketUse| {
                row.pid == spinner.tgid
                    && row.local_port == Some(local_port)
                    && row.peer_port == Some(peer_port)
            };
            let others_ns = rows
                .iter()
                .filter(|row| row.pid == spinner.tgid && !is_it(row))
                .fold(0u64, |sum, row| sum.saturating_add(row.futile_ns));
            // A program may spin for one connection after the other, and a burst sees one of them.
            if spinner.bursts < 2 && others_ns.saturating_mul(OTHERS) > *ns {
                continue;
            }
            // Of those that had the same ports one after the other, the last.
            match rows.iter_mut().rev().find(|row| is_it(row)) {
                Some(row) => row.kept_awake_ns = row.kept_awake_ns.saturating_add(*ns),
                None => rows.push(SocketUse {
                    pid: spinner.tgid,
                    local_port: Some(local_port),
                    peer_port: Some(peer_port),
                    kept_awake_ns: *ns,
                    ..SocketUse::default()
                }),
            }
        }
        rows.sort_by_key(|row| {
            let cost_ns = row.cpu_ns.unwrap_or(0).max(row.kept_awake_ns);
            (std::cmp::Reverse(cost_ns), row.socket)
        });
        let more = rows.len().saturating_sub(MAX_TOLD) as u64;
        rows.truncate(MAX_TOLD);
        (rows, more)
    }
}

/// What the requests of a connection used. The field names are those of the JSON report (schema 1).
#[derive(Debug, Clone, PartialEq, Default, Serialize, JsonSchema)]
pub struct SocketUse {
    /// Process id.
    pub pid: u32,
    /// The connection's number in the recording; `None`: only a loop's cycle shows it.
    pub socket: Option<u64>,
    /// Local port, `None` for unix sockets.
    pub local_port: Option<u16>,
    /// The peer's address, hostile; `None` for unix sockets, or where it is not known.
    pub peer: Option<String>,
    /// The peer's port.
    pub peer_port: Option<u16>,
    /// Requests that came in on it; a TLS handshake is one.
    pub requests: Option<u64>,
    /// Bytes read.
    pub bytes_in: Option<u64>,
    /// Bytes written.
    pub bytes_out: Option<u64>,
    /// CPU time, as charged to its listener: at most what its requests used of the threads that
    /// read them, before these slept in a poll.
    pub cpu_ns: Option<u64>,
    /// Of that: from each read to the next read, or to the last write before it. The rest may be
    /// for other tasks of the thread, and is where an event loop has some. `None`: not recorded.
    pub answering_ns: Option<u64>,
    /// Of that in user mode, by samples; `None` with fewer than ten.
    pub user_ns: Option<u64>,
    /// Of that in the kernel, by samples.
    pub system_ns: Option<u64>,
    /// Of `cpu_ns`: in intervals of polling in which no byte moved, of processes in which bursts
    /// saw a thread go round.
    pub futile_ns: u64,
    /// What loops burnt that it kept awake, as each burst saw; they may have served another
    /// connection last.
    pub kept_awake_ns: u64,
    /// CPU time a request.
    pub per_request_ns: Option<u64>,
    /// CPU time a byte, both ways.
    pub per_byte_ns: Option<f64>,
}

impl SocketUse {
    fn of(row: &SocketCpu) -> Self {
        let samples = row.user_samples.saturating_add(row.system_samples);
        let user_ns = (samples >= MIN_SAMPLES).then(|| {
            (u128::from(row.cpu_ns) * u128::from(row.user_samples) / u128::from(samples)) as u64
        });
        let bytes = row.bytes_in.saturating_add(row.bytes_out);
        Self {
            pid: row.tgid,
            socket: Some(row.socket),
            local_port: (row.local_port != 0).then_some(row.local_port),
            peer: (!row.peer.is_empty()).then(|| row.peer.clone()),
            peer_port: (row.peer_port != 0).then_some(row.peer_port),
            requests: Some(row.requests),
            bytes_in: Some(row.bytes_in),
            bytes_out: Some(row.bytes_out),
            cpu_ns: Some(row.cpu_ns),
            answering_ns: (row.answering_ns > 0).then(|| row.answering_ns.min(row.cpu_ns)),
            user_ns,
            system_ns: user_ns.map(|user| row.cpu_ns.saturating_sub(user)),
            futile_ns: row.futile_ns.min(row.cpu_ns),
            kept_awake_ns: 0,
            per_request_ns: row.cpu_ns.checked_div(row.requests),
            per_byte_ns: (bytes > 0)
                .then(|| (row.cpu_ns as f64 / bytes as f64 * 1e3).round() / 1e3),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(socket: u64, peer_port: u16, cpu_ns: u64) -> SocketCpu {
        SocketCpu {
            tgid: 7,
            socket,
            local_port: 80,
            peer: "192.0.2.1".to_owned(),
            peer_port,
            requests: 10,
            bytes_in: 400,
            bytes_out: 600,
            cpu_ns,
            answering_ns: cpu_ns / 5,
            futile_ns: cpu_ns / 2,
            user_samples: 5,
            system_samples: 15,
            ..SocketCpu::default()
        }
    }

    fn spinner(peer_port: u16) -> Spinner {
        Spinner {
            tgid: 7,
            tid: 7,
            bursts: 2,
            connection: Some((80, peer_port)),
            ..Spinner::default()
        }
    }

    #[test]
    fn the_most_expensive_comes_first_and_rows_of_a_connection_add_up() {
        let mut sockets = Sockets::default();
        for one in [row(1, 1000, 50), row(2, 1001, 40), row(2, 1001, 40)] {
            sockets.add(&one);
        }
        let (told, more) = sockets.summary(&[]);
        assert_eq!(more, 0);
        assert_eq!(told[0].socket, Some(2));
        assert_eq!((told[0].cpu_ns, told[0].requests), (Some(80), Some(10)));
        assert_eq!(
            (told[0].user_ns, told[0].system_ns, told[0].per_request_ns),
            (Some(20), Some(60), Some(8))
        );
        assert_eq!(told[0].answering_ns, Some(16));
        assert_eq!(told[0].per_byte_ns, Some(0.08));
        assert_eq!(told[0].futile_ns, 0, "no burst saw a thread go round");
    }

    #[test]
    fn a_loop_burns_for_the_connection_that_keeps_it_awake() {
        let mut sockets = Sockets::default();
        sockets.add(&row(1, 1000, 50));
        let (told, _) = sockets.summary(&[(spinner(1000), 30), (spinner(2000), 90)]);
        assert_eq!((told[0].peer_port, told[0].kept_awake_ns), (Some(2000), 90));
        assert_eq!(told[0].cpu_ns, None, "nobody read from it");
        assert_eq!((told[1].kept_awake_ns, told[1].futile_ns), (30, 25));
    }

    #[test]
    fn a_loop_that_spins_for_one_after_the_other_burns_for_each() {
        let mut sockets = Sockets::default();
        sockets.add(&row(1, 1000, 50));
        sockets.add(&row(2, 1001, 50));
        let once = Spinner {
            bursts: 1,
            ..spinner(1000)
        };
        let different = Spinner {
            connection: Some((0, 0)),
            ..spinner(1000)
        };
        for spinner in [once, different] {
            let (told, _) = sockets.summary(&[(spinner, 50)]);
            let awake: Vec<u64> = told.iter().map(|row| row.kept_awake_ns).collect();
            assert_eq!(awake, [0, 0]);
            assert_eq!(told[0].futile_ns, 25, "as the kernel charged it");
        }
    }

    #[test]
    fn forged_rows_overflow_nothing() {
        let mut sockets = Sockets::default();
        let forged = SocketCpu {
            cpu_ns: u64::MAX,
            answering_ns: u64::MAX,
            futile_ns: u64::MAX,
            requests: u64::MAX,
            bytes_in: u64::MAX,
            bytes_out: u64::MAX,
            user_samples: u64::MAX,
            system_samples: u64::MAX,
            ..row(1, 1, 1)
        };
        for _ in 0..3 {
            sockets.add(&forged);
        }
        for socket in 0..2 * MAX_TOLD as u64 {
            sockets.add(&row(socket, 2, 1));
        }
        let (told, more) = sockets.summary(&[(spinner(1), u64::MAX), (spinner(1), u64::MAX)]);
        assert_eq!(told.len() as u64 + more, 2 * MAX_TOLD as u64);
    }
}
