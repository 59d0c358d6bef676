use whywait_events::uring::{Op, Pending, Ring};
use whywait_model::script::{Script, ms};

use crate::shared::rings::script::*;

const ACCEPT: u32 = 13;
const RECV: u32 = 27;
const POLL: u32 = 6;
const PIPE: u32 = 1;
const SOCKET: u32 = 12;
const STREAM: u32 = 1;
const DATAGRAM: u32 = 2;

/// Operations that the kernel still had after ten seconds, the n-th submitted at `n * every_ms`.
fn pending(times: u64, every_ms: u64, like: impl Fn(u64) -> Pending) -> Script {
    let mut script = script(ring(), sum(READ));
    for n in 0..times {
        script.ring_pending(&Pending {
            ring: 1,
            submit_ns: ms(n * every_ms),
            seen_ns: ms(10_000),
            tid: TID,
            in_flight: 100,
            ..like(n)
        });
    }
    script
}

/// One on each of several connections that were closed.
fn closed(n: u64) -> Pending {
    Pending {
        opcode: RECV,
        fd: 10 + n as i32,
        kind: SOCKET,
        socket_type: STREAM,
        closed: true,
        ..Pending::default()
    }
}

/// All on one pipe.
fn piled(_: u64) -> Pending {
    Pending {
        opcode: READ,
        fd: 5,
        kind: PIPE,
        ..Pending::default()
    }
}

#[test]
fn operations_on_descriptors_that_were_closed() {
    let findings = found(&pending(20, 100, closed));
    assert_eq!(findings.len(), 1, "{findings:#?}");
    assert_eq!(findings[0].code.name(), "uring-leaked");
    assert_eq!(findings[0].subject["operations"], 20);
    assert!(findings[0].evidence[0].text.contains("has closed since"));
    assert_eq!(codes(&pending(2, 100, closed)), NOTHING);
}

#[test]
fn operations_that_pile_up_on_a_descriptor() {
    assert_eq!(codes(&pending(16, 0, piled)), ["uring-leaked"]);
    assert_eq!(codes(&pending(2, 0, piled)), NOTHING);
    // Where some end, the others wait for their turn.
    let mut some_end = pending(16, 0, piled);
    some_end.ring_op(&Op {
        ring: 1,
        opcode: READ,
        fd: 5,
        result: 8,
        ..Op::default()
    });
    assert_eq!(codes(&some_end), NOTHING);
}

#[test]
fn idle_connections_and_what_waits_by_design() {
    let idle = |n| Pending {
        closed: false,
        ..closed(n)
    };
    assert_eq!(codes(&pending(100, 10, idle)), NOTHING);
    let accepts = |n| Pending {
        opcode: ACCEPT,
        socket_type: STREAM,
        kind: SOCKET,
        ..piled(n)
    };
    assert_eq!(codes(&pending(16, 100, accepts)), NOTHING);
}

#[test]
fn datagrams_and_polls_may_be_posted_ahead() {
    for opcode in [RECV, POLL] {
        let datagrams = |n| Pending {
            opcode,
            kind: SOCKET,
            socket_type: DATAGRAM,
            ..piled(n)
        };
        assert_eq!(codes(&pending(16, 0, datagrams)), NOTHING);
        assert_eq!(codes(&pending(16, 100, datagrams)), ["uring-leaked"]);
    }
}

#[test]
fn where_ends_were_missed_nothing_is_said() {
    let mut overflown = pending(20, 100, closed);
    let others = Ring {
        overflows: 1,
        ..ring()
    };
    overflown.ring(others, vec![sum(READ)]);
    for n in 0..20 {
        overflown.ring_pending(&Pending {
            ring: 1,
            in_flight: 100,
            ..closed(n)
        });
    }
    assert!(!codes(&overflown).contains(&"uring-leaked"));
    // More than are under way.
    assert_eq!(codes(&pending(101, 10, closed)), NOTHING);
}

/// Seen under way, and over in the end.
#[test]
fn operations_that_end_later() {
    let mut late = script(ring(), sum(READ));
    for n in 0..20 {
        late.ring_op(&Op {
            ring: 1,
            submit_ns: ms(n * 100),
            complete_ns: ms(n * 100 + 5_000),
            opcode: RECV,
            fd: 10 + n as i32,
            result: -125,
            ..Op::default()
        });
    }
    for n in 0..20 {
        late.ring_pending(&Pending {
            ring: 1,
            submit_ns: ms(n * 100),
            seen_ns: ms(4_000),
            in_flight: 100,
            ..closed(n)
        });
    }
    assert_eq!(codes(&late), NOTHING);
}
