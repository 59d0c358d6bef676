//! Scripts of events that must, or must not, be `stranded-readiness`.

use whywait_model::script::Script;

use super::*;

const EPOLL: u32 = 1;
const WORKER: &[&str] = &[
    "clone3",
    "start_thread",
    "tokio::runtime::pool::run",
    "worker::run",
    "Context::run",
];

struct Stacks {
    poll: u32,
    park: u32,
    helper: u32,
    handler: u32,
}

/// Workers 1 to 4; a thread of the blocking pool, 5, that carries their name.
fn pool() -> (Script, Stacks) {
    let mut script = Script::new();
    for tid in 1..=5 {
        script.thread(tid, "tokio-rt-worker");
    }
    let of = |rest: &[&'static str]| [WORKER, rest].concat();
    let stacks = Stacks {
        poll: script.stack(&of(&["Context::park", "Driver::turn", "epoll_wait"])),
        park: script.stack(&of(&[
            "Context::park",
            "Inner::park_condvar",
            "Condvar::wait",
            "syscall",
        ])),
        helper: script.stack(&[
            "clone3",
            "start_thread",
            "tokio::runtime::pool::run",
            "Condvar::wait_timeout",
            "syscall",
        ]),
        handler: script.stack(&of(&["run_task", "app::render_image", "nanosleep"])),
    };
    script.polls_in(1, EPOLL, stacks.poll, 0, 10);
    script.parks(5, stacks.helper, 0, 10_000, 1);
    (script, stacks)
}

/// The burst of case 1: worker 1 takes the first request and sleeps in it; four more come and find
/// nobody polling.
fn burst(script: &mut Script, stacks: &Stacks) {
    script.sleeps(1, stacks.handler, 10, 2010);
    script
        .request(1)
        .epoll(EPOLL)
        .ready(10)
        .read(10, 1)
        .answered(2010, 1);
    for tid in 2..=4 {
        script.parks(tid, stacks.park, 0, 2010, 1);
        script.sleeps(tid, stacks.handler, 2011, 4011);
    }
    script.sleeps(1, stacks.handler, 2012, 4012);
    for (socket, tid) in [(2, 2), (3, 3), (4, 4), (5, 1)] {
        let read = if tid == 1 { 2012 } else { 2011 };
        script
            .request(socket)
            .epoll(EPOLL)
            .ready(12)
            .read(read, tid)
            .answered(read + 2000, tid);
    }
    script.ends(4100);
}

#[test]
fn ready_requests_alongside_parked_workers_are_stranded() {
    let (mut script, stacks) = pool();
    burst(&mut script, &stacks);
    let findings = detect(&Facts::of(&script.model()));
    assert_eq!(findings.len(), 1, "{findings:#?}");
    let finding = &findings[0];
    assert_eq!(
        (finding.severity, finding.confidence),
        (Severity::Error, Confidence::High)
    );
    assert_eq!(
        finding.saving.requests, 4,
        "with the work on threads of its own nobody waits"
    );
    let handed_on = |evidence: &&Evidence| evidence.text.starts_with("handing the poll on");
    let handed_on = finding
        .evidence
        .iter()
        .find(handed_on)
        .expect("the other fix");
    assert!(
        handed_on
            .text
            .contains("saves 3 requests 5.99 s at most: 1 of these requests would"),
        "four workers: the fifth request would have waited anyway: {}",
        handed_on.text
    );
    for ns in &finding.saving.each_at_most_ns {
        assert!((1_800_000_000..2_100_000_000).contains(ns), "{ns}");
    }
    let cause = finding.cause.as_ref().expect("worker 1 polled last");
    assert_eq!(
        (cause.tid, cause.doing.as_str()),
        (1, "asleep in clock_nanosleep")
    );
    assert!(cause.stack.iter().any(|name| name == "app::render_image"));
    assert!(finding.evidence[0].text.contains("epoll_wait"));
    assert!(
        !finding.evidence[1].text.contains(" 5 "),
        "the blocking pool's thread cannot serve: {:?}",
        finding.evidence
    );
    assert!(finding.fix.contains("enable_eager_driver_handoff"));
}

#[test]
fn a_handler_that_burns_cpu_strands_them_too() {
    let (mut script, stacks) = pool();
    script.burns(1, stacks.handler, 10, 2010);
    for tid in 2..=4 {
        script.parks(tid, stacks.park, 0, 2010, 1);
    }
    script
        .request(2)
        .epoll(EPOLL)
        .ready(12)
        .read(2011, 2)
        .answered(4011, 2);
    let findings = detect(&Facts::of(&script.model()));
    let cause = findings[0].cause.as_ref().expect("worker 1");
    assert_eq!(cause.doing, "on CPU");
    assert!(cause.stack.iter().any(|name| name == "app::render_image"));
}

#[test]
fn a_pool_that_hands_the_poll_on_is_fine() {
    let (mut script, stacks) = pool();
    script.sleeps(1, stacks.handler, 10, 2010);
    script.parks(2, stacks.park, 0, 10, 1);
    script.polls_in(2, EPOLL, stacks.poll, 11, 12);
    script.sleeps(2, stacks.handler, 12, 2012);
    script.parks(3, stacks.park, 0, 12, 2);
    script.polls_in(3, EPOLL, stacks.poll, 13, 2500);
    script.parks(4, stacks.park, 0, 2500, 2);
    script
        .request(1)
        .epoll(EPOLL)
        .ready(10)
        .read(10, 1)
        .answered(2010, 1);
    script
        .request(2)
        .epoll(EPOLL)
        .ready(12)
        .read(12, 2)
        .answered(2012, 2);
    assert_eq!(detect(&Facts::of(&script.model())), []);
}

#[test]
fn a_pool_whose_threads_are_all_busy_is_not_stranded() {
    let (mut script, stacks) = pool();
    for tid in 2..=4 {
        script.parks(tid, stacks.park, 0, 10, 1);
    }
    for tid in 1..=4 {
        script.sleeps(tid, stacks.handler, 11, 2011);
    }
    script
        .request(9)
        .epoll(EPOLL)
        .ready(12)
        .read(2012, 1)
        .answered(2500, 1);
    assert_eq!(
        detect(&Facts::of(&script.model())),
        [],
        "the blocking pool's idle thread, 5, cannot serve"
    );
}

#[test]
fn a_worker_that_waits_for_a_lock_in_a_request_is_busy() {
    let (mut script, stacks) = pool();
    let locked = script.stack(
        &[
            WORKER,
            &[
                "run_task",
                "app::handler",
                "Mutex::lock_contended",
                "syscall",
            ],
        ]
        .concat(),
    );
    script.sleeps(1, stacks.handler, 10, 2010);
    for tid in 2..=4 {
        script.parks(tid, stacks.park, 0, 10, 1);
        script.parks(tid, locked, 11, 2010, 1);
    }
    script
        .request(9)
        .epoll(EPOLL)
        .ready(12)
        .read(2012, 1)
        .answered(2500, 1);
    assert_eq!(detect(&Facts::of(&script.model())), []);
}

#[test]
fn a_sleep_without_a_stack_is_not_idle() {
    let (mut script, stacks) = pool();
    script.sleeps(1, stacks.handler, 10, 2010);
    script.parks(2, stacks.park, 0, 10, 1);
    script.parks(2, 0, 11, 2010, 1);
    script
        .request(9)
        .epoll(EPOLL)
        .ready(12)
        .read(2012, 1)
        .answered(2500, 1);
    // The word of the first sleep is 0 as well, so the second counts as idle by its word; another
    // word does not.
    assert_eq!(detect(&Facts::of(&script.model())).len(), 1);
    let (mut script, stacks) = pool();
    script.sleeps(1, stacks.handler, 10, 2010);
    script
        .wait(2, 202, 0, 10)
        .word(64)
        .stack(stacks.park)
        .by(1)
        .done();
    script.wait(2, 202, 11, 2010).word(128).by(1).done();
    script
        .request(9)
        .epoll(EPOLL)
        .ready(12)
        .read(2012, 1)
        .answered(2500, 1);
    assert_eq!(detect(&Facts::of(&script.model())), []);
}

/// Worker 1 polled last and is away for two seconds, so many milliseconds of them on a CPU and so
/// many without one that it could have used; the others are parked, and a request comes.
fn crowded(on_cpu_ms: u64, without_cpu_ms: u64) -> Script {
    let (mut script, stacks) = pool();
    script.busy(
        1,
        10,
        2010,
        on_cpu_ms * 1_000_000,
        without_cpu_ms * 1_000_000,
    );
    for tid in 2..=4 {
        script.parks(tid, stacks.park, 0, 2010, 1);
    }
    script
        .request(2)
        .epoll(EPOLL)
        .ready(12)
        .read(2011, 2)
        .answered(2012, 2);
    script
}

#[test]
fn a_poller_that_hardly_did_anything_but_wait_for_a_cpu_kept_nobody_from_polling() {
    assert_eq!(detect(&Facts::of(&crowded(200, 1800).model())), []);
}

#[test]
fn a_poller_that_worked_and_waited_for_a_cpu_besides_strands_them_too() {
    let findings = detect(&Facts::of(&crowded(550, 1450).model()));
    assert_eq!(findings.len(), 1, "three threads idled for two seconds");
    assert_eq!(findings[0].confidence, Confidence::Medium);
    let text = "for 1.45 s of that it could have run and had no CPU";
    assert!(
        findings[0]
            .evidence
            .iter()
            .any(|e| e.text.starts_with(text)),
        "{text}: {:?}",
        findings[0].evidence
    );
}

#[test]
fn a_machine_short_of_cpus_is_another_problem() {
    let (mut script, stacks) = pool();
    script.busy(1, 10, 2010, 550_000_000, 1_450_000_000);
    script.parks(3, stacks.park, 0, 2010, 1);
    script.parks(4, stacks.park, 0, 2010, 1);
    // Thread 2 was woken to poll in its place, and had no CPU for as long.
    script
        .wait(2, 202, 0, 30)
        .stack(stacks.park)
        .by(1)
        .on_cpu_at(2005)
        .done();
    script
        .request(2)
        .epoll(EPOLL)
        .ready(12)
        .read(2011, 2)
        .answered(2012, 2);
    assert_eq!(detect(&Facts::of(&script.model())), []);
}

#[test]
fn a_socket_whose_read_interest_is_off_waits_for_nobody() {
    let (mut script, stacks) = pool();
    burst(&mut script, &stacks);
    script.read_interest_off();
    assert_eq!(detect(&Facts::of(&script.model())), []);
}

#[test]
fn what_the_poller_waited_for_a_cpu_later_does_not_excuse_it() {
    let (mut script, stacks) = pool();
    script.burns(1, stacks.handler, 10, 2010);
    // Once all four burn on two CPUs they wait for them; the last poller's own next interval
    // overlaps a little.
    script.busy(1, 2010, 4010, 1_000_000_000, 1_000_000_000);
    for tid in 2..=4 {
        script.parks(tid, stacks.park, 0, 2012, 1);
    }
    script
        .request(2)
        .epoll(EPOLL)
        .ready(12)
        .read(2012, 2)
        .answered(4011, 2);
    assert_eq!(detect(&Facts::of(&script.model())).len(), 1);
}

const GO: &[&str] = &["runtime.mstart", "runtime.schedule", "runtime.findRunnable"];

/// Go's threads 1 to 6 on four CPUs: 1 and 2 take requests, burn and poll in turn, the others are
/// parked.
fn go() -> (Script, u32, u32) {
    let mut script = Script::new();
    for tid in 1..=6 {
        script.thread(tid, "server");
    }
    let of = |rest: &[&'static str]| [GO, rest].concat();
    let poll = script.stack(&of(&["runtime.netpoll", "runtime.epollwait"]));
    let park = script.stack(&of(&[
        "runtime.stopm",
        "runtime.notesleep",
        "runtime.futex",
    ]));
    let handler = script.stack(&["runtime.goexit", "main.handle", "main.render"]);
    script.polls_in(1, EPOLL, poll, 0, 10);
    script.polls_in(2, EPOLL, poll, 2011, 2012);
    for tid in 3..=6 {
        script.parks(tid, park, 0, 2010, 1);
    }
    script.burns(1, handler, 10, 2010);
    script
        .request(2)
        .epoll(EPOLL)
        .ready(12)
        .read(2011, 2)
        .answered(2012, 2);
    script.ends(4100);
    (script, handler, park)
}

#[test]
fn threads_that_go_has_parked_alongside_as_many_as_it_runs_cannot_serve() {
    let (mut script, handler, _) = go();
    script.burns(2, handler, 5, 2009);
    let model = script.model();
    assert_eq!(model.pools[0].at_once, Some(2), "never more at once");
    assert_eq!(detect(&Facts::of(&model)), []);
}

#[test]
fn one_goroutine_that_keeps_the_poll_where_two_ran_at_once_strands() {
    let (mut script, handler, park) = go();
    script.parks(2, park, 10, 2010, 1);
    // Later both run at once.
    script.burns(1, handler, 3000, 3100);
    script.burns(2, handler, 3010, 3090);
    let model = script.model();
    assert_eq!(model.pools[0].at_once, Some(2));
    assert_eq!(detect(&Facts::of(&model)).len(), 1);
}

#[test]
fn a_last_poller_that_was_not_seen_to_do_anything_is_no_culprit() {
    let (mut script, stacks) = pool();
    for tid in 2..=4 {
        script.parks(tid, stacks.park, 0, 2010, 1);
    }
    script
        .request(2)
        .epoll(EPOLL)
        .ready(12)
        .read(2011, 2)
        .answered(2012, 2);
    // Thread 1 polled until 10 and then slept and polled in turn, too briefly to be recorded.
    assert_eq!(detect(&Facts::of(&script.model())), []);
    script.sleeps(1, stacks.handler, 1000, 1400);
    assert_eq!(
        detect(&Facts::of(&script.model())),
        [],
        "a fifth of the time"
    );
}
