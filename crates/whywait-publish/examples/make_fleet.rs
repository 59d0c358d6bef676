//! Writes the recordings of a made-up fleet, always the same: what the queries of `docs/fleet.md`
//! are tested with.
//!
//! ```text
//! cargo run -p whywait-publish --example make_fleet -- DIR HOSTS HOURS
//! ```
//!
//! Each host records by the hour, from midnight on 2026-03-02. In the second half of the day every
//! other host has release 1.5 instead of 1.4, which holds the cart's lock across a sync. Its
//! recordings go to `DIR/1.5`, the others to `DIR/1.4`. Some lost events, and every fourth host
//! went down once.

use std::error::Error;
use std::fs;
use std::path::Path;

use whywait_events::recording::{Host, Meta, RecordingOptions, Writer};
use whywait_events::{
    Event, Exchange, Frame, Module, ModuleKind, Ns, Part, Parts, PeerSums, Request, Sample, Stack,
    StackId, Symbol, ThreadChange, ThreadEvent, Wait, WakeContext,
};

const MIDNIGHT_NS: u64 = 1_772_409_600_000_000_000;
const HOUR_NS: u64 = 3_600_000_000_000;
const MS: u64 = 1_000_000;
const TGID: u32 = 4000;
const HANDLERS: u32 = 4;
/// Rounds of an hour, in each of which each handler has a request.
const ROUNDS: u64 = 60;
/// Requests of an hour that are too fast for a row.
const FAST: u64 = 10_000;
const FUTEX: u32 = 202;
const FSYNC: u32 = 74;
const RECVFROM: u32 = 45;

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().collect();
    let [_, dir, hosts, hours] = args.as_slice() else {
        return Err("usage: make_fleet DIR HOSTS HOURS".into());
    };
    let (hosts, hours): (u64, u64) = (hosts.parse()?, hours.parse()?);
    for host in 0..hosts {
        for hour in 0..hours {
            let slow = host % 2 == 1 && hour >= hours / 2;
            let release = if slow { "1.5" } else { "1.4" };
            let folder = Path::new(dir).join(release);
            fs::create_dir_all(&folder)?;
            record(
                &folder.join(format!("web-{host:02}-{hour:02}")),
                host,
                hour,
                slow,
            )?;
        }
    }
    Ok(())
}

/// An hour of a host.
fn record(dir: &Path, host: u64, hour: u64, slow: bool) -> Result<(), Box<dyn Error>> {
    // A few seconds after the full hour, as a recorder begins.
    let wall_ns = MIDNIGHT_NS + hour * HOUR_NS + 2_000_000_000;
    let started_ns = 7_000_000_000_000 + host * 1_000_003 + hour * HOUR_NS;
    let ended_ns = started_ns + HOUR_NS - 3_000_000_000;
    let meta = Meta {
        whywait: env!("CARGO_PKG_VERSION").to_owned(),
        started_wall_unix_ns: wall_ns,
        started_ns,
        ended_ns: Some(ended_ns),
        host: Host {
            hostname: format!("web-{host:02}"),
            kernel: "6.18.0".to_owned(),
            arch: "x86_64".to_owned(),
            cpus: 4,
            memory_bytes: 8 << 30,
        },
        command: vec!["/opt/shop/bin/shop".to_owned(), "--port=8080".to_owned()],
        pid: Some(TGID),
        options: RecordingOptions {
            threshold_ns: MS,
            stack_bytes: 8192,
            sample_hz: 99,
            detail: "waits".to_owned(),
        },
        ..Meta::default()
    };
    let mut hours = Hour {
        writer: Writer::create(dir, &meta)?,
        random: (host << 16 | hour) * 2 + 1,
        started_ns,
        seq: 0,
        slow_calls: 0,
        slow_call_ns: 0,
    };
    hours.preamble()?;
    for round in 0..ROUNDS {
        let at_ns = started_ns + (round + 1) * 55_000 * MS;
        hours.round(at_ns, round, slow)?;
        // One machine went down.
        if (host % 4, hour, round) == (3, 1, 40) {
            hours.peer()?;
            hours.counters();
            hours.writer.roll()?;
            return Ok(());
        }
    }
    hours.peer()?;
    hours.counters();
    hours.writer.finish(&meta)?;
    Ok(())
}

/// The stacks, by what they are in.
const WAITING_DB: StackId = 1;
const LOCKING: StackId = 2;
const SYNCING: StackId = 3;
const PRICING: StackId = 4;
const RENDERING: StackId = 5;

