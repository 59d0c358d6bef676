//! What threads waited for, over the whole recording: sums for each futex word or lock, descriptor,
//! epoll instance and kind of wait. Collected while the waits stream by, so that memory depends on
//! how many things were waited for, not on how often.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use whywait_events::{FutexSum, Ns, Request, StackId, Wait, WakeContext};

use crate::maps::HashMap;
use crate::pools::EpollPool;
use crate::requests::life;
use crate::rows::Rows;
use crate::stacks::{StackNames, StackText};
use crate::timeline::Thread;
use crate::waits::futex::{self, Ended, Primitive, Seen, WaitClass};
use crate::waits::handover::{Handovers, InHand};
use crate::waits::kind::{WaitKind, wait_kind};
use crate::waits::system_call::{SystemCall, call_name, locks_file, name_of, system_call};

/// A thread that leaves one in so many of its requests to others to answer carries tasks.
const CARRIES: u64 = 4;
/// Distinct things that are kept apart.
const MAX_OBJECTS: usize = 65_536;
/// Distinct words that are kept of a lock whose words are the waiters'.
const MAX_WORDS: usize = 256;

/// Names what is waited for in all of the recording: an object of a process.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WaitKey {
    /// Process id; 0: of all processes of the target.
    pub tgid: u32,
    /// What in it.
    pub object: WaitObject,
}

impl WaitKey {
    /// A lock whose waits have no word in common.
    fn of_lock(lock: Primitive, tgid: u32) -> Self {
        Self {
            tgid: if lock.is_between_processes() { 0 } else { tgid },
            object: WaitObject::Lock(lock),
        }
    }
}

/// What is waited for: a futex word, a descriptor, an epoll instance, or a kind of wait alone.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum WaitObject {
    /// A futex word; of `parking_lot`, whose words belong to the waiters, what they queue for.
    Futex {
        /// Its address.
        address: u64,
        /// What it is part of, by the waiters' stacks: a thread's own word may serve several.
        primitive: Option<Primitive>,
    },
    /// A file descriptor, in a kind of wait.
    Descriptor {
        /// What for.
        what: Cow<'static, str>,
        /// The descriptor.
        fd: i32,
    },
    /// An epoll instance.
    Epoll(u32),
    /// Locks whose waits have no word in common: they are in a poll or another call, or on a word
    /// of each waiter's own. Which lock of the kind it is, is not recorded: all of a kind are one.
    Lock(Primitive),
    /// A kind of wait.
    Other(Cow<'static, str>),
}

impl WaitObject {
    /// What kind of wait it is, in a word or two: `lock`, `fsync`, `epoll 3`. Hostile.
    pub fn name(&self) -> String {
        match self {
            WaitObject::Futex { primitive, .. } => {
                primitive.map_or("futex", Primitive::name).to_owned()
            }
            WaitObject::Descriptor { what, .. } | WaitObject::Other(what) => what.to_string(),
            WaitObject::Epoll(number) => format!("epoll {number}"),
            WaitObject::Lock(primitive) => primitive.name().to_owned(),
        }
    }

    /// What it is part of, by the waiters' stacks.
    pub const fn primitive(&self) -> Option<Primitive> {
        match self {
            WaitObject::Futex { primitive, .. } => *primitive,
            WaitObject::Lock(primitive) => Some(*primitive),
            WaitObject::Descriptor { .. } | WaitObject::Epoll(_) | WaitObject::Other(_) => None,
        }
    }

    /// Whether waits for several locks may have been taken together.
    pub const fn may_be_several(&self) -> bool {
        matches!(self, WaitObject::Lock(primitive) if !primitive.is_single())
    }
}

