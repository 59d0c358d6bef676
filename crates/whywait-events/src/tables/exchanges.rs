//! The tables `exchanges`, `peers` and `peer_histograms`.

use std::collections::BTreeMap;

use crate::Ns;
use crate::recording::{Record, Sink, table};
use crate::tables::requests::WorkKind;

table! {
    /// What the target sent on a stream socket that it had connected, and the reply: from the first
    /// byte sent to the last byte read before more was sent. Each that took the threshold or
    /// longer, and of shorter ones those with a reply, up to 100 in a tenth of a second.
    ///
    /// A connection that was given up before it was made (by the target, or by the kernel, as
    /// nobody answered) has a row, too, if it took the threshold or longer: with no byte written,
    /// `first_send_ns` as `connect_ns`, and the thread that began it as `send_tid`.
    ///
    /// A row may come twice for the same (`socket`, `seq`), when more of the reply was read after
    /// the first row: the later row replaces the earlier one.
    #[table(later)]
    #[span(first_send_ns, [last_read_after_ns], |row| row.last_read_ns)]
    #[process(tgid)]
    pub struct Exchange {
        /// Identifies the connection; not one of those in `requests`.
        socket: u64 = Dictionary,
        /// Counts the connection's exchanges, since it was first seen.
        seq: u32 = Delta,
        /// The process that sent.
        tgid: u32 = Dictionary,
        /// Its descriptor, as it sent; -1: not known.
        fd: i32 = Dictionary,
        /// The peer, as in `peers`.
        peer: u32 = Dictionary,
        /// When the target wrote the first byte.
        first_send_ns: Ns = DeltaBounds,
        /// When it wrote the last byte before the reply.
        last_send_ns: Ns = Delta {
            /// From `first_send_ns` until the last byte before the reply was written.
            last_send_after_ns since |row| row.first_send_ns
        },
        /// When the kernel had the reply's first byte; `None`: not known, or there was no reply.
        arrived_ns: Option<Ns> = Delta {
            /// From `first_send_ns` until the kernel had the reply's first byte; NULL: not known,
            /// or there was no reply.
            arrived_after_ns since |row| row.first_send_ns
        },
        /// When the target first read of the reply; `None`: never.
        first_read_ns: Option<Ns> = Delta {
            /// From `first_send_ns` until the target first read of the reply; NULL: never.
            first_read_after_ns since |row| row.first_send_ns
        },
        /// When it last read of the reply; `None`: never.
        last_read_ns: Option<Ns> = DeltaBounds {
            /// From `first_send_ns` until the target last read of the reply; NULL: never.
            last_read_after_ns since |row| row.first_send_ns
        },
        /// When its connection ended without a reply; `None`: it was replied to, or was open when
        /// the row was made.
        gone_ns: Option<Ns> = Delta {
            /// From `first_send_ns` until the connection ended without a reply; NULL: it was
            /// replied to, or was open when the row was made.
            gone_after_ns since |row| row.first_send_ns
        },
        /// For the first exchange of a connection: when that was begun; `None`: not seen.
        connect_ns: Option<Ns> = Delta {
            /// For the first exchange of a connection: how long before `first_send_ns` that was
            /// begun; NULL: not seen.
            connect_before_ns until |row| row.first_send_ns
        },
        /// … and when it was made; `None`: not seen.
        connected_ns: Option<Ns> = Delta {
            /// … and how long before `first_send_ns` it was made; NULL: not seen.
            connected_before_ns until |row| row.first_send_ns
        },
        /// The thread that wrote the last byte.
        send_tid: u32 = Dictionary,
        /// The thread that first read of the reply, 0: none.
        read_tid: u32 = Dictionary,
        /// The task for which the thread wrote the first byte, as in `requests`; 0: not known.
        task: u32 = Dictionary or 0,
        /// Bytes written.
        bytes_out: u64 = Dictionary,
        /// Bytes read.
        bytes_in: u64 = Dictionary,
        /// The connection's smoothed round-trip time by then, in microseconds; 0: not known.
        srtt_us: u32 = Dictionary,
        /// The connection's shortest round trip of the last minutes, in microseconds; 0: not known.
        rtt_min_us: u32 = Dictionary,
        /// Packets that its side of the connection sent again meanwhile.
        retransmits: u32 = Dictionary,
        /// What it is, as in `requests`: `stream`, or `http2`, which has a `socket` of its own for
        /// each stream of its connection.
        kind: WorkKind = Dictionary or (WorkKind::Stream),
    }
}

