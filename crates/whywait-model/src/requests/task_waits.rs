//! What the tasks of slow requests did, as looks at them show: where a task waits no thread does.
//!
//! A look counts for the request during which it was made, and each of a request's looks for an
//! equal part of its time. What a task waits in follows from the runtime's functions on its stack,
//! whose names hold across versions; whose wait it is, from the program's own.

use std::collections::{BTreeMap, HashMap};

use schemars::JsonSchema;
use serde::Serialize;
use whywait_events::{StackId, TaskLook, TaskState};

use crate::model::Model;
use crate::requests::RequestRef;
use crate::stacks::{Label, StackNames};

/// So many rows are kept, the longest.
const MAX_TASK_WAITS: usize = 12;

/// What tasks did while their requests were under way. The field names are those of the JSON report
/// (schema 1).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, JsonSchema)]
pub struct TaskWaits {
    /// How many looks there were.
    pub looks: u64,
    /// At how many requests.
    pub requests: u64,
    /// The time of these requests, from their reading to the first byte of the response.
    pub total_ns: u64,
    /// How it splits, by the looks: the longest first.
    pub rows: Vec<TaskWaitRow>,
}

/// A part of the time.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, JsonSchema)]
pub struct TaskWaitRow {
    /// What tasks did.
    pub kind: TaskWaitKind,
    /// What they waited in: `sync.Mutex.Lock`, `chan send`; absent: they did not wait, or it is not
    /// known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waits_in: Option<&'static str>,
    /// The innermost function of the program's own; absent: there is none, or it is not known.
    /// Hostile.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub function: Option<String>,
    /// So much of the time.
    pub ns: u64,
    /// Of so many requests.
    pub requests: u64,
    /// So many looks say so.
    pub looks: u64,
    /// Of a lock: what a task waited in at the same time that was elsewhere in the same function.
    /// It has the lock, as a rule. Absent: none was seen, or these are the waits of one request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub holder: Option<TaskHolder>,
}

/// Who has a lock, as a rule.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, JsonSchema)]
pub struct TaskHolder {
    /// What it waited in.
    pub waits_in: &'static str,
    /// The innermost function of the program's own. Hostile.
    pub function: String,
    /// So often it was seen so.
    pub looks: u64,
}

/// What a task does.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum TaskWaitKind {
    /// It waits for a lock of tasks.
    Lock,
    /// It waits for a channel to take or to give something.
    Channel,
    /// It waits for one of several things.
    Select,
    /// It waits for other tasks to be done.
    Tasks,
    /// It waits for a condition to change.
    Condition,
    /// It waits for a time to come.
    Timer,
    /// It waits for a socket.
    Network,
    /// It waits for the runtime's garbage collector.
    Collector,
    /// It could run, and no thread ran it.
    Runnable,
    /// A thread runs it.
    Running,
    /// A thread is in a system call for it.
    SystemCall,
    /// It waits for something else.
    #[default]
    Unknown,
}

use TaskWaitKind::{Channel, Collector, Condition, Lock, Network, Select, Tasks, Timer};