/// Functions outermost first, of each stack.
const STACKS: &[&[&str]] = &[
    &["main", "shop::serve", "shop::orders::load", "recv"],
    &[
        "main",
        "shop::serve",
        "shop::cart::add",
        "pthread_mutex_lock",
        "__lll_lock_wait",
    ],
    &[
        "main",
        "shop::serve",
        "shop::cart::add",
        "shop::cart::append_log",
        "fsync",
    ],
    &["main", "shop::serve", "shop::prices::total"],
    &["main", "shop::serve", "shop::pages::render"],
];

struct Hour {
    writer: Writer,
    random: u64,
    started_ns: Ns,
    seq: u32,
    slow_calls: u64,
    slow_call_ns: u64,
}

type Written = Result<(), whywait_events::recording::WriteError>;

impl Hour {
    fn preamble(&mut self) -> Written {
        for index in 0..=HANDLERS {
            let comm = match index {
                0 => "shop".to_owned(),
                index => format!("handler-{index}"),
            };
            self.writer.write(&Event::Thread(ThreadEvent {
                at_ns: self.started_ns,
                tid: TGID + index,
                tgid: TGID,
                parent_tid: 0,
                change: ThreadChange::Found,
                comm,
                command: String::new(),
            }))?;
        }
        self.writer.write(&Event::Module(Module {
            id: 1,
            kind: ModuleKind::Elf,
            build_id: "5f0e1d2c3b4a59687766554433221100ffeeddcc".to_owned(),
            path: "/opt/shop/bin/shop".to_owned(),
        }))?;
        self.writer.write(&Event::Module(Module {
            id: 2,
            kind: ModuleKind::Elf,
            build_id: String::new(),
            path: "/usr/lib/x86_64-linux-gnu/libc.so.6".to_owned(),
        }))?;
        let mut names: Vec<&str> = STACKS
            .iter()
            .flat_map(|stack| stack.iter().copied())
            .collect();
        names.sort_unstable();
        names.dedup();
        let frame = |name: &str| Frame {
            module: if name.contains("shop") || name == "main" {
                1
            } else {
                2
            },
            address: 0x40_0000
                + 64 * names.iter().position(|other| *other == name).unwrap_or(0) as u64,
        };
        for name in &names {
            self.writer.write(&Event::Symbol(Symbol {
                frame: frame(name),
                depth: 0,
                name: (*name).to_owned(),
                file: String::new(),
                line: 0,
            }))?;
        }
        for (id, functions) in (1..).zip(STACKS) {
            self.writer.write(&Event::Stack(Stack {
                id,
                truncated: false,
                frames: functions.iter().rev().map(|name| frame(name)).collect(),
            }))?;
        }
        Ok(())
    }

    /// Each handler has a request at the same time: it asks the database, prices, and writes to the
    /// cart's log, with the lock where the release is the slow one.
    fn round(&mut self, at_ns: Ns, round: u64, slow: bool) -> Written {
        let fsync_ns = 8 * MS + self.below(4 * MS);
        let mut locked_until_ns = 0;
        for handler in 1..=HANDLERS {
            let tid = TGID + handler;
            let read_ns = at_ns + 20_000 + self.below(50_000);
            let called_ns = read_ns + 100_000;
            let replied_ns = called_ns + 3 * MS + self.below(3 * MS);
            self.call(tid, called_ns, replied_ns)?;
            self.sleep(tid, RECVFROM, WAITING_DB, called_ns, replied_ns, 0)?;
            let mut now_ns = replied_ns + 200_000;
            if slow && now_ns < locked_until_ns {
                self.sleep(tid, FUTEX, LOCKING, now_ns, locked_until_ns, tid - 1)?;
                now_ns = locked_until_ns + 2_000;
            }
            let synced_ns = now_ns + 50_000 + if slow { fsync_ns } else { fsync_ns / 4 };
            self.sleep(tid, FSYNC, SYNCING, now_ns + 50_000, synced_ns, 0)?;
            locked_until_ns = synced_ns + 10_000;
            let answered_ns = locked_until_ns + 100_000 + self.below(100_000);
            self.request(tid, round, at_ns, read_ns, answered_ns)?;
            for _ in 0..4 {
                self.sample(tid, answered_ns)?;
            }
        }
        Ok(())
    }

