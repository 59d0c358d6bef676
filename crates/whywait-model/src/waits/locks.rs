//! Who held a lock while another thread waited for it, for how long, and what the holder did
//! meanwhile.

use std::ops::Deref;

use whywait_events::{Ns, StackId, Wait, WakeContext};

use crate::joined::Joined;
use crate::maps::HashMap;
use crate::timeline::Thread;
use crate::waits::at_a_time::HadBySeveral;
use crate::waits::futex::Primitive;
use crate::waits::meaning::ended_by_timeout;
use crate::waits::objects::WaitKey;

/// Less than this part of a hold that the holder slept is no wait that it held the lock across.
const ACROSS_SHARE: u64 = 10;
/// A holder that let go of a lock more often than this while somebody waited is not followed any
/// further back.
pub(crate) const MOST_LOOKED_AT: usize = 256;
/// Who tries again for a lock after a timeout does so within this time.
const TRIES_AGAIN_NS: Ns = 2_000_000;
/// Threads that wait for each other are followed so far for whether they had a CPU.
const MAX_WAKERS: u32 = 4;

/// A lock that was held while somebody waited for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hold {
    /// The thread.
    pub holder: u32,
    /// From this time on at the latest: an earlier start leaves no trace when nobody had to wait
    /// for it.
    pub from_ns: Ns,
    /// Until.
    pub to_ns: Ns,
    /// The holder's own wait for the lock ended at `from_ns`: then it is the true start.
    pub exact: bool,
    /// Where the holder was, for most of the time that is known. 0: not known.
    pub stack: StackId,
    /// Of that the holder, or a thread that it waited for, could have run and had no CPU,
    /// nanoseconds: that is no matter of the lock.
    pub without_cpu_ns: u64,
    /// What the holder waited for with the lock in its hands, if that was a notable part of the
    /// time.
    pub across: Option<Across>,
}

/// A lock was let go, which ended another thread's wait for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LetGo {
    pub(crate) at_ns: Ns,
    /// By this thread.
    pub(crate) by: u32,
    /// Whose wait that ended.
    pub(crate) woken: u32,
}

/// What a thread waited for with a lock in its hands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Across {
    /// Asleep within the hold, altogether.
    pub ns: u64,
    /// What for, mostly: `fsync`.
    pub what: String,
    /// Where, mostly.
    pub stack: StackId,
}

impl Hold {
    /// At least for how long.
    pub fn ns(&self) -> u64 {
        self.to_ns.saturating_sub(self.from_ns)
    }

    /// At least for how long, but for the time that the holder was without a CPU.
    pub fn own_ns(&self) -> u64 {
        self.ns().saturating_sub(self.without_cpu_ns)
    }
}

/// What was recorded and joined, with who let go of each lock.
#[derive(Debug, Clone)]
pub struct Locks {
    joined: Joined,
    /// When each lock was let go, and by whom, in order: what ended the waits for it.
    let_go: HashMap<WaitKey, Vec<LetGo>>,
    /// Who had one of each, where several threads had at a time.
    several: HashMap<WaitKey, HadBySeveral>,
}

impl Deref for Locks {
    type Target = Joined;

    fn deref(&self) -> &Joined {
        &self.joined
    }
}

impl Locks {
    /// Finds out who let go of them.
    pub(crate) fn of(joined: Joined) -> Self {
        let mut let_go: HashMap<WaitKey, Vec<LetGo>> = HashMap::default();
        for wait in joined
            .threads
            .values()
            .flat_map(|thread| thread.timeline.waits())
        {
            if wait.wake_context == WakeContext::Task && joined.is_lock_wait(wait) {
                let_go.entry(joined.key_of(wait)).or_default().push(LetGo {
                    at_ns: wait.woken_ns(),
                    by: wait.waker_tid,
                    woken: wait.tid,
                });
            }
        }
        for times in let_go.values_mut() {
            times.sort_unstable();
        }
        let several = let_go.iter().filter_map(|(key, let_go)| {
            let several = HadBySeveral::of(&joined, key, let_go)?;
            Some((key.clone(), several))
        });
        let several = several.collect();
        Self {
            joined,
            let_go,
            several,
        }
    }

    /// How many threads had one of these locks at a time while others waited, where that was
    /// several: permits of a semaphore, or locks that count as one.
    pub fn had_at_a_time(&self, key: &WaitKey) -> Option<usize> {
        self.several.get(key).map(HadBySeveral::at_a_time)
    }

