//! Turns the records of the BPF programs into events, stacks unwound and numbered, and writes them.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::{Duration, Instant};

use whywait_events::recording::{WriteError, Writer};
use whywait_events::uring::{Ring, Sum};
use whywait_events::{
    Busy, Event, Frame, FutexSum, Module, Part, Parts, Preempted, Request, Sample, StackId,
    ThreadChange, ThreadEvent, Wait, WakeContext,
};
use whywait_stacks::{Registers, Unwinder};

use crate::cpu::CpuTotals;
use crate::known_stacks::KnownStacks;
use crate::records::{Record, kernel_addresses};
use crate::skel::types::{self, thread_change, wake_context};
use crate::{sockets, urings};
use processes::Processes;
use ring_counts::{Counts, RingCounts};
use stack_numbers::StackNumbers;
use unfinished::{MAX_UNFINISHED, Unfinished, awaited};
use words::Words;

mod processes;
mod ring_counts;
mod stack_numbers;
mod unfinished;
mod words;

/// The most waits of one thread that are held back for the stack that is to come: a call that
/// sleeps more often goes without.
const MAX_HELD: usize = 64;
/// How long a wait is held back for its stack at most.
const HELD_FOR: Duration = Duration::from_secs(1);
/// Where a program's memory is (x86-64).
const USER_ADDRESSES: std::ops::Range<u64> = 0x1000..1 << 47;
/// Distinct stacks in which a thread polls for nothing that are counted.
const MAX_FUTILE_STACKS: usize = 64;

/// The stacks of a sleep that the sweep saw, until the sleep ends.
struct Seen {
    seq: u32,
    user_stack: StackId,
    kernel_stack: StackId,
    /// Of a sleep on a futex, in case it does not end.
    bytes: Vec<u8>,
}

/// Waits that are over, and whose user stack is on its way.
#[derive(Default)]
struct Held {
    /// With the program's instruction and stack pointers during the wait.
    waits: Vec<(Wait, [u64; 2])>,
    since: Option<Instant>,
}

/// Writes events in the order in which the records come.
pub(crate) struct Recorder {
    pub(crate) writer: Writer,
    unwinder: Unwinder,
    sleepers: HashMap<u32, Seen>,
    held: HashMap<u32, Held>,
    /// The stacks to which records may refer.
    known: KnownStacks,
    words: Words,
    /// By sleeping thread: which of its sleeps was ended by a thread in which stack.
    wakers: HashMap<u32, (u32, StackId)>,
    unfinished: Unfinished,
    /// The recording ends: what sleeps now, sleeps on.
    last_look: bool,
    stacks: StackNumbers,
    /// Kernel addresses of epoll instances, numbered: the addresses themselves stay out of the
    /// recording.
    epolls: HashMap<u64, u32>,
    processes: Processes,
    modules: Vec<Module>,
    undecodable: u64,
    waits: u64,
    waits_without_stack: u64,
    ring_counts: RingCounts,
    pub(crate) cpu: CpuTotals,
    /// Threads that seem to poll for nothing, to be looked at in a burst.
    pub(crate) suspects: BTreeSet<u32>,
    /// Where samples saw threads poll while no byte moved, and how often.
    futile_stacks: HashMap<u32, HashMap<StackId, u32>>,
}

impl Recorder {
    pub(crate) fn new(writer: Writer, unwinder: Unwinder) -> Self {
        Self {
            writer,
            unwinder,
            sleepers: HashMap::new(),
            held: HashMap::new(),
            known: KnownStacks::default(),
            words: Words::default(),
            wakers: HashMap::new(),
            unfinished: Unfinished::default(),
            last_look: false,
            stacks: StackNumbers::default(),
            epolls: HashMap::new(),
            processes: Processes::default(),
            modules: Vec::new(),
            undecodable: 0,
            waits: 0,
            waits_without_stack: 0,
            ring_counts: RingCounts::default(),
            cpu: CpuTotals::default(),
            suspects: BTreeSet::new(),
            futile_stacks: HashMap::new(),
        }
    }

    /// Where a thread was seen polling most while no byte moved; 0: nowhere.
    pub(crate) fn futile_stack(&self, tid: u32) -> StackId {
        self.futile_stacks
            .get(&tid)
            .and_then(|stacks| stacks.iter().max_by_key(|(id, count)| (**count, **id)))
            .map_or(0, |(id, _)| *id)
    }

