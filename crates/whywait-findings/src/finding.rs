//! What a detector says. The field names are those of the JSON report (schema 1).

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};
use whywait_events::{Ns, StackId};
use whywait_model::requests::SavingEffect;
use whywait_model::{FrameOrigin, Model, Peer, RequestRef, StackText};
use whywait_replay::Off;

use crate::numbers::{MOST, SAVINGS_KEPT, Share};
use crate::shared::naming;

use crate::declaration::{Code, Declaration};
use crate::ranking::Explained;
use crate::shared::intervals::sum;
use crate::shared::replay::{Bound, name};

/// How bad it is. Ordered: `Note < Warning < Error`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs)]
pub enum Severity {
    Note,
    Warning,
    Error,
}

impl Severity {
    /// How bad a figure is: a note below `warning`, an error from `error` on.
    pub(crate) const fn of(figure: u64, warning: u64, error: u64) -> Self {
        if figure >= error {
            Severity::Error
        } else if figure >= warning {
            Severity::Warning
        } else {
            Severity::Note
        }
    }

    /// As reports write it.
    pub const fn name(self) -> &'static str {
        match self {
            Severity::Note => "note",
            Severity::Warning => "warning",
            Severity::Error => "error",
        }
    }
}

/// How sure the detector is. Ordered: `Low < Medium < High`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs)]
pub enum Confidence {
    Low,
    Medium,
    High,
}

/// A fault that was found.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Finding {
    /// Which.
    pub code: Code,
    /// How bad.
    pub severity: Severity,
    /// How sure.
    pub confidence: Confidence,
    /// One line that says what happened, in the reader's words, with the figures that matter. May
    /// contain hostile names.
    pub title: String,
    /// What it is about: machine-readable keys (`pid`, `epoll`, `port`, `threads`, …).
    pub subject: Map<String, Value>,
    /// What a fix saves at most.
    pub saving: Saving,
    /// What it rests on, most important first.
    pub evidence: Vec<Evidence>,
    /// Who caused it, where known.
    pub cause: Option<Cause>,
    /// What to do about it, by name where the runtime is known.
    pub fix: String,
    /// What else was found of the same waits: this finding has most of them, and says more.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub same_waits: Vec<SameWaits>,
    /// Waits that it says more of than others do.
    #[serde(skip)]
    pub explains: Vec<Explained>,
    /// How much of the bound a fix need not save, because it depends on which fix that is.
    #[serde(skip)]
    pub not_by_all_fixes_ns: u64,
    /// Why it takes no longer than it ever does, if it does not: nothing else makes it slow.
    #[serde(skip)]
    pub as_ever: Option<Usual>,
    /// The requests that it concerns, as far as it is known which, and how much of the time of each
    /// it is about. For views.
    #[serde(skip)]
    pub requests: BTreeMap<RequestName, Claim>,
}

/// That what a finding is about takes no longer than it ever does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Usual {
    /// What shows it.
    pub why: Evidence,
    /// For how long others wait behind it, nanoseconds: they are slower than they have to be,
    /// whatever it takes. 0: next to nobody does.
    pub others_ns: u64,
}

impl Finding {
    /// What it is, and what else was found of the same waits.
    pub fn codes(&self) -> impl Iterator<Item = Code> {
        let others = self.same_waits.iter().map(|same| same.code);
        std::iter::once(self.code).chain(others)
    }

    /// Whether it is known to concern a request.
    pub fn is_of(&self, request: RequestRef<'_>) -> bool {
        self.requests.contains_key(&name(request))
    }

    /// A finding of high confidence, of which more is to be said: see the functions below.
    pub(crate) fn new(
        declaration: &'static Declaration,
        severity: Severity,
        title: impl Into<String>,
    ) -> Self {
        let code = Code::of(declaration);
        debug_assert!(code.may_be(severity), "{code:?} is never {severity:?}");
        Self {
            code,
            severity,
            confidence: Confidence::High,
            title: title.into(),
            subject: Map::new(),
            saving: Saving::none(),
            evidence: Vec::new(),
            cause: None,
            fix: String::new(),
            same_waits: Vec::new(),
            explains: Vec::new(),
            not_by_all_fixes_ns: 0,
            as_ever: None,
            requests: BTreeMap::new(),
        }
    }

    /// How sure it is, unless that is high.
    pub(crate) fn confidence(mut self, confidence: Confidence) -> Self {
        self.confidence = confidence;
        self
    }

    /// A key of what it is about.
    pub(crate) fn about(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.subject.insert(key.to_owned(), value.into());
        self
    }

    /// A key of what it is about, where that is known.
    pub(crate) fn about_known(self, key: &str, value: Option<impl Into<Value>>) -> Self {
        match value {
            Some(value) => self.about(key, value),
            None => self,
        }
    }

    /// The peer that it is about.
    pub(crate) fn about_peer(self, peer: Peer<'_>) -> Self {
        self.about("peer", peer.address())
            .about_known("peer_process", peer.process())
            .about_known("peer_pid", peer.tgid())
    }