    /// The first sleep of a wait for a lock of which this one is a part: some that want a lock
    /// sleep with a timeout, again and again.
    pub(crate) fn first_try<'a>(&'a self, wait: &'a Wait) -> &'a Wait {
        let mut first = wait;
        let Some(waits) = self.tries(wait) else {
            return wait;
        };
        let at = waits.partition_point(|other| other.out_ns < wait.out_ns);
        let key = self.key_of(wait);
        for before in waits[..at].iter().rev() {
            if !self.goes_on(&key, before, first) {
                break;
            }
            first = before;
        }
        first
    }

    /// The last one.
    fn last_try<'a>(&'a self, wait: &'a Wait) -> &'a Wait {
        let mut last = wait;
        let Some(waits) = self.tries(wait) else {
            return wait;
        };
        let after = waits.partition_point(|other| other.out_ns <= wait.out_ns);
        let key = self.key_of(wait);
        for next in &waits[after..] {
            if !self.goes_on(&key, last, next) {
                break;
            }
            last = next;
        }
        last
    }

    /// The sleeps of a thread, if it may sleep for its lock again and again.
    fn tries(&self, wait: &Wait) -> Option<&[Wait]> {
        let primitive = self.key_of(wait).object.primitive()?;
        let thread = self.threads.get(&wait.tid)?;
        primitive.tries_again().then(|| thread.timeline.waits())
    }

    /// Whether a thread that slept for a lock until a timeout went on with that in its next sleep.
    fn goes_on(&self, key: &WaitKey, wait: &Wait, next: &Wait) -> bool {
        ended_by_timeout(wait)
            && next.out_ns.saturating_sub(wait.end_ns()) < TRIES_AGAIN_NS
            && self.key_of(wait) == *key
            && self.key_of(next) == *key
    }

    /// Who held the lock that a thread waited for; `None` when nobody of the target let it go, or
    /// it is not known who. Of a wait in several sleeps the last one has it.
    pub fn hold(&self, wait: &Wait) -> Option<Hold> {
        let holder = if wait.wake_context == WakeContext::Task
            && self.threads.contains_key(&wait.waker_tid)
        {
            wait.waker_tid
        } else {
            return None;
        };
        let key = self.key_of(wait);
        let to_ns = wait.woken_ns();
        let out_ns = self.first_try(wait).out_ns;
        let thread = self.threads.get(&holder)?;
        let several = self.several.get(&key);
        // Not every sleep for one of several is known to be that.
        let same_place = |own: &Wait| own.user_stack != 0 && own.user_stack == wait.user_stack;
        // Its own last wait for the lock, if that ended while the other one waited: so it got it
        // then.
        let own = thread
            .timeline
            .overlapping(out_ns, to_ns)
            .iter()
            .rev()
            .take(MOST_LOOKED_AT)
            .find(|own| self.key_of(own) == key || (several.is_some() && same_place(own)))
            .and_then(|own| own.in_ns)
            .filter(|got_ns| *got_ns > out_ns && *got_ns <= to_ns);
        // Before another thread let go of it, this one had not got it: who takes a free lock leaves
        // no trace. Where several have one, what it had until it let go itself was another one.
        let is_end = |let_go: &LetGo| (let_go.by == holder) == several.is_some();
        let free_ns = self
            .last_let_go(&key, out_ns, to_ns, is_end)
            .map_or(out_ns, |let_go| thread.on_cpu_from(let_go.at_ns).min(to_ns));
        let idle_ns = self
            .last_between_requests(&key, thread, out_ns, to_ns)
            .map_or(out_ns, |idle| idle.end_ns().min(to_ns));
        let serving_ns = several.and_then(|_| self.objects.serving_since(holder, to_ns));
        let serving_ns = serving_ns.unwrap_or(out_ns).min(to_ns);
        let from_ns = own
            .unwrap_or(out_ns)
            .max(free_ns)
            .max(idle_ns)
            .max(serving_ns);
        let since_ns = several.and_then(|several| several.since(holder, to_ns));
        let from_ns = since_ns.unwrap_or(from_ns);
        let across = self.across(holder, &key, from_ns, to_ns);
        let sampled = self.sampled_stack(thread, from_ns, to_ns);
        let stack = match &across {
            Some(across)
                if across.stack != 0
                    && (across.ns.saturating_mul(2) >= to_ns.saturating_sub(from_ns)
                        || sampled == 0) =>
            {
                across.stack
            }
            _ if sampled != 0 => sampled,
            // Where it let the lock go.
            _ => wait.waker_stack,
        };
        Some(Hold {
            holder,
            from_ns,
            to_ns,
            // Where locks are not distinguished, what the holder waited for itself may have been
            // another one.
            exact: !key.object.may_be_several() && own.is_some_and(|got_ns| got_ns >= from_ns),
            stack,
            without_cpu_ns: self.without_cpu_along(holder, from_ns, to_ns),
            across,
        })
    }

