//! Sleeps on futexes that have not ended when the recording does: which lock each of their threads
//! holds meanwhile.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ops::Range;

use whywait_events::{StackId, Wait};

/// The most sleeps that are kept until the end.
const MAX_SLEEPS: usize = 1 << 16;
/// The most words of their stacks that are, to be searched for locks: 32 MB.
const MAX_WORDS: usize = 4 << 20;
/// How far after the address that a thread holds the futex word of a lock may lie: its data may
/// come first.
const LOCK_BYTES: u64 = 1 << LOCK_BITS;
const LOCK_BITS: u32 = 8;
/// Where a program's memory is.
pub(crate) const USER_ADDRESSES: Range<u64> = 0x1000..1 << USER_BITS;
const USER_BITS: u32 = if cfg!(target_arch = "x86_64") { 47 } else { 48 };

/// A sleep that may not end, and what of the thread's stack may be addresses, from its top on, if
/// the stack was read.
struct UnfinishedSleep {
    wait: Wait,
    words: Vec<u64>,
}

#[derive(Default)]
pub(crate) struct Unfinished {
    /// By thread: the sleep that the sweep saw. It has a row already.
    asleep: HashMap<u32, UnfinishedSleep>,
    /// Those that ended with their process.
    killed: Vec<UnfinishedSleep>,
    /// By thread: which of those have no stack, in order.
    without_stack: HashMap<u32, VecDeque<usize>>,
    /// How many are kept.
    words: usize,
    /// Sleeps whose stacks were not kept.
    unsearched: u64,
}

impl Unfinished {
    /// A thread was seen asleep.
    pub(crate) fn sleeps(&mut self, wait: &Wait, stack: &[u8]) {
        self.forget(wait.tid);
        if self.asleep.len() >= MAX_SLEEPS {
            self.unsearched += 1;
            return;
        }
        let (wait, words) = (wait.clone(), self.keep(stack));
        self.asleep
            .insert(wait.tid, UnfinishedSleep { wait, words });
    }

    /// A sleep of the thread is over. Returns what was kept of its stack. An earlier one lost its
    /// end; a later one was seen already.
    pub(crate) fn over(&mut self, tid: u32, seq: u32) -> Vec<u64> {
        let Some(asleep) = self.asleep.get(&tid) else {
            return Vec::new();
        };
        let ahead = asleep.wait.seq.wrapping_sub(seq) as i32;
        if ahead > 0 {
            return Vec::new();
        }
        let words = self.forget(tid);
        if ahead == 0 { words } else { Vec::new() }
    }

    /// The thread has ended, or sleeps elsewhere.
    pub(crate) fn forget(&mut self, tid: u32) -> Vec<u64> {
        let words = self.asleep.remove(&tid).map(|sleep| sleep.words);
        let words = words.unwrap_or_default();
        self.words -= words.len();
        words
    }

    /// Whether one more that was killed can be kept.
    pub(crate) fn has_room(&self) -> bool {
        self.killed.len() < MAX_SLEEPS
    }

    /// A sleep ended with its process; `words`: of its stack.
    pub(crate) fn killed(&mut self, wait: Wait, words: Vec<u64>) {
        if wait.user_stack == 0 {
            let of_thread = self.without_stack.entry(wait.tid).or_default();
            of_thread.push_back(self.killed.len());
        }
        self.words += words.len();
        self.killed.push(UnfinishedSleep { wait, words });
    }

    /// Whether a sleep of this thread still has no stack.
    pub(crate) fn wants_stack(&self, tid: u32) -> bool {
        self.without_stack.contains_key(&tid)
    }

    /// The stack of the thread's first sleep that has none.
    pub(crate) fn stack_came(&mut self, tid: u32, user_stack: StackId, bytes: &[u8]) {
        let Some(of_thread) = self.without_stack.get_mut(&tid) else {
            return;
        };
        let Some(&at) = of_thread.front() else { return };
        if user_stack != 0 {
            of_thread.pop_front();
            if of_thread.is_empty() {
                self.without_stack.remove(&tid);
            }
        }
        let words = self.keep(bytes);
        if let Some(sleep) = self.killed.get_mut(at) {
            sleep.wait.user_stack = user_stack;
            sleep.words = words;
        }
    }

