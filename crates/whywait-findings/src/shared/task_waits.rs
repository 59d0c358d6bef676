//! What the tasks of requests wait in. Looks at them show it, and no thread does.

use whywait_model::RequestRef;
use whywait_model::requests::{TaskWaitKind, TaskWaitRow, TaskWaits};
use whywait_words::{counted, duration, percent};

use crate::facts::Facts;
use crate::finding::{Evidence, Finding};
use crate::numbers::{LOCK_NS, LOCK_SHARE, MIN_SAMPLES, MOST, Share};

/// The requests whose tasks were in one wait.
pub(crate) struct RequestsInWait {
    /// For each of those that were for so long that it is worth a word: for how long, and its age.
    pub(crate) waited: Vec<(u64, u64)>,
    /// What each waits. Of those that nobody looked at: as the others did, as far as is known.
    pub(crate) saved: Vec<u64>,
    /// The same of all, with their ages: those that were not in it when they were looked at, too.
    pub(crate) all: Vec<(u64, u64)>,
}

impl RequestsInWait {
    pub(crate) fn of(facts: &Facts<'_>, all: &TaskWaits, wait: &TaskWaitRow) -> Self {
        let (mut waited, mut saved, mut every) = (Vec::new(), Vec::new(), Vec::new());
        for request in facts.model.requests().filter(|request| request.counts()) {
            let Some(waits) = request.task_waits() else {
                let task = request.recv_task | request.send_task;
                let unseen = task != 0 && !request.multiplexed;
                let age_ns = request.age_ns();
                let ns = Share::new(wait.ns, all.total_ns).of(age_ns);
                saved.extend(unseen.then_some(ns));
                every.extend(unseen.then_some((ns, age_ns)));
                continue;
            };
            let age_ns = request.age_ns();
            let Some(row) = waits.rows.iter().find(|row| row.is_same(wait)) else {
                every.push((0, age_ns));
                continue;
            };
            every.push((row.ns, age_ns));
            if row.ns >= *LOCK_NS && Share::new(row.ns, age_ns).is_at_least(*LOCK_SHARE) {
                waited.push((row.ns, age_ns));
                saved.push(row.ns);
            }
        }
        Self {
            waited,
            saved,
            all: every,
        }
    }
}

/// `sync.Mutex.Lock in main.handler`, `asyncio.Lock.acquire in fetch (server.py:31)`.
pub(crate) fn in_words(wait: &TaskWaitRow) -> String {
    let what = wait.waits_in.unwrap_or("something else");
    let within = in_function(wait.function.as_deref());
    let place = wait.place.as_ref();
    let place = place.map_or_else(String::new, |place| format!(" ({place})"));
    format!("{what}{within}{place}")
}

/// ` in main.handler`.
pub(crate) fn in_function(function: Option<&str>) -> String {
    let function = function.filter(|function| !function.is_empty());
    function.map_or_else(String::new, |function| format!(" in {function}"))
}

/// How much the looks say of it: `422 looks at the tasks of 119 slow requests: 363 times waited
/// there, …`.
pub(crate) fn looks(all: &TaskWaits, wait: &TaskWaitRow) -> Evidence {
    let text = format!(
        "{} at the tasks of {}: {} waited there, for {} of {}",
        counted(all.looks, "look"),
        counted(all.requests, "slow request"),
        counted(wait.looks, "time"),
        duration(wait.ns),
        duration(all.total_ns),
    );
    Evidence::of_ns(wait.ns, text)
}

/// The wait in which the tasks of some requests are for most of their time, of those in which tasks
/// wait for each other.
pub(crate) struct TasksWaitIn<'f> {
    wait: &'f TaskWaitRow,
    /// So much of their time that was looked at, and all of it.
    ns: u64,
    of_ns: u64,
    looks: u64,
}

impl<'f> TasksWaitIn<'f> {
    pub(crate) fn of<'r>(
        facts: &'f Facts<'_>,
        requests: impl Iterator<Item = RequestRef<'r>>,
    ) -> Option<Self> {
        let all = facts.task_waits()?;
        let rows = all.rows.iter().filter(|row| is_for_others(row.kind));
        let mut sums: Vec<Self> = rows
            .map(|wait| Self {
                wait,
                ns: 0,
                of_ns: 0,
                looks: 0,
            })
            .collect();
        for waits in requests.filter_map(|request| request.task_waits()) {
            for one in &mut sums {
                one.of_ns = one.of_ns.saturating_add(waits.total_ns);
                if let Some(row) = waits.rows.iter().find(|row| row.is_same(one.wait)) {
                    one.ns = one.ns.saturating_add(row.ns);
                    one.looks = one.looks.saturating_add(row.looks);
                }
            }
        }
        let longest = sums.into_iter().max_by_key(|one| one.ns)?;
        let most = Share::new(longest.ns, longest.of_ns).is_at_least(*MOST);
        (most && longest.looks >= *MIN_SAMPLES).then_some(longest)
    }

    /// ` (asyncio.Lock.acquire in fetch, server.py:31)`, behind what is waited for.
    pub(crate) fn in_title(&self) -> String {
        let place = self.wait.place.as_ref();
        let place = place.map_or_else(String::new, |place| format!(", {place}"));
        let what = self.wait.waits_in.unwrap_or("something else");
        let within = in_function(self.wait.function.as_deref());
        format!(" ({what}{within}{place})")
    }

    pub(crate) fn evidence(&self) -> Evidence {
        let holder = match (&self.wait.holder, &self.wait.past) {
            (Some(holder), _) => {
                let within = in_function(Some(&holder.function));
                format!("; who has it is in {}{within}", holder.waits_in)
            }
            (None, Some(past)) => {
                let within = in_function(past.function.as_deref());
                let what = past.waits_in.map(|what| format!(" in {what}{within}"));
                what.map_or_else(String::new, |what| format!("; those past it are{what}"))
            }
            (None, None) => String::new(),
        };
        Evidence::of_ns(
            self.ns,
            format!(
                "their tasks wait in {} for {} of their time, by {}{holder}",
                in_words(self.wait),
                percent(self.ns, self.of_ns),
                counted(self.looks, "look"),
            ),
        )
    }

    /// Names the function in a finding's subject.
    pub(crate) fn about(&self, finding: Finding) -> Finding {
        finding
            .about_known("waits_in", self.wait.waits_in)
            .about_known("function", self.wait.function.clone())
    }
}

/// Whether a task that waits so waits for other tasks, or threads of its process.
fn is_for_others(kind: TaskWaitKind) -> bool {
    use TaskWaitKind::{Channel, Condition, Executor, Lock, Select, Semaphore, Tasks};
    matches!(
        kind,
        Lock | Semaphore | Channel | Select | Condition | Executor | Tasks
    )
}
