//! Makes up the events of a server: deterministic, so that what is measured and what is documented
//! stays put.

use whywait_events::{
    Busy, Event, Frame, FutexSum, Module, ModuleKind, Ns, Part, Parts, Request, Sample, Stack,
    Symbol, ThreadChange, ThreadEvent, Wait, WakeContext,
};

/// Threads of the server: one that accepts, the workers, one that syncs a log.
const WORKERS: u32 = 8;
const TGID: u32 = 4000;
const STACKS: u32 = 200;

/// A server whose workers sleep in epoll and in futexes, with the clock moving on.
pub(crate) struct Server {
    random: u64,
    now: Ns,
    /// For each thread that waits, the wait it is in.
    waits: Vec<Wait>,
    requests: u32,
}

impl Server {
    /// A new one; the same `seed` gives the same events.
    pub(crate) fn new(seed: u64) -> Self {
        let now = 5_000_000_000_000;
        let mut server = Self {
            random: seed | 1,
            now,
            waits: Vec::new(),
            requests: 0,
        };
        for index in 1..WORKERS + 2 {
            let tid = TGID + index;
            let started = Wait {
                tid,
                in_ns: Some(now),
                ..Wait::default()
            };
            let wait = server.wait_after(&started);
            server.waits.push(wait);
        }
        server
    }

    /// The time of the last event.
    #[allow(dead_code, reason = "each example takes what it needs of this module")]
    pub(crate) fn now(&self) -> Ns {
        self.now
    }

    /// What comes before the first event: threads, modules, stacks and symbols.
    #[allow(dead_code, reason = "each example takes what it needs of this module")]
    pub(crate) fn preamble(&mut self) -> Vec<Event> {
        let mut events = Vec::new();
        for index in 0..WORKERS + 2 {
            let comm = match index {
                0 => "acceptor".to_owned(),
                n if n <= WORKERS => "worker".to_owned(),
                _ => "log-sync".to_owned(),
            };
            let change = ThreadChange::Found;
            let (tid, at_ns) = (TGID + index, self.now);
            events.push(Event::Thread(ThreadEvent {
                at_ns,
                tid,
                tgid: TGID,
                parent_tid: 0,
                change,
                comm,
                command: String::new(),
            }));
        }
        for (id, kind, path) in [
            (1, ModuleKind::Elf, "/usr/bin/server"),
            (2, ModuleKind::Elf, "/usr/lib/x86_64-linux-gnu/libc.so.6"),
            (3, ModuleKind::Kernel, "[kernel]"),
        ] {
            let build_id = format!(
                "{:040x}",
                u128::from(self.next()) << 64 | u128::from(self.next())
            );
            events.push(Event::Module(Module {
                id,
                kind,
                build_id,
                path: path.to_owned(),
            }));
        }
        for id in 1..=STACKS {
            let frames: Vec<Frame> = (0..10 + self.below(30))
                .map(|depth| match depth {
                    0 => Frame {
                        module: 2,
                        address: 0x10_0000 + self.below(20) * 64,
                    },
                    _ => Frame {
                        module: 1,
                        address: 0x40_0000 + self.below(2000) * 64,
                    },
                })
                .collect();
            events.push(Event::Stack(Stack {
                id,
                truncated: self.below(10) == 0,
                frames,
            }));
        }
        for function in 0..2000u64 {
            let frame = Frame {
                module: 1,
                address: 0x40_0000 + function * 64,
            };
            let (name, file) = (
                format!("server::handler{}::step{function}", function % 40),
                "src/handler.rs",
            );
            let line = 10 + function as u32;
            events.push(Event::Symbol(Symbol {
                frame,
                depth: 0,
                name,
                file: file.to_owned(),
                line,
            }));
        }
        for function in 0..20u64 {
            let frame = Frame {
                module: 2,
                address: 0x10_0000 + function * 64,
            };
            let name = format!("libc_call_{function}");
            events.push(Event::Symbol(Symbol {
                frame,
                depth: 0,
                name,
                file: String::new(),
                line: 0,
            }));
        }
        events
    }

    /// The next wait: as the capture makes it, at the moment the thread is back on a CPU.
    pub(crate) fn wait(&mut self) -> Wait {
        let ends = Wait::end_ns;
        let index = (0..self.waits.len())
            .min_by_key(|index| ends(&self.waits[*index]))
            .unwrap_or(0);
        let next = self.wait_after(&self.waits[index].clone());
        let wait = std::mem::replace(&mut self.waits[index], next);
        self.now = self.now.max(ends(&wait));
        wait
    }

