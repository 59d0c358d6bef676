//! How far requests got, and what follows from it.

use whywait_events::Ns;

use crate::model::Model;
use crate::requests::lives::Life;
use crate::script::{Script, ms};

/// An answered request, one that is being answered, one that was read, and one that nobody read.
fn four() -> Model {
    let mut script = Script::new();
    script.thread(1, "worker");
    script.request(1).ready(10).read(20, 1).answered(30, 1);
    script
        .request(2)
        .ready(11)
        .read(40, 1)
        .begins_to_answer(50)
        .unanswered();
    script.request(3).ready(12).read(60, 1).unanswered();
    script.request(4).ready(13).unanswered();
    script.ends(100);
    script.model()
}

fn each<'m, T>(model: &'m Model, of: fn(Life<'m>) -> T) -> Vec<T> {
    model.lives().map(of).collect()
}

#[test]
fn a_request_is_open_until_the_last_byte_of_its_response() {
    let model = four();
    let answered = each(&model, Life::is_answered);
    assert_eq!(answered, [true, false, false, false]);
    let latencies = each(&model, Life::latency_ns);
    assert_eq!(latencies, [Some(ms(30) - ms(10)), None, None, None]);
    let until = each(&model, Life::until_ns);
    assert_eq!(until, [ms(30), Ns::MAX, Ns::MAX, Ns::MAX]);
    let ends: Vec<_> = model
        .requests()
        .map(|request| request.path().steps.last().map(|step| step.to_ns))
        .collect();
    assert_eq!(ends, [30, 100, 100, 100].map(|at| Some(ms(at))));
    assert_eq!(model.requests_summary().count, 1);
}

#[test]
fn who_was_read_and_got_no_byte_is_unanswered() {
    let model = four();
    let unanswered = each(&model, Life::is_unanswered);
    assert_eq!(unanswered, [false, false, true, false]);
}

#[test]
fn what_nobody_reads_waits_until_the_recording_ends() {
    let model = four();
    let served = each(&model, Life::served_ns);
    assert_eq!(served, [ms(20), ms(40), ms(60), ms(100)]);
    let waited = each(&model, Life::waited_until_ns);
    assert_eq!(waited, [ms(30), ms(50), ms(60), ms(100)]);
    let unread = model.request("4:1").expect("it has a row");
    assert_eq!(unread.account().total_ns(), ms(100) - ms(13));
}

#[test]
fn what_is_given_up_waits_no_longer() {
    let mut script = Script::new();
    script.thread(1, "loop");
    script.request(1).ready(10).gone(70);
    script.request(2).ready(10).read(90, 1).gone(70);
    script.ends(1000);
    let waited = each(&script.model(), Life::waited_until_ns);
    assert_eq!(waited, [ms(70), ms(70)]);
}

#[test]
fn a_request_is_found_by_its_name() {
    let model = four();
    let found = model.request("3:1").map(|request| request.id());
    assert_eq!(found.as_deref(), Some("3:1"));
    assert!(model.request("5:1").is_none());
}

/// A request that was read before the recording began, and answered by thread 1; and one that
/// thread 1 answered after `reader` had read it.
fn read_before(reader: u32) -> Model {
    let mut script = Script::new();
    script.thread(1, "worker").thread(2, "reader");
    script.request(1).since_before().read(0, 0).answered(50, 1);
    script.request(2).ready(60).read(61, reader).answered(90, 1);
    script.ends(100);
    script.model()
}

#[test]
fn who_answers_what_it_reads_had_read_what_it_answers() {
    assert_eq!(each(&read_before(1), |request| request.recv_tid), [1, 1]);
}

#[test]
fn who_answers_what_others_read_may_not_have_read_it() {
    assert_eq!(each(&read_before(2), |request| request.recv_tid), [0, 2]);
}

/// A request that thread 1 of a process of its own has read when that ends, after 50 ms.
fn its_process_ends(script: &mut Script) -> Option<Ns> {
    script.thread_of(7, 1, "session");
    script.request(1).of(7).ready(10).read(20, 1).unanswered();
    script.ends_thread(1, 50).ends(100);
    script.model().requests().next().expect("one").gone_ns
}

#[test]
fn who_ends_on_its_own_leaves_nobody_waiting() {
    let mut script = Script::new();
    script.thread(2, "server");
    assert_eq!(its_process_ends(&mut script), Some(ms(50)));
}

#[test]
fn what_a_target_had_open_when_it_was_ended_is_open() {
    let mut script = Script::new();
    script.thread(2, "server").ends_thread(2, 51);
    assert_eq!(its_process_ends(&mut script), None);
}

#[test]
fn what_is_unknown_as_no_wake_was_seen_is_told_apart() {
    const EPOLL_PWAIT: u32 = 281;
    let mut script = Script::new();
    script.thread(1, "loop").thread(2, "helper");
    script.wait(1, EPOLL_PWAIT, 10, 40).by_timer().done();
    script.wait(1, EPOLL_PWAIT, 41, 70).by_unseen().done();
    // Two are under way while the loop's second sleep ends unseen, one for all of it.
    script.request(1).ready(5).read(6, 1).answered(71, 1);
    script.request(2).ready(50).read(50, 1).answered(72, 1);
    // One that goes on sleeping has no end that could have been seen.
    script.wait(2, EPOLL_PWAIT, 7, 90).forever().done();
    script.request(3).ready(6).read(6, 2).unanswered();
    script.ends(100);
    let model = script.model();
    let coverage = model.coverage();
    assert_eq!(coverage.unmatched_wakes_ns, (29 + 20) * 1_000_000);
    let unknown: Vec<u64> = model
        .requests()
        .map(|request| request.account().service[whywait_events::Part::Unknown])
        .collect();
    assert_eq!(unknown[0], 29_000_000, "the rest of it is known");
}
