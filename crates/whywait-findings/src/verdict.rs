//! What may be said of a recording as a whole.
//!
//! That nothing is wrong is a claim, too. It holds where requests are fast, or where findings and
//! notes explain what most of slow requests' time went into. Where nothing does it would be a
//! guess: then the verdict says what that is, and what shape it has. That threads compute, or wait
//! for a CPU, says neither what for nor whether it could be otherwise. Where it went into what
//! takes as long each time, the verdict says so, too.

use schemars::JsonSchema;
use serde::Serialize;
use whywait_events::{Part, Parts};
use whywait_model::requests::{Account, Acts, OpenRequests};
use whywait_model::{Model, RequestRef};
use whywait_words::whole_percent;

use crate::facts::Facts;
use crate::finding::{Confidence, Finding, SavingKind, Severity};
use crate::numbers::{
    MOST, RING_MIN_OPERATIONS, SLOW_NS, STUCK_NS, STUCK_TIMES, Share, VERDICT_FEW,
};
use crate::shared::events::OutsideEvents;
use crate::shared::intervals::{Interval, in_step_ns, most_at_a_time, sum};
use crate::shared::tails::of_client_ns;

/// What may be said of a recording as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum Verdict {
    /// There are findings above a note.
    Findings,
    /// The target was stopped from outside: whatever took long may be that.
    Stopped,
    /// No request was seen.
    NoRequests,
    /// No request was seen, but operations of io_uring rings, and nothing wrong with them.
    Operations,
    /// No request was seen, as it is a program that serves nobody: it ran, and the report says
    /// what for so long.
    Run,
    /// No request was seen, but responses that were under way when the recording began or ended.
    UnderWay,
    /// Requests are open that should have been answered by now.
    Open,
    /// Requests cannot be told apart: they are on connections that carry several at once.
    Multiplexed,
    /// Jobs seem to end with who has their messages, while others of the target work for longer:
    /// who works on them does not show.
    HandedOn {
        /// What the jobs seem to have taken, all together, nanoseconds.
        jobs_ns: u64,
        /// What the target did besides, nanoseconds.
        besides_ns: u64,
    },
    /// Most of the slow requests' time went where nothing explains it.
    CannotTell {
        /// What has most of it.
        part: Dominant,
        /// How many percent of the slow requests' time that is.
        percent: u64,
        /// What shape it has.
        shape: Shape,
    },
    /// Most of the slow requests' time went into what nothing shows could be otherwise, as it takes
    /// as long each time: notes say into what.
    AsEver {
        /// How many percent of the slow requests' time that is.
        percent: u64,
    },
    /// Fixes of what notes say may save most of the slow requests' time: too little for a warning,
    /// and not nothing.
    Notes {
        /// How many percent of the slow requests' time they save at most.
        percent: u64,
    },
    /// Most of the slow requests' time they waited for what another client sent, or for something
    /// else from outside: long polls, chats.
    AwaitsEvents {
        /// How many percent of the slow requests' time that is.
        percent: u64,
    },
    /// Most of the requests' time their responses waited for clients to read.
    AwaitsClients {
        /// How many percent of the requests' time that is.
        percent: u64,
    },
    /// Nothing wrong was found.
    #[default]
    NothingWrong,
}

/// What most of the slow requests' time was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Dominant {
    /// Nobody read them.
    ReadyUnserved,
    /// Inside the program, by their calls: none of theirs was open, and no thread worked for them.
    Queued,
    /// Time of the threads that served them, by its part.
    #[serde(untagged)]
    Part(
        #[serde(serialize_with = "by_name")]
        #[schemars(with = "String")]
        Part,
    ),
}

fn by_name<S: serde::Serializer>(part: &Part, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(part.name())
}

impl Verdict {
    /// What findings say alone, if they say something.
    pub fn of_findings(findings: &[Finding]) -> Option<Self> {
        let is_problem = |finding: &Finding| finding.severity > Severity::Note;
        findings.iter().any(is_problem).then_some(Self::Findings)
    }

    /// Whether the first of the notes says where slow requests' time went.
    pub fn is_in_notes(self) -> bool {
        matches!(self, Self::AsEver { .. } | Self::Notes { .. })
    }
}

/// What may be said of a recording with these findings.
pub fn verdict(facts: &Facts<'_>, findings: &[Finding]) -> Verdict {
    let model = facts.model;
    if let Some(verdict) = Verdict::of_findings(findings) {
        return verdict;
    }
    if model
        .stopped()
        .is_some_and(|stopped| stopped.ns >= *STUCK_NS)
    {
        return Verdict::Stopped;
    }
    let open = model.open_requests();
    if open.is_some_and(|open| stuck(&open, model.usual_ns())) {
        return Verdict::Open;
    }
    if model.requests_that_count() == 0 {
        return match is_about_rings(model) {
            true => Verdict::Operations,
            false if model.responses_under_way().is_some() => Verdict::UnderWay,
            false if facts.run().is_some() => Verdict::Run,
            false => Verdict::NoRequests,
        };
    }
    if !model.tells_requests_apart() {
        return Verdict::Multiplexed;
    }
    handed_on(model).unwrap_or_else(|| unexplained(model, findings))
}

