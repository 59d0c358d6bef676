//! Stacks that were told once, and to which later records of the same thread refer by a key.
//!
//! A mirror of what `known_stack.bpf.h` and `sched.bpf.h` remember for each thread, in as many places and replaced in the same
//! order: so a key that is not found here means that a record was lost, and is no stack.

use std::collections::HashMap;

use whywait_events::{StackId, Wait};
use whywait_stacks::Registers;

/// `KNOWN_STACKS` of `state.bpf.h`.
const USER_SLOTS: usize = 4;
const FUTEX: u32 = 202;

/// A key, 0 for none, and the stack that it stands for.
type Known = (u64, StackId);

#[derive(Default)]
struct OfThread {
    user: [Known; USER_SLOTS],
    /// Of sleeps on futexes, and of others.
    kernel: [Known; 2],
}

/// The known stacks, by thread.
#[derive(Default)]
pub(crate) struct KnownStacks {
    threads: HashMap<u32, OfThread>,
    /// A stack came that return addresses do not tell.
    some_do_not_repeat: bool,
}

impl KnownStacks {
    pub(crate) fn forget(&mut self, tid: u32) {
        self.threads.remove(&tid);
    }

    /// Whether every stack so far can be told by its return addresses.
    pub(crate) fn stacks_repeat(&self) -> bool {
        !self.some_do_not_repeat
    }

    /// A user stack that `tid` may refer to by `key` from now on; `repeats` as in `Unwound`.
    pub(crate) fn tell_user(
        &mut self,
        tid: u32,
        registers: Registers,
        key: u64,
        stack: StackId,
        repeats: bool,
    ) {
        self.some_do_not_repeat |= !repeats;
        if key == 0 {
            return;
        }
        // As known_slot() has it.
        let slot = (registers.ip >> 2) ^ (registers.sp >> 4) ^ (registers.sp >> 7);
        let stack = if repeats { stack } else { 0 };
        self.threads.entry(tid).or_default().user[slot as usize % USER_SLOTS] = (key, stack);
    }

    /// The user stack under `key`, 0: none.
    pub(crate) fn user(&self, tid: u32, key: u64) -> StackId {
        self.threads
            .get(&tid)
            .map_or(0, |thread| find(&thread.user, key))
    }

    /// A kernel stack that the thread of `wait` may refer to by `key` from now on.
    pub(crate) fn tell_kernel(&mut self, wait: &Wait, key: u64, stack: StackId) {
        if key != 0 {
            let slot = usize::from(wait.syscall == Some(FUTEX));
            self.threads.entry(wait.tid).or_default().kernel[slot] = (key, stack);
        }
    }

    /// The kernel stack under `key`, 0: none.
    pub(crate) fn kernel(&self, wait: &Wait, key: u64) -> StackId {
        self.threads
            .get(&wait.tid)
            .map_or(0, |thread| find(&thread.kernel, key))
    }
}

fn find(known: &[Known], key: u64) -> StackId {
    known
        .iter()
        .find(|(other, _)| key != 0 && *other == key)
        .map_or(0, |(_, stack)| *stack)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn registers(ip: u64, sp: u64) -> Registers {
        Registers { ip, sp, bp: 0 }
    }

    #[test]
    fn a_stack_is_found_by_its_key_and_its_thread_until_another_takes_its_place() {
        let mut known = KnownStacks::default();
        known.tell_user(7, registers(0x1000, 0x2000), 5, 1, true);
        known.tell_user(7, registers(0x1004, 0x2000), 6, 2, true);
        assert_eq!((known.user(7, 5), known.user(7, 6)), (1, 2));
        assert_eq!(known.user(7, 0), 0, "no key, no stack");
        assert_eq!(known.user(8, 5), 0, "another thread");
        known.tell_user(7, registers(0x1000, 0x2000), 9, 3, true);
        assert_eq!((known.user(7, 5), known.user(7, 9)), (0, 3));
        known.forget(7);
        assert_eq!(known.user(7, 9), 0);
    }

    #[test]
    fn a_stack_that_its_return_addresses_do_not_tell_serves_no_other_sleep() {
        let mut known = KnownStacks::default();
        known.tell_user(7, registers(0x1000, 0x2000), 5, 1, true);
        assert!(known.stacks_repeat());
        known.tell_user(7, registers(0x1000, 0x2000), 5, 2, false);
        assert_eq!(known.user(7, 5), 0);
        assert!(!known.stacks_repeat());
    }

    #[test]
    fn kernel_stacks_of_futexes_and_of_others_have_places_of_their_own() {
        let mut known = KnownStacks::default();
        let wait = |syscall| Wait {
            tid: 7,
            syscall,
            ..Wait::default()
        };
        let (futex, other) = (wait(Some(FUTEX)), wait(Some(0)));
        known.tell_kernel(&futex, 5, 1);
        known.tell_kernel(&other, 6, 2);
        known.tell_kernel(&other, 0, 3);
        assert_eq!((known.kernel(&futex, 5), known.kernel(&other, 6)), (1, 2));
        assert_eq!(known.kernel(&other, 0), 0);
    }
}
