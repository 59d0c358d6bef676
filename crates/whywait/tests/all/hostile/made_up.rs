//! Recordings of made-up events: a different one for each seed, and the same for the same seed.

use std::path::Path;

use whywait_events::recording::{Meta, Writer, WriterOptions};
use whywait_events::{
    Busy, Event, Exchange, Frame, Module, ModuleKind, Part, Parts, PeerSums, Request, Sample,
    Stack, Symbol, ThreadChange, ThreadEvent, Wait, WakeContext, WorkKind,
};

use super::NAME;

/// Makes up events. `extreme`: also with numbers that no machine makes.
pub(crate) fn made_up(seed: u64, extreme: bool) -> MadeUp {
    MadeUp {
        random: Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1),
        extreme,
    }
}

/// Numbers that look random and are the same each time (xorshift).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub(crate) fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    pub(crate) fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())].clone()
    }
}

/// The source of events.
pub(crate) struct MadeUp {
    random: Random,
    extreme: bool,
}

impl MadeUp {
    fn time(&mut self) -> u64 {
        let usual = 5_000_000_000 + self.random.next() % 3_000_000_000;
        if !self.extreme {
            return usual;
        }
        let odd = [
            0,
            1,
            999_999,
            u64::MAX,
            u64::MAX - 1,
            i64::MAX as u64,
            i64::MAX as u64 + 1,
            1 << 53,
        ];
        if self.random.below(2) == 0 {
            usual
        } else {
            self.random.pick(&odd)
        }
    }

    fn maybe(&mut self) -> Option<u64> {
        (self.random.below(4) > 0).then(|| self.time())
    }

    /// A length of time, or another number.
    fn ns(&mut self) -> u64 {
        if self.extreme {
            self.time()
        } else {
            self.random.next() % 3_000_000_000
        }
    }

    fn tid(&mut self) -> u32 {
        let odd = [0, 1, u32::MAX, i32::MAX as u32];
        if self.extreme && self.random.below(8) == 0 {
            self.random.pick(&odd)
        } else {
            100 + self.random.below(6) as u32
        }
    }

    fn id(&mut self) -> u32 {
        let odd = [0, 7_000, u32::MAX, i32::MAX as u32];
        if self.extreme && self.random.below(4) == 0 {
            self.random.pick(&odd)
        } else {
            self.random.below(9) as u32
        }
    }

    fn parts(&mut self) -> Parts {
        let mut parts = Parts::default();
        for part in Part::ALL {
            parts[part] = if self.random.below(3) == 0 {
                self.ns()
            } else {
                0
            };
        }
        parts
    }

    fn name(&mut self) -> String {
        let names = [
            "worker",
            "",
            NAME,
            "a\nb",
            "\u{9b}31m",
            "tokio-runtime-w",
            "sleep",
            "epoll_wait",
        ];
        let name = self.random.pick(&names).to_owned();
        if self.extreme && self.random.below(50) == 0 {
            "long ".repeat(20_000)
        } else {
            name
        }
    }

    fn event(&mut self) -> Event {
        let tgid = if self.extreme { self.tid() } else { 100 };
        match self.random.below(27) {
            0 => Event::Thread(self.thread(tgid)),
            1 => Event::Stack(self.stack()),
            2 => Event::Module(self.module()),
            3 => Event::Symbol(self.symbol()),
            4..=6 => Event::Sample(self.sample(tgid)),
            7..=9 => Event::Busy(self.busy(tgid)),
            10..=13 => Event::Request(self.request(tgid)),
            14 => Event::Peer(Box::new(self.peer())),
            15..=16 => Event::Exchange(self.exchange(tgid)),
            _ => Event::Wait(self.wait(tgid)),
        }
    }

