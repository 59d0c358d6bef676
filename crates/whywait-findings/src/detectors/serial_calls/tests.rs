use super::*;
use crate::shared::queues::script::{LOOP, call, peer};
use whywait_events::PeerSums;
use whywait_model::script::{Script, TGID, ms};

/// Clients whose requests each make so many calls in a row of 10 ms each, twelve times.
fn rows(clients: u64, calls: u64) -> Script {
    rows_of(clients, calls, false)
}

/// The same, with the tasks that made them, or without.
fn rows_of(clients: u64, calls: u64, with_tasks: bool) -> Script {
    let mut script = Script::new();
    script.thread(LOOP, "loop");
    let calls = in_process(&mut script, (TGID, LOOP), clients, calls, with_tasks);
    script.peer(&peer(calls, clients));
    script.ends(10_000);
    script
}

/// Those of a process with one thread; gives how many calls that are.
fn in_process(
    script: &mut Script,
    (tgid, tid): (u32, u32),
    clients: u64,
    calls: u64,
    with_tasks: bool,
) -> u64 {
    let task = |client: u64| u32::from(with_tasks) * (1 + client as u32);
    let first_socket = 1_000_000 * u64::from(tid);
    let mut seq = 0;
    for round in 0..12 {
        for client in 0..clients {
            let at = 10 + round * (10 * calls + 20) + client;
            for n in 0..calls {
                seq += 1;
                script.exchange(&Exchange {
                    task: task(client),
                    tgid,
                    send_tid: tid,
                    read_tid: tid,
                    ..call(first_socket + client, seq, at + 10 * n, at + 10 * n + 10)
                });
            }
            let request = script.request(first_socket + 1_000 * client + round);
            let request = request.of(tgid).epoll(7).ready(at).task(task(client));
            request.read(at, tid).answered(at + 10 * calls, tid);
        }
    }
    seq.into()
}

/// Four clients of one thread that serves one request at a time, each with ten calls of 10 ms.
#[test]
fn requests_that_queue_for_the_thread_are_spared_others_calls() {
    let mut script = Script::new();
    script.thread(LOOP, "worker");
    let mut seq = 0;
    for number in 0..24_u64 {
        let at = 10 + 100 * number;
        for n in 0..10 {
            seq += 1;
            script.exchange(&Exchange {
                send_tid: LOOP,
                read_tid: LOOP,
                ..call(1_000_000, seq, at + 10 * n, at + 10 * n + 10)
            });
        }
        // The client had its last answer three requests ago.
        let ready = if number < 4 { 10 } else { at - 300 };
        let request = script.request(1_000_000 + 1_000 * (number % 4) + number);
        request.ready(ready).read(at, LOOP).answered(at + 100, LOOP);
    }
    script.peer(&peer(seq.into(), 1));
    script.ends(10_000);
    let findings = detect(&Facts::of(&script.model()));
    assert_eq!(findings.len(), 1, "{findings:#?}");
    let finding = &findings[0];
    assert_eq!(finding.severity, Severity::Warning);
    let each = &finding.saving.each_at_most_ns;
    let typical = each[each.len() / 2] / 1_000_000;
    assert!((350..=390).contains(&typical), "{typical} ms of 400");
    let said = |text: &str| finding.evidence.iter().any(|one| one.text.contains(text));
    assert!(said("for a worker"), "{finding:#?}");
}

#[test]
fn a_request_that_is_alone_shows_all_its_calls() {
    let findings = detect(&Facts::of(&rows(1, 10).model()));
    assert_eq!(findings.len(), 1, "{findings:#?}");
    let finding = &findings[0];
    assert_eq!(finding.confidence, Confidence::High);
    assert_eq!(
        finding.title,
        "12 slow requests made 10 calls each to 127.0.0.1:7001 (python3), one after another: \
         100 ms of 100 ms (typically)"
    );
    assert_eq!(finding.saving.each_at_most_ns, [90_000_000; 12]);
}

/// Each fourth request of four clients makes twenty calls in a row, and the others one.
#[test]
fn requests_beside_them_may_make_calls_as_well() {
    let mut script = Script::new();
    script.thread(LOOP, "loop");
    let (mut seq, mut number) = (0, 0);
    for client in 0..4_u64 {
        let mut at = 10 + 3 * client;
        for round in 0..40 {
            let calls = if (round + client) % 4 == 0 { 20 } else { 1 };
            for n in 0..calls {
                seq += 1;
                script.exchange(&call(1_000_000 + seq, 1, at + 5 * n, at + 5 * n + 5));
            }
            number += 1;
            let request = script.request(2_000_000 + number).epoll(7).ready(at);
            request.read(at, LOOP).answered(at + 5 * calls, LOOP);
            at += 5 * calls + 5;
        }
    }
    script.peer(&peer(seq, 160)).ends(4_000);
    let findings = detect(&Facts::of(&script.model()));
    assert_eq!(findings.len(), 1, "{findings:#?}");
    let finding = &findings[0];
    assert_eq!(finding.confidence, Confidence::Medium);
    assert_eq!(
        finding.title,
        "40 slow requests made 20 calls each to 127.0.0.1:7001 (python3), one after another: \
         100 ms of 100 ms (typically)"
    );
}

