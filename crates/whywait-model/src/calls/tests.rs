use whywait_events::{Exchange, PeerSums};

use crate::Model;
use crate::script::{Script, TGID, ms};

const RECVFROM: u32 = 45;
const POLL: u32 = 7;

fn peer() -> PeerSums {
    PeerSums {
        id: 1,
        address: "127.0.0.1".to_owned(),
        port: 7001,
        tgid: 55,
        process: "python3".to_owned(),
        count: 3,
        slow: 2,
        total_ns: 401_000_000,
        first_ns: 400_000_000,
        max_ns: 220_000_000,
        rtt_min_us: 3000,
        connections: 1,
        latency: [(150, 1), (205, 2)].into(),
        ..PeerSums::default()
    }
}

/// From one thread, and read by it.
fn call(seq: u32, from_ms: u64, to_ms: u64) -> Exchange {
    Exchange {
        socket: 9,
        seq,
        tgid: TGID,
        fd: 5,
        peer: 1,
        first_send_ns: ms(from_ms),
        last_send_ns: ms(from_ms),
        first_read_ns: Some(ms(to_ms)),
        last_read_ns: Some(ms(to_ms)),
        send_tid: 1,
        read_tid: 1,
        ..Exchange::default()
    }
}

#[test]
fn a_peers_title_is_no_part_of_its_name() {
    let titled = PeerSums {
        process: "postgres: main".to_owned(),
        ..peer()
    };
    let mut script = Script::new();
    script.peer(&titled).exchange(&call(1, 10, 200)).ends(1000);
    assert_eq!(
        script.model().calls()[0].name(),
        "127.0.0.1:7001 (postgres)"
    );
}

#[test]
fn percentiles_are_exact_where_slow_calls_have_rows() {
    let mut script = Script::new();
    script
        .peer(&peer())
        .exchange(&call(1, 10, 200))
        .exchange(&call(1, 10, 210))
        .exchange(&call(2, 300, 520))
        .ends(1000);
    let model = script.model();
    let rows = model.calls();
    let [row] = rows.as_slice() else {
        panic!("one peer: {rows:?}");
    };
    assert_eq!(row.name(), "127.0.0.1:7001 (python3)");
    // The later row of the first replaces the earlier one.
    assert_eq!(row.p50_ns, Some(200_000_000));
    assert_eq!(row.p99_ns, Some(220_000_000));
    assert!((row.in_flight - 0.401).abs() < 1e-9 && (row.rate - 3.0).abs() < 1e-9);
    assert_eq!(
        (row.network_ns, row.reading_ns),
        (Some(3_000_000), 1_000_000)
    );
}

#[test]
fn without_all_rows_percentiles_come_from_buckets() {
    let mut sums = peer();
    sums.latency = [(300, 3)].into();
    sums.max_ns = u64::MAX;
    let model = Script::new()
        .peer(&sums)
        .exchange(&call(1, 10, 210))
        .model();
    let p50_ns = model.calls()[0].p50_ns.expect("there are calls");
    // 8 to the power of two: bucket 300 begins with 2^39 + 4 * 2^36.
    assert!(((1 << 39)..(1 << 40)).contains(&p50_ns), "{p50_ns}");
}

/// The peer for which thread 1 slept, in the script's only wait.
fn awaited(model: &Model) -> Option<String> {
    let wait = model.threads[&1]
        .timeline
        .waits()
        .first()
        .expect("it slept");
    model.awaited_peer(wait).map(|peer| peer.to_string())
}

#[test]
fn a_sleep_for_the_descriptor_of_a_call_names_its_peer() {
    // Two that are polled: the socket, and what wakes the program.
    for (syscall, args) in [(RECVFROM, [5, 0]), (POLL, [5, 1]), (POLL, [5, 2])] {
        let mut script = Script::new();
        script
            .thread(1, "worker")
            .peer(&peer())
            .exchange(&call(1, 10, 210));
        script
            .wait(1, syscall, 11, 209)
            .args(args)
            .by_softirq()
            .done();
        let name = awaited(&script.model());
        assert_eq!(name.as_deref(), Some("127.0.0.1:7001 (python3)"));
    }
}

