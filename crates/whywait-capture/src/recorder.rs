//! Turns the records of the BPF programs into events, stacks unwound and numbered, and writes them.

use std::collections::HashMap;

use whywait_events::recording::{WriteError, Writer};
use whywait_events::{
    Busy, Event, Frame, Module, Parts, Request, Sample, Stack, StackId, ThreadChange, ThreadEvent, Wait, WakeContext,
};
use whywait_stacks::{Registers, Unwinder};

use crate::records::{Record, kernel_addresses};
use crate::skel::types;

/// The stacks of a sleep that the sweep saw, until the sleep ends.
#[derive(Clone, Copy)]
struct Seen {
    seq: u32,
    user_stack: StackId,
    kernel_stack: StackId,
}

/// Writes events in the order in which the records come.
pub(crate) struct Recorder {
    pub(crate) writer: Writer,
    unwinder: Unwinder,
    sleepers: HashMap<u32, Seen>,
    stacks: HashMap<(Vec<Frame>, bool), StackId>,
    /// Kernel addresses of epoll instances, numbered: the addresses themselves stay out of the recording.
    epolls: HashMap<u64, u32>,
    /// Threads of each process of the target, to know which processes there are.
    threads: HashMap<u32, u32>,
    modules: Vec<Module>,
    undecodable: u64,
    waits_without_stack: u64,
}

impl Recorder {
    pub(crate) fn new(writer: Writer) -> Self {
        Self {
            writer,
            unwinder: Unwinder::new(),
            sleepers: HashMap::new(),
            stacks: HashMap::new(),
            epolls: HashMap::new(),
            threads: HashMap::new(),
            modules: Vec::new(),
            undecodable: 0,
            waits_without_stack: 0,
        }
    }

    /// The processes of the target that have threads, as far as is known.
    pub(crate) fn processes(&self) -> Vec<u32> {
        let mut tgids: Vec<u32> = self.threads.values().copied().collect();
        tgids.sort_unstable();
        tgids.dedup();
        tgids
    }

    pub(crate) fn bad_record(&mut self) {
        self.undecodable += 1;
    }

    pub(crate) fn take(&mut self, record: Record) -> Result<(), WriteError> {
        match record {
            Record::Thread(record) => self.thread(&record),
            Record::Wait(record) => self.wait(&record),
            Record::Busy(record) => self.writer.write(&Event::Busy(Busy {
                tid: record.tid,
                tgid: record.tgid,
                start_ns: record.start_ns,
                end_ns: record.end_ns,
                on_cpu_ns: record.on_cpu_ns,
                runnable_ns: record.runnable_ns,
            })),
            Record::Request(record) => self.request(&record),
            Record::Sample(record, stack) => self.sample(&record, &stack),
            Record::Sleeper(record, stack) => self.sleeper(&record, &stack),
        }
    }

    fn thread(&mut self, record: &types::thread_record) -> Result<(), WriteError> {
        let change = match record.change {
            1 => ThreadChange::Fork,
            2 => ThreadChange::Exec,
            3 => ThreadChange::Rename,
            4 => ThreadChange::Exit,
            _ => ThreadChange::Found,
        };
        match change {
            ThreadChange::Exit => {
                self.threads.remove(&record.tid);
                self.sleepers.remove(&record.tid);
                if !self.threads.values().any(|tgid| *tgid == record.tgid) {
                    self.unwinder.forget(record.tgid);
                }
            }
            ThreadChange::Exec => {
                self.unwinder.forget(record.tgid);
                self.threads.insert(record.tid, record.tgid);
            }
            _ => {
                self.threads.insert(record.tid, record.tgid);
            }
        }
        let name: Vec<u8> = record.comm.iter().map(|byte| *byte as u8).take_while(|byte| *byte != 0).collect();
        self.writer.write(&Event::Thread(ThreadEvent {
            at_ns: record.at_ns,
            tid: record.tid,
            tgid: record.tgid,
            parent_tid: record.parent_tid,
            change,
            comm: String::from_utf8_lossy(&name).into_owned(),
        }))
    }

    fn wait(&mut self, record: &types::wait_record) -> Result<(), WriteError> {
        // A sweep may already have seen the thread's next sleep: records wait in the ring, sweeps do not.
        let seen = self.sleepers.get(&record.sleep.tid).copied().filter(|seen| seen.seq == record.sleep.seq);
        if seen.is_some() {
            self.sleepers.remove(&record.sleep.tid);
        }
        let kernel_stack = self.kernel_stack(kernel_addresses(&record.kernel_stack, record.kernel_stack_len))?;
        let mut wait = self.sleep(&record.sleep);
        wait.wake_ns = (record.wake_ns != 0).then_some(record.wake_ns);
        wait.in_ns = Some(record.in_ns);
        wait.wake_context = match record.wake_context {
            1 => WakeContext::Task,
            2 => WakeContext::Softirq,
            3 => WakeContext::Hardirq,
            _ => WakeContext::Unknown,
        };
        wait.waker_tid = record.waker_tid;
        wait.waker_tgid = record.waker_tgid;
        wait.user_stack = seen.map_or(0, |seen| seen.user_stack);
        wait.kernel_stack = if kernel_stack == 0 { seen.map_or(0, |seen| seen.kernel_stack) } else { kernel_stack };
        if wait.user_stack == 0 {
            self.waits_without_stack += 1;
        }
        self.writer.write(&Event::Wait(wait))
    }

