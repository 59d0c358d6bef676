//! Connections on which HTTP/2 is spoken with a peer, as gRPC does, known by its PINGs: libraries
//! ask with one how far away the peer is whenever data came, and the peer answers at once. What is
//! recorded as a call there ends with whatever was read, so most are short. While none is recorded
//! as under way calls are.

use std::collections::{BTreeMap, BTreeSet};

use whywait_events::{Exchange, Ns};

use crate::calls::linked::Linked;

/// What each frame begins with (RFC 9113, section 4.1).
const HEAD: u64 = 9;
/// A PING has eight bytes of its own, and so has the answer to one (section 6.7).
const ANSWER: u64 = HEAD + 8;
/// Alone, or with a WINDOW_UPDATE, which has four.
const PING: [u64; 2] = [ANSWER, ANSWER + HEAD + 4];
/// In percent: so many of them are a call after which nothing but a PING of the peer's is read, and
/// its answer alone is what is sent next, and is replied to. Of those of gRPC's clients in Go, Java
/// and Python 12 to 41 are. Of others' it is chance: none was on 38 connections of PostgreSQL's
/// clients (Python, node) on which replies had such a length.
const ANSWERED: usize = 5;
/// Of fewer exchanges a single one would be that many.
const LEAST_CALLS: usize = 100 / ANSWERED;

/// A connection, and from when on it may have had calls under way, until when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Spoken {
    pub(super) tgid: u32,
    pub(super) peer: u32,
    pub(super) from_ns: Ns,
    pub(super) to_ns: Ns,
}

/// What a process said to a peer over HTTP/2, as far as that shows.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Http2Talk {
    /// The process.
    pub tgid: u32,
    /// The peer's number.
    pub peer: u32,
    /// The threads that sent.
    pub tids: BTreeSet<u32>,
    /// When calls were sent, in order.
    pub sent: Vec<Ns>,
    /// When something was read that was no PING alone, in order.
    pub replied: Vec<Ns>,
    /// From one reading to another, in order: more may have been read in between.
    pub between: Vec<(Ns, Ns)>,
}

impl Http2Talk {
    fn add(&mut self, call: &Exchange) {
        self.tids.insert(call.send_tid);
        if !PING.contains(&call.bytes_out) {
            self.sent.push(call.first_send_ns);
            if call.last_send_ns > call.first_send_ns {
                self.sent.push(call.last_send_ns);
            }
        }
        let (Some(first_ns), Some(last_ns)) = (call.first_read_ns, call.last_read_ns) else {
            return;
        };
        if PING.contains(&call.bytes_in) {
            return;
        }
        // To what is sent as an answer to a PING there is none: it is a call that was replied to.
        if call.bytes_out == PING[0] && first_ns < last_ns {
            self.replied.push(first_ns);
        }
        self.replied.push(last_ns);
        self.between.push((first_ns, last_ns));
    }

    fn in_order(mut self) -> Self {
        self.sent.sort_unstable();
        self.replied.sort_unstable();
        self.between.sort_unstable();
        self
    }
}

impl Linked {
    /// Who speaks HTTP/2 with whom.
    pub fn http2_talks(&self) -> Vec<Http2Talk> {
        let mut talks: BTreeMap<(u32, u32), Http2Talk> = BTreeMap::new();
        let calls = self.exchanges().iter().chain(self.short_exchanges());
        for call in calls.filter(|call| self.links.speaks_http2(call.socket)) {
            let talk = talks.entry((call.tgid, call.peer)).or_default();
            (talk.tgid, talk.peer) = (call.tgid, call.peer);
            talk.add(call);
        }
        talks.into_values().map(Http2Talk::in_order).collect()
    }
}

/// Those among the sockets of all calls.
pub(super) fn sockets<'a>(calls: impl Iterator<Item = &'a Exchange>) -> BTreeMap<u64, Spoken> {
    let mut of_socket: BTreeMap<u64, BTreeMap<u32, &Exchange>> = BTreeMap::new();
    for call in calls {
        let calls = of_socket.entry(call.socket).or_default();
        calls.insert(call.seq, call);
    }
    of_socket
        .retain(|_, calls| calls.len() >= LEAST_CALLS && are_frames(calls) && has_pings(calls));
    let spoken = of_socket.into_iter().filter_map(|(socket, calls)| {
        let (first, last) = (calls.values().next()?, calls.values().next_back()?);
        let spoken = Spoken {
            tgid: first.tgid,
            peer: first.peer,
            from_ns: first.first_send_ns,
            to_ns: last.gone_ns.unwrap_or(Ns::MAX),
        };
        Some((socket, spoken))
    });
    spoken.collect()
}

