//! A request's critical path: backwards from the last byte of its response, over the wakes, to its
//! arrival.
//!
//! The thread that wrote the response is followed back in time. Where it slept and an interrupt or
//! a stranger ended that, the sleep itself is a step. Where a thread of the target did, there are
//! two ways on: through the thread that woke it, or through the sleep. Of the ways that come from
//! the reading of this very request, the one on which most was done is the critical one: nothing on
//! it can take less time without the response coming earlier, or another way taking over.
//!
//! A wait of another thread's that ran into its timeout counts half. A helper that looks after
//! things every second and then has the request's thread wait for a moment (a virtual machine that
//! stops its threads, say) was not what that thread, at work all the time, waited for. One that was
//! given work and waits as a part of it was; nothing tells the two apart, but that who has to pause
//! for its work sleeps, as a rule, and does not wait in vain: sleeps count whole.
//!
//! A waker from which no way leads back to the request was not working for it: it was at something
//! older, or held a lock. Then the path stays with the sleeper, and what the waker did while it
//! slept stands for the sleep.
//!
//! The steps never overlap and sum to the request's wall time.

mod reported;

pub use reported::Step;

use std::collections::{BTreeMap, HashMap};

use whywait_events::{Ns, Part, StackId, Wait, WakeContext};

use crate::model::Model;
use crate::requests::RequestRef;
use crate::rings;
use crate::timeline::{Thread, end_of, woken_at};
use crate::waits::kind::WaitKind;
use crate::waits::locks::LetGo;
use crate::waits::objects::WaitObject;
use crate::waits::system_call::{self, SystemCall};

/// The state of the first step.
pub(crate) const READY_UNSERVED: &str = "ready-unserved";

/// A path of more steps is cut off: its beginning is one `unknown` step.
const MAX_STEPS: usize = 256;
/// Sleepers that wait for each other are followed this deep.
const MAX_DEPTH: usize = 32;
/// Holders of a lock that had it one after another while a thread waited for it.
const MAX_HOLDERS: usize = 64;
/// A stretch in which a thread was preempted more often is told in two steps: all that it had no
/// CPU, and the rest.
const MAX_PREEMPTIONS: usize = 8;
/// Points that are looked at for whether a way leads there from the request; beyond that none does.
const MAX_LOOKED_AT: usize = 4096;

/// A request's critical path.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Path {
    /// From arrival to response, without gaps or overlaps.
    pub steps: Vec<PathStep>,
    /// It was too long to be followed to its beginning.
    pub truncated: bool,
}

/// One step.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PathStep {
    /// `ready-unserved`, or the name of the part.
    pub state: &'static str,
    /// What the time is accounted as; `None` before a thread read the request.
    pub part: Option<Part>,
    /// The thread.
    pub tid: u32,
    /// From.
    pub from_ns: Ns,
    /// To.
    pub to_ns: Ns,
    /// User stack: of the sleep, or the one seen most while it ran. A kernel stack when there is no
    /// other.
    pub stack: StackId,
    /// Kernel stack of a sleep, 0: none.
    pub kernel_stack: StackId,
    /// What the sleep was for, as the kernel's stack tells.
    pub kind: Option<WaitKind>,
    /// The thread that ended the wait, or for a lock the one that held it for longest. 0: none, or
    /// none of the target.
    pub woken_by: u32,
    /// When the path is in this thread only because another one slept meanwhile, and this one ended
    /// that: the other one. 0: the step is on the way of the request itself.
    pub waiting: u32,
    /// For a wait for a lock: what the threads that held it did meanwhile, in order. For other
    /// steps empty.
    pub meanwhile: Vec<PathStep>,
}

impl PathStep {
    /// How long it took.
    pub fn ns(&self) -> u64 {
        self.to_ns.saturating_sub(self.from_ns)
    }
}