/// Whether most of what the target did is in no job, though those who have the messages are done
/// with most of them at once. Who always finds another message never waits for one, and nothing
/// shows that it was given some: it was at work for most of the time.
pub(crate) fn handed_on(model: &Model) -> Option<Verdict> {
    let jobs = model.jobs().filter(|jobs| jobs.counted)?;
    let messages = jobs.count.max(jobs.fetches);
    let took_ns = |job: &RequestRef<'_>| job.end_ns().saturating_sub(job.ready_ns);
    let jobs_seen = model.requests().filter(|job| job.counts());
    let slow = jobs_seen.filter(|job| took_ns(job) >= model.threshold_ns());
    let slow = slow.count() as u64;
    if Share::new(slow, messages).is_at_least(*MOST) {
        return None;
    }
    let work = model.work();
    // What works on jobs does something for each: a heartbeat is none of that.
    let for_jobs = |acts: Acts| match Share::new(acts.count, messages).is_below(*VERDICT_FEW) {
        true => 0,
        false => acts.ns,
    };
    let all_ns = sum([work.busy_ns, for_jobs(work.sleeps), for_jobs(work.calls)]);
    let besides_ns = all_ns.saturating_sub(jobs.total_ns);
    let most_of_time = Share::new(besides_ns, model.target().duration_ns).is_at_least(*MOST);
    (besides_ns >= jobs.total_ns && most_of_time).then_some(Verdict::HandedOn {
        jobs_ns: jobs.total_ns,
        besides_ns,
    })
}

/// Whether what the target does is to be seen in its rings: one that listens may just not have been
/// asked for anything, unless its rings are busy.
fn is_about_rings(model: &Model) -> bool {
    let operations = sum(model.rings.values().map(|state| state.ring.submitted));
    let listens = model.accept_queues.all().next().is_some();
    operations >= if listens { *RING_MIN_OPERATIONS } else { 1 }
}

fn stuck(open: &OpenRequests, usual_ns: u64) -> bool {
    open.late > 0 && open.oldest_late_ns >= STUCK_NS.max(usual_ns.saturating_mul(*STUCK_TIMES))
}

/// Whether requests are slow, and for which reason that nothing explains.
fn unexplained(model: &Model, findings: &[Finding]) -> Verdict {
    let clients = model.requests().map(|one| of_client_ns(model, one));
    let clients: Vec<u64> = clients.filter(|ns| *ns > 0).collect();
    let client_ns = sum(clients.iter().copied());
    let total_ns = model.time_of_requests_ns();
    // A single one, as of a client that is sent whatever happens, says nothing of the others.
    let are_several = clients.len() > 1 || model.requests_that_count() == 1;
    if are_several && Share::new(client_ns, total_ns).is_at_least(*MOST) {
        return Verdict::AwaitsClients {
            percent: whole_percent(client_ns, total_ns),
        };
    }
    let slow = SlowTime::of(model);
    if Share::new(slow.total_ns, model.time_of_requests_ns()).is_below(*VERDICT_FEW) {
        return Verdict::NothingWrong;
    }
    let latency = findings
        .iter()
        .filter(|finding| finding.saving.kind == SavingKind::Latency);
    // "A peer or a timer" explains nothing where it has most of the time. As an exception it is
    // what waits for an event: a long poll.
    let explaining =
        latency.filter(|finding| finding.confidence > Confidence::Low || !slow.is_the_rule(model));
    let savings = |of: &dyn Fn(&&Finding) -> bool| {
        let of = explaining.clone().filter(of);
        sum(of.map(|finding| finding.saving.at_most_ns))
    };
    let explained_ns = savings(&|_| true);
    // Who waits for what another client sends is as slow as that one.
    let events_ns = slow.events_ns.saturating_sub(explained_ns);
    if Share::new(events_ns, slow.total_ns).is_at_least(*MOST) {
        return Verdict::AwaitsEvents {
            percent: whole_percent(slow.events_ns, slow.total_ns),
        };
    }
    // Where threads serve many requests at a time, their own time (a wait for a CPU, say) is not
    // where these requests were.
    if let Some(verdict) = queued(model, explained_ns) {
        return verdict;
    }
    let left_ns = slow.total_ns.saturating_sub(explained_ns);
    if Share::new(left_ns, slow.total_ns).exceeds(*MOST) {
        return slow.cannot_tell();
    }
    let is_sure = |finding: &&Finding| finding.confidence > Confidence::Low;
    let has_most = |ns: u64| {
        let most = Share::new(ns, slow.total_ns).is_at_least(*MOST);
        most.then(|| whole_percent(ns.min(slow.total_ns), slow.total_ns))
    };
    // What a peer takes that is watched, too, its own requests may wait for: nobody looked at them.
    let is_as_ever =
        |it: &&Finding| it.as_ever.is_some() && !it.subject.contains_key("peer_is_watched");
    if let Some(percent) = has_most(savings(&|it| is_sure(it) && is_as_ever(it))) {
        return Verdict::AsEver { percent };
    }
    match has_most(savings(&is_sure)) {
        Some(percent) => Verdict::Notes { percent },
        None => Verdict::NothingWrong,
    }
}