    fn sleep(
        &mut self,
        tid: u32,
        syscall: u32,
        stack: StackId,
        out_ns: Ns,
        wake_ns: Ns,
        waker: u32,
    ) -> Written {
        self.seq += 1;
        let mut segment = Parts::default();
        segment[Part::OnCpu] = 100_000;
        let mut wait = Wait {
            tid,
            tgid: TGID,
            seq: self.seq,
            out_ns,
            wake_ns: Some(wake_ns),
            in_ns: Some(wake_ns + 5_000),
            syscall: Some(syscall),
            args: [9, 0, 0],
            user_stack: stack,
            segment,
            wake_context: WakeContext::Softirq,
            ..Wait::default()
        };
        if syscall == FUTEX {
            wait.args = [0x7f00_1000, 128, 2];
            (wait.wake_context, wait.waker_tid, wait.waker_tgid) = (WakeContext::Task, waker, TGID);
        }
        if syscall == FSYNC {
            (wait.uninterruptible, wait.io_wait) = (true, true);
            wait.wake_context = WakeContext::Hardirq;
        }
        self.writer.write(&Event::Wait(wait))
    }

    fn request(&mut self, tid: u32, round: u64, at_ns: Ns, read_ns: Ns, sent_ns: Ns) -> Written {
        let mut service = Parts::default();
        service[Part::OnCpu] = sent_ns - read_ns;
        self.writer.write(&Event::Request(Request {
            socket: u64::from(tid),
            seq: round as u32 + 1,
            tgid: TGID,
            ready_ns: at_ns,
            recv_ns: Some(read_ns),
            first_send_ns: Some(sent_ns),
            last_send_ns: Some(sent_ns),
            recv_tid: tid,
            send_tid: tid,
            bytes_in: 90,
            bytes_out: 1200,
            fd: tid as i32 - 3900,
            local_port: 8080,
            service,
            ..Request::default()
        }))
    }

    fn call(&mut self, tid: u32, sent_ns: Ns, read_ns: Ns) -> Written {
        self.slow_calls += 1;
        self.slow_call_ns += read_ns - sent_ns;
        self.writer.write(&Event::Exchange(Exchange {
            socket: 1000 + u64::from(tid),
            seq: self.slow_calls as u32,
            tgid: TGID,
            fd: 9,
            peer: 1,
            first_send_ns: sent_ns,
            last_send_ns: sent_ns,
            arrived_ns: Some(read_ns - 10_000),
            first_read_ns: Some(read_ns),
            last_read_ns: Some(read_ns),
            send_tid: tid,
            read_tid: tid,
            bytes_out: 80,
            bytes_in: 900,
            ..Exchange::default()
        }))
    }

    fn sample(&mut self, tid: u32, before_ns: Ns) -> Written {
        let stack = if self.below(3) == 0 {
            PRICING
        } else {
            RENDERING
        };
        let at_ns = before_ns - self.below(90_000);
        let periods = 1 + self.below(4) as u32;
        self.writer.write(&Event::Sample(Sample {
            at_ns,
            tid,
            tgid: TGID,
            cpu: tid % 4,
            user_stack: stack,
            kernel_stack: 0,
            periods,
        }))
    }

    fn peer(&mut self) -> Written {
        let bucket = 8 * (22 - 2);
        self.writer.write(&Event::Peer(Box::new(PeerSums {
            id: 1,
            address: "10.0.0.7".to_owned(),
            port: 5432,
            count: self.slow_calls,
            slow: self.slow_calls,
            total_ns: self.slow_call_ns,
            max_ns: 6 * MS,
            first_ns: self.slow_call_ns,
            unread_ns: self.slow_calls * 10_000,
            bytes_out: self.slow_calls * 80,
            bytes_in: self.slow_calls * 900,
            connections: u64::from(HANDLERS),
            most_in_flight: Some(HANDLERS),
            latency: [(bucket, self.slow_calls)].into(),
            ..PeerSums::default()
        })))
    }

    /// What the kernel side counted of the requests that were fast.
    fn counters(&mut self) {
        let each_ns = 200_000 + self.below(100_000);
        let fast = FAST + self.below(FAST / 10);
        // 2^17 to 2^18 ns: eight buckets from 8 * (17 - 2) on.
        for bucket in 0..8 {
            let share = if bucket == 7 {
                fast - 7 * (fast / 8)
            } else {
                fast / 8
            };
            self.writer
                .counter(&format!("latency.bucket.{}", 120 + bucket), share);
        }
        for (name, value) in [
            ("requests.count", fast),
            ("requests.total-ns", fast * each_ns),
            ("requests.max-ns", 262_000),
            ("requests.unserved-ns", fast * 20_000),
            ("requests.unserved-wakeup-ns", fast * 5_000),
            ("requests.service.on-cpu", fast * (each_ns - 40_000)),
            ("requests.service.network", fast * 20_000),
            ("events", fast * 8),
            ("waits.ended", u64::from(self.seq)),
            ("exchanges.over-budget", 0),
            ("lost.ring-full", if self.random % 16 == 3 { 12 } else { 0 }),
        ] {
            self.writer.counter(name, value);
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
}
