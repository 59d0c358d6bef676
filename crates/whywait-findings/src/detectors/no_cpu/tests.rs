use whywait_events::NoCpu;
use whywait_model::script::Script;

use super::*;

/// Ten requests of 90 ms, in each of which the thread is without a CPU for 70 ms: because of this,
/// or because another thread has it.
fn server(why: NoCpu, by: (u32, &str)) -> Script {
    let mut script = Script::new();
    script.thread(1, "worker");
    for n in 0..10 {
        let at = 10 + n * 100;
        script
            .preempted(1, at + 10, at + 80)
            .cpu_wait(1, at + 10, at + 80, why, by);
        script
            .request(n + 1)
            .ready(at)
            .read(at, 1)
            .answered(at + 90, 1);
    }
    script.ends(1100);
    script
}

#[test]
fn a_neighbour_that_has_the_cpu_is_named() {
    let findings = detect(&Facts::of(&server(NoCpu::Task, (4242, "python3")).model()));
    assert_eq!(findings.len(), 1, "{findings:#?}");
    let finding = &findings[0];
    assert_eq!(
        finding.title,
        "10 slow requests waited 78 % of their time for a CPU; python3 (pid 4242) had it for 100 \
         % of that"
    );
    assert_eq!(finding.severity, Severity::Warning);
    assert_eq!(finding.saving.each_at_most_ns, [70_000_000; 10]);
    assert_eq!(finding.subject["holder_pids"], serde_json::json!([4242]));
}

#[test]
fn threads_of_its_own_are_named_by_what_they_do() {
    let mut script = server(NoCpu::Task, (2, "server"));
    script.thread(2, "compactor");
    let stack = script.stack(&["main", "app::compact"]);
    script.sampled(2, stack, 20, 270);
    let findings = detect(&Facts::of(&script.model()));
    assert_eq!(findings.len(), 1, "{findings:#?}");
    let finding = &findings[0];
    assert_eq!(
        finding.title,
        "10 slow requests waited 78 % of their time for a CPU; threads of its own, mostly in \
         app::compact, had it for 100 % of that"
    );
    assert_eq!(finding.cause.as_ref().map(|cause| cause.tid), Some(2));
}

#[test]
fn the_host_is_named() {
    let findings = detect(&Facts::of(&server(NoCpu::Host, (0, "")).model()));
    assert_eq!(findings.len(), 1, "{findings:#?}");
    assert_eq!(findings[0].subject["holder"], "host");
}

#[test]
fn a_limit_and_an_idle_cpu_are_nobodys() {
    let quota = server(NoCpu::Quota, (0, "")).model();
    assert_eq!(detect(&Facts::of(&quota)), [], "see cpu-limit");
    let idle = server(NoCpu::Task, (0, "")).model();
    assert_eq!(detect(&Facts::of(&idle)), [], "nobody had it");
}

#[test]
fn who_had_the_cpu_must_be_recorded() {
    let mut script = Script::new();
    script.thread(1, "worker").preempted(1, 20, 90);
    script.request(1).ready(10).read(10, 1).answered(100, 1);
    script.ends(200);
    assert_eq!(detect(&Facts::of(&script.model())), []);
}

#[test]
fn one_request_in_a_hundred_is_a_note() {
    let mut script = server(NoCpu::Task, (4242, "python3"));
    for n in 0..990 {
        script
            .request(100 + n)
            .ready(20)
            .read(20, 1)
            .answered(22, 1);
    }
    let findings = detect(&Facts::of(&script.model()));
    let severities: Vec<Severity> = findings.iter().map(|finding| finding.severity).collect();
    assert_eq!(severities, [Severity::Note]);
}

#[test]
fn a_request_that_works_most_of_its_time_is_not_reported() {
    let mut script = Script::new();
    script
        .thread(1, "worker")
        .preempted_by(1, 20, 40, (4242, "python3"));
    script.request(1).ready(10).read(10, 1).answered(100, 1);
    script.ends(200);
    assert_eq!(detect(&Facts::of(&script.model())), []);
}
