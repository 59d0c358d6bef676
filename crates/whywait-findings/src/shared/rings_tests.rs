//! Scripts of rings that must, or must not, be findings.

use whywait_events::uring::{Lag, LagKind, Ring, RingSample, SETUP_SQPOLL, Sum};
use whywait_model::script::{Script, TGID, ms};

use crate::shared::spinning::IO_URING_ENTER;
use crate::{Code, Finding, SavingKind, find};

const TID: u32 = 7;
const S: u64 = 1_000_000_000;
const MS: u64 = 1_000_000;
const READ: u32 = 22;
const SEND: u32 = 26;
const FSYNC: u32 = 3;
/// The system call.
const FSYNC_CALL: u32 = 74;
const PPOLL: u32 = 271;

/// Ten seconds of a ring whose operations take the kernel a millisecond, and whose thread sees to
/// them at once.
fn ring() -> Ring {
    Ring {
        id: 1,
        tgid: TGID,
        user_tid: TID,
        fd: 3,
        sq_entries: 8,
        cq_entries: 16,
        submitted: 10_000,
        batches: 2_000,
        completed: 10_000,
        finished: 10_000,
        reaped: 10_000,
        waits: 2_000,
        max_slots: 8,
        observed_ns: 10 * S,
        slot_ns: 20 * S,
        flight_ns: 19 * S,
        unreaped_high_ns: S / 10,
        ..Ring::default()
    }
}

fn sum(opcode: u32) -> Sum {
    Sum {
        ring: 1,
        opcode,
        completed: 10_000,
        timed: 10_000,
        kernel_ns: 10 * S,
        ..Sum::default()
    }
}

fn script(ring: Ring, sum: Sum) -> Script {
    let mut script = Script::new();
    script
        .thread(TID, "loop")
        .ring(ring, vec![sum])
        .ends(10_000);
    script
}

fn found(script: &Script) -> Vec<Finding> {
    find(&script.model())
}

fn codes(script: &Script) -> Vec<Code> {
    found(script)
        .into_iter()
        .map(|finding| finding.code)
        .collect()
}

fn lags(script: &mut Script, kind: LagKind, times: u64, each_ms: u64) {
    for time in 0..times {
        script.ring_lag(&Lag {
            ring: 1,
            kind,
            from_ns: ms(time * 100),
            low_ns: each_ms * MS,
            high_ns: (each_ms + 5) * MS,
            tid: TID,
            ..Lag::default()
        });
    }
}

#[test]
fn a_healthy_ring_is_not_mentioned() {
    assert_eq!(codes(&script(ring(), sum(READ))), []);
}

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
    assert_eq!(findings[0].code, Code::UringUnreaped);
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
    assert_eq!(found_with(100, 0), []);
    assert_eq!(found_with(70, 30), []);
    assert_eq!(found_with(60, 40), [Code::UringUnreaped]);
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
    assert_eq!(found_in(IO_URING_ENTER, 20), []);
    assert_eq!(found_in(FSYNC_CALL, 20), [Code::UringUnreaped]);
    // Half of the time it does something else.
    assert_eq!(found_in(IO_URING_ENTER, 10), [Code::UringUnreaped]);
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
            .find(|finding| finding.code == Code::UringUnreaped);
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
    assert_eq!(codes(&healthy), []);
    let full = Ring {
        at_depth_ns: 9 * S,
        ..unreaped()
    };
    let mut full = script(full, sum(SEND));
    lags(&mut full, LagKind::Unreaped, 50, 20);
    assert_eq!(codes(&full), [Code::UringUnreaped]);
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
    assert_eq!(codes(&script), []);
}

/// Entries lie there for 200 ms each.
fn unsubmitted() -> Ring {
    Ring {
        queued_low_ns: 2_000 * S,
        queued_high_ns: 2_100 * S,
        ..ring()
    }
}

#[test]
fn entries_that_lie_there_while_the_submitter_sleeps() {
    let mut script = script(unsubmitted(), sum(READ));
    let stack = script.stack(&["main", "wait_for_work", "ppoll"]);
    for time in 0..20 {
        script
            .wait(TID, PPOLL, time * 100, time * 100 + 99)
            .stack(stack)
            .done();
    }
    lags(&mut script, LagKind::Unsubmitted, 20, 90);
    let findings = found(&script);
    assert_eq!(findings.len(), 1, "{findings:#?}");
    assert_eq!(findings[0].code, Code::UringUnsubmitted);
    let cause = findings[0].cause.as_ref().expect("where it sleeps");
    assert!(cause.doing.contains("ppoll"), "{cause:?}");
    assert!(cause.stack.contains(&"wait_for_work".to_owned()));
}

