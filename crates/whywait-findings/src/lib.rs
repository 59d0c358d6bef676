//! whywait's detectors. Each has a room of its own, with its invariant, its evidence, its cost
//! formula and its guards against false alarms. No detector reads BPF or prints.

mod catalogue;
mod chain;
mod declaration;
mod detectors;
mod facts;
mod finding;
mod numbers;
mod ranking;
mod shared;
mod verdict;

use whywait_model::Model;
use whywait_words::{counted, counted_as};

use catalogue::CATALOGUE;
pub use chain::Chain;
pub use declaration::Code;
pub use facts::Facts;

pub use finding::{
    Cause, Claim, Confidence, Evidence, Finding, RequestName, SameWaits, Saving, SavingKind,
    Severity, Spells,
};
pub use ranking::{Explained, is_of_requests};
pub use verdict::{Dominant, Shape, Verdict, verdict};

/// Runs all detectors. Findings are ranked: the most severe first, among those the one with the
/// largest saving. Of two that are about the same waits one becomes a line of the other.
pub fn find(facts: &Facts<'_>) -> Vec<Finding> {
    let found = CATALOGUE
        .iter()
        .flat_map(|declaration| (declaration.detect)(facts));
    let mut found: Vec<Finding> = found.collect();
    // Those jobs that are seen are few of all, and say nothing of the others.
    if verdict::handed_on(facts.model).is_some() {
        let of_jobs = |finding: &&mut Finding| finding.saving.kind == SavingKind::Latency;
        for finding in found.iter_mut().filter(of_jobs) {
            finding.severity = Severity::Note;
        }
    }
    let mut findings = ranking::ranked(found, facts.model.time_of_requests_ns());
    for finding in findings
        .iter_mut()
        .filter(|finding| is_of_requests(finding))
    {
        let saving = &mut finding.saving;
        if saving.kind == SavingKind::Latency && !saving.each_at_most_ns.is_empty() {
            saving.effect = facts.model.effect(saving.at_most_ns);
        }
    }
    findings
}

/// What the detectors looked at, in a few words each: a report with nothing wrong says so.
pub fn looked_at(model: &Model) -> Vec<String> {
    let (epolls, others): (Vec<_>, Vec<_>) = model.pools.iter().partition(|pool| pool.epoll != 0);
    let mut looked_at = Vec::new();
    if !epolls.is_empty() {
        let members: usize = epolls.iter().map(|pool| pool.members.len()).sum();
        looked_at.push(format!(
            "{} polled by {}",
            counted(epolls.len(), "epoll instance"),
            counted(members, "thread")
        ));
    }
    if !others.is_empty() {
        looked_at.push(counted_as(
            others.len(),
            "loop without epoll",
            "loops without epoll",
        ));
    }
    if !model.rings.is_empty() {
        looked_at.push(counted(model.rings.len(), "io_uring ring"));
    }
    looked_at.push(counted(model.threads.len(), "thread"));
    looked_at
}
