//! What the tasks of slow requests did, as looks at them show: where a task waits no thread does.
//!
//! A look counts for the request during which it was made, and each of a request's looks for an
//! equal part of its time. What a task waits in follows from the runtime's functions on its stack,
//! whose names hold across versions; whose wait it is, from the program's own.
//!
//! Which goroutine has read a request is known. A task of Python's is a request's that it answers,
//! unless it answers another one that is under way at the same time: then its looks are nobody's.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::OnceLock;

use schemars::JsonSchema;
use serde::Serialize;
use whywait_events::{ModuleKind, Ns, TaskLook, TaskState};

use crate::maps::HashMap;
use crate::model::Model;
use crate::requests::RequestRef;
use crate::requests::task_rounds::LookRounds;
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
    /// Its file and the line in which it waits, of Python. Hostile.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub place: Option<String>,
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
    /// Of a wait for places, a channel or a condition: who is past it while others wait. Absent:
    /// nobody was seen there as a rule, or these are the waits of one request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub past: Option<TasksPast>,
}

impl TaskWaitRow {
    /// Whether that is the same wait: in the same, in the same function and line.
    pub fn is_same(&self, other: &Self) -> bool {
        let of = |row: &Self| (row.kind, row.waits_in);
        of(self) == of(other) && self.function == other.function && self.place == other.place
    }
}

/// Who is past a wait while others wait there: what lets no more of them through is what those wait
/// for.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, JsonSchema)]
pub struct TasksPast {
    /// So many at a time, most often.
    pub at_a_time: u64,
    /// As many, or of several one less, in so many rounds of looks, …
    pub rounds: u64,
    /// … of so many in which others waited there.
    pub of_rounds: u64,
    /// What they waited in, most often; absent: not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waits_in: Option<&'static str>,
    /// The innermost function of the program's own there. Hostile.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub function: Option<String>,
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
    /// It waits for one of so many places.
    Semaphore,
    /// It waits for a channel or a queue to take or to give something.
    Channel,
    /// It waits for one of several things.
    Select,
    /// It waits for other tasks to be done.
    Tasks,
    /// It waits for a condition to change.
    Condition,
    /// It waits for what a thread of an executor does.
    Executor,
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

use TaskWaitKind::{
    Channel, Collector, Condition, Executor, Lock, Network, Select, Semaphore, Tasks, Timer,
};

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
    ("runtime.selectgo", Select, "Go's select"),
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

/// Functions of asyncio in which a coroutine waits, or which are called when that is over, the
/// files that they are in, and how a program calls that.
const ASYNCIO_WAITS: &[(&str, &str, TaskWaitKind, &str)] = &[
    ("Lock.acquire", "locks.py", Lock, "asyncio.Lock.acquire"),
    (
        "Semaphore.acquire",
        "locks.py",
        Semaphore,
        "asyncio.Semaphore.acquire",
    ),
    ("Event.wait", "locks.py", Condition, "asyncio.Event.wait"),
    (
        "Condition.wait",
        "locks.py",
        Condition,
        "asyncio.Condition.wait",
    ),
    ("Queue.get", "queues.py", Channel, "asyncio.Queue.get"),
    ("Queue.put", "queues.py", Channel, "asyncio.Queue.put"),
    ("sleep", "tasks.py", Timer, "asyncio.sleep"),
    ("_wait", "tasks.py", Select, "asyncio.wait"),
    ("wait_for", "tasks.py", Select, "asyncio.wait_for"),
    (
        "shield.<locals>._outer_done_callback",
        "tasks.py",
        Tasks,
        "asyncio.shield",
    ),
    (
        "TaskGroup.__aexit__",
        "taskgroups.py",
        Tasks,
        "asyncio.TaskGroup",
    ),
    (
        "TaskGroup._aexit",
        "taskgroups.py",
        Tasks,
        "asyncio.TaskGroup",
    ),
    (
        "_chain_future.<locals>._call_check_cancel",
        "futures.py",
        Executor,
        "run_in_executor",
    ),
    (
        "StreamReader._wait_for_data",
        "streams.py",
        Network,
        "asyncio.StreamReader",
    ),
    (
        "FlowControlMixin._drain_helper",
        "streams.py",
        Network,
        "asyncio.StreamWriter.drain",
    ),
    (
        "BaseSelectorEventLoop.sock_recv",
        "selector_events.py",
        Network,
        "a socket",
    ),
    (
        "BaseSelectorEventLoop.sock_recv_into",
        "selector_events.py",
        Network,
        "a socket",
    ),
    (
        "BaseSelectorEventLoop.sock_sendall",
        "selector_events.py",
        Network,
        "a socket",
    ),
    (
        "BaseSelectorEventLoop.sock_connect",
        "selector_events.py",
        Network,
        "a socket",
    ),
    (
        "BaseSelectorEventLoop.sock_accept",
        "selector_events.py",
        Network,
        "a socket",
    ),
];

/// The type of what `asyncio.gather` returns. Not a function: it is what is awaited.
const GATHERED: (&str, &str) = ("_GatheringFuture", "<awaited>");

/// What the task waits in, by its stack of coroutines.
fn asyncio_wait(labels: &[Label]) -> Option<(TaskWaitKind, &'static str)> {
    let innermost = labels.first()?;
    if (&*innermost.name, &*innermost.file) == GATHERED {
        return Some((Tasks, "asyncio.gather"));
    }
    let known = |label: &Label| {
        let file = label.file.rsplit_once("/asyncio/")?.1;
        let mut waits = ASYNCIO_WAITS.iter();
        waits.find(|(name, of, ..)| *name == &*label.name && *of == file)
    };
    // Beyond a function that is none of asyncio's it is that one's wait: a library's, perhaps.
    let (_, _, kind, what) = labels
        .iter()
        .map_while(|label| {
            let of_asyncio = label.file.contains("/asyncio/");
            of_asyncio.then(|| known(label))
        })
        .flatten()
        .next()?;
    Some((*kind, *what))
}

/// What the task waits in.
fn wait_of(labels: &[Label]) -> Option<(TaskWaitKind, &'static str)> {
    match labels.first()?.kind {
        ModuleKind::Python => asyncio_wait(labels),
        _ => go_wait(labels),
    }
}

/// What a task did at a look: what, in what, and in which function.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct TaskDoing {
    pub(super) kind: TaskWaitKind,
    pub(super) waits_in: Option<&'static str>,
    pub(super) function: Option<String>,
    place: Option<String>,
}

