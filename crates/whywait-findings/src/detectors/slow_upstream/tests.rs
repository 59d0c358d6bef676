use whywait_events::{Exchange, PeerSums};
use whywait_model::script::{Script, TGID, ms};

use super::*;
use crate::shared::queues::script::{Closed, Serves, kept_across};

const LOOP: u32 = 1;
const OTHER_PEER: u32 = 2;

fn peer(id: u32, count: u64) -> PeerSums {
    PeerSums {
        id,
        address: "127.0.0.1".to_owned(),
        port: 7000 + id as u16,
        process: "python3".to_owned(),
        tgid: 55,
        count,
        slow: count,
        total_ns: count * 200_000_000,
        max_ns: 200_000_000,
        rtt_min_us: 20 * count,
        connections: 2,
        latency: [(204, count)].into(),
        ..PeerSums::default()
    }
}

fn call(socket: u64, peer: u32, from_ms: u64, to_ms: u64) -> Exchange {
    Exchange {
        socket,
        seq: 1,
        tgid: TGID,
        fd: 20,
        peer,
        first_send_ns: ms(from_ms),
        last_send_ns: ms(from_ms),
        arrived_ns: Some(ms(to_ms)),
        first_read_ns: Some(ms(to_ms)),
        last_read_ns: Some(ms(to_ms)),
        send_tid: LOOP,
        read_tid: LOOP,
        ..Exchange::default()
    }
}

/// A loop with so many rounds of two requests of 210 ms at a time.
fn rounds(rounds: u64) -> Script {
    let mut script = Script::new();
    script.thread(LOOP, "loop").peer(&peer(1, 2 * rounds));
    for round in 0..rounds {
        let at = 10 + 300 * round;
        script.polls(LOOP, 7, at - 9, at);
        script.polls(LOOP, 7, at + 5, at + 205);
        for n in [1, 2] {
            script
                .request(2 * round + n)
                .epoll(7)
                .ready(at)
                .read(at, LOOP)
                .answered(at + 210, LOOP);
        }
    }
    script.ends(10 + 300 * rounds);
    script
}

/// … and a call for each of them.
fn with_calls(mut script: Script, calls: u64) -> Script {
    for n in 0..calls {
        let at = 10 + 300 * (n / 2);
        script.exchange(&call(100 + n, 1, at + 4, at + 204));
    }
    script
}

#[test]
fn calls_that_fill_a_loops_requests_name_the_peer() {
    let findings = detect(&Facts::of(&with_calls(rounds(5), 10).model()));
    assert_eq!(findings.len(), 1, "{findings:#?}");
    let finding = &findings[0];
    assert_eq!(
        finding.title,
        "10 slow requests spent 95 % of their time in calls to 127.0.0.1:7001 (python3)"
    );
    assert_eq!(finding.severity, Severity::Warning);
    assert_eq!(finding.saving.each_at_most_ns, [200_000_000; 10]);
}

#[test]
fn a_peer_that_is_watched_too_is_to_be_watched_alone() {
    let mut script = with_calls(rounds(5), 10);
    script.thread_of(55, 55, "php-fpm");
    let model = script.model();
    let findings = detect(&Facts::of(&model));
    let fix = &findings[0].fix;
    assert!(fix.contains("watch it alone (whywait -p 55)"), "{fix}");
    let note = Finding {
        severity: Severity::Note,
        ..findings[0].clone()
    };
    assert!(note.as_ever.is_some());
    assert_eq!(
        crate::verdict(&Facts::of(&model), &[note]),
        crate::Verdict::Notes { percent: 95 },
        "what its requests wait for, nobody looked at"
    );
}

#[test]
fn where_requests_have_no_call_of_their_own_nothing_is_said() {
    assert_eq!(
        detect(&Facts::of(&rounds(5).model())),
        [],
        "no calls at all"
    );
    let half = with_calls(rounds(5), 10).model();
    assert_eq!(detect(&Facts::of(&half)).len(), 1);
    let mut script = rounds(5);
    for round in 0..5 {
        let at = 10 + 300 * round;
        script.exchange(&call(100 + round, 1, at + 4, at + 204));
    }
    assert_eq!(
        detect(&Facts::of(&script.model())),
        [],
        "one for two requests"
    );
    assert_eq!(
        detect(&Facts::of(&with_calls(rounds(2), 4).model())),
        [],
        "too few"
    );
}

