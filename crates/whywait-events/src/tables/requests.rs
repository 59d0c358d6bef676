//! The table `requests`.

use crate::names::names;
use crate::recording::table;
use crate::{Ns, Parts};

names! {
    /// What a request came in.
    pub enum WorkKind, default Stream, unknown names Stream {
        /// What was read from a connection.
        Stream = 0 "stream",
        /// A datagram: the answer is the next that was sent to the same peer.
        Datagram = 1 "datagram",
        /// A stream of HTTP/2, gRPC's among them.
        Http2 = 2 "http2",
        /// A message from a broker, on a connection that the target made: it is over when its
        /// worker asks for the next one, or acknowledges it.
        Job = 3 "job",
        /// A message that the one who read it gave to another thread or process, which slept in a
        /// read or on a futex until it had one: it is over when that one sleeps so again.
        HandedJob = 4 "handed-job",
    }
}

table! {
    /// A request that took at least the threshold: on a stream socket, from the kernel having its
    /// first byte to the last byte of the response before the next request; in a datagram, from the
    /// kernel having it to the first datagram that was sent to the same peer. In a stream of
    /// HTTP/2: from the kernel having the client's HEADERS to the end of the answer, or to its
    /// first DATA where more was written a threshold or longer after that. A job: from the kernel
    /// having its message to what the worker sent when it was done.
    ///
    /// A row may come twice for the same (`socket`, `seq`), when more of the response was sent
    /// after the first row: the later row replaces the earlier one.
    #[span(ready_ns, [latency_ns], |row| row.last_send_ns)]
    #[process(tgid, local_port)]
    pub struct Request {
        /// Identifies the connection.
        socket: u64 = Dictionary,
        /// Counts the connection's requests.
        seq: u32 = Delta,
        /// Process that read it; 0: it was never read.
        tgid: u32 = Dictionary,
        /// When the kernel had the first byte.
        ready_ns: Ns = DeltaBounds,
        /// When the target first read from the socket; `None`: never.
        recv_ns: Option<Ns> = Delta {
            /// From `ready_ns` until the target first read; NULL: never.
            recv_after_ns since |row| row.ready_ns
        },
        /// When the target wrote the first byte of the response; `None`: never.
        first_send_ns: Option<Ns> = Delta {
            /// From `ready_ns` until the first byte of the response was written; NULL: never.
            first_send_after_ns since |row| row.ready_ns
        },
        /// When the target wrote the last byte of the response; `None`: never.
        last_send_ns: Option<Ns> = DeltaBounds {
            /// From `ready_ns` until the last byte of the response was written; NULL: never.
            latency_ns since |row| row.ready_ns
        },
        /// When a stream of HTTP/2 that went on after its first message was over, or the recording
        /// was; `None`: it did not.
        ended_ns: Option<Ns> = Delta {
            /// From `ready_ns` until a stream of HTTP/2 that went on after its first message was
            /// over, or the recording was: that is no latency; NULL: it did not.
            ended_after_ns since |row| row.ready_ns
        },
        /// When its connection ended without an answer; `None`: it was answered, or was open when
        /// the recording ended.
        gone_ns: Option<Ns> = Delta {
            /// From `ready_ns` until the connection ended without an answer; NULL: it was answered,
            /// or was open when the recording ended.
            gone_after_ns since |row| row.ready_ns
        },
        /// The thread that first read it, 0: none.
        recv_tid: u32 = Dictionary,
        /// The thread that wrote the last byte, 0: none.
        send_tid: u32 = Dictionary,
        /// The task for which the thread first read it, where its runtime says that (Go's
        /// goroutine): a number that tells a process's tasks apart. A task that ended may have left
        /// its number to another. 0: not known.
        recv_task: u32 = Dictionary or 0,
        /// The task for which the first byte of the response was written, likewise; 0: not known.
        send_task: u32 = Dictionary or 0,
        /// Bytes read.
        bytes_in: u64 = Dictionary,
        /// Bytes written.
        bytes_out: u64 = Dictionary,
        /// File descriptor as registered with epoll, or, where it is not, as the response was
        /// written to it; -1: unknown.
        fd: i32 = Dictionary,
        /// The epoll instance with which the socket is registered (before it was accepted: the
        /// listener's); 0: none or unknown.
        epoll: u32 = Dictionary,
        /// Whether epoll read interest was armed for the socket when the row was made; NULL:
        /// unknown.
        read_armed: Option<bool> = Plain,
        /// The first byte came before the connection was accepted.
        before_accept: bool = Plain,
        /// Nobody had accepted the connection when the row was made.
        unaccepted: bool = Plain or false,
        /// It lay there, or had been read, when the recording began: `ready_ns` is when it came at
        /// the latest.
        since_before: bool = Plain or false,
        /// Its connection carries several requests at once: what is taken for one need not be one.
        multiplexed: bool = Plain or false,
        /// Its client is the target itself: the process that read it, or another one that serves
        /// others, too. A part of what others' requests wait for, as a rule.
        own: bool = Plain or false,
        /// What it came in. A datagram, a stream and a job have a `socket` of their own.
        kind: WorkKind = Dictionary or (WorkKind::Stream),
        /// Of a job: the peer that it came from, as in `peers`; 0: none, or one that is not kept
        /// apart.
        broker: u32 = Dictionary or 0,
        /// Of a job that was handed on: the thread that did so; 0: none.
        handed_by: u32 = Dictionary or 0,
        /// Local port, 0 for unix sockets.
        local_port: u16 = Dictionary,
        /// Part of `recv_after_ns` in which the reader was waking up (from the wake until it was on
        /// a CPU, and the wake itself).
        unserved_wakeup_ns: u64 = Delta,
        /// How the reader, then the writer, spent the time from the first read to the last write,
        /// as counted in the kernel.
        service: Parts = Delta { parts "service" },
        /// Until then what was read lay in an io_uring ring, done and not taken, for certain;
        /// `None`: not known, or not so.
        taken_ns: Option<Ns> = Delta {
            /// From `ready_ns`: until then what was read lay in an io_uring ring, done and not
            /// taken, for certain; NULL: not known, or not so.
            taken_after_ns since |row| row.ready_ns
        },
    }
}
