//! What lets only so many tasks through at a time inside a program: a semaphore, a channel or a
//! queue with so many things, a task that works off what others hand to it.
//!
//! A semaphore is one by its name. Of other waits the tasks that are past it tell: as many as ever
//! in nearly every round of looks in which others wait there. Who waits for something to happen has
//! now one task past it, now ten.

use whywait_model::requests::{TaskWaitKind, TaskWaitRow, TaskWaits, TasksPast};
use whywait_words::counted;

use crate::declaration::Declaration;
use crate::facts::Facts;
use crate::finding::{Confidence, Evidence, Finding, Saving, Severity};
use crate::numbers::{ERROR_NS, MIN_SAMPLES, NEARLY_ALL, QUEUE_FULL, SLOW_NS, Share};
use crate::ranking::Explained;
use crate::shared::slow_paths::Shares;
use crate::shared::task_waits::{RequestsInWait, in_function, in_words, looks};

/// A wait for one of a few places.
pub(crate) struct TaskPlaces<'f> {
    all: &'f TaskWaits,
    wait: &'f TaskWaitRow,
    /// Who has them, where as many as ever do.
    past: Option<&'f TasksPast>,
}

impl<'f> TaskPlaces<'f> {
    /// All of them.
    pub(crate) fn of(facts: &'f Facts<'_>) -> Vec<Self> {
        let Some(all) = facts.task_waits() else {
            return Vec::new();
        };
        let places = all.rows.iter().filter_map(|wait| {
            let past = wait.past.as_ref().filter(|past| is_limit(past));
            let known = past.is_some() || wait.kind == TaskWaitKind::Semaphore;
            let known = known && wait.looks >= *MIN_SAMPLES;
            known.then_some(Self { all, wait, past })
        });
        places.collect()
    }

    /// So many places there are, as far as is known.
    pub(crate) fn count(&self) -> Option<u64> {
        self.past.map(|past| past.at_a_time)
    }

    /// What is found of it. It is an error from [`ERROR_NS`] on if that can be one.
    pub(crate) fn finding(
        &self,
        facts: &Facts<'_>,
        declaration: &'static Declaration,
        can_be_error: bool,
    ) -> Option<Finding> {
        let slow_ns = facts.slow().total_ns;
        // A look stands for all of its request's time: what one of them waited is not known, what
        // all did is.
        let RequestsInWait { all, .. } = RequestsInWait::of(facts, self.all, self.wait);
        let saved = all.iter().map(|(ns, _)| *ns).filter(|ns| *ns > 0).collect();
        let slow = all.into_iter().filter(|(_, age_ns)| *age_ns >= *SLOW_NS);
        let shares = Shares::new(slow);
        let severity = match shares.severity(slow_ns)? {
            Severity::Warning if can_be_error && shares.median_ns() >= *ERROR_NS => Severity::Error,
            severity => severity,
        };
        let title = format!(
            "{} waited {} of their time in {}{}",
            shares.requests(),
            shares.percent(),
            in_words(self.wait),
            self.lets_through(),
        );
        let finding = Finding::new(declaration, severity, title)
            .confidence(self.confidence())
            .about_known("waits_in", self.wait.waits_in)
            .about_known("function", self.wait.function.clone())
            .about_known("at_a_time", self.count())
            .saving(Saving::latency(saved))
            .explains(Explained::Inside)
            .evidence([
                Evidence::of_ns(shares.ns, shares.spread(slow_ns)),
                looks(self.all, self.wait),
            ])
            .evidence(self.past.map(seen))
            .evidence([Evidence::new(
                "whether more at a time would take as long there does not show",
            )])
            .fix(
                "let more through at a time, as far as what they do there can be done side by \
                 side; or be there for a shorter time: do not wait with it in hand; if it is a \
                 limit on purpose, requests queue for it",
            );
        Some(finding)
    }

    /// `, which lets 2 through at a time; those are in time.Sleep in main.work`.
    fn lets_through(&self) -> String {
        let Some(past) = self.past else {
            return String::new();
        };
        let (many, those) = match past.at_a_time {
            1 => ("one".to_owned(), "that one is"),
            many => (many.to_string(), "those are"),
        };
        let does = doing(past).map_or_else(String::new, |does| format!("; {those} in {does}"));
        format!(", which lets {many} through at a time{does}")
    }

    fn confidence(&self) -> Confidence {
        match self.past {
            Some(past) if Share::new(past.rounds, past.of_rounds).is_at_least(*NEARLY_ALL) => {
                Confidence::High
            }
            _ => Confidence::Medium,
        }
    }
}

/// Whether as many as ever are past it in nearly every round.
fn is_limit(past: &TasksPast) -> bool {
    past.of_rounds >= *MIN_SAMPLES
        && Share::new(past.rounds, past.of_rounds).is_at_least(*QUEUE_FULL)
}

fn doing(past: &TasksPast) -> Option<String> {
    let within = in_function(past.function.as_deref());
    past.waits_in.map(|what| format!("{what}{within}"))
}

fn seen(past: &TasksPast) -> Evidence {
    Evidence::new(format!(
        "in {} of {} of looks in which tasks waited there {} past it",
        past.rounds,
        counted(past.of_rounds, "round"),
        match past.at_a_time {
            1 => "one other was".to_owned(),
            many => format!("{} or {many} others were", many - 1),
        },
    ))
}

/// Requests in goroutines, so many of which are let through at a time.
#[cfg(test)]
pub(crate) mod script {
    use whywait_events::{TaskLook, TaskState};
    use whywait_model::script::{Script, TGID, ms};

    /// Each of twelve is past the wait for 20 ms. All are looked at every 10 ms. With `random` any
    /// number is past it.
    pub(crate) fn passing(at_a_time: u64, random: bool) -> Script {
        let mut script = Script::new();
        script.thread(10, "server");
        let waits = script.stack(&["main.withThing", "runtime.chanrecv", "runtime.gopark"]);
        let past = script.stack(&[
            "main.withThing",
            "main.work",
            "time.Sleep",
            "runtime.gopark",
        ]);
        for socket in 1..=12 {
            let begun = 20 * ((socket - 1) / at_a_time);
            let request = script.request(socket).ready(0).read(0, 10);
            request.answered(begun + 20, 10);
            for at in (5..begun + 20).step_by(10) {
                let passes = at > begun || random && (socket + at / 10) % (1 + at % 7) == 0;
                script.task_look(&TaskLook {
                    at_ns: ms(at),
                    read_ns: ms(at),
                    tgid: TGID,
                    task: socket as u32,
                    socket,
                    seq: 1,
                    state: TaskState::Waiting,
                    stack: if passes { past } else { waits },
                    ..TaskLook::default()
                });
            }
        }
        script
    }
}
