use whywait_events::{Tail, TailReason};
use whywait_model::script::Script;

use super::*;
use crate::shared::queues::script::{LOOP, call, peer};

const RECVFROM: u32 = 45;

/// A thread that serves `times` requests of 40 ms, of which it waits `waits` for a peer, and has
/// its CPU for the rest.
fn serves(times: u64, waits: u64) -> Script {
    let mut script = Script::new();
    script.thread(1, "worker").ends(5000);
    let fetch = script.stack(&["start_thread", "serve", "fetch", "recv"]);
    for at in (0..times).map(|n| n * 100) {
        let wait = script.wait(1, RECVFROM, at + 1, at + 1 + waits);
        wait.stack(fetch).by_softirq().done();
        script.request(1).ready(at).read(at, 1).answered(at + 40, 1);
    }
    script
}

fn alone(script: &Script) -> Verdict {
    verdict(&Facts::of(&script.model()), &[])
}

#[test]
fn what_nothing_explains_is_not_nothing_wrong() {
    let script = serves(10, 38);
    let network = Verdict::CannotTell {
        part: Dominant::Part(Part::Network),
        percent: 95,
        shape: Shape {
            at_a_time: 1,
            every_ns: None,
        },
    };
    assert_eq!(alone(&script), network);
    let model = script.model();
    let findings = crate::find(&Facts::of(&model));
    assert_eq!(
        verdict(&Facts::of(&model), &findings),
        Verdict::AsEver { percent: 95 },
        "they say it"
    );
}

/// A thread that has a message every 25 ms and is done with it after `took_ms`, and one that sleeps
/// for `ms` `times` times, one after the other.
fn hands_on(took_ms: u64, times: u64, ms: u64) -> Script {
    const CLOCK_NANOSLEEP: u32 = 230;
    let mut script = Script::new();
    script.ends(1000);
    script.thread(1, "worker").thread(2, "other");
    for n in 0..times {
        script.wait(2, CLOCK_NANOSLEEP, n * ms, (n + 1) * ms).done();
    }
    for n in 0..40 {
        let job = script.request(n + 1).ready(n * 25).hidden_job(1);
        job.read(n * 25, 1).answered(n * 25 + took_ms, 1);
    }
    script.are_jobs(40 * took_ms);
    script
}

#[test]
fn who_works_on_jobs_that_are_done_at_once_while_others_work_is_not_known() {
    let handed_on = |besides_ms: u64| Verdict::HandedOn {
        jobs_ns: 0,
        besides_ns: besides_ms * 1_000_000,
    };
    let is_known = |script: &Script| !matches!(alone(script), Verdict::HandedOn { .. });
    assert_eq!(alone(&hands_on(0, 20, 40)), handed_on(800));
    assert!(is_known(&hands_on(0, 12, 40)), "not for most of the time");
    assert!(is_known(&hands_on(0, 3, 300)), "a clock works on none");
    assert_eq!(alone(&hands_on(0, 4, 250)), handed_on(1000), "one in ten");
    assert!(is_known(&hands_on(3, 20, 40)), "they take some time");
}

#[test]
fn what_gets_through_in_step_has_a_shape() {
    let Verdict::CannotTell { shape, .. } = alone(&serves(11, 38)) else {
        panic!("nothing explains it");
    };
    assert_eq!(shape.every_ns, Some(100_000_000));
    // Ten gaps, of which eight are even, are in step. Six are not.
    let moments = |uneven: u64| -> Vec<u64> {
        let late = |n: u64| if n % 2 == 1 && n < 2 * uneven { 40 } else { 0 };
        (0..11).map(|n| n * 100 + late(n)).collect()
    };
    assert_eq!(in_step_ns(&moments(1)), Some(100));
    assert_eq!(in_step_ns(&moments(2)), None);
}

#[test]
fn notes_explain_too() {
    let model = serves(10, 25).model();
    let mut findings = crate::find(&Facts::of(&model));
    assert!(
        findings
            .iter()
            .all(|finding| finding.severity == Severity::Note)
    );
    assert_eq!(
        verdict(&Facts::of(&model), &findings),
        Verdict::AsEver { percent: 63 }
    );
    for finding in &mut findings {
        finding.as_ever = None;
    }
    assert_eq!(
        verdict(&Facts::of(&model), &findings),
        Verdict::Notes { percent: 63 },
        "what could be otherwise is not nothing"
    );
}

