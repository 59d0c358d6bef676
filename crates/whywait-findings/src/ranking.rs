//! In which order findings are reported. Where two are of the same waits, the one that says what
//! for is reported, and the other one is a line of it.

use std::cmp::Reverse;

use serde_json::Value;

use crate::detectors::{
    accept_overflow, accept_stalled, blocked_loop, deadlock, lock_contention, nagle_delay,
    one_at_a_time, pool_exhausted, retransmits, slow_path_wait, slow_upstream, unfinished_wait,
};
use crate::finding::{Finding, SavingKind, Severity};
use crate::numbers::{ALL_OF_IT, EXPLAINS_MOST, MOST, Share};
use crate::shared::intervals::sum;

/// Waits that another kind of finding says less of: only how requests wait, or in what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Explained {
    /// For locks: a pool's semaphore, or what is held across a call.
    Locks,
    /// For locks between tasks, where their loop has no time left: it would be as busy without. Not
    /// where one was seen to sleep with the lock in hand: that takes as long on an idle loop.
    LocksOfTasks,
    /// For others' calls to the peer with this address, which they make with a lock in hand: unless
    /// that is most of what those wait for who want the lock.
    CallsTo(String),
    /// In `connect`.
    Connects,
    /// For replies of the peer with this address.
    RepliesOf(String),
    /// Inside, for what lets requests through one at a time and has no name.
    Inside,
    /// Inside, for what lets so many tasks through at a time.
    Places,
}

impl Explained {
    fn includes(&self, finding: &Finding) -> bool {
        let says = |key: &str| finding.subject.get(key).and_then(Value::as_str);
        let is_wait = finding.code.is(&slow_path_wait::DECLARATION);
        // A thread slept in the calls.
        let in_calls =
            finding.code.is(&slow_upstream::DECLARATION) && finding.subject.contains_key("tid");
        let queues = [&one_at_a_time::DECLARATION, &pool_exhausted::DECLARATION];
        let is_inside = queues.iter().any(|queue| finding.code.is(queue)) && says("peer").is_none();
        let named = says("waits_in").is_some();
        match self {
            Self::Locks => finding.code.is(&lock_contention::DECLARATION),
            // Of tasks nobody sees which thread waits.
            Self::LocksOfTasks => {
                let asleep = ["holder_function", "asleep_in"];
                let known = |key: &str| finding.subject.contains_key(key);
                finding.code.is(&lock_contention::DECLARATION)
                    && !known("waiters")
                    && !asleep.into_iter().any(known)
            }
            Self::CallsTo(address) => {
                finding.code.is(&one_at_a_time::DECLARATION)
                    && says("peer") == Some(address.as_str())
            }
            Self::Connects => is_wait && says("kind") == Some("connect"),
            Self::RepliesOf(address) => in_calls && says("peer") == Some(address.as_str()),
            Self::Inside => is_inside && finding.code.is(&one_at_a_time::DECLARATION) && !named,
            Self::Places => is_inside && named,
        }
    }
}

