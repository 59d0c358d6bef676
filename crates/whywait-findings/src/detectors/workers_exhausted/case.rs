//! What the finding says, in words.

use std::collections::BTreeSet;

use serde_json::json;
use whywait_model::{Model, RequestRef, system_call_name};
use whywait_words::{counted, counted_as, duration, list, percent, whole_percent};

use super::{Backlog, MoreWorkers};
use crate::detectors::accept_stalled::in_queue;
use crate::finding::{Cause, Evidence, Finding};
use crate::numbers::SHOWN;
use crate::shared::intervals::sum;
use crate::shared::reasons::WaitReason;
use crate::shared::slow_paths::Shares;
use crate::shared::threads::named;

/// A lack of workers.
pub(super) struct Case<'a, 'm> {
    pub(super) model: &'m Model,
    pub(super) crew: &'a Backlog<'m>,
    pub(super) shares: &'a Shares,
    /// What all slow requests took.
    pub(super) slow_ns: u64,
    /// What the workers slept in, and for how long.
    pub(super) reasons: &'a [(WaitReason, u64)],
    /// They sleep with no request in hand, for most of the time.
    pub(super) kept: bool,
    /// How many do, and what the others slept in.
    pub(super) idle: usize,
    pub(super) others: Option<WaitReason>,
    /// Whether more of them would only queue there, where that shows.
    pub(super) elsewhere: Option<bool>,
    pub(super) replayed: Option<MoreWorkers>,
}

impl Case<'_, '_> {
    pub(super) fn title(&self) -> String {
        // Tasks may read what they then wait with.
        let read = |(request, ns): &(RequestRef<'_>, u64)| {
            *ns > request.served_ns().saturating_sub(request.ready_ns)
        };
        let unserved = match self.crew.victims.iter().any(read) {
            true => "unserved",
            false => "unread",
        };
        let (who, sleep, are) = match self.crew.workers.len() {
            1 => ("the only worker".to_owned(), "sleeps", "is"),
            2 => ("both workers".to_owned(), "sleep", "are"),
            many => (format!("all {many} workers"), "sleep", "are"),
        };
        let who = match &self.others {
            Some(_) if self.kept => format!("{} of {} workers", self.idle, self.crew.workers.len()),
            _ => who,
        };
        let what = match self.reasons.first() {
            _ if self.kept
                && let Some(other) = &self.others =>
            {
                let are = if self.idle == 1 { "is" } else { "are" };
                format!(
                    "{are} kept by idle connections, and the others sleep{}",
                    other.in_words()
                )
            }
            _ if self.kept => format!("{are} kept by idle connections"),
            _ if self.streams() => {
                let writes = if are == "is" { "writes" } else { "write" };
                format!("{writes} long responses")
            }
            Some((reason, _)) => format!("{sleep}{}", reason.in_words()),
            None => sleep.to_owned(),
        };
        format!(
            "{} waited {unserved} for up to {} while {who} {what}",
            counted(self.shares.each_ns.len(), "request"),
            duration(self.shares.each_ns.first().copied().unwrap_or(0)),
        )
    }

    /// Says in the finding what it is about.
    pub(super) fn about(&self, finding: Finding) -> Finding {
        let threads = &self.model.threads;
        let workers = self.crew.workers.iter();
        let pids: BTreeSet<u32> = workers
            .filter_map(|tid| Some(threads.get(tid)?.tgid))
            .collect();
        let finding = match pids.first() {
            Some(pid) if pids.len() == 1 => finding.about("pid", *pid),
            _ => finding.about("pids", json!(pids)),
        };
        let replay = self.replayed.as_ref().map(MoreWorkers::rows);
        finding
            .about("workers", json!(self.crew.workers))
            .about_known("port", Some(self.crew.port).filter(|port| *port != 0))
            .about_known("replay", replay)
    }

