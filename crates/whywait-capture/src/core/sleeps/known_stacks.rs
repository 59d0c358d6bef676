//! Stacks that were sent once, and to which later records of the same thread refer by a key.
//!
//! `known_stack.bpf.h` and `sched.bpf.h` remember a few of each thread, and forget them in their
//! own way. Here the last ones are kept that a thread sent, of more places than they remember: so a
//! key that is not found means that a record was lost, and is no stack.

use std::collections::{HashMap, VecDeque};

use whywait_events::{StackId, Wait};
use whywait_stacks::Registers;

/// Places of a thread whose last stacks are kept: more than `KNOWN_STACKS` and
/// `KNOWN_KERNEL_STACKS` of `state.bpf.h`.
const PLACES: usize = 16;

/// The last stacks that a thread sent: where it was, the key, and the stack that it stands for.
type LastSent<P> = VecDeque<(P, u64, StackId)>;

#[derive(Default)]
struct OfThread {
    user: LastSent<[u64; 2]>,
    /// The last stack that return addresses do not tell: it serves the sleep that it was read of,
    /// whose record follows.
    once: Option<(u64, StackId)>,
    kernel: LastSent<()>,
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

    /// Whether every stack so far can be known by its return addresses.
    pub(crate) fn stacks_repeat(&self) -> bool {
        !self.some_do_not_repeat
    }

    /// A user stack that `tid` may refer to by `key` from now on, and no more to the one that it
    /// sent at the same place before; `repeats` as in `Unwound`.
    pub(crate) fn learn_user(
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
        let place = [registers.ip, registers.sp];
        let sent = &mut self.threads.entry(tid).or_default().user;
        sent.retain(|(its, other, _)| *its != place && *other != key);
        if repeats {
            keep(sent, (place, key, stack));
        } else {
            self.threads.entry(tid).or_default().once = Some((key, stack));
        }
    }

    /// The last stack of `tid` has what it was read of: no record that refers to it follows.
    pub(crate) fn served(&mut self, tid: u32) {
        if let Some(thread) = self.threads.get_mut(&tid) {
            thread.once = None;
        }
    }

    /// The user stack under `key`, 0: none.
    pub(crate) fn user(&mut self, tid: u32, key: u64) -> StackId {
        let Some(thread) = self.threads.get_mut(&tid) else {
            return 0;
        };
        match find(&thread.user, key) {
            0 => thread
                .once
                .take_if(|(other, _)| *other == key)
                .map_or(0, |(_, stack)| stack),
            stack => stack,
        }
    }

    /// A kernel stack that the thread of `wait` may refer to by `key` from now on.
    pub(crate) fn learn_kernel(&mut self, wait: &Wait, key: u64, stack: StackId) {
        if key != 0 {
            let sent = &mut self.threads.entry(wait.tid).or_default().kernel;
            sent.retain(|(_, other, _)| *other != key);
            keep(sent, ((), key, stack));
        }
    }

    /// The kernel stack under `key`, 0: none.
    pub(crate) fn kernel(&self, wait: &Wait, key: u64) -> StackId {
        self.threads
            .get(&wait.tid)
            .map_or(0, |thread| find(&thread.kernel, key))
    }
}

fn keep<P>(sent: &mut LastSent<P>, new: (P, u64, StackId)) {
    if sent.len() == PLACES {
        sent.pop_front();
    }
    sent.push_back(new);
}

fn find<P>(sent: &LastSent<P>, key: u64) -> StackId {
    sent.iter()
        .find(|(_, other, _)| key != 0 && *other == key)
        .map_or(0, |(_, _, stack)| *stack)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn registers(ip: u64, sp: u64) -> Registers {
        Registers {
            ip,
            sp,
            bp: 0,
            lr: 0,
        }
    }

    #[test]
    fn a_stack_is_found_by_its_key_and_its_thread_until_another_takes_its_place() {
        let mut known = KnownStacks::default();
        known.learn_user(7, registers(0x1000, 0x2000), 5, 1, true);
        known.learn_user(7, registers(0x1004, 0x2000), 6, 2, true);
        assert_eq!((known.user(7, 5), known.user(7, 6)), (1, 2));
        assert_eq!(known.user(7, 0), 0, "no key, no stack");
        assert_eq!(known.user(8, 5), 0, "another thread");
        known.learn_user(7, registers(0x1000, 0x2000), 9, 3, true);
        assert_eq!((known.user(7, 5), known.user(7, 9)), (0, 3));
        known.forget(7);
        assert_eq!(known.user(7, 9), 0);
    }

    #[test]
    fn of_a_thread_with_many_places_the_last_ones_are_known() {
        let mut known = KnownStacks::default();
        for n in 1..=PLACES as u32 + 1 {
            known.learn_user(
                7,
                registers(0x1000 + u64::from(n), 0x2000),
                n.into(),
                n,
                true,
            );
        }
        assert_eq!((known.user(7, 1), known.user(7, 2)), (0, 2));
    }

    #[test]
    fn a_stack_that_its_return_addresses_do_not_tell_serves_no_other_sleep() {
        let mut known = KnownStacks::default();
        known.learn_user(7, registers(0x1000, 0x2000), 5, 1, true);
        assert!(known.stacks_repeat());
        known.learn_user(7, registers(0x1000, 0x2000), 5, 2, false);
        assert_eq!(known.user(7, 5), 2, "the sleep that it was read of");
        assert_eq!(known.user(7, 5), 0);
        assert!(!known.stacks_repeat());
    }

    #[test]
    fn a_stack_that_served_its_own_sleep_serves_not_the_next_at_the_same_place() {
        let mut known = KnownStacks::default();
        known.learn_user(7, registers(0x1000, 0x2000), 5, 2, false);
        known.served(7);
        assert_eq!(known.user(7, 5), 0);
    }

    #[test]
    fn each_kind_of_sleep_has_a_kernel_stack_of_its_own() {
        let mut known = KnownStacks::default();
        let wait = Wait {
            tid: 7,
            ..Wait::default()
        };
        known.learn_kernel(&wait, 5, 1);
        known.learn_kernel(&wait, 6, 2);
        known.learn_kernel(&wait, 0, 3);
        assert_eq!((known.kernel(&wait, 5), known.kernel(&wait, 6)), (1, 2));
        known.learn_kernel(&wait, 5, 4);
        assert_eq!(known.kernel(&wait, 5), 4);
        assert_eq!(known.kernel(&wait, 0), 0);
    }
}