/// Functions in which a goroutine waits, and how a program calls that. The compiler may have
/// inlined the outer ones: then the inner ones say it, and less.
const GO_WAITS: &[(&str, TaskWaitKind, &str)] = &[
    ("sync.(*Mutex).Lock", Lock, "sync.Mutex.Lock"),
    ("sync.(*Mutex).lockSlow", Lock, "sync.Mutex.Lock"),
    ("internal/sync.(*Mutex).Lock", Lock, "sync.Mutex.Lock"),
    ("internal/sync.(*Mutex).lockSlow", Lock, "sync.Mutex.Lock"),
    ("sync.runtime_SemacquireMutex", Lock, "a lock of sync"),
    (
        "internal/sync.runtime_SemacquireMutex",
        Lock,
        "a lock of sync",
    ),
    ("sync.(*RWMutex).RLock", Lock, "sync.RWMutex.RLock"),
    (
        "sync.runtime_SemacquireRWMutexR",
        Lock,
        "sync.RWMutex.RLock",
    ),
    ("sync.(*RWMutex).Lock", Lock, "sync.RWMutex.Lock"),
    ("sync.runtime_SemacquireRWMutex", Lock, "sync.RWMutex.Lock"),
    ("sync.(*Once).doSlow", Lock, "sync.Once.Do"),
    (
        "internal/poll.(*fdMutex).rwlock",
        Lock,
        "the lock of a descriptor",
    ),
    ("sync.(*WaitGroup).Wait", Tasks, "sync.WaitGroup.Wait"),
    ("sync.runtime_Semacquire", Tasks, "sync.WaitGroup.Wait"),
    (
        "sync.runtime_SemacquireWaitGroup",
        Tasks,
        "sync.WaitGroup.Wait",
    ),
    ("sync.(*Cond).Wait", Condition, "sync.Cond.Wait"),
    ("sync.runtime_notifyListWait", Condition, "sync.Cond.Wait"),
    ("runtime.chansend", Channel, "chan send"),
    ("runtime.chanrecv", Channel, "chan receive"),
    ("runtime.selectgo", Select, "select"),
    ("runtime.block", Select, "select without cases"),
    ("time.Sleep", Timer, "time.Sleep"),
    ("internal/poll.runtime_pollWait", Network, "a socket"),
    ("runtime.gcParkAssist", Collector, "the garbage collector"),
];

/// Packages whose functions lie between a goroutine's wait and who wants it.
const GO_WAITS_IN: &[&str] = &["runtime.", "sync.", "internal/", "time."];

/// What the task waits in, by its stack.
fn go_wait(labels: &[Label]) -> Option<(TaskWaitKind, &'static str)> {
    let inner = labels.iter().take_while(|label| {
        let begins = |package: &&str| label.name.starts_with(*package);
        GO_WAITS_IN.iter().any(begins)
    });
    // The outermost that is known: a read-write lock begins with a mutex of its own.
    let known = inner.filter_map(|label| GO_WAITS.iter().find(|(name, ..)| *name == &*label.name));
    known.last().map(|(_, kind, what)| (*kind, *what))
}

/// What a task did at a look: what, in what, and in which function.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct TaskDoing {
    kind: TaskWaitKind,
    waits_in: Option<&'static str>,
    function: Option<String>,
}

impl TaskDoing {
    fn of(look: &TaskLook, stacks: &StackNames) -> Self {
        let function = stacks.app_frame(look.stack);
        let function = function.map(|label| label.name.to_string());
        let labels = stacks.get(look.stack).map(|stack| &stack.labels[..]);
        let (kind, waits_in) = match look.state {
            TaskState::Runnable => (TaskWaitKind::Runnable, None),
            TaskState::Running => (TaskWaitKind::Running, None),
            TaskState::SystemCall => (TaskWaitKind::SystemCall, None),
            TaskState::Waiting => match labels.and_then(go_wait) {
                Some((kind, what)) => (kind, Some(what)),
                None => (TaskWaitKind::Unknown, None),
            },
        };
        Self {
            kind,
            waits_in,
            function,
        }
    }
}

/// What was seen of tasks, by request.
#[derive(Debug, Clone, Default)]
pub(crate) struct TaskLooks {
    by_request: HashMap<(u64, u32), Vec<TaskLook>>,
    count: usize,
    left_out: u64,
}

/// Looks that are kept.
const MAX_TASK_LOOKS: usize = 1_000_000;

impl TaskLooks {
    pub(crate) fn add(&mut self, look: &TaskLook) {
        if self.count >= MAX_TASK_LOOKS {
            self.left_out = self.left_out.saturating_add(1);
            return;
        }
        self.count += 1;
        let looks = self.by_request.entry((look.socket, look.seq)).or_default();
        looks.push(look.clone());
    }

    pub(crate) fn left_out(&self) -> u64 {
        self.left_out
    }
}

