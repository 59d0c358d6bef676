use whywait_events::{Exchange, Part, PeerSums};

use super::{Link, LinkKind, Range, TaskTime};
use crate::Model;
use crate::script::{Script, TGID, ms};

const LOOP: u32 = 1;
const RECVFROM: u32 = 45;

fn peer(id: u32) -> PeerSums {
    PeerSums {
        id,
        address: "127.0.0.1".to_owned(),
        port: 7000 + id as u16,
        count: 1,
        ..PeerSums::default()
    }
}

/// A call by the loop, on a connection of its own.
fn call(socket: u64, from_ms: u64, to_ms: u64) -> Exchange {
    Exchange {
        socket,
        seq: 1,
        tgid: TGID,
        fd: socket as i32,
        peer: 1,
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

/// Requests of a loop, from when to when they were read and answered, and calls.
fn script(requests: &[(u64, u64)], calls: &[Exchange]) -> Script {
    let mut script = Script::new();
    script.thread(LOOP, "loop").peer(&peer(1)).peer(&peer(2));
    for (at, (from_ms, to_ms)) in requests.iter().enumerate() {
        let request = script.request(at as u64).ready(*from_ms);
        request.read(*from_ms, LOOP).answered(*to_ms, LOOP);
    }
    for call in calls {
        script.exchange(call);
    }
    script.ends(1000);
    script
}

/// Each call's link, as the request's socket and what shows it.
fn links(model: &Model) -> Vec<Option<(u64, LinkKind)>> {
    let requests: Vec<_> = model.requests().collect();
    (0..model.exchanges().len())
        .map(|at| match model.links.of_call(at) {
            Link::Certain(request, kind) => Some((requests[request as usize].socket, kind)),
            Link::Undecided | Link::Nobody => None,
        })
        .collect()
}

fn time(model: &Model, socket: u64) -> TaskTime {
    let mut requests = model.requests();
    let request = requests.find(|request| request.socket == socket);
    request.expect("it is there").task_time().expect("it has")
}

fn ms_of(at_least: u64, at_most: u64) -> Range {
    Range {
        at_least: at_least * 1_000_000,
        at_most: at_most * 1_000_000,
    }
}

#[test]
fn the_only_request_that_is_under_way_made_the_call() {
    let model = script(
        &[(10, 100), (200, 300)],
        &[call(50, 20, 90), call(51, 210, 290)],
    )
    .model();
    assert_eq!(
        links(&model),
        [Some((0, LinkKind::Alone)), Some((1, LinkKind::Alone))]
    );
    let time = time(&model, 0);
    assert_eq!(time.upstream_ns, ms_of(70, 70));
    assert_eq!(time.peers[0].peer, "127.0.0.1:7001");
    assert_eq!(time.reply_unserved_ns, ms_of(0, 0));
    assert_eq!((time.calls.certain, time.calls.undecided), (1, 0));
}

#[test]
fn a_call_that_lies_within_one_request_only_is_its_own() {
    // Each begins when the other's request has not been read, or ends when it is answered.
    let model = script(
        &[(10, 100), (30, 130)],
        &[call(50, 20, 90), call(51, 40, 110)],
    )
    .model();
    assert_eq!(
        links(&model),
        [Some((0, LinkKind::Nested)), Some((1, LinkKind::Nested))]
    );
}

#[test]
fn what_a_loop_does_while_a_call_is_with_its_peer_is_not_on_its_requests_path() {
    let calls = [call(50, 20, 90), call(51, 40, 110)];
    let model = script(&[(10, 100), (30, 130)], &calls).model();
    let path = |socket: u64| {
        let mut requests = model.requests();
        let request = requests.find(|request| request.socket == socket);
        request.expect("it is there")
    };
    let steps = path(0).path().steps;
    let of_call = steps.iter().find(|step| step.by_call).expect("the call");
    assert_eq!(
        (of_call.from_ns, of_call.to_ns, of_call.part),
        (ms(30), ms(90), Some(Part::Network)),
        "before, there was no other request: what the thread did was for this one"
    );
    let peer = model.peer_of_step(of_call).map(|peer| peer.to_string());
    assert_eq!(peer.as_deref(), Some("127.0.0.1:7001"));
    assert!(model.slept_for(of_call).is_none());
    for (socket, network_ms) in [(0, 60), (1, 60)] {
        let account = path(socket).account();
        assert_eq!(account.service[Part::Network], network_ms * 1_000_000);
        assert_eq!(account.total_ns(), path(socket).age_ns());
    }
    // Whose the calls are is not known: the paths stay with the thread.
    let calls = [call(50, 40, 90), call(51, 50, 80)];
    let model = script(&[(10, 100), (30, 130)], &calls).model();
    let by_call = |path: crate::Path<'_>| path.steps.iter().any(|step| step.by_call);
    assert!(!model.requests().any(|request| by_call(request.path())));
}

#[test]
fn what_may_be_of_either_leaves_a_range() {
    let calls = [call(50, 40, 90), call(51, 50, 80)];
    let model = script(&[(10, 100), (30, 130)], &calls).model();
    assert_eq!(links(&model), [None, None]);
    let time = time(&model, 1);
    assert_eq!(time.upstream_ns, ms_of(0, 50));
    assert_eq!(time.calls.undecided, 2);
    assert!(!time.one_call_at_a_time, "two calls show nothing");
}

#[test]
fn a_peer_that_is_asked_for_no_request_takes_the_evidence_from_all() {
    let requests = [(10, 100), (200, 300)];
    let of_nobody = call(51, 140, 160);
    let mut model = script(&requests, &[call(50, 20, 90), of_nobody.clone()]).model();
    assert_eq!(links(&model), [None, None]);
    assert_eq!(model.links.of_call(1), Link::Nobody);
    // Another peer says nothing of this one, nor does what was asked before there were requests.
    let of_other_peer = Exchange {
        peer: 2,
        ..of_nobody.clone()
    };
    model = script(&requests, &[call(50, 20, 90), of_other_peer]).model();
    assert_eq!(links(&model)[0], Some((0, LinkKind::Alone)));
    let before = call(51, 2, 5);
    model = script(&requests, &[before, call(50, 20, 90)]).model();
    assert_eq!(links(&model)[1], Some((0, LinkKind::Alone)));
}

#[test]
fn a_request_without_a_row_may_have_made_it() {
    let mut script = script(&[(10, 100)], &[call(50, 20, 90)]);
    script.counter("requests.slow", 1);
    assert_eq!(links(&script.model()), [None]);
}

#[test]
fn a_connection_with_several_requests_at_once_shows_none() {
    let mut script = script(&[(10, 100)], &[call(50, 20, 90)]);
    let request = script.request(9).ready(300).multiplexed();
    request.read(300, LOOP).answered(310, LOOP);
    assert_eq!(links(&script.model()), [None]);
}

#[test]
fn a_call_that_outlives_its_request_is_nobodys() {
    let model = script(&[(10, 100)], &[call(50, 20, 150)]).model();
    assert_eq!(model.links.of_call(0), Link::Nobody);
}

#[test]
fn a_call_without_a_reply_may_be_anybodys() {
    let open = Exchange {
        first_read_ns: None,
        last_read_ns: None,
        arrived_ns: None,
        ..call(50, 20, 0)
    };
    let model = script(&[(10, 100)], &[open]).model();
    assert_eq!(links(&model), [None]);
    assert_eq!(time(&model, 0).upstream_ns, ms_of(0, 80));
}

/// Two requests at once, with tasks, and a call of a task that lies within both.
fn of_tasks(tasks: [u32; 2], of_call: u32) -> Script {
    let made = Exchange {
        task: of_call,
        ..call(50, 40, 90)
    };
    let mut script = script(&[], &[made]);
    for (socket, task) in tasks.into_iter().enumerate() {
        let request = script.request(socket as u64).ready(10).task(task);
        request.read(10, LOOP).answered(100, LOOP);
    }
    script
}

#[test]
fn the_task_says_whose_a_call_is() {
    let links_of = |tasks, of_call| links(&of_tasks(tasks, of_call).model())[0];
    assert_eq!(links_of([7, 8], 8), Some((1, LinkKind::Task)));
    assert_eq!(links_of([7, 8], 9), None, "of a task beside them");
    assert_eq!(links_of([8, 8], 8), None, "it has served both");
    assert_eq!(links_of([0, 0], 0), None);
}

/// A thread for each connection. The first sleeps in a call while the other serves, too.
fn threads(other_reads: u32, other_answers: u32) -> Script {
    let mut script = script(&[], &[call(50, 40, 90)]);
    script.thread(2, "worker").thread(3, "worker");
    let wait = script.wait(LOOP, RECVFROM, 41, 89).args([50, 0]);
    wait.by_softirq().done();
    let request = script.request(0).ready(10);
    request.read(10, LOOP).answered(100, LOOP);
    let request = script.request(1).ready(20);
    request.read(20, other_reads).answered(110, other_answers);
    script
}

#[test]
fn a_thread_that_sleeps_in_a_call_makes_it_for_the_request_that_it_read() {
    let links_of = |script: Script| links(&script.model())[0];
    assert_eq!(links_of(threads(2, 2)), Some((0, LinkKind::Thread)));
    assert_eq!(links_of(threads(LOOP, LOOP)), None, "it has read both");
    assert_eq!(
        links_of(threads(2, 3)),
        None,
        "requests go from thread to thread"
    );
    let mut asleep_elsewhere = script(&[(10, 100), (20, 110)], &[call(50, 40, 90)]);
    asleep_elsewhere.polls(LOOP, 7, 41, 89);
    assert_eq!(links_of(asleep_elsewhere), None);
}

#[test]
fn a_reply_that_nobody_reads_is_not_with_the_peer() {
    let late = Exchange {
        arrived_ns: Some(ms(60)),
        ..call(50, 20, 90)
    };
    let model = script(&[(10, 100)], &[late]).model();
    let time = time(&model, 0);
    assert_eq!(time.upstream_ns, ms_of(40, 40));
    assert_eq!(time.reply_unserved_ns, ms_of(30, 30));
}

#[test]
fn while_all_sleep_a_request_without_a_call_is_queued() {
    let mut script = script(&[], &[call(50, 60, 90)]);
    script.polls(LOOP, 7, 15, 55).polls(LOOP, 7, 61, 89);
    let request = script.request(0).ready(10).spent(Part::OnCpu, 8);
    request.read(10, LOOP).answered(100, LOOP);
    let time = time(&script.model(), 0);
    assert_eq!(time.queued_ns.at_least, 40_000_000);
    assert_eq!(time.own_ns, ms_of(8, 20), "5 ms before, 5 and 10 after");
    let sum = time.upstream_ns.at_least + time.queued_ns.at_least + time.own_ns.at_most;
    assert_eq!(sum, 90_000_000);
}

/// Rounds of two requests with a call each, within each other.
fn rounds(rounds: u64, more: &[Exchange]) -> Script {
    let mut script = script(&[], more);
    for round in 0..rounds {
        let at = 20 * round;
        for n in 0..2 {
            let request = script.request(2 * round + n).ready(at + 1);
            request.read(at + 1, LOOP).answered(at + 15, LOOP);
            script.exchange(&call(100 + 2 * round + n, at + 2, at + 12));
        }
    }
    script.ends(20 * rounds + 100);
    script
}

#[test]
fn while_all_requests_have_a_call_each_has_one() {
    let model = rounds(20, &[]).model();
    let time = time(&model, 5);
    assert!(time.one_call_at_a_time);
    assert_eq!(time.calls.certain, 0);
    assert_eq!(time.upstream_ns, ms_of(10, 10));
    let totals = model.task_totals().expect("there are calls");
    assert_eq!(totals.time.upstream_ns, ms_of(400, 400));
    assert_eq!(totals.requests, 40);
}

#[test]
fn where_requests_have_several_calls_at_once_that_shows_nothing() {
    // A third call at once: one of the two has two.
    let model = rounds(20, &[call(90, 203, 212)]).model();
    let time = time(&model, 5);
    assert!(!time.one_call_at_a_time);
    assert_eq!(time.upstream_ns, ms_of(0, 10));
}

#[test]
fn a_request_from_before_the_recording_may_have_a_call_at_first() {
    // The longest one takes 14 ms.
    let model = rounds(20, &[call(90, 3, 12)]).model();
    let totals = model.task_totals().expect("there are calls");
    assert!(totals.time.one_call_at_a_time);
    assert_eq!(
        totals.time.upstream_ns,
        ms_of(380, 400),
        "whose call is whose in the first round does not show"
    );
    // It lasts longer than any that is known, as one may of which the beginning is not seen.
    let second = rounds(20, &[call(90, 23, 27)]).model();
    let totals = second.task_totals().expect("there are calls");
    assert!(totals.time.one_call_at_a_time);
    let third = rounds(20, &[call(90, 43, 47)]).model();
    let totals = third.task_totals().expect("there are calls");
    assert!(!totals.time.one_call_at_a_time, "but not for ever");
}

#[test]
fn a_call_of_a_request_from_before_the_recording_is_no_others() {
    // At first there are two calls, and one request that is known.
    let mut script = script(&[], &[call(90, 3, 12)]);
    for round in 0..20 {
        let at = 20 * round;
        let request = script.request(round).ready(at + 1);
        request.read(at + 1, LOOP).answered(at + 15, LOOP);
        script.exchange(&call(100 + round, at + 2, at + 12));
    }
    script.ends(500);
    let model = script.model();
    assert_eq!(time(&model, 0).calls.certain, 0);
    assert_eq!(time(&model, 1).calls.certain, 1, "it is alone");
}

#[test]
fn parts_are_all_of_a_requests_time_whatever_is_recorded() {
    let mut state = 11_u64;
    let mut next = |below: u64| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 33) % below
    };
    for _ in 0..200 {
        let requests: Vec<(u64, u64)> = (0..1 + next(6))
            .map(|_| {
                let from = next(50);
                (from, from + 1 + next(60))
            })
            .collect();
        let calls: Vec<Exchange> = (0..next(9))
            .map(|socket| {
                let from = next(80);
                let mut call = call(50 + socket, from, from + next(30));
                call.peer = 1 + next(2) as u32;
                call.arrived_ns = [None, Some(ms(next(100)))][next(2) as usize];
                call.last_read_ns = Some(ms(next(120)));
                call
            })
            .collect();
        let mut script = script(&requests, &calls);
        script.polls(LOOP, 7, 20, 20 + next(50));
        let model = script.model();
        for request in model.requests() {
            let Some(time) = request.task_time() else {
                continue;
            };
            let parts = [
                time.upstream_ns,
                time.reply_unserved_ns,
                time.queued_ns,
                time.own_ns,
            ];
            for part in parts {
                assert!(part.at_least <= part.at_most, "{time:?}");
            }
            let path = request.path().steps;
            let pairs = path.windows(2);
            assert!(
                pairs.clone().all(|two| two[0].to_ns == two[1].from_ns),
                "{path:?}"
            );
            let (first, last) = (path.first().expect("one"), path.last().expect("one"));
            assert_eq!(
                (first.from_ns, last.to_ns),
                (request.ready_ns, request.end_ns())
            );
            assert_eq!(request.account().total_ns(), request.age_ns());
            let least: u64 = parts.iter().map(|part| part.at_least).sum();
            let most: u64 = parts.iter().map(|part| part.at_most).sum();
            let served = request.age_ns() - time.unserved_ns;
            assert!(least <= served && served <= most, "{time:?} of {served}");
        }
    }
}

