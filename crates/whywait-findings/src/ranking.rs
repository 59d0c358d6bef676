//! In which order findings are reported. Where two are of the same waits, the one that says what
//! for comes first, and the other one after it.

use std::cmp::Reverse;

use serde_json::Value;

use crate::detectors::{lock_contention, slow_path_wait, slow_upstream};
use crate::finding::{Evidence, Finding, Severity};
use crate::numbers::{ALL_OF_IT, EXPLAINS_MOST, Share};

/// Waits that another kind of finding says less of: only how requests wait, or in what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Explained {
    /// For locks: a pool's semaphore, or what is held across a call.
    Locks,
    /// In `connect`.
    Connects,
    /// For replies of the peer with this address.
    RepliesOf(String),
}

impl Explained {
    fn includes(&self, finding: &Finding) -> bool {
        let says = |key: &str| finding.subject.get(key).and_then(Value::as_str);
        let is_wait = finding.code.is(&slow_path_wait::DECLARATION);
        // A thread slept in the calls.
        let in_calls =
            finding.code.is(&slow_upstream::DECLARATION) && finding.subject.contains_key("tid");
        match self {
            Self::Locks => finding.code.is(&lock_contention::DECLARATION),
            Self::Connects => is_wait && says("kind") == Some("connect"),
            Self::RepliesOf(address) => in_calls && says("peer") == Some(address.as_str()),
        }
    }
}

/// The findings, ranked: the most severe first, among those the one with the largest saving,
/// without what a fix need not save. What another one explains is no more severe than that, and
/// comes after it; if it has the same code, it is left out.
pub(crate) fn ranked(mut findings: Vec<Finding>) -> Vec<Finding> {
    let key = |finding: &Finding| {
        (
            Reverse((finding.severity, finding.weight_ns())),
            finding.code,
        )
    };
    findings.sort_by_key(key);
    for at in 1..findings.len() {
        if saves_as_much(&findings[at - 1], &findings[at]) {
            findings[at - 1..=at].sort_by_key(|finding| finding.code);
        }
    }
    let mut at = 0;
    while at < findings.len() {
        let explaining =
            (0..findings.len()).find(|by| *by != at && explains(&findings[*by], &findings[at]));
        if let Some(by) = explaining {
            let (code, severity) = (findings[by].code, findings[by].severity);
            if code == findings[at].code {
                // The same of the same waits is said once.
                findings.remove(at);
                continue;
            }
            let explained = &mut findings[at];
            explained.severity = explained.severity.min(severity);
            explained.evidence.push(Evidence::new(format!(
                "these are the waits of {}, which says what for",
                code.name()
            )));
            if by > at {
                let first = findings.remove(by);
                findings.insert(at, first);
                at += 1;
            }
        }
        at += 1;
    }
    findings
}

/// Whether two savings differ by less than one can say: then the kind decides, as where they do not
/// differ at all.
fn saves_as_much(more: &Finding, less: &Finding) -> bool {
    let (more_ns, less_ns) = (more.weight_ns(), less.weight_ns());
    more.severity == less.severity && Share::new(less_ns, more_ns).is_at_least(*ALL_OF_IT)
}