/// A loop that answers pairs of `slow` requests after 40 ms and `quick` ones at once, and polls
/// meanwhile.
fn loop_answers(slow: u64, quick: u64) -> Verdict {
    let mut script = Script::new();
    script.thread(1, "loop").ends(9000);
    for at in (0..slow).map(|n| n * 100) {
        script
            .polls(1, 7, at + 1, at + 10)
            .polls(1, 7, at + 12, at + 40);
        for (socket, at) in [(1, at), (3, at + 10)] {
            let request = script.request(socket).epoll(7).ready(at);
            request.read(at, 1).answered(at + 41, 1);
        }
    }
    for at in (0..quick).map(|n| 50 + n * 20) {
        let request = script.request(2).epoll(7).ready(at);
        request.read(at, 1).answered(at + 1, 1);
    }
    let model = script.model();
    let facts = Facts::of(&model);
    verdict(&facts, &crate::find(&facts))
}

/// By time: a few slow requests may have nearly all of it.
#[test]
fn a_peer_or_a_timer_explains_exceptions_only() {
    for (slow, quick) in [(20, 0), (20, 100), (5, 300)] {
        let rule = loop_answers(slow, quick);
        assert!(
            matches!(rule, Verdict::CannotTell { .. }),
            "{slow} {quick}: {rule:?}"
        );
    }
    assert_eq!(loop_answers(2, 300), Verdict::NothingWrong);
}

#[test]
fn work_that_nothing_explains_is_not_nothing_wrong() {
    let on_cpu = Dominant::Part(Part::OnCpu);
    let verdict = alone(&serves(10, 5));
    assert!(
        matches!(verdict, Verdict::CannotTell { part, .. } if part == on_cpu),
        "{verdict:?}"
    );
}

#[test]
fn few_slow_requests_say_nothing_of_a_server() {
    let mut script = serves(1, 38);
    for at in (1000..4000).step_by(10) {
        script.request(2).ready(at).read(at, 2).answered(at + 5, 2);
    }
    assert_eq!(alone(&script), Verdict::NothingWrong);
}

#[test]
fn what_is_sent_for_long_after_a_quick_beginning_is_not_slow() {
    let mut script = Script::new();
    script.thread(1, "loop").ends(5000);
    script.wait(1, 232, 1, 3000).epoll(1).by_softirq().done();
    let request = script.request(1).epoll(1).ready(0).read(0, 1);
    request.begins_to_answer(1).answered(3000, 1);
    assert_eq!(alone(&script), Verdict::NothingWrong);
}

/// So many requests of which the server sleeps in a send for 300 ms of 310, with clients that had
/// no room for so long, of that so long after all was written.
fn clients_without_room(times: u64, for_ms: u64, afterwards_ms: u64) -> Script {
    const SENDTO: u32 = 44;
    let mut script = Script::new();
    script.thread(1, "worker").ends(5000);
    let send = script.stack(&["start_thread", "serve", "send"]);
    for at in (0..times).map(|n| n * 400) {
        let wait = script.wait(1, SENDTO, at + 5, at + 305);
        wait.stack(send).by_softirq().done();
        script
            .request(at + 1)
            .ready(at)
            .read(at, 1)
            .begins_to_answer(at + 1)
            .answered(at + 310, 1);
        script.tail(&Tail {
            socket: at + 1,
            seq: 1,
            tgid: 1,
            tid: 1,
            local_port: 80,
            written_ns: (at + 310) * 1_000_000,
            sent_ns: (at + 310 + afterwards_ms) * 1_000_000,
            reason: TailReason::Window,
            window_ns: for_ms * 1_000_000,
            ..Tail::default()
        });
    }
    script
}

#[test]
fn clients_that_do_not_read_are_no_fault_of_the_servers() {
    let of = |times: u64, for_ms: u64, afterwards_ms: u64| {
        let model = clients_without_room(times, for_ms, afterwards_ms).model();
        let facts = Facts::of(&model);
        let findings = crate::find(&facts);
        let codes: Vec<&str> = findings.iter().map(|finding| finding.code.name()).collect();
        (verdict(&facts, &findings), codes.join(" "))
    };
    let (said, codes) = of(10, 310, 10);
    assert_eq!(said, Verdict::AwaitsClients { percent: 97 });
    assert_eq!(codes, "slow-reader", "one finding about the same waits");
    for (for_ms, afterwards_ms) in [(100, 0), (300, 290)] {
        let (said, codes) = of(10, for_ms, afterwards_ms);
        assert!(!matches!(said, Verdict::AwaitsClients { .. }), "{said:?}");
        assert!(codes.contains("slow-path-wait"), "{codes}");
    }
    let (said, _) = of(1, 310, 10);
    assert_eq!(said, Verdict::AwaitsClients { percent: 97 });
    let mut script = clients_without_room(1, 310, 10);
    script.request(900).ready(900).read(900, 1).answered(901, 1);
    assert_eq!(
        alone(&script),
        Verdict::NothingWrong,
        "one of two says nothing"
    );
}