#[test]
fn what_is_not_spent_on_calls_is_queued_whichever_call_is_whose() {
    // Two requests at a time share a connection: each call is of 10 ms, one after the other.
    let mut script = script(&[], &[]);
    for round in 0..20 {
        let at = 40 * round;
        for n in 0..2 {
            let request = script.request(2 * round + n).ready(at + 1);
            request.read(at + 1, LOOP).answered(at + 21, LOOP);
            let from = at + 1 + 10 * n;
            script.exchange(&call(100 + 2 * round + n, from, from + 10));
        }
        script.polls(LOOP, 7, at + 1, at + 21);
    }
    script.ends(900);
    let model = script.model();
    assert_eq!(time(&model, 6).upstream_ns, ms_of(0, 20));
    let totals = model.task_totals().expect("there are calls").time;
    assert_eq!(totals.upstream_ns, ms_of(400, 400));
    assert_eq!(totals.queued_ns, ms_of(400, 400));
    assert_eq!(totals.own_ns, ms_of(0, 0));
}

#[test]
fn a_loop_works_for_one_request_at_a_time() {
    let requests = [(10, 100), (300, 400), (300, 400), (300, 400), (300, 400)];
    let mut script = script(&requests, &[call(50, 20, 90)]);
    script.polls(LOOP, 7, 20, 90);
    let model = script.model();
    assert_eq!(
        time(&model, 1).own_ns,
        ms_of(0, 100),
        "it may have had all of it"
    );
    let totals = model.task_totals().expect("there are calls").time;
    assert_eq!(totals.upstream_ns, ms_of(70, 70));
    assert_eq!(
        totals.own_ns.at_most, 120_000_000,
        "so long the loop was awake"
    );
    assert_eq!(totals.queued_ns.at_least, 300_000_000, "the rest");
}

