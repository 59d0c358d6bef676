use whywait_events::uring::{Lag, LagKind, Ring, RingSample, Sum};
use whywait_model::script::{Script, ms};

use crate::shared::rings::script::*;
use crate::shared::spinning::IO_URING_ENTER;

/// Completions lie there for 20 ms each, when the kernel took 1 ms.
fn unreaped() -> Ring {
    Ring {
        unreaped_low_ns: 200 * S,
        unreaped_high_ns: 250 * S,
        at_depth_ns: 0,
        ..ring()
    }
}

#[test]
fn completions_that_lie_there_while_the_thread_computes() {
    let mut script = script(unreaped(), sum(READ));
    lags(&mut script, LagKind::Unreaped, 50, 20);
    let stack = script.stack(&["main", "serve", "compress"]);
    let standing = RingSample {
        ring: 1,
        tid: TID,
        unreaped: 4,
        ..RingSample::default()
    };
    script.ring_samples((stack, 0), &standing, 100);
    let findings = found(&script);
    assert_eq!(findings.len(), 1, "{findings:#?}");
    assert_eq!(findings[0].code.name(), "uring-unreaped");
    assert_eq!(findings[0].saving.at_most_ns, 250 * S);
    let cause = findings[0].cause.as_ref().expect("where it computes");
    assert_eq!(cause.stack[0], "compress");
}

/// A disk whose requests take the kernel as long to start as the disk takes to do them: completions
/// lie there while the thread submits.
#[test]
fn completions_that_lie_there_while_the_thread_submits() {
    let found_with = |submitting: u64, computing: u64| {
        let slow = Ring {
            unreaped_low_ns: 30 * S,
            unreaped_high_ns: 30 * S,
            ..ring()
        };
        let mut script = script(slow, sum(READ));
        lags(&mut script, LagKind::Unreaped, 50, 3);
        let user_stack = script.stack(&["main", "serve"]);
        let submits = script.stack(&[
            "__x64_sys_io_uring_enter",
            "io_submit_sqes",
            "virtqueue_notify",
        ]);
        let standing = RingSample {
            ring: 1,
            tid: TID,
            unreaped: 4,
            ..RingSample::default()
        };
        script.ring_samples((user_stack, submits), &standing, submitting);
        script.ring_samples((user_stack, 0), &standing, computing);
        codes(&script)
    };
    // 3 ms each: what is left of it must be the threshold of 1 ms at least.
    assert_eq!(found_with(100, 0), NOTHING);
    assert_eq!(found_with(70, 30), NOTHING);
    assert_eq!(found_with(60, 40), ["uring-unreaped"]);
}

#[test]
fn completions_that_lie_there_while_the_thread_waits_for_more() {
    // It sleeps for so long of each 20 ms, and computes then: a sample each 5 ms.
    let found_in = |call: u32, asleep_ms: u64| {
        let mut script = script(unreaped(), sum(READ));
        let stack = script.stack(&["main", "compress"]);
        for time in 0..50 {
            let from = time * 100;
            script.wait(TID, call, from, from + asleep_ms).done();
        }
        lags(&mut script, LagKind::Unreaped, 50, 20);
        for time in 0..50 {
            let computes = RingSample {
                ring: 1,
                tid: TID,
                at_ns: ms(time * 100 + asleep_ms),
                unreaped: 1,
                ..RingSample::default()
            };
            script.ring_samples((stack, 0), &computes, (20 - asleep_ms) / 5);
        }
        codes(&script)
    };
    assert_eq!(found_in(IO_URING_ENTER, 20), NOTHING);
    assert_eq!(found_in(FSYNC_CALL, 20), ["uring-unreaped"]);
    // Half of the time it does something else.
    assert_eq!(found_in(IO_URING_ENTER, 10), ["uring-unreaped"]);
}

