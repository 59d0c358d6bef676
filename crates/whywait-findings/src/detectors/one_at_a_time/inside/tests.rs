use whywait_events::{Cpu, Part, UNNAMED_JIT};
use whywait_model::script::{Script, TGID};

use super::super::detect;
use crate::facts::Facts;
use crate::finding::{Finding, Severity};

const MS: u64 = 1_000_000;

fn found(script: &Script) -> Vec<Finding> {
    detect(&Facts::of(&script.model()))
}

/// A loop that polls, and requests on connections of their own: each is read at once, and answered.
fn loop_answers(requests: impl IntoIterator<Item = (u64, u64)>) -> Script {
    let mut script = Script::new();
    script.thread(1, "loop").ends(60_000);
    for (socket, (came, answered)) in (1..).zip(requests) {
        let request = script.request(socket).ready(came).read(came, 1);
        request.answered(answered, 1);
    }
    script
}

/// The same; for that the loop waits meanwhile.
fn loop_waits_for(part: Part, requests: impl IntoIterator<Item = (u64, u64)>) -> Script {
    let mut script = Script::new();
    script.thread(1, "loop").ends(60_000);
    for (socket, (came, answered)) in (1..).zip(requests) {
        let request = script.request(socket).ready(came).read(came, 1);
        request.spent(part, answered - came).answered(answered, 1);
    }
    script
}

/// Six come at once, every 200 ms.
fn six_at_once(answered: impl Fn(u64) -> u64) -> impl Iterator<Item = (u64, u64)> {
    let each = (0..8).flat_map(|round| (1..=6).map(move |place| (10 + round * 200, place)));
    each.map(move |(came, place)| (came, came + answered(place)))
}

#[test]
fn requests_that_come_at_once_and_are_answered_in_step_pass_one_at_a_time() {
    let findings = found(&loop_answers(six_at_once(|place| place * 20)));
    assert_eq!(findings.len(), 1, "{findings:#?}");
    let finding = &findings[0];
    assert_eq!(finding.severity, Severity::Warning);
    assert!(
        finding.title.contains("which pass one at a time"),
        "{}",
        finding.title
    );
    // Five of six wait, for 20 to 100 ms.
    assert_eq!(finding.saving.at_most_ns, 8 * 300 * MS);
    let seen = &finding.evidence[1].text;
    assert!(
        seen.contains("after 20 ms") && seen.contains("40 ms with 2 inside"),
        "{seen}"
    );
}

#[test]
fn requests_that_take_a_time_of_their_own_pass_side_by_side() {
    assert_eq!(found(&loop_answers(six_at_once(|_| 60))), []);
    assert_eq!(
        found(&loop_answers(six_at_once(|place| 60 + place * 3))),
        []
    );
}

/// Their sleeps show what for: a lock for which they try again and again, say.
#[test]
fn requests_whose_own_threads_sleep_do_not_pass_unseen() {
    let sleeping = |threads: u64| {
        let mut script = Script::new();
        for tid in 1..=threads as u32 {
            script.thread(tid, "worker");
        }
        let stack = script.stack(&["work", "acquire", "nanosleep"]);
        for (n, (came, answered)) in (0..).zip(six_at_once(|place| place * 20)) {
            let tid = 1 + (n % threads) as u32;
            if threads > 1 {
                script.sleeps(tid, stack, came, answered);
            }
            let request = script.request(n + 1).ready(came).read(came, tid);
            request.answered(answered, tid);
        }
        script.ends(60_000);
        script
    };
    assert_eq!(found(&sleeping(6)), []);
    assert_eq!(found(&sleeping(1)).len(), 1, "one thread, as a loop");
}

/// Clients that began one after another, and each comes again at once: that answers follow each
/// other in step shows nothing, for so do the requests.
#[test]
fn in_step_with_who_asks_shows_nothing() {
    let side_by_side = (0..60).map(|n| (10 + n * 20, 10 + n * 20 + 160));
    assert_eq!(found(&loop_answers(side_by_side)), []);
    // Later they take twice as long: as many more are inside, and yet none waits for another.
    let slower = (0..80).map(|n| (10 + n * 20, 10 + n * 20 + if n < 40 { 80 } else { 160 }));
    assert_eq!(found(&loop_answers(slower)), []);
}