impl Model {
    /// What the tasks of slow requests did; `None`: none was looked at.
    pub fn task_waits(&self) -> Option<TaskWaits> {
        let requests = self.requests().filter(|request| request.counts());
        let mut waits = self.task_waits_of(requests)?;
        let rounds = LookRounds::of(self, waits.rows.iter().any(|row| row.kind == Lock));
        for row in &mut waits.rows {
            row.holder = rounds.holder(row);
        }
        Some(waits)
    }

    fn task_waits_of<'m>(
        &'m self,
        requests: impl Iterator<Item = RequestRef<'m>>,
    ) -> Option<TaskWaits> {
        let mut sums = TaskSums::default();
        for request in requests {
            sums.add(self, request);
        }
        (sums.waits.looks > 0).then(|| sums.finish())
    }
}

impl<'m> RequestRef<'m> {
    /// The looks at its task that tell what it waited for; none where several requests are under
    /// way on its connection, or another task than the one that read it has answered. (net/http may
    /// read the first byte of a request in a goroutine that then ends, and whose place another one
    /// takes.) While it is open that is not known: then none where the task waits for a socket, as
    /// one does that works for another connection.
    fn task_looks(self) -> impl Iterator<Item = &'m TaskLook> {
        let model = self.model();
        let looks = model.task_looks.by_request.get(&(self.socket, self.seq));
        let looks = looks.map_or(&[][..], Vec::as_slice);
        let reads = |look: &TaskLook| TaskDoing::of(look, &model.stacks).kind == Network;
        let is_its = match self.send_task {
            0 => !looks.iter().any(reads),
            task => task == self.recv_task,
        };
        // What was read after it had begun to answer may be the wait for the next request.
        let until_ns = self.begun_ns();
        let known = is_its && !self.multiplexed;
        let looks = looks.iter().filter(move |_| known);
        looks.filter(move |look| look.read_ns <= until_ns)
    }

    /// When its answer began; the end of what is known of it, if it did not.
    fn begun_ns(self) -> u64 {
        self.first_send_ns.unwrap_or(self.end_ns())
    }

    /// Whether looks at its task tell what it waited for.
    pub fn was_looked_at(self) -> bool {
        self.task_looks().next().is_some()
    }

    /// What its task did; `None`: nobody looked.
    pub fn task_waits(self) -> Option<TaskWaits> {
        self.model().task_waits_of(std::iter::once(self))
    }
}

/// What requests spent so.
#[derive(Default)]
struct TaskSum {
    ns: u64,
    requests: u64,
    looks: u64,
}

/// Looks, summed up.
#[derive(Default)]
struct TaskSums {
    waits: TaskWaits,
    rows: BTreeMap<TaskDoing, TaskSum>,
}

impl TaskSums {
    fn add(&mut self, model: &Model, request: RequestRef<'_>) {
        let total_ns = request.begun_ns().saturating_sub(request.served_ns());
        let mut counts: BTreeMap<TaskDoing, u64> = BTreeMap::new();
        for look in request.task_looks() {
            *counts
                .entry(TaskDoing::of(look, &model.stacks))
                .or_default() += 1;
        }
        let looks: u64 = counts.values().sum();
        if looks == 0 {
            return;
        }
        self.waits.requests += 1;
        self.waits.looks = self.waits.looks.saturating_add(looks);
        self.waits.total_ns = self.waits.total_ns.saturating_add(total_ns);
        for (doing, count) in counts {
            let ns = u128::from(total_ns) * u128::from(count) / u128::from(looks);
            let sum = self.rows.entry(doing).or_default();
            sum.ns = sum.ns.saturating_add(u64::try_from(ns).unwrap_or(total_ns));
            sum.requests += 1;
            sum.looks = sum.looks.saturating_add(count);
        }
    }

