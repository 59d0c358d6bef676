//! The walk back in time over sleeps and wakes.

use std::collections::BTreeMap;

use whywait_events::{Ns, Part};

use super::PathStep;
use super::sleeps::{Sleep, Sleeps};
use super::steps::{active, sleep as slept, step};
use crate::maps::HashMap;
use crate::requests::lives::Life;
use crate::timeline::Thread;
use crate::waits::locks::{LetGo, Locks, MOST_LOOKED_AT};

/// A path of more steps is cut off: its beginning is one `unknown` step.
const MAX_STEPS: usize = 1024;
/// Sleepers that wait for each other are followed this deep, and locks whose holders wait for
/// others.
const MAX_DEPTH: usize = 32;
/// Holders of a lock that had it one after another while a thread waited for it.
const MAX_HOLDERS: usize = 64;
/// The same, of all locks on a path.
const MAX_ALL_HOLDERS: usize = 1024;

/// The steps between the reading of a request and its response, the latest first, and whether they
/// were too many to be followed to the beginning.
pub(super) fn back<'m>(
    sleeps: &Sleeps<'m>,
    request: Life<'m>,
    from_ns: Ns,
    end_ns: Ns,
) -> (Vec<PathStep>, bool) {
    let mut walk = Walk {
        model: request.lives(),
        sleeps,
        from_ns,
        reader: request.recv_tid,
        client: (request.tgid, request.fd),
        reached: HashMap::default(),
        looked_at: 0,
        hops: 0,
        holders: 0,
        in_locks: Vec::new(),
        truncated: false,
    };
    let mut steps = Vec::new();
    // While nobody has answered, the one who read it is the one to look at.
    let last_tid = match request.answered_ns() {
        Some(_) => request.send_tid,
        None => request.recv_tid,
    };
    walk.back(last_tid, from_ns, end_ns, None, &mut steps);
    (steps, walk.truncated)
}

/// A walk back in time, from a response to where its request was read.
pub(super) struct Walk<'a, 'm> {
    pub(super) model: &'m Locks,
    pub(super) sleeps: &'a Sleeps<'m>,
    /// When the request was read…
    pub(super) from_ns: Ns,
    /// … by whom …
    pub(super) reader: u32,
    /// … and on which connection, by process and descriptor.
    pub(super) client: (u32, i32),
    /// By thread and the end of a sleep of it: how much was done on the path from the request to
    /// there; `None`: no path leads there. Absent while it is being found out.
    pub(super) reached: HashMap<(u32, Ns), Option<u64>>,
    pub(super) looked_at: usize,
    pub(super) hops: usize,
    /// Those who had a lock that somebody on the path waited for.
    holders: usize,
    /// Those who wait for locks, each for one that the next has.
    in_locks: Vec<u32>,
    pub(super) truncated: bool,
}

/// Why an interval of another thread is on the path.
#[derive(Clone, Copy)]
struct Inside {
    /// The thread that slept meanwhile.
    waiting: u32,
    depth: usize,
}