    /// What may be addresses of a stack, unless there are too many already.
    fn keep(&mut self, stack: &[u8]) -> Vec<u64> {
        if stack.is_empty() {
            return Vec::new();
        }
        if self.words >= MAX_WORDS {
            self.unsearched += 1;
            return Vec::new();
        }
        let words: Vec<u64> = stack
            .chunks_exact(8)
            .map(|bytes| u64::from_le_bytes(bytes.try_into().unwrap_or_default()))
            .filter(|word| USER_ADDRESSES.contains(word))
            .collect();
        self.words += words.len();
        words
    }

    /// How many sleeps were left out of the search.
    pub(crate) fn unsearched(&self) -> u64 {
        self.unsearched
    }

    /// Those that ended with their process; and of the others that were not over, those whose
    /// thread holds something. Each has the lock that others of its process wait for and that its
    /// stack points to. Forgets all of them.
    pub(crate) fn take(&mut self) -> Vec<Wait> {
        let killed = std::mem::take(&mut self.killed);
        let mut asleep: Vec<UnfinishedSleep> =
            std::mem::take(&mut self.asleep).into_values().collect();
        asleep.sort_by_key(|sleep| sleep.wait.tid);
        self.without_stack.clear();
        self.words = 0;
        let mut of_process: BTreeMap<u32, Vec<u64>> = BTreeMap::new();
        for UnfinishedSleep { wait, .. } in killed.iter().chain(&asleep) {
            let addresses = of_process.entry(wait.tgid).or_default();
            addresses.push(awaited(wait));
        }
        let of_process: BTreeMap<u32, Awaited> = of_process
            .into_iter()
            .map(|(tgid, addresses)| (tgid, Awaited::new(addresses)))
            .collect();
        let searched = |UnfinishedSleep { mut wait, words }: UnfinishedSleep| {
            if let Some(of_process) = of_process.get(&wait.tgid) {
                wait.holds = of_process.held(&words, awaited(&wait));
            }
            wait
        };
        let mut waits: Vec<Wait> = killed.into_iter().map(searched).collect();
        let asleep = asleep.into_iter().map(searched);
        waits.extend(asleep.filter(|wait| wait.holds != 0));
        waits
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

/// The addresses that threads of a process wait for. Each word of each of their stacks is looked
/// up, so that must take nanoseconds.
struct Awaited {
    /// Each once, in order.
    addresses: Vec<u64>,
    /// Whether one may lie in a block of so many bytes as a lock has, by the lowest bits of the
    /// block's number.
    blocks: Vec<bool>,
}

impl Awaited {
    fn new(mut addresses: Vec<u64>) -> Self {
        addresses.retain(|address| USER_ADDRESSES.contains(address));
        addresses.sort_unstable();
        addresses.dedup();
        let mut blocks = vec![false; (addresses.len() * 8).next_power_of_two()];
        let mask = blocks.len() - 1;
        for address in &addresses {
            blocks[(address >> LOCK_BITS) as usize & mask] = true;
        }
        Self { addresses, blocks }
    }

    /// The one to or shortly before which a word points first, but for `own`. 0: none.
    fn held(&self, words: &[u64], own: u64) -> u64 {
        words
            .iter()
            .filter_map(|word| self.at_or_after(*word))
            .find(|address| *address != own)
            .unwrap_or(0)
    }

    /// The next one from here on, if it is near.
    fn at_or_after(&self, word: u64) -> Option<u64> {
        let mask = self.blocks.len() - 1;
        let block = (word >> LOCK_BITS) as usize;
        if !self.blocks[block & mask] && !self.blocks[(block + 1) & mask] {
            return None;
        }
        let next = self.addresses.partition_point(|address| *address < word);
        let address = *self.addresses.get(next)?;
        (address - word < LOCK_BYTES).then_some(address)
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    const FUTEX: u32 = 202;

    fn sleep(tid: u32, address: u64) -> Wait {
        Wait {
            tid,
            tgid: 1,
            syscall: Some(FUTEX),
            args: [address, 0, 0],
            user_stack: 1,
            ..Wait::default()
        }
    }

    fn stack(words: &[u64]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    /// What each of these threads holds: of those that were killed, and of those that sleep on.
    fn held(sleeps: &[(Wait, Vec<u8>)]) -> Vec<u64> {
        let mut unfinished = Unfinished::default();
        for (wait, stack) in sleeps {
            let words = unfinished.keep(stack);
            unfinished.killed(wait.clone(), words);
        }
        let held: Vec<u64> = unfinished.take().iter().map(|wait| wait.holds).collect();
        for (wait, stack) in sleeps {
            unfinished.sleeps(wait, stack);
        }
        let of_sleepers = unfinished.take();
        for (held, (wait, _)) in held.iter().zip(sleeps) {
            let row = of_sleepers.iter().find(|row| row.tid == wait.tid);
            assert_eq!(row.map_or(0, |row| row.holds), *held);
        }
        held
    }

    #[test]
    fn each_of_two_holds_what_the_other_waits_for() {
        let sleeps = [
            (sleep(1, 0x7000_0010), stack(&[7, 0x7000_0010, 0x6000_0000])),
            (sleep(2, 0x6000_0010), stack(&[0x6000_0010, 0x7000_0000])),
        ];
        assert_eq!(held(&sleeps), [0x6000_0010, 0x7000_0010]);
    }

    #[test]
    fn what_points_too_far_before_or_behind_a_word_holds_nothing() {
        let word = 0x7000_0000;
        let of = |pointer| {
            held(&[
                (sleep(1, word), Vec::new()),
                (sleep(2, 0x6000_0000), stack(&[pointer])),
            ])[1]
        };
        assert_eq!(of(word), word);
        assert_eq!(of(word - LOCK_BYTES + 1), word);
        assert_eq!(of(word - LOCK_BYTES), 0);
        assert_eq!(of(word + 1), 0);
    }

    #[test]
    fn other_processes_wait_for_other_locks() {
        let mut elsewhere = sleep(2, 0x7000_0000);
        elsewhere.tgid = 2;
        let sleeps = [
            (sleep(1, 0x6000_0000), stack(&[0x7000_0000])),
            (elsewhere, Vec::new()),
        ];
        assert_eq!(held(&sleeps), [0, 0]);
    }

    #[test]
    fn what_is_over_is_not_searched() {
        let mut unfinished = Unfinished::default();
        let of = |seq| Wait {
            seq,
            ..sleep(1, 0x6000_0000)
        };
        let words = [0x7000_0000, 0x7000_0001];
        unfinished.sleeps(&of(7), &stack(&words));
        assert!(unfinished.over(1, 6).is_empty(), "the one before");
        assert_eq!(unfinished.over(1, 7), words);
        assert_eq!((unfinished.over(1, 7).len(), unfinished.words), (0, 0));
        unfinished.sleeps(&of(9), &stack(&words));
        assert!(unfinished.over(1, 11).is_empty(), "its end was lost");
        assert_eq!((unfinished.take().len(), unfinished.words), (0, 0));
    }

    #[test]
    fn a_stack_that_comes_later_goes_to_the_first_sleep_without_one() {
        let mut unfinished = Unfinished::default();
        unfinished.killed(sleep(1, 0x6000_0000), vec![]);
        for address in [0x7000_0000, 0x7100_0000] {
            let without = Wait {
                user_stack: 0,
                ..sleep(2, address)
            };
            unfinished.killed(without, vec![]);
        }
        assert!(!unfinished.wants_stack(1) && unfinished.wants_stack(2));
        unfinished.stack_came(2, 5, &stack(&[0x6000_0000]));
        assert!(unfinished.wants_stack(2), "the second has none");
        unfinished.stack_came(2, 6, &[]);
        assert!(!unfinished.wants_stack(2));
        let waits = unfinished.take();
        let stacks: Vec<_> = waits.iter().map(|w| (w.user_stack, w.holds)).collect();
        assert_eq!(stacks, [(1, 0), (5, 0x6000_0000), (6, 0)]);
    }

    #[test]
    fn ten_thousand_threads_with_deep_stacks_take_no_time_and_bounded_memory() {
        const THREADS: u32 = 10_000;
        const WORDS: u32 = 1_024;
        let mut unfinished = Unfinished::default();
        let address = |tid: u32| 0x7000_0000 + u64::from(tid) * 0x1000;
        // Each word is near what another thread waits for.
        for tid in 0..THREADS {
            let near: Vec<u64> = (0..WORDS)
                .map(|word| address((tid + word) % THREADS) + 8)
                .collect();
            unfinished.sleeps(&sleep(tid, address(tid)), &stack(&near));
        }
        assert!(unfinished.words < MAX_WORDS + WORDS as usize);
        let searched = MAX_WORDS as u64 / u64::from(WORDS);
        assert_eq!(unfinished.unsearched(), u64::from(THREADS) - searched);
        let begun = Instant::now();
        assert!(unfinished.take().is_empty());
        // Compared with each other they take minutes.
        let took = begun.elapsed();
        assert!(
            took < Duration::from_secs(10),
            "expected it at once: {took:?}"
        );
    }
}