    pub(super) fn evidence(&self) -> Vec<Evidence> {
        let named: Vec<String> = self
            .crew
            .workers
            .iter()
            .map(|tid| named(self.model, *tid))
            .collect();
        let slept_ns = sum(self.reasons.iter().map(|(_, ns)| *ns));
        let slept: Vec<String> = self
            .reasons
            .iter()
            .take(*SHOWN)
            .filter(|(_, ns)| whole_percent(*ns, slept_ns) > 0)
            .map(|(reason, ns)| {
                let words = reason.in_words();
                let share = percent(*ns, slept_ns);
                format!("{} {share}", words.trim_start_matches(" in "))
            })
            .collect();
        let kept = match (self.kept, &self.others) {
            (false, _) => String::new(),
            (true, others) => {
                let some = match others {
                    Some(_) => format!("; {} of them", self.idle),
                    None => ",".to_owned(),
                };
                format!(
                    "{some} with no request in hand: each waits for the next request of its own \
                     connection"
                )
            }
        };
        let shift_ns = self.crew.shift.total_ns();
        let mut evidence = vec![
            Evidence::of_ns(
                self.shares.ns,
                format!(
                    "{}; counted is what they waited while all workers slept, or most of that time",
                    self.shares.spread(self.slow_ns)
                ),
            ),
            Evidence::of_ns(
                shift_ns,
                format!(
                    "for {} {} {} asleep at the same time, none of them where it waits for work",
                    duration(shift_ns),
                    list(&named),
                    if named.len() == 1 { "was" } else { "were" },
                ),
            ),
            Evidence::new(format!("they slept in {}{kept}", slept.join("; "))),
        ];
        evidence.extend(self.who_keeps_them());
        evidence.extend(self.accept_queue());
        if self.crew.inferred {
            evidence.push(Evidence::new(
                "nobody was seen to wait for new work while whywait watched: that these take it is \
                 inferred, since the other threads rested meanwhile and took none",
            ));
        }
        evidence.extend(self.replayed.as_ref().map(|more| more.evidence("request")));
        if !self.kept && self.replayed.is_some() {
            evidence.push(Evidence::new(match self.elsewhere {
                Some(_) => {
                    "when several began to wait at once, they were done at the same time: more \
                     workers would not just queue there"
                }
                None => {
                    "whether what they wait for can do more at once does not show: they never \
                     began to wait together"
                }
            }));
        }
        evidence
    }

    /// Whether all of them write responses that are under way.
    fn streams(&self) -> bool {
        self.crew.writing > 0 && self.crew.writing == self.crew.workers.len()
    }

    /// The connections that keep the workers.
    fn who_keeps_them(&self) -> Option<Evidence> {
        let kept_by = &self.crew.kept_by;
        let named: Vec<String> = kept_by
            .iter()
            .filter(|connection| !connection.peer.is_empty())
            .map(|connection| match connection.peer.contains(':') {
                true => format!("[{}]:{}", connection.peer, connection.peer_port),
                false => format!("{}:{}", connection.peer, connection.peer_port),
            })
            .collect();
        if kept_by.is_empty() {
            return None;
        }
        let owed = kept_by
            .iter()
            .filter(|connection| connection.owes_answer == Some(true))
            .count();
        let of_whom = match named.as_slice() {
            [] => String::new(),
            _ => format!(" of {}", list(&named)),
        };
        let half_read = match owed {
            0 => String::new(),
            _ => format!(
                "; {} a request that is not read whole, or not answered",
                counted_as(owed, "has", "have",)
            ),
        };
        Some(Evidence::new(format!(
            "when whywait looked they {} {}{of_whom}{half_read}",
            match self.streams() {
                true => "wrote responses to",
                false => "slept on",
            },
            counted(kept_by.len(), "connection"),
        )))
    }

    /// What lies in the accept queue, where that is among what waited.
    fn accept_queue(&self) -> Option<Evidence> {
        let mut victims = self.crew.victims.iter();
        if !victims.any(|(request, _)| request.unaccepted) {
            return None;
        }
        let mut queues = self.model.accept_queues.all();
        let queue = queues.find(|one| one.port == Some(self.crew.port) && one.queued > 0)?;
        Some(in_queue(&queue))
    }

    /// The sleep that took most, as an example.
    pub(super) fn cause(&self) -> Option<Cause> {
        let longest = self.crew.sleeps.iter().max_by_key(|sleep| sleep.ns)?;
        let doing = format!("asleep in {}", system_call_name(longest.wait));
        let wait = longest.wait;
        Some(Cause::new(self.model, wait.tid, doing, wait.user_stack))
    }

    pub(super) fn fix(&self) -> String {
        if self.kept {
            return "do not keep a worker for an idle connection: close it sooner (keep-alive \
                    time-out), have a proxy or an event loop keep it, or many more workers"
                .to_owned();
        }
        if self.streams() {
            return "do not keep a worker for a response that goes on (events, a download to a \
                    slow client): leave it to an event loop or to a proxy that buffers, give such \
                    responses workers of their own, or have many more workers"
                .to_owned();
        }
        let more = "more workers (threads or processes): they sleep, so they cost memory and no \
                    CPU time";
        let shorter = self
            .reasons
            .first()
            .map_or_else(String::new, |(reason, _)| {
                format!(
                    "; or have each request wait for less in {}, or without a worker in its hands",
                    reason.what
                )
            });
        format!("{more}{shorter}")
    }
}