#[test]
fn a_call_that_is_certainly_anothers_is_not_taken_for_ones_own() {
    // Two requests ask a peer. A third, which takes longer, asks another one meanwhile.
    let findings = |with_tasks: bool| {
        let task = |n: u64| u32::from(with_tasks) * n as u32;
        let mut script = Script::new();
        script.thread(LOOP, "loop").peer(&peer(1, 20));
        script.peer(&peer(OTHER_PEER, 10));
        for round in 0..10 {
            let at = 10 + 600 * round;
            script.polls(LOOP, 7, at + 5, at + 205);
            for (n, took, peer) in [(1, 210, 1), (2, 210, 1), (3, 500, OTHER_PEER)] {
                let request = script.request(3 * round + n).epoll(7).ready(at);
                let request = request.task(task(n)).read(at, LOOP);
                request.answered(at + took, LOOP);
                script.exchange(&Exchange {
                    task: task(n),
                    ..call(100 * n + round, peer, at + 4, at + 204)
                });
            }
        }
        script.ends(7_000);
        detect(&Facts::of(&script.model()))
    };
    assert_eq!(
        findings(false),
        [],
        "which of the peers it was does not show"
    );
    let findings = findings(true);
    assert_eq!(findings.len(), 1, "{findings:#?}");
    assert_eq!(findings[0].confidence, Confidence::High);
    assert_eq!(findings[0].subject["peer"], "127.0.0.1:7001");
    assert_eq!(findings[0].saving.each_at_most_ns, [200_000_000; 20]);
}

#[test]
fn where_calls_go_to_several_peers_it_is_not_decided() {
    let mut script = with_calls(rounds(5), 10);
    script.peer(&peer(OTHER_PEER, 10));
    for n in 0..10 {
        let at = 10 + 300 * (n / 2);
        script.exchange(&call(200 + n, OTHER_PEER, at + 4, at + 200));
    }
    assert_eq!(detect(&Facts::of(&script.model())), []);
}

#[test]
fn what_lasts_beyond_the_answer_or_is_short_is_no_cause() {
    for (from, to) in [(4, 250), (4, 60)] {
        let mut script = rounds(5);
        for n in 0..10 {
            let at = 10 + 300 * (n / 2);
            script.exchange(&call(100 + n, 1, at + from, at + to));
        }
        assert_eq!(detect(&Facts::of(&script.model())), [], "{from} to {to} ms");
    }
}

#[test]
fn a_peer_that_takes_seconds_as_a_rule_is_a_note() {
    let mut script = with_calls(rounds(5), 10);
    // Most of its calls have no row.
    script.peer(&PeerSums {
        latency: [(255, 1000)].into(),
        count: 1000,
        max_ns: 20_000_000_000,
        ..peer(1, 10)
    });
    let findings = detect(&Facts::of(&script.model()));
    assert_eq!(findings.len(), 1, "{findings:#?}");
    assert_eq!(findings[0].severity, Severity::Note);
}

#[test]
fn a_thread_that_sleeps_in_the_call_is_for_slow_path_wait() {
    let mut script = Script::new();
    script.thread(LOOP, "worker").peer(&peer(1, 6));
    for n in 0..6 {
        let at = 10 + 300 * n;
        script
            .wait(LOOP, 45, at + 4, at + 204)
            .args([20, 0])
            .by_softirq()
            .done();
        script.exchange(&call(100 + n, 1, at + 3, at + 204));
        script
            .request(n + 1)
            .ready(at)
            .read(at, LOOP)
            .answered(at + 210, LOOP);
    }
    script.ends(2000);
    assert_eq!(detect(&Facts::of(&script.model())), []);
}

/// A loop that is busy all the time, with calls that fill its requests; and `more` calls besides.
fn busy_loop(more: u32) -> Script {
    let mut script = Script::new();
    script
        .thread(LOOP, "loop")
        .peer(&peer(1, 20 + u64::from(more)));
    for n in 0..20 {
        let at = 10 + 50 * n;
        script.exchange(&call(100 + n, 1, at + 4, at + 204));
        script
            .request(n + 1)
            .epoll(7)
            .ready(at)
            .read(at, LOOP)
            .answered(at + 210, LOOP);
    }
    for n in 0..more {
        let at = 10 + 30 * u64::from(n);
        script.exchange(&Exchange {
            seq: 2 + n,
            ..call(500, 1, at, at + 210)
        });
    }
    script.busy(LOOP, 5, 1_300, 1_295_000_000, 0);
    script.ends(1_400);
    script
}