    /// What it rests on besides: one piece or several, or none.
    pub(crate) fn evidence(mut self, evidence: impl IntoIterator<Item = Evidence>) -> Self {
        self.evidence.extend(evidence);
        self
    }

    /// The requests that it concerns, and how much of each one's time it is about.
    pub(crate) fn concerns<'m>(
        mut self,
        requests: impl IntoIterator<Item = (RequestRef<'m>, u64)>,
    ) -> Self {
        let claims = requests.into_iter();
        self.requests = claims
            .map(|(request, ns)| (name(request), Claim::on(request, ns)))
            .collect();
        self
    }

    /// Waits that it says more of than others do.
    pub(crate) fn explains(mut self, waits: impl Into<Option<Explained>>) -> Self {
        self.explains.extend(waits.into());
        self
    }

    /// How much of the bound only some fixes save.
    pub(crate) fn not_by_all_fixes(mut self, ns: u64) -> Self {
        self.not_by_all_fixes_ns = ns;
        self
    }

    /// That what it takes is what it always takes, where that is so.
    pub(crate) fn takes_as_long(mut self, as_ever: Option<Usual>) -> Self {
        self.as_ever = as_ever;
        self
    }

    /// Has the other one, which is of the same waits, as a line of its own.
    pub(crate) fn takes_in(&mut self, other: Finding) {
        let same = SameWaits {
            code: other.code,
            title: other.title,
            cause: other.cause,
        };
        if self.code != same.code {
            self.same_waits.push(same);
        }
        self.same_waits.extend(other.same_waits);
    }

    /// What it weighs against others: what any fix saves at most.
    pub(crate) fn weight_ns(&self) -> u64 {
        self.saving
            .at_most_ns
            .saturating_sub(self.not_by_all_fixes_ns)
    }

    /// What a fix saves at most.
    pub(crate) fn saving(mut self, saving: Saving) -> Self {
        self.saving = saving;
        self
    }

    /// What a fix saves at most, by replay. Where that is not what was recorded, the bound is
    /// looser, and says so.
    pub(crate) fn bounded(mut self, bound: Bound) -> Self {
        self.saving = bound.saving;
        self.requests = bound.requests;
        let looser = bound.off.map(|Off { percent }| {
            Evidence::new(format!(
                "the bound has all that requests wait for each other: a replay of what was is off \
                 by {percent} % of the time that they took"
            ))
        });
        self.evidence(bound.queues).evidence(looser)
    }

    /// Of exchanges on connections that carry several requests at once (most of these) it is not
    /// known how long a request takes, nor what it would without this: no bound, and hardly sure.
    pub(crate) fn of_requests<'m>(
        mut self,
        requests: impl IntoIterator<Item = RequestRef<'m>>,
    ) -> Self {
        let (mut several, mut all) = (0, 0);
        for request in requests {
            several += usize::from(request.multiplexed);
            all += 1;
        }
        if several == 0 || Share::counted(several, all).is_below(*MOST) {
            return self;
        }
        self.confidence = Confidence::Low;
        self.saving = Saving::none();
        self.evidence([Evidence::new(
            "their connections carry several requests at once, which cannot be told apart: what a \
             fix saves on each is not known",
        )])
    }

    /// Who caused it, where known.
    pub(crate) fn cause(mut self, cause: impl Into<Option<Cause>>) -> Self {
        self.cause = cause.into();
        self
    }

    /// What to do about it, and to see where, if the cause does not show that.
    pub(crate) fn fix(mut self, fix: impl Into<String>) -> Self {
        self.fix = fix.into();
        if let Some(naming) = self.cause.as_ref().and_then(|cause| cause.naming) {
            self.fix.push_str("; ");
            self.fix.push_str(naming);
        }
        self
    }
}

/// A request, by its socket, its number there and when it came.
pub type RequestName = (u64, u32, Ns);

/// How much of a request's time a finding is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Claim {
    /// So much, nanoseconds.
    pub ns: u64,
    /// Of so much.
    pub of_ns: u64,
}

impl Claim {
    pub(crate) fn on(request: RequestRef<'_>, ns: u64) -> Self {
        let of_ns = request.age_ns();
        Self {
            ns: ns.min(of_ns),
            of_ns,
        }
    }

    /// How much of it is certainly the other one's, too: the request took no longer.
    pub(crate) fn twice_ns(self, other: Self) -> u64 {
        self.ns.saturating_add(other.ns).saturating_sub(self.of_ns)
    }
}

/// What kind of thing a fix saves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs)]
pub enum SavingKind {
    Latency,
    Cpu,
    Throughput,
}