/// The findings, ranked: the most severe first, among those the one with the largest saving,
/// without what a fix need not save. Of two that are about the same waits one becomes a line of the
/// other. `requests_ns`: what all requests took.
pub(crate) fn ranked(mut findings: Vec<Finding>, requests_ns: u64) -> Vec<Finding> {
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
        let same = |by: &usize| {
            *by != at
                && (explains(&findings[*by], &findings[at])
                    || (*by < at && has_most_of(&findings[*by], &findings[at], requests_ns))
                    || (*by < at && has_most_of_each(&findings[*by], &findings[at])))
        };
        let Some(by) = (0..findings.len()).find(same) else {
            at += 1;
            continue;
        };
        let of_same = findings.remove(at);
        if by < at {
            take_in(&mut findings[by], of_same);
        } else {
            // It takes that one's place.
            let mut first = findings.remove(by - 1);
            take_in(&mut first, of_same);
            findings.insert(at, first);
            at += 1;
        }
    }
    for at in 0..findings.len() {
        let others_ns = findings[at]
            .as_ever
            .as_ref()
            .map_or(0, |as_ever| as_ever.others_ns);
        if others_ns > 0
            && !findings
                .iter()
                .any(|by| says_who_waits(by, &findings[at], others_ns))
        {
            findings[at].as_ever = None;
        }
    }
    // What is wrong stands before what is not, and names what has most of the time all the same.
    let last = findings
        .iter()
        .rposition(|finding| finding.severity > Severity::Note && finding.as_ever.is_none());
    for finding in &mut findings[last.map_or(0, |last| last + 1)..] {
        let is_warning = finding.severity > Severity::Note;
        if let Some(as_ever) = finding.as_ever.clone().filter(|_| is_warning) {
            finding.severity = Severity::Note;
            finding.evidence.push(as_ever.why);
        }
    }
    findings
}

/// Whether the finding is that others wait for the thread whose work the other one is about, and
/// has most of what they wait.
fn says_who_waits(finding: &Finding, other: &Finding, others_ns: u64) -> bool {
    let threads = finding.subject.get("threads").and_then(Value::as_array);
    let tid = other.subject.get("tid");
    finding.code.is(&blocked_loop::DECLARATION)
        && finding.severity > Severity::Note
        && threads
            .zip(tid)
            .is_some_and(|(threads, tid)| threads.contains(tid))
        && Share::new(finding.saving.at_most_ns, others_ns).is_at_least(*EXPLAINS_MOST)
}

/// Has the other one as a line, unless that one only tells in what tasks wait, so many of which are
/// let through at a time: where this one says that they wait there, it has told what for.
fn take_in(finding: &mut Finding, mut other: Finding) {
    let place = |finding: &Finding| {
        let key = |key: &str| finding.subject.get(key).cloned();
        key("waits_in").map(|what| (what, key("function")))
    };
    let told = Explained::Places.includes(&other) && place(finding) == place(&other);
    if told {
        finding.same_waits.append(&mut other.same_waits);
    } else {
        finding.takes_in(other);
    }
}

/// Whether most of what the other finding is about is certainly this one's, too: requests did not
/// take as long as both say together.
fn has_most_of(finding: &Finding, other: &Finding, requests_ns: u64) -> bool {
    let claims_ns = |finding: &Finding| match finding.saving.kind {
        SavingKind::Latency if is_of_requests(finding) => finding.saving.at_most_ns,
        _ => 0,
    };
    let other_ns = claims_ns(other);
    let both_ns = claims_ns(finding).saturating_add(other_ns);
    let twice_ns = both_ns.saturating_sub(requests_ns);
    other_ns > 0 && Share::new(twice_ns, other_ns).is_at_least(*MOST)
}

/// The same of the single requests of which it is known that both are about them.
fn has_most_of_each(finding: &Finding, other: &Finding) -> bool {
    let twice_ns = other.requests.iter().filter_map(|(name, claim)| {
        let of_same = finding.requests.get(name)?;
        Some(claim.twice_ns(*of_same))
    });
    let other_ns = other.saving.at_most_ns;
    other_ns > 0 && Share::new(sum(twice_ns), other_ns).is_at_least(*MOST)
}