    /// The processes of the target that have threads, as far as is known.
    pub(crate) fn processes(&self) -> Vec<u32> {
        self.processes.all()
    }

    /// Those of them with a thread of which this is true.
    pub(crate) fn processes_with(&self, is_so: impl Fn(u32) -> bool) -> Vec<u32> {
        self.processes.with(is_so)
    }

    /// Forgets processes that are gone without having told: their last record was lost. Looks at
    /// some of them, the others are for the next call. `alive` costs a look into /proc.
    pub(crate) fn forget_ended(&mut self, alive: impl Fn(u32) -> bool) {
        for (tgid, threads) in self.processes.forget_ended(alive) {
            for tid in threads {
                self.forget_thread(tid);
            }
            self.unwinder.forget(tgid);
        }
    }

    fn forget_thread(&mut self, tid: u32) {
        self.sleepers.remove(&tid);
        self.suspects.remove(&tid);
        self.futile_stacks.remove(&tid);
        self.wakers.remove(&tid);
        self.known.forget(tid);
    }

    /// Whether every stack so far can be told by its return addresses.
    pub(crate) fn stacks_repeat(&self) -> bool {
        self.known.stacks_repeat()
    }

    /// Whether stacks are to be taken soon after they were copied.
    pub(crate) fn reads_memory(&self) -> bool {
        self.unwinder.reads_memory()
    }

    /// Lets go of waits whose stack does not come: their threads are still in the call, or its
    /// record was lost.
    pub(crate) fn turn(&mut self) -> Result<(), WriteError> {
        let now = Instant::now();
        let mut late = Vec::new();
        for (tid, held) in &mut self.held {
            let since = *held.since.get_or_insert(now);
            if now - since > HELD_FOR {
                late.push(*tid);
            }
        }
        late.sort_unstable();
        for tid in late {
            self.release(tid, None)?;
        }
        self.words.look_up(now);
        Ok(())
    }

    /// The futex words that were seen, with what is known of the short sleeps on them.
    pub(crate) fn futexes(&mut self, short: Vec<FutexSum>) -> Result<(), WriteError> {
        for sum in self.words.take(short) {
            self.writer.write(&Event::Futex(sum))?;
        }
        Ok(())
    }

    /// From now on sleeps on futexes are those that do not end.
    pub(crate) fn last_look(&mut self) {
        self.last_look = true;
    }

    /// Writes what was held back. Nothing more is to come.
    pub(crate) fn settle(&mut self) -> Result<(), WriteError> {
        let mut tids: Vec<u32> = self.held.keys().copied().collect();
        tids.sort_unstable();
        for tid in tids {
            self.release(tid, None)?;
        }
        for wait in self.unfinished.take() {
            self.writer.write(&Event::Wait(wait))?;
        }
        Ok(())
    }

    pub(crate) fn bad_record(&mut self) {
        self.undecodable += 1;
    }

    pub(crate) fn take(&mut self, record: Record) -> Result<(), WriteError> {
        match record {
            Record::Thread(record) => self.thread(&record),
            Record::Wait(record) => self.wait(&record, &[]),
            Record::WholeWait(record) => {
                let len = record.wait.kernel_stack_len;
                self.wait(&record.wait, kernel_addresses(&record.kernel_stack, len))
            }
            Record::Busy(record) => self.writer.write(&Event::Busy(Busy {
                tid: record.tid,
                tgid: record.tgid,
                start_ns: record.start_ns,
                end_ns: record.end_ns,
                on_cpu_ns: record.on_cpu_ns,
                runnable_ns: record.runnable_ns,
            })),
            Record::Preempted(record) => self.writer.write(&Event::Preempted(Preempted {
                tid: record.tid,
                tgid: record.tgid,
                out_ns: record.out_ns,
                in_ns: record.in_ns,
            })),
            Record::Request(record) => self.request(&record),
            Record::Sample(record, stack) => self.sample(&record, &stack),
            Record::Sleeper(record, stack) => self.sleeper(&record, stack),
            Record::UserStack(record, stack) => self.user_stack(&record, &stack),
            Record::Waker(record, stack) => self.waker(&record, &stack),
            Record::UringOp(record) => self.writer.write(&Event::RingOp(urings::op(&record))),
            Record::UringSample(record) => self
                .writer
                .write(&Event::RingSample(urings::sample(&record))),
            Record::UringLag(record) => self.writer.write(&Event::RingLag(urings::lag(&record))),
            Record::Socket(record) => {
                let row = sockets::row(&record);
                self.writer.write(&Event::SocketCpu(row))
            }
            Record::Suspect(record) => {
                self.suspects.insert(record.tid);
                Ok(())
            }
            Record::Cpu(record) => match self.cpu.ended(&record) {
                Some(row) => self.writer.write(&Event::Cpu(row)),
                None => Ok(()),
            },
            // These come from where only bursts look.
            Record::Call(_) | Record::File(_) => {
                self.bad_record();
                Ok(())
            }
        }
    }

