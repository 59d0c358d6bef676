//! What tasks waited in, by the looks at them in recordings of the lab `parked`, against what its
//! servers and clients say themselves.
//!
//! Of the kept recordings that have the moments of all requests, or with `PARKED_IN=DIR` in the
//! environment of those that `LABS_RECORDINGS=DIR tests/labs parked` left in that folder.

use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};
use std::fs::{self, File};
use std::ops::RangeInclusive;
use std::path::Path;

use serde::Deserialize;
use whywait_events::Ns;
use whywait_events::recording::Recording;
use whywait_model::requests::TaskWaitKind;
use whywait_model::{Input, Model};
use whywait_testkit::kept_recordings;

/// Of the looks within a wait, so many must say what it is, and in which function.
const LEAST_RIGHT: f64 = 0.98;
/// So many looks within waits there must have been, or there was nothing to be right about.
const LEAST_SEEN: usize = 100;
/// A handler says a moment before it waits that it begins, and a moment after it that it goes on.
const MOMENT_NS: u64 = 300_000;

#[derive(Deserialize)]
struct Truth {
    /// Of each client its requests, in their order: when it was sent, when the handler began, when
    /// its wait was over, when its work was, and when the answer had come; milliseconds.
    moments: Option<Vec<Vec<[f64; 5]>>>,
}

/// What waits are called, by the name of the variant: kinds, and the function.
fn waits_of(variant: &str) -> Option<(&'static [TaskWaitKind], &'static str)> {
    use TaskWaitKind::{Channel, Condition, Executor, Lock, Select, Semaphore, Tasks};
    Some(match variant {
        "mutex-cpu" => (&[Lock], "main.underMutexComputing"),
        "mutex-sleep" => (&[Lock], "main.underMutexSleeping"),
        "mutex-call" => (&[Lock], "main.underMutexCalling"),
        "rwmutex" => (&[Lock], "main.readingUnderLock"),
        "channel" => (&[Channel], "main.handedOver"),
        "semaphore" => (&[Channel], "main.withinSlots"),
        "pool" => (&[Channel], "main.withThing"),
        "select-timer" => (&[Select], "main.whatComesFirst"),
        "waitgroup" => (&[Tasks], "main.untilAllAreDone"),
        "asyncio-mutex-cpu" => (&[Lock], "Server.under_lock_computing"),
        "asyncio-mutex-sleep" | "asyncio-mutex-task" => (&[Lock], "Server.under_lock_sleeping"),
        "asyncio-mutex-call" => (&[Lock], "Server.under_lock_calling"),
        "asyncio-rwmutex" => (&[Condition], "ReadWriteLock.until_nobody_writes"),
        "asyncio-channel" => (&[Channel], "Server.handed_over"),
        "asyncio-semaphore" => (&[Semaphore], "Server.within_slots"),
        "asyncio-pool" => (&[Channel], "Server.with_thing"),
        "asyncio-select-timer" => (&[Select, Channel, Executor], "Server.what_comes_first"),
        "asyncio-waitgroup" => (&[Tasks], "Server.until_all_are_done"),
        "asyncio-executor" => (&[Executor], "Server.by_another_thread"),
        _ => return None,
    })
}

/// What the looks within waits said.
#[derive(Debug, Default)]
struct LooksSaid {
    right: usize,
    /// The task could run, or ran: it had just been woken.
    woken: usize,
    wrong: BTreeMap<String, usize>,
}

impl LooksSaid {
    fn wrong(&self) -> usize {
        self.wrong.values().sum()
    }

    fn seen(&self) -> usize {
        self.right + self.woken + self.wrong()
    }

    fn share(&self) -> f64 {
        self.right as f64 / self.seen().max(1) as f64
    }
}

impl Display for LooksSaid {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let (right, seen) = (self.right, self.seen());
        let share = self.share() * 100.0;
        write!(f, "{right} of {seen} looks right, {share:.1} %; ")?;
        write!(
            f,
            "{} had just been woken; wrong {:?}",
            self.woken, self.wrong
        )
    }
}