/// Each request makes one call, and one in twenty of these takes a hundred times as long.
#[test]
fn a_call_that_takes_long_is_one() {
    let mut script = Script::new();
    script.thread(LOOP, "loop");
    let mut number = 0;
    for client in 0..4_u64 {
        let mut at = 10 + 2 * client;
        for round in 0..100 {
            let takes = if (round + client) % 20 == 0 { 300 } else { 3 };
            number += 1;
            script.exchange(&call(1_000_000 + number, 1, at, at + takes));
            let request = script.request(2_000_000 + number).epoll(7).ready(at);
            request.read(at, LOOP).answered(at + takes, LOOP);
            at += takes + 5;
        }
    }
    script.peer(&peer(number, 400)).ends(4_000);
    let findings = detect(&Facts::of(&script.model()));
    assert!(findings.is_empty(), "{findings:#?}");
}

#[test]
fn calls_take_no_more_than_their_requests() {
    let mut script = Script::new();
    script.thread(LOOP, "loop");
    let mut seq = 0;
    for number in 0..12_u64 {
        // The median request has all ten calls, the mean one has eight.
        let (at, calls) = (10 + 200 * number, if number < 5 { 6 } else { 10 });
        for n in 0..calls {
            seq += 1;
            script.exchange(&call(1_000_000, seq, at + 10 * n, at + 10 * n + 10));
        }
        let request = script.request(1_000_000 + number);
        request
            .epoll(7)
            .ready(at)
            .read(at, LOOP)
            .answered(at + 10 * calls, LOOP);
    }
    script.peer(&peer(seq.into(), 1)).ends(10_000);
    let findings = detect(&Facts::of(&script.model()));
    assert_eq!(findings.len(), 1, "{findings:#?}");
    let title = &findings[0].title;
    assert!(title.ends_with("83.3 ms of 83.3 ms (typically)"), "{title}");
}

#[test]
fn rows_in_each_of_many_processes_are_one_finding() {
    let mut script = Script::new();
    let mut calls = 0;
    for tid in 201..=216 {
        script.thread_of(tid, tid, &format!("worker {tid}"));
        calls += in_process(&mut script, (tid, tid), 1, 10, false);
    }
    script.peer(&peer(calls, 16)).ends(10_000);
    let findings = detect(&Facts::of(&script.model()));
    assert_eq!(findings.len(), 1, "{findings:#?}");
    assert_eq!(findings[0].severity, Severity::Warning);
    assert_eq!(findings[0].saving.requests, 16 * 12);
    assert_eq!(findings[0].saving.at_most_ns, 90_000_000 * 16 * 12);
}

#[test]
fn of_several_at_a_time_it_is_the_mean() {
    let findings = detect(&Facts::of(&rows(4, 10).model()));
    assert_eq!(findings.len(), 1, "{findings:#?}");
    assert_eq!(findings[0].confidence, Confidence::Medium);
    assert_eq!(findings[0].subject["calls_per_request"], "10");
    assert_eq!(findings[0].saving.each_at_most_ns, [90_000_000; 48]);
}

#[test]
fn where_calls_have_tasks_each_requests_own_are_known() {
    let findings = detect(&Facts::of(&rows_of(4, 10, true).model()));
    assert_eq!(findings.len(), 1, "{findings:#?}");
    assert_eq!(findings[0].confidence, Confidence::High);
    assert_eq!(findings[0].saving.each_at_most_ns, [90_000_000; 48]);
    assert_eq!(detect(&Facts::of(&rows_of(4, 4, true).model())), []);
}

