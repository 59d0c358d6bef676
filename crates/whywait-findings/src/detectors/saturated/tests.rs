use whywait_events::{Cpu, Part};
use whywait_model::script::{Script, TGID};

use super::*;

const EPOLL: u32 = 1;
const MS: u64 = 1_000_000;

/// A loop, thread 1, that answers five times twenty requests which come together, each in a turn of
/// 4 ms.
fn server() -> Script {
    let mut script = Script::new();
    script.thread(1, "python3").polls(1, EPOLL, 0, 10);
    let verify = script.stack(&["main", "app_verify_signature"]);
    let render = script.stack(&["main", "app_render_page"]);
    script
        .sampled(1, verify, 10, 330)
        .sampled(1, render, 330, 410);
    for n in 0..100 {
        let ready = 10 + n / 20 * 80;
        script
            .request(n + 1)
            .epoll(EPOLL)
            .ready(ready)
            .read(ready, 1)
            .answered(ready + 4 * (n % 20 + 1), 1);
    }
    script.ends(500);
    script
}

/// The loop used so much CPU time.
fn uses(script: &mut Script, on_cpu_ms: u64) {
    script.cpu(&Cpu {
        tgid: TGID,
        tid: 1,
        on_cpu_ns: on_cpu_ms * MS,
        ..Cpu::default()
    });
}

#[test]
fn a_loop_that_is_always_busy_is_named_with_what_it_does() {
    let mut script = server();
    uses(&mut script, 396);
    let findings = detect(&Facts::of(&script.model()));
    assert_eq!(findings.len(), 1, "{findings:#?}");
    let finding = &findings[0];
    assert_eq!(
        finding.title,
        "thread python3 (1) is busy 99 % of the time: app_verify_signature takes 80 % of its work; \
         up to 19 requests wait for their turn behind another"
    );
    assert_eq!(finding.severity, Severity::Warning);
    // Four fifths of the 80 ms that the last of each twenty takes.
    assert_eq!(finding.saving.each_at_most_ns[0], 64 * MS);
}

#[test]
fn a_loop_that_waits_for_something_else_is_not_saturated() {
    let mut script = server();
    uses(&mut script, 300);
    assert_eq!(detect(&Facts::of(&script.model())), []);
}

#[test]
fn long_turns_are_a_blocked_loop() {
    let mut script = server();
    uses(&mut script, 396);
    let handler = script.stack(&["main", "app_render_report"]);
    script.burns(1, handler, 10, 250);
    assert_eq!(detect(&Facts::of(&script.model())), []);
}

#[test]
fn a_busy_loop_behind_which_nobody_waits_is_healthy() {
    let mut script = Script::new();
    script.thread(1, "python3").polls(1, EPOLL, 0, 10);
    for n in 0..100 {
        let ready = 10 + n * 4;
        script
            .request(n + 1)
            .epoll(EPOLL)
            .ready(ready)
            .read(ready, 1)
            .answered(ready + 4, 1);
    }
    uses(&mut script, 396);
    script.ends(500);
    assert_eq!(detect(&Facts::of(&script.model())), []);
}

/// Two workers, each with ten of twenty requests that come together, 40 ms of work each. They were
/// so long on a CPU.
fn crew(on_cpu_ms: u64) -> Script {
    let mut script = Script::new();
    let rank = script.stack(&["main", "app_rank"]);
    for tid in 1..=2 {
        script.thread(tid, "worker").burns(tid, rank, 10, 410);
        script.cpu(&Cpu {
            tgid: TGID,
            tid,
            on_cpu_ns: on_cpu_ms * MS,
            runnable_ns: (400 - on_cpu_ms) * MS,
            ..Cpu::default()
        });
    }
    for n in 0..20 {
        let (tid, read) = (n % 2 + 1, 10 + n / 2 * 40);
        script
            .request(u64::from(n) + 1)
            .ready(10)
            .read(u64::from(read), tid)
            .answered(u64::from(read) + 40, tid);
    }
    script.ends(500);
    script
}

#[test]
fn workers_that_always_compute_are_named_with_what_they_do() {
    let findings = detect(&Facts::of(&crew(400).model()));
    assert_eq!(findings.len(), 1, "{findings:#?}");
    let finding = &findings[0];
    assert_eq!(
        finding.title,
        "2 threads worker that serve a request at a time are busy 100 % of the time in which \
         others lie unread (90 % of it all): app_rank takes 100 % of their work; up to 18 requests \
         wait for one of them"
    );
    assert_eq!(finding.severity, Severity::Warning);
    assert_eq!(finding.subject["function"], serde_json::json!("app_rank"));
    // Without it nobody waits.
    assert_eq!(finding.saving.requests, 20);
}

#[test]
fn workers_that_sleep_while_requests_lie_unread_are_not_saturated() {
    let mut script = crew(400);
    let asleep = script.stack(&["main", "app_rank", "clock_nanosleep"]);
    for tid in 1..=2 {
        script.wait(tid, 230, 20, 320).stack(asleep).done();
    }
    assert!(detect(&Facts::of(&script.model())).is_empty());
}

