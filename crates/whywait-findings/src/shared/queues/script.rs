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
    /// Which of those who wait is next is chance; else it is who came first.
    pub(crate) random: bool,
    /// Each connection begins with a login that takes so long, in milliseconds; 0: with none.
    pub(crate) login_ms: u64,
}

impl Closed {
    pub(crate) fn script(self) -> Script {
        let mut script = Script::new();
        script.thread(LOOP, "loop");
        let mut ready = vec![10; self.clients as usize];
        let mut free = vec![0; self.at_a_time as usize];
        let (mut served_ms, mut seq, mut calls) = (0, 0, 0);
        let mut logged_in = vec![self.login_ms == 0; self.at_a_time as usize];
        let mut state = 7_u64;
        let mut any = |below: usize| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 33) as usize % below
        };
        let first = |times: &[u64]| (0..times.len()).min_by_key(|at| times[*at]).unwrap_or(0);
        for n in 0..self.clients * self.rounds {
            let slot = first(&free);
            let waiting = (0..ready.len()).filter(|at| ready[*at] <= free[slot]);
            let waiting: Vec<usize> = waiting.collect();
            let client = if self.random && !waiting.is_empty() {
                waiting[any(waiting.len())]
            } else {
                first(&ready)
            };
            let mut begun = ready[client].max(free[slot]);
            if !std::mem::replace(&mut logged_in[slot], true) {
                let mut login = call(slot as u64, 0, begun, begun + self.login_ms);
                login.connect_ns = Some(ms(begun));
                login.bytes_in = 400;
                script.exchange(&login);
                calls += 1;
                begun += self.login_ms;
            }
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