#[test]
fn requests_that_are_stuck_come_first() {
    let mut script = serves(10, 5);
    script.request(7).ready(4000).unanswered();
    assert_eq!(alone(&script), Verdict::Open);
    let mut young = serves(10, 5);
    young.request(7).ready(4950).unanswered();
    assert_ne!(alone(&young), Verdict::Open, "it may be on its way");
    // Where requests take 40 ms, one of 90 ms is late and not stuck.
    let mut late = serves(10, 5);
    late.request(7).ready(4910).unanswered();
    assert_ne!(alone(&late), Verdict::Open);
}

#[test]
fn without_requests_there_is_nothing_to_say() {
    let mut script = Script::new();
    script.thread(1, "worker").ends(5000);
    assert_eq!(alone(&script), Verdict::NoRequests);
}

#[test]
fn a_target_that_was_stopped_is_accused_of_nothing() {
    let mut script = serves(10, 5);
    let stop = script.stack(&["get_signal", "do_signal_stop"]);
    script
        .wait(1, RECVFROM, 2000, 4000)
        .kernel(stop)
        .by(9)
        .done();
    script
        .request(7)
        .ready(2100)
        .read(4001, 1)
        .answered(4002, 1);
    let model = script.model();
    let stopped = model.stopped().expect("it was");
    assert_eq!((stopped.ns, stopped.how), (2_000_000_000, "stopped"));
    assert!(!stopped.since_before && !stopped.to_the_end);
    assert_eq!(alone(&script), Verdict::Stopped);
    let was_stopped = |id| {
        model
            .request(id)
            .is_some_and(|request| request.was_stopped())
    };
    assert!(was_stopped("7:1") && !was_stopped("1:1"));
    assert_eq!(
        crate::find(&Facts::of(&model)),
        [],
        "what took long was the stop"
    );
}

#[test]
fn requests_that_cannot_be_told_apart_are_no_reason_for_praise() {
    let several = |mut script: Script| {
        script.counter("connections.overlapping", 1);
        script.counter("requests.multiplexed", 2);
        script
    };
    assert_eq!(alone(&several(serves(10, 5))), Verdict::Multiplexed);
    assert_eq!(
        alone(&several(serves(10, 38))),
        Verdict::Multiplexed,
        "what they wait for is no more certain"
    );
    let mut stuck = several(serves(10, 5));
    stuck.request(7).ready(4000).unanswered();
    assert_eq!(alone(&stuck), Verdict::Open);
}

#[test]
fn a_program_without_requests_may_have_operations() {
    use crate::shared::rings::script::{READ, ring, script, sum};
    assert_eq!(alone(Script::new().thread(1, "idle")), Verdict::NoRequests);
    let mut busy = script(ring(), sum(READ));
    assert_eq!(alone(&busy), Verdict::Operations);
    // One that listens, and has done next to nothing, has had no load.
    busy.accept_queue(whywait_events::AcceptQueue::default());
    assert_eq!(alone(&busy), Verdict::Operations);
    let mut few = script(
        whywait_events::uring::Ring {
            submitted: 12,
            ..ring()
        },
        sum(READ),
    );
    assert_eq!(alone(&few), Verdict::Operations);
    few.accept_queue(whywait_events::AcceptQueue::default());
    assert_eq!(alone(&few), Verdict::NoRequests);
}

/// Ten requests at a time whose calls of 20 ms go out one a while: a loop's poll is for all.
fn queue_inside(sleeps: impl Fn(&mut Script, u64)) -> Script {
    let mut script = Script::new();
    script.thread(LOOP, "loop").ends(9000);
    for n in 0..40_u64 {
        // Not at once, so that it is no pool's connection that each waits for.
        let (ready, from) = (10 + 400 * (n / 10), 40 + 400 * (n / 10) + 36 * (n % 10));
        script.exchange(&call(1_000 + n, 1, from, from + 20));
        sleeps(&mut script, from);
        let request = script.request(100 + n).epoll(7).ready(ready);
        request.read(ready, LOOP).answered(from + 20, LOOP);
    }
    script.peer(&peer(40, 40));
    script
}

fn is_queued(script: &Script) {
    let verdict = alone(script);
    let Verdict::CannotTell { part, percent, .. } = verdict else {
        panic!("expected that it cannot tell, got {verdict:?}");
    };
    assert_eq!(part, Dominant::Queued);
    assert!((50..=95).contains(&percent), "{percent} %");
}

#[test]
fn what_queues_inside_does_not_wait_for_the_network() {
    is_queued(&queue_inside(|script, from| {
        script.polls(LOOP, 7, from, from + 20);
    }));
}

/// On a busy machine the loop is woken early in each call and has no CPU until its end.
#[test]
fn what_queues_inside_does_not_wait_for_a_cpu() {
    is_queued(&queue_inside(|script, from| {
        let wait = script.wait(LOOP, 232, from, from + 2).epoll(7);
        wait.by_softirq().on_cpu_at(from + 20).done();
    }));
}