#[test]
fn workers_that_lack_a_cpu_are_noted() {
    let findings = detect(&Facts::of(&crew(100).model()));
    assert_eq!(findings[0].severity, Severity::Note, "{findings:#?}");
}

/// As Go's threads: four, of which two run at a time, as there are CPUs. Twenty requests come
/// together, and each takes `work_ms`.
fn more_workers_than_cpus(work_ms: u64, on_cpu_ms: u64) -> Script {
    let mut script = Script::new();
    let rank = script.stack(&["main", "app_rank"]);
    script.recorded(|recorded| recorded.meta.host.cpus = 2);
    for tid in 1..=4 {
        script
            .thread(tid, "worker")
            .burns(tid, rank, 10, 10 + 10 * work_ms);
        script.cpu(&Cpu {
            tgid: TGID,
            tid,
            on_cpu_ns: on_cpu_ms * MS,
            ..Cpu::default()
        });
    }
    for n in 0..20 {
        let (tid, read) = (n % 4 + 1, 10 + u64::from(n) / 2 * work_ms);
        script
            .request(u64::from(n) + 1)
            .ready(10)
            .read(read, tid)
            .answered(read + work_ms, tid);
    }
    script.starts(10).ends(10 + 10 * work_ms);
    script
}

#[test]
fn workers_that_keep_all_cpus_busy_are_saturated_however_many_they_are() {
    let findings = detect(&Facts::of(&more_workers_than_cpus(40, 200).model()));
    assert_eq!(
        findings[0].title,
        "4 threads worker that serve a request at a time keep 2 CPUs busy 100 % of the time in \
         which others lie unread (90 % of it all): app_rank takes 100 % of their work; up to 18 \
         requests wait for one of them"
    );
    // The CPUs have time left.
    assert!(detect(&Facts::of(&more_workers_than_cpus(40, 150).model())).is_empty());
}

/// The kept recordings hold that they are most of all requests, the quick ones, too.
#[test]
fn turns_may_be_short_where_most_requests_wait_for_those_of_others() {
    let short = more_workers_than_cpus(1, 5);
    let findings = detect(&Facts::of(&short.model()));
    assert_eq!(findings[0].severity, Severity::Note, "{findings:#?}");
}

/// Four workers on two CPUs, say: more CPUs are what their own work needs.
#[test]
fn workers_that_take_the_cpus_from_each_other_are_saturated() {
    let mut script = crew(100);
    for begins in (0..10).map(|n| 10 + n * 40) {
        script.preempted_by(1, begins, begins + 30, (2, "worker"));
        script.preempted_by(2, begins, begins + 30, (1, "worker"));
    }
    let findings = detect(&Facts::of(&script.model()));
    assert_eq!(findings[0].severity, Severity::Warning, "{findings:#?}");
}

/// The same, and one request a while later.
fn after_a_burst(mut script: Script, epoll: u32) -> Script {
    let request = script.request(200).epoll(epoll).ready(3_000);
    request.read(3_000, 1).answered(3_004, 1);
    script.ends(3_100);
    script
}

#[test]
fn what_queues_in_a_burst_is_a_note() {
    let mut of_loop = server();
    uses(&mut of_loop, 396);
    for script in [after_a_burst(of_loop, EPOLL), after_a_burst(crew(400), 0)] {
        let findings = detect(&Facts::of(&script.model()));
        assert_eq!(findings.len(), 1, "{findings:#?}");
        assert_eq!(findings[0].severity, Severity::Note, "{findings:#?}");
        assert!(findings[0].title.contains(" % of it all)"), "{findings:#?}");
    }
}

/// Threads 1 and 2 of a runtime that has tasks of its own: each has eight requests in hand at a
/// time, each of which takes 80 ms.
fn tasks(on_cpu_ms: u64) -> Script {
    let mut script = Script::new();
    let merge = script.stack(&["main", "app_merge"]);
    for tid in [1, 2] {
        script.thread(tid, &format!("{tid}_scheduler"));
        script.sampled(tid, merge, 10, 310);
        script.cpu(&Cpu {
            tgid: TGID,
            tid,
            on_cpu_ns: on_cpu_ms * MS,
            ..Cpu::default()
        });
        for n in 0..100 {
            let ready = 10 + n * 10;
            script
                .request(u64::from(tid) * 1000 + n)
                .ready(ready)
                .read(ready, tid)
                .spent(Part::OnCpu, 80)
                .answered(ready + 80, tid);
        }
    }
    script.ends(1_100);
    script
}

#[test]
fn threads_that_have_several_requests_in_hand_and_compute_all_the_time_are_busy() {
    let findings = detect(&Facts::of(&tasks(1_060).model()));
    let [finding] = &findings[..] else {
        panic!("one finding: {findings:#?}");
    };
    assert_eq!(
        finding.title,
        "2 threads 1_scheduler … of ? compute 99.1 % of the time: app_merge takes 100 % of it; \
         up to 16 requests are in hand at a time"
    );
    assert_eq!(finding.severity, Severity::Warning);
    assert_eq!(finding.saving.at_most_ns, 200 * 80 * MS);
    // What they read takes its time elsewhere.
    assert_eq!(detect(&Facts::of(&tasks(600).model())), []);
}