#[test]
fn of_too_many_candidates_all_may_be_its_own() {
    let calls: Vec<Exchange> = (0..300)
        .map(|n| call(100 + n, 12 + 2 * n, 13 + 2 * n))
        .collect();
    let model = script(&[(10, 700), (10, 710)], &calls).model();
    let time = time(&model, 0);
    assert_eq!(time.calls.undecided, 300);
    assert_eq!(time.upstream_ns, ms_of(0, 300));
    assert_eq!(time.peers[0].ns, ms_of(0, 300));
    assert_eq!(time.queued_ns, ms_of(0, 690));
    assert_eq!(time.own_ns, ms_of(0, 690));
}

#[test]
fn a_call_without_a_row_may_be_any_requests() {
    let of = |lost: u64| {
        let mut script = script(&[(10, 100), (30, 130)], &[call(50, 20, 90)]);
        script.counter("exchanges.over-budget", lost);
        script.model()
    };
    assert_eq!(time(&of(0), 1).upstream_ns, ms_of(0, 0));
    let model = of(1);
    assert_eq!(model.coverage().calls_without_row, 1, "the report says so");
    assert_eq!(time(&model, 0).upstream_ns, ms_of(70, 90));
    assert_eq!(time(&model, 1).upstream_ns, ms_of(0, 100));
    assert_eq!(time(&model, 1).queued_ns.at_least, 0);
    let mut rounds = rounds(20, &[]);
    rounds.counter("exchanges.over-budget", 1);
    assert!(!time(&rounds.model(), 5).one_call_at_a_time);
}