#[test]
fn a_poller_that_sleeps_when_it_is_needed() {
    let asleep = Ring {
        flags: SETUP_SQPOLL,
        asleep_ns: 2 * S,
        ..unsubmitted()
    };
    let mut script = script(asleep, sum(READ));
    lags(&mut script, LagKind::Unsubmitted, 20, 90);
    assert_eq!(codes(&script), [Code::UringIdleSqpoll]);
}

#[test]
fn a_poller_that_burns_a_core() {
    let polled = Ring {
        flags: SETUP_SQPOLL,
        sqpoll_tid: 8,
        ..ring()
    };
    let mut burning = script(polled.clone(), sum(READ));
    // At 200 a second for ten seconds: 80 % of a core, 800 us for each operation.
    burning.poller_samples(1, 1_600);
    let findings = found(&burning);
    assert_eq!(findings.len(), 1, "{findings:#?}");
    assert_eq!(findings[0].code, Code::UringIdleSqpoll);
    assert_eq!(findings[0].saving.kind, SavingKind::Cpu);
    // As much for two million operations is what it is for.
    let busy = Ring {
        submitted: 2_000_000,
        ..polled
    };
    let mut busy = script(busy, sum(READ));
    busy.poller_samples(1, 1_600);
    assert_eq!(codes(&busy), []);
}

#[test]
fn slots_are_exhausted_only_for_a_thread_that_has_more_to_submit() {
    let full = Ring {
        at_depth_ns: 9 * S,
        stalled_waits: 1_500,
        ..ring()
    };
    assert_eq!(
        codes(&script(full.clone(), sum(READ))),
        [Code::UringSlotsExhausted]
    );
    // As many under way as there are slots, one more for each that completes: a benchmark.
    let closed = Ring {
        stalled_waits: 0,
        ..full.clone()
    };
    assert_eq!(codes(&script(closed, sum(READ))), []);
    let synchronous = Ring {
        sq_entries: 1,
        ..full.clone()
    };
    assert_eq!(codes(&script(synchronous, sum(READ))), []);
    // It had twice as many under way: the submission queue's entries are not what it stops at.
    let beyond = Ring {
        max_slots: 16,
        ..full
    };
    assert_eq!(codes(&script(beyond, sum(READ))), []);
}

#[test]
fn more_slots_save_no_more_than_the_ring_was_full_for() {
    let full = Ring {
        at_depth_ns: 9 * S,
        stalled_waits: 1_500,
        ..ring()
    };
    let mut script = script(full, sum(READ));
    let gain = |script: &Script| found(script)[0].subject["throughput_at_most_percent"].clone();
    // Nine tenths of the time are gone.
    assert_eq!(gain(&script), 900);
    assert_eq!(found(&script)[0].saving.at_most_ns, 9 * S);
    // The thread had a CPU for a quarter of the time: four times as much is all that it can do.
    let stack = script.stack(&["main", "serve"]);
    let first = RingSample {
        ring: 1,
        tid: TID,
        at_ns: ms(0),
        ..RingSample::default()
    };
    let last = RingSample {
        at_ns: ms(10_000),
        on_cpu_ns: 5 * S / 2,
        ..first.clone()
    };
    script
        .ring_samples((stack, 0), &first, 1)
        .ring_samples((stack, 0), &last, 1);
    assert_eq!(gain(&script), 300);
}

/// Sends that wait for a millisecond each for room in their socket's buffer.
fn blocked() -> Sum {
    Sum {
        polled: 10_000,
        polled_timed: 10_000,
        polled_ns: 10 * S,
        ..sum(SEND)
    }
}

#[test]
fn slots_that_a_socket_holds_are_not_the_loops() {
    let full = Ring {
        at_depth_ns: 9 * S,
        stalled_waits: 1_500,
        memory_limits: 3,
        ..ring()
    };
    let findings = found(&script(full.clone(), blocked()));
    assert_eq!(findings.len(), 1, "{findings:#?}");
    assert_eq!(findings[0].code, Code::UringSlotsExhausted);
    assert_eq!(findings[0].subject["held_by"], "socket");
    let said = |text: &str| {
        findings[0]
            .evidence
            .iter()
            .any(|item| item.text.contains(text))
    };
    assert!(said("held by the socket, not by the loop"), "{findings:#?}");
    assert!(said("3 sends met a limit"), "{findings:#?}");
    // Receiving waits for readiness as well; that is not a send buffer's matter.
    let receiving = Sum {
        opcode: 27,
        ..blocked()
    };
    let findings = found(&script(full, receiving));
    assert_eq!(findings[0].subject["held_by"], "kernel");
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
    assert_eq!(codes(&held), []);
}