    /// Writes the rings as they are now, but for those that have not changed.
    pub(crate) fn rings(&mut self, known: urings::Known) -> Result<(), WriteError> {
        let mut all = BTreeMap::new();
        for (ring, lost) in known.rings {
            let counts = Counts {
                submitted: ring.submitted,
                completed: ring.completed,
                lost,
            };
            let unchanged = self.ring_counts.unchanged(ring.id, counts);
            all.insert(ring.id, counts);
            // One that nobody uses goes on being idle: told in the end only.
            if !unchanged || self.last_look {
                self.ring_with_sums(ring, &known.sums)?;
            }
        }
        self.ring_counts.replace(all);
        Ok(())
    }

    /// Writes rings that are no more.
    pub(crate) fn closed_rings(&mut self, known: urings::Known) -> Result<(), WriteError> {
        for (ring, lost) in known.rings {
            let counts = Counts {
                submitted: ring.submitted,
                completed: ring.completed,
                lost,
            };
            self.ring_counts.closed(ring.id, counts);
            self.ring_with_sums(ring, &known.sums)?;
        }
        Ok(())
    }

    fn ring_with_sums(&mut self, ring: Ring, sums: &[Sum]) -> Result<(), WriteError> {
        for sum in sums.iter().filter(|sum| sum.ring == ring.id) {
            self.writer.write(&Event::RingSum(Box::new(sum.clone())))?;
        }
        self.writer.write(&Event::Ring(ring))
    }

    fn thread(&mut self, record: &types::thread_record) -> Result<(), WriteError> {
        let change = match thread_change(record.change) {
            thread_change::THREAD_FORK => ThreadChange::Fork,
            thread_change::THREAD_EXEC => ThreadChange::Exec,
            thread_change::THREAD_RENAME => ThreadChange::Rename,
            thread_change::THREAD_EXIT => ThreadChange::Exit,
            _ => ThreadChange::Found,
        };
        match change {
            ThreadChange::Exit => {
                self.release(record.tid, None)?;
                self.forget_thread(record.tid);
                if self.processes.thread_ended(record.tgid, record.tid) {
                    self.unwinder.forget(record.tgid);
                }
            }
            ThreadChange::Exec => {
                self.unwinder.forget(record.tgid);
                // Of a process that becomes another program one thread is left, under the process's
                // number. If it had another number before, that one ends here, and no exit tells of
                // it.
                let gone = self.processes.becomes_another(record.tgid, record.tid);
                for tid in gone {
                    self.release(tid, None)?;
                    self.forget_thread(tid);
                    self.writer.write(&Event::Thread(ThreadEvent {
                        at_ns: record.at_ns,
                        tid,
                        tgid: record.tgid,
                        parent_tid: 0,
                        change: ThreadChange::Exit,
                        comm: name(&record.comm),
                    }))?;
                }
            }
            _ => {
                // The number was another process's whose end was lost.
                let anew = change == ThreadChange::Fork && record.tid == record.tgid;
                if anew && self.processes.forget(record.tgid) {
                    self.unwinder.forget(record.tgid);
                }
                self.processes.thread_began(record.tgid, record.tid);
            }
        }
        self.writer.write(&Event::Thread(ThreadEvent {
            at_ns: record.at_ns,
            tid: record.tid,
            tgid: record.tgid,
            parent_tid: record.parent_tid,
            change,
            comm: name(&record.comm),
        }))
    }

