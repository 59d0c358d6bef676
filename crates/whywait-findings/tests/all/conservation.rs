//! What a report must not say, whatever was recorded: more than its own tables have.

use whywait_events::{Exchange, Part};
use whywait_findings::{Evidence, Facts, Finding, SavingKind, Verdict, verdict};
use whywait_model::{Model, WaitClass};

use crate::corpus::in_ms;

/// Quicker answers need no explanation.
const SLOW_NS: u64 = 10_000_000;

/// What findings claim that the report's tables do not have: more of a peer than its calls took, of
/// requests than they did, of CPUs than threads used.
pub(crate) fn unconserved(model: &Model, findings: &[Finding]) -> Vec<String> {
    let calls = model.calls();
    let cpu_ns = model.cpu_summary().map(|summary| summary.total_ns);
    let requests_ns = model.time_of_requests_ns();
    let mut wrong = Vec::new();
    for finding in findings {
        let (code, saving) = (finding.code.name(), &finding.saving);
        let mut at_most = |what: &str, ns: u64, claimed_ns: u64| {
            if claimed_ns > ns + ns / 100 {
                let (claimed, has) = (in_ms(claimed_ns), in_ms(ns));
                wrong.push(format!(
                    "{code} claims {claimed} ms of {what}, which has {has}"
                ));
            }
        };
        match saving.kind {
            SavingKind::Latency if is_of_requests(finding) => {
                at_most("the requests' time", requests_ns, saving.at_most_ns);
            }
            SavingKind::Cpu => {
                // Waiting for others to have a CPU is counted, too.
                let cpu_ns = cpu_ns.unwrap_or(u64::MAX);
                at_most("the CPU time", cpu_ns, saving.at_most_ns);
            }
            SavingKind::Latency | SavingKind::Throughput => {}
        }
        if let Some(ns) = claimed_of_locks(finding) {
            at_most("waits for locks", locks_ns(model), ns);
        }
        if let Some(ns) = claimed_of_peer(finding) {
            let peer = finding.subject["peer"].as_str();
            let rows = calls.iter().filter(|row| Some(row.peer.as_str()) == peer);
            // Of a call that has no reply yet it is not known what it takes.
            let known = rows.clone().all(|row| row.unanswered == 0);
            let took_ns: u64 = rows.map(|row| row.total_ns).sum();
            let together = finding.subject.contains_key("shared_connection");
            let known = known && !(together && carry_several(model, peer));
            if known {
                at_most("the calls to its peer", took_ns, ns);
            }
        }
    }
    wrong
}

/// Findings that are about the same waits: requests did not take as long as both say together.
pub(crate) fn said_twice(model: &Model, findings: &[Finding]) -> Vec<String> {
    let requests_ns = model.time_of_requests_ns();
    let of_requests: Vec<&Finding> = findings
        .iter()
        .filter(|finding| finding.saving.kind == SavingKind::Latency && is_of_requests(finding))
        .collect();
    let mut twice = Vec::new();
    for (at, one) in of_requests.iter().enumerate() {
        for other in &of_requests[at + 1..] {
            let other_ns = other.saving.at_most_ns;
            let too_much_ns = (one.saving.at_most_ns + other_ns).saturating_sub(requests_ns);
            if too_much_ns * 2 > other_ns {
                let (code, other) = (one.code.name(), other.code.name());
                twice.push(format!("{code} and {other} are about the same waits"));
            }
        }
    }
    twice
}

/// Whether what it saves is part of what the report calls the requests' time. That of a ring's
/// operations, of requests that are still open, and what clients wait before a request comes or
/// after its answer was sent are not.
fn is_of_requests(finding: &Finding) -> bool {
    let code = finding.code.name();
    !code.starts_with("uring-")
        && ![
            "accept-overflow",
            "accept-stalled",
            "deadlock",
            "nagle-delay",
            "retransmits",
            "unfinished-wait",
        ]
        .contains(&code)
}

