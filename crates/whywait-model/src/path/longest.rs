//! Which of two paths to a point is the longer one.

use whywait_events::{Ns, Wait};

use super::sleeps::Sleep;
use super::walk::Walk;
use crate::waits::system_call::{SystemCall, system_call};

/// Points that are looked at for whether a path leads there from the request; beyond that none
/// does.
const MAX_LOOKED_AT: usize = 4096;

impl<'m> Walk<'_, 'm> {
    /// Whether the path from the request to the end of this sleep on which most was done leads
    /// through the waker, rather than through the sleep itself.
    pub(super) fn comes_through(&mut self, tid: u32, waker: u32, wait: &Wait, woken: Ns) -> bool {
        let asleep = self.done_until(tid, wait.out_ns);
        match self.done_until(waker, woken) {
            Some(through_waker) => asleep.is_none_or(|asleep| through_waker >= asleep),
            // A loop polls for all its requests. What ended its earlier polls was for others as
            // likely as not, so that what is known to have answered this one, its waker, says more
            // than they do.
            None => system_call(wait) == SystemCall::Poll,
        }
    }

    /// How much was done, at most, on a path from the reading of the request to thread `tid` at
    /// `at`: threads' own time, and time that devices and the network took. A sleep that a thread
    /// ended counts nothing, nor does a wait for another request's client, and another thread's
    /// wait that timed out half. `None`: no path leads there.
    ///
    /// The longest path to a point is the longer one of two: within the thread, and through the
    /// wake that ended its last sleep.
    fn done_until(&mut self, tid: u32, at: Ns) -> Option<u64> {
        enum Task {
            Find(u32, Ns),
            Settle(u32, Ns, [Option<(u32, Ns)>; 2]),
        }
        let mut tasks = vec![Task::Find(tid, at)];
        while let Some(task) = tasks.pop() {
            match task {
                Task::Find(tid, at) => {
                    if self.reached.contains_key(&(tid, at)) {
                        continue;
                    }
                    self.looked_at += 1;
                    if self.looked_at > MAX_LOOKED_AT {
                        self.truncated = true;
                        return None;
                    }
                    // Until it is settled no path leads here: threads that woke each other at one
                    // instant lead nowhere.
                    self.reached.insert((tid, at), None);
                    let before = self.before(tid, at);
                    tasks.push(Task::Settle(tid, at, before));
                    for (tid, at) in before.into_iter().flatten() {
                        tasks.push(Task::Find(tid, at));
                    }
                }
                Task::Settle(tid, at, before) => {
                    let done = self.settle(tid, at, before);
                    self.reached.insert((tid, at), done);
                }
            }
        }
        self.reached.get(&(tid, at)).copied().flatten()
    }

    /// The last sleep of a thread before `at`, since the request was read.
    fn last_sleep(&self, tid: u32, at: Ns) -> Option<Sleep<'m>> {
        let thread = self.model.threads.get(&tid)?;
        let sleep = self.sleeps.before(thread, at)?;
        (sleep.wait.end_ns() > self.from_ns).then_some(sleep)
    }

    /// The points from which paths lead to a thread's state at `at`: it before its last sleep, and
    /// who ended that; or who made the thread.
    fn before(&self, tid: u32, at: Ns) -> [Option<(u32, Ns)>; 2] {
        let Some(sleep) = self.last_sleep(tid, at) else {
            return [self.maker(tid, at), None];
        };
        let wait = sleep.wait;
        let woken = wait.woken_ns().min(at);
        let stay = (wait.out_ns > self.from_ns).then_some((tid, wait.out_ns));
        let through = sleep.waits_for(tid) && !sleep.is_lock && woken > self.from_ns;
        [stay, through.then_some((sleep.waker, woken))]
    }

    fn maker(&self, tid: u32, at: Ns) -> Option<(u32, Ns)> {
        let (started_ns, parent) = self.model.threads.get(&tid)?.started?;
        (started_ns > self.from_ns && started_ns < at).then_some((parent, started_ns))
    }

    fn settle(&self, tid: u32, at: Ns, [stay, through]: [Option<(u32, Ns)>; 2]) -> Option<u64> {
        let done = |point: Option<(u32, Ns)>| self.reached.get(&point?).copied().flatten();
        let Some(sleep) = self.last_sleep(tid, at) else {
            if tid == self.reader {
                return Some(at.saturating_sub(self.from_ns));
            }
            let (_, started_ns) = stay?;
            return Some(done(stay)?.saturating_add(at.saturating_sub(started_ns)));
        };
        let wait = sleep.wait;
        let end = wait.end_ns().min(at);
        let woken = wait.woken_ns().min(end).max(self.from_ns);
        let active = at
            .saturating_sub(end)
            .saturating_add(end.saturating_sub(woken));
        let began = wait.out_ns.max(self.from_ns);
        // The reader may have read just as a sleep of it ended, by the clock.
        let stayed = done(stay).or_else(|| (stay.is_none() && tid == self.reader).then_some(0));
        let explained = sleep.is_lock || sleep.waits_for(tid);
        let asleep = match woken.saturating_sub(began) {
            _ if explained || sleep.client.is_some_and(|client| client != self.client) => 0,
            ns if tid != self.reader && sleep.timed_out => ns / 2,
            ns => ns,
        };
        let stayed = stayed.map(|done| done.saturating_add(asleep));
        let best = stayed.max(done(through))?;
        Some(best.saturating_add(active))
    }
}