    fn wait(
        &mut self,
        record: &types::wait_record,
        kernel_stack: &[u64],
    ) -> Result<(), WriteError> {
        // A sweep may already have seen the thread's next sleep: records wait in the ring, sweeps
        // do not.
        let seen = match self.sleepers.entry(record.sleep.tid) {
            Entry::Occupied(seen) if seen.get().seq == record.sleep.seq => Some(seen.remove()),
            _ => None,
        };
        let mut wait = self.sleep(&record.sleep);
        let kernel_stack = if kernel_stack.is_empty() {
            self.known.kernel(&wait, record.kernel_key)
        } else {
            let stack = self.kernel_stack(kernel_stack)?;
            self.known.tell_kernel(&wait, record.kernel_key, stack);
            stack
        };
        self.words.note(&wait);
        wait.wake_ns = (record.wake_ns != 0).then_some(record.wake_ns);
        wait.in_ns = Some(record.in_ns);
        wait.wake_context = match wake_context(record.wake_context) {
            wake_context::WAKE_TASK => WakeContext::Task,
            wake_context::WAKE_SOFTIRQ => WakeContext::Softirq,
            wake_context::WAKE_HARDIRQ => WakeContext::Hardirq,
            wake_context::WAKE_EXIT => WakeContext::Exit,
            _ => WakeContext::Unknown,
        };
        wait.waker_tid = record.waker_tid;
        wait.waker_tgid = record.waker_tgid;
        wait.user_stack = match &seen {
            Some(seen) if seen.user_stack != 0 => seen.user_stack,
            _ => self.known.user(wait.tid, record.stack_key),
        };
        wait.kernel_stack = if kernel_stack == 0 {
            seen.as_ref().map_or(0, |seen| seen.kernel_stack)
        } else {
            kernel_stack
        };
        if let Some((seq, stack)) = self.wakers.remove(&wait.tid)
            && seq == wait.seq
        {
            wait.waker_stack = stack;
        }
        if wait.wake_context == WakeContext::Exit
            && awaited(&wait) != 0
            && self.unfinished.has_room()
        {
            let stack = seen.map_or_else(Vec::new, |seen| seen.bytes);
            self.unfinished.push(wait, stack);
            return Ok(());
        }
        if record.stack_follows != 0 && wait.user_stack == 0 {
            let held = self.held.entry(wait.tid).or_default();
            if held.waits.len() < MAX_HELD {
                held.waits.push((wait, [record.ip, record.sp]));
                return Ok(());
            }
        }
        self.finished(wait)
    }

    fn finished(&mut self, wait: Wait) -> Result<(), WriteError> {
        self.waits += 1;
        if wait.user_stack == 0 {
            self.waits_without_stack += 1;
        }
        self.writer.write(&Event::Wait(wait))
    }

    /// Writes the waits of a thread that were held back for this stack. A thread that was back in
    /// its program before it was asked leaves the stack of its next call: those whose pointers are
    /// not the stack's have none.
    fn release(&mut self, tid: u32, stack: Option<([u64; 2], StackId)>) -> Result<(), WriteError> {
        for (mut wait, pointers) in self.held.remove(&tid).unwrap_or_default().waits {
            wait.user_stack = stack
                .filter(|(its, _)| *its == pointers)
                .map_or(0, |(_, stack)| stack);
            self.finished(wait)?;
        }
        Ok(())
    }

    fn user_stack(
        &mut self,
        record: &types::user_stack_record,
        stack: &[u8],
    ) -> Result<(), WriteError> {
        if stack.is_empty() {
            // Told before; 0, and none at all, if it could not be read or too many were told.
            let told = self.known.user(record.tid, record.stack_key);
            return self.release(record.tid, Some(([record.ip, record.sp], told)));
        }
        let cut_short = self.unfinished.wants_stack(record.tid);
        if !cut_short && record.stack_key == 0 && !self.held.contains_key(&record.tid) {
            return Ok(());
        }
        let registers = Registers {
            ip: record.ip,
            sp: record.sp,
            bp: record.bp,
        };
        let unwound = self
            .unwinder
            .unwind_sleeping(record.tgid, record.tid, registers, stack);
        let repeats = unwound.repeats;
        let user_stack = self.stack(unwound.frames, unwound.truncated)?;
        self.known
            .tell_user(record.tid, registers, record.stack_key, user_stack, repeats);
        if cut_short {
            self.unfinished.stack_came(record.tid, user_stack, stack);
        }
        self.release(record.tid, Some(([record.ip, record.sp], user_stack)))
    }

    fn waker(&mut self, record: &types::waker_record, stack: &[u8]) -> Result<(), WriteError> {
        let registers = Registers {
            ip: record.ip,
            sp: record.sp,
            bp: record.bp,
        };
        let stack = if stack.is_empty() {
            self.known.user(record.waker_tid, record.stack_key)
        } else {
            let unwound = self.unwinder.unwind(record.waker_tgid, registers, stack);
            let repeats = unwound.repeats;
            let stack = self.stack(unwound.frames, unwound.truncated)?;
            self.known.tell_user(
                record.waker_tid,
                registers,
                record.stack_key,
                stack,
                repeats,
            );
            stack
        };
        self.wakers.insert(record.tid, (record.seq, stack));
        Ok(())
    }