    /// How long a thread could have run and had no CPU within `[from_ns, to_ns)`, or the threads
    /// that ended its sleeps meanwhile, while it slept, nanoseconds.
    pub fn without_cpu_along(&self, tid: u32, from_ns: Ns, to_ns: Ns) -> u64 {
        self.without_cpu_to(tid, from_ns, to_ns, MAX_WAKERS)
    }

    fn without_cpu_to(&self, tid: u32, from_ns: Ns, to_ns: Ns, wakers: u32) -> u64 {
        let Some(thread) = self.threads.get(&tid).filter(|_| from_ns < to_ns) else {
            return 0;
        };
        let own_ns = thread.without_cpu_ns(from_ns, to_ns);
        if wakers == 0 {
            return own_ns;
        }
        thread
            .timeline
            .overlapping(from_ns, to_ns)
            .iter()
            .filter(|wait| wait.wake_context == WakeContext::Task && wait.waker_tid != tid)
            .map(|wait| {
                let (out_ns, woken_ns) = (wait.out_ns.max(from_ns), wait.woken_ns().min(to_ns));
                self.without_cpu_to(wait.waker_tid, out_ns, woken_ns, wakers - 1)
            })
            .fold(own_ns, u64::saturating_add)
    }

    /// The last sleep of a thread within an interval in which it waited for its next request. It
    /// held no lock then, though nothing shows when it let go of it, or took it again. (A
    /// database's connection may: a transaction is open for several requests.)
    pub(crate) fn last_between_requests<'a>(
        &self,
        key: &WaitKey,
        thread: &'a Thread,
        from_ns: Ns,
        to_ns: Ns,
    ) -> Option<&'a Wait> {
        let lasting = key.object.primitive();
        if lasting.is_some_and(Primitive::outlasts_requests) {
            return None;
        }
        thread
            .timeline
            .overlapping(from_ns, to_ns)
            .iter()
            .rev()
            .take(MOST_LOOKED_AT)
            .find(|wait| self.objects.between_requests(wait))
    }

    /// When a thread other than the holder let go of a lock last within an interval, and which, as
    /// far as that woke somebody.
    pub(crate) fn others_let_go(
        &self,
        key: &WaitKey,
        holder: u32,
        from_ns: Ns,
        to_ns: Ns,
    ) -> Option<LetGo> {
        self.last_let_go(key, from_ns, to_ns, |let_go| let_go.by != holder)
    }

    fn last_let_go(
        &self,
        key: &WaitKey,
        from_ns: Ns,
        to_ns: Ns,
        is_it: impl Fn(&LetGo) -> bool,
    ) -> Option<LetGo> {
        let let_go = self.let_go.get(key)?;
        let until = let_go.partition_point(|let_go| let_go.at_ns < to_ns);
        let_go[..until]
            .iter()
            .rev()
            .take_while(|let_go| let_go.at_ns > from_ns)
            .take(MOST_LOOKED_AT)
            .find(|let_go| is_it(let_go))
            .copied()
    }

    fn across(&self, holder: u32, key: &WaitKey, from_ns: Ns, to_ns: Ns) -> Option<Across> {
        let waits = self
            .threads
            .get(&holder)?
            .timeline
            .overlapping(from_ns, to_ns);
        let within = |wait: &Wait| {
            wait.woken_ns()
                .min(to_ns)
                .saturating_sub(wait.out_ns.max(from_ns))
        };
        let others = || waits.iter().filter(|wait| self.key_of(wait) != *key);
        let ns: u64 = others().map(within).fold(0, u64::saturating_add);
        let longest = others().max_by_key(|wait| within(wait))?;
        (ns.saturating_mul(ACROSS_SHARE) >= to_ns.saturating_sub(from_ns)
            && ns >= self.threshold_ns())
        .then(|| Across {
            ns,
            what: self.what(longest),
            stack: longest.user_stack,
        })
    }

    /// Who let go of the lock that a thread waited for, as far as known: of a wait in several
    /// sleeps, at the end of the last one.
    pub(crate) fn who_let_go(&self, wait: &Wait) -> u32 {
        let last = self.last_try(wait);
        let by_target =
            last.wake_context == WakeContext::Task && self.threads.contains_key(&last.waker_tid);
        if by_target {
            last.waker_tid
        } else {
            last.owner_tid
        }
    }
}
