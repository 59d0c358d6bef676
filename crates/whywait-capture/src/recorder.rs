//! Turns the records of the BPF programs into events, stacks unwound and numbered, and writes them.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::time::{Duration, Instant};

use whywait_events::recording::{WriteError, Writer};
use whywait_events::uring::RingEvent;
use whywait_events::{
    Busy, Event, Frame, FutexSum, Module, Parts, Preempted, Request, Sample, Stack, StackId,
    ThreadChange, ThreadEvent, Wait, WakeContext,
};
use whywait_stacks::{Registers, Unwinder, mapped_at};

use crate::cpu::CpuTotals;
use crate::known_stacks::KnownStacks;
use crate::records::{Record, kernel_addresses};
use crate::skel::types;
use crate::{sockets, urings};

/// The most distinct stacks that are remembered, some 600 bytes each: a program that recurses to ever new depths has a new
/// one at each look, and a recording may go on for weeks.
const MAX_STACKS: usize = 1 << 16;
/// The most distinct frames that are named: those of the largest programs are fewer.
const MAX_FRAMES: usize = 1 << 20;
/// The most waits of one thread that are held back for the stack that is to come: a call that sleeps more often goes without.
const MAX_HELD: usize = 64;
/// Futex words whose mapping is told.
const MAX_WORDS: usize = 16_384;
/// Between two looks at what is mapped at new words.
const WORDS_EVERY: Duration = Duration::from_millis(250);
/// How long a wait is held back for its stack at most.
const HELD_FOR: Duration = Duration::from_secs(1);
/// The most threads whose stacks are searched for the locks that they hold when the recording ends.
const MAX_UNFINISHED: usize = 4096;
/// How far after the address that a thread holds the futex word of a lock may lie: its data may come first.
const LOCK_BYTES: u64 = 256;
/// Where a program's memory is (x86-64).
const USER_ADDRESSES: std::ops::Range<u64> = 0x1000..1 << 47;
/// Distinct stacks in which a thread polls for nothing that are counted.
const MAX_FUTILE_STACKS: usize = 64;
/// How many processes are looked at in one go for whether they still live: some 20 us each.
const ENDED_AT_ONCE: usize = 64;

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

/// A sleep on a futex that has not ended when the recording does.
struct Unfinished {
    wait: Wait,
    stack: Vec<u8>,
}

