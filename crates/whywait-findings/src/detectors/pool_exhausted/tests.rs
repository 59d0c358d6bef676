use super::*;
use crate::shared::queues::script::{Closed, LOOP, Serves, call, kept_across, peer};
use crate::shared::task_places::script::passing;
use whywait_events::{Exchange, PeerSums};
use whywait_model::script::Script;

const RECVFROM: u32 = 45;
const FUTEX: u32 = 202;

/// Twelve clients share two connections.
const POOL: Closed = Closed {
    clients: 12,
    rounds: 8,
    at_a_time: 2,
    own_connections: false,
    peer: Serves::All(50),
    gap_ms: 0,
    from_ms: 0,
    attached: false,
    random: false,
    login_ms: 0,
    calls: 1,
    pause_ms: 0,
    connects: false,
};

#[test]
fn requests_that_wait_for_a_connection() {
    let findings = detect(&Facts::of(&POOL.script().model()));
    assert_eq!(findings.len(), 1, "{findings:#?}");
    let finding = &findings[0];
    assert_eq!(
        (finding.severity, finding.confidence),
        (Severity::Error, Confidence::High)
    );
    assert!(
        finding
            .title
            .contains("one of 2 connections to 127.0.0.1:7001 (python3)"),
        "{}",
        finding.title
    );
    let replay = &finding.subject["replay"];
    for (at, (connections, ms)) in [(3, 200), (4, 150)].into_iter().enumerate() {
        assert_eq!(replay[at]["connections"], connections);
        let ns = replay[at]["p50_ns"].as_u64().expect("a number");
        let ms = ms * 1_000_000;
        assert!(
            ns.abs_diff(ms) * 10 <= ms,
            "{connections}: {ns} instead of {ms}"
        );
    }
}

#[test]
fn who_makes_no_call_may_wait_for_what_others_keep_across_theirs() {
    let findings = detect(&Facts::of(&kept_across(3).model()));
    let [finding] = &findings[..] else {
        panic!("one is expected: {findings:#?}");
    };
    assert!(
        finding.title.contains(
            "for one of 2 connections to 127.0.0.1:7002 (postgres), which others keep across calls \
             to 127.0.0.1:7001 (python3)"
        ),
        "{}",
        finding.title
    );
    assert!(finding.saving.requests > 80, "{:?}", finding.saving);
    assert_eq!(finding.confidence, Confidence::Medium);
    // Those that go on at other times wait for something else.
    let findings = detect(&Facts::of(&kept_across(9).model()));
    let across = |finding: &Finding| finding.title.contains("across calls");
    assert!(!findings.iter().any(across), "{findings:#?}");
}

/// Six threads, each with a client of its own, and two connections to a database, at port 7002. A
/// request takes one for its query, and keeps it across a call of 50 ms to the peer. Who gets one
/// goes on so much later: it is woken and has no CPU, or is not woken at all.
fn threads_that_keep_a_connection(late_ms: u64, woken: bool) -> Script {
    let mut script = Script::new();
    let takes = script.stack(&["answer", "find_product", "take"]);
    let queries = script.stack(&["answer", "find_product", "ask"]);
    let calls = script.stack(&["answer", "find_price", "ask"]);
    for tid in 1..=6 {
        script.thread(tid, "worker");
    }
    let (mut ready, mut free) = ([10_u64; 6], [(0_u64, 0_u32); 2]);
    for n in 0..60 {
        let slot = usize::from(free[1] < free[0]);
        let client = (0..6).min_by_key(|at| ready[*at]).expect("one");
        let (tid, read, (free_ms, by)) = (client as u32 + 1, ready[client], free[slot]);
        let mut begun = read.max(free_ms);
        if read < begun {
            let woken_ms = begun + if woken { 0 } else { late_ms };
            begun += late_ms;
            let wait = script.wait(tid, FUTEX, read, woken_ms).stack(takes);
            let wait = wait.word(0x1000 + u64::from(tid)).by(by);
            wait.on_cpu_at(begun).done();
        }
        let mut ask = |peer, stack, (from, to)| {
            let row = Exchange {
                peer,
                send_tid: tid,
                read_tid: tid,
                ..call(10 * u64::from(peer) + slot as u64, n, from, to)
            };
            script.exchange(&row);
            let wait = script.wait(tid, RECVFROM, from, to).stack(stack);
            wait.args([row.fd as u64, 0]).by_softirq().done();
        };
        ask(2, queries, (begun, begun + 2));
        ask(1, calls, (begun + 2, begun + 52));
        let request = script.request(1_000 + u64::from(n)).ready(read);
        request.read(read, tid).answered(begun + 53, tid);
        free[slot] = (begun + 53, tid);
        ready[client] = begun + 55;
    }
    script.peer(&peer(60, 2));
    script.peer(&PeerSums {
        id: 2,
        port: 7002,
        process: "postgres".to_owned(),
        tgid: 56,
        ..peer(60, 2)
    });
    script.ends(2_000);
    script
}