    fn finish(self) -> TaskWaits {
        let mut waits = self.waits;
        let rows = self.rows.into_iter().map(|(doing, sum)| TaskWaitRow {
            kind: doing.kind,
            waits_in: doing.waits_in,
            function: doing.function,
            ns: sum.ns,
            requests: sum.requests,
            looks: sum.looks,
            holder: None,
        });
        waits.rows = rows.collect();
        waits.rows.sort_by_key(|row| std::cmp::Reverse(row.ns));
        waits.rows.truncate(MAX_TASK_WAITS);
        waits
    }
}

/// What tasks of a process did at the same time.
struct LookRounds<'m> {
    model: &'m Model,
    rounds: BTreeMap<(u64, u32), Vec<(TaskDoing, StackId)>>,
}

impl<'m> LookRounds<'m> {
    fn of(model: &'m Model, wanted: bool) -> Self {
        let mut rounds: BTreeMap<(u64, u32), Vec<(TaskDoing, StackId)>> = BTreeMap::new();
        let looks = model.task_looks.by_request.values().flatten();
        for look in looks.filter(|_| wanted) {
            let doing = TaskDoing::of(look, &model.stacks);
            let round = rounds.entry((look.at_ns, look.tgid)).or_default();
            round.push((doing, look.stack));
        }
        Self { model, rounds }
    }

