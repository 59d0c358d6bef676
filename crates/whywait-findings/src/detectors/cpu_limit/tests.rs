use whywait_model::script::Script;

use super::*;
use crate::finding::Severity;

/// Ten requests of 90 ms, in each of which the thread is without a CPU for 70 ms.
fn server(periods: u64, throttled: u64) -> Script {
    let mut script = Script::new();
    script.thread(1, "worker");
    for n in 0..10 {
        let at = 10 + n * 100;
        script.preempted(1, at + 10, at + 80);
        script
            .request(n + 1)
            .ready(at)
            .read(at, 1)
            .answered(at + 90, 1);
    }
    for (name, value) in [
        ("periods", periods),
        ("throttled-periods", throttled),
        ("throttled-ns", throttled * 70_000_000),
        ("millicpus", 300),
    ] {
        script.counter(&format!("cpu-limit.{name}"), value);
    }
    script.ends(1100);
    script
}

#[test]
fn a_server_that_is_stopped_by_its_limit_is_reported() {
    let findings = detect(&Facts::of(&server(11, 10).model()));
    assert_eq!(findings.len(), 1, "{findings:#?}");
    let finding = &findings[0];
    assert_eq!(
        finding.title,
        "10 slow requests waited 78 % of their time for a CPU; the cgroup may use 0.3 CPUs, and \
         had used them up in 10 of 11 periods"
    );
    assert_eq!(
        (finding.severity, finding.confidence),
        (Severity::Warning, Confidence::High)
    );
    assert_eq!(finding.saving.each_at_most_ns, [70_000_000; 10]);
}

#[test]
fn those_who_wait_for_threads_that_are_stopped_gain_as_well() {
    let mut script = server(11, 10);
    script.thread(2, "other").thread(3, "peer");
    let locking = script.stack(&["main", "app::work", "pthread_mutex_lock", "__lll_lock_wait"]);
    // Not read for 10 ms, then without a CPU for 60, then at a lock for 20, then at a peer for
    // 5.
    script.preempted(2, 20, 80);
    script
        .wait(2, 202, 80, 100)
        .stack(locking)
        .word(0x1000)
        .by(1)
        .done();
    script.wait(2, 45, 100, 105).by_softirq().done();
    script.request(20).ready(10).read(20, 2).answered(107, 2);
    let findings = detect(&Facts::of(&script.model()));
    assert_eq!(findings.len(), 1, "{findings:#?}");
    assert_eq!(findings[0].saving.each_at_most_ns[0], 90_000_000);
}

#[test]
fn a_limit_that_is_not_reached_stops_nobody() {
    assert_eq!(
        detect(&Facts::of(&server(11, 0).model())),
        [],
        "others had the CPUs"
    );
    assert_eq!(
        detect(&Facts::of(&server(1000, 10).model())),
        [],
        "once in a hundred"
    );
    assert_eq!(
        detect(&Facts::of(&server(11, 2).model())),
        [],
        "twice, for a moment"
    );
    assert_eq!(
        detect(&Facts::of(&server(0, 0).model())),
        [],
        "there is none"
    );
}

#[test]
fn where_no_request_waits_for_a_cpu_the_limit_does_no_harm() {
    let mut script = Script::new();
    script.thread(1, "worker");
    script.request(1).ready(10).read(10, 1).answered(12, 1);
    script.counter("cpu-limit.periods", 10);
    script.counter("cpu-limit.throttled-periods", 10);
    script.ends(1000);
    assert_eq!(detect(&Facts::of(&script.model())), []);
}