/// All waits for one object, summed up: a row of the table of waits.
#[derive(Debug, Clone, Default)]
pub struct WaitSums {
    /// Asleep in waits that have rows of their own.
    pub total_ns: u64,
    /// The longest of them.
    pub longest_ns: u64,
    /// Waits that were too short, or too many, to have rows of their own, and their time.
    pub short: u64,
    /// Asleep in them.
    pub short_ns: u64,
    /// The longest of them.
    pub short_longest_ns: u64,
    /// Waits that had not ended when the recording did: their threads.
    pub unfinished: Vec<u32>,
    /// The part of `total_ns` that is theirs.
    pub unfinished_ns: u64,
    /// The rest.
    pub seen: Seen,
    /// The words.
    words: BTreeSet<u64>,
    /// For futexes, once all is seen.
    pub class: Option<WaitClass>,
    /// Why.
    pub reasons: Vec<String>,
}

impl WaitSums {
    /// Adds those of another object that is taken to be the same.
    pub fn merge(&mut self, other: WaitSums) {
        self.total_ns = self.total_ns.saturating_add(other.total_ns);
        self.longest_ns = self.longest_ns.max(other.longest_ns);
        self.short = self.short.saturating_add(other.short);
        self.short_ns = self.short_ns.saturating_add(other.short_ns);
        self.short_longest_ns = self.short_longest_ns.max(other.short_longest_ns);
        self.unfinished.extend(other.unfinished);
        self.unfinished_ns = self.unfinished_ns.saturating_add(other.unfinished_ns);
        self.seen.merge(&other.seen);
        self.words.extend(other.words);
        while self.words.len() > MAX_WORDS {
            self.words.pop_last();
        }
    }
}

/// All objects that were waited for, with the sums of their waits.
#[derive(Debug, Clone, Default)]
pub struct WaitObjects {
    sums: HashMap<WaitKey, WaitSums>,
    /// Of sleeps that may have been for something that was handed over, until that is settled.
    handed: HashMap<WaitKey, WaitSums>,
    handovers: Handovers,
    /// By stack: the primitive, and whether it is `parking_lot`'s.
    primitives: HashMap<StackId, (Option<Primitive>, bool)>,
    /// By stack of a thread that woke another one: whether it was letting go of a lock, and no
    /// doubt about it.
    releases: HashMap<StackId, Option<bool>>,
    /// By stack of a poll: the lock that is waited for in it.
    polled_locks: HashMap<StackId, Option<Primitive>>,
    kinds: HashMap<(StackId, Option<u32>), Option<WaitKind>>,
    /// By thread: the sleep that has not ended.
    open: BTreeMap<u32, Wait>,
    /// When threads had requests open.
    in_hand: InHand,
    /// By thread: what it slept for last, until when, and whether that was found to lead to an
    /// answer.
    last: HashMap<u32, (WaitKey, Ns, bool)>,
    short: Rows<FutexSum, MAX_OBJECTS>,
    /// What is mapped at futex words and locks, by process.
    mappings: HashMap<(u32, u64), String>,
    left_out: u64,
}

impl WaitObjects {
    /// Takes note of when threads have requests open.
    pub(crate) fn serve(&mut self, requests: &[Request]) {
        let mut answered: HashMap<u32, (u64, u64)> = HashMap::default();
        for request in requests {
            let (Some(recv_ns), tid) = (request.recv_ns, request.recv_tid) else {
                continue;
            };
            if life::answered_ns(request).is_some() {
                let (all, by_others) = answered.entry(tid).or_default();
                *all += 1;
                *by_others += u64::from(request.send_tid != tid);
            }
            // What another thread answers is off this one's hands at a time that is not known.
            let until = match life::answered_ns(request) {
                Some(_) if request.send_tid != tid => continue,
                _ => life::until_ns(request),
            };
            self.in_hand.add(tid, recv_ns, until);
        }
        self.in_hand.sort();
        for (tid, (all, by_others)) in answered {
            if by_others.saturating_mul(CARRIES) >= all && by_others > 1 {
                self.in_hand.carries(tid);
            }
        }
    }

    fn serving(&self, wait: &Wait) -> bool {
        self.in_hand
            .throughout(wait.tid, wait.out_ns, wait.woken_ns())
    }