/// The path from arrival to response; empty for a request that is open.
pub(crate) fn path(model: &Model, request: RequestRef<'_>) -> Path {
    let (Some(recv_ns), Some(end_ns)) = (request.recv_ns, request.answered_ns()) else {
        return Path::default();
    };
    let read_ns = recv_ns.max(request.ready_ns);
    // Through io_uring the kernel reads for the program, which knows of it only when it takes the
    // completion.
    let from_ns = request
        .taken_ns
        .or_else(|| rings::reaped_ns(&model.rings, request.recv_tid, recv_ns))
        .filter(|reaped_ns| (read_ns..end_ns).contains(reaped_ns))
        .unwrap_or(read_ns);
    let mut walk = Walk {
        model,
        from_ns,
        reader: request.recv_tid,
        reached: HashMap::new(),
        looked_at: 0,
        hops: 0,
        truncated: false,
    };
    let mut steps = Vec::new();
    walk.back(request.send_tid, from_ns, end_ns, None, &mut steps);
    if from_ns > read_ns {
        steps.push(unreaped(model, request.recv_tid, read_ns, from_ns));
    }
    if recv_ns > request.ready_ns {
        let reader = model.threads.get(&request.recv_tid);
        // The wake that brought the reader, if it slept when the request came.
        let woken_by = reader
            .and_then(|thread| thread.timeline.before(recv_ns))
            .filter(|wait| end_of(wait) <= recv_ns && woken_at(wait) >= request.ready_ns)
            .map_or(0, |wait| waker(model, wait));
        steps.push(PathStep {
            state: READY_UNSERVED,
            part: None,
            tid: request.recv_tid,
            from_ns: request.ready_ns,
            to_ns: recv_ns,
            woken_by,
            ..PathStep::default()
        });
    }
    steps.reverse();
    Path {
        steps,
        truncated: walk.truncated,
    }
}

/// A walk back in time, from a response to where its request was read.
struct Walk<'a> {
    model: &'a Model,
    /// When the request was read…
    from_ns: Ns,
    /// … and by whom.
    reader: u32,
    /// By thread and the end of a sleep of it: how much was done on the way from the request to
    /// there; `None`: no way leads there. Absent while it is being found out.
    reached: HashMap<(u32, Ns), Option<u64>>,
    looked_at: usize,
    hops: usize,
    truncated: bool,
}

/// Why a stretch of another thread is on the path.
#[derive(Clone, Copy)]
struct Inside {
    /// The thread that slept meanwhile.
    waiting: u32,
    depth: usize,
}