/// Writes events in the order in which the records come.
pub(crate) struct Recorder {
    pub(crate) writer: Writer,
    unwinder: Unwinder,
    sleepers: HashMap<u32, Seen>,
    held: HashMap<u32, Held>,
    /// The stacks to which records may refer.
    known: KnownStacks,
    /// Futex words, by process, and what is mapped there.
    words: BTreeMap<(u32, u64), Option<String>>,
    /// When it was last looked up.
    words_looked_up: Option<Instant>,
    /// By sleeping thread: which of its sleeps was ended by a thread in which stack.
    wakers: HashMap<u32, (u32, StackId)>,
    /// Sleeps on futexes that do not end.
    unfinished: Vec<Unfinished>,
    /// The recording ends: what sleeps now, sleeps on.
    last_look: bool,
    stacks: HashMap<(Vec<Frame>, bool), StackId>,
    last_stack: StackId,
    /// What is to be named in the end.
    frames: HashSet<Frame>,
    /// Kernel addresses of epoll instances, numbered: the addresses themselves stay out of the recording.
    epolls: HashMap<u64, u32>,
    /// The threads of each process of the target, as far as is known.
    processes: BTreeMap<u32, HashSet<u32>>,
    /// Up to which process was looked for ones whose end was not told.
    looked_up_to: u32,
    modules: Vec<Module>,
    undecodable: u64,
    waits: u64,
    waits_without_stack: u64,
    /// Of each ring: what was submitted, completed and lost when it was looked at last.
    rings: BTreeMap<u32, (u64, u64, u64)>,
    /// Of those that are forgotten: submitted and completed, and lost.
    gone_rings: (u64, u64),
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
            words: BTreeMap::new(),
            words_looked_up: None,
            wakers: HashMap::new(),
            unfinished: Vec::new(),
            last_look: false,
            stacks: HashMap::new(),
            last_stack: 0,
            frames: HashSet::new(),
            epolls: HashMap::new(),
            processes: BTreeMap::new(),
            looked_up_to: 0,
            modules: Vec::new(),
            undecodable: 0,
            waits: 0,
            waits_without_stack: 0,
            rings: BTreeMap::new(),
            gone_rings: (0, 0),
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
        self.processes.keys().copied().collect()
    }

    /// Those of them with a thread of which this is true.
    pub(crate) fn processes_with(&self, is_so: impl Fn(u32) -> bool) -> Vec<u32> {
        let with = |threads: &HashSet<u32>| threads.iter().any(|tid| is_so(*tid));
        self.processes
            .iter()
            .filter(|(_, threads)| with(threads))
            .map(|(tgid, _)| *tgid)
            .collect()
    }

    /// Forgets processes that are gone without having told: their last record was lost. Looks at some of them, the others
    /// are for the next call. `alive` costs a look into /proc.
    pub(crate) fn forget_ended(&mut self, alive: impl Fn(u32) -> bool) {
        let some: Vec<u32> = self
            .processes
            .range(self.looked_up_to..)
            .map(|(tgid, _)| *tgid)
            .take(ENDED_AT_ONCE)
            .collect();
        self.looked_up_to = if some.len() == ENDED_AT_ONCE {
            some[ENDED_AT_ONCE - 1].saturating_add(1)
        } else {
            0
        };
        for tgid in some.into_iter().filter(|tgid| !alive(*tgid)) {
            for tid in self.processes.remove(&tgid).into_iter().flatten() {
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

    /// Lets go of waits whose stack does not come: their threads are still in the call, or its record was lost.
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
        if self
            .words_looked_up
            .is_none_or(|before| now - before >= WORDS_EVERY)
        {
            self.look_up_words();
        }
        Ok(())
    }

    /// Finds out what is mapped at words that were not looked up yet.
    fn look_up_words(&mut self) {
        let mut new: BTreeMap<u32, Vec<u64>> = BTreeMap::new();
        for ((tgid, address), mapping) in &self.words {
            if mapping.is_none() {
                new.entry(*tgid).or_default().push(*address);
            }
        }
        if new.is_empty() {
            return;
        }
        self.words_looked_up = Some(Instant::now());
        for (tgid, addresses) in new {
            let names = mapped_at(tgid, &addresses);
            for (address, name) in addresses.into_iter().zip(names) {
                // What is not mapped any more is not looked for again.
                self.words
                    .insert((tgid, address), Some(name.unwrap_or_default()));
            }
        }
    }

    /// The futex words that were seen, with what is known of the short sleeps on them.
    pub(crate) fn futexes(&mut self, short: Vec<FutexSum>) -> Result<(), WriteError> {
        let mut sums: BTreeMap<(u32, u64), FutexSum> = short
            .into_iter()
            .map(|sum| ((sum.tgid, sum.address), sum))
            .collect();
        for ((tgid, address), mapping) in std::mem::take(&mut self.words) {
            let sum = sums.entry((tgid, address)).or_insert_with(|| FutexSum {
                tgid,
                address,
                ..FutexSum::default()
            });
            sum.mapping = mapping.unwrap_or_default();
        }
        for sum in sums.into_values() {
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
        let unfinished = std::mem::take(&mut self.unfinished);
        let awaited: Vec<(u32, u64)> = unfinished
            .iter()
            .map(|one| (one.wait.tgid, awaited(&one.wait)))
            .collect();
        for Unfinished { mut wait, stack } in unfinished {
            let own = awaited_by(&awaited, wait.tgid);
            wait.holds = holds(&stack, &own, self::awaited(&wait));
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
            Record::Wait(record, kernel_stack) => self.wait(&record, &kernel_stack),
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
            Record::UringOp(record) => self.ring(RingEvent::Op(urings::op(&record))),
            Record::UringSample(record) => self.ring(RingEvent::Sample(urings::sample(&record))),
            Record::UringLag(record) => self.ring(RingEvent::Lag(urings::lag(&record))),
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

    fn ring(&mut self, event: RingEvent) -> Result<(), WriteError> {
        self.writer.write(&Event::Ring(event))
    }

    /// Writes the rings as they are now, but for those that have not changed.
    pub(crate) fn rings(&mut self, known: urings::Known) -> Result<(), WriteError> {
        let mut counted = BTreeMap::new();
        for (ring, lost) in known.rings {
            let now = (ring.submitted, ring.completed, lost);
            // One that nobody uses goes on being idle: told in the end only.
            let unchanged = self.rings.remove(&ring.id) == Some(now);
            counted.insert(ring.id, now);
            if unchanged && !self.last_look {
                continue;
            }
            for sum in known.sums.iter().filter(|sum| sum.ring == ring.id) {
                self.ring(RingEvent::Sum(Box::new(sum.clone())))?;
            }
            self.ring(RingEvent::Ring(ring))?;
        }
        // What is left has gone: its counts stay.
        for (submitted, completed, lost) in
            std::mem::replace(&mut self.rings, counted).into_values()
        {
            self.gone_rings.0 += submitted + completed;
            self.gone_rings.1 += lost;
        }
        Ok(())
    }

    /// Writes rings that are no more.
    pub(crate) fn closed_rings(&mut self, known: urings::Known) -> Result<(), WriteError> {
        for (ring, lost) in known.rings {
            self.rings.remove(&ring.id);
            self.gone_rings.0 += ring.submitted + ring.completed;
            self.gone_rings.1 += lost;
            for sum in known.sums.iter().filter(|sum| sum.ring == ring.id) {
                self.ring(RingEvent::Sum(Box::new(sum.clone())))?;
            }
            self.ring(RingEvent::Ring(ring))?;
        }
        Ok(())
    }

    /// Operations and completions that were handled, and operations whose submission was not seen.
    fn ring_counts(&self) -> (u64, u64) {
        self.rings.values().fold(
            self.gone_rings,
            |(events, all_lost), (submitted, completed, lost)| {
                (events + submitted + completed, all_lost + lost)
            },
        )
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
                self.release(record.tid, None)?;
                self.forget_thread(record.tid);
                if let Some(threads) = self.processes.get_mut(&record.tgid) {
                    threads.remove(&record.tid);
                    if threads.is_empty() {
                        self.processes.remove(&record.tgid);
                        self.unwinder.forget(record.tgid);
                    }
                }
            }
            ThreadChange::Exec => {
                self.unwinder.forget(record.tgid);
                // Of a process that becomes another program one thread is left, under the process's number. If it had
                // another number before, that one ends here, and no exit tells of it.
                let before = self
                    .processes
                    .insert(record.tgid, HashSet::from([record.tid]))
                    .unwrap_or_default();
                let mut gone: Vec<u32> = before
                    .into_iter()
                    .filter(|tid| *tid != record.tid)
                    .collect();
                gone.sort_unstable();
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
                if anew && self.processes.remove(&record.tgid).is_some() {
                    self.unwinder.forget(record.tgid);
                }
                self.processes
                    .entry(record.tgid)
                    .or_default()
                    .insert(record.tid);
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
        // A sweep may already have seen the thread's next sleep: records wait in the ring, sweeps do not.
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
        self.note_word(&wait);
        wait.wake_ns = (record.wake_ns != 0).then_some(record.wake_ns);
        wait.in_ns = Some(record.in_ns);
        wait.wake_context = match record.wake_context {
            1 => WakeContext::Task,
            2 => WakeContext::Softirq,
            3 => WakeContext::Hardirq,
            4 => WakeContext::Exit,
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
            && self.unfinished.len() < MAX_UNFINISHED
        {
            let stack = seen.map_or_else(Vec::new, |seen| seen.bytes);
            self.unfinished.push(Unfinished { wait, stack });
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

    fn note_word(&mut self, wait: &Wait) {
        let address = awaited(wait);
        if address != 0 && self.words.len() < MAX_WORDS {
            // Where a lock has the waiters' words, its own address says more than theirs.
            self.words.entry((wait.tgid, wait.args[0])).or_default();
            self.words.entry((wait.tgid, address)).or_default();
        }
    }

    fn finished(&mut self, wait: Wait) -> Result<(), WriteError> {
        self.waits += 1;
        if wait.user_stack == 0 {
            self.waits_without_stack += 1;
        }
        self.writer.write(&Event::Wait(wait))
    }

    /// Writes the waits of a thread that were held back for this stack. A thread that was back in its program before it was
    /// asked leaves the stack of its next call: those whose pointers are not the stack's have none.
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
        let cut_short = self
            .unfinished
            .iter()
            .position(|one| one.wait.tid == record.tid && one.wait.user_stack == 0);
        if cut_short.is_none() && record.stack_key == 0 && !self.held.contains_key(&record.tid) {
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
        if let Some(one) = cut_short.and_then(|at| self.unfinished.get_mut(at)) {
            one.wait.user_stack = user_stack;
            one.stack = stack.to_vec();
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

    /// A thread that sleeps now: its stack is kept for when the sleep ends, and the sleep so far is written already, so
    /// that it is not lost if it never ends.
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
        self.note_word(&wait);
        wait.user_stack = user_stack;
        wait.kernel_stack = kernel_stack;
        if self.last_look && awaited(&wait) != 0 && self.unfinished.len() < MAX_UNFINISHED {
            self.unfinished.push(Unfinished { wait, stack });
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
        let owner_tid = self
            .processes
            .get(&sleep.tgid)
            .filter(|threads| threads.contains(&sleep.owner))
            .map_or(0, |_| sleep.owner);
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
        let key = (frames, truncated);
        if let Some(id) = self.stacks.get(&key) {
            return Ok(*id);
        }
        let Some(id) = self.last_stack.checked_add(1) else {
            return Ok(0);
        };
        self.last_stack = id;
        self.writer.write(&Event::Stack(Stack {
            id,
            truncated,
            frames: key.0.clone(),
        }))?;
        if self.stacks.len() >= MAX_STACKS {
            // Those that come again are written again, under another number.
            self.stacks.clear();
        }
        if self.frames.len() < MAX_FRAMES {
            self.frames.extend(&key.0);
        }
        self.stacks.insert(key, id);
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
        let (ring_events, lost_ops) = self.ring_counts();
        for (name, value) in kernel {
            // The programs for io_uring count in the rings.
            let of_rings = if name == "events" { ring_events } else { 0 };
            self.writer.counter(&name, value.saturating_add(of_rings));
        }
        self.writer.counter("lost.ring-ops", lost_ops);
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
        let mut frames: Vec<Frame> = self.frames.iter().copied().collect();
        frames.sort_unstable();
        frames
    }
}

/// What a thread that sleeps on a futex waits for: the lock where it is known, or else the word. 0: it is no futex.
fn awaited(wait: &Wait) -> u64 {
    const FUTEX: u32 = 202;
    match wait.syscall {
        Some(FUTEX) if wait.lock != 0 => wait.lock,
        Some(FUTEX) => wait.args[0],
        _ => 0,
    }
}

/// What threads of a process wait for.
fn awaited_by(awaited: &[(u32, u64)], tgid: u32) -> Vec<u64> {
    awaited
        .iter()
        .filter(|(of, _)| *of == tgid)
        .map(|(_, address)| *address)
        .collect()
}

/// Of these addresses, the one to or shortly before which the words of a stack point first, from its top on, but for `own`. 0:
/// none.
fn holds(stack: &[u8], awaited: &[u64], own: u64) -> u64 {
    let words = stack
        .chunks_exact(8)
        .map(|bytes| u64::from_le_bytes(bytes.try_into().unwrap_or_default()));
    for word in words {
        let nearest = awaited
            .iter()
            .filter(|address| **address >= word && **address - word < LOCK_BYTES)
            .min();
        if let Some(address) = nearest
            && *address != own
        {
            return *address;
        }
    }
    0
}

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

    use super::*;

    const FOUND: u32 = 0;
    const FORK: u32 = 1;
    const EXEC: u32 = 2;
    const EXIT: u32 = 4;

    fn recorder() -> (tempfile::TempDir, Recorder) {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let writer =
            Writer::create(&dir.path().join("recording"), &Meta::default()).expect("writable");
        (dir, Recorder::new(writer, Unwinder::new()))
    }

    fn thread(recorder: &mut Recorder, at_ns: u64, change: u32, tgid: u32, tid: u32) {
        let record = types::thread_record {
            r#type: 1,
            change,
            at_ns,
            tid,
            tgid,
            parent_tid: 0,
            parent_tgid: 0,
            comm: [0; 16],
        };
        recorder.take(Record::Thread(record)).expect("writable");
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
        recording.threads(None, visit).expect("readable");
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

    #[test]
    fn as_many_stacks_as_come_and_no_more_in_memory() {
        let (_dir, mut recorder) = recorder();
        let frames = |address| vec![Frame { module: 1, address }];
        let first = recorder.stack(frames(0), false).expect("writable");
        assert_eq!(recorder.stack(frames(0), false).expect("writable"), first);
        assert_ne!(recorder.stack(frames(0), true).expect("writable"), first);
        for address in 1..=MAX_STACKS as u64 {
            recorder.stack(frames(address), false).expect("writable");
        }
        assert!(recorder.stacks.len() <= MAX_STACKS);
        let again = recorder.stack(frames(0), false).expect("writable");
        assert!(again > MAX_STACKS as StackId, "under another number");
        assert_eq!(
            recorder.frames().len(),
            MAX_STACKS + 1,
            "every frame is to be named"
        );
    }
}