    fn thread(&mut self, tgid: u32) -> ThreadEvent {
        ThreadEvent {
            at_ns: self.time(),
            tid: self.tid(),
            tgid,
            parent_tid: self.tid(),
            change: self.random.pick(&[
                ThreadChange::Found,
                ThreadChange::Fork,
                ThreadChange::Exec,
                ThreadChange::Rename,
                ThreadChange::Exit,
            ]),
            comm: self.name(),
            command: self.name(),
        }
    }

    fn stack(&mut self) -> Stack {
        Stack {
            id: self.id(),
            truncated: self.random.below(2) == 0,
            frames: (0..self.random.below(12))
                .map(|_| Frame {
                    module: self.id(),
                    address: self.ns(),
                })
                .collect(),
        }
    }

    fn module(&mut self) -> Module {
        Module {
            id: self.id(),
            kind: self.random.pick(&[
                ModuleKind::Elf,
                ModuleKind::Kernel,
                ModuleKind::Jit,
                ModuleKind::Python,
                ModuleKind::Unknown,
            ]),
            build_id: self.name(),
            path: self.name(),
        }
    }

    fn symbol(&mut self) -> Symbol {
        Symbol {
            frame: Frame {
                module: self.id(),
                address: self.ns(),
            },
            depth: self.id() as u16,
            name: self.name(),
            file: self.name(),
            line: self.id(),
        }
    }

    fn sample(&mut self, tgid: u32) -> Sample {
        Sample {
            at_ns: self.time(),
            tid: self.tid(),
            tgid,
            cpu: self.id(),
            user_stack: self.id(),
            kernel_stack: self.id(),
            periods: self.id(),
        }
    }

    fn busy(&mut self, tgid: u32) -> Busy {
        Busy {
            tid: self.tid(),
            tgid,
            start_ns: self.time(),
            end_ns: self.time(),
            on_cpu_ns: self.ns(),
            runnable_ns: self.ns(),
        }
    }

    fn request(&mut self, tgid: u32) -> Request {
        let service = self.parts();
        Request {
            socket: self.random.next() % 4,
            seq: self.id(),
            tgid,
            ready_ns: self.time(),
            recv_ns: self.maybe(),
            first_send_ns: self.maybe(),
            last_send_ns: self.maybe(),
            ended_ns: self.maybe(),
            gone_ns: self.maybe(),
            recv_tid: self.tid(),
            send_tid: self.tid(),
            bytes_in: self.ns(),
            bytes_out: self.ns(),
            fd: self.id() as i32,
            epoll: self.id(),
            read_armed: self.random.pick(&[None, Some(true), Some(false)]),
            before_accept: self.random.below(2) == 0,
            unaccepted: self.random.below(4) == 0,
            since_before: self.random.below(8) == 0,
            multiplexed: self.random.below(8) == 0,
            own: self.random.below(8) == 0,
            kind: self.random.pick(&[
                WorkKind::Stream,
                WorkKind::Datagram,
                WorkKind::Http2,
                WorkKind::Job,
                WorkKind::HandedJob,
            ]),
            broker: self.id(),
            handed_by: self.tid(),
            local_port: self.id() as u16,
            unserved_wakeup_ns: self.ns(),
            service,
            taken_ns: self.maybe(),
            recv_task: self.random.below(4) as u32,
            send_task: self.random.below(4) as u32,
        }
    }

    fn peer(&mut self) -> PeerSums {
        PeerSums {
            id: self.id(),
            address: self.name(),
            port: self.id() as u16,
            tgid: self.tid(),
            process: self.name(),
            count: self.ns(),
            slow: self.ns(),
            unanswered: self.ns(),
            total_ns: self.ns(),
            max_ns: self.ns(),
            sending_ns: self.ns(),
            first_ns: self.ns(),
            unread_ns: self.ns(),
            bytes_out: self.ns(),
            bytes_in: self.ns(),
            connections: self.ns(),
            connects: self.ns(),
            connect_ns: self.ns(),
            failed: self.ns(),
            retried: self.ns(),
            retried_ns: self.ns(),
            rtt_min_us: self.ns(),
            retransmits: self.ns(),
            most_in_flight: Some(self.id()),
            most_open: None,
            latency: [(0, self.ns()), (300, self.ns()), (511, self.ns())].into(),
        }
    }