    /// A thread that sleeps now: its stack is kept for when the sleep ends, and the sleep so far is
    /// written already, so that it is not lost if it never ends.
    fn sleeper(
        &mut self,
        record: &types::sleeper_record,
        stack: Vec<u8>,
    ) -> Result<(), WriteError> {
        let registers = Registers {
            ip: record.ip,
            sp: record.sp,
            bp: record.bp,
        };
        let unwound =
            self.unwinder
                .unwind_sleeping(record.sleep.tgid, record.sleep.tid, registers, &stack);
        let user_stack = self.stack(unwound.frames, unwound.truncated)?;
        let kernel_stack = self.kernel_stack(kernel_addresses(
            &record.kernel_stack,
            record.kernel_stack_len,
        ))?;
        let mut wait = self.sleep(&record.sleep);
        self.words.note(&wait);
        wait.user_stack = user_stack;
        wait.kernel_stack = kernel_stack;
        if self.last_look && awaited(&wait) != 0 && self.unfinished.has_room() {
            self.unfinished.push(wait, stack);
            return Ok(());
        }
        let bytes = if awaited(&wait) != 0 && self.sleepers.len() < MAX_UNFINISHED {
            stack
        } else {
            Vec::new()
        };
        let seen = Seen {
            seq: record.sleep.seq,
            user_stack,
            kernel_stack,
            bytes,
        };
        self.sleepers.insert(record.sleep.tid, seen);
        self.writer.write(&Event::Wait(wait))
    }

    fn sleep(&mut self, sleep: &types::sleep) -> Wait {
        // Whatever lies beside the word is in no recording, unless it is what it is taken for.
        let owner_tid = if self.processes.has(sleep.tgid, sleep.owner) {
            sleep.owner
        } else {
            0
        };
        Wait {
            tid: sleep.tid,
            tgid: sleep.tgid,
            seq: sleep.seq,
            out_ns: sleep.out_ns,
            since_before: sleep.since_before != 0,
            syscall: u32::try_from(sleep.nr).ok(),
            args: sleep.args,
            timeout: sleep.timeout != 0,
            owner_tid,
            lock: if USER_ADDRESSES.contains(&sleep.lock) {
                sleep.lock
            } else {
                0
            },
            uninterruptible: sleep.uninterruptible != 0,
            io_wait: sleep.io_wait != 0,
            epoll: self.epoll(sleep.epoll),
            segment: Parts(sleep.segment),
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
            taken_ns: time(record.taken_ns),
        };
        self.writer.write(&Event::Request(request))
    }

