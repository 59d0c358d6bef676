//! What the tests of recordings share: arbitrary events, and a recording's rows in memory.

#![allow(dead_code, reason = "each test takes what it needs of this module")]

mod rings;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use proptest::collection::vec;
use proptest::prelude::*;
use whywait_events::recording::{Meta, Recording, Writer};
use whywait_events::uring::{Lag, Op, Ring, RingEvent, RingSample, Sum};
use whywait_events::*;

/// A folder for a test, removed with it.
pub(crate) fn scratch() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let path = folder.path().join("rec");
    (folder, path)
}

pub(crate) fn meta() -> Meta {
    Meta {
        schema: 1,
        whywait: "0.1.0".to_owned(),
        command: vec!["server".to_owned()],
        ..Meta::default()
    }
}

/// Writes a finished recording.
pub(crate) fn record(dir: &Path, events: &[Event]) {
    let mut writer = Writer::create(dir, &meta()).expect("a recording can be created");
    for event in events {
        writer.write(event).expect("an event can be written");
    }
    writer.counter("requests.count", 7);
    writer.finish(&meta()).expect("a recording can be finished");
}

/// Everything that a recording gives.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Contents {
    pub(crate) threads: Vec<ThreadEvent>,
    pub(crate) waits: Vec<Wait>,
    pub(crate) busy: Vec<Busy>,
    pub(crate) preempted: Vec<Preempted>,
    pub(crate) futexes: Vec<FutexSum>,
    pub(crate) cpu: Vec<Cpu>,
    pub(crate) sockets: Vec<SocketCpu>,
    pub(crate) bursts: Vec<Burst>,
    pub(crate) calls: Vec<BurstCall>,
    pub(crate) requests: Vec<Request>,
    pub(crate) samples: Vec<Sample>,
    pub(crate) rings: BTreeMap<u32, Ring>,
    pub(crate) ring_sums: BTreeMap<(u32, u32), Sum>,
    pub(crate) ring_ops: Vec<Op>,
    pub(crate) ring_samples: Vec<RingSample>,
    pub(crate) ring_lags: Vec<Lag>,
    pub(crate) stacks: BTreeMap<u32, (bool, Vec<Frame>)>,
    pub(crate) modules: BTreeMap<u32, Module>,
    pub(crate) symbols: BTreeMap<(Frame, u16), (String, String, u32)>,
}

impl Contents {
    /// What a recording of these events should give.
    pub(crate) fn of(events: &[Event]) -> Self {
        let mut contents = Self::default();
        for event in events.iter().cloned() {
            match event {
                Event::Thread(row) => contents.threads.push(row),
                Event::Wait(row) => contents.waits.push(row),
                Event::Busy(row) => contents.busy.push(row),
                Event::Preempted(row) => contents.preempted.push(row),
                Event::Futex(row) => contents.futexes.push(row),
                Event::Cpu(row) => contents.cpu.push(row),
                Event::SocketCpu(row) => contents.sockets.push(row),
                Event::Burst(row) => contents.bursts.push(row),
                Event::BurstCall(row) => contents.calls.push(row),
                Event::Request(row) => contents.requests.push(row),
                Event::Sample(row) => contents.samples.push(row),
                Event::Ring(RingEvent::Ring(row)) => {
                    contents.rings.insert(row.id, row);
                }
                Event::Ring(RingEvent::Sum(mut row)) => {
                    let key = (row.ring, row.opcode);
                    // Counts never fall, so that no bucket is ever empty again.
                    if let Some(before) = contents.ring_sums.remove(&key) {
                        for (bucket, count) in before.kernel {
                            row.kernel.entry(bucket).or_insert(count);
                        }
                        for (bucket, count) in before.unreaped {
                            row.unreaped.entry(bucket).or_insert(count);
                        }
                    }
                    contents.ring_sums.insert(key, *row);
                }
                Event::Ring(RingEvent::Op(row)) => contents.ring_ops.push(row),
                Event::Ring(RingEvent::Sample(row)) => contents.ring_samples.push(row),
                Event::Ring(RingEvent::Lag(row)) => contents.ring_lags.push(row),
                Event::Stack(row) => {
                    contents
                        .stacks
                        .entry(row.id)
                        .or_insert((row.truncated, row.frames));
                }
                Event::Module(row) => {
                    contents.modules.insert(row.id, row);
                }
                Event::Symbol(row) => {
                    contents
                        .symbols
                        .insert((row.frame, row.depth), (row.name, row.file, row.line));
                }
            }
        }
        contents
    }

