use whywait_events::uring::{LagKind, Ring, SETUP_SQPOLL};

use crate::SavingKind;
use crate::shared::rings::script::*;

#[test]
fn a_poller_that_sleeps_when_it_is_needed() {
    let asleep = Ring {
        flags: SETUP_SQPOLL,
        asleep_ns: 2 * S,
        ..unsubmitted()
    };
    let mut script = script(asleep, sum(READ));
    lags(&mut script, LagKind::Unsubmitted, 20, 90);
    assert_eq!(codes(&script), ["uring-idle-sqpoll"]);
}

/// Two entries are published and never submitted.
#[test]
fn a_poller_that_nobody_wakes() {
    let with_for = |asleep_ms: u64, observed_s: u64| {
        let never = Ring {
            observed_ns: observed_s * S,
            flags: SETUP_SQPOLL,
            submitted: 0,
            completed: 0,
            finished: 0,
            asleep_ns: asleep_ms * MS,
            queued_low_ns: 2 * asleep_ms * MS,
            queued_high_ns: 2 * asleep_ms * MS,
            ..ring()
        };
        found(&script(never, sum(READ)))
    };
    let with = |asleep_ms: u64| with_for(asleep_ms, 10);
    let findings = with(790);
    assert_eq!(findings.len(), 1, "{findings:#?}");
    assert_eq!(findings[0].code.name(), "uring-idle-sqpoll");
    assert!(findings[0].title.ends_with("lay published for 790 ms"));
    assert_eq!(with(99), []);
    assert_eq!(with_for(790, 80), []);
    assert_eq!(with_for(99, 1), []);
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
    assert_eq!(findings[0].code.name(), "uring-idle-sqpoll");
    assert_eq!(findings[0].saving.kind, SavingKind::Cpu);
    // As much for two million operations is what it is for.
    let busy = Ring {
        submitted: 2_000_000,
        ..polled
    };
    let mut busy = script(busy, sum(READ));
    busy.poller_samples(1, 1_600);
    assert_eq!(codes(&busy), NOTHING);
    // Nineteen samples of 95 ms may be chance.
    let short = Ring {
        submitted: 100,
        observed_ns: S / 10,
        flags: SETUP_SQPOLL,
        sqpoll_tid: 8,
        ..ring()
    };
    let mut short = script(short, sum(READ));
    short.poller_samples(1, 19);
    assert_eq!(codes(&short), NOTHING);
}