#[test]
fn a_busy_loops_requests_wait_for_their_peer_all_the_same() {
    let findings = detect(&Facts::of(&busy_loop(0).model()));
    assert_eq!(findings.len(), 1, "{findings:#?}");
    assert_eq!(findings[0].saving.each_at_most_ns, [200_000_000; 20]);
    let model = busy_loop(20).model();
    assert_eq!(
        detect(&Facts::of(&model)),
        [],
        "half of the calls are nobody's"
    );
}

#[test]
fn a_peer_that_does_one_thing_at_a_time_is_what_a_pools_requests_wait_for() {
    let narrow = Closed {
        clients: 12,
        rounds: 8,
        at_a_time: 2,
        own_connections: false,
        peer: Serves::One(25),
        gap_ms: 0,
        from_ms: 0,
        attached: false,
        random: false,
        login_ms: 0,
        calls: 1,
        pause_ms: 0,
        connects: false,
    };
    let findings = detect(&Facts::of(&narrow.script().model()));
    assert_eq!(findings.len(), 1, "{findings:#?}");
    let finding = &findings[0];
    assert_eq!(finding.severity, Severity::Warning);
    assert!(
        finding.title.ends_with("which is saturated"),
        "{}",
        finding.title
    );
    assert!(
        finding.evidence[1]
            .text
            .contains("more connections would only queue there"),
        "{finding:#?}"
    );
    // The only call that was ever alone at the peer was a slow one.
    let slow_at_first = Closed {
        peer: Serves::OneAfter(25, 38),
        ..narrow
    };
    let findings = detect(&Facts::of(&slow_at_first.script().model()));
    assert_eq!(findings.len(), 1, "{findings:#?}");
    assert!(
        findings[0].evidence[1].text.contains(
            "38 ms with few others under way, and 50 ms with 1; answers came one after another, 25 \
             ms apart"
        ),
        "{:#?}",
        findings[0]
    );
    let wide = Closed {
        peer: Serves::All(25),
        ..narrow
    };
    assert_eq!(detect(&Facts::of(&wide.script().model())), []);
}

#[test]
fn the_same_peer_of_many_processes_is_one_finding() {
    let wide = Closed {
        clients: 4,
        rounds: 6,
        at_a_time: 4,
        own_connections: true,
        peer: Serves::All(200),
        gap_ms: 0,
        from_ms: 0,
        attached: false,
        random: false,
        login_ms: 0,
        calls: 1,
        pause_ms: 0,
        connects: false,
    };
    let of = |processes: u32| {
        let mut script = wide.in_processes(processes);
        script.peer(&peer(1, 24 * u64::from(processes)));
        detect(&Facts::of(&script.model()))
    };
    let one = of(1);
    assert_eq!(one.len(), 1, "{one:#?}");
    let findings = of(16);
    assert_eq!(findings.len(), 1, "{findings:#?}");
    assert_eq!(findings[0].saving.requests, 16 * one[0].saving.requests);
    assert_eq!(findings[0].severity, one[0].severity);
}

/// A loop that serves 400 requests of 1 ms; six more made a call of 20 ms, and as many waited for a
/// CPU for so long.
fn few_are_late(for_cpu_ms: u64) -> Script {
    let mut script = Script::new();
    script.thread(LOOP, "loop").peer(&peer(1, 6));
    let mut at = 10;
    for socket in 1..=400 {
        script
            .request(socket)
            .epoll(7)
            .ready(at)
            .read(at, LOOP)
            .answered(at + 1, LOOP);
        at += 2;
    }
    for socket in 401..=406 {
        script.polls(LOOP, 7, at + 1, at + 21);
        script
            .request(socket)
            .epoll(7)
            .ready(at)
            .read(at, LOOP)
            .answered(at + 22, LOOP)
            .exchange(&call(socket, 1, at + 1, at + 21));
        at += 30;
        script
            .request(1000 + socket)
            .epoll(7)
            .ready(at)
            .read(at, LOOP)
            .spent(Part::Runnable, for_cpu_ms)
            .answered(at + 9, LOOP);
        at += 20;
    }
    script.ends(at);
    script
}

#[test]
fn where_cpus_are_crowded_a_few_late_calls_are_the_schedulers() {
    assert_eq!(detect(&Facts::of(&few_are_late(0).model())).len(), 1);
    assert!(detect(&Facts::of(&few_are_late(8).model())).is_empty());
    let mut elsewhere = few_are_late(8);
    elsewhere.peer(&PeerSums {
        address: "192.0.2.1".to_owned(),
        tgid: 0,
        ..peer(1, 6)
    });
    assert_eq!(
        detect(&Facts::of(&elsewhere.model())).len(),
        1,
        "on another machine it is not the same scheduler"
    );
}