/// Whatever is asked of a model that has to do with calls.
fn ask_everything(model: &Model) {
    let total_ns = model.time_of_requests_ns();
    if let Some(totals) = model.task_totals() {
        assert!(totals.total_ns <= total_ns);
        for part in [totals.time.queued_ns, totals.time.own_ns] {
            assert!(part.at_least <= part.at_most, "{totals:?}");
        }
    }
    for request in model.requests() {
        let slow = request.slow();
        let steps: u64 = slow.path.iter().map(|step| step.ns).sum();
        assert_eq!(steps, request.age_ns(), "{slow:?}");
        let Some(time) = slow.tasks else { continue };
        for part in [time.upstream_ns, time.reply_unserved_ns, time.own_ns] {
            assert!(part.at_least <= part.at_most, "{time:?}");
            assert!(part.at_least <= request.age_ns(), "{time:?}");
        }
    }
    let _ = model.calls();
    let _ = model.requests_summary();
}

#[test]
fn exchanges_of_strangers_say_nothing_wrong_and_nothing_breaks() {
    let mut state = 5_u64;
    let mut next = |below: u64| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    for _ in 0..300 {
        let time = |next: &mut dyn FnMut(u64) -> u64| match next(8) {
            0 => 0,
            1 => u64::MAX,
            2 => u64::MAX - 1,
            _ => ms(next(120)),
        };
        let calls: Vec<Exchange> = (0..next(12))
            .map(|_| Exchange {
                // Ports, and so sockets and descriptors, are used again.
                socket: 50 + next(3),
                seq: next(3) as u32,
                tgid: [TGID, 7, 0][next(3) as usize],
                fd: next(4) as i32 - 1,
                peer: [0, 1, 2, 99][next(4) as usize],
                first_send_ns: time(&mut next),
                last_send_ns: time(&mut next),
                arrived_ns: (next(2) == 0).then(|| time(&mut next)),
                first_read_ns: (next(2) == 0).then(|| time(&mut next)),
                last_read_ns: (next(2) == 0).then(|| time(&mut next)),
                gone_ns: (next(3) == 0).then(|| time(&mut next)),
                send_tid: next(3) as u32,
                read_tid: next(3) as u32,
                task: next(3) as u32,
                rtt_min_us: u32::MAX,
                bytes_out: u64::MAX,
                ..Exchange::default()
            })
            .collect();
        let requests: Vec<(u64, u64)> = (0..next(6)).map(|n| (n * 10, n * 10 + next(90))).collect();
        let mut script = script(&requests, &calls);
        script.polls(LOOP, 7, 20, 20 + next(50));
        ask_everything(&script.model());
    }
}