    /// Whether a thread that serves requests slept for the next one: it had none in its hands.
    pub(crate) fn between_requests(&self, wait: &Wait) -> bool {
        matches!(
            system_call(wait),
            SystemCall::Socket | SystemCall::Stream | SystemCall::Poll
        ) && self.in_hand.serves(wait.tid)
            && !self.serving(wait)
    }

    /// Since when a thread has had the request that it has in hand at a time, if it is only one.
    pub(crate) fn serving_since(&self, tid: u32, at_ns: Ns) -> Option<Ns> {
        self.in_hand.only(tid, at_ns).map(|(from_ns, _)| from_ns)
    }

    /// Adds a sleep.
    pub(crate) fn add(
        &mut self,
        wait: &Wait,
        stacks: &StackNames,
        in_target: impl Fn(u32) -> bool,
    ) {
        // One that only the process's end cut short would have gone on.
        if wait.in_ns.is_none() || wait.wake_context == WakeContext::Exit {
            self.open.insert(wait.tid, wait.clone());
            return;
        }
        if self
            .open
            .get(&wait.tid)
            .is_some_and(|open| open.seq <= wait.seq)
        {
            self.open.remove(&wait.tid);
        }
        let slept_ns = wait.woken_ns().saturating_sub(wait.out_ns);
        self.in_hand.turn_to(wait.tid, wait.out_ns);
        let key = self.key_noted(wait, stacks);
        let is_futex = system_call(wait) == SystemCall::Futex;
        let serving = self.serving(wait);
        let by_target = wait.waker_tid != 0 && in_target(wait.waker_tid);
        if serving && by_target {
            self.led_to_answer(wait);
        }
        let handed = is_futex
            && serving
            && by_target
            && key
                .object
                .primitive()
                .is_some_and(|primitive| self.handovers.add(wait, primitive, &self.in_hand));
        let ended = Ended {
            slept_ns,
            serving,
            by_target,
            by_peer: serving && by_target && self.in_hand.between_peers(wait),
            letting_go: self.lets_go(wait, stacks),
        };
        let all = if handed { &self.handed } else { &self.sums };
        if all.len() >= MAX_OBJECTS && !all.contains_key(&key) {
            self.left_out += 1;
            return;
        }
        if is_futex {
            self.last
                .insert(wait.tid, (key.clone(), wait.in_ns.unwrap_or(0), false));
        }
        let all = if handed {
            &mut self.handed
        } else {
            &mut self.sums
        };
        let sums = all.entry(key).or_default();
        sums.total_ns = sums.total_ns.saturating_add(slept_ns);
        sums.longest_ns = sums.longest_ns.max(slept_ns);
        if is_futex && sums.words.len() < MAX_WORDS {
            sums.words.insert(wait.args[0]);
        }
        sums.seen.add(wait, &ended);
    }

    /// Whether who ended a sleep was letting go of a lock, and no doubt about it.
    fn lets_go(&mut self, wait: &Wait, stacks: &StackNames) -> Option<bool> {
        if wait.waker_stack == 0 {
            return None;
        }
        *self
            .releases
            .entry(wait.waker_stack)
            .or_insert_with(|| stacks.get(wait.waker_stack).and_then(futex::release))
    }

    /// A thread that had a request open was woken: what its waker had been waiting for led to that.
    fn led_to_answer(&mut self, wait: &Wait) {
        if let Some((key, until, counted)) = self.last.get_mut(&wait.waker_tid)
            && !*counted
            && *until <= wait.woken_ns()
        {
            *counted = true;
            if let Some(sums) = self.sums.get_mut(key) {
                sums.seen.led_to_answers += 1;
            }
        }
    }

    /// Adds what is known of the short sleeps on a word.
    pub(crate) fn add_short(&mut self, sum: &FutexSum) {
        self.short.push(sum.clone());
    }

