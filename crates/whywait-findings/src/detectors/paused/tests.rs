use whywait_events::{NoCpu, UNNAMED_JIT};
use whywait_model::script::Script;

use super::*;

const JVM: &str = "/usr/lib/jvm/lib/server/libjvm.so";
const VM: u32 = 2;
const SCORER: u32 = 3;

/// Ten requests that come 10 ms after the virtual machine wants to stop: their reader is stopped
/// until it goes on after 400 ms.
fn server() -> Script {
    let mut script = Script::new();
    script
        .thread(1, "worker")
        .thread(VM, "VM Thread")
        .thread(SCORER, "scorer");
    let stopped = script.stack_in(
        JVM,
        &["thread_native_entry", "SafepointSynchronize::block(J)"],
    );
    for n in 0..10 {
        let at = 1000 * n;
        script.polls(1, 7, at, at + 10);
        script.parks(1, stopped, at + 11, at + 410, VM);
        script
            .request(n + 1)
            .ready(at + 10)
            .read(at + 411, 1)
            .answered(at + 412, 1);
    }
    script.ends(10_000);
    script
}

fn the_finding(script: &Script) -> Finding {
    let model = script.model();
    let mut findings = detect(&Facts::of(&model));
    assert_eq!(findings.len(), 1, "{findings:#?}");
    findings.remove(0)
}

#[test]
fn a_thread_that_cannot_be_stopped_is_waited_for() {
    let mut script = server();
    let counts = script.stack_in("", &[UNNAMED_JIT]);
    for n in 0..10 {
        script.sampled(SCORER, counts, 1000 * n, 1000 * n + 400);
    }
    let finding = the_finding(&script);
    assert_eq!(
        finding.title,
        "10 slow requests waited 99.3 % of their time while all threads of the process were \
         stopped, 10 times, for up to 399 ms; the others waited for code compiled at run time in \
         thread scorer (3)"
    );
    assert_eq!(finding.severity, Severity::Error);
    assert_eq!(finding.cause.as_ref().map(|cause| cause.tid), Some(SCORER));
    assert_eq!(finding.saving.requests, 10);
    assert!(finding.saving.at_most_ns <= 10 * 402_000_000);
}

#[test]
fn a_collector_that_works_meanwhile_is_waited_for_by_all() {
    let mut script = server();
    let collects = script.stack_in(
        JVM,
        &["VMThread::run()", "GenMarkSweep::mark_sweep_phase4()"],
    );
    for n in 0..10 {
        script.sampled(VM, collects, 1000 * n + 12, 1000 * n + 400);
    }
    let finding = the_finding(&script);
    assert!(
        finding
            .title
            .ends_with("; thread VM Thread (2) worked meanwhile (100 % of the work)"),
        "{}",
        finding.title
    );
}

#[test]
fn a_thread_that_works_with_all_others_stopped_shows_the_pause() {
    let mut script = Script::new();
    script.thread(1, "server").thread(2, "server");
    let dumps = script.stack(&[
        "runtime.goexit",
        "main.monitor",
        "main.dumpStacks",
        "runtime.Stack",
        "runtime.systemstack",
        "runtime.Stack.func1",
        "runtime.tracebackothers",
    ]);
    for n in 0..10 {
        let at = 1000 * n;
        script.sampled(2, dumps, at, at + 300);
        script
            .request(n + 1)
            .ready(at + 10)
            .read(at + 301, 1)
            .answered(at + 302, 1);
    }
    script.ends(10_000);
    let finding = the_finding(&script);
    assert_eq!(
        finding.title,
        "10 slow requests waited 98 % of their time while all threads of the process were \
         stopped, 10 times, for up to 295 ms; the runtime wrote the stacks of all goroutines \
         (runtime.Stack, the profile goroutine?debug=2)"
    );
}

#[test]
fn a_thread_that_waits_for_an_operation_of_the_virtual_machine_is_no_pause() {
    let mut script = Script::new();
    script.thread(1, "worker").thread(VM, "VM Thread");
    let asks = script.stack_in(
        JVM,
        &["thread_native_entry", "VMThread::execute(VM_Operation*)"],
    );
    for n in 0..10 {
        let at = 1000 * n;
        script.parks(1, asks, at + 11, at + 410, VM);
        script
            .request(n + 1)
            .ready(at + 10)
            .read(at + 10, 1)
            .answered(at + 412, 1);
    }
    script.ends(10_000);
    assert_eq!(detect(&Facts::of(&script.model())), []);
}

#[test]
fn what_a_request_waited_for_a_peer_in_a_pause_is_the_peers() {
    let mut script = server();
    let asks = script.stack(&["app::ask", "recv"]);
    script.thread(4, "asker");
    let slow: Vec<u64> = (0..10).collect();
    for n in slow {
        let at = 1000 * n;
        script
            .wait(4, 45, at + 5, at + 420)
            .stack(asks)
            .by_softirq()
            .done();
        script
            .request(n + 101)
            .ready(at + 1)
            .read(at + 1, 4)
            .answered(at + 421, 4);
    }
    assert_eq!(the_finding(&script).saving.requests, 10);
}

#[test]
fn a_pause_that_lacked_a_cpu_is_none() {
    let mut script = server();
    for n in 0..10 {
        let at = 1000 * n;
        script.cpu_wait(SCORER, at + 20, at + 400, NoCpu::Task, (4242, "python3"));
    }
    assert_eq!(detect(&Facts::of(&script.model())), []);
}