    /// What the recording gives.
    pub(crate) fn read(recording: &Recording) -> Self {
        let mut contents = Self::default();
        let Self {
            threads,
            waits,
            busy,
            preempted,
            requests,
            samples,
            futexes,
            cpu,
            sockets,
            bursts,
            calls,
            ring_ops,
            ring_samples,
            ring_lags,
            ..
        } = &mut contents;
        recording
            .ring_ops(None, &mut |row| ring_ops.push(row.clone()))
            .expect("operations are read");
        recording
            .ring_samples(None, &mut |row| ring_samples.push(row.clone()))
            .expect("samples of rings are read");
        recording
            .ring_lags(None, &mut |row| ring_lags.push(row.clone()))
            .expect("lags are read");
        recording
            .threads(None, &mut |row| threads.push(row.clone()))
            .expect("threads are read");
        recording
            .waits(None, &mut |row| waits.push(row.clone()))
            .expect("waits are read");
        recording
            .busy(None, &mut |row| busy.push(row.clone()))
            .expect("busy stretches are read");
        recording
            .preempted(None, &mut |row| preempted.push(row.clone()))
            .expect("preemptions are read");
        recording
            .futexes(&mut |row| futexes.push(row.clone()))
            .expect("futexes are read");
        recording
            .cpu(&mut |row| cpu.push(row.clone()))
            .expect("CPU time is read");
        recording
            .sockets(&mut |row| sockets.push(row.clone()))
            .expect("connections are read");
        recording
            .bursts(&mut |row| bursts.push(row.clone()))
            .expect("bursts are read");
        recording
            .calls(&mut |row| calls.push(row.clone()))
            .expect("calls are read");
        recording
            .requests(None, &mut |row| requests.push(row.clone()))
            .expect("requests are read");
        recording
            .samples(None, &mut |row| samples.push(row.clone()))
            .expect("samples are read");
        (contents.rings, contents.ring_sums) = recording.rings().expect("rings are read");
        let stacks = recording.stacks().expect("stacks are read");
        for id in stacks.ids() {
            let frames = stacks
                .frames(id)
                .expect("a stack that is listed has frames")
                .to_vec();
            for frame in stacks.named(id) {
                for name in frame.names {
                    let text = (name.name.to_string(), name.file.to_string(), name.line);
                    contents.symbols.insert((frame.frame, name.depth), text);
                }
            }
            contents
                .stacks
                .insert(id, (stacks.truncated(id).unwrap_or_default(), frames));
        }
        contents.modules = stacks
            .modules()
            .map(|module| (module.id, module.clone()))
            .collect();
        contents
    }
}

/// Ids are few, so that rows refer to each other.
fn id() -> impl Strategy<Value = u32> {
    prop_oneof![8 => 0u32..20, 1 => any::<u32>()]
}

fn time() -> impl Strategy<Value = u64> {
    prop_oneof![8 => 1_000_000_000u64..9_000_000_000, 1 => any::<u64>()]
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof![3 => "[a-z:<>]{0,30}", 1 => any::<String>()]
}

fn change() -> impl Strategy<Value = ThreadChange> {
    use ThreadChange::*;
    prop::sample::select(vec![Found, Fork, Exec, Rename, Exit])
}

fn context() -> impl Strategy<Value = WakeContext> {
    use WakeContext::*;
    prop::sample::select(vec![Unknown, Task, Softirq, Hardirq, Exit])
}

fn kind() -> impl Strategy<Value = ModuleKind> {
    use ModuleKind::*;
    prop::sample::select(vec![Elf, Kernel, Jit, Python, Unknown])
}