    /// What the same thread does after a wait.
    fn wait_after(&mut self, last: &Wait) -> Wait {
        let tid = last.tid;
        let segment_on_cpu_ns = 20_000 + self.exponential(60_000);
        let segment_runnable_ns = if self.below(3) == 0 {
            self.exponential(5_000)
        } else {
            0
        };
        let short_sleeps = self.below(5);
        let asleep_shortly = short_sleeps * self.exponential(200_000);
        let out_ns = last.in_ns.unwrap_or(self.now)
            + segment_on_cpu_ns
            + segment_runnable_ns
            + asleep_shortly;
        let wake_ns = out_ns + 1_000_000 + self.exponential(1_000_000) * (1 + self.below(20));
        let mut segment = Parts::default();
        (segment[Part::OnCpu], segment[Part::Runnable]) = (segment_on_cpu_ns, segment_runnable_ns);
        segment[Part::Network] = asleep_shortly;
        let mut wait = Wait {
            tid,
            tgid: TGID,
            seq: last.seq + 1 + short_sleeps as u32,
            out_ns,
            wake_ns: Some(wake_ns),
            in_ns: Some(wake_ns + 2_000 + self.exponential(4_000)),
            segment,
            ..Wait::default()
        };
        if tid > TGID + WORKERS {
            // fsync.
            (wait.syscall, wait.args) = (Some(74), [9, 0, 0]);
            (wait.uninterruptible, wait.io_wait) = (true, true);
            (wait.wake_context, wait.user_stack, wait.kernel_stack) =
                (WakeContext::Hardirq, 2, 190);
        } else if self.below(10) < 6 {
            // epoll_wait.
            let events = 0x7f12_3400_0000 + u64::from(tid) * 0x1000;
            (wait.syscall, wait.args) = (Some(232), [5, events, 1024]);
            (wait.wake_context, wait.epoll, wait.user_stack) = (WakeContext::Softirq, 1, 1);
        } else {
            // futex: a mutex, taken in several places, else the word on which the thread parks.
            let word = match self.below(3) {
                0 => 0x7f12_5000_0040,
                _ => 0x7f12_6000_0000 + u64::from(tid) * 0x40,
            };
            (wait.syscall, wait.args) = (Some(202), [word, 128, 2]);
            (wait.wake_context, wait.waker_tgid) = (WakeContext::Task, TGID);
            wait.waker_tid = TGID + 1 + self.below(u64::from(WORKERS)) as u32;
            wait.user_stack = 3 + self.below(8) as u32;
        }
        wait
    }

    /// The next sample.
    pub(crate) fn sample(&mut self) -> Sample {
        self.now += self.exponential(100_000);
        Sample {
            at_ns: self.now,
            tid: TGID + 1 + self.below(u64::from(WORKERS)) as u32,
            tgid: TGID,
            cpu: self.below(2) as u32,
            user_stack: 1 + self.below(u64::from(STACKS)) as u32,
            kernel_stack: if self.below(3) == 0 { 190 } else { 0 },
            periods: 1,
        }
    }

    /// The next slow request.
    pub(crate) fn request(&mut self) -> Request {
        self.now += self.exponential(500_000);
        self.requests += 1;
        let (unserved, on_cpu, disk) = (
            self.exponential(400_000),
            self.exponential(300_000),
            self.exponential(2_000_000),
        );
        let ready_ns = self.now - 60_000_000;
        let recv_ns = ready_ns + unserved;
        let sent_ns = recv_ns + on_cpu + disk;
        let tid = TGID + 1 + self.below(u64::from(WORKERS)) as u32;
        let mut service = Parts::default();
        (service[Part::OnCpu], service[Part::Disk]) = (on_cpu, disk);
        Request {
            socket: 100 + self.below(50),
            seq: self.requests,
            tgid: TGID,
            ready_ns,
            recv_ns: Some(recv_ns),
            first_send_ns: Some(sent_ns - 1_000),
            last_send_ns: Some(sent_ns),
            recv_tid: tid,
            send_tid: tid,
            bytes_in: 80 + self.below(40),
            bytes_out: 500 + self.below(4000),
            fd: 10 + self.below(50) as i32,
            epoll: 1,
            read_armed: Some(true),
            before_accept: self.below(20) == 0,
            local_port: if self.below(5) == 0 { 8443 } else { 8080 },
            unserved_wakeup_ns: unserved / 10,
            service,
            ..Request::default()
        }
    }

    /// The short sleeps on each lock.
    #[allow(dead_code, reason = "each example takes what it needs of this module")]
    pub(crate) fn futexes(&mut self) -> Vec<Event> {
        (0..4)
            .map(|lock| {
                let count = 1 + self.below(10_000);
                Event::Futex(FutexSum {
                    tgid: TGID,
                    address: 0x7f00_0000_1000 + lock * 64,
                    count,
                    total_ns: count * 40_000,
                    longest_ns: 900_000,
                    mapping: "[heap]".to_owned(),
                })
            })
            .collect()
    }

    /// The next busy interval.
    pub(crate) fn busy(&mut self) -> Busy {
        self.now += self.exponential(2_000_000);
        let on_cpu_ns = 1_000_000 + self.exponential(3_000_000);
        let runnable_ns = self.exponential(100_000);
        Busy {
            tid: TGID + 1,
            tgid: TGID,
            start_ns: self.now - on_cpu_ns - runnable_ns,
            end_ns: self.now,
            on_cpu_ns,
            runnable_ns,
        }
    }

    fn next(&mut self) -> u64 {
        // xorshift64*, for which nothing need be installed.
        self.random ^= self.random >> 12;
        self.random ^= self.random << 25;
        self.random ^= self.random >> 27;
        self.random.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }

    fn exponential(&mut self, mean: u64) -> u64 {
        let unit = (self.next() >> 11) as f64 / (1u64 << 53) as f64;
        (-(1.0 - unit).ln() * mean as f64) as u64
    }
}
