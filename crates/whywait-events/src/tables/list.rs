//! The tables of a recording.

use super::*;
use crate::recording::tables;

tables! {
    // The file's name, the row, and the event that is one row. In the order of the documentation.
    tables {
        threads: ThreadEvent as Thread,
        waits: Wait as Wait,
        busy: Busy as Busy,
        preempted: Preempted as Preempted,
        futexes: FutexSum as Futex,
        cpu: Cpu as Cpu,
        sockets: SocketCpu as SocketCpu,
        bursts: Burst as Burst,
        calls: BurstCall as BurstCall,
        requests: Request as Request,
        samples: Sample as Sample,
        rings: uring::Ring as Ring,
        ring_sums: uring::Sum,
        ring_histograms: uring::Bucket,
        ring_ops: uring::Op as RingOp,
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
    }
}
