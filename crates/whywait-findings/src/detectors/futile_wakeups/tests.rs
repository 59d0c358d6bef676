use whywait_events::{Burst, BurstCall, Cpu};
use whywait_model::Model;
use whywait_model::script::{Script, TGID};

use super::*;

const EPOLL_WAIT: u32 = 232;

fn poll(fd: i32, events: u32, kind: &str) -> BurstCall {
    BurstCall {
        burst: 1,
        tid: 1,
        syscall: EPOLL_WAIT,
        fd,
        events,
        ret: 1,
        kind: kind.to_owned(),
        local_port: 8080,
        peer_port: 4000,
        ..BurstCall::default()
    }
}

fn other(syscall: u32, fd: i32, ret: i64) -> BurstCall {
    BurstCall {
        burst: 1,
        tid: 1,
        step: 1,
        syscall,
        fd,
        ret,
        ..BurstCall::default()
    }
}

/// A thread that spins for `futile_ms` of a second.
fn model(futile_ms: u64, spins: u64, progress: u64, cycle: &[BurstCall]) -> Model {
    script(futile_ms, spins, progress, cycle).model()
}

fn script(futile_ms: u64, spins: u64, progress: u64, cycle: &[BurstCall]) -> Script {
    let mut script = Script::new();
    script.thread(1, "loop");
    script.cpu(&Cpu {
        tgid: TGID,
        tid: 1,
        port: -1,
        on_cpu_ns: 900_000_000,
        futile_ns: futile_ms * 1_000_000,
        ..Cpu::default()
    });
    script.cpu(&Cpu {
        tgid: TGID,
        port: 8080,
        on_cpu_ns: 880_000_000,
        requests: 10,
        ..Cpu::default()
    });
    script.burst(
        &Burst {
            burst: 1,
            tid: 1,
            tgid: TGID,
            counted_ns: 60_000_000,
            on_cpu_ns: 60_000_000,
            calls: 120_000,
            polls: 60_000,
            overhead_ns: 100,
            turns: spins + progress,
            spins,
            progress,
            cycle_turns: spins,
            cycle_length: 1,
            ..Burst::default()
        },
        cycle,
    );
    script.ends(1000);
    script
}

#[test]
fn a_loop_that_goes_round_is_found_with_its_rate_and_cost() {
    let cycle = [
        poll(7, EPOLLOUT, "tcp"),
        BurstCall {
            op: SIOCOUTQ,
            value: 60_000,
            ..other(IOCTL, 7, 0)
        },
    ];
    let findings = detect(&Facts::of(&model(800, 200, 0, &cycle)));
    let found = &findings[0];
    assert_eq!(
        (found.code.name(), found.severity),
        ("futile-wakeups", Severity::Error)
    );
    assert_eq!(
        found.title,
        "fd 7 (connection at port 8080, peer's port 4000) woke its loop 1,250,000 times a second \
         and nothing moved: 800 ms of CPU time burnt, 80 % of a CPU"
    );
    assert_eq!(found.saving.at_most_ns, 800_000_000);
    assert_eq!(found.saving.requests, 10);
    assert_eq!(found.subject["why"], "drains-by-spinning");
    assert_eq!(found.subject["turns"], 1_000_000);
}

#[test]
fn why_it_does_not_stop_shows_in_the_cycle() {
    let cases: [(Vec<BurstCall>, &str); 7] = [
        (vec![poll(7, EPOLLOUT, "tcp")], "nothing-to-write"),
        (
            vec![poll(5, EPOLLIN, "listener"), other(288, 5, EMFILE)],
            "out-of-descriptors",
        ),
        (
            vec![poll(7, EPOLLIN | EPOLLHUP, "tcp")],
            "hang-up-not-consumed",
        ),
        (vec![poll(9, EPOLLIN, "timerfd")], "never-read"),
        (
            vec![poll(7, EPOLLIN, "tcp"), other(0, 7, 0)],
            "end-of-file-not-closed",
        ),
        (vec![poll(7, EPOLLIN, "tcp"), other(45, 7, -11)], "unknown"),
        (vec![poll(-1, EPOLLHUP, "")], "hang-up-not-consumed"),
    ];
    for (cycle, why) in cases {
        let findings = detect(&Facts::of(&model(800, 200, 0, &cycle)));
        assert_eq!(findings[0].subject["why"], why);
    }
}

#[test]
fn progress_and_small_change_are_left_alone() {
    let cycle = [poll(7, EPOLLOUT, "tcp")];
    let none = |model: Model| assert_eq!(detect(&Facts::of(&model)), []);
    none(model(40, 200, 0, &cycle));
    none(model(800, 10, 0, &cycle));
    none(model(800, 30, 200, &cycle));
    none(model(800, 0, 200, &[]));
}

fn enter(min_complete: u32, queued: u64) -> BurstCall {
    BurstCall {
        armed: min_complete,
        value: queued,
        op: 1,
        local_port: 0,
        peer_port: 0,
        ..other(426, 4, 0)
    }
}