    /// Who has the lock for which tasks wait so: what one did that waited elsewhere in the same
    /// function, if one did most of the times when others waited for the lock. (One that was woken
    /// for the lock is in that function, too, and does not wait.)
    fn holder(&self, waiting: &TaskWaitRow) -> Option<TaskHolder> {
        let within = waiting.function.as_deref();
        let within = within.filter(|_| waiting.kind == Lock)?;
        let waits = |doing: &TaskDoing| {
            doing.waits_in == waiting.waits_in && doing.function == waiting.function
        };
        let mut seen: BTreeMap<(&'static str, &str), u64> = BTreeMap::new();
        let mut contended = 0;
        for round in self.rounds.values() {
            if !round.iter().any(|(doing, _)| waits(doing)) {
                continue;
            }
            contended += 1;
            let mut elsewhere = round.iter().filter_map(|(doing, stack)| {
                let mut labels = self.model.stacks.get(*stack)?.labels.iter();
                let is_within = labels.any(|label| &*label.name == within);
                let waits_in = doing.waits_in.filter(|_| doing.kind != Lock && is_within)?;
                Some((waits_in, doing.function.as_deref()?))
            });
            // Several at a time cannot all have it.
            if let (Some(one), None) = (elsewhere.next(), elsewhere.next()) {
                *seen.entry(one).or_default() += 1;
            }
        }
        let ((waits_in, function), looks) = seen.into_iter().max_by_key(|(_, looks)| *looks)?;
        (looks * 2 > contended).then(|| TaskHolder {
            waits_in,
            function: function.to_owned(),
            looks,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::script::{Script, ms};

    const LOCKED: &[&str] = &[
        "runtime.goexit",
        "net/http.HandlerFunc.ServeHTTP",
        "main.locked",
        "internal/sync.(*Mutex).lockSlow",
        "internal/sync.runtime_SemacquireMutex",
        "runtime.semacquire1",
        "runtime.gopark",
    ];

    fn look(socket: u64, at_ms: u64, state: TaskState, stack: StackId) -> TaskLook {
        TaskLook {
            at_ns: ms(at_ms),
            read_ns: ms(at_ms),
            tgid: 1,
            task: socket as u32,
            socket,
            seq: 1,
            state,
            stack,
        }
    }

    /// What functions on a stack say, outermost first.
    fn said(calls: &[&str]) -> Option<(TaskWaitKind, &'static str)> {
        let mut script = Script::new();
        let stack = script.stack(calls);
        let model = script.model();
        go_wait(&model.stacks.get(stack).expect("a stack").labels)
    }

    #[test]
    fn a_wait_has_the_name_by_which_programs_call_it() {
        assert_eq!(said(LOCKED), Some((Lock, "sync.Mutex.Lock")));
        let to_write = [
            "main.write",
            "sync.(*RWMutex).Lock",
            "sync.(*Mutex).lockSlow",
            "sync.runtime_SemacquireMutex",
            "runtime.gopark",
        ];
        assert_eq!(said(&to_write), Some((Lock, "sync.RWMutex.Lock")));
        let inlined = [
            "main.read",
            "sync.runtime_SemacquireRWMutexR",
            "runtime.semacquire1",
            "runtime.gopark",
        ];
        assert_eq!(said(&inlined), Some((Lock, "sync.RWMutex.RLock")));
        let send = [
            "main.put",
            "runtime.chansend1",
            "runtime.chansend",
            "runtime.gopark",
        ];
        assert_eq!(said(&send), Some((Channel, "chan send")));
        let other = ["runtime.chansend", "main.odd", "runtime.gopark"];
        assert_eq!(
            said(&other),
            None,
            "what called the program's function is not it"
        );
    }

    #[test]
    fn the_time_of_requests_splits_by_the_looks_at_their_tasks() {
        let mut script = Script::new();
        script.thread(10, "server");
        let locked = script.stack(LOCKED);
        let asleep = script.stack(&["main.locked", "main.work", "time.Sleep", "runtime.gopark"]);
        for socket in [1, 2] {
            let request = script.request(socket).ready(10).read(10, 10);
            request.answered(110, 10);
        }
        for (socket, at_ms, stack) in [(1, 30, locked), (2, 30, asleep), (1, 80, locked)] {
            script.task_look(&look(socket, at_ms, TaskState::Waiting, stack));
        }
        script.task_look(&look(2, 80, TaskState::Waiting, asleep));
        // When it had been answered.
        script.task_look(&look(2, 111, TaskState::Running, 0));
        // Of a request that is not looked at.
        script.task_look(&look(9, 80, TaskState::Running, 0));
        let waits = script.model().task_waits().expect("looks");
        assert_eq!((waits.looks, waits.requests), (4, 2));
        let whole = 200_000_000;
        assert_eq!(waits.total_ns, whole);
        assert_eq!(waits.rows.iter().map(|row| row.ns).sum::<u64>(), whole);
        let first = &waits.rows[0];
        assert_eq!((first.kind, first.ns, first.requests), (Lock, whole / 2, 1));
        assert_eq!(first.function.as_deref(), Some("main.locked"));
        let holder = first.holder.as_ref().expect("it was seen");
        assert_eq!(
            (holder.waits_in, &*holder.function),
            ("time.Sleep", "main.work")
        );
    }

    #[test]
    fn who_was_woken_for_a_lock_is_not_said_to_have_it() {
        let mut script = Script::new();
        script.thread(10, "server");
        let locked = script.stack(LOCKED);
        let woken = script.stack(&["main.locked", "runtime.semacquire1", "runtime.gopark"]);
        for socket in [1, 2] {
            let request = script.request(socket).ready(10).read(10, 10);
            request.answered(110, 10);
        }
        script.task_look(&look(1, 50, TaskState::Waiting, locked));
        script.task_look(&look(2, 50, TaskState::Runnable, woken));
        let waits = script.model().task_waits().expect("looks");
        assert!(
            waits.rows.iter().all(|row| row.holder.is_none()),
            "{waits:?}"
        );
    }

    #[test]
    fn tasks_that_may_work_for_others_tell_nothing() {
        let mut script = Script::new();
        script.thread(10, "server");
        let locked = script.stack(LOCKED);
        let request = script.request(1).ready(10).read(10, 10);
        request.task(7).answered(110, 10);
        script.request(3).ready(10).read(10, 10).unanswered();
        let reads = script.stack(&["main.other", "internal/poll.runtime_pollWait"]);
        let several = script.request(2).ready(10).read(10, 10);
        several.multiplexed().answered(110, 10);
        for socket in [1, 2, 3] {
            script.task_look(&look(socket, 50, TaskState::Waiting, locked));
        }
        script.task_look(&look(3, 60, TaskState::Waiting, reads));
        assert_eq!(script.model().task_waits(), None);
    }
}