#[test]
fn completions_that_found_no_room() {
    let overflown = Ring {
        overflows: 500,
        ..ring()
    };
    assert_eq!(codes(&script(overflown, sum(READ))), [Code::UringOverflow]);
}

#[test]
fn reads_that_are_punted_and_syncs_that_must_be() {
    let punted = |opcode| Sum {
        punted: 9_000,
        punted_timed: 9_000,
        punted_ns: 9 * S,
        ..sum(opcode)
    };
    assert_eq!(codes(&script(ring(), punted(READ))), [Code::UringPunted]);
    assert_eq!(codes(&script(ring(), punted(FSYNC))), []);
    // Workers take the CPU from the program that is to take the completions: how long those lay is
    // in the bound.
    let lay = Sum {
        marks: 1_000,
        mark_high_ns: S,
        ..punted(READ)
    };
    let findings = found(&script(ring(), lay));
    assert_eq!(findings[0].saving.at_most_ns, 18 * S);
}

/// A loop that is on the CPU for so many of 100 samples in `prepare_batch`, and for the rest in the
/// kernel.
fn busy_loop(in_function: u64, of_samples: u64) -> Script {
    busy_loop_with(0, 0, in_function, of_samples)
}

/// … while so many operations are with the kernel. It waited so often.
fn busy_loop_with(in_flight: u32, waits: u64, in_function: u64, of_samples: u64) -> Script {
    let ring = Ring { waits, ..ring() };
    let mut script = script(ring, sum(SEND));
    let prepare = script.stack(&["main", "prepare_batch", "memmove"]);
    let submit = script.stack(&["main", "submit_batch", "syscall"]);
    let first = RingSample {
        ring: 1,
        tid: TID,
        at_ns: ms(0),
        in_flight,
        ..RingSample::default()
    };
    // A sample is 5 ms of a CPU.
    let last = RingSample {
        at_ns: ms(10_000),
        on_cpu_ns: of_samples * 5 * MS,
        ..first.clone()
    };
    script
        .ring_samples((prepare, 0), &first, in_function)
        .ring_samples((submit, submit), &last, of_samples - in_function);
    script
}

#[test]
fn a_loop_whose_cpu_time_is_one_functions() {
    let script = busy_loop(1_200, 2_000);
    let model = script.model();
    let findings = find(&model);
    assert_eq!(findings.len(), 1, "{findings:#?}");
    assert_eq!(findings[0].code, Code::SerialWork);
    assert_eq!(findings[0].saving.kind, SavingKind::Throughput);
    // 1,200 samples, twice their standard error of 22, and a fifth of the 756 that are left,
    // against the rest of 605.
    assert_eq!(findings[0].subject["throughput_at_most_percent"], 230);
    assert!(findings[0].title.contains("60 % of its CPU time"));
}

#[test]
fn a_loop_that_waits_or_works_in_the_kernel_has_no_serial_work() {
    assert_eq!(codes(&busy_loop(200, 2_000)), [], "the kernel's work");
    assert_eq!(codes(&busy_loop(500, 800)), [], "not bound by its CPU");
}

#[test]
fn a_loop_that_only_looks_into_its_queue_has_no_serial_work() {
    let found = |in_flight: u32, waits: u64| codes(&busy_loop_with(in_flight, waits, 1_990, 2_000));
    assert_eq!(found(1, 0), []);
    assert_eq!(
        found(1, 5_000),
        [Code::SerialWork],
        "it waits for what there is to do"
    );
    assert_eq!(
        found(64, 300),
        [Code::SerialWork],
        "it takes what there is by the hundred, works on it, and waits for more"
    );
    assert_eq!(
        found(0, 0),
        [Code::SerialWork],
        "it works on what it has taken"
    );
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
    assert_eq!(codes(&script), [Code::UringUnreaped]);
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
    assert_eq!(found_with(40), [Code::UringUnreaped]);
    assert_eq!(found_with(95), []);
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
    assert_eq!(found_in(&submits), []);
    let interrupted = ["asm_sysvec_apic_timer_interrupt", "handle_softirqs"];
    assert_eq!(found_in(&interrupted), []);
    let elsewhere = ["__x64_sys_fsync", "ext4_sync_file"];
    assert_eq!(found_in(&elsewhere), [Code::UringUnreaped]);
}

#[test]
fn a_server_whose_loop_waits_for_a_cpu_or_for_more_completions() {
    let mut starved = server();
    lags(&mut starved, LagKind::Unreaped, 5, 90);
    assert_eq!(codes(&starved), []);
    let mut batching = server();
    for time in 0..5 {
        batching.wait(TID, 426, time * 100, time * 100 + 99).done();
    }
    lags(&mut batching, LagKind::Unreaped, 5, 90);
    assert_eq!(codes(&batching), []);
}
