//! What tasks of a process did at the same time: who has what others wait for.
//!
//! A look goes over all tasks of a process that matter: a round. Who waits for a lock waits for the
//! task that is elsewhere in the function that took it. Where something lets so many through at a
//! time, as many are past the wait in nearly every round in which others wait there: a semaphore, a
//! channel with so many things, a queue that one task works off. Who waits for something to happen
//! has any number past it. And those who wait for what one of them does for all (a fetch that they
//! share) are answered together: more of them than are let through at a time.

use std::collections::BTreeMap;

use whywait_events::{Ns, StackId, TaskLook};

use super::task_waits::TaskWaitKind::{Channel, Condition, Lock, Runnable, Select, Semaphore};
use super::task_waits::{TaskDoing, TaskHolder, TaskWaitRow, TasksPast};
use crate::model::Model;
use crate::stacks::app_frames;

/// By when a look began, and the process.
type TaskRounds = BTreeMap<(Ns, u32), Vec<SeenTask>>;

/// A round in which tasks wait for something.
type Contended<'r> = (&'r (Ns, u32), &'r Vec<SeenTask>);

/// What a task was seen doing.
struct SeenTask {
    doing: TaskDoing,
    stack: StackId,
    /// The locks that it waits for and has, by their addresses; 0: not known.
    lock: u64,
    held: u64,
    /// When the answer to its request began; `None`: that has none yet, or is not known.
    answered_ns: Option<Ns>,
}

/// What tasks of a process did at the same time.
pub(super) struct LookRounds<'m> {
    model: &'m Model,
    /// All that were looked at.
    all: TaskRounds,
    /// Those of slow requests.
    serving: TaskRounds,
}

impl<'m> LookRounds<'m> {
    pub(super) fn of(model: &'m Model) -> Self {
        let requests = model.requests().filter(|request| request.counts());
        let serving = requests.flat_map(|request| {
            let answered_ns = request.first_send_ns;
            request.task_looks().map(move |look| (look, answered_ns))
        });
        Self {
            model,
            all: rounds(model, model.task_looks.all().map(|look| (look, None))),
            serving: rounds(model, serving),
        }
    }

