//! The tables of a recording: each is declared once, in a file of this folder, and listed at the
//! end of this one.
//!
//! A declaration ([`table!`](crate::recording::table)) is the struct of a row and, of each field,
//! its column. Reading, writing, the rows that tests make up and the table's section of
//! `docs/recording.md` come from it. A new column is one line there, and `or 0` (or another value
//! that older recordings have instead): they do not have the column.
//!
//! A new table is a declaration marked `#[table(later)]`, and a line in the list. Without an event
//! of its own (`as …`) somebody else's [`Record`](crate::recording::Record) has to write its rows.

mod abandoned;
mod accept_queues;
mod bursts;
mod busy;
mod connections;
mod counters;
mod cpu;
mod cpu_waits;
mod dns;
mod exchanges;
mod file_locks;
mod futexes;
mod named;
mod preempted;
mod pushes;
mod requests;
mod responses;
mod samples;
mod sockets;
mod stacks;
mod tails;
mod tasks;
mod threads;
pub mod uring;
mod waits;

pub use abandoned::*;
pub use accept_queues::*;
pub use bursts::*;
pub use busy::*;
pub use connections::*;
pub(crate) use counters::*;
pub use cpu::*;
pub use cpu_waits::*;
pub use dns::*;
pub use exchanges::*;
pub use file_locks::*;
pub use futexes::*;
pub use named::*;
pub use preempted::*;
pub use pushes::*;
pub use requests::*;
pub use responses::*;
pub use samples::*;
pub use sockets::*;
pub use stacks::*;
pub use tails::*;
pub use tasks::*;
pub use threads::*;
pub use waits::*;

use crate::recording::tables;

tables! {
    // The file's name, the row, and the event that is one row. In the order of the documentation.
    tables {
        threads: ThreadEvent as Thread,
        waits: Wait as Wait,
        busy: Busy as Busy,
        preempted: Preempted as Preempted,
        cpu_waits: CpuWait as CpuWait,
        futexes: FutexSum as Futex,
        cpu: Cpu as Cpu,
        sockets: SocketCpu as SocketCpu,
        accept_queues: AcceptQueue as AcceptQueue,
        connections: Connection as Connection,
        bursts: Burst as Burst,
        calls: BurstCall as BurstCall,
        requests: Request as Request,
        tails: Tail as Tail,
        responses: ResponseLook as Response,
        pushes: Push as Push,
        tasks: TaskLook as TaskLook,
        abandoned: Abandoned as Abandoned,
        dns: DnsQuery as Dns,
        file_locks: FileLock as FileLock,
        exchanges: Exchange as Exchange,
        peers: PeerSums,
        peer_histograms: PeerBucket,
        names: NameRow as Name,
        samples: Sample as Sample,
        rings: uring::Ring as Ring,
        ring_sums: uring::Sum,
        ring_histograms: uring::Bucket,
        ring_ops: uring::Op as RingOp,
        ring_pending: uring::Pending as RingPending,
        ring_samples: uring::RingSample as RingSample,
        ring_lags: uring::Lag as RingLag,
        stacks: StackRow,
        modules: Module as Module,
        symbols: Symbol as Symbol,
        counters: Counter,
    }
    events of several rows {
        /// A stack, of which later events have the id.
        Stack(Stack),
        /// What the operations of an opcode came to on an io_uring ring until now.
        RingSum(Box<uring::Sum>),
        /// What the exchanges with a peer came to until now.
        Peer(Box<PeerSums>),
    }
}