impl TaskDoing {
    pub(super) fn of(look: &TaskLook, stacks: &StackNames) -> Self {
        let label = stacks.app_frame(look.stack);
        let function = label.map(|label| label.name.to_string());
        let place = label.and_then(place_of);
        let labels = stacks.get(look.stack).map(|stack| &stack.labels[..]);
        let (kind, waits_in) = match look.state {
            TaskState::Runnable => (TaskWaitKind::Runnable, None),
            TaskState::Running => (TaskWaitKind::Running, None),
            TaskState::SystemCall => (TaskWaitKind::SystemCall, None),
            TaskState::Waiting => match labels.and_then(wait_of) {
                Some((kind, what)) => (kind, Some(what)),
                None => (TaskWaitKind::Unknown, None),
            },
        };
        Self {
            kind,
            waits_in,
            function,
            place,
        }
    }
}

impl TaskDoing {
    pub(super) fn place(&self) -> Option<&str> {
        self.place.as_deref()
    }

    /// Whether a task that does this is in that wait.
    pub(super) fn is(&self, row: &TaskWaitRow) -> bool {
        (self.kind, self.waits_in) == (row.kind, row.waits_in)
            && self.function == row.function
            && self.place == row.place
    }
}

/// `server.py:31`, of Python.
fn place_of(label: &Label) -> Option<String> {
    let file = label.file.rsplit('/').next()?;
    (label.kind == ModuleKind::Python && label.line > 0).then(|| format!("{file}:{}", label.line))
}

/// From when until when a request was answered.
type Answered = (Ns, Ns);