/// Whether the other finding is of the same waits, and says less of them.
fn explains(finding: &Finding, other: &Finding) -> bool {
    let pid = |finding: &Finding| finding.subject.get("pid").and_then(Value::as_u64);
    let elsewhere = pid(finding).zip(pid(other)).is_some_and(|(a, b)| a != b);
    let explained = Share::new(finding.saving.at_most_ns, other.saving.at_most_ns);
    finding.severity > Severity::Note
        && !elsewhere
        && finding.explains.iter().any(|waits| waits.includes(other))
        && explained.is_at_least(*EXPLAINS_MOST)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::declaration::Declaration;
    use crate::detectors::{
        blocked_loop, connect_retried, pool_exhausted, serial_calls, stranded_readiness,
    };
    use crate::finding::{Saving, SavingKind};

    const S: u64 = 1_000_000_000;

    fn finding(of: &'static Declaration, severity: Severity, saves_s: u64) -> Finding {
        Finding::new(of, severity, of.code).saving(Saving::sum(
            SavingKind::Latency,
            saves_s * S,
            10,
        ))
    }

    fn lock(saves_s: u64) -> Finding {
        finding(&lock_contention::DECLARATION, Severity::Error, saves_s)
    }

    fn pool(saves_s: u64) -> Finding {
        finding(&pool_exhausted::DECLARATION, Severity::Warning, saves_s).explains(Explained::Locks)
    }

    fn order(findings: Vec<Finding>) -> Vec<(&'static str, Severity)> {
        let ranked = ranked(findings);
        ranked.iter().map(|f| (f.code.name(), f.severity)).collect()
    }

    #[test]
    fn the_most_severe_comes_first_and_then_what_saves_most() {
        let wait = || finding(&slow_path_wait::DECLARATION, Severity::Warning, 5);
        assert_eq!(
            order(vec![
                finding(&serial_calls::DECLARATION, Severity::Warning, 3),
                wait(),
                lock(1)
            ]),
            [
                ("lock-contention", Severity::Error),
                ("slow-path-wait", Severity::Warning),
                ("serial-calls", Severity::Warning)
            ]
        );
    }

    #[test]
    fn of_two_that_save_as_much_the_kind_decides() {
        let blocked = |saves_s| finding(&blocked_loop::DECLARATION, Severity::Error, saves_s);
        let stranded = finding(&stranded_readiness::DECLARATION, Severity::Error, 995);
        for (saves_s, first) in [(1000, "stranded-readiness"), (1100, "blocked-loop")] {
            let order = order(vec![blocked(saves_s), stranded.clone()]);
            assert_eq!(order[0].0, first, "{saves_s} s against 995");
        }
    }

    #[test]
    fn the_semaphore_of_a_pool_comes_after_the_pool() {
        let found = ranked(vec![lock(10), pool(9)]);
        assert_eq!(
            found
                .iter()
                .map(|f| (f.code.name(), f.severity))
                .collect::<Vec<_>>(),
            [
                ("pool-exhausted", Severity::Warning),
                ("lock-contention", Severity::Warning)
            ]
        );
        let said = &found[1].evidence.last().expect("evidence").text;
        assert!(said.contains("the waits of pool-exhausted"), "{said}");
    }

    #[test]
    fn a_lock_that_costs_more_than_the_pool_or_is_elsewhere_is_one_of_its_own() {
        let by_itself = [
            ("lock-contention", Severity::Error),
            ("pool-exhausted", Severity::Warning),
        ];
        assert_eq!(order(vec![pool(6), lock(10)]), by_itself);
        let elsewhere = vec![pool(9).about("pid", 2), lock(10).about("pid", 1)];
        assert_eq!(order(elsewhere), by_itself);
    }

    #[test]
    fn a_note_explains_nothing() {
        let note = finding(&pool_exhausted::DECLARATION, Severity::Note, 9);
        assert_eq!(
            order(vec![lock(10), note.explains(Explained::Locks)])[0],
            ("lock-contention", Severity::Error)
        );
    }

    #[test]
    fn waits_for_replies_and_connections_are_told_apart_by_what_they_are() {
        let wait = |key: &str, says| {
            finding(&slow_path_wait::DECLARATION, Severity::Warning, 10).about(key, json!(says))
        };
        let calls = |peer: &str| {
            finding(&serial_calls::DECLARATION, Severity::Warning, 9)
                .explains(Explained::RepliesOf(peer.to_owned()))
        };
        let first = |findings| order(findings)[0].0;
        let of_peer = || {
            finding(&slow_upstream::DECLARATION, Severity::Warning, 10)
                .about("peer", "10.0.0.1:5432")
                .about("tid", 1)
        };
        assert_eq!(
            first(vec![of_peer(), calls("10.0.0.1:5432")]),
            "serial-calls"
        );
        assert_eq!(
            first(vec![of_peer(), calls("10.0.0.1:54")]),
            "slow-upstream"
        );
        let retried = || {
            finding(&connect_retried::DECLARATION, Severity::Warning, 9)
                .explains(Explained::Connects)
        };
        assert_eq!(
            first(vec![wait("kind", "connect"), retried()]),
            "connect-retried"
        );
        assert_eq!(first(vec![of_peer(), retried()]), "slow-upstream");
    }
}