fn ring_model(cycle: &[BurstCall], completed: u64) -> Model {
    let mut script = Script::new();
    script.thread(1, "loop");
    script.cpu(&Cpu {
        tgid: TGID,
        tid: 1,
        port: -1,
        on_cpu_ns: 900_000_000,
        futile_ns: 800_000_000,
        ..Cpu::default()
    });
    let ring = whywait_events::uring::Ring {
        id: 1,
        tgid: TGID,
        user_tid: 1,
        fd: 4,
        completed,
        ..whywait_events::uring::Ring::default()
    };
    script.ring(ring, Vec::new());
    script.burst(
        &Burst {
            burst: 1,
            tid: 1,
            tgid: TGID,
            counted_ns: 60_000_000,
            on_cpu_ns: 60_000_000,
            calls: 120_000,
            polls: 120_000,
            turns: 900,
            spins: 900,
            cycle_turns: 900,
            cycle_length: 1,
            ..Burst::default()
        },
        &cycle
            .iter()
            .map(|call| BurstCall {
                kind: "io_uring".to_owned(),
                step: 0,
                ..call.clone()
            })
            .collect::<Vec<_>>(),
    );
    script.ends(1000);
    script.model()
}

#[test]
fn a_ring_whose_completions_nobody_takes_is_found() {
    let found = detect(&Facts::of(&ring_model(&[enter(1, 2)], 100_000)));
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].severity, Severity::Error);
    assert_eq!(found[0].subject["why"], "never-reaped");
    assert_eq!(
        found[0].title,
        "a loop entered fd 4 (io_uring) 2,000,000 times a second and nothing moved: 800 ms of CPU \
         time burnt, 80 % of a CPU"
    );
    assert_eq!(
        found[0].subject["cycle"][0],
        "io_uring_enter fd 4 min_complete 1 (2 in the queue)"
    );
}

#[test]
fn a_ring_that_is_asked_without_waiting_is_a_warning_if_it_is_idle() {
    let found = detect(&Facts::of(&ring_model(&[enter(0, 0)], 3)));
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].severity, Severity::Warning);
    assert_eq!(found[0].subject["why"], "never-waits");
    assert_eq!(found[0].confidence, Confidence::Medium);
    let busy_poller = detect(&Facts::of(&ring_model(&[enter(0, 0)], 100)));
    assert_eq!(busy_poller, [], "it polls on purpose");
}

#[test]
fn what_a_virtual_machine_does_for_the_loop_is_in_the_bound() {
    let cycle = [poll(7, EPOLLOUT, "connection")];
    let saving_with = |module: &str, others_ms: u64| {
        let mut script = script(500, 900, 0, &cycle);
        let collects = script.stack_in(module, &["thread_native_entry", "VMThread::run"]);
        script.thread(2, "VM Thread").burns(2, collects, 100, 200);
        for (tid, used_ms) in [(2, 100), (3, others_ms)] {
            script.cpu(&Cpu {
                tgid: TGID,
                tid,
                port: -1,
                on_cpu_ns: used_ms * 1_000_000,
                ..Cpu::default()
            });
        }
        let findings = detect(&Facts::of(&script.model()));
        assert_eq!(findings.len(), 1, "{findings:#?}");
        findings[0].saving.at_most_ns
    };
    let vm = "/usr/lib/jvm/server/libjvm.so";
    assert_eq!(saving_with(vm, 0), 600_000_000);
    // The loop is a tenth of what else the process did: twice that of what the virtual machine did.
    assert_eq!(saving_with(vm, 4_100), 520_000_000);
    assert_eq!(
        saving_with("/srv/app", 0),
        500_000_000,
        "whatever it is called"
    );
}

#[test]
fn a_tenth_of_a_cpu_is_a_warning() {
    let cycle = [poll(5, EPOLLOUT, "tcp")];
    let severity = |ms| detect(&Facts::of(&model(ms, 1000, 0, &cycle)))[0].severity;
    assert_eq!(severity(100), Severity::Warning);
    assert_eq!(severity(880), Severity::Error);
}

/// Of a second in which it had the CPU for 4 ms and waited for it otherwise, nobody knows what it
/// would have done. With 20 ms it would have spun for a fifth of a CPU that was free.
#[test]
fn what_a_thread_without_a_cpu_would_have_spun_is_not_made_up() {
    let found = |futile_ms: u64| {
        let cycle = [poll(5, EPOLLOUT, "tcp")];
        let mut script = script(futile_ms, 1000, 0, &cycle);
        script.cpu(&Cpu {
            tgid: TGID,
            tid: 1,
            port: -1,
            runnable_ns: 990_000_000,
            ..Cpu::default()
        });
        detect(&Facts::of(&script.model())).len()
    };
    assert_eq!(found(4), 0);
    assert_eq!(found(20), 1);
}