table! {
    /// What the exchanges with a peer came to until now: all of them, also those without a row.
    /// Written when a segment closes, for peers that were talked to since, and at the end: of the
    /// rows of a `peer` the last one counts.
    ///
    /// An exchange without a reply is in `unanswered`, in `bytes_out` and `retransmits`, and in
    /// nothing else.
    #[table(later)]
    pub struct PeerSums {
        /// Identifies the peer, from 1; 0: all that are not kept apart.
        id: u32 = Dictionary { peer },
        /// Its address as text; of a unix socket its path, `@` before an abstract name. Hostile.
        address: String = Dictionary,
        /// Its port, 0 for unix sockets.
        port: u16 = Dictionary,
        /// The process behind it, if it is one of this machine and was found; 0: not known.
        tgid: u32 = Dictionary,
        /// That process's name; empty: not known. Hostile.
        process: String = Dictionary,
        /// Exchanges with a reply.
        count: u64 = Delta,
        /// Of these: that took the threshold or longer.
        slow: u64 = Delta,
        /// Exchanges that ended without a reply.
        unanswered: u64 = Delta,
        /// From the first byte sent to the last byte read.
        total_ns: u64 = Delta,
        /// The longest of them.
        max_ns: u64 = Delta,
        /// Of `total_ns`: until the last byte before the reply was sent.
        sending_ns: u64 = Delta,
        /// Of `total_ns`: until the reply was first read.
        first_ns: u64 = Delta,
        /// Of `first_ns`: when the kernel had the reply's first byte, as far as that is known.
        unread_ns: u64 = Delta,
        /// Bytes written.
        bytes_out: u64 = Delta,
        /// Bytes read.
        bytes_in: u64 = Delta,
        /// Connections that were used.
        connections: u64 = Delta,
        /// Of these: that were made while the recording ran.
        connects: u64 = Delta,
        /// How long that took.
        connect_ns: u64 = Delta,
        /// Connections that did not come about.
        failed: u64 = Delta,
        /// Connections for which a SYN had to be sent again.
        retried: u64 = Delta or 0,
        /// From when these were begun until they were made, or were not.
        retried_ns: u64 = Delta or 0,
        /// The shortest round trip of the connection, summed up over exchanges, microseconds.
        rtt_min_us: u64 = Delta,
        /// Packets that the target's side sent again.
        retransmits: u64 = Delta,
        /// The most exchanges that waited for their reply at a time; NULL: not known, as for unix
        /// sockets.
        most_in_flight: Option<u32> = Dictionary,
        /// The most connections that were open at a time, of those that were used; NULL: not known.
        most_open: Option<u32> = Dictionary,
    }
    with {
        /// How many took how long, by bucket, as for the latency of requests: rows of
        /// `peer_histograms`.
        latency: BTreeMap<u16, u64>,
    }
}

table! {
    /// The histogram of a row of `peers`, of `total_ns`. Of the rows of the same bucket the last
    /// one counts. There are 8 buckets to the power of two: those of 2^e ns and more begin with
    /// 8 (e - 2).
    #[table(later)]
    #[valid(|row| row.bucket < 512)]
    pub(crate) struct PeerBucket {
        /// Of which row of `peers`.
        peer: u32 = Dictionary,
        /// Which bucket.
        bucket: u16 = Dictionary,
        /// How many.
        count: u64 = Delta,
    }
}

impl Record for Box<PeerSums> {
    fn rows<S: Sink>(&self, sink: &mut S) -> Result<(), S::Error> {
        sink.row::<PeerSums>(self)?;
        for (bucket, count) in &self.latency {
            sink.row(&PeerBucket {
                peer: self.id,
                bucket: *bucket,
                count: *count,
            })?;
        }
        Ok(())
    }
}