/// An upper bound of what a fix saves.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Saving {
    /// What is saved.
    pub kind: SavingKind,
    /// At most this much, summed over the requests that it concerns.
    pub at_most_ns: u64,
    /// How many requests it concerns.
    pub requests: u64,
    /// The bound for each of those requests, largest first (the first 100).
    pub each_at_most_ns: Vec<u64>,
    /// What that does to percentiles of all requests; absent: it is not known, or nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effect: Option<SavingEffect>,
}

impl Saving {
    /// Nothing, as far as known.
    pub(crate) const fn none() -> Self {
        Self::sum(SavingKind::Latency, 0, 0)
    }

    /// Latency: so much of each of these requests.
    pub(crate) fn latency(mut each: Vec<u64>) -> Self {
        each.sort_unstable_by(|a, b| b.cmp(a));
        Self {
            at_most_ns: sum(each.iter().copied()),
            requests: each.len() as u64,
            each_at_most_ns: each.into_iter().take(*SAVINGS_KEPT).collect(),
            ..Self::none()
        }
    }

    /// So much altogether, which concerns so many requests or operations.
    pub(crate) const fn sum(kind: SavingKind, at_most_ns: u64, requests: u64) -> Self {
        Self {
            kind,
            at_most_ns,
            requests,
            each_at_most_ns: Vec::new(),
            effect: None,
        }
    }
}

/// One piece of evidence.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Evidence {
    /// In words. May contain hostile names.
    pub text: String,
    /// The duration it speaks of, if it speaks of one.
    pub ns: Option<u64>,
    /// It says what a fix gives, or whom it does not help: no report leaves that out.
    #[serde(skip)]
    pub of_fix: bool,
}

impl Evidence {
    /// A statement that speaks of no duration.
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            ns: None,
            of_fix: false,
        }
    }

    /// A statement about so much time.
    pub(crate) fn of_ns(ns: impl Into<Option<u64>>, text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            ns: ns.into(),
            of_fix: false,
        }
    }

    /// The same, as what a fix gives.
    pub(crate) fn of_fix(self) -> Self {
        Self {
            of_fix: true,
            ..self
        }
    }
}

/// A finding of waits of which another one says more, in short.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct SameWaits {
    /// What kind of finding it is.
    pub code: Code,
    /// What happened, in its words. May contain hostile names.
    pub title: String,
    /// Who caused it, where known.
    pub cause: Option<Cause>,
}

/// Who caused it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Cause {
    /// The thread.
    pub tid: u32,
    /// Its name, hostile.
    pub thread: String,
    /// What it was doing, in words (`asleep in clock_nanosleep`, `on CPU`).
    pub doing: String,
    /// Its stack while it did, function names innermost first. Hostile.
    pub stack: Vec<String>,
    /// For each function of `stack`, whether it is the application's own; empty: not known. For
    /// views.
    #[serde(skip)]
    pub own: Vec<bool>,
    /// How often it did that, and for how long; absent: that is not counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spells: Option<Spells>,
    /// How the function that it was in would have its name, where that is hidden. The fix says it.
    #[serde(skip)]
    pub naming: Option<&'static str>,
}

/// What was done again and again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Spells {
    /// How often.
    pub times: u64,
    /// For how long in all.
    pub total_ns: u64,
    /// For how long once, at most.
    pub longest_ns: u64,
}

impl Cause {
    /// Thread `tid` of a recording, doing this in the stack `stack`.
    pub(crate) fn new(model: &Model, tid: u32, doing: String, stack: StackId) -> Self {
        let frames = model
            .stacks
            .get(stack)
            .map(StackText::names)
            .unwrap_or_default();
        let own = frames
            .iter()
            .map(|(_, origin)| *origin == FrameOrigin::App)
            .collect();
        let naming = naming::of(model, tid, stack);
        let stack = frames.into_iter().map(|(name, _)| name).collect();
        Self {
            tid,
            thread: model.thread_name(tid).to_owned(),
            doing,
            stack,
            own,
            spells: None,
            naming,
        }
    }

    /// For how long it did that, each time: the thread itself, and those that are named with it.
    pub(crate) fn each(mut self, spells_ns: impl IntoIterator<Item = u64>) -> Self {
        let each: Vec<u64> = spells_ns.into_iter().collect();
        self.spells = each.iter().max().map(|longest_ns| Spells {
            times: each.len() as u64,
            total_ns: sum(each.iter().copied()),
            longest_ns: *longest_ns,
        });
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_severity_begins_at_its_figure() {
        assert_eq!(
            [9, 10, 99, 100].map(|figure| Severity::of(figure, 10, 100)),
            [
                Severity::Note,
                Severity::Warning,
                Severity::Warning,
                Severity::Error
            ]
        );
    }

    #[test]
    fn a_saving_of_latency_is_told_for_the_requests_that_gain_most() {
        let saving = Saving::latency((0..150).collect());
        assert_eq!((saving.requests, saving.at_most_ns), (150, 11_175));
        assert_eq!(saving.each_at_most_ns.len(), 100);
        assert_eq!(saving.each_at_most_ns[..2], [149, 148]);
    }
}