#[test]
fn threads_wait_for_the_connections_that_are_taken_where_they_sleep() {
    let findings = detect(&Facts::of(&threads_that_keep_a_connection(0, true).model()));
    let [finding] = &findings[..] else {
        panic!("one is expected: {findings:#?}");
    };
    assert!(
        finding.title.contains(
            "for one of 2 connections to 127.0.0.1:7002 (postgres), which others keep across calls \
             to 127.0.0.1:7001 (python3)"
        ),
        "{}",
        finding.title
    );
    let place = "they wait in take, which is called where calls to 127.0.0.1:7002 (postgres) are";
    let says = |text: &str| finding.evidence.iter().any(|one| one.text.contains(text));
    assert!(says(place), "{findings:#?}");
}

#[test]
fn who_is_handed_a_connection_and_has_no_cpu_is_not_late() {
    let keeps = |woken| {
        let findings = detect(&Facts::of(
            &threads_that_keep_a_connection(12, woken).model(),
        ));
        findings.iter().any(|one| one.title.contains("keep across"))
    };
    assert!(keeps(true), "it is woken at once, and waits for a CPU");
    assert!(
        !keeps(false),
        "nobody hands it over: it is woken 12 ms later"
    );
}

#[test]
fn calls_that_follow_later_are_a_queue_where_the_loop_sleeps_meanwhile() {
    // Each needs a name and a connection first, say.
    let later = Closed { gap_ms: 12, ..POOL };
    let mut script = later.script();
    let none = detect(&Facts::of(&later.script().model()));
    assert!(none.is_empty(), "its thread may have no time: {none:#?}");
    script.polls(LOOP, 7, 10, 3_000);
    let findings = detect(&Facts::of(&script.model()));
    assert_eq!(findings.len(), 1, "{findings:#?}");
    assert_eq!(findings[0].subject["connections"], 2);
}

/// Each request has three queries, with a pause after each in which it keeps its connection.
const TRANSACTIONS: Closed = Closed {
    peer: Serves::All(36),
    calls: 3,
    pause_ms: 6,
    ..POOL
};

#[test]
fn connections_that_are_kept_between_calls() {
    let findings = detect(&Facts::of(&TRANSACTIONS.script().model()));
    assert_eq!(findings.len(), 1, "{findings:#?}");
    let finding = &findings[0];
    assert_eq!(finding.subject["connections"], 2);
    // Six times 48 ms with two, four times with three, …
    let replay = &finding.subject["replay"];
    for (at, ms) in [192, 144].into_iter().enumerate() {
        let ns = replay[at]["p50_ns"].as_u64().expect("a number");
        let ms = ms * 1_000_000;
        assert!(ns.abs_diff(ms) * 10 <= ms, "{ns} instead of {ms}");
    }
    let said: Vec<&str> = finding.evidence.iter().map(|e| e.text.as_str()).collect();
    assert!(
        said.iter()
            .any(|text| text.ends_with("for 48 ms, of which 36 ms in its calls (median)")),
        "{said:?}"
    );
}

#[test]
fn quick_requests_that_make_no_call_hide_no_queue() {
    let mut script = TRANSACTIONS.script();
    for n in 0..150 {
        let request = script.request(5_000 + n).epoll(7).ready(10 + 15 * n);
        request.read(10 + 15 * n, LOOP).answered(11 + 15 * n, LOOP);
    }
    let findings = detect(&Facts::of(&script.model()));
    assert_eq!(findings.len(), 1, "{findings:#?}");
    assert_eq!(findings[0].subject["connections"], 2);
}

/// So many loops of a program each ask once every 21 ms, whatever requests there are. Those wait
/// for a time.
fn on_its_own_account(loops: u64) -> Script {
    let mut script = Script::new();
    script.thread(LOOP, "loop");
    for of in 0..loops {
        for n in 0..200 {
            let at = 10 + 21 * n + 9 * of;
            script.exchange(&call(1 + of, n as u32, at, at + 20));
        }
    }
    for n in 0..6 {
        for client in 0..10 {
            let at = 10 + 710 * n + 13 * client;
            let request = script.request(1_000 * client + n).epoll(7).ready(at);
            request.read(at, LOOP).answered(at + 700, LOOP);
        }
    }
    script.peer(&peer(200 * loops, loops));
    script.ends(5_000);
    script
}