    fn exchange(&mut self, tgid: u32) -> Exchange {
        Exchange {
            socket: self.random.next() % 4,
            seq: self.id(),
            tgid,
            fd: self.id() as i32,
            peer: self.id(),
            first_send_ns: self.time(),
            last_send_ns: self.time(),
            arrived_ns: self.maybe(),
            first_read_ns: self.maybe(),
            last_read_ns: self.maybe(),
            gone_ns: self.maybe(),
            connect_ns: self.maybe(),
            connected_ns: self.maybe(),
            send_tid: self.tid(),
            read_tid: self.tid(),
            task: self.random.below(4) as u32,
            bytes_out: self.ns(),
            bytes_in: self.ns(),
            srtt_us: self.id(),
            rtt_min_us: self.id(),
            retransmits: self.id(),
            kind: self
                .random
                .pick(&[WorkKind::Stream, WorkKind::Http2, WorkKind::Job]),
        }
    }

    fn wait(&mut self, tgid: u32) -> Wait {
        Wait {
            tid: self.tid(),
            tgid,
            seq: self.id(),
            out_ns: self.time(),
            wake_ns: self.maybe(),
            in_ns: self.maybe(),
            since_before: self.random.below(8) == 0,
            syscall: self.random.pick(&[
                None,
                Some(0),
                Some(7),
                Some(202),
                Some(230),
                Some(232),
                Some(281),
                Some(426),
                Some(u32::MAX),
            ]),
            args: [self.ns(), self.ns(), self.ns()],
            timeout: self.random.below(4) == 0,
            owner_tid: self.tid(),
            lock: self.ns(),
            holds: self.ns(),
            uninterruptible: self.random.below(4) == 0,
            io_wait: self.random.below(4) == 0,
            wake_context: self.random.pick(&[
                WakeContext::Unknown,
                WakeContext::Task,
                WakeContext::Softirq,
                WakeContext::Hardirq,
                WakeContext::Exit,
            ]),
            waker_tid: self.tid(),
            waker_tgid: self.tid(),
            epoll: self.id(),
            user_stack: self.id(),
            kernel_stack: self.id(),
            waker_stack: self.id(),
            segment: self.parts(),
        }
    }

    /// Writes a recording of that many events into `dir`.
    pub(crate) fn record(&mut self, dir: &Path, events: usize) {
        let mut meta = Meta {
            whywait: "0.1.0".to_owned(),
            started_ns: 5_000_000_000,
            ended_ns: Some(8_000_000_000),
            pid: Some(100),
            command: vec!["server".to_owned(), NAME.to_owned()],
            notes: vec![format!("note {NAME}\nline")],
            ..Meta::default()
        };
        meta.options.threshold_ns = 1_000_000;
        if self.extreme {
            meta.started_ns = self.time();
            meta.ended_ns = self.maybe();
            meta.options.threshold_ns = self.time();
            meta.pid = Some(self.tid());
        }
        let options = WriterOptions {
            rows_per_segment: events / 2 + 1,
            ..WriterOptions::default()
        };
        let mut writer = Writer::create_with(dir, &meta, options).expect("writable");
        for _ in 0..events {
            writer.write(&self.event()).expect("writable");
        }
        for name in [
            "events",
            "lost.ring-full",
            "requests.count",
            "requests.total-ns",
            "latency.bucket.40",
        ] {
            let value = self.ns();
            writer.counter(name, value);
        }
        for bucket in [0, 7, 511, 512, u64::MAX] {
            let value = self.ns();
            writer.counter(&format!("latency.bucket.{bucket}"), value);
        }
        for part in Part::ALL {
            let value = self.ns();
            writer.counter(&format!("requests.service.{}", part.name()), value);
        }
        writer.finish(&meta).expect("writable");
    }
}