/// Virtual threads: a request's calls are made by whichever carrier has it just then, and one of
/// four requests has the carrier that read it to itself as far as reading goes.
#[test]
fn what_a_carrier_asks_is_not_all_for_the_request_that_it_read() {
    const OTHER: u32 = LOOP + 1;
    let mut script = Script::new();
    script.thread(LOOP, "carrier").thread(OTHER, "carrier");
    let mut seq = 0;
    for round in 0..12 {
        for client in 0..4 {
            let at = 10 + round * 120 + client;
            for n in 0..10 {
                seq += 1;
                let carrier = if (n + client) % 2 == 0 { LOOP } else { OTHER };
                script.exchange(&Exchange {
                    send_tid: carrier,
                    read_tid: carrier,
                    ..call(client, seq, at + 10 * n, at + 10 * n + 10)
                });
            }
            let reader = if client == 0 { LOOP } else { OTHER };
            let request = script.request(1_000 * (client + 1) + round).ready(at);
            request.read(at, reader).answered(at + 100, reader);
        }
    }
    script.peer(&peer(seq.into(), 4)).ends(10_000);
    let findings = detect(&Facts::of(&script.model()));
    assert_eq!(findings.len(), 1, "{findings:#?}");
    assert_eq!(findings[0].confidence, Confidence::Medium);
    assert!(findings[0].title.contains("10 calls each"), "{findings:#?}");
}

#[test]
fn a_transaction_is_no_row_of_calls() {
    assert_eq!(detect(&Facts::of(&rows(1, 4).model())), []);
    assert_eq!(detect(&Facts::of(&rows(4, 4).model())), []);
}

#[test]
fn calls_at_the_same_time_are_none_in_a_row() {
    for clients in [1, 3] {
        let mut script = Script::new();
        script.thread(LOOP, "loop").peer(&peer(120 * clients, 10));
        let mut seq = 0;
        for round in 0..12 {
            for client in 0..clients {
                let at = 10 + round * 120 + client;
                for n in 0..10 {
                    seq += 1;
                    script.exchange(&call(10 * client + n, seq, at, at + 100));
                }
                let request = script.request(1_000 * client + round).epoll(7).ready(at);
                request.read(at, LOOP).answered(at + 100, LOOP);
            }
        }
        assert_eq!(
            detect(&Facts::of(&script.ends(5_000).model())),
            [],
            "{clients}"
        );
    }
}

#[test]
fn what_goes_on_without_requests_is_the_programs_own() {
    let mut script = rows(3, 10);
    for n in 0..200 {
        script.exchange(&call(
            50,
            1_000 + n,
            3_000 + 10 * u64::from(n),
            3_008 + 10 * u64::from(n),
        ));
    }
    script.peer(&peer(560, 4));
    assert_eq!(detect(&Facts::of(&script.model())), []);
}

/// Two clients whose requests each make fifty calls of 0.4 ms, of which a few have rows, and then
/// compute for as long as that says.
fn short_calls(others_ms: u64) -> Script {
    const US: u64 = 1_000;
    let mut script = Script::new();
    script.thread(LOOP, "server");
    let mut seq = 0;
    for round in 0..12 {
        for client in 0..2 {
            let at = 10 + round * (30 + others_ms) + client;
            // Those of the first moments of a tenth of a second.
            for n in (0..20).filter(|_| round % 3 == 0) {
                seq += 1;
                let from_ns = ms(at) + 450 * US * n;
                let to_ns = Some(from_ns + 400 * US);
                script.exchange(&Exchange {
                    first_send_ns: from_ns,
                    last_send_ns: from_ns,
                    arrived_ns: to_ns,
                    first_read_ns: to_ns,
                    last_read_ns: to_ns,
                    ..call(client, seq, 0, 0)
                });
            }
            let request = script.request(1_000 * (1 + client) + round);
            let request = request.epoll(7).ready(at).read(at, LOOP);
            request.answered(at + 24 + others_ms, LOOP);
        }
    }
    script.peer(&PeerSums {
        slow: 0,
        total_ns: 24 * 50 * 400 * US,
        ..peer(24 * 50, 2)
    });
    script.ends(10_000);
    script
}

#[test]
fn calls_that_are_too_short_for_rows_are_known_by_their_sums() {
    let findings = detect(&Facts::of(&short_calls(0).model()));
    assert_eq!(findings.len(), 1, "{findings:#?}");
    let finding = &findings[0];
    assert_eq!(finding.subject["calls_per_request"], "50");
    assert!(
        finding
            .title
            .contains("made 50 calls each to 127.0.0.1:7001 (python3), one after another")
            && finding.title.contains("20 ms of 24 ms"),
        "{}",
        finding.title
    );
    // 49 calls of each request; and 0.05 ms pass between each two.
    assert_eq!(finding.saving.at_most_ns / 1_000_000, 24 * 49 * 450 / 1_000);
    let besides = "the bound has what passes between the calls of a request, too, 2.45 ms, 58.8 ms \
                   in all, which is no peer's: it goes with them as far as it is for them";
    assert!(
        finding.evidence.iter().any(|one| one.text == besides),
        "{:#?}",
        finding.evidence
    );
    assert_eq!(
        detect(&Facts::of(&short_calls(30).model())),
        [],
        "they are less than half of what requests take"
    );
}