/// Numbers below 5 that follow no rule.
fn jitter() -> impl FnMut() -> u64 {
    let mut state = 12_345_u64;
    move || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 33) % 5
    }
}

/// Eight clients, each of which comes again as soon as it has its answer.
#[test]
fn who_comes_after_an_answer_waits_for_others_if_the_steps_add_up() {
    let mut jitter = jitter();
    // One at a time: each takes 18 to 22 ms.
    let mut answers = vec![10; 8];
    for n in 8..200 {
        answers.push(answers[n - 1] + 18 + jitter());
    }
    let one_at_a_time = || (8..200).map(|n| (answers[n - 8], answers[n]));
    // What comes from outside may come as evenly.
    assert_eq!(found(&loop_answers(one_at_a_time())), []);
    let findings = found(&loop_waits_for(Part::Timer, one_at_a_time()));
    assert_eq!(findings.len(), 1, "{findings:#?}");
    let seen = &findings[0].evidence[1].text;
    assert!(seen.contains(" with 8 inside (median)"), "{seen}");
    // Side by side: each takes 158 to 162 ms.
    let mut answers: Vec<u64> = (0..8).map(|n| 10 + n * 20).collect();
    for n in 8..200 {
        answers.push(answers[n - 8] + 158 + jitter());
    }
    let side_by_side = (8..120).map(|n| (answers[n - 8], answers[n]));
    assert_eq!(found(&loop_waits_for(Part::Timer, side_by_side)), []);
}

/// Eight clients, each of which comes again as soon as it has its answer, and times between 10 and
/// 50 ms.
#[test]
fn requests_of_unequal_lengths_that_none_overtakes_pass_one_at_a_time() {
    let mut jitter = jitter();
    let length = |jitter: &mut dyn FnMut() -> u64| 10 + jitter() * 10;
    let mut answers = vec![10; 8];
    for n in 8..200 {
        answers.push(answers[n - 1] + length(&mut jitter));
    }
    let one_at_a_time = || (8..200).map(|n| (answers[n - 8], answers[n]));
    // Without a timer of the program's own they may be answered as somebody else tells it.
    assert_eq!(found(&loop_answers(one_at_a_time())), []);
    let findings = found(&loop_waits_for(Part::Timer, one_at_a_time()));
    assert_eq!(findings.len(), 1, "{findings:#?}");
    let seen = &findings[0].evidence[1].text;
    assert!(seen.contains("0 of them overtook another one"), "{seen}");
    // Side by side, each takes a time of its own, …
    let mut side_by_side = Vec::new();
    for client in 0..8 {
        let mut at = 10 + client;
        for _ in 0..24 {
            let came = at;
            at += 5 * length(&mut jitter);
            side_by_side.push((came, at));
        }
    }
    assert_eq!(found(&loop_waits_for(Part::Timer, side_by_side)), []);
    // … or a longer one all the time, so that none overtakes another one either.
    let longer: Vec<(u64, u64)> = (0..200)
        .map(|n| (10 + n * 20, 10 + n * 20 + 100 + n + jitter()))
        .collect();
    assert_eq!(found(&loop_waits_for(Part::Timer, longer)), []);
    // All that came meanwhile are answered together, when what they wait for has ended.
    let together = (0..200).map(|n| (10 + n * 20, 10 + (n / 8 + 1) * 160 + n % 8 / 7));
    assert_eq!(found(&loop_waits_for(Part::Timer, together)), []);
    // The same, and each answer takes a little: what they waited for is what came before the first.
    let mut flushed = Vec::new();
    for round in 0..40 {
        let mut came: Vec<u64> = (0..10)
            .map(|_| 10 + round * 400 + 40 * jitter() + jitter())
            .collect();
        came.sort_unstable();
        let mut done = round * 400 + 310;
        for came in came {
            done += 1 + jitter();
            flushed.push((came, done));
        }
    }
    assert_eq!(found(&loop_waits_for(Part::Timer, flushed)), []);
    // … and they come again at once, and no flush is like another one.
    let (mut flushed, mut came, mut at) = (Vec::new(), vec![10; 8], 10);
    for _ in 0..20 {
        at += 100 * (1 + jitter());
        let done: Vec<u64> = (0..8).map(|n| at + 2 * n).collect();
        flushed.extend(came.into_iter().zip(done.clone()));
        came = done;
    }
    assert_eq!(found(&loop_waits_for(Part::Timer, flushed)), []);
}