#[test]
fn calls_that_never_end_and_connections_for_each_call_are_taken_in_their_stride() {
    // As many requests as the kernel side writes in a second or two, each with a connection of its
    // own, and as many calls that nobody ever answers.
    const MANY: u64 = 3000;
    let requests: Vec<(u64, u64)> = (0..MANY).map(|n| (n, n + 40)).collect();
    let short = (0..MANY).map(|n| call(1000 + n, n + 1, n + 30));
    let unending = (0..MANY).map(|n| Exchange {
        arrived_ns: None,
        first_read_ns: None,
        last_read_ns: None,
        ..call(1_000_000 + n, n + 2, n + 2)
    });
    let calls: Vec<Exchange> = short.chain(unending).collect();
    let mut script = script(&requests, &calls);
    script.ends(MANY + 100);
    let model = script.model();
    let certain = links(&model).into_iter().flatten().count();
    assert_eq!(certain, 0, "each may be of forty requests");
    let totals = model.task_totals().expect("there are calls");
    assert_eq!(totals.requests, MANY);
    assert_eq!(totals.time.calls.undecided, 2 * MANY);
    assert!(
        !totals.time.one_call_at_a_time,
        "there are more calls than requests"
    );
    assert_eq!(totals.time.upstream_ns.at_least, 0);
}