/// How long requests waited for a lock, as a finding says.
fn claimed_of_locks(finding: &Finding) -> Option<u64> {
    let on_paths = |evidence: &&Evidence| evidence.text.contains(" on the critical paths of ");
    let claim = finding.evidence.iter().find(on_paths)?;
    claim
        .ns
        .filter(|_| finding.code.name() == "lock-contention")
}

/// What all threads waited for locks, and requests for a CPU: who is woken waits for that, too.
fn locks_ns(model: &Model) -> u64 {
    let sums = model.objects.iter().map(|(_, sums)| sums);
    let locks = sums.filter(|sums| sums.class == Some(WaitClass::Lock));
    let runnable = model
        .requests()
        .map(|one| one.account().service[Part::Runnable]);
    let waits = locks.map(|sums| sums.total_ns + sums.short_ns);
    waits.chain(runnable).sum()
}

/// How much of requests' time a finding says was in calls to a peer.
fn claimed_of_peer(finding: &Finding) -> Option<u64> {
    let says = |key: &str| finding.subject.contains_key(key);
    // Who waits for a connection to a peer is not yet in a call; who waits for another one's call
    // has none of its own. What passes between calls is none.
    let other = says("saturated") || says("awaited_together");
    let in_calls = ["slow-upstream", "serial-calls"].contains(&finding.code.name()) && !other;
    let of = |what: &str| {
        let mut evidence = finding.evidence.iter();
        evidence.find(|evidence: &&Evidence| evidence.text.contains(what))
    };
    let behind_ns = of(" is the wait behind calls of other requests").and_then(|behind| behind.ns);
    let between_ns = of(" passes between the calls of ").and_then(|between| between.ns);
    let claim_ns = of(" took: ")?.ns.filter(|_| in_calls)?;
    Some(claim_ns - behind_ns.unwrap_or(0) - between_ns.unwrap_or(0))
}

/// Whether connections to a peer carry several calls at a time: more was sent before the reply, or
/// some of what is recorded as a call is as long as two others. Then what they take together is
/// more than is recorded.
fn carry_several(model: &Model, address: Option<&str>) -> bool {
    let is_its = |call: &&Exchange| {
        let peer = model.peer(call.peer);
        peer.is_some_and(|peer| Some(peer.address().as_str()) == address)
    };
    let calls = || model.exchanges().iter().filter(is_its);
    let bytes = || calls().map(|call| call.bytes_out);
    let shortest = bytes().min().unwrap_or(0);
    calls().any(|call| call.last_send_ns > call.first_send_ns)
        || bytes().any(|bytes| bytes >= shortest.saturating_mul(2))
}

/// That nothing wrong is said to be found though no finding explains most of slow requests' time.
pub(crate) fn wrongly_nothing(
    model: &Model,
    facts: &Facts<'_>,
    findings: &[Finding],
) -> Option<String> {
    let said = verdict(facts, findings);
    if !matches!(said, Verdict::NothingWrong | Verdict::Notes { .. }) {
        return None;
    }
    let slow = model.requests().filter(|request| {
        let begun_ns = request.first_send_ns.unwrap_or(request.end_ns());
        request.counts() && begun_ns.saturating_sub(request.ready_ns) >= SLOW_NS
    });
    let all_ns: u64 = slow.map(|request| request.account().total_ns()).sum();
    let latency = |finding: &&Finding| finding.saving.kind == SavingKind::Latency;
    let savings = findings
        .iter()
        .filter(latency)
        .map(|finding| finding.saving.at_most_ns);
    let left_ns = all_ns.saturating_sub(savings.sum());
    let few = all_ns * 10 < model.time_of_requests_ns();
    (!few && left_ns * 2 > all_ns).then(|| {
        let (left, all) = (in_ms(left_ns), in_ms(all_ns));
        format!("nothing wrong, but {left} ms of slow requests' {all} ms are not explained")
    })
}