/// Five requests at a time, each with three calls in a row, none of which takes half of its time.
fn with_a_few_calls(each_ms: [u64; 3]) -> Script {
    let mut script = Script::new();
    script.thread(LOOP, "loop");
    let mut seq = 0;
    for round in 0..6 {
        for client in 0..5 {
            let from = 10 + 200 * round + client;
            let request = script.request(1_000 * client + round).epoll(7).ready(from);
            request.read(from, LOOP).answered(from + 100, LOOP);
            let mut at = from;
            for ms in each_ms {
                seq += 1;
                script.exchange(&call(seq, 1, at, at + ms));
                at += ms + 1;
            }
        }
    }
    script.peer(&peer(1, seq));
    script.ends(2_000);
    script
}

#[test]
fn a_few_calls_in_a_row_take_half_of_a_request_together() {
    let findings = detect(&Facts::of(&with_a_few_calls([30, 35, 25]).model()));
    assert_eq!(findings.len(), 1, "{findings:#?}");
    let finding = &findings[0];
    assert_eq!(finding.confidence, Confidence::Medium);
    assert_eq!(finding.saving.each_at_most_ns, [90_000_000; 30]);
    let said: Vec<&str> = finding.evidence.iter().map(|one| &*one.text).collect();
    assert!(
        said.iter()
            .any(|text| text.starts_with("a request makes 3 of them")),
        "{said:?}"
    );
    let quick = detect(&Facts::of(&with_a_few_calls([10, 15, 10]).model()));
    assert_eq!(quick, [], "the rest is the program's own");
}

#[test]
fn a_few_calls_beside_those_to_another_peer_are_not_decided() {
    let mut script = with_a_few_calls([30, 35, 25]);
    script.peer(&peer(OTHER_PEER, 30));
    for round in 0..6 {
        for client in 0..5 {
            let from = 10 + 200 * round + client;
            script.exchange(&call(
                900 + 10 * round + client,
                OTHER_PEER,
                from,
                from + 40,
            ));
        }
    }
    assert_eq!(detect(&Facts::of(&script.model())), []);
}

/// Ten requests at a time over one connection: every 20 ms the peer has answered them all, and so
/// many milliseconds later the loop answers the clients.
fn over_a_shared_connection(read_after_ms: u64, answered_after_ms: u64) -> Script {
    let mut script = Script::new();
    script.thread(LOOP, "loop");
    for round in 0..30 {
        let at = 10 + 20 * round;
        script.exchange(&Exchange {
            seq: round as u32,
            last_send_ns: ms(at + 1),
            bytes_out: 500,
            ..call(1, 1, at, at + 19)
        });
        for client in 0..10 {
            let read_ms = at + read_after_ms;
            let request = script.request(1_000 * client + round).epoll(7);
            let request = request.ready(read_ms).read(read_ms, LOOP);
            request.answered(at + 19 + answered_after_ms, LOOP);
        }
    }
    script.peer(&peer(1, 30));
    script.ends(2_000);
    script
}

#[test]
fn answers_that_follow_on_what_a_shared_connection_brings() {
    let model = over_a_shared_connection(0, 1).model();
    let findings = detect(&Facts::of(&model));
    assert_eq!(findings.len(), 1, "{findings:#?}");
    let finding = &findings[0];
    assert_eq!(finding.subject["shared_connection"], true);
    assert_eq!(finding.saving.requests, 300);
    assert_eq!(finding.saving.at_most_ns, 300 * 19_000_000);
    let totals = model.task_totals().expect("there are calls");
    assert_eq!(
        totals.time.queued_ns.at_least, 0,
        "any may be with the peer"
    );
    for (read_after_ms, answered_after_ms, why) in [(0, 8, "they do not"), (2, 1, "sent before")] {
        let script = over_a_shared_connection(read_after_ms, answered_after_ms);
        let findings = detect(&Facts::of(&script.model()));
        assert!(
            findings
                .iter()
                .all(|one| !one.subject.contains_key("shared_connection")),
            "{why}: {findings:#?}"
        );
    }
}