/// Two, three or four at a time, of sixteen clients that come again at once: those take 18 to
/// 22 ms, and so none overtakes another one.
#[test]
fn a_few_at_a_time_do_not_pass_one_at_a_time() {
    for at_a_time in 2..5_usize {
        let mut jitter = jitter();
        let mut free: Vec<u64> = (0..at_a_time as u64).map(|n| 10 + n * 3).collect();
        let mut comes: Vec<u64> = vec![10; 16];
        let mut requests = Vec::new();
        for _ in 0..400 {
            comes.sort_unstable();
            free.sort_unstable();
            let (came, turn) = (comes.remove(0), free.remove(0));
            let done = came.max(turn) + 18 + jitter();
            free.push(done);
            comes.push(done);
            requests.push((came, done));
        }
        let findings = found(&loop_waits_for(Part::Timer, requests));
        assert_eq!(findings, [], "{at_a_time} at a time");
    }
}

#[test]
fn a_loop_that_computes_meanwhile_is_another_findings() {
    let mut script = loop_answers(six_at_once(|place| place * 20));
    script.cpu(&Cpu {
        tgid: TGID,
        tid: 1,
        on_cpu_ns: 900 * MS,
        ..Cpu::default()
    });
    assert_eq!(found(&script), []);
}

const BOOK: &[&[&str]] = &[
    &["start_thread", "serve", "book", "round"],
    &["start_thread", "serve", "book", "sum"],
];

/// Two threads, of which the first one computes for every other request, and the second one for
/// the others: 40 ms each, with these stacks. `both`: at the same time, and then nobody.
fn two_compute(both: bool, stacks: &[&[&str]]) -> Script {
    let mut script = Script::new();
    let stacks: Vec<_> = stacks.iter().map(|calls| script.stack(calls)).collect();
    script.thread(1, "a").thread(2, "b").ends(4000);
    for n in 0..40 {
        let tid = n % 2 + 1;
        let (came, done) = (10 + n * 40, 10 + n * 40 + 80);
        let began = match both {
            true => came + 40 * tid - 40,
            false => came + 40,
        };
        let what = stacks[(n / 2) as usize % stacks.len()];
        script
            .request(n + 1)
            .ready(came)
            .read(came, tid as u32)
            .answered(done, tid as u32)
            .sampled(tid as u32, what, began, began + 40);
    }
    for tid in [1, 2] {
        script.cpu(&Cpu {
            tgid: TGID,
            tid,
            on_cpu_ns: 800 * MS,
            ..Cpu::default()
        });
    }
    script
}

#[test]
fn threads_that_compute_by_turns_though_a_cpu_is_idle() {
    let findings = found(&two_compute(false, BOOK));
    assert_eq!(findings.len(), 1, "{findings:#?}");
    let finding = &findings[0];
    assert!(
        finding
            .title
            .ends_with("which compute one at a time in book"),
        "the common function, and no leaf: {}",
        finding.title
    );
}

#[test]
fn a_few_stacks_that_reach_further_name_no_function_for_the_others() {
    let compiled: &[&str] = &["_start", UNNAMED_JIT];
    let script = two_compute(false, &[BOOK[0], compiled, compiled]);
    let findings = found(&script);
    let finding = findings.first().expect("they still compute by turns");
    assert!(
        finding.title.ends_with("which compute one at a time"),
        "most samples have no function: {}",
        finding.title
    );
}

#[test]
fn threads_that_compute_at_the_same_time_do_not_pass_one_at_a_time() {
    assert_eq!(found(&two_compute(true, BOOK)), []);
}