impl Walk<'_> {
    /// What a thread did from `from_ns` to `to_ns`, and others on whom it waited; latest step
    /// first.
    fn back(
        &mut self,
        tid: u32,
        from_ns: Ns,
        to_ns: Ns,
        inside: Option<Inside>,
        steps: &mut Vec<PathStep>,
    ) {
        let model = self.model;
        let waiting = inside.map_or(0, |inside| inside.waiting);
        let mut tid = tid;
        let mut now = to_ns;
        while now > from_ns {
            let thread = model.threads.get(&tid);
            self.hops += 1;
            let Some(thread) = thread.filter(|_| self.hops <= MAX_STEPS) else {
                self.truncated |= thread.is_some();
                steps.push(step(Part::Unknown, tid, from_ns, now, waiting));
                return;
            };
            let Some(wait) = thread
                .timeline
                .before(now)
                .filter(|wait| end_of(wait) > from_ns)
            else {
                now = self.active(
                    thread,
                    from_ns,
                    now,
                    waiting,
                    inside.is_none(),
                    &mut tid,
                    steps,
                );
                continue;
            };
            // It may still be under way at `now`, when the path comes from a thread that it woke by
            // a timer's signal, say.
            let back_on_cpu = end_of(wait).min(now);
            if back_on_cpu < now {
                active(model, thread, back_on_cpu, now, waiting, steps);
            }
            let woken = woken_at(wait).min(back_on_cpu).max(from_ns);
            if woken < back_on_cpu {
                steps.push(step(Part::Runnable, tid, woken, back_on_cpu, waiting));
            }
            let began = wait.out_ns.max(from_ns);
            let waker = waker(model, wait);
            if is_lock(model, wait) {
                if began < woken {
                    steps.push(self.lock(tid, wait, began, woken, waiting));
                }
                now = began;
            } else if waker != 0 && waker != tid && waits_for_threads(wait) {
                if inside.is_none() && self.comes_through(tid, waker, wait, woken) {
                    // What the waker did until then is what this thread waited for.
                    if let Some(last) = steps.last_mut() {
                        last.woken_by = waker;
                    }
                    tid = waker;
                    now = woken;
                } else {
                    self.meanwhile(tid, waker, wait, (began, woken), inside, steps);
                    now = began;
                }
            } else {
                if began < woken {
                    steps.push(sleep(model, wait, tid, began, woken, waiting));
                }
                now = began;
            }
        }
    }

    /// A thread did not sleep for long between `from_ns` and `to_ns`, or was not there before.
    /// Gives how far back that led.
    #[allow(
        clippy::too_many_arguments,
        reason = "one step of the walk, of which it takes all"
    )]
    fn active(
        &mut self,
        thread: &Thread,
        from_ns: Ns,
        to_ns: Ns,
        waiting: u32,
        on_the_way: bool,
        tid: &mut u32,
        steps: &mut Vec<PathStep>,
    ) -> Ns {
        // A thread that the request's own made: before that, the path is its maker's.
        if let Some((started_ns, parent)) = thread.started
            && on_the_way
            && started_ns > from_ns
            && started_ns < to_ns
            && self.model.threads.contains_key(&parent)
        {
            active(self.model, thread, started_ns, to_ns, waiting, steps);
            *tid = parent;
            return started_ns;
        }
        active(self.model, thread, from_ns, to_ns, waiting, steps);
        from_ns
    }

    /// A wait for a lock, with what those who held it did meanwhile. The path stays with the thread
    /// that waited: the holders did not work for this request.
    fn lock(&mut self, tid: u32, wait: &Wait, from_ns: Ns, to_ns: Ns, waiting: u32) -> PathStep {
        let model = self.model;
        let key = model.key_of(wait);
        let inside = Inside {
            waiting: tid,
            depth: MAX_DEPTH,
        };
        let mut meanwhile = Vec::new();
        let who_let_go = |wait: &Wait| match waker(model, wait) {
            0 => wait.owner_tid,
            waker => waker,
        };
        let mut holder = who_let_go(wait);
        let mut now = to_ns;
        // Back from holder to holder: each had the lock from the one that ended its own wait for
        // it, or found it free after another one had let it go.
        for _ in 0..MAX_HOLDERS {
            let thread = model.threads.get(&holder);
            let Some(thread) = thread.filter(|_| holder != tid && now > from_ns) else {
                break;
            };
            let own = thread
                .timeline
                .overlapping(from_ns, now)
                .iter()
                .rev()
                .find(|own| own.in_ns.is_some() && model.key_of(own) == key);
            let own = own.map(|own| LetGo {
                at_ns: woken_at(own).clamp(from_ns, now),
                by: who_let_go(own),
                woken: holder,
            });
            // Where locks are not told apart, what others let go of may have been another one.
            let others = (!matches!(key.object, WaitObject::Lock(_)))
                .then(|| model.others_let_go(&key, holder, from_ns, now))
                .flatten();
            let let_go = own.max(others);
            let known_ns = let_go.map_or(from_ns, |let_go| let_go.at_ns);
            let mut got_ns = known_ns;
            // It held nothing while it waited for its next request.
            if let Some(idle) = model.last_between_requests(&key, thread, known_ns, now) {
                got_ns = end_of(idle).clamp(known_ns, now);
            }
            // It cannot have taken what another one was woken for before it had a CPU.
            let given = let_go.filter(|let_go| let_go.woken != holder);
            if let Some(let_go) = given {
                got_ns = got_ns.max(thread.on_cpu_from(let_go.at_ns)).min(now);
            }
            self.back(holder, got_ns, now, Some(inside), &mut meanwhile);
            // Until the one that was woken had one, nobody took it; what was afterwards is not
            // known.
            let free_ns = given
                .and_then(|let_go| model.threads.get(&let_go.woken))
                .map_or(known_ns, |woken| woken.on_cpu_from(known_ns).min(got_ns));
            if free_ns < got_ns {
                meanwhile.push(step(Part::Unknown, holder, free_ns, got_ns, tid));
            }
            if let Some(let_go) = given
                && known_ns < free_ns
            {
                meanwhile.push(step(Part::Runnable, let_go.woken, known_ns, free_ns, tid));
            }
            let Some(let_go) = let_go else {
                break;
            };
            holder = let_go.by;
            now = known_ns;
        }
        meanwhile.reverse();
        // The one that had it for longest is the one to talk about.
        let mut held: BTreeMap<u32, u64> = BTreeMap::new();
        for step in &meanwhile {
            let ns = held.entry(step.tid).or_default();
            *ns = ns.saturating_add(step.ns());
        }
        let holder = held
            .into_iter()
            .max_by_key(|(tid, ns)| (*ns, std::cmp::Reverse(*tid)))
            .map_or_else(|| waker(model, wait), |(tid, _)| tid);
        PathStep {
            woken_by: holder,
            meanwhile,
            part: Some(Part::Lock),
            state: Part::Lock.name(),
            ..sleep(model, wait, tid, from_ns, to_ns, waiting)
        }
    }

    /// No way leads from the request through the waker, as when the waker was at something older,
    /// or was woken from a sleep too short to be known: what it did while this thread slept stands
    /// for the sleep.
    fn meanwhile(
        &mut self,
        tid: u32,
        waker: u32,
        wait: &Wait,
        (from_ns, to_ns): (Ns, Ns),
        inside: Option<Inside>,
        steps: &mut Vec<PathStep>,
    ) {
        if from_ns >= to_ns {
            return;
        }
        let depth = inside.map_or(0, |inside| inside.depth) + 1;
        if depth > MAX_DEPTH {
            let waiting = inside.map_or(0, |inside| inside.waiting);
            let mut sleep = sleep(self.model, wait, tid, from_ns, to_ns, waiting);
            sleep.woken_by = waker;
            steps.push(sleep);
            return;
        }
        if let Some(last) = steps.last_mut() {
            last.woken_by = waker;
        }
        let inside = Inside {
            waiting: tid,
            depth,
        };
        self.back(waker, from_ns, to_ns, Some(inside), steps);
    }

    /// Whether the way from the request to the end of this sleep on which most was done leads
    /// through the waker, rather than through the sleep itself.
    fn comes_through(&mut self, tid: u32, waker: u32, wait: &Wait, woken: Ns) -> bool {
        let asleep = self.done_until(tid, wait.out_ns);
        match self.done_until(waker, woken) {
            Some(through_waker) => asleep.is_none_or(|asleep| through_waker >= asleep),
            // A loop polls for all its requests. What ended its earlier polls was for others as
            // likely as not, so that what is known to have answered this one, its waker, says more
            // than they do.
            None => system_call::system_call(wait) == SystemCall::Poll,
        }
    }

    /// How much was done, at most, on a way from the reading of the request to thread `tid` at
    /// `at`: threads' own time, and time that devices and the network took. A sleep that a thread
    /// ended counts nothing, and another thread's wait that timed out half. `None`: no way leads
    /// there.
    ///
    /// The longest way to a point is the longer one of two: within the thread, and through the wake
    /// that ended its last sleep.
    fn done_until(&mut self, tid: u32, at: Ns) -> Option<u64> {
        enum Task {
            Find(u32, Ns),
            Settle(u32, Ns),
        }
        let mut tasks = vec![Task::Find(tid, at)];
        while let Some(task) = tasks.pop() {
            let (Task::Find(tid, at) | Task::Settle(tid, at)) = task;
            if matches!(task, Task::Find(..)) {
                if self.reached.contains_key(&(tid, at)) {
                    continue;
                }
                self.looked_at += 1;
                if self.looked_at > MAX_LOOKED_AT {
                    self.truncated = true;
                    return None;
                }
                // Until it is settled no way leads here: threads that woke each other at one
                // instant lead nowhere.
                self.reached.insert((tid, at), None);
                tasks.push(Task::Settle(tid, at));
                for (tid, at) in self.before(tid, at).into_iter().flatten() {
                    tasks.push(Task::Find(tid, at));
                }
                continue;
            }
            let done = self.settle(tid, at);
            self.reached.insert((tid, at), done);
        }
        self.reached.get(&(tid, at)).copied().flatten()
    }

    /// The last sleep of a thread before `at`, since the request was read.
    fn last_sleep(&self, tid: u32, at: Ns) -> Option<&Wait> {
        self.model
            .threads
            .get(&tid)?
            .timeline
            .before(at)
            .filter(|wait| end_of(wait) > self.from_ns)
    }

    /// The points from which ways lead to a thread's state at `at`: it before its last sleep, and
    /// who ended that; or who made the thread.
    fn before(&self, tid: u32, at: Ns) -> [Option<(u32, Ns)>; 2] {
        let Some(wait) = self.last_sleep(tid, at) else {
            return [self.maker(tid, at), None];
        };
        let woken = woken_at(wait).min(at);
        let stay = (wait.out_ns > self.from_ns).then_some((tid, wait.out_ns));
        let waker = waker(self.model, wait);
        let through = waker != 0
            && waker != tid
            && waits_for_threads(wait)
            && !is_lock(self.model, wait)
            && woken > self.from_ns;
        [stay, through.then_some((waker, woken))]
    }

    fn maker(&self, tid: u32, at: Ns) -> Option<(u32, Ns)> {
        let (started_ns, parent) = self.model.threads.get(&tid)?.started?;
        (started_ns > self.from_ns && started_ns < at).then_some((parent, started_ns))
    }

    fn settle(&self, tid: u32, at: Ns) -> Option<u64> {
        let done = |point: Option<(u32, Ns)>| self.reached.get(&point?).copied().flatten();
        let [stay, through] = self.before(tid, at);
        let Some(wait) = self.last_sleep(tid, at) else {
            if tid == self.reader {
                return Some(at.saturating_sub(self.from_ns));
            }
            let (_, started_ns) = stay?;
            return Some(done(stay)?.saturating_add(at.saturating_sub(started_ns)));
        };
        let end = end_of(wait).min(at);
        let woken = woken_at(wait).min(end).max(self.from_ns);
        let active = at
            .saturating_sub(end)
            .saturating_add(end.saturating_sub(woken));
        let began = wait.out_ns.max(self.from_ns);
        // The reader may have read just as a sleep of it ended, by the clock.
        let stayed = done(stay).or_else(|| (stay.is_none() && tid == self.reader).then_some(0));
        let waker = waker(self.model, wait);
        let explained =
            is_lock(self.model, wait) || (waker != 0 && waker != tid && waits_for_threads(wait));
        let asleep = match woken.saturating_sub(began) {
            _ if explained => 0,
            ns if tid != self.reader && timed_out(self.model, wait) => ns / 2,
            ns => ns,
        };
        let stayed = stayed.map(|done| done.saturating_add(asleep));
        let best = stayed.max(done(through))?;
        Some(best.saturating_add(active))
    }
}

