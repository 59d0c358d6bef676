//! Long sleeps: what is known of them comes in records of several collectors, with the stacks
//! before, with and after them, and is a row when all of it is there.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::time::{Duration, Instant};

use whywait_events::recording::WriteError;
use whywait_events::{Event, Parts, StackId, Wait, WakeContext};

use self::known_stacks::KnownStacks;
use self::unfinished::{USER_ADDRESSES, Unfinished, awaited};
use self::words::Words;
use super::shared::Shared;
use super::skel::types::{self, wake_context};

pub(crate) mod known_stacks;
pub(crate) mod unfinished;
pub(crate) mod words;

/// The most waits of one thread that are held back for the stack that is to come: a call that
/// sleeps more often goes without.
const MAX_HELD: usize = 64;
/// How long a wait is held back for its stack at most.
const HELD_FOR: Duration = Duration::from_secs(1);

/// What is kept of sleeps between their records.
#[derive(Default)]
pub(crate) struct Sleeps {
    /// The stacks to which records may refer.
    pub(crate) known: KnownStacks,
    /// The futex words on which threads slept.
    pub(crate) words: Words,
    pub(crate) unfinished: Unfinished,
    /// By thread: the sleep that the sweep saw.
    pub(crate) seen: HashMap<u32, StacksSeen>,
    held: HashMap<u32, HeldWaits>,
    /// By sleeping thread: which of its sleeps was ended by a thread in which stack.
    pub(crate) wakers: HashMap<u32, (u32, StackId)>,
    ended: u64,
    without_stack: u64,
}

/// The stacks of a sleep that the sweep saw, until the sleep ends.
pub(crate) struct StacksSeen {
    pub(crate) seq: u32,
    pub(crate) user_stack: StackId,
    pub(crate) kernel_stack: StackId,
}

/// Waits that are over, and whose user stack is on its way.
#[derive(Default)]
struct HeldWaits {
    /// With the program's instruction and stack pointers during the wait.
    waits: Vec<(Wait, [u64; 2])>,
    since: Option<Instant>,
}

impl Sleeps {
    /// Whether a wait of this thread is held back for its stack.
    pub(crate) fn wants_stack(&self, tid: u32) -> bool {
        self.held.contains_key(&tid)
    }

    pub(crate) fn forget(&mut self, tid: u32) {
        self.seen.remove(&tid);
        self.wakers.remove(&tid);
        self.unfinished.forget(tid);
        self.known.forget(tid);
    }

    pub(crate) fn counters(&self) -> Vec<(String, u64)> {
        [
            ("lost.held-locks", self.unfinished.unsearched()),
            ("waits.without-stack", self.without_stack),
            ("waits.ended", self.ended),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into()
    }
}

impl Shared {
    /// To be called now and then.
    pub(crate) fn turn(&mut self, now: Instant) -> Result<(), WriteError> {
        self.release_late(now)?;
        self.sleeps.words.look_up(now);
        Ok(())
    }

    /// A long sleep is over.
    pub(crate) fn sleep_ends(
        &mut self,
        record: &types::wait_record,
        kernel_stack: &[u64],
    ) -> Result<(), WriteError> {
        // A sweep may already have seen the thread's next sleep: records wait in the ring, sweeps
        // do not.
        let seen = match self.sleeps.seen.entry(record.sleep.tid) {
            Entry::Occupied(seen) if seen.get().seq == record.sleep.seq => Some(seen.remove()),
            _ => None,
        };
        let words = self
            .sleeps
            .unfinished
            .over(record.sleep.tid, record.sleep.seq);
        let mut wait = self.sleep(&record.sleep);
        let kernel_stack = if kernel_stack.is_empty() {
            self.sleeps.known.kernel(&wait, record.kernel_key)
        } else {
            let stack = self.output.kernel_stack(kernel_stack)?;
            self.sleeps
                .known
                .learn_kernel(&wait, record.kernel_key, stack);
            stack
        };
        self.sleeps.words.note(&wait);
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
            _ => self.sleeps.known.user(wait.tid, record.stack_key),
        };
        wait.kernel_stack = if kernel_stack == 0 {
            seen.as_ref().map_or(0, |seen| seen.kernel_stack)
        } else {
            kernel_stack
        };
        if let Some((seq, stack)) = self.sleeps.wakers.remove(&wait.tid)
            && seq == wait.seq
        {
            wait.waker_stack = stack;
        }
        if wait.wake_context == WakeContext::Exit
            && awaited(&wait) != 0
            && self.sleeps.unfinished.has_room()
        {
            self.sleeps.unfinished.killed(wait, words);
            return Ok(());
        }
        if record.stack_follows != 0 && wait.user_stack == 0 {
            let held = self.sleeps.held.entry(wait.tid).or_default();
            if held.waits.len() < MAX_HELD {
                held.waits.push((wait, [record.ip, record.sp]));
                return Ok(());
            }
        }
        self.finished(wait)
    }

    fn finished(&mut self, wait: Wait) -> Result<(), WriteError> {
        self.sleeps.ended += 1;
        if wait.user_stack == 0 {
            self.sleeps.without_stack += 1;
        }
        self.output.write(&Event::Wait(wait))
    }

    /// Writes the waits of a thread that were held back for this stack. A thread that was back in
    /// its program before it was asked leaves the stack of its next call: those whose pointers are
    /// not the stack's have none. Gives whether one had it.
    pub(crate) fn release(
        &mut self,
        tid: u32,
        stack: Option<([u64; 2], StackId)>,
    ) -> Result<bool, WriteError> {
        let mut served = false;
        for (mut wait, pointers) in self.sleeps.held.remove(&tid).unwrap_or_default().waits {
            let its = stack.filter(|(its, _)| *its == pointers);
            served |= its.is_some();
            wait.user_stack = its.map_or(0, |(_, stack)| stack);
            self.finished(wait)?;
        }
        Ok(served)
    }

    /// Releases waits whose stack does not come: their threads are still in the call, or its record
    /// was lost.
    fn release_late(&mut self, now: Instant) -> Result<(), WriteError> {
        let mut late = Vec::new();
        for (tid, held) in &mut self.sleeps.held {
            let since = *held.since.get_or_insert(now);
            if now - since > HELD_FOR {
                late.push(*tid);
            }
        }
        late.sort_unstable();
        for tid in late {
            self.release(tid, None)?;
        }
        Ok(())
    }

    /// Writes what was held back. Nothing more is to come.
    pub(crate) fn settle(&mut self) -> Result<(), WriteError> {
        let mut tids: Vec<u32> = self.sleeps.held.keys().copied().collect();
        tids.sort_unstable();
        for tid in tids {
            self.release(tid, None)?;
        }
        for wait in self.sleeps.unfinished.take() {
            self.output.write(&Event::Wait(wait))?;
        }
        Ok(())
    }

    /// What is known of a sleep while it lasts.
    pub(crate) fn sleep(&mut self, sleep: &types::sleep) -> Wait {
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
            epoll: self.output.epoll(sleep.epoll),
            segment: Parts(sleep.segment),
            ..Wait::default()
        }
    }
}