/// Fifty requests, one every 20 ms, each with a call of 90 ms over one connection of HTTP/2. What
/// is recorded as calls is one until the peer's PING, and the answer to that until the next reply.
/// Each second one asks so long after it was read. A reply comes so long after somebody asked.
fn over_http2(asked_after_ms: u64, replied_after_us: u64) -> Script {
    let mut script = Script::new();
    script.thread(LOOP, "loop");
    for n in 0..50_u64 {
        let at = 20 * (n + 1);
        let exchange = |seq: u64, (from_us, to_us): (u64, u64), bytes_out, bytes_in| Exchange {
            seq: seq as u32,
            first_send_ns: ms(at) + 1_000 * from_us,
            last_send_ns: ms(at) + 1_000 * from_us,
            arrived_ns: Some(ms(at) + 1_000 * to_us),
            first_read_ns: Some(ms(at) + 1_000 * to_us),
            last_read_ns: Some(ms(at) + 1_000 * to_us),
            bytes_out,
            bytes_in,
            ..call(1, 1, at, at)
        };
        script.exchange(&exchange(2 * n, (0, 200), 61, 30));
        script.exchange(&exchange(2 * n + 1, (300, replied_after_us), 17, 40));
        let read = at - if n % 2 == 0 { 1 } else { asked_after_ms };
        let request = script.request(n + 1).epoll(7).ready(read).read(read, LOOP);
        request.answered(at + 80 + replied_after_us / 1000 + 1, LOOP);
    }
    script.peer(&peer(1, 100));
    script.ends(2_000);
    script
}

#[test]
fn who_asks_at_once_and_answers_after_a_reply_waits_for_it_over_http2() {
    let model = over_http2(1, 10_000).model();
    let findings = detect(&Facts::of(&model));
    assert_eq!(findings.len(), 1, "{findings:#?}");
    let finding = &findings[0];
    assert!(finding.title.ends_with("over HTTP/2"), "{}", finding.title);
    assert_eq!(finding.subject["shared_connection"], true);
    // To the last of these there is no reply any more.
    assert_eq!(finding.saving.each_at_most_ns, [90_000_000; 46]);
    let totals = model.task_totals().expect("there are calls");
    assert_eq!(totals.time.queued_ns.at_least, 0, "it may be with the peer");
    for (asked_after_ms, replied_after_us) in [(8, 10_000), (1, 1_000)] {
        let model = over_http2(asked_after_ms, replied_after_us).model();
        assert_eq!(
            detect(&Facts::of(&model)),
            [],
            "{asked_after_ms} {replied_after_us}"
        );
    }
}

/// No call to a peer is a request's that makes none, though it is answered right after one.
#[test]
fn who_waits_for_what_others_keep_across_calls_does_not_wait_for_their_peer() {
    let model = kept_across(3).model();
    assert_eq!(detect(&Facts::of(&model)), []);
}

/// Five fetches; four requests come while each is under way, and are answered with its reply.
fn fetches(calls_each: u64) -> Script {
    fetches_after(calls_each, 0)
}

/// … or so long before it begins, in milliseconds.
fn fetches_after(calls_each: u64, waited: u64) -> Script {
    let mut script = Script::new();
    script.thread(LOOP, "loop").peer(&peer(1, 5 * calls_each));
    for fetch in 0..5 {
        let at = 10 + 300 * fetch;
        script.polls(LOOP, 7, at - 9, at);
        script.polls(LOOP, 7, at + 5, at + 205);
        for n in 0..4 {
            let request = script.request(4 * fetch + n + 1).epoll(7);
            let came = at + 20 * n;
            request
                .ready(came)
                .read(came, LOOP)
                .answered(at + 206, LOOP);
        }
        for n in 0..calls_each {
            let sent = at + waited + 1 + 20 * n;
            script.exchange(&call(100 + 10 * fetch + n, 1, sent, at + 205));
        }
    }
    script.ends(1600);
    script
}

#[test]
fn a_call_that_several_requests_wait_for_is_all_of_theirs() {
    let findings = detect(&Facts::of(&fetches(1).model()));
    let [finding] = &findings[..] else {
        panic!("one is expected: {findings:#?}");
    };
    assert!(
        finding.title.starts_with("20 slow requests"),
        "{finding:#?}"
    );
    let awaited = |finding: &Finding| {
        let mut evidence = finding.evidence.iter();
        evidence.any(|one| one.text.contains("20 requests wait for 5 calls"))
    };
    assert!(awaited(finding), "{finding:#?}");
    let own = detect(&Facts::of(&fetches(4).model()));
    assert!(own.iter().all(|finding| !awaited(finding)), "{own:#?}");
    let before = detect(&Facts::of(&fetches_after(1, 66).model()));
    assert!(before.iter().all(|one| !awaited(one)), "{before:#?}");
}