/// A stretch between long waits: on the CPU, as far as is known, and where the samples say so with
/// a stack; but for the times when it was preempted for long.
fn active(
    model: &Model,
    thread: &Thread,
    from_ns: Ns,
    to_ns: Ns,
    waiting: u32,
    steps: &mut Vec<PathStep>,
) {
    let stack = model.sampled_stack(thread, from_ns, to_ns);
    let on_cpu = |from_ns, to_ns| PathStep {
        stack: match model.sampled_stack(thread, from_ns, to_ns) {
            0 => stack,
            own => own,
        },
        ..step(Part::OnCpu, thread.tid, from_ns, to_ns, waiting)
    };
    let runnable = |from_ns, to_ns| step(Part::Runnable, thread.tid, from_ns, to_ns, waiting);
    let preempted = thread.preempted(from_ns, to_ns);
    if preempted.len() > MAX_PREEMPTIONS {
        let since_ns = from_ns + thread.preempted_ns(from_ns, to_ns);
        if since_ns < to_ns {
            steps.push(PathStep {
                stack,
                ..step(Part::OnCpu, thread.tid, since_ns, to_ns, waiting)
            });
        }
        steps.push(runnable(from_ns, since_ns));
        return;
    }
    let mut until_ns = to_ns;
    for row in preempted.iter().rev() {
        let (out_ns, in_ns) = (row.out_ns.max(from_ns), row.in_ns.min(until_ns));
        if in_ns < until_ns {
            steps.push(on_cpu(in_ns, until_ns));
        }
        steps.push(runnable(out_ns, in_ns));
        until_ns = out_ns;
    }
    // A stretch without preemptions is told even when it is empty: who looks at a path looks for
    // its threads.
    if until_ns > from_ns || preempted.is_empty() {
        steps.push(on_cpu(from_ns, until_ns));
    }
}

