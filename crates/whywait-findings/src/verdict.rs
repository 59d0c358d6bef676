//! What may be said of a recording as a whole.
//!
//! That nothing is wrong is a claim, too. It holds where requests are fast, where their time went
//! into work or into waits for a CPU, which the report shows, or where findings and notes explain
//! it. Where most of slow requests' time went into waits that nothing explains, it would be a
//! guess.

use schemars::JsonSchema;
use serde::Serialize;
use whywait_events::{Part, Parts};
use whywait_model::requests::OpenRequests;
use whywait_model::{Model, RequestRef};
use whywait_words::whole_percent;

use crate::facts::Facts;
use crate::finding::{Confidence, Finding, SavingKind, Severity};
use crate::numbers::{
    MOST, RING_MIN_OPERATIONS, SLOW_NS, STUCK_NS, STUCK_TIMES, Share, VERDICT_FEW,
};
use crate::shared::intervals::sum;
use crate::shared::threads::slept_ns;

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
    /// Requests are open that should have been answered by now.
    Open,
    /// Requests cannot be told apart: they are on connections that carry several at once.
    Multiplexed,
    /// Most of the slow requests' time went where nothing explains it.
    CannotTell {
        /// What has most of it.
        part: Dominant,
        /// How many percent of the slow requests' time that is.
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

impl Dominant {
    /// In the words of the table of time.
    pub const fn words(self) -> &'static str {
        match self {
            Dominant::ReadyUnserved => "ready and unread",
            Dominant::Queued => "queued inside (for a connection, a lock of tasks, or a timer)",
            Dominant::Part(Part::OnCpu) => "on CPU",
            Dominant::Part(Part::Runnable) => "without a CPU",
            Dominant::Part(Part::Lock) => "lock",
            Dominant::Part(Part::Thread) => "other thread",
            Dominant::Part(Part::Disk) => "disk",
            Dominant::Part(Part::Network) => "network (a peer, or anything that a loop waits for)",
            Dominant::Part(Part::Timer) => "timer (sleep)",
            Dominant::Part(Part::Uring) => "io_uring",
            Dominant::Part(Part::PageFault) => "page fault",
            Dominant::Part(Part::Unknown) => "unknown",
        }
    }
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
            false => Verdict::NoRequests,
        };
    }
    if !model.tells_requests_apart() {
        return Verdict::Multiplexed;
    }
    unexplained(model, findings)
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
    let mut slow = SlowTime::default();
    model
        .requests()
        .for_each(|request| slow.add(model, request));
    if Share::new(slow.total_ns, model.time_of_requests_ns()).is_below(*VERDICT_FEW) {
        return Verdict::NothingWrong;
    }
    let explained_ns = findings
        .iter()
        .filter(|finding| finding.saving.kind == SavingKind::Latency)
        // "A peer or a timer" explains nothing where it has most of the time. As an exception it is
        // what waits for an event: a long poll.
        .filter(|finding| finding.confidence > Confidence::Low || !slow.is_the_rule(model))
        .map(|finding| finding.saving.at_most_ns)
        .fold(0, u64::saturating_add);
    // Where threads serve many requests at a time, their own time (a wait for a CPU, say) is not
    // where these requests were.
    if let Some(verdict) = queued(model, explained_ns) {
        return verdict;
    }
    let waits_ns = slow.waits_ns().saturating_sub(explained_ns);
    if !Share::new(waits_ns, slow.total_ns).exceeds(*MOST) {
        return Verdict::NothingWrong;
    }
    let (part, ns) = slow.dominant();
    Verdict::CannotTell {
        part,
        percent: whole_percent(ns, slow.total_ns),
    }
}

/// Where threads wait for many requests at a time, and these certainly queue inside for most of
/// their time, but for what findings explain: what the threads wait for says nothing of that.
fn queued(model: &Model, explained_ns: u64) -> Option<Verdict> {
    let totals = model.task_totals().filter(|totals| !totals.threads_wait)?;
    let queued_ns = totals.time.queued_ns.at_least;
    let open_ns = queued_ns.saturating_sub(explained_ns);
    let most = open_ns.saturating_mul(2) >= totals.total_ns && open_ns > 0;
    most.then(|| Verdict::CannotTell {
        part: Dominant::Queued,
        percent: whole_percent(queued_ns, totals.total_ns),
    })
}

/// Where the time of slow requests went.
#[derive(Debug, Default)]
struct SlowTime {
    total_ns: u64,
    service: Parts,
    /// Unread, while the thread that then read it slept, or nobody ever did.
    unread_ns: u64,
}

impl SlowTime {
    /// Adds a request if it was slow: one whose answer began late. What a server sends for longer
    /// than that it may send as it comes.
    fn add(&mut self, model: &Model, request: RequestRef<'_>) {
        let begun_ns = request.first_send_ns.unwrap_or(request.end_ns());
        if !request.counts() || begun_ns.saturating_sub(request.ready_ns) < *SLOW_NS {
            return;
        }
        let account = request.account();
        self.total_ns = self.total_ns.saturating_add(account.total_ns());
        self.service += account.service;
        let unread_ns = account.stranded_ns.saturating_add(account.pool_busy_ns);
        let worked_ns = worked_ns(model, request).min(unread_ns);
        self.unread_ns = self.unread_ns.saturating_add(unread_ns - worked_ns);
    }

    /// Whether slow requests have most of the time of all requests: few of them may.
    fn is_the_rule(&self, model: &Model) -> bool {
        Share::new(self.total_ns, model.time_of_requests_ns()).is_at_least(*MOST)
    }

    /// All but what threads worked, or waited for a CPU.
    fn waits_ns(&self) -> u64 {
        let fine_ns = self.service[Part::OnCpu].saturating_add(self.service[Part::Runnable]);
        let served_ns = self.service.total_ns().saturating_sub(fine_ns);
        served_ns.saturating_add(self.unread_ns)
    }

    /// The largest part of that.
    fn dominant(&self) -> (Dominant, u64) {
        Part::ALL
            .into_iter()
            .filter(|part| !matches!(part, Part::OnCpu | Part::Runnable))
            .map(|part| (Dominant::Part(part), self.service[part]))
            .chain([(Dominant::ReadyUnserved, self.unread_ns)])
            .max_by_key(|(_, ns)| *ns)
            .unwrap_or((Dominant::ReadyUnserved, 0))
    }
}

/// For how long the thread that then read the request did something else than to sleep.
fn worked_ns(model: &Model, request: RequestRef<'_>) -> u64 {
    let Some(thread) = model.threads.get(&request.recv_tid) else {
        return 0;
    };
    let (from_ns, to_ns) = (request.ready_ns, request.served_ns());
    (to_ns - from_ns).saturating_sub(slept_ns(thread, (from_ns, to_ns)))
}

#[cfg(test)]
mod tests;
