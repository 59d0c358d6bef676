//! Sleeps on futexes that have not ended when the recording does: which lock each of their threads
//! holds meanwhile.

use whywait_events::{StackId, Wait};

/// The most threads whose stacks are searched for the locks that they hold.
pub(crate) const MAX_UNFINISHED: usize = 4096;
/// How far after the address that a thread holds the futex word of a lock may lie: its data may
/// come first.
const LOCK_BYTES: u64 = 256;

/// A sleep that does not end, and the bytes of the thread's stack, if they were read.
struct Sleep {
    wait: Wait,
    stack: Vec<u8>,
}

#[derive(Default)]
pub(crate) struct Unfinished {
    sleeps: Vec<Sleep>,
}

impl Unfinished {
    pub(crate) fn has_room(&self) -> bool {
        self.sleeps.len() < MAX_UNFINISHED
    }

    pub(crate) fn push(&mut self, wait: Wait, stack: Vec<u8>) {
        self.sleeps.push(Sleep { wait, stack });
    }

    /// Whether a sleep of this thread still has no stack.
    pub(crate) fn wants_stack(&self, tid: u32) -> bool {
        self.without_stack(tid).is_some()
    }

    /// The stack of the thread's first sleep that has none.
    pub(crate) fn stack_came(&mut self, tid: u32, user_stack: StackId, bytes: &[u8]) {
        if let Some(sleep) = self
            .without_stack(tid)
            .and_then(|at| self.sleeps.get_mut(at))
        {
            sleep.wait.user_stack = user_stack;
            sleep.stack = bytes.to_vec();
        }
    }

    fn without_stack(&self, tid: u32) -> Option<usize> {
        self.sleeps
            .iter()
            .position(|sleep| sleep.wait.tid == tid && sleep.wait.user_stack == 0)
    }

    /// All of them, each with the lock that others of its process wait for and that its stack
    /// points to. Forgets them.
    pub(crate) fn take(&mut self) -> Vec<Wait> {
        let sleeps = std::mem::take(&mut self.sleeps);
        let all: Vec<(u32, u64)> = sleeps
            .iter()
            .map(|sleep| (sleep.wait.tgid, awaited(&sleep.wait)))
            .collect();
        let of_process = |tgid: u32| -> Vec<u64> {
            all.iter()
                .filter(|(of, _)| *of == tgid)
                .map(|(_, address)| *address)
                .collect()
        };
        sleeps
            .into_iter()
            .map(|Sleep { mut wait, stack }| {
                wait.holds = holds(&stack, &of_process(wait.tgid), awaited(&wait));
                wait
            })
            .collect()
    }
}

/// What a thread that sleeps on a futex waits for: the lock where it is known, or else the word. 0:
/// it is no futex.
pub(crate) fn awaited(wait: &Wait) -> u64 {
    const FUTEX: u32 = 202;
    match wait.syscall {
        Some(FUTEX) if wait.lock != 0 => wait.lock,
        Some(FUTEX) => wait.args[0],
        _ => 0,
    }
}

/// Of these addresses, the one to or shortly before which the words of a stack point first, from
/// its top on, but for `own`. 0: none.
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