#[test]
fn what_may_be_for_something_else_names_no_peer() {
    let other_descriptor = (RECVFROM, [6, 0], call(1, 10, 210));
    let two_sockets = (POLL, [0x7fff_0000_1000, 2], call(1, 10, 210));
    let several_descriptors = (POLL, [5, 3], call(1, 10, 210));
    let before_it_was_sent = (RECVFROM, [5, 0], call(1, 12, 210));
    let after_its_reply = (RECVFROM, [5, 0], call(1, 10, 150));
    let read_by_another = (
        RECVFROM,
        [5, 0],
        Exchange {
            read_tid: 2,
            ..call(1, 10, 210)
        },
    );
    let while_it_is_sent = (
        RECVFROM,
        [5, 0],
        Exchange {
            last_send_ns: ms(100),
            ..call(1, 10, 210)
        },
    );
    for (syscall, args, exchange) in [
        other_descriptor,
        two_sockets,
        several_descriptors,
        before_it_was_sent,
        after_its_reply,
        read_by_another,
        while_it_is_sent,
    ] {
        let mut script = Script::new();
        script.thread(1, "worker").peer(&peer()).exchange(&exchange);
        script
            .wait(1, syscall, 11, 209)
            .args(args)
            .by_softirq()
            .done();
        assert_eq!(awaited(&script.model()), None, "{exchange:?}");
    }
}

#[test]
fn a_call_without_a_reply_is_waited_for_by_its_sender() {
    let open = Exchange {
        first_read_ns: None,
        last_read_ns: None,
        read_tid: 0,
        ..call(1, 10, 0)
    };
    let mut script = Script::new();
    script.thread(1, "worker").peer(&peer()).exchange(&open);
    script
        .wait(1, RECVFROM, 11, 0)
        .args([5, 0])
        .forever()
        .done();
    script.ends(500);
    assert!(awaited(&script.model()).is_some());
}

/// Whether thread 1, which reads from a TCP stream at this descriptor, waits for a client.
fn awaits_a_client(fd: u64, over_budget: u64) -> bool {
    let mut script = Script::new();
    script
        .thread(1, "worker")
        .peer(&peer())
        .exchange(&call(1, 10, 210))
        .counter("exchanges.over-budget", over_budget);
    let kernel = script.stack(&["do_syscall_64", "tcp_recvmsg", "sk_wait_data"]);
    script
        .wait(1, RECVFROM, 300, 500)
        .args([fd, 0])
        .kernel(kernel)
        .by_softirq()
        .done();
    let model = script.model();
    model.awaits_a_client(&model.threads[&1].timeline.waits()[0])
}

#[test]
fn who_reads_where_no_call_went_out_waits_for_a_client() {
    assert!(awaits_a_client(6, 0));
    assert!(!awaits_a_client(5, 0), "calls went out there");
    assert!(!awaits_a_client(6, 1), "not all calls are known");
}

#[test]
fn calls_of_a_statement_are_counted_by_those_with_a_row() {
    use whywait_events::NameKind::Statement;
    let mut script = Script::new();
    for (seq, name) in [(1, "SELECT ?"), (2, "SELECT ?"), (3, "COMMIT")] {
        let at = u64::from(seq) * 100;
        let short = Exchange {
            first_read_ns: Some(ms(at) + 200_000),
            last_read_ns: Some(ms(at) + 200_000),
            ..call(seq, at, at)
        };
        script.exchange(&short).name((9, seq), Statement, name);
    }
    for seq in 4..6 {
        let at = u64::from(seq) * 100;
        script.exchange(&call(seq, at, at + 50));
    }
    script.name((9, 4), Statement, "SELECT ?");
    for socket in 1..=2 {
        script.request(socket).ready(1).read(1, 1).answered(900, 1);
    }
    let sums = PeerSums {
        count: 302,
        ..peer()
    };
    let model = script.peer(&sums).ends(1000).model();
    let rows = model.statements();
    let of = |name: &str| {
        rows.iter()
            .find(|row| row.name == name)
            .expect("it is there")
    };
    // Of 300 short calls three have a row, two of which are of this name; and one slow one is.
    let select = of("SELECT ?");
    assert_eq!((select.calls, select.named, select.slow), (201, 3, 1));
    assert_eq!(select.per_request, Some(100.5));
    assert_eq!((select.p50_ns, select.max_ns), (200_000, 50_000_000));
    assert_eq!((of("COMMIT").calls, of("COMMIT").slow), (100, 0));
    assert_eq!(select.peer, "127.0.0.1:7001 (python3)");
}