#[test]
fn a_request_of_very_many_calls_has_a_path_of_few_steps() {
    let calls: Vec<Exchange> = (0..5000)
        .map(|n| call(50, 12 + 4 * n, 14 + 4 * n))
        .collect();
    let calls: Vec<Exchange> = (1..)
        .zip(calls)
        .map(|(seq, call)| Exchange {
            seq,
            task: 3,
            ..call
        })
        .collect();
    let mut script = script(&[], &calls);
    script
        .request(1)
        .ready(10)
        .read(10, LOOP)
        .task(3)
        .answered(30_000, LOOP);
    script
        .request(2)
        .ready(10)
        .read(10, LOOP)
        .answered(30_000, LOOP);
    script.ends(30_100);
    let model = script.model();
    let request = model.request("1:1").or_else(|| model.requests().next());
    let request = request.expect("it is there");
    assert_eq!(request.task_time().expect("it has").calls.certain, 5000);
    let steps = request.path().steps;
    assert!(steps.len() < 1000, "{}", steps.len());
    let sum: u64 = steps.iter().map(|step| step.ns()).sum();
    assert_eq!(sum, request.age_ns());
}

/// Five requests at a time, of which a proxy writes what they ask in one go, thirty times; so many
/// calls there were, with those that are too short for a row.
fn written_in_one_go(calls: u64) -> Script {
    let rounds = || (0..30).map(|n| 10 + 20 * n);
    let requests: Vec<(u64, u64)> = rounds()
        .flat_map(|at| (0..5).map(move |_| (at, at + 18)))
        .collect();
    let exchanges: Vec<Exchange> = rounds()
        .zip(1..)
        .map(|(at, seq)| Exchange {
            seq,
            ..call(50, at, at + 17)
        })
        .collect();
    let mut script = script(&requests, &exchanges);
    script.peer(&PeerSums {
        count: calls,
        ..peer(1)
    });
    script
}

#[test]
fn what_is_written_in_one_go_may_be_any_requests() {
    let model = written_in_one_go(30).model();
    assert!(model.is_shared(&model.exchanges()[0]));
    let ranges = time(&model, 3);
    assert_eq!(ranges.upstream_ns, ms_of(0, 17));
    assert_eq!(ranges.queued_ns.at_least, 0, "it may be with the peer");
    let model = written_in_one_go(61).model();
    let shared = model.is_shared(&model.exchanges()[0]);
    assert!(!shared, "each may have had a short one");
}
