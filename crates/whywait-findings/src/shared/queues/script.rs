//! Scripts of loops that ask a peer.

use whywait_events::{Exchange, PeerSums};
use whywait_model::script::{Script, TGID, ms};

/// The loop's thread.
pub(crate) const LOOP: u32 = 1;

/// What a peer does with several calls at a time.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Serves {
    /// Each takes so long, in milliseconds.
    All(u64),
    /// One after another, each for so long.
    One(u64),
}

/// Clients that each wait for their answer before they ask again, and a loop that asks a peer for
/// each of them, so many at a time at most.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Closed {
    pub(crate) clients: u64,
    pub(crate) rounds: u64,
    pub(crate) at_a_time: u64,
    /// Each client has a connection to the peer of its own.
    pub(crate) own_connections: bool,
    pub(crate) peer: Serves,
    /// So long after one call's end the next begins, in milliseconds.
    pub(crate) gap_ms: u64,
    /// What began before is not recorded.
    pub(crate) from_ms: u64,
}

impl Closed {
    pub(crate) fn script(self) -> Script {
        let mut script = Script::new();
        script.thread(LOOP, "loop");
        let mut ready = vec![10; self.clients as usize];
        let mut free = vec![0; self.at_a_time as usize];
        let (mut served_ms, mut seq, mut calls) = (0, 0, 0);
        let first = |times: &[u64]| (0..times.len()).min_by_key(|at| times[*at]).unwrap_or(0);
        for n in 0..self.clients * self.rounds {
            let (client, slot) = (first(&ready), first(&free));
            let begun = ready[client].max(free[slot]);
            let ended = match self.peer {
                Serves::All(ms) => begun + ms,
                Serves::One(ms) => begun.max(served_ms) + ms,
            };
            served_ms = ended;
            let socket = if self.own_connections { client } else { slot };
            seq += 1;
            if begun >= self.from_ms {
                calls += 1;
                script.exchange(&call(socket as u64, seq, begun, ended));
            }
            if ready[client] >= self.from_ms {
                let request = script.request(1_000 + n).epoll(7).ready(ready[client]);
                request.read(ready[client], LOOP).answered(ended, LOOP);
            }
            ready[client] = ended + 1;
            free[slot] = ended + self.gap_ms;
        }
        let open = if self.own_connections {
            self.clients
        } else {
            self.at_a_time
        };
        script.peer(&peer(calls, open));
        script.ends(ready.into_iter().max().unwrap_or(0) + 10);
        script
    }
}

pub(crate) fn peer(calls: u64, open: u64) -> PeerSums {
    PeerSums {
        id: 1,
        address: "127.0.0.1".to_owned(),
        port: 7001,
        process: "python3".to_owned(),
        tgid: 55,
        count: calls,
        slow: calls,
        connections: open,
        most_open: Some(open as u32),
        ..PeerSums::default()
    }
}

pub(crate) fn call(socket: u64, seq: u32, from_ms: u64, to_ms: u64) -> Exchange {
    Exchange {
        socket: 100 + socket,
        seq,
        tgid: TGID,
        fd: 20 + socket as i32,
        peer: 1,
        first_send_ns: ms(from_ms),
        last_send_ns: ms(from_ms),
        arrived_ns: Some(ms(to_ms)),
        first_read_ns: Some(ms(to_ms)),
        last_read_ns: Some(ms(to_ms)),
        send_tid: LOOP,
        read_tid: LOOP,
        ..Exchange::default()
    }
}
