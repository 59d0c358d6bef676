//! Recordings in which everything overlaps: small files, whose rows would take hours if each of
//! some were compared with each of the others.

use std::path::Path;

use whywait_events::recording::{Meta, Writer};
use whywait_events::{
    Busy, Event, Frame, Module, ModuleKind, Preempted, Request, Sample, Stack, Symbol,
    ThreadChange, ThreadEvent, Wait, WakeContext,
};

const TGID: u32 = 100;
const START_NS: u64 = 5_000_000_000;
const LENGTH_NS: u64 = 3_000_000_000;
const FUTEX: u32 = 202;
const EPOLL_WAIT: u32 = 232;
const POLL: u32 = 7;

/// How many of what.
#[derive(Clone, Copy)]
pub(crate) struct Shape {
    pub(crate) name: &'static str,
    threads: u32,
    /// Of each thread.
    waits: u64,
    /// The same, of each other kind.
    rows: u64,
    /// Whether the requests lie unread until the end, or are worked on.
    unread: bool,
    /// What each wait is.
    syscall: u32,
}

/// Each takes minutes where the time grows with the square of something.
pub(crate) const SHAPES: [Shape; 6] = [
    shape("a pool", 100, 500, 0, true, EPOLL_WAIT),
    shape("one thread", 1, 50_000, 0, false, POLL),
    shape("a loop", 1, 20_000, 50_000, false, EPOLL_WAIT),
    shape("an unread loop", 1, 20_000, 50_000, true, EPOLL_WAIT),
    shape("a lock", 50, 4_000, 0, false, FUTEX),
    shape("a lock of an unread pool", 50, 2_000, 1_000, true, FUTEX),
];

impl Shape {
    /// To follow a path through locks takes longest.
    fn requests(self) -> u32 {
        if self.syscall == FUTEX { 200 } else { 1_500 }
    }
}

const fn shape(
    name: &'static str,
    threads: u32,
    waits: u64,
    rows: u64,
    unread: bool,
    syscall: u32,
) -> Shape {
    Shape {
        name,
        threads,
        waits,
        rows,
        unread,
        syscall,
    }
}

pub(crate) fn record(dir: &Path, shape: Shape) {
    let mut meta = Meta {
        whywait: "0.1.0".to_owned(),
        started_ns: START_NS,
        ended_ns: Some(START_NS + LENGTH_NS),
        pid: Some(TGID),
        command: vec!["server".to_owned()],
        ..Meta::default()
    };
    meta.options.threshold_ns = 1_000_000;
    meta.host.cpus = 8;
    let mut writer = Writer::create(dir, &meta).expect("writable");
    let mut write = |event: Event| writer.write(&event).expect("writable");
    write(Event::Module(Module {
        id: 1,
        kind: ModuleKind::Elf,
        path: "/bin/server".to_owned(),
        ..Module::default()
    }));
    for (id, name) in [(1, "work"), (2, "epoll_wait"), (3, "pthread_mutex_lock")] {
        let frame = Frame {
            module: 1,
            address: u64::from(id),
        };
        write(Event::Stack(Stack {
            id,
            truncated: false,
            frames: vec![frame],
        }));
        write(Event::Symbol(Symbol {
            frame,
            name: name.to_owned(),
            ..Symbol::default()
        }));
    }
    let threads = TGID..TGID + shape.threads;
    for tid in threads.clone() {
        write(Event::Thread(ThreadEvent {
            at_ns: START_NS,
            tid,
            tgid: TGID,
            parent_tid: 0,
            change: ThreadChange::Found,
            comm: "worker".to_owned(),
            command: String::new(),
        }));
    }
    for tid in threads.clone() {
        let step = LENGTH_NS / shape.waits;
        for n in 0..shape.waits {
            let out_ns = START_NS + n * step;
            let stack = match shape.syscall {
                EPOLL_WAIT => 2,
                FUTEX => 3,
                _ => 1,
            };
            write(Event::Wait(Wait {
                tid,
                tgid: TGID,
                seq: n as u32,
                out_ns,
                wake_ns: Some(out_ns + step / 2),
                in_ns: Some(out_ns + step / 2 + 10),
                syscall: Some(shape.syscall),
                args: [0x7000, 0, 2],
                wake_context: WakeContext::Task,
                waker_tid: TGID + (tid - TGID + 1) % shape.threads,
                waker_tgid: TGID,
                epoll: u32::from(shape.syscall == EPOLL_WAIT),
                user_stack: stack,
                kernel_stack: 0,
                waker_stack: 1,
                ..Wait::default()
            }));
        }
        if let Some(step) = LENGTH_NS.checked_div(shape.rows) {
            for n in 0..shape.rows {
                let at = START_NS + n * step;
                write(Event::Busy(Busy {
                    tid,
                    tgid: TGID,
                    start_ns: at,
                    end_ns: START_NS + LENGTH_NS,
                    on_cpu_ns: LENGTH_NS,
                    runnable_ns: 0,
                }));
                write(Event::Sample(Sample {
                    at_ns: at,
                    tid,
                    tgid: TGID,
                    cpu: 0,
                    user_stack: 1,
                    kernel_stack: 0,
                    periods: 1,
                }));
                write(Event::Preempted(Preempted {
                    tid,
                    tgid: TGID,
                    out_ns: at,
                    in_ns: at + step / 2,
                }));
            }
        }
    }
    for n in 0..shape.requests() {
        let ready_ns = START_NS + u64::from(n);
        let end_ns = START_NS + LENGTH_NS - u64::from(n);
        let tid = TGID + n % shape.threads;
        write(Event::Request(Request {
            socket: u64::from(n) + 1,
            seq: 1,
            tgid: TGID,
            ready_ns,
            recv_ns: Some(if shape.unread { end_ns - 1 } else { ready_ns }),
            first_send_ns: Some(end_ns),
            last_send_ns: Some(end_ns),
            recv_tid: tid,
            send_tid: tid,
            bytes_in: 1,
            bytes_out: 1,
            fd: 5,
            epoll: 1,
            read_armed: Some(true),
            local_port: 80,
            ..Request::default()
        }));
    }
    writer.finish(&meta).expect("writable");
}