    /// All rows are in: counts what has not ended, and decides what futexes were for.
    pub(crate) fn settle(
        &mut self,
        stacks: &StackNames,
        pools: &[EpollPool],
        threads: &BTreeMap<u32, Thread>,
        end_ns: Ns,
    ) {
        for (tid, wait) in self.open.clone() {
            let key = self.key_noted(&wait, stacks);
            if self.sums.len() < MAX_OBJECTS || self.sums.contains_key(&key) {
                let sums = self.sums.entry(key).or_default();
                sums.unfinished.push(tid);
                // Until the end of the recording, or of the process.
                let slept_ns = wait.woken_ns().min(end_ns).saturating_sub(wait.out_ns);
                sums.total_ns = sums.total_ns.saturating_add(slept_ns);
                sums.unfinished_ns = sums.unfinished_ns.saturating_add(slept_ns);
                sums.longest_ns = sums.longest_ns.max(slept_ns);
                if let Some(one) = futex::entry(&mut sums.seen.waiters, tid) {
                    one.1 = one.1.saturating_add(slept_ns);
                }
                if wait.user_stack != 0 {
                    futex::bump(&mut sums.seen.stacks, wait.user_stack, 1);
                }
            }
        }
        self.settle_handed(pools);
        self.settle_short();
        for (key, sums) in &mut self.sums {
            let primitive = key.object.primitive();
            let seen = &mut sums.seen;
            match key.object {
                WaitObject::Futex { .. } => {}
                // What stands in a poll's arguments is no word.
                WaitObject::Lock(_) => {
                    seen.values.clear();
                    seen.op = 0;
                }
                _ => continue,
            }
            let parked = seen.stacks.keys().any(|stack| {
                pools
                    .iter()
                    .any(|pool| pool.tgid == key.tgid && pool.park_stacks.contains(stack))
            });
            seen.parked_in_pool = if parked { seen.count } else { 0 };
            seen.value_is_thread = seen.values.keys().copied().find(|value| {
                threads
                    .get(value)
                    .is_some_and(|thread| thread.tgid == key.tgid)
            });
            let (class, mut reasons) = futex::classify(seen, primitive);
            let handed = primitive.and_then(|lock| self.handovers.reason(key.tgid, lock));
            if let Some(reason) = handed {
                reasons.insert(0, reason);
            }
            sums.class = Some(class);
            sums.reasons = reasons;
        }
    }

    /// What was handed over is a lock, or else no more than what it was waited for at.
    fn settle_handed(&mut self, pools: &[EpollPool]) {
        self.handovers.settle(pools);
        for (key, sums) in std::mem::take(&mut self.handed) {
            let lock = key
                .object
                .primitive()
                .and_then(|primitive| self.handovers.lock(key.tgid, primitive));
            let key = match lock {
                Some(lock) => WaitKey::of_lock(lock, key.tgid),
                None => key,
            };
            self.sums.entry(key).or_default().merge(sums);
        }
    }

    fn settle_short(&mut self) {
        let mut by_word: HashMap<(u32, u64), Vec<WaitKey>> = HashMap::default();
        let mut by_fd: HashMap<(u32, i32), Vec<WaitKey>> = HashMap::default();
        for (key, sums) in &self.sums {
            if let WaitObject::Descriptor { fd, .. } = key.object {
                by_fd.entry((key.tgid, fd)).or_default().push(key.clone());
            }
            for word in &sums.words {
                by_word
                    .entry((key.tgid, *word))
                    .or_default()
                    .push(key.clone());
            }
        }
        for short in std::mem::take(&mut self.short).into_kept() {
            if !short.mapping.is_empty() {
                self.mappings
                    .insert((short.tgid, short.address), short.mapping.clone());
            }
            if short.count == 0 {
                continue;
            }
            let descriptor = short.descriptor();
            let known = match descriptor {
                Some((_, fd)) => by_fd.get(&(short.tgid, fd)),
                None => by_word.get(&(short.tgid, short.address)),
            };
            let key = known
                // A word or a descriptor that serves several: the one that it served most.
                .and_then(|keys| {
                    keys.iter()
                        .max_by_key(|key| (self.sums.get(key).map(|sums| sums.seen.count), *key))
                })
                .cloned()
                .unwrap_or(WaitKey {
                    tgid: short.tgid,
                    object: match descriptor {
                        Some((number, fd)) => WaitObject::Descriptor {
                            what: name_of(number),
                            fd,
                        },
                        None => WaitObject::Futex {
                            address: short.address,
                            primitive: None,
                        },
                    },
                });
            let sums = self.sums.entry(key).or_default();
            sums.short = sums.short.saturating_add(short.count);
            sums.short_ns = sums.short_ns.saturating_add(short.total_ns);
            sums.short_longest_ns = sums.short_longest_ns.max(short.longest_ns);
        }
    }