#[test]
fn calls_on_the_programs_own_account_are_no_queue() {
    for loops in 1..=3 {
        assert_eq!(
            detect(&Facts::of(&on_its_own_account(loops).model())),
            [],
            "{loops}"
        );
    }
}

#[test]
fn short_calls_that_have_no_row_hide_no_queue() {
    let short = |each_ns: u64| {
        let mut script = POOL.script();
        let slow = 12 * 8;
        script.peer(&PeerSums {
            slow,
            count: 3 * slow,
            total_ns: slow * 50_000_000 + 2 * slow * each_ns,
            ..peer(slow, 2)
        });
        detect(&Facts::of(&script.model())).len()
    };
    assert_eq!(short(300_000), 1, "nearly all of the time is known");
    assert_eq!(short(900_000_000), 0, "it is not");
}

#[test]
fn the_same_pool_in_each_of_many_processes_is_one_finding() {
    let one = &detect(&Facts::of(&POOL.script().model()))[0];
    let findings = detect(&Facts::of(&POOL.in_processes(16).model()));
    assert_eq!(findings.len(), 1, "{findings:#?}");
    let finding = &findings[0];
    assert_eq!(finding.severity, one.severity);
    assert_eq!(finding.saving.requests, 16 * one.saving.requests);
    assert_eq!(finding.saving.at_most_ns, 16 * one.saving.at_most_ns);
    assert_eq!(finding.subject["pids"].as_array().map(Vec::len), Some(16));
    assert_eq!(finding.subject["connections"], one.subject["connections"]);
    let said: Vec<&str> = finding.evidence.iter().map(|e| e.text.as_str()).collect();
    assert!(
        said[1].starts_with("15 other processes of the same program"),
        "{said:?}"
    );
    assert!(!said.concat().contains("connections are open"), "{said:?}");
}

#[test]
fn a_proxys_setting_has_its_name() {
    let mut script = POOL.script();
    script.thread(whywait_model::script::TGID, "haproxy");
    let findings = detect(&Facts::of(&script.model()));
    let fix = &findings[0].fix;
    assert!(fix.contains("maxconn on the server's line"), "{fix}");
}

#[test]
fn a_login_says_nothing_of_the_peers_capacity() {
    let fresh = Closed {
        login_ms: 5,
        ..POOL
    };
    let findings = detect(&Facts::of(&fresh.script().model()));
    assert_eq!(findings.len(), 1, "{findings:#?}");
}

#[test]
fn where_chance_says_who_is_next_the_mean_is_replayed() {
    let random = Closed {
        random: true,
        clients: 20,
        rounds: 100,
        ..POOL
    };
    let model = random.script().model();
    let findings = detect(&Facts::of(&model));
    let finding = &findings[0];
    let took: Vec<u64> = model.requests().filter_map(|one| one.took_ns()).collect();
    let mean_ns = took.iter().sum::<u64>() / took.len() as u64;
    let replay = &finding.subject["replay"];
    for (at, connections) in [3, 4].into_iter().enumerate() {
        let ns = replay[at]["mean_ns"].as_u64().expect("a mean");
        let expected_ns = mean_ns * 2 / connections;
        assert!(
            ns.abs_diff(expected_ns) * 10 <= expected_ns,
            "{ns} instead of {expected_ns} with {connections}"
        );
    }
    let said = &finding.evidence.last().expect("the replay").text;
    assert!(said.contains("on average"), "{said}");
}

#[test]
fn as_many_connections_as_clients_are_enough() {
    let enough = Closed {
        at_a_time: 12,
        ..POOL
    };
    assert_eq!(detect(&Facts::of(&enough.script().model())), []);
}

#[test]
fn a_peer_that_does_one_thing_at_a_time_is_what_they_wait_for() {
    let narrow = Closed {
        peer: Serves::One(25),
        ..POOL
    };
    assert_eq!(detect(&Facts::of(&narrow.script().model())), []);
}

#[test]
fn calls_that_do_not_follow_at_once_are_no_queue() {
    let pauses = Closed { gap_ms: 40, ..POOL };
    assert_eq!(detect(&Facts::of(&pauses.script().model())), []);
}

#[test]
fn calls_that_follow_after_ten_milliseconds_do_not_follow_at_once() {
    // A tenth of a call: by its length alone that would be soon enough.
    let pauses = Closed {
        peer: Serves::All(100),
        gap_ms: 10,
        ..POOL
    };
    assert_eq!(detect(&Facts::of(&pauses.script().model())), []);
}