#[test]
fn what_is_held_back_meanwhile_is_in_the_bound() {
    let saving = |ring: Ring| {
        let mut script = script(ring, sum(READ));
        lags(&mut script, LagKind::Unreaped, 50, 20);
        let stack = script.stack(&["main", "serve", "compress"]);
        let standing = RingSample {
            ring: 1,
            tid: TID,
            unreaped: 4,
            pending: 1,
            ..RingSample::default()
        };
        script.ring_samples((stack, 0), &standing, 100);
        let finding = found(&script)
            .into_iter()
            .find(|finding| finding.code.name() == "uring-unreaped");
        finding
            .expect("completions that lie there")
            .saving
            .at_most_ns
    };
    let held_back = Ring {
        held_back_ns: 100 * S,
        queued_low_ns: S,
        ..unreaped()
    };
    assert_eq!(saving(held_back.clone()), 350 * S);
    // Most of it shows in the queue.
    let published = Ring {
        queued_low_ns: 90 * S,
        queued_high_ns: 110 * S,
        ..held_back
    };
    assert_eq!(saving(published), 250 * S);
}

#[test]
fn sends_that_lie_there_hurt_only_when_slots_are_short() {
    let mut healthy = script(unreaped(), sum(SEND));
    lags(&mut healthy, LagKind::Unreaped, 50, 20);
    assert_eq!(codes(&healthy), NOTHING);
    let full = Ring {
        at_depth_ns: 9 * S,
        ..unreaped()
    };
    let mut full = script(full, sum(SEND));
    lags(&mut full, LagKind::Unreaped, 50, 20);
    assert_eq!(codes(&full), ["uring-unreaped"]);
}

#[test]
fn what_may_have_been_taken_at_once_is_not_unreaped() {
    let uncertain = Ring {
        unreaped_low_ns: S,
        unreaped_high_ns: 250 * S,
        ..ring()
    };
    let mut script = script(uncertain, sum(READ));
    lags(&mut script, LagKind::Unreaped, 50, 2);
    assert_eq!(codes(&script), NOTHING);
}

#[test]
fn sends_that_lie_unreaped_are_not_blamed_for_slots_that_sockets_hold() {
    let full = Ring {
        at_depth_ns: 9 * S,
        ..unreaped()
    };
    let longer = Sum {
        kernel_ns: 300 * S,
        polled_ns: 300 * S,
        ..blocked()
    };
    let mut held = script(full, longer);
    lags(&mut held, LagKind::Unreaped, 50, 20);
    let stack = held.stack(&["main", "serve", "compress"]);
    let standing = RingSample {
        ring: 1,
        tid: TID,
        unreaped: 4,
        ..RingSample::default()
    };
    held.ring_samples((stack, 0), &standing, 1_000);
    assert_eq!(codes(&held), NOTHING);
}

/// A server: its operations wait for peers, and a few completions lie there for 100 ms.
fn server() -> Script {
    let waiting = Sum {
        kernel_ns: 1_000 * S,
        polled: 9_000,
        ..sum(27)
    };
    let few = Ring {
        unreaped_low_ns: S / 2,
        unreaped_high_ns: S,
        ..ring()
    };
    script(few, waiting)
}

#[test]
fn a_server_whose_loop_sleeps_elsewhere_at_times() {
    let mut script = server();
    let stack = script.stack(&["main", "render_report", "nanosleep"]);
    for time in 0..5 {
        script
            .wait(TID, 35, time * 100, time * 100 + 99)
            .stack(stack)
            .done();
    }
    lags(&mut script, LagKind::Unreaped, 5, 90);
    assert_eq!(codes(&script), ["uring-unreaped"]);
}

#[test]
fn a_server_that_is_kept_from_its_cpu_with_completions_lying_there_at_other_times() {
    let serving = RingSample {
        ring: 1,
        tid: TID,
        unreaped: 4,
        ..RingSample::default()
    };
    let found_with = |at_ms: u64| {
        let mut script = server();
        lags(&mut script, LagKind::Unreaped, 5, 90);
        let stack = script.stack(&["main", "serve"]);
        for time in 0..5 {
            let sample = RingSample {
                at_ns: ms(time * 100 + at_ms),
                ..serving.clone()
            };
            script.ring_samples((stack, 0), &sample, 12);
        }
        codes(&script)
    };
    assert_eq!(found_with(40), ["uring-unreaped"]);
    assert_eq!(found_with(95), NOTHING);
}

