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
    /// The same, and the very first for so long.
    OneAfter(u64, u64),
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
    /// What began before is not recorded, …
    pub(crate) from_ms: u64,
    /// … but for requests that were open by then.
    pub(crate) attached: bool,
    /// Which of those who wait is next is chance; else it is who came first.
    pub(crate) random: bool,
    /// Each connection begins with a login that takes so long, in milliseconds; 0: with none.
    pub(crate) login_ms: u64,
    /// What a request keeps its connection for is split into so many calls, …
    pub(crate) calls: u64,
    /// … and lasts so much longer for each, in milliseconds, as a pause before the next one.
    pub(crate) pause_ms: u64,
    /// Each call has a connection of its own, and the time before it is what connecting takes.
    pub(crate) connects: bool,
}

impl Closed {
    pub(crate) fn script(self) -> Script {
        let mut script = Script::new();
        script.thread(LOOP, "loop");
        let (calls, end_ms) = self.of_process(&mut script, TGID, LOOP);
        script.peer(&peer(calls, self.open()));
        script.ends(end_ms);
        script
    }

    /// The same in so many processes that were forked ahead.
    pub(crate) fn in_processes(self, processes: u32) -> Script {
        let mut script = Script::new();
        let (mut calls, mut end_ms) = (0, 0);
        for tid in 201..=200 + processes {
            script.thread_of(tid, tid, &format!("worker {tid}"));
            let (its, end) = self.of_process(&mut script, tid, tid);
            (calls, end_ms) = (calls + its, end_ms.max(end));
        }
        script.peer(&peer(calls, self.open() * u64::from(processes)));
        script.ends(end_ms);
        script
    }

    /// Connections that are open at a time.
    fn open(&self) -> u64 {
        match self.own_connections {
            true => self.clients,
            false => self.at_a_time,
        }
    }

    /// Its calls, and when it ends.
    fn of_process(self, script: &mut Script, tgid: u32, tid: u32) -> (u64, u64) {
        let first_socket = u64::from(tid) * 1_000;
        let of = |call: Exchange| Exchange {
            tgid,
            socket: first_socket + call.socket,
            send_tid: tid,
            read_tid: tid,
            ..call
        };
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
                script.exchange(&of(login));
                calls += 1;
                begun += self.login_ms;
            }
            let ended = match self.peer {
                Serves::All(ms) => begun + ms,
                Serves::OneAfter(_, first_ms) if served_ms == 0 => begun + first_ms,
                Serves::One(ms) | Serves::OneAfter(ms, _) => begun.max(served_ms) + ms,
            };
            let pauses_ms = (self.calls - 1) * self.pause_ms;
            let each_ms = (ended - begun) / self.calls;
            let ended = ended + pauses_ms;
            served_ms = ended;
            let socket = if self.own_connections { client } else { slot };
            for nth in 0..self.calls {
                seq += 1;
                let from = begun + nth * (each_ms + self.pause_ms);
                let to = if nth + 1 == self.calls {
                    ended
                } else {
                    from + each_ms
                };
                if begun >= self.from_ms {
                    calls += 1;
                    let mut made = call(socket as u64, seq, from, to);
                    if self.connects {
                        made.socket = 1_000 + u64::from(seq);
                        made.connect_ns = Some(ms(from.saturating_sub(self.gap_ms)));
                    }
                    script.exchange(&of(made));
                }
            }
            let is_open = self.attached && ended >= self.from_ms;
            if is_open || ready[client] >= self.from_ms {
                let request = script.request(first_socket + n).of(tgid).epoll(7);
                let request = request.ready(ready[client]).read(ready[client], tid);
                request.answered(ended, tid);
            }
            ready[client] = ended + 1;
            free[slot] = ended + self.gap_ms;
        }
        (calls, ready.into_iter().max().unwrap_or(0) + 10)
    }
}

/// Requests that keep one of two connections to a database, at port 7002, across a call of 50 ms to
/// the peer; and after each of these calls some that make none, one to three, and are answered so
/// long after it, in milliseconds. They were read 60 ms before, as the next call begins at once.
pub(crate) fn kept_across(answered_after_ms: u64) -> Script {
    let mut script = Script::new();
    script.thread(LOOP, "loop");
    for n in 0..40_u64 {
        let (from, to) = (200 + 25 * n, 250 + 25 * n);
        script.exchange(&Exchange {
            bytes_out: 60,
            ..call(n % 2, n as u32, from, to)
        });
        let request = script.request(4 * n + 1).epoll(7).ready(from - 70);
        request.read(from - 70, LOOP).answered(to + 1, LOOP);
        for other in 2..=2 + n % 3 {
            let (read, answered) = (to - 60, to + answered_after_ms);
            let request = script.request(4 * n + other).epoll(7).ready(read);
            request.read(read, LOOP).answered(answered, LOOP);
        }
    }
    script.peer(&peer(40, 2));
    script.peer(&PeerSums {
        id: 2,
        port: 7002,
        process: "postgres".to_owned(),
        tgid: 56,
        slow: 0,
        ..peer(160, 2)
    });
    script.ends(1_500);
    script
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
