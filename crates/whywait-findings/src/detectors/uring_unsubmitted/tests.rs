use whywait_events::uring::{LagKind, Ring};

use crate::shared::rings::script::*;

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
    assert_eq!(findings[0].code.name(), "uring-unsubmitted");
    let cause = findings[0].cause.as_ref().expect("where it sleeps");
    assert!(cause.doing.contains("ppoll"), "{cause:?}");
    assert!(cause.stack.contains(&"wait_for_work".to_owned()));
}

#[test]
fn a_few_entries_that_lie_there_for_very_long() {
    let with = |times: u64, each_ms: u64| {
        let few = Ring {
            submitted: times,
            queued_low_ns: times * each_ms * MS,
            queued_high_ns: times * each_ms * MS,
            ..ring()
        };
        let mut script = script(few, sum(READ));
        lags(&mut script, LagKind::Unsubmitted, times, each_ms);
        codes(&script)
    };
    assert_eq!(with(1, 790), ["uring-unsubmitted"]);
    assert_eq!(with(2, 100), ["uring-unsubmitted"]);
    assert_eq!(with(1, 400), NOTHING);
    assert_eq!(with(20, 90), NOTHING);
}