fn thread() -> impl Strategy<Value = ThreadEvent> {
    (time(), id(), id(), id(), change(), text()).prop_map(
        |(at_ns, tid, tgid, parent_tid, change, comm)| ThreadEvent {
            at_ns,
            tid,
            tgid,
            parent_tid,
            change,
            comm,
        },
    )
}

fn wait() -> impl Strategy<Value = Wait> {
    (
        (
            id(),
            id(),
            any::<u32>(),
            time(),
            any::<Option<u64>>(),
            prop::option::of(time()),
            any::<bool>(),
        ),
        (
            any::<Option<u32>>(),
            any::<[u64; 3]>(),
            any::<bool>(),
            any::<bool>(),
            context(),
            id(),
            id(),
        ),
        (id(), id(), id(), any::<[u64; PART_COUNT]>()),
        (any::<bool>(), id(), any::<u64>(), any::<u64>(), id()),
    )
        .prop_map(|(a, b, c, d)| Wait {
            tid: a.0,
            tgid: a.1,
            seq: a.2,
            out_ns: a.3,
            wake_ns: a.4,
            in_ns: a.5,
            since_before: a.6,
            syscall: b.0,
            args: b.1,
            uninterruptible: b.2,
            io_wait: b.3,
            wake_context: b.4,
            waker_tid: b.5,
            waker_tgid: b.6,
            epoll: c.0,
            user_stack: c.1,
            kernel_stack: c.2,
            segment: Parts(c.3),
            timeout: d.0,
            owner_tid: d.1,
            lock: d.2,
            holds: d.3,
            waker_stack: d.4,
        })
}

fn futex() -> impl Strategy<Value = FutexSum> {
    (id(), any::<[u64; 4]>(), text()).prop_map(
        |(tgid, [address, count, total_ns, longest_ns], mapping)| FutexSum {
            tgid,
            address,
            count,
            total_ns,
            longest_ns,
            mapping,
        },
    )
}

fn busy() -> impl Strategy<Value = Busy> {
    (id(), id(), time(), time(), any::<u64>(), any::<u64>()).prop_map(
        |(tid, tgid, start_ns, end_ns, on_cpu_ns, runnable_ns)| Busy {
            tid,
            tgid,
            start_ns,
            end_ns,
            on_cpu_ns,
            runnable_ns,
        },
    )
}

fn preempted() -> impl Strategy<Value = Preempted> {
    (id(), id(), time(), time()).prop_map(|(tid, tgid, out_ns, in_ns)| Preempted {
        tid,
        tgid,
        out_ns,
        in_ns,
    })
}

fn request() -> impl Strategy<Value = Request> {
    let sent = prop::option::of(time());
    (
        (
            any::<u64>(),
            any::<u32>(),
            id(),
            time(),
            prop::option::of(time()),
            any::<Option<u64>>(),
            sent,
        ),
        (
            id(),
            id(),
            any::<u64>(),
            any::<u64>(),
            any::<i32>(),
            id(),
            any::<Option<bool>>(),
            any::<bool>(),
        ),
        (
            id(),
            any::<u16>(),
            any::<u64>(),
            any::<[u64; PART_COUNT]>(),
            any::<Option<u64>>(),
        ),
    )
        .prop_map(|(a, b, c)| Request {
            socket: a.0,
            seq: a.1,
            tgid: a.2,
            ready_ns: a.3,
            recv_ns: a.4,
            first_send_ns: a.5,
            last_send_ns: a.6,
            recv_tid: b.0,
            send_tid: b.1,
            bytes_in: b.2,
            bytes_out: b.3,
            fd: b.4,
            epoll: b.5,
            read_armed: b.6,
            before_accept: b.7,
            accept_tid: c.0,
            local_port: c.1,
            unserved_wakeup_ns: c.2,
            service: Parts(c.3),
            taken_ns: c.4,
        })
}

fn sample() -> impl Strategy<Value = Sample> {
    (time(), id(), id(), id(), id(), id(), id()).prop_map(
        |(at_ns, tid, tgid, cpu, user_stack, kernel_stack, periods)| Sample {
            at_ns,
            tid,
            tgid,
            cpu,
            user_stack,
            kernel_stack,
            periods,
        },
    )
}