#[test]
fn a_server_that_is_held_up_while_it_submits_or_by_interrupts() {
    let found_in = |kernel: &[&str]| {
        let mut script = server();
        lags(&mut script, LagKind::Unreaped, 5, 90);
        let user_stack = script.stack(&["main", "serve"]);
        let kernel_stack = script.stack(kernel);
        for time in 0..5 {
            let sample = RingSample {
                ring: 1,
                tid: TID,
                unreaped: 4,
                at_ns: ms(time * 100 + 40),
                ..RingSample::default()
            };
            script.ring_samples((user_stack, kernel_stack), &sample, 12);
        }
        codes(&script)
    };
    let submits = [
        "__x64_sys_io_uring_enter",
        "io_submit_sqes",
        "io_wq_enqueue",
    ];
    assert_eq!(found_in(&submits), NOTHING);
    let interrupted = ["asm_sysvec_apic_timer_interrupt", "handle_softirqs"];
    assert_eq!(found_in(&interrupted), NOTHING);
    let elsewhere = ["__x64_sys_fsync", "ext4_sync_file"];
    assert_eq!(found_in(&elsewhere), ["uring-unreaped"]);
}

#[test]
fn a_server_whose_loop_waits_for_a_cpu_or_for_more_completions() {
    let mut starved = server();
    lags(&mut starved, LagKind::Unreaped, 5, 90);
    assert_eq!(codes(&starved), NOTHING);
    let mut batching = server();
    for time in 0..5 {
        batching.wait(TID, 426, time * 100, time * 100 + 99).done();
    }
    lags(&mut batching, LagKind::Unreaped, 5, 90);
    assert_eq!(codes(&batching), NOTHING);
}

/// A program with few operations, whose thread does something else for 790 ms.
fn few(opcode: u32, times: u64, each_ms: u64, call: u32) -> Vec<&'static str> {
    codes(&of_few(opcode, times, each_ms, call))
}

fn of_few(opcode: u32, times: u64, each_ms: u64, call: u32) -> Script {
    let lay_ns = times * each_ms * MS;
    let few = Ring {
        submitted: times,
        completed: times,
        finished: times,
        reaped: times,
        unreaped_low_ns: lay_ns,
        unreaped_high_ns: lay_ns,
        slot_ns: lay_ns,
        ..ring()
    };
    let its = Sum {
        completed: times,
        timed: times,
        kernel_ns: times * MS,
        ..sum(opcode)
    };
    let mut script = script(few, its);
    for time in 0..times {
        let from = time * 1000;
        script.wait(TID, call, from, from + each_ms).done();
        script.ring_lag(&Lag {
            ring: 1,
            kind: LagKind::Unreaped,
            from_ns: ms(from),
            low_ns: each_ms * MS,
            high_ns: (each_ms + 5) * MS,
            opcode,
            tid: TID,
            ..Lag::default()
        });
    }
    script
}

#[test]
fn a_completion_that_lies_there_for_very_long() {
    const NANOSLEEP: u32 = 35;
    assert_eq!(few(READ, 1, 790, NANOSLEEP), ["uring-unreaped"]);
    assert_eq!(few(READ, 2, 120, NANOSLEEP), ["uring-unreaped"]);
    assert_eq!(few(READ, 1, 400, NANOSLEEP), NOTHING);
    assert_eq!(few(READ, 5, 90, NANOSLEEP), NOTHING);
    assert_eq!(few(READ, 1, 790, IO_URING_ENTER), NOTHING);
    // Whoever logs need not know when that was written.
    assert_eq!(few(23, 2, 790, NANOSLEEP), NOTHING);
}

/// What counts is for how long a request waited, and not how many operations there are, nor of
/// which kind.
#[test]
fn a_completion_that_lies_there_for_most_of_a_request() {
    const NANOSLEEP: u32 = 35;
    let with_request = |tid: u32, until_ms: u64, call: u32| {
        let mut script = of_few(23, 1, 60, call);
        script.thread(TID + 1, "other");
        script
            .request(1)
            .ready(0)
            .read(0, tid)
            .answered(until_ms, tid);
        codes(&script).contains(&"uring-unreaped")
    };
    assert!(with_request(TID, 70, NANOSLEEP));
    assert!(!with_request(TID, 70, IO_URING_ENTER));
    assert!(!with_request(TID, 150, NANOSLEEP), "less than half of it");
    assert!(!with_request(TID + 1, 70, NANOSLEEP), "another thread's");
}