#[test]
fn looks_at_tasks_say_what_they_wait_in() {
    let mut all = Vec::new();
    if let Some(folder) = std::env::var_os("PARKED_IN") {
        for one in fs::read_dir(folder).expect("PARKED_IN is a folder") {
            let path = one.expect("it can be read").path();
            // LAB-VARIANT-NUMBER
            let name = path
                .file_name()
                .map(|name| name.to_string_lossy().into_owned());
            let name = name.unwrap_or_default();
            let variant = name.trim_start_matches("parked-");
            let variant = variant
                .rsplit_once('-')
                .map_or(variant, |(variant, _)| variant);
            all.extend(said_in(variant, &path).map(|said| (name.clone(), said)));
        }
    } else {
        let kept = kept_recordings();
        for one in kept.iter().filter(|one| one.lab == "parked") {
            let said = said_in(&one.variant, one.unpack().path());
            all.extend(said.map(|said| (one.name(), said)));
        }
    }
    for (name, said) in &all {
        println!("{name}: {said}");
    }
    let wrong: Vec<_> = all.iter().filter(|(_, said)| said.wrong() > 0).collect();
    assert!(wrong.is_empty(), "another wait or function: {wrong:?}");
    let sum = |count: fn(&LooksSaid) -> usize| all.iter().map(|(_, said)| count(said)).sum();
    let (right, seen): (usize, usize) = (sum(|said| said.right), sum(LooksSaid::seen));
    assert!(seen >= LEAST_SEEN, "{seen} looks");
    assert!(
        right as f64 >= LEAST_RIGHT * seen as f64,
        "{right} of {seen}"
    );
}

/// What the looks of a recording said; `None`: it does not have all moments, or its requests wait
/// for nothing of each other's.
fn said_in(variant: &str, folder: &Path) -> Option<LooksSaid> {
    let (kinds, function) = waits_of(variant)?;
    let truth = File::open(folder.join("truth.json")).expect("there is a ground truth");
    let truth: Truth = serde_json::from_reader(truth).expect("it can be read");
    let moments = truth.moments?;
    let recording = Recording::open(&folder.join("recording")).expect("there is a recording");
    let model = Model::new(Input::read(&recording).expect("it can be read"));
    let mut by_connection: BTreeMap<u64, Vec<_>> = BTreeMap::new();
    for request in model.requests().filter(|request| request.is_answered()) {
        by_connection
            .entry(request.socket)
            .or_default()
            .push(request);
    }
    let mut said = LooksSaid::default();
    for mut requests in by_connection.into_values() {
        requests.sort_by_key(|request| request.seq);
        for request in requests {
            let ready_ns = request.ready_ns;
            // Its client is the one whose request was on its way then, and was answered then.
            let ended_ns = request.last_send_ns.unwrap_or(ready_ns);
            let is_its = |one: &&[f64; 5]| {
                ns(one[0]) <= ready_ns && ready_ns <= ns(one[1]) && {
                    ns(one[3]) <= ended_ns && ended_ns <= ns(one[4])
                }
            };
            let mut its = moments.iter().flatten().filter(is_its);
            // Of two that fit it is not known which one it is.
            let (Some(one), None) = (its.next(), its.next()) else {
                continue;
            };
            let (from, until) = (ns(one[1]) + MOMENT_NS, ns(one[2]).saturating_sub(MOMENT_NS));
            let within =
                |looked: &RangeInclusive<Ns>| from <= *looked.start() && *looked.end() <= until;
            for (_, kind, of) in request.task_doings().filter(|(looked, ..)| within(looked)) {
                match (kind, of.as_deref()) {
                    (TaskWaitKind::Runnable | TaskWaitKind::Running, _) => said.woken += 1,
                    (kind, Some(of)) if kinds.contains(&kind) && of == function => {
                        said.right += 1;
                    }
                    (kind, of) => {
                        let what = format!("{kind:?} in {}", of.unwrap_or("?"));
                        *said.wrong.entry(what).or_default() += 1;
                    }
                }
            }
        }
    }
    Some(said)
}

fn ns(milliseconds: f64) -> Ns {
    (milliseconds * 1e6) as Ns
}