    /// A thread that sleeps now: its stack is kept for when the sleep ends, and the sleep so far is written already, so
    /// that it is not lost if it never ends.
    fn sleeper(&mut self, record: &types::sleeper_record, stack: &[u8]) -> Result<(), WriteError> {
        let registers = Registers { ip: record.ip, sp: record.sp, bp: record.bp };
        let unwound = self.unwinder.unwind_sleeping(record.sleep.tgid, record.sleep.tid, registers, stack);
        let user_stack = self.stack(unwound.frames, unwound.truncated)?;
        let kernel_stack = self.kernel_stack(kernel_addresses(&record.kernel_stack, record.kernel_stack_len))?;
        let seen = Seen { seq: record.sleep.seq, user_stack, kernel_stack };
        self.sleepers.insert(record.sleep.tid, seen);
        let mut wait = self.sleep(&record.sleep);
        wait.user_stack = user_stack;
        wait.kernel_stack = kernel_stack;
        self.writer.write(&Event::Wait(wait))
    }

    fn sleep(&mut self, sleep: &types::sleep) -> Wait {
        Wait {
            tid: sleep.tid,
            tgid: sleep.tgid,
            seq: sleep.seq,
            out_ns: sleep.out_ns,
            since_before: sleep.since_before != 0,
            syscall: u32::try_from(sleep.nr).ok(),
            args: sleep.args,
            uninterruptible: sleep.uninterruptible != 0,
            io_wait: sleep.io_wait != 0,
            epoll: self.epoll(sleep.epoll),
            segment_on_cpu_ns: sleep.segment_on_cpu_ns,
            segment_runnable_ns: sleep.segment_runnable_ns,
            ..Wait::default()
        }
    }

    fn request(&mut self, record: &types::request_record) -> Result<(), WriteError> {
        let time = |ns: u64| (ns != 0).then_some(ns);
        let request = Request {
            socket: record.socket,
            seq: record.seq,
            tgid: record.tgid,
            ready_ns: record.ready_ns,
            recv_ns: time(record.recv_ns),
            first_send_ns: time(record.first_send_ns),
            last_send_ns: time(record.last_send_ns),
            recv_tid: record.recv_tid,
            send_tid: record.send_tid,
            bytes_in: record.bytes_in,
            bytes_out: record.bytes_out,
            fd: record.fd,
            epoll: self.epoll(record.epoll),
            read_armed: match record.read_armed {
                0 => Some(false),
                1 => Some(true),
                _ => None,
            },
            before_accept: record.before_accept != 0,
            accept_tid: 0,
            local_port: record.local_port,
            unserved_wakeup_ns: record.unserved_wakeup_ns,
            service: Parts(record.service),
        };
        self.writer.write(&Event::Request(request))
    }

    fn sample(&mut self, record: &types::sample_record, stack: &[u8]) -> Result<(), WriteError> {
        let registers = Registers { ip: record.ip, sp: record.sp, bp: record.bp };
        let unwound = self.unwinder.unwind(record.tgid, registers, stack);
        let user_stack = self.stack(unwound.frames, unwound.truncated)?;
        let kernel_stack = self.kernel_stack(kernel_addresses(&record.kernel_stack, record.kernel_stack_len))?;
        self.writer.write(&Event::Sample(Sample {
            at_ns: record.at_ns,
            tid: record.tid,
            tgid: record.tgid,
            cpu: record.cpu,
            user_stack,
            kernel_stack,
        }))
    }

    fn kernel_stack(&mut self, addresses: &[u64]) -> Result<StackId, WriteError> {
        let frames = self.unwinder.kernel(addresses);
        self.stack(frames, false)
    }

    /// The number of a stack; its frames are written when it is new.
    fn stack(&mut self, frames: Vec<Frame>, truncated: bool) -> Result<StackId, WriteError> {
        if frames.is_empty() {
            return Ok(0);
        }
        for module in self.unwinder.take_new_modules() {
            self.writer.write(&Event::Module(module.clone()))?;
            self.modules.push(module);
        }
        for symbol in self.unwinder.take_new_symbols() {
            self.writer.write(&Event::Symbol(symbol))?;
        }
        let next = self.stacks.len() as StackId + 1;
        let key = (frames, truncated);
        if let Some(id) = self.stacks.get(&key) {
            return Ok(*id);
        }
        self.writer.write(&Event::Stack(Stack { id: next, truncated, frames: key.0.clone() }))?;
        self.stacks.insert(key, next);
        Ok(next)
    }

    fn epoll(&mut self, address: u64) -> u32 {
        if address == 0 {
            return 0;
        }
        let next = self.epolls.len() as u32 + 1;
        *self.epolls.entry(address).or_insert(next)
    }

    /// Passes on the counters of the kernel side and adds those of this side.
    pub(crate) fn count(&mut self, kernel: impl IntoIterator<Item = (String, u64)>) {
        for (name, value) in kernel {
            self.writer.counter(&name, value);
        }
        self.writer.counter("lost.undecodable", self.undecodable);
        self.writer.counter("waits.without-stack", self.waits_without_stack);
        let losses: Vec<(&'static str, u64)> = self.unwinder.losses().collect();
        for (name, value) in losses {
            self.writer.counter(&format!("stacks.{name}"), value);
        }
    }

    /// The modules that were written.
    pub(crate) fn modules(&self) -> &[Module] {
        &self.modules
    }

    /// The distinct frames that were written.
    pub(crate) fn frames(&self) -> Vec<Frame> {
        let mut frames: Vec<Frame> = self.stacks.keys().flat_map(|(frames, _)| frames.iter().copied()).collect();
        frames.sort_unstable();
        frames.dedup();
        frames
    }
}