impl Walk<'_, '_> {
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
            let sleep = self.sleeps.before(thread, now);
            let Some(sleep) = sleep.filter(|sleep| sleep.wait.end_ns() > from_ns) else {
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
            let wait = sleep.wait;
            // It may still be under way at `now`, when the path comes from a thread that it woke by
            // a timer's signal, say.
            let back_on_cpu = wait.end_ns().min(now);
            if back_on_cpu < now {
                active(self.sleeps, thread, back_on_cpu, now, waiting, steps);
            }
            let woken = wait.woken_ns().min(back_on_cpu).max(from_ns);
            if woken < back_on_cpu {
                steps.push(step(Part::Runnable, tid, woken, back_on_cpu, waiting));
            }
            let began = wait.out_ns.max(from_ns);
            let waker = sleep.waker;
            if sleep.is_lock {
                let began = model.first_try(wait).out_ns.max(from_ns);
                if began < woken {
                    steps.push(self.lock(tid, &sleep, began, woken, waiting));
                }
                now = began;
            } else if sleep.waits_for(tid) {
                if inside.is_none() && self.comes_through(tid, waker, wait, woken) {
                    // What the waker did until then is what this thread waited for.
                    if let Some(last) = steps.last_mut() {
                        last.woken_by = waker;
                    }
                    tid = waker;
                    now = woken;
                } else {
                    self.meanwhile(tid, &sleep, (began, woken), inside, steps);
                    now = began;
                }
            } else {
                if began < woken {
                    steps.push(slept(&sleep, tid, began, woken, waiting));
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
        on_own_path: bool,
        tid: &mut u32,
        steps: &mut Vec<PathStep>,
    ) -> Ns {
        // A thread that the request's own made: before that, the path is its maker's.
        if let Some((started_ns, parent)) = thread.started
            && on_own_path
            && started_ns > from_ns
            && started_ns < to_ns
            && self.model.threads.contains_key(&parent)
        {
            active(self.sleeps, thread, started_ns, to_ns, waiting, steps);
            *tid = parent;
            return started_ns;
        }
        active(self.sleeps, thread, from_ns, to_ns, waiting, steps);
        from_ns
    }

    /// A wait for a lock, with what those who held it did meanwhile. The path stays with the thread
    /// that waited: the holders did not work for this request.
    fn lock(
        &mut self,
        tid: u32,
        sleep: &Sleep<'_>,
        from_ns: Ns,
        to_ns: Ns,
        waiting: u32,
    ) -> PathStep {
        let (model, wait) = (self.model, sleep.wait);
        let alone = PathStep {
            woken_by: model.who_let_go(wait),
            part: Some(Part::Lock),
            state: Part::Lock.name(),
            ..slept(sleep, tid, from_ns, to_ns, waiting)
        };
        // In a deadlock each waits for the other without end.
        let is_circle = self.in_locks.contains(&tid);
        if is_circle || self.in_locks.len() >= MAX_DEPTH {
            self.truncated |= !is_circle;
            return alone;
        }
        self.in_locks.push(tid);
        let key = model.key_of(wait);
        let inside = Inside {
            waiting: tid,
            depth: MAX_DEPTH,
        };
        let mut meanwhile = Vec::new();
        let mut holder = model.who_let_go(wait);
        let mut now = to_ns;
        // Back from holder to holder: each had the lock from the one that ended its own wait for
        // it, or found it free after another one had let it go.
        for _ in 0..MAX_HOLDERS {
            let thread = model.threads.get(&holder);
            self.holders += 1;
            let goes_on = holder != tid && now > from_ns && self.holders <= MAX_ALL_HOLDERS;
            let Some(thread) = thread.filter(|_| goes_on) else {
                break;
            };
            let own = thread
                .timeline
                .overlapping(from_ns, now)
                .iter()
                .rev()
                .take(MOST_LOOKED_AT)
                .find(|own| own.in_ns.is_some() && model.key_of(own) == key);
            let own = own.map(|own| LetGo {
                at_ns: own.woken_ns().clamp(from_ns, now),
                by: model.who_let_go(own),
                woken: holder,
            });
            // Where locks are not distinguished, what others let go of may have been another one.
            let others = (!key.object.may_be_several())
                .then(|| model.others_let_go(&key, holder, from_ns, now))
                .flatten();
            let let_go = own.max(others);
            let known_ns = let_go.map_or(from_ns, |let_go| let_go.at_ns);
            let mut got_ns = known_ns;
            // It held nothing while it waited for its next request.
            if let Some(idle) = model.last_between_requests(&key, thread, known_ns, now) {
                got_ns = idle.end_ns().clamp(known_ns, now);
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
        self.in_locks.pop();
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
            .map_or(sleep.waker, |(tid, _)| tid);
        PathStep {
            woken_by: holder,
            meanwhile,
            ..alone
        }
    }

    /// No path leads from the request through the waker, as when the waker was at something older,
    /// or was woken from a sleep too short to be known: what it did while this thread slept stands
    /// for the sleep.
    fn meanwhile(
        &mut self,
        tid: u32,
        sleep: &Sleep<'_>,
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
            steps.push(slept(sleep, tid, from_ns, to_ns, waiting));
            return;
        }
        if let Some(last) = steps.last_mut() {
            last.woken_by = sleep.waker;
        }
        let inside = Inside {
            waiting: tid,
            depth,
        };
        self.back(sleep.waker, from_ns, to_ns, Some(inside), steps);
    }
}