    fn key_noted(&mut self, wait: &Wait, stacks: &StackNames) -> WaitKey {
        if wait.user_stack != 0 && system_call(wait) == SystemCall::Futex {
            self.primitives
                .entry(wait.user_stack)
                .or_insert_with(|| of_stack(stacks, wait.user_stack));
        }
        if wait.user_stack != 0 && system_call(wait) == SystemCall::Poll {
            self.polled_locks
                .entry(wait.user_stack)
                .or_insert_with(|| polled_lock(stacks, wait.user_stack));
        }
        if wait.kernel_stack != 0 {
            self.kinds
                .entry((wait.kernel_stack, wait.syscall))
                .or_insert_with(|| of_kernel(stacks, wait));
        }
        self.key(wait, stacks)
    }

    /// What a sleep was for.
    pub(crate) fn key(&self, wait: &Wait, stacks: &StackNames) -> WaitKey {
        let what = || {
            self.kind(wait, stacks)
                .map_or_else(|| call_name(wait), |kind| kind.name.into())
        };
        if let Some(lock) = self.kernel_lock(wait, stacks) {
            return WaitKey::of_lock(lock, wait.tgid);
        }
        let object = match system_call(wait) {
            SystemCall::Poll if let Some(lock) = self.polled_lock(wait, stacks) => {
                return WaitKey::of_lock(lock, wait.tgid);
            }
            SystemCall::Futex => return self.key_of_futex(wait, stacks),
            SystemCall::Poll if wait.epoll != 0 => WaitObject::Epoll(wait.epoll),
            SystemCall::Socket | SystemCall::Stream | SystemCall::File => WaitObject::Descriptor {
                what: what(),
                fd: wait.args[0] as i32,
            },
            _ => WaitObject::Other(what()),
        };
        WaitKey {
            tgid: wait.tgid,
            object,
        }
    }

    /// Whether what a sleep was for is a futex or a lock: others have no class.
    pub(crate) fn may_have_class(&self, wait: &Wait, stacks: &StackNames) -> bool {
        match system_call(wait) {
            SystemCall::Futex => true,
            SystemCall::Poll if self.polled_lock(wait, stacks).is_some() => true,
            _ => self.kernel_lock(wait, stacks).is_some(),
        }
    }

    /// A lock that a system call or a page fault slept for, and not the program itself.
    fn kernel_lock(&self, wait: &Wait, stacks: &StackNames) -> Option<Primitive> {
        if locks_file(wait) {
            return Some(Primitive::File);
        }
        self.kind(wait, stacks)?.lock()
    }

    fn polled_lock(&self, wait: &Wait, stacks: &StackNames) -> Option<Primitive> {
        self.polled_locks
            .get(&wait.user_stack)
            .copied()
            .unwrap_or_else(|| polled_lock(stacks, wait.user_stack))
    }

    fn key_of_futex(&self, wait: &Wait, stacks: &StackNames) -> WaitKey {
        let (primitive, of_parking_lot) = self
            .primitives
            .get(&wait.user_stack)
            .copied()
            .unwrap_or_else(|| of_stack(stacks, wait.user_stack));
        let handed = primitive
            .filter(|primitive| self.in_hand.may_be_handed_over(wait, *primitive))
            .and_then(|primitive| self.handovers.lock(wait.tgid, primitive));
        let lock = handed.or(primitive.filter(|primitive| primitive.has_words_of_waiters()));
        if let Some(lock) = lock {
            return WaitKey::of_lock(lock, wait.tgid);
        }
        let address = match stacks.get(wait.user_stack) {
            _ if of_parking_lot && wait.lock != 0 => wait.lock,
            Some(stack) if primitive == Some(Primitive::Gil) => {
                futex::gil_address(stack, wait.args[0])
            }
            _ => wait.args[0],
        };
        WaitKey {
            tgid: wait.tgid,
            object: WaitObject::Futex { address, primitive },
        }
    }