    /// Who has the lock for which tasks wait so. Where looks show which lock each has, it is who
    /// has that one. Otherwise it is what one did that waited elsewhere in the same function, if
    /// one did most of the times when others waited for the lock. (One that was woken for the lock
    /// is in that function, too, and does not wait.)
    pub(super) fn holder(&self, waiting: &TaskWaitRow) -> Option<TaskHolder> {
        let within = waiting.function.as_deref();
        let within = within.filter(|_| waiting.kind == Lock)?;
        let waits = |doing: &TaskDoing| {
            doing.waits_in == waiting.waits_in && doing.function == waiting.function
        };
        let mut seen: BTreeMap<(&'static str, &str), u64> = BTreeMap::new();
        let mut contended = 0;
        for round in self.all.values() {
            if !round.iter().any(|seen| waits(&seen.doing)) {
                continue;
            }
            contended += 1;
            let mut locks = round.iter().filter(|seen| waits(&seen.doing));
            if let Some(lock) = locks.find_map(|seen| (seen.lock != 0).then_some(seen.lock)) {
                let mut has = round.iter().filter(|seen| seen.held == lock);
                if let Some(holder) = has.next() {
                    let waits_in = holder.doing.waits_in.unwrap_or("something else");
                    let function = holder.doing.function.as_deref().unwrap_or_default();
                    *seen.entry((waits_in, function)).or_default() += 1;
                    continue;
                }
            }
            let mut elsewhere = round.iter().filter_map(|seen| {
                let doing = &seen.doing;
                let is_within = self.is_within(seen, within);
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

    /// Who is past that wait while others wait there. What takes the thing may be a function that
    /// has returned by then: so the innermost function counts that most rounds show somebody in.
    pub(super) fn past(&self, waiting: &TaskWaitRow) -> Option<TasksPast> {
        if !matches!(waiting.kind, Semaphore | Channel | Select | Condition) {
            return None;
        }
        let waits = |seen: &&SeenTask| seen.doing.is(waiting);
        let contended: Vec<Contended<'_>> = self
            .serving
            .iter()
            .filter(|(_, round)| round.iter().any(|seen| waits(&seen)))
            .collect();
        let waiters = contended.iter();
        let waiters = waiters.flat_map(|(_, round)| round.iter().filter(waits));
        self.callers(waiters).into_iter().find_map(|within| {
            let rounds = contended.iter().map(|(_, round)| {
                let others = round.iter().filter(|seen| !seen.doing.is(waiting));
                PastOfRound::of(others, |seen| self.is_within(seen, within))
            });
            let past = summed_up(rounds.collect())?;
            let together = answered_together(&contended, waiting, past.at_a_time);
            (!together).then_some(past)
        })
    }

    /// The program's own functions in which all of these wait, the innermost first.
    fn callers<'s>(&self, waiters: impl Iterator<Item = &'s SeenTask>) -> Vec<&'m str> {
        let mut stacks: Vec<StackId> = waiters.map(|seen| seen.stack).collect();
        stacks.sort_unstable();
        stacks.dedup();
        let own = stacks.into_iter().map(|stack| {
            let stack = self.model.stacks.get(stack);
            let frames = stack.into_iter().flat_map(app_frames);
            frames.map(|label| &*label.name).collect::<Vec<&str>>()
        });
        own.reduce(|common, other| {
            let same = common.into_iter().zip(other);
            let same = same.take_while(|(one, other)| one == other);
            same.map(|(one, _)| one).collect()
        })
        .unwrap_or_default()
    }

    fn is_within(&self, seen: &SeenTask, function: &str) -> bool {
        let stack = self.model.stacks.get(seen.stack);
        stack.is_some_and(|stack| stack.labels.iter().any(|label| &*label.name == function))
    }
}

fn rounds<'m>(
    model: &'m Model,
    looks: impl Iterator<Item = (&'m TaskLook, Option<Ns>)>,
) -> TaskRounds {
    let mut rounds = TaskRounds::new();
    for (look, answered_ns) in looks {
        let seen = SeenTask {
            doing: TaskDoing::of(look, &model.stacks),
            stack: look.stack,
            lock: look.lock,
            held: look.held,
            answered_ns,
        };
        let round = rounds.entry((look.at_ns, look.tgid)).or_default();
        round.push(seen);
    }
    rounds
}

/// Whether more tasks than are let through at a time go on together: their answers are close to
/// each other, against how long they still waited, in most rounds with so many. (Then one of them
/// did it for all.) So it is taken where there never are so many.
fn answered_together(contended: &[Contended<'_>], waiting: &TaskWaitRow, at_a_time: u64) -> bool {
    let (mut together, mut all) = (0, 0);
    for ((at_ns, _), round) in contended {
        let waits = round.iter().filter(|seen| seen.doing.is(waiting));
        let answered: Vec<Ns> = waits.filter_map(|seen| seen.answered_ns).collect();
        let (Some(first), Some(last)) = (answered.iter().min(), answered.iter().max()) else {
            continue;
        };
        if answered.len() as u64 > at_a_time {
            all += 1;
            together += usize::from((last - first) * 4 < last.saturating_sub(*at_ns));
        }
    }
    together * 2 >= all
}

/// Who was past a wait in one round.
struct PastOfRound<'s> {
    past: Vec<&'s TaskDoing>,
    /// Those that may have been: that ran, or had just been woken.
    perhaps: usize,
}

impl<'s> PastOfRound<'s> {
    fn of(
        others: impl Iterator<Item = &'s SeenTask>,
        is_within: impl Fn(&SeenTask) -> bool,
    ) -> Self {
        let mut of = Self {
            past: Vec::new(),
            perhaps: 0,
        };
        for seen in others {
            if seen.stack == 0 || (seen.doing.kind == Runnable && is_within(seen)) {
                of.perhaps += 1;
            } else if is_within(seen) {
                of.past.push(&seen.doing);
            }
        }
        of
    }
}

/// How many are past a wait, if it is as many in most rounds.
fn summed_up(rounds: Vec<PastOfRound<'_>>) -> Option<TasksPast> {
    let mut counts: BTreeMap<usize, u64> = BTreeMap::new();
    let mut doing: BTreeMap<(Option<&'static str>, Option<&str>), u64> = BTreeMap::new();
    for round in rounds.iter().filter(|round| !round.past.is_empty()) {
        *counts.entry(round.past.len()).or_default() += 1;
        for one in &round.past {
            let key = (one.waits_in, one.function.as_deref());
            *doing.entry(key).or_default() += 1;
        }
    }
    let (at_a_time, _) = counts.into_iter().max_by_key(|(_, rounds)| *rounds)?;
    let ((waits_in, function), _) = doing.into_iter().max_by_key(|(_, looks)| *looks)?;
    // One of several may be about to go, or to come.
    let least = if at_a_time > 1 { at_a_time - 1 } else { 1 };
    let is_so = |round: &&PastOfRound<'_>| {
        let sure = round.past.len();
        sure <= at_a_time && sure + round.perhaps >= least
    };
    let of_rounds = rounds.len() as u64;
    let so = rounds.iter().filter(is_so).count() as u64;
    (so * 2 > of_rounds).then(|| TasksPast {
        at_a_time: at_a_time as u64,
        rounds: so,
        of_rounds,
        waits_in,
        function: function.map(str::to_owned),
    })
}

#[cfg(test)]
mod tests {
    use whywait_events::TaskState;

    use super::*;
    use crate::script::{Script, TGID, ms};

    const SEND: &[&str] = &["runtime.chansend", "runtime.gopark"];

    /// Six requests that are answered so far apart; in each of ten rounds so many are past the
    /// wait, the others in it.
    fn seen(
        waiting: &[&str],
        past: &[&str],
        at_a_time: impl Fn(u64) -> u64,
        apart_ms: u64,
    ) -> Option<TasksPast> {
        let mut script = Script::new();
        script.thread(10, "server");
        let waiting = script.stack(waiting);
        let past = script.stack(past);
        for socket in 1..=6 {
            let request = script.request(socket).ready(10).read(10, 10);
            request.answered(1_000 + apart_ms * socket, 10);
        }
        for round in 0..10 {
            for socket in 1..=6 {
                script.task_look(&TaskLook {
                    at_ns: ms(20 + 50 * round),
                    read_ns: ms(20 + 50 * round),
                    tgid: TGID,
                    task: socket as u32,
                    socket,
                    seq: 1,
                    state: TaskState::Waiting,
                    stack: if socket <= at_a_time(round) {
                        past
                    } else {
                        waiting
                    },
                    ..TaskLook::default()
                });
            }
        }
        let waits = script.model().task_waits().expect("looks");
        let mut rows = waits.rows.iter();
        let row = rows.find(|row| row.kind == Channel);
        row.expect("some wait").past.clone()
    }

    fn within(function: &str, rest: &[&'static str]) -> Vec<String> {
        let outer = ["main.handler", function].map(str::to_owned);
        outer
            .into_iter()
            .chain(rest.iter().map(|name| (*name).to_owned()))
            .collect()
    }

    fn names(stack: &[String]) -> Vec<&str> {
        stack.iter().map(String::as_str).collect()
    }

    #[test]
    fn as_many_as_are_let_through_are_past_the_wait_in_every_round() {
        let waiting = within("main.withThing", SEND);
        let asleep = within("main.withThing", &["time.Sleep", "runtime.gopark"]);
        let past = seen(&names(&waiting), &names(&asleep), |_| 2, 200).expect("two are past it");
        assert_eq!((past.at_a_time, past.rounds, past.of_rounds), (2, 10, 10));
        assert_eq!(past.waits_in, Some("time.Sleep"));
        assert_eq!(past.function.as_deref(), Some("main.withThing"));
    }

    #[test]
    fn what_was_taken_in_a_function_that_has_returned_is_held_in_its_caller() {
        let waiting = within("main.take", SEND);
        let asleep = within("main.use", &["time.Sleep", "runtime.gopark"]);
        let past = seen(&names(&waiting), &names(&asleep), |_| 2, 200).expect("two are past it");
        assert_eq!((past.at_a_time, past.rounds), (2, 10));
        assert_eq!(past.function.as_deref(), Some("main.use"));
    }

    #[test]
    fn what_happens_lets_any_number_past() {
        let waiting = within("main.poll", SEND);
        let asleep = within("main.poll", &["time.Sleep", "runtime.gopark"]);
        let any: [fn(u64) -> u64; 2] = [|round| 1 + round % 5, |round| u64::from(round > 4)];
        for at_a_time in any {
            let past = seen(&names(&waiting), &names(&asleep), at_a_time, 200);
            assert_eq!(past, None);
        }
        // One does it for all.
        let shared = seen(&names(&waiting), &names(&asleep), |_| 1, 1);
        assert_eq!(shared, None);
    }
}