/// Where threads wait for many requests at a time, and these certainly queue inside for most of
/// their time, but for what findings explain: what the threads wait for says nothing of that.
fn queued(model: &Model, explained_ns: u64) -> Option<Verdict> {
    let totals = model.task_totals().filter(|totals| !totals.threads_wait)?;
    let queued_ns = totals.time.queued_ns.at_least;
    let open_ns = queued_ns.saturating_sub(explained_ns);
    let most = open_ns.saturating_mul(2) >= totals.total_ns && open_ns > 0;
    most.then(|| {
        let calls = model.exchanges().iter();
        let calls = calls.filter_map(|call| Some((call.first_send_ns, call.last_read_ns?)));
        let answers = model.requests().filter_map(|one| one.answered_ns());
        Verdict::CannotTell {
            part: Dominant::Queued,
            percent: whole_percent(queued_ns, totals.total_ns),
            shape: Shape::of(calls, answers),
        }
    })
}

/// What shape a wait has whose reason is not known: what it is that has it shows in how many get
/// through at a time, and how often.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, JsonSchema)]
pub struct Shape {
    /// So many were in hand at a time at most: read and not answered, or calls in flight.
    pub at_a_time: u64,
    /// Answers came in step, one every so long.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub every_ns: Option<u64>,
}

impl Shape {
    /// Of what was in hand from when until when, and of when answers went out.
    fn of(in_hand: impl Iterator<Item = Interval>, answers: impl Iterator<Item = u64>) -> Self {
        let mut answers: Vec<u64> = answers.collect();
        answers.sort_unstable();
        Self {
            at_a_time: most_at_a_time(in_hand) as u64,
            every_ns: in_step_ns(&answers),
        }
    }
}

/// Where the time of slow requests went.
#[derive(Debug, Default)]
struct SlowTime {
    total_ns: u64,
    service: Parts,
    /// Read by nobody, while nobody was on the way to them.
    unread_ns: u64,
    /// In waits for something from outside.
    events_ns: u64,
    /// From when until when they were in the hands of a thread.
    in_hand: Vec<Interval>,
    answers: Vec<u64>,
}

impl SlowTime {
    /// That of slow requests: those whose answer began late. What a server sends for longer than
    /// that it may send as it comes.
    fn of(model: &Model) -> Self {
        let mut slow = Self::default();
        let mut events = OutsideEvents::new(model);
        for request in model.requests().filter(|request| request.counts()) {
            let begun_ns = request.first_send_ns.unwrap_or(request.end_ns());
            if let Some(recv_ns) = request.recv_ns {
                slow.in_hand.push((recv_ns, request.end_ns()));
            }
            slow.answers.extend(request.answered_ns());
            if begun_ns.saturating_sub(request.ready_ns) >= *SLOW_NS {
                slow.add(request.account());
                events.add(request);
            }
        }
        slow.events_ns = events.waited_ns(slow.total_ns);
        slow
    }

    fn add(&mut self, account: &Account) {
        let unread_ns = account.stranded_ns.saturating_add(account.pool_busy_ns);
        self.total_ns = self.total_ns.saturating_add(account.total_ns());
        self.service += account.service;
        // Who has been woken and is on the way waits for a CPU.
        self.service[Part::Runnable] += account.wakeup_ns;
        self.unread_ns = self.unread_ns.saturating_add(unread_ns);
    }

    /// Whether slow requests have most of the time of all requests: few of them may.
    fn is_the_rule(&self, model: &Model) -> bool {
        Share::new(self.total_ns, model.time_of_requests_ns()).is_at_least(*MOST)
    }

    /// The verdict that names the largest part of that, and its shape.
    fn cannot_tell(self) -> Verdict {
        let (part, ns) = Part::ALL
            .into_iter()
            .map(|part| (Dominant::Part(part), self.service[part]))
            .chain([(Dominant::ReadyUnserved, self.unread_ns)])
            .max_by_key(|(_, ns)| *ns)
            .unwrap_or((Dominant::ReadyUnserved, 0));
        Verdict::CannotTell {
            part,
            percent: whole_percent(ns, self.total_ns),
            shape: Shape::of(self.in_hand.into_iter(), self.answers.into_iter()),
        }
    }
}

#[cfg(test)]
mod tests;