    fn sample(&mut self, record: &types::sample_record, stack: &[u8]) -> Result<(), WriteError> {
        let registers = Registers {
            ip: record.ip,
            sp: record.sp,
            bp: record.bp,
        };
        let unwound =
            self.unwinder
                .unwind_running(record.tgid, record.tid, record.at_ns, registers, stack);
        let user_stack = self.stack(unwound.frames, unwound.truncated)?;
        let kernel_stack = self.kernel_stack(kernel_addresses(
            &record.kernel_stack,
            record.kernel_stack_len,
        ))?;
        if record.futile != 0 && user_stack != 0 {
            let stacks = self.futile_stacks.entry(record.tid).or_default();
            if stacks.len() < MAX_FUTILE_STACKS || stacks.contains_key(&user_stack) {
                *stacks.entry(user_stack).or_default() += 1;
            }
        }
        self.writer.write(&Event::Sample(Sample {
            at_ns: record.at_ns,
            tid: record.tid,
            tgid: record.tgid,
            cpu: record.cpu,
            user_stack,
            kernel_stack,
            periods: record.periods,
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
        let (id, new) = self.stacks.number(frames, truncated);
        if let Some(stack) = new {
            self.writer.write(&Event::Stack(stack))?;
        }
        Ok(id)
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
        let of_rings = self.ring_counts.total();
        for (name, value) in kernel {
            // The programs for io_uring count in the rings.
            let more = if name == "events" {
                of_rings.events()
            } else {
                0
            };
            self.writer.counter(&name, value.saturating_add(more));
        }
        self.writer.counter("lost.ring-ops", of_rings.lost);
        self.writer.counter("lost.undecodable", self.undecodable);
        self.writer
            .counter("waits.without-stack", self.waits_without_stack);
        self.writer.counter("waits.ended", self.waits);
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
        self.stacks.frames()
    }
}

/// The recording's kinds of time are those of `enum part`, in their order.
const _: () = {
    assert!(types::part::PART_COUNT.0 as usize == Part::ALL.len());
    assert!(types::part::PART_ON_CPU.0 == Part::OnCpu as u32);
    assert!(types::part::PART_UNKNOWN.0 == Part::Unknown as u32);
};

fn name(comm: &[i8]) -> String {
    let bytes: Vec<u8> = comm
        .iter()
        .map(|byte| *byte as u8)
        .take_while(|byte| *byte != 0)
        .collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use whywait_events::recording::{Meta, Recording};

    use super::processes::ENDED_AT_ONCE;
    use super::*;

    const FOUND: u32 = thread_change::THREAD_FOUND.0;
    const FORK: u32 = thread_change::THREAD_FORK.0;
    const EXEC: u32 = thread_change::THREAD_EXEC.0;
    const EXIT: u32 = thread_change::THREAD_EXIT.0;

    fn recorder() -> (tempfile::TempDir, Recorder) {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let writer =
            Writer::create(&dir.path().join("recording"), &Meta::default()).expect("writable");
        (dir, Recorder::new(writer, Unwinder::new()))
    }

    fn thread(recorder: &mut Recorder, at_ns: u64, change: u32, tgid: u32, tid: u32) {
        let record = types::thread_record {
            r#type: types::record_type::RECORD_THREAD.0,
            change,
            at_ns,
            tid,
            tgid,
            parent_tid: 0,
            parent_tgid: 0,
            comm: [0; 16],
        };
        recorder
            .take(Record::Thread(Box::new(record)))
            .expect("writable");
    }

    #[test]
    fn a_process_is_known_from_its_first_thread_to_its_last() {
        let (_dir, mut recorder) = recorder();
        thread(&mut recorder, 1, FOUND, 10, 10);
        thread(&mut recorder, 2, FORK, 10, 11);
        thread(&mut recorder, 3, FORK, 20, 20);
        thread(&mut recorder, 4, EXIT, 10, 10);
        assert_eq!(recorder.processes(), [10, 20]);
        thread(&mut recorder, 5, EXIT, 10, 11);
        assert_eq!(recorder.processes(), [20]);
    }

    #[test]
    fn a_thread_that_becomes_another_program_loses_its_number() {
        let (dir, mut recorder) = recorder();
        thread(&mut recorder, 1, FOUND, 10, 10);
        thread(&mut recorder, 2, FORK, 10, 11);
        thread(&mut recorder, 3, EXIT, 10, 10);
        // The kernel has given it the first thread's number by now.
        thread(&mut recorder, 4, EXEC, 10, 10);
        thread(&mut recorder, 5, EXIT, 10, 10);
        assert!(
            recorder.processes().is_empty(),
            "{:?}",
            recorder.processes()
        );
        recorder.writer.finish(&Meta::default()).expect("writable");
        let mut exits = Vec::new();
        let recording = Recording::open(&dir.path().join("recording")).expect("readable");
        let visit = &mut |event: &ThreadEvent| {
            if event.change == ThreadChange::Exit {
                exits.push((event.at_ns, event.tid));
            }
        };
        recording
            .read::<ThreadEvent>(None, visit)
            .expect("readable");
        assert_eq!(exits, [(3, 10), (4, 11), (5, 10)]);
    }

    #[test]
    fn processes_whose_end_was_lost_are_forgotten_little_by_little() {
        let (_dir, mut recorder) = recorder();
        for tgid in 1..=150 {
            thread(&mut recorder, 1, FOUND, tgid, tgid);
        }
        let is_even = |tgid: u32| tgid.is_multiple_of(2);
        recorder.forget_ended(is_even);
        assert_eq!(recorder.processes().len(), 150 - ENDED_AT_ONCE / 2);
        recorder.forget_ended(is_even);
        recorder.forget_ended(is_even);
        assert_eq!(recorder.processes().len(), 75);
        recorder.forget_ended(|_| false);
        assert_eq!(
            recorder.processes().len(),
            75 - ENDED_AT_ONCE,
            "it begins again"
        );
    }
}
