use whywait_events::uring::{Ring, RingSample};
use whywait_model::script::{Script, ms};

use crate::facts::Facts;
use crate::find;
use crate::shared::rings::script::*;
use crate::{SavingKind, Severity};

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

/// A loop that was seen so often, always in `prepare_batch`, until it was closed.
fn short_loop(samples: u64) -> Script {
    let observed_ns = samples * 5 * MS;
    let mut script = script(
        Ring {
            observed_ns,
            waits: 1,
            ..ring()
        },
        sum(SEND),
    );
    let prepare = script.stack(&["main", "prepare_batch", "memmove"]);
    let first = RingSample {
        ring: 1,
        tid: TID,
        at_ns: ms(0),
        ..RingSample::default()
    };
    let last = RingSample {
        at_ns: ms(samples * 5),
        on_cpu_ns: observed_ns,
        ..first.clone()
    };
    script
        .ring_samples((prepare, 0), &first, 1)
        .ring_samples((prepare, 0), &last, samples - 1);
    script
}

#[test]
fn a_function_with_a_quarter_of_the_cpu_time_is_a_note() {
    let severity = |in_function| found(&busy_loop(in_function, 2_000))[0].severity;
    assert_eq!(severity(500), Severity::Note);
    assert_eq!(severity(700), Severity::Warning);
}

#[test]
fn a_loop_whose_cpu_time_is_one_functions() {
    let script = busy_loop(1_200, 2_000);
    let model = script.model();
    let findings = find(&Facts::of(&model));
    assert_eq!(findings.len(), 1, "{findings:#?}");
    assert_eq!(findings[0].code.name(), "serial-work");
    assert_eq!(findings[0].saving.kind, SavingKind::Throughput);
    // 1,200 samples, twice their standard error of 22, and a fifth of the 756 that are left,
    // against the rest of 605.
    assert_eq!(findings[0].subject["throughput_at_most_percent"], 230);
    assert!(findings[0].title.contains("60 % of its CPU time"));
}

#[test]
fn a_loop_that_waits_or_works_in_the_kernel_has_no_serial_work() {
    assert_eq!(codes(&busy_loop(200, 2_000)), NOTHING, "the kernel's work");
    assert_eq!(codes(&busy_loop(500, 800)), NOTHING, "not bound by its CPU");
    assert_eq!(codes(&short_loop(29)), NOTHING, "a few samples");
    assert_eq!(codes(&short_loop(30)), ["serial-work"]);
}

#[test]
fn a_loop_that_only_looks_into_its_queue_has_no_serial_work() {
    let found = |in_flight: u32, waits: u64| codes(&busy_loop_with(in_flight, waits, 1_990, 2_000));
    assert_eq!(found(1, 0), NOTHING);
    assert_eq!(
        found(1, 5_000),
        ["serial-work"],
        "it waits for what there is to do"
    );
    assert_eq!(
        found(64, 300),
        ["serial-work"],
        "it takes what there is by the hundred, works on it, and waits for more"
    );
    assert_eq!(
        found(0, 0),
        ["serial-work"],
        "it works on what it has taken"
    );
}
