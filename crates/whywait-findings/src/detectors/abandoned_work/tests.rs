use whywait_events::Cpu;
use whywait_model::script::Script;

use super::*;

const MS: u64 = 1_000_000;

/// Ten answered requests, and so many whose client left after 10 ms of 60.
fn server(abandoned: u64) -> Script {
    server_with(abandoned, |_| 1)
}

/// … which this thread answered for the one that reads.
fn server_with(abandoned: u64, answers: impl Fn(u64) -> u32) -> Script {
    server_left(abandoned, 100, answers)
}

/// … each of which left so many milliseconds after another.
fn server_left(abandoned: u64, apart_ms: u64, answers: impl Fn(u64) -> u32) -> Script {
    let mut script = Script::new();
    script.thread(1, "worker");
    for n in 0..10 {
        let at = 10 + n * 100;
        script
            .request(n + 1)
            .ready(at)
            .read(at, 1)
            .answered(at + 50, 1);
    }
    for n in 0..abandoned {
        let at = (2_000 + n * apart_ms) * MS;
        let send_tid = answers(n);
        script.abandoned(&Abandoned {
            socket: 100 + n,
            seq: 1,
            tgid: 1,
            recv_tid: 1,
            send_tid,
            local_port: 8080,
            ready_ns: at,
            recv_ns: at,
            gone_ns: at + 10 * MS,
            ended_ns: at + 60 * MS,
            cpu_ns: if send_tid == 1 { 60 * MS } else { 0 },
            fin: n % 2 == 0,
            alone: true,
            ..Abandoned::default()
        });
    }
    script.ends(4_000);
    script
}

#[test]
fn work_for_nobody_is_reported() {
    let findings = detect(&Facts::of(&server(4).model()));
    assert_eq!(findings.len(), 1, "{findings:#?}");
    let finding = &findings[0];
    assert_eq!(
        finding.title,
        "4 requests of 14 were worked on for clients that had gone, for 50 ms each (median): \
         200 ms of CPU time"
    );
    assert_eq!(finding.severity, Severity::Warning);
    assert_eq!(finding.confidence, Confidence::High);
    assert_eq!(finding.saving.at_most_ns, 200 * MS);
    let evidence: Vec<&str> = finding
        .evidence
        .iter()
        .map(|one| one.text.as_str())
        .collect();
    assert_eq!(
        evidence,
        [
            "the longest: worker (1) read it 0 ns after it came, the client left after 10 ms, and \
             worker (1) wrote to it 50 ms after that",
            "2 reset their connection while they waited, 2 closed it and reset it when the \
             response came",
        ]
    );
}

#[test]
fn what_moved_between_threads_is_in_the_bound() {
    let moved = server_with(4, |n| if n == 0 { 1 } else { 2 });
    let finding = &detect(&Facts::of(&moved.model()))[0];
    // The one that stayed: 50 ms. Nobody knows what the target used in all.
    assert_eq!(finding.saving.at_most_ns, 200 * MS);
    assert_eq!(finding.saving.requests, 4);
    assert_eq!(finding.confidence, Confidence::Medium);
    let said = finding.evidence.last().map(|one| one.text.as_str());
    let expected = "3 of them moved between threads, and took 150 ms in all";
    assert!(
        said.is_some_and(|text| text.starts_with(expected)),
        "{said:?}"
    );
}

#[test]
fn what_another_thread_answered_may_only_have_been_kept() {
    let findings = detect(&Facts::of(&server_with(4, |_| 2).model()));
    assert_eq!(findings.len(), 1, "{findings:#?}");
    let finding = &findings[0];
    assert_eq!(
        finding.title,
        "4 requests of 14 were answered 50 ms (median) after their clients had gone: whether \
         anything worked for them does not show"
    );
    assert_eq!(finding.severity, Severity::Note);
    assert_eq!(finding.confidence, Confidence::Low);
    assert_eq!(finding.saving, Saving::none());
}

/// A load generator that has enough leaves with all its clients.
#[test]
fn a_program_that_ended_did_not_give_up() {
    let severity = |all: u64| {
        let mut script = server_left(4, 1, |_| 1);
        for n in 10..all {
            script.request(n + 1).ready(n).read(n, 1).answered(n + 1, 1);
        }
        detect(&Facts::of(&script.model()))[0].severity
    };
    assert_eq!(severity(40), Severity::Note);
    // Nearly all of them: they have the same patience.
    assert_eq!(severity(10), Severity::Warning);
}

#[test]
fn a_few_may_be_chance() {
    assert_eq!(detect(&Facts::of(&server(2).model())), []);
}

#[test]
fn who_leaves_while_the_response_is_on_its_way_is_none() {
    let mut script = Script::new();
    script.thread(1, "worker");
    for n in 0..10 {
        script.abandoned(&Abandoned {
            socket: n,
            gone_ns: 59 * MS,
            ended_ns: 60 * MS,
            cpu_ns: 60 * MS,
            ..Abandoned::default()
        });
    }
    assert_eq!(detect(&Facts::of(&script.model())), []);
}

/// A hundred times as many requests were answered.
#[test]
fn a_few_of_many_are_as_bad_as_the_time_that_they_take() {
    let severity = |used_ms: u64| {
        let mut script = server(4);
        for n in 10..1_000 {
            script.request(n + 1).ready(n).read(n, 1).answered(n + 1, 1);
        }
        script.cpu(&Cpu {
            tgid: 1,
            tid: 1,
            port: -1,
            on_cpu_ns: used_ms * MS,
            ..Cpu::default()
        });
        detect(&Facts::of(&script.model()))[0].severity
    };
    assert_eq!(severity(500), Severity::Error);
    assert_eq!(severity(5_000), Severity::Warning);
    assert_eq!(severity(50_000), Severity::Note);
}
