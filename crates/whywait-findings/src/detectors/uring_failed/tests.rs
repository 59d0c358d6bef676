use whywait_events::uring::{Op, Ring, Sum};
use whywait_model::script::Script;

use crate::Severity;
use crate::shared::rings::script::*;

const STATX: u32 = 21;
const CANCEL: u32 = 14;
const RECV: u32 = 27;
const EBADF: i32 = 9;

/// Of 500 operations of an opcode so many fail with each of these errors.
fn fails(opcode: u32, errors: &[(i32, u64)]) -> Script {
    fails_of(500, opcode, errors)
}

/// … of so many.
fn fails_of(all: u64, opcode: u32, errors: &[(i32, u64)]) -> Script {
    let failed = errors.iter().map(|(_, n)| n).sum();
    let few = Ring {
        submitted: 500,
        completed: 500,
        finished: 500,
        reaped: 500,
        unreaped_high_ns: 0,
        failed,
        ..ring()
    };
    let sum = Sum {
        completed: all,
        timed: all,
        kernel_ns: S / 2,
        failed,
        ..sum(opcode)
    };
    let mut script = script(few, sum);
    for (errno, times) in errors {
        for time in 0..*times {
            script.ring_op(&Op {
                ring: 1,
                submit_ns: time * MS,
                complete_ns: time * MS + 1,
                opcode,
                fd: 7,
                result: -errno,
                tid: TID,
                ..Op::default()
            });
        }
    }
    script
}

#[test]
fn operations_on_a_descriptor_that_is_closed() {
    let findings = found(&fails(READ, &[(EBADF, 500)]));
    assert_eq!(findings.len(), 1, "{findings:#?}");
    let finding = &findings[0];
    assert_eq!(finding.code.name(), "uring-failed");
    assert_eq!(finding.severity, Severity::Warning);
    let title = "500 of 500 read operations of thread loop (7) fail with EBADF";
    assert_eq!(finding.title, title);
    assert!(finding.evidence[0].text.contains("on descriptor 7"));
}

#[test]
fn a_few_of_many_and_all_of_few() {
    assert_eq!(codes(&fails(READ, &[(EBADF, 10)])), ["uring-failed"]);
    assert_eq!(codes(&fails(READ, &[(EBADF, 9)])), NOTHING);
    assert_eq!(codes(&fails_of(2_000, READ, &[(EBADF, 10)])), NOTHING);
    assert_eq!(codes(&fails_of(3, READ, &[(EBADF, 3)])), ["uring-failed"]);
    assert_eq!(codes(&fails_of(2, READ, &[(EBADF, 2)])), NOTHING);
}

/// Only some have rows, of which most are normal.
#[test]
fn what_has_no_row_counts_in_proportion() {
    let mut script = fails(READ, &[(EBADF, 5), (104, 15)]);
    script.ring(
        Ring {
            failed: 400,
            ..ring()
        },
        vec![Sum {
            completed: 500,
            failed: 400,
            ..sum(READ)
        }],
    );
    for result in [-EBADF, -104, -104, -104] {
        script.ring_op(&Op {
            ring: 1,
            opcode: READ,
            result,
            ..Op::default()
        });
    }
    let findings = found(&script);
    assert!(
        findings[0].title.starts_with("100 of 500 "),
        "{findings:#?}"
    );
}

#[test]
fn errors_that_are_part_of_the_use() {
    for (opcode, errno) in [
        (READ, 11),
        (READ, 4),
        (READ, 125),
        (11, 62),
        (CANCEL, 2),
        (CANCEL, 114),
        (SEND, 32),
        (SEND, 104),
        (RECV, 104),
        (RECV, 105),
        (13, 103),
        (34, 107),
    ] {
        let found = codes(&fails(opcode, &[(errno, 500)]));
        assert_eq!(found, NOTHING, "{opcode} {errno}");
    }
    // … of that use.
    assert_eq!(codes(&fails(READ, &[(2, 500)])), ["uring-failed"]);
    assert_eq!(codes(&fails(13, &[(24, 500)])), ["uring-failed"]);
}

#[test]
fn asking_for_files_that_are_not_there() {
    let findings = found(&fails(STATX, &[(2, 490)]));
    assert_eq!(findings.len(), 1);
    assert_eq!(findings[0].severity, Severity::Note);
    assert_eq!(codes(&fails(STATX, &[(2, 300)])), NOTHING);
    assert_eq!(codes(&fails_of(49, STATX, &[(2, 49)])), NOTHING);
}