/// Whether what it saves is part of what requests take: not what clients wait before a request
/// comes or after its answer was sent, nor that of requests without an answer, or of a ring's
/// operations.
pub fn is_of_requests(finding: &Finding) -> bool {
    let others = [
        &accept_overflow::DECLARATION,
        &accept_stalled::DECLARATION,
        &deadlock::DECLARATION,
        &nagle_delay::DECLARATION,
        &retransmits::DECLARATION,
        &unfinished_wait::DECLARATION,
    ];
    !finding.subject.contains_key("ring") && !others.iter().any(|other| finding.code.is(other))
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
        && finding.explains.iter().any(|waits| {
            waits.includes(other)
                && !(matches!(waits, Explained::CallsTo(_)) && explains(other, finding))
        })
        && explained.is_at_least(*EXPLAINS_MOST)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::declaration::{Code, Declaration};
    use crate::detectors::{
        blocked_loop, connect_retried, saturated, serial_calls, serial_work, stranded_readiness,
    };
    use crate::finding::{Claim, Evidence, Saving, SavingKind, Usual};

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

    #[test]
    fn a_lock_between_tasks_of_a_busy_loop_is_not_what_they_wait_for() {
        let busy = |saves_s| {
            finding(&saturated::DECLARATION, Severity::Warning, saves_s)
                .explains(Explained::LocksOfTasks)
        };
        let of_tasks = || finding(&lock_contention::DECLARATION, Severity::Warning, 10);
        let saturated = [("saturated", Severity::Warning)];
        assert_eq!(order(vec![of_tasks(), busy(9)]), saturated);
        // Of threads, or held across a sleep.
        for other in ["waiters", "holder_function", "asleep_in"] {
            assert_eq!(
                order(vec![of_tasks().about(other, json!("known")), busy(9)]),
                [
                    ("lock-contention", Severity::Warning),
                    ("saturated", Severity::Warning)
                ],
                "{other}"
            );
        }
    }

    #[test]
    fn calls_that_are_made_with_a_lock_in_hand_wait_for_the_lock() {
        let held = lock(20).explains(Explained::CallsTo("10.0.0.1:80".to_owned()));
        let calls = |peer: &str| {
            finding(&one_at_a_time::DECLARATION, Severity::Error, 10).about("peer", json!(peer))
        };
        let found = ranked(vec![held.clone(), calls("10.0.0.1:80")], LONG);
        assert_eq!(
            order_of(&found),
            [("lock-contention", Severity::Error)],
            "{found:?}"
        );
        assert_eq!(
            order(vec![held, calls("10.0.0.2:80")]),
            [
                ("lock-contention", Severity::Error),
                ("one-at-a-time", Severity::Error)
            ]
        );
    }

    /// Of requests that took so long that what findings say may all be true at once.
    const LONG: u64 = 1_000_000 * S;

    fn order_of(findings: &[Finding]) -> Vec<(&'static str, Severity)> {
        let one = |finding: &Finding| (finding.code.name(), finding.severity);
        findings.iter().map(one).collect()
    }

    fn order(findings: Vec<Finding>) -> Vec<(&'static str, Severity)> {
        order_of(&ranked(findings, LONG))
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
    fn the_semaphore_of_a_pool_is_a_line_of_the_pool() {
        let found = ranked(vec![lock(10), pool(9)], LONG);
        assert_eq!(order_of(&found), [("pool-exhausted", Severity::Warning)]);
        let codes: Vec<_> = found[0].codes().map(Code::name).collect();
        assert_eq!(codes, ["pool-exhausted", "lock-contention"]);
    }

    #[test]
    fn two_that_claim_more_than_requests_took_are_about_the_same_waits() {
        let waits = || finding(&slow_path_wait::DECLARATION, Severity::Warning, 6);
        let held = ("lock-contention", Severity::Error);
        // Requests took 12 s: at least 4 of the 6 s are the lock's, too. In 13 s 3 are. In 14 s 2.
        for (requests_s, alone) in [(12, true), (13, true), (14, false)] {
            let found = ranked(vec![waits(), lock(10)], requests_s * S);
            assert_eq!(order_of(&found)[0], held);
            assert_eq!(found.len() == 1, alone, "{requests_s} s: {found:#?}");
        }
        // Clients wait for this before there is a request.
        let before = finding(&accept_overflow::DECLARATION, Severity::Warning, 6);
        assert_eq!(ranked(vec![before, lock(10)], 12 * S).len(), 2);
    }

    #[test]
    fn what_is_about_the_same_time_of_the_same_requests_is_one_finding() {
        let of = |ns, requests: std::ops::Range<u64>| {
            let claim = Claim { ns, of_ns: 100 };
            requests.map(|seq| ((seq, 1, 0), claim)).collect()
        };
        let waits = |requests, ns| Finding {
            requests: of(ns, requests),
            ..finding(&slow_path_wait::DECLARATION, Severity::Note, 0)
                .saving(Saving::latency(vec![ns; 2]))
        };
        let held = || Finding {
            requests: of(90, 0..10),
            ..lock(10)
        };
        // Two of the ten: 80 of the 90 of each are the lock's, too.
        assert_eq!(ranked(vec![held(), waits(0..2, 90)], LONG).len(), 1);
        // Of 15 certainly 5.
        assert_eq!(ranked(vec![held(), waits(0..2, 15)], LONG).len(), 2);
        // Others.
        assert_eq!(ranked(vec![held(), waits(10..12, 90)], LONG).len(), 2);
    }

    #[test]
    fn what_takes_as_long_each_time_is_a_note_unless_something_wrong_follows() {
        let as_ever = |saves_s| {
            let peer = finding(&slow_upstream::DECLARATION, Severity::Warning, saves_s);
            peer.takes_as_long(takes_as_ever(0))
        };
        let short = || finding(&serial_calls::DECLARATION, Severity::Warning, 3);
        let first = ("slow-upstream", Severity::Warning);
        assert_eq!(order(vec![short(), as_ever(5)])[0], first);
        assert_eq!(
            order(vec![short(), as_ever(2)])[1],
            ("slow-upstream", Severity::Note)
        );
        let note = ranked(vec![as_ever(5)], LONG);
        assert_eq!(order_of(&note), [("slow-upstream", Severity::Note)]);
        assert_eq!(note[0].evidence.len(), 1);
    }

    #[test]
    fn what_takes_as_long_each_time_is_a_note_if_another_says_that_others_wait_behind_it() {
        let work = || {
            finding(&serial_work::DECLARATION, Severity::Warning, 2)
                .about("tid", 7)
                .takes_as_long(takes_as_ever(1_500_000_000))
        };
        let waits_for = |tid: u32, saves_s| {
            finding(&blocked_loop::DECLARATION, Severity::Warning, saves_s)
                .about("threads", vec![tid])
        };
        let order = |by| order_of(&ranked(vec![by, work()], LONG))[1];
        assert_eq!(order(waits_for(7, 3)), ("serial-work", Severity::Note));
        assert_eq!(
            order(waits_for(8, 3)),
            ("serial-work", Severity::Warning),
            "another thread"
        );
        let alone = ranked(vec![work()], LONG);
        assert_eq!(order_of(&alone), [("serial-work", Severity::Warning)]);
    }

    fn takes_as_ever(others_ns: u64) -> Option<Usual> {
        let why = Evidence::new("it takes as long each time");
        Some(Usual { why, others_ns })
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
    fn a_place_for_tasks_is_told_once() {
        let waits_in = |finding: Finding, what: &str| {
            let function = finding.about("function", "main.ask");
            function.about("waits_in", what)
        };
        let peer = || {
            waits_in(
                finding(&slow_upstream::DECLARATION, Severity::Warning, 9),
                "chan",
            )
        };
        let place = |what| {
            waits_in(
                finding(&pool_exhausted::DECLARATION, Severity::Note, 9),
                what,
            )
        };
        let beside = |place| {
            let mut all = ranked(vec![peer(), place], 10 * S);
            assert_eq!(all.len(), 1, "{:?}", order_of(&all));
            all.remove(0).same_waits.len()
        };
        assert_eq!(beside(place("chan")), 0, "it says so itself");
        assert_eq!(beside(place("Semaphore")), 1, "another wait");
        let to_peer = place("chan").about("peer", "10.0.0.1:5432");
        assert_eq!(beside(to_peer), 1, "what is about a peer says more");
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
