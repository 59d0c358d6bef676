use whywait_events::Cpu;
use whywait_model::Model;
use whywait_model::script::{Script, TGID};

use super::*;
use crate::finding::Severity;

/// Two workers with a listener each, the first busy from 100 to 400 ms, and a connection that comes
/// at 150 ms.
fn model(listeners: u64, second_idles: bool, second_polls_in: &str) -> Model {
    script(listeners, second_idles, second_polls_in, true).model()
}

/// The same, where the first worker sleeps in its work or not.
fn script(listeners: u64, second_idles: bool, second_polls_in: &str, sleeps: bool) -> Script {
    let mut script = Script::new();
    script.thread(1, "worker");
    script.thread_of(TGID + 1, 2, "worker");
    let poll = script.stack(&["main", "work", "epoll_wait"]);
    let other = script.stack(&["main", second_polls_in, "epoll_wait"]);
    let render = script.stack(&["main", "work", "render"]);
    script.polls_in(1, 7, poll, 0, 100);
    if sleeps {
        script.sleeps(1, render, 100, 400);
    }
    script.polls_in(1, 7, poll, 402, 900);
    let until = if second_idles { 900 } else { 100 };
    script.polls_in(2, 8, other, 0, until);
    script.cpu(&Cpu {
        tgid: TGID + 1,
        port: 80,
        requests: 5,
        ..Cpu::default()
    });
    script.counter("herd.80.reuseport", listeners);
    script
        .request(1)
        .port(80)
        .before_accept()
        .ready(150)
        .epoll(7)
        .read(401, 1)
        .answered(402, 1);
    script.ends(1000);
    script
}

#[test]
fn a_connection_that_waits_for_a_busy_worker_alongside_an_idle_sibling_is_stranded() {
    let found = &detect(&model(2, true, "work"))[0];
    assert_eq!(
        found.title,
        "1 new connection waited at port 80 for up to 251 ms behind a busy worker while a sibling \
         sat idle"
    );
    assert_eq!(found.severity, Severity::Error);
    assert_eq!(found.saving.at_most_ns, 251_000_000);
    let cause = found.cause.as_ref().expect("the worker's sleep");
    assert_eq!(cause.stack[0], "render");
}

#[test]
fn behind_a_worker_without_a_cpu_the_machine_is_busy() {
    let mut script = script(2, true, "work", false);
    assert_eq!(detect(&script.model()).len(), 1, "it computes");
    // It has a CPU for 20 ms of the 250.
    script.preempted(1, 170, 400);
    assert_eq!(detect(&script.model()), []);
}

#[test]
fn without_an_idle_sibling_of_the_same_kind_nobody_could_have_helped() {
    assert_eq!(detect(&model(2, false, "work")), [], "it is busy too");
    assert_eq!(detect(&model(2, true, "other_program")), [], "another kind");
    assert_eq!(detect(&model(1, true, "work")), [], "they share a listener");
}
