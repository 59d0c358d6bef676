//! Tasks that waited for a lock, or for a place of a semaphore, when the recording ended, and whom
//! nobody let go on for a while: since when.
//!
//! Such a wait ends when another task lets go. It is stuck from when the last of those that wait
//! there was seen to leave. A lock that many want shows others in its place at each look.

use std::collections::BTreeMap;

use whywait_events::{Ns, TaskLook};

use super::task_waits::TaskDoing;
use super::task_waits::TaskWaitKind::{Lock, Semaphore};
use crate::model::Model;

/// A task that was stuck to the end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StuckTask {
    /// Its process.
    pub tgid: u32,
    /// The request that it works for, as `requests` has it; `None`: that does not show, as Python's
    /// tasks show it only when they answer.
    pub request: Option<(u64, u32)>,
    /// What it waits in.
    pub waits_in: &'static str,
    /// The innermost function of the program's own. Hostile.
    pub function: Option<String>,
    /// Its file and line, of Python. Hostile.
    pub place: Option<String>,
    /// The lock that it waits for, an address in its process; 0: not known.
    pub lock: u64,
    /// One that it has; 0: none, or not known.
    pub held: u64,
    /// From when until when it was seen there.
    pub seen: (Ns, Ns),
}

impl Model {
    /// The tasks that were stuck to the end, by process and in order of since when.
    pub fn stuck_tasks(&self) -> Vec<StuckTask> {
        let mut processes: BTreeMap<u32, BTreeMap<u32, Vec<&TaskLook>>> = BTreeMap::new();
        for look in self.task_looks.all() {
            let tasks = processes.entry(look.tgid).or_default();
            tasks.entry(look.task).or_default().push(look);
        }
        let mut stuck: Vec<StuckTask> = processes
            .into_values()
            .flat_map(|tasks| self.stuck_of_process(tasks))
            .collect();
        stuck.sort_by_key(|task| (task.tgid, task.seen.0));
        stuck
    }

    fn stuck_of_process(&self, tasks: BTreeMap<u32, Vec<&TaskLook>>) -> Vec<StuckTask> {
        let last_ns = tasks.values().flatten().map(|look| look.at_ns).max();
        let mut left: BTreeMap<TaskDoing, Ns> = BTreeMap::new();
        let mut waiting: Vec<(TaskDoing, &TaskLook, &TaskLook)> = Vec::new();
        for mut looks in tasks.into_values() {
            looks.sort_by_key(|look| look.at_ns);
            let mut since: Option<(TaskDoing, &TaskLook, &TaskLook)> = None;
            for look in looks {
                let doing = TaskDoing::of(look, &self.stacks);
                let goes_on = |(same, first, _): &(TaskDoing, &TaskLook, &TaskLook)| {
                    *same == doing && (first.socket, first.seq) == (look.socket, look.seq)
                };
                match &mut since {
                    Some(one) if goes_on(one) => one.2 = look,
                    _ => {
                        if let Some((doing, _, last)) = since.replace((doing, look, look)) {
                            let ns = left.entry(doing).or_default();
                            *ns = last.at_ns.max(*ns);
                        }
                    }
                }
            }
            let Some((doing, first, last)) = since else {
                continue;
            };
            if Some(last.at_ns) == last_ns {
                waiting.push((doing, first, last));
            } else {
                let ns = left.entry(doing).or_default();
                *ns = last.at_ns.max(*ns);
            }
        }
        let stuck = waiting.into_iter().filter_map(|(doing, first, last)| {
            let waits_in = doing.waits_in?;
            let left_ns = left.get(&doing).copied().unwrap_or(0);
            matches!(doing.kind, Lock | Semaphore).then(|| StuckTask {
                tgid: last.tgid,
                request: (last.socket != 0).then_some((last.socket, last.seq)),
                waits_in,
                seen: (first.at_ns.max(left_ns), last.at_ns),
                place: doing.place().map(str::to_owned),
                function: doing.function,
                lock: last.lock,
                held: last.held,
            })
        });
        stuck.collect()
    }
}

#[cfg(test)]
mod tests {
    use whywait_events::TaskState;

    use super::*;
    use crate::script::{Script, TGID, ms};

    const LOCKED: &[&str] = &["main.transfer", "sync.(*Mutex).lockSlow", "runtime.gopark"];

    fn look(socket: u64, at_ms: u64, stack: u32) -> TaskLook {
        TaskLook {
            at_ns: ms(at_ms),
            read_ns: ms(at_ms),
            tgid: TGID,
            task: socket as u32,
            socket,
            seq: 1,
            state: TaskState::Waiting,
            stack,
            ..TaskLook::default()
        }
    }

    #[test]
    fn who_waits_for_a_lock_from_which_nobody_goes_is_stuck() {
        let mut script = Script::new();
        script.thread(10, "server");
        let locked = script.stack(LOCKED);
        for socket in [1, 2, 3] {
            let request = script.request(socket).ready(10).read(10, 10);
            request.unanswered();
        }
        for at_ms in [20, 520, 2_000] {
            script.task_look(&look(1, at_ms, locked));
            script.task_look(&look(2, at_ms, locked));
        }
        // It had the lock at first.
        script.task_look(&look(3, 20, locked));
        script.ends(2_100);
        let stuck = script.model().stuck_tasks();
        let seen: Vec<_> = stuck.iter().map(|task| (task.request, task.seen)).collect();
        let since = (ms(20), ms(2_000));
        assert_eq!(seen, [(Some((1, 1)), since), (Some((2, 1)), since)]);
        assert_eq!(stuck[0].function.as_deref(), Some("main.transfer"));
    }

    #[test]
    fn a_lock_that_is_handed_on_is_not_stuck() {
        let mut script = Script::new();
        script.thread(10, "server");
        let locked = script.stack(LOCKED);
        let asleep = script.stack(&["main.transfer", "time.Sleep", "runtime.gopark"]);
        for socket in [1, 2] {
            let request = script.request(socket).ready(10).read(10, 10);
            request.unanswered();
        }
        for at_ms in [20, 520, 1_500] {
            script.task_look(&look(1, at_ms, locked));
        }
        script.task_look(&look(2, 20, locked));
        script.task_look(&look(2, 520, locked));
        script.task_look(&look(2, 1_500, asleep));
        let stuck = script.model().stuck_tasks();
        let seen: Vec<_> = stuck.iter().map(|task| task.seen).collect();
        assert_eq!(seen, [(ms(520), ms(1_500))], "another one got it then");
    }
}