/// What was read lay in the ring, while the thread that was to take it did something else: with the
/// stack of that.
fn unreaped(model: &Model, tid: u32, from_ns: Ns, to_ns: Ns) -> PathStep {
    let stack = model.threads.get(&tid).map_or(0, |thread| {
        let waits = thread.timeline.overlapping(from_ns, to_ns);
        let within = |wait: &&Wait| {
            let end_ns = woken_at(wait).min(to_ns);
            end_ns.saturating_sub(wait.out_ns.max(from_ns))
        };
        let longest = waits.iter().max_by_key(within);
        longest
            .filter(|wait| within(wait).saturating_mul(2) > to_ns - from_ns)
            .map_or_else(|| model.sampled_stack(thread, from_ns, to_ns), best_stack)
    });
    PathStep {
        stack,
        ..step(Part::Uring, tid, from_ns, to_ns, 0)
    }
}

fn step(part: Part, tid: u32, from_ns: Ns, to_ns: Ns, waiting: u32) -> PathStep {
    PathStep {
        state: part.name(),
        part: Some(part),
        tid,
        from_ns,
        to_ns,
        waiting,
        ..PathStep::default()
    }
}

/// A sleep, or a piece of one.
fn sleep(model: &Model, wait: &Wait, tid: u32, from_ns: Ns, to_ns: Ns, waiting: u32) -> PathStep {
    PathStep {
        stack: best_stack(wait),
        kernel_stack: wait.kernel_stack,
        kind: model.kind_of(wait),
        woken_by: waker(model, wait),
        ..step(part_of(model, wait), tid, from_ns, to_ns, waiting)
    }
}