    /// What a sleep was for, by the kernel's stack.
    pub(crate) fn kind(&self, wait: &Wait, stacks: &StackNames) -> Option<WaitKind> {
        self.kinds
            .get(&(wait.kernel_stack, wait.syscall))
            .copied()
            .unwrap_or_else(|| of_kernel(stacks, wait))
    }

    /// What is mapped at a futex word or a lock, hostile; `None` when not known.
    pub fn mapping(&self, tgid: u32, address: u64) -> Option<&str> {
        self.mappings.get(&(tgid, address)).map(String::as_str)
    }

    /// What was seen of the waits for something.
    pub fn get(&self, key: &WaitKey) -> Option<&WaitSums> {
        self.sums.get(key)
    }

    /// All, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (&WaitKey, &WaitSums)> {
        self.sums.iter()
    }

    /// The sleeps that had not ended when the recording did, by thread.
    pub fn open(&self) -> impl Iterator<Item = &Wait> {
        self.open.values()
    }

    /// Rows that were left out because there was too much to keep apart.
    pub(crate) fn left_out(&self) -> u64 {
        self.left_out.saturating_add(self.short.left_out())
    }
}

fn of_stack(stacks: &StackNames, id: StackId) -> (Option<Primitive>, bool) {
    stacks.get(id).map_or((None, false), |stack: &StackText| {
        (
            futex::primitive(stack, stacks.gvl_frames()),
            futex::of_parking_lot(stack),
        )
    })
}

fn polled_lock(stacks: &StackNames, id: StackId) -> Option<Primitive> {
    stacks.get(id).and_then(futex::polled_lock)
}

fn of_kernel(stacks: &StackNames, wait: &Wait) -> Option<WaitKind> {
    stacks
        .get(wait.kernel_stack)
        .and_then(|stack| wait_kind(wait, stack))
}

#[cfg(test)]
mod tests {
    use super::*;

    const RECVFROM: u32 = 45;

    fn summed_up(fd: u64) -> FutexSum {
        FutexSum {
            tgid: 1,
            address: 1 << 63 | u64::from(RECVFROM) << 32 | fd,
            count: 10,
            total_ns: 500,
            longest_ns: 90,
            ..FutexSum::default()
        }
    }

    #[test]
    fn what_a_storm_of_reads_summed_up_is_the_descriptors() {
        let mut objects = WaitObjects::default();
        let stacks = StackNames::default();
        let told = Wait {
            tid: 2,
            tgid: 1,
            syscall: Some(RECVFROM),
            args: [7, 0, 0],
            out_ns: 100,
            wake_ns: Some(300),
            in_ns: Some(310),
            ..Wait::default()
        };
        objects.add(&told, &stacks, |_| true);
        objects.add_short(&summed_up(7));
        objects.add_short(&summed_up(8));
        objects.settle(&stacks, &[], &BTreeMap::new(), 1000);
        for (fd, told, total_ns) in [(7, 1, 200), (8, 0, 0)] {
            let key = WaitKey {
                tgid: 1,
                object: WaitObject::Descriptor {
                    what: "recvfrom".into(),
                    fd,
                },
            };
            let sums = objects.get(&key).expect("the descriptor has sums");
            assert_eq!(
                (sums.seen.count, sums.total_ns),
                (told, total_ns),
                "fd {fd}"
            );
            assert_eq!(
                (sums.short, sums.short_ns, sums.short_longest_ns),
                (10, 500, 90),
                "fd {fd}"
            );
        }
    }
}