#[test]
fn who_connects_at_once_followed_at_once() {
    let fresh = Closed {
        peer: Serves::All(100),
        gap_ms: 10,
        connects: true,
        ..POOL
    };
    assert_eq!(detect(&Facts::of(&fresh.script().model())).len(), 1);
}

#[test]
fn six_calls_that_followed_others_may_be_chance() {
    let few = Closed {
        clients: 8,
        rounds: 1,
        ..POOL
    };
    assert_eq!(detect(&Facts::of(&few.script().model())), []);
}

#[test]
fn a_queue_in_a_small_part_of_the_slow_requests_time_is_not_worth_a_word() {
    let mut script = POOL.script();
    for n in 0..4 {
        let request = script.request(5_000 + n).epoll(7).ready(10);
        request.read(10, LOOP).answered(40_000, LOOP);
    }
    script.ends(41_000);
    assert_eq!(detect(&Facts::of(&script.model())), []);
}

#[test]
fn the_only_connection_may_be_too_few() {
    let one = Closed {
        at_a_time: 1,
        ..POOL
    };
    let findings = detect(&Facts::of(&one.script().model()));
    assert_eq!(findings.len(), 1, "{findings:#?}");
    assert_eq!(
        (findings[0].severity, findings[0].confidence),
        (Severity::Warning, Confidence::Medium),
        "whether the peer would serve more does not show"
    );
    let locked = Closed {
        own_connections: true,
        ..one
    };
    assert_eq!(
        detect(&Facts::of(&locked.script().model())),
        [],
        "that is one-at-a-time"
    );
}

#[test]
fn what_a_program_asks_on_its_own_account_is_no_queue() {
    // Requests wait for something else, while a poll of the peer goes on and on.
    let mut script = Script::new();
    script.thread(LOOP, "loop").peer(&peer(60, 1));
    for n in 0..60 {
        script.exchange(&call(0, n, 10 + 50 * u64::from(n), 60 + 50 * u64::from(n)));
    }
    for n in 0..40 {
        let request = script.request(1_000 + n).epoll(7).ready(20 + 70 * n);
        request.read(20 + 70 * n, LOOP).answered(320 + 70 * n, LOOP);
    }
    assert_eq!(detect(&Facts::of(&script.ends(4_000).model())), []);
}

/// Twenty requests queue for two connections, and only a few of those that come after the
/// recording began are answered before it ends: most calls are those of earlier ones.
#[test]
fn a_queue_that_is_deeper_than_the_recording_is_long() {
    let deep = Closed {
        clients: 20,
        rounds: 4,
        from_ms: 640,
        ..POOL
    };
    let mut script = deep.script();
    let found = detect(&Facts::of(&script.starts(640).model()));
    assert_eq!(found.len(), 1, "{found:#?}");
    assert!(
        found[0].title.contains("one of 2 connections"),
        "{}",
        found[0].title
    );
}

/// Those that are open when whywait attaches have waited for as long as any: a fix spares that.
#[test]
fn what_requests_waited_before_the_recording_is_spared_too() {
    let deep = Closed {
        clients: 20,
        rounds: 4,
        from_ms: 640,
        attached: true,
        ..POOL
    };
    let mut script = deep.script();
    let found = detect(&Facts::of(&script.starts(640).model()));
    assert_eq!(found.len(), 1, "{found:#?}");
    // Those eighteen as well as those that come later.
    let each = &found[0].saving.each_at_most_ns;
    let long = each.iter().filter(|ns| **ns >= 440_000_000);
    assert!(long.count() >= 50, "{each:?}");
    let said = |text: &str| found[0].evidence.iter().any(|one| one.text.contains(text));
    assert!(said("when the recording began"), "{found:#?}");
}

#[test]
fn whoever_comes_in_the_middle_of_it_sees_the_same() {
    let late = Closed {
        from_ms: 640,
        rounds: 12,
        ..POOL
    };
    let findings = detect(&Facts::of(&late.script().model()));
    assert_eq!(findings.len(), 1, "{findings:#?}");
    let each = &findings[0].saving.each_at_most_ns;
    assert_eq!(
        each[each.len() / 2],
        249_000_000,
        "300 ms, 50 of them a call"
    );
}

/// What twenty clients' requests do with one of two connections in hand.
#[derive(Clone, Copy)]
enum Keeps {
    /// A transaction: a short call, 20 ms of thought, two short calls; then a call to another peer.
    Thought,
    /// A short call, the call to the other peer, a short call.
    OtherCall,
}