fn frame() -> impl Strategy<Value = Frame> {
    (id(), prop_oneof![4 => 0u64..8, 1 => any::<u64>()])
        .prop_map(|(module, address)| Frame { module, address })
}

fn stack() -> impl Strategy<Value = Stack> {
    (id(), any::<bool>(), vec(frame(), 0..12)).prop_map(|(id, truncated, frames)| Stack {
        id,
        truncated,
        frames,
    })
}

fn module() -> impl Strategy<Value = Module> {
    (id(), kind(), "[0-9a-f]{0,40}", text()).prop_map(|(id, kind, build_id, path)| Module {
        id,
        kind,
        build_id,
        path,
    })
}

fn symbol() -> impl Strategy<Value = Symbol> {
    (frame(), 0u16..4, text(), text(), any::<u32>()).prop_map(|(frame, depth, name, file, line)| {
        Symbol {
            frame,
            depth,
            name,
            file,
            line,
        }
    })
}

fn cpu() -> impl Strategy<Value = Cpu> {
    (any::<[u64; 11]>(), id(), id(), any::<i32>()).prop_map(|(n, tgid, tid, port)| Cpu {
        at_ns: n[0],
        tgid,
        tid,
        port,
        on_cpu_ns: n[1],
        futile_ns: n[2],
        requests: n[3],
        bytes_in: n[4],
        bytes_out: n[5],
        user_samples: n[6],
        system_samples: n[7],
        poll_sleeps: n[8],
        dry_sleeps: n[9],
        runnable_ns: n[10],
    })
}

fn socket() -> impl Strategy<Value = SocketCpu> {
    (any::<[u64; 9]>(), id(), text(), any::<[u16; 2]>()).prop_map(|(n, tgid, peer, ports)| {
        SocketCpu {
            at_ns: n[0],
            tgid,
            socket: n[1],
            local_port: ports[0],
            peer,
            peer_port: ports[1],
            requests: n[2],
            bytes_in: n[3],
            bytes_out: n[4],
            cpu_ns: n[5],
            futile_ns: n[6],
            user_samples: n[7],
            system_samples: n[8],
        }
    })
}

fn burst() -> impl Strategy<Value = Burst> {
    (any::<[u64; 13]>(), id(), id(), id()).prop_map(|(n, burst, tid, tgid)| Burst {
        burst,
        start_ns: n[0],
        end_ns: n[1],
        tid,
        tgid,
        counted_ns: n[2],
        on_cpu_ns: n[3],
        calls: n[4],
        polls: n[5],
        overhead_ns: n[6],
        turns: n[7],
        spins: n[8],
        lost_races: n[9],
        progress: n[10],
        cycle_turns: n[11],
        cycle_length: n[12],
        user_stack: 0,
    })
}

fn call() -> impl Strategy<Value = BurstCall> {
    (
        any::<[u32; 7]>(),
        any::<i32>(),
        any::<u64>(),
        any::<i64>(),
        text(),
        any::<[u16; 2]>(),
    )
        .prop_map(|(n, fd, value, ret, kind, ports)| BurstCall {
            burst: n[0],
            tid: n[1],
            step: n[2],
            syscall: n[3],
            fd,
            op: n[4],
            events: n[5],
            armed: n[6],
            value,
            ret,
            kind,
            local_port: ports[0],
            peer_port: ports[1],
        })
}

/// Any event at all.
pub(crate) fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        2 => thread().prop_map(Event::Thread),
        4 => wait().prop_map(Event::Wait),
        1 => busy().prop_map(Event::Busy),
        1 => preempted().prop_map(Event::Preempted),
        1 => futex().prop_map(Event::Futex),
        1 => cpu().prop_map(Event::Cpu),
        1 => socket().prop_map(Event::SocketCpu),
        1 => burst().prop_map(Event::Burst),
        1 => call().prop_map(Event::BurstCall),
        2 => request().prop_map(Event::Request),
        2 => sample().prop_map(Event::Sample),
        2 => stack().prop_map(Event::Stack),
        1 => module().prop_map(Event::Module),
        2 => symbol().prop_map(Event::Symbol),
        2 => rings::event().prop_map(Event::Ring),
    ]
}