/// What a sleep is accounted as.
fn part_of(model: &Model, wait: &Wait) -> Part {
    let kind = model.kind_of(wait);
    kind.and_then(|kind| kind.part)
        .unwrap_or_else(|| system_call::part(wait, waker(model, wait) != 0))
}

/// Whether the clock ended a wait for something else.
fn timed_out(model: &Model, wait: &Wait) -> bool {
    system_call::system_call(wait) != SystemCall::Sleep && part_of(model, wait) == Part::Timer
}

/// Whether a sleep was one for a lock.
fn is_lock(model: &Model, wait: &Wait) -> bool {
    model.is_lock_wait(wait)
}

/// The thread of the target that ended a wait; 0 for an interrupt, a stranger or nobody.
fn waker(model: &Model, wait: &Wait) -> u32 {
    let by_target =
        wait.wake_context == WakeContext::Task && model.threads.contains_key(&wait.waker_tid);
    if by_target { wait.waker_tid } else { 0 }
}

/// Whether what ended the wait is what it waited for: not so for a sleep or a device, which a
/// signal may cut short.
fn waits_for_threads(wait: &Wait) -> bool {
    matches!(
        system_call::system_call(wait),
        SystemCall::Futex
            | SystemCall::Poll
            | SystemCall::Stream
            | SystemCall::Socket
            | SystemCall::Child
    )
}

/// The user stack of a wait, or else its kernel stack.
fn best_stack(wait: &Wait) -> StackId {
    if wait.user_stack != 0 {
        wait.user_stack
    } else {
        wait.kernel_stack
    }
}