/// Short calls have rows only with `short`.
fn sessions(keeps: Keeps, short: bool) -> Script {
    const US: u64 = 1_000;
    let mut script = Script::new();
    script.thread(LOOP, "loop");
    let (mut ready, mut free) = ([10_u64; 20], [0_u64; 2]);
    let (mut to_database, mut to_other) = (0, 0);
    for number in 0..240_u64 {
        let slot = usize::from(free[1] < free[0]);
        let client = (0..20).min_by_key(|at| ready[*at]).expect("one");
        let begun = ready[client].max(free[slot]);
        let (queries, other, done): (&[u64], u64, u64) = match keeps {
            Keeps::Thought => (&[0, 20_000, 20_300], 21, 51),
            Keeps::OtherCall => (&[0, 31_000], 1, 32),
        };
        for query_us in queries {
            to_database += 1;
            let mut query = call(slot as u64, to_database, begun, begun);
            query.first_send_ns += query_us * US;
            query.last_send_ns = query.first_send_ns;
            let replied_ns = Some(query.first_send_ns + 200 * US);
            query.arrived_ns = replied_ns;
            query.first_read_ns = replied_ns;
            query.last_read_ns = replied_ns;
            if short {
                script.exchange(&query);
            }
        }
        to_other += 1;
        let mut to_peer = call(
            50 + client as u64,
            to_other,
            begun + other,
            begun + other + 30,
        );
        to_peer.first_send_ns -= 300 * US;
        to_peer.peer = 2;
        script.exchange(&to_peer);
        let request = script.request(1_000 + number).epoll(7).ready(ready[client]);
        request
            .read(ready[client], LOOP)
            .answered(begun + done, LOOP);
        free[slot] = begun + queries[queries.len() - 1] / 1_000 + 1;
        ready[client] = begun + done + 1;
    }
    let database = PeerSums {
        slow: 0,
        total_ns: u64::from(to_database) * 200 * US,
        ..peer(u64::from(to_database), 2)
    };
    let other = PeerSums {
        id: 2,
        port: 7002,
        ..peer(u64::from(to_other), 20)
    };
    script.peer(&database).peer(&other).ends(6_000);
    script
}

#[test]
fn a_connection_is_kept_between_short_calls() {
    for keeps in [Keeps::Thought, Keeps::OtherCall] {
        let found = detect(&Facts::of(&sessions(keeps, true).model()));
        let [finding] = &found[..] else {
            panic!("expected one finding, got {found:#?}");
        };
        let title = &finding.title;
        assert!(
            title.contains("one of 2 connections to 127.0.0.1:7001"),
            "{title}"
        );
        let kept = finding
            .evidence
            .iter()
            .find(|one| one.text.contains("kept its"));
        let kept = &kept.expect("it is said").text;
        match keeps {
            Keeps::Thought => assert!(
                kept.ends_with("20.5 ms, of which 600 us in its calls (median)"),
                "{kept}"
            ),
            Keeps::OtherCall => assert!(
                kept.contains("; meanwhile it calls 127.0.0.1:7002"),
                "{kept}"
            ),
        }
    }
}

#[test]
fn a_limit_is_no_pool_of_the_only_peer_that_has_rows() {
    let found = detect(&Facts::of(&sessions(Keeps::OtherCall, false).model()));
    let [finding] = &found[..] else {
        panic!("expected one finding, got {found:#?}");
    };
    let title = &finding.title;
    assert!(
        title.contains("at a limit of 2 calls at a time to 127.0.0.1:7002"),
        "{title}"
    );
    let says = |text: &str| finding.evidence.iter().any(|one| one.text.contains(text));
    assert!(
        says("just as many connections are open to 127.0.0.1:7001"),
        "{found:#?}"
    );
    assert!(
        finding.fix.contains("kept across the call"),
        "{}",
        finding.fix
    );
}

#[test]
fn goroutines_that_wait_for_one_of_two_things() {
    let model = passing(2, false).model();
    let findings = detect(&Facts::of(&model));
    let [finding] = &findings[..] else {
        panic!("one is expected: {findings:#?}");
    };
    // Whether more at a time would be served as quickly is not known.
    assert_eq!(finding.severity, Severity::Warning);
    assert_eq!(finding.confidence, Confidence::High);
    let wait = "chan receive in main.withThing, which lets 2 through at a time; those are in \
                time.Sleep in main.work";
    assert!(finding.title.contains(wait), "{}", finding.title);
    // Two each wait for 0, 20, … 100 ms.
    assert_eq!(finding.saving.at_most_ns, 2 * 300_000_000);
}

#[test]
fn goroutines_that_wait_for_something_to_happen_wait_for_no_place() {
    let model = passing(2, true).model();
    assert_eq!(detect(&Facts::of(&model)), []);
}