/// What was seen of tasks.
#[derive(Debug, Clone, Default)]
pub(crate) struct TaskLooks {
    by_request: HashMap<(u64, u32), Vec<TaskLook>>,
    /// Those of which it shows later whose they are: by process and task, in the order of time.
    by_task: HashMap<(u32, u32), Vec<TaskLook>>,
    /// When each of these tasks had a request in hand that it answered.
    answers: OnceLock<HashMap<(u32, u32), Vec<Answered>>>,
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
        let looks = match look.socket {
            0 => self.by_task.entry((look.tgid, look.task)).or_default(),
            socket => self.by_request.entry((socket, look.seq)).or_default(),
        };
        looks.push(look.clone());
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &TaskLook> {
        let by_request = self.by_request.values().flatten();
        by_request.chain(self.by_task.values().flatten())
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
        let rounds = LookRounds::of(self);
        for row in &mut waits.rows {
            row.holder = rounds.holder(row);
            row.past = rounds.past(row);
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
    /// What the looks at its task say that it did: from when until when each looked, what the task
    /// waited for, and in which function of the program's own.
    pub fn task_doings(
        self,
    ) -> impl Iterator<Item = (RangeInclusive<Ns>, TaskWaitKind, Option<String>)> {
        self.task_looks().map(move |look| {
            let doing = TaskDoing::of(look, &self.model().stacks);
            (look.at_ns..=look.read_ns, doing.kind, doing.function)
        })
    }

    /// The looks at its task that tell what it waited for; none where several requests are under
    /// way on its connection, or another task than the one that read it has answered. (net/http may
    /// read the first byte of a request in a goroutine that then ends, and whose place another one
    /// takes.) While it is open that is not known: then none where the task waits for a socket, as
    /// one does that works for another connection.
    pub(super) fn task_looks(self) -> impl Iterator<Item = &'m TaskLook> {
        let model = self.model();
        let looks = match self.answering_task() {
            Some(task) => self.looks_at(task),
            None => {
                let looks = model.task_looks.by_request.get(&(self.socket, self.seq));
                looks.map_or(&[][..], Vec::as_slice)
            }
        };
        let reads = |look: &TaskLook| TaskDoing::of(look, &model.stacks).kind == Network;
        let is_its = match (self.recv_task, self.send_task) {
            (0, _) => true,
            (_, 0) => !looks.iter().any(reads),
            (reader, writer) => reader == writer,
        };
        // What was read after it had begun to answer may be the wait for the next request.
        let until_ns = self.begun_ns();
        let known = is_its && !self.multiplexed;
        let looks = looks.iter().filter(move |_| known);
        looks.filter(move |look| look.read_ns <= until_ns)
    }

    /// The task that answered it, where none is known to have read it.
    fn answering_task(self) -> Option<(u32, u32)> {
        let answered = self.recv_task == 0 && self.send_task != 0;
        answered.then_some((self.tgid, self.send_task))
    }

    /// The looks at a task while it had this request in hand, and no other. (The place of a task in
    /// memory is taken by another one when it is gone: that answered another request.)
    fn looks_at(self, task: (u32, u32)) -> &'m [TaskLook] {
        let model = self.model();
        let looks = &model.task_looks;
        let answers = looks.answers.get_or_init(|| {
            let mut answers: HashMap<(u32, u32), Vec<Answered>> = HashMap::default();
            for request in model.requests() {
                let task = request.answering_task();
                if let Some(task) = task.filter(|task| looks.by_task.contains_key(task)) {
                    let had = (request.served_ns(), request.begun_ns());
                    answers.entry(task).or_default().push(had);
                }
            }
            answers
        });
        let (from_ns, until_ns) = (self.served_ns(), self.begun_ns());
        let at_once = answers.get(&task).into_iter().flatten();
        let at_once = at_once.filter(|(from, until)| *from < until_ns && from_ns < *until);
        let looks = looks.by_task.get(&task).filter(|_| at_once.count() == 1);
        let looks = looks.map_or(&[][..], Vec::as_slice);
        let place = |ns| looks.partition_point(|look| look.at_ns < ns);
        &looks[place(from_ns)..place(until_ns.max(from_ns))]
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
            place: doing.place,
            ns: sum.ns,
            requests: sum.requests,
            looks: sum.looks,
            holder: None,
            past: None,
        });
        waits.rows = rows.collect();
        waits.rows.sort_by_key(|row| std::cmp::Reverse(row.ns));
        waits.rows.truncate(MAX_TASK_WAITS);
        waits
    }
}

#[cfg(test)]
mod tests {
    use whywait_events::StackId;