/// Whether what is sent can be frames. One with one to three bytes of its own is hardly sent alone:
/// the frames of a fixed length have four or more, or none. (PostgreSQL's reply to BEGIN has a
/// PING's length; BEGIN and COMMIT are shorter than that.)
fn are_frames(calls: &BTreeMap<u32, &Exchange>) -> bool {
    let is_none = |bytes: u64| (1..HEAD + 4).contains(&bytes) && bytes != HEAD;
    !calls.values().any(|call| is_none(call.bytes_out))
}

fn has_pings(calls: &BTreeMap<u32, &Exchange>) -> bool {
    let next = calls.iter().skip(1);
    let answered = calls
        .iter()
        .zip(next)
        .filter(|((seq, call), (next_seq, next))| {
            let lengths = [call.bytes_out, call.bytes_in, next.bytes_in];
            let pings = lengths.map(|bytes| PING.contains(&bytes));
            let answers = **next_seq == **seq + 1 && next.bytes_out == ANSWER;
            answers && pings == [false, true, false]
        });
    answered.count() * 100 >= calls.len() * ANSWERED
}

#[cfg(test)]
mod tests {
    use super::*;

    /// So many exchanges on connection 7: of each five the first is a call, to which the peer sends
    /// a PING, and the next has the answer to that and so much more.
    fn exchanges(count: u32, more: u64) -> Vec<Exchange> {
        let exchange = |seq: u32| {
            let (bytes_out, bytes_in) = match seq % 5 {
                0 => (61, 30),
                1 => (17 + more, 40),
                _ => (120, 300),
            };
            Exchange {
                socket: 7,
                seq,
                peer: 3,
                first_send_ns: 1_000_000 * u64::from(seq),
                bytes_out,
                bytes_in,
                ..Exchange::default()
            }
        };
        (0..count).map(exchange).collect()
    }

    #[test]
    fn pings_that_are_answered_are_http2() {
        let spoken = sockets(exchanges(40, 0).iter());
        let (from_ns, to_ns) = (0, Ns::MAX);
        let expected = Spoken {
            tgid: 0,
            peer: 3,
            from_ns,
            to_ns,
        };
        assert_eq!(spoken, BTreeMap::from([(7, expected)]));
        assert_eq!(sockets(exchanges(19, 0).iter()).len(), 0, "too few");
        assert_eq!(sockets(exchanges(40, 1).iter()).len(), 0, "no answers");
        let mut apart = exchanges(40, 0);
        apart.retain(|call| call.seq % 5 != 1);
        assert_eq!(sockets(apart.iter()).len(), 0, "not what is sent next");
    }

    #[test]
    fn one_in_twenty_is_answered_so() {
        let some = |every: u32| {
            let mut calls = exchanges(100, 0);
            for call in calls.iter_mut().filter(|call| call.seq % every >= 5) {
                call.bytes_in = 300;
            }
            sockets(calls.iter()).len()
        };
        assert_eq!(some(20), 1, "5 of 100");
        assert_eq!(some(25), 0, "4 of 100");
    }

    /// psycopg2's: BEGIN, a statement of 24 bytes, COMMIT. The reply to BEGIN has 17 bytes.
    #[test]
    fn transactions_of_postgresql_are_no_http2() {
        let mut calls = exchanges(60, 0);
        for call in &mut calls {
            (call.bytes_out, call.bytes_in) = match call.seq % 3 {
                0 => (11, 17),
                1 => (30, 65),
                _ => (12, 18),
            };
        }
        assert_eq!(sockets(calls.iter()).len(), 0);
        for call in calls.iter_mut().filter(|call| call.seq % 3 != 1) {
            call.bytes_out += 10;
        }
        assert_eq!(sockets(calls.iter()).len(), 0, "a statement is no answer");
        for call in calls.iter_mut().filter(|call| call.seq % 3 == 1) {
            call.bytes_out = ANSWER;
        }
        assert_eq!(
            sockets(calls.iter()).len(),
            1,
            "nothing says that these are none"
        );
        calls[2].bytes_out = 12;
        assert_eq!(sockets(calls.iter()).len(), 0, "no frame is so short");
    }

    #[test]
    fn one_length_each_way_is_no_ping() {
        let mut calls = exchanges(40, 0);
        for call in &mut calls {
            (call.bytes_out, call.bytes_in) = (30, 17);
        }
        assert_eq!(sockets(calls.iter()).len(), 0);
    }
}