    use super::*;
    use crate::script::{Script, TGID, ms};

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
            ..TaskLook::default()
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
        request.read_by(1).task(7).answered(110, 10);
        let request = script.request(3).ready(10).read(10, 10);
        request.read_by(3).unanswered();
        let reads = script.stack(&["main.other", "internal/poll.runtime_pollWait"]);
        let several = script.request(2).ready(10).read(10, 10);
        several.multiplexed().answered(110, 10);
        for socket in [1, 2, 3] {
            script.task_look(&look(socket, 50, TaskState::Waiting, locked));
        }
        script.task_look(&look(3, 60, TaskState::Waiting, reads));
        assert_eq!(script.model().task_waits(), None);
    }

    const LOCKS: &str = "/usr/lib/python3.13/asyncio/locks.py";
    const TASKS: &str = "/usr/lib/python3.13/asyncio/tasks.py";
    const OWN: &str = "/srv/app/server.py";

    /// What coroutines say, outermost first.
    fn awaited(calls: &[(&str, &str, u32)]) -> Option<(TaskWaitKind, &'static str)> {
        let mut script = Script::new();
        let stack = script.coroutines(calls);
        let model = script.model();
        wait_of(&model.stacks.get(stack).expect("a stack").labels)
    }

    #[test]
    fn what_a_coroutine_awaits_has_the_name_by_which_programs_call_it() {
        let handler = ("handler", OWN, 7);
        let locked = [handler, ("Lock.acquire", LOCKS, 111)];
        assert_eq!(awaited(&locked), Some((Lock, "asyncio.Lock.acquire")));
        let again = [handler, ("Condition.wait", LOCKS, 1), locked[1]];
        assert_eq!(awaited(&again), Some((Lock, "asyncio.Lock.acquire")));
        let in_time = [handler, ("wait_for", TASKS, 1), ("Event.wait", LOCKS, 1)];
        assert_eq!(awaited(&in_time), Some((Condition, "asyncio.Event.wait")));
        let gathered = [handler, ("_GatheringFuture", "<awaited>", 0)];
        assert_eq!(awaited(&gathered), Some((Tasks, "asyncio.gather")));
        let futures = "/usr/lib/python3.13/asyncio/futures.py";
        let callback = ("_chain_future.<locals>._call_check_cancel", futures, 390);
        assert_eq!(
            awaited(&[handler, callback]),
            Some((Executor, "run_in_executor"))
        );
        assert_eq!(awaited(&[handler]), None, "a future of its own");
        let own = [handler, ("Lock.acquire", "/srv/app/locks.py", 1)];
        assert_eq!(awaited(&own), None, "a lock of the program's own");
        let within = [("sleep", TASKS, 1), ("Future.__await__", OWN, 3)];
        assert_eq!(awaited(&within), None, "who called the program's function");
    }

    /// A look at a task of Python's.
    fn python_look(task: u32, at_ms: u64, stack: StackId) -> TaskLook {
        TaskLook {
            tgid: TGID,
            socket: 0,
            seq: 0,
            task,
            ..look(0, at_ms, TaskState::Waiting, stack)
        }
    }

    #[test]
    fn a_coroutine_is_the_request_s_that_it_answers() {
        let mut script = Script::new();
        script.thread(10, "server");
        let locked = script.coroutines(&[("handler", OWN, 7), ("Lock.acquire", LOCKS, 111)]);
        let reads = script.coroutines(&[("converse", OWN, 3)]);
        let request = script.request(1).ready(10).read(10, 10);
        request.task(5).answered(110, 10);
        // Before it came, while it waited, and as the task waits for the next one.
        for (at_ms, stack) in [(5, reads), (20, locked), (60, locked), (120, reads)] {
            script.task_look(&python_look(5, at_ms, stack));
        }
        // Another task has no request.
        script.task_look(&python_look(6, 60, reads));
        let waits = script.model().task_waits().expect("looks");
        assert_eq!((waits.looks, waits.requests), (2, 1));
        let row = &waits.rows[0];
        assert_eq!((row.kind, row.function.as_deref()), (Lock, Some("handler")));
        assert_eq!(row.place.as_deref(), Some("server.py:7"));
    }

    #[test]
    fn a_coroutine_with_several_requests_in_hand_tells_nothing_of_any() {
        let mut script = Script::new();
        script.thread(10, "server");
        let batch = script.coroutines(&[("batch", OWN, 7), ("sleep", TASKS, 639)]);
        for (socket, until_ms) in [(1, 60), (2, 110)] {
            let request = script.request(socket).ready(10).read(10, 10);
            request.task(5).answered(until_ms, 10);
        }
        // After one that was over before.
        let request = script.request(3).ready(200).read(200, 10);
        request.task(5).answered(300, 10);
        for at_ms in [20, 80, 250] {
            script.task_look(&python_look(5, at_ms, batch));
        }
        let waits = script.model().task_waits().expect("looks");
        assert_eq!((waits.looks, waits.requests), (1, 1));
    }
}
