//! Scripts of events that must, or must not, be `blocked-loop`.

use serde_json::json;
use whywait_events::UNNAMED_JIT;
use whywait_model::script::{Script, TGID, ms};

use super::*;

const EPOLL: u32 = 1;

/// A loop, thread 1, and a helper, 2, that idles.
fn server() -> (Script, u32, u32) {
    let mut script = Script::new();
    script.thread(1, "python3").thread(2, "python3");
    let helper = script.stack(&[
        "clone3",
        "start_thread",
        "take_from_queue",
        "pthread_cond_wait",
    ]);
    let handler = script.stack(&[
        "_start",
        "Py_RunMain",
        "app_render_thumbnail",
        "clock_nanosleep",
    ]);
    script.parks(2, helper, 0, 10_000, 1);
    script.polls(1, EPOLL, 0, 10);
    let poll = script.stack(&["_start", "Py_RunMain", "select_epoll_poll", "epoll_wait"]);
    script.polls_in(1, EPOLL, poll, 20, 30);
    (script, handler, helper)
}

#[test]
fn a_synchronous_sleep_blocks_the_others() {
    let (mut script, handler, _) = server();
    script
        .request(1)
        .epoll(EPOLL)
        .ready(30)
        .read(31, 1)
        .answered(331, 1);
    script.sleeps(1, handler, 31, 331);
    script
        .request(2)
        .epoll(EPOLL)
        .ready(40)
        .read(332, 1)
        .answered(333, 1);
    let findings = detect(&Facts::of(&script.model()));
    assert_eq!(findings.len(), 1, "{findings:#?}");
    let finding = &findings[0];
    assert_eq!(
        (finding.severity, finding.confidence),
        (Severity::Error, Confidence::High)
    );
    assert!(
        finding.title.ends_with("1 request waited"),
        "the request that slept does not wait for itself: {}",
        finding.title
    );
    assert_eq!(
        finding.saving.requests, 2,
        "its work may not be done at all"
    );
    let own = finding
        .evidence
        .iter()
        .find(|one| one.text.contains("the work itself"));
    assert_eq!(
        own.and_then(|one| one.ns),
        Some(300_000_000),
        "{finding:#?}"
    );
    assert_eq!(
        finding.saving.each_at_most_ns,
        [300_000_000, 292_000_000],
        "from its first byte until it was read: the loop would have been idle"
    );
    assert!(
        finding.title.contains("app_render_thumbnail"),
        "{}",
        finding.title
    );
}

#[test]
fn a_long_computation_blocks_them_too() {
    let (mut script, handler, _) = server();
    script.burns(1, handler, 31, 331);
    script
        .request(2)
        .epoll(EPOLL)
        .ready(40)
        .read(332, 1)
        .answered(333, 1);
    let findings = detect(&Facts::of(&script.model()));
    assert_eq!(
        findings[0].cause.as_ref().map(|cause| cause.doing.as_str()),
        Some("on CPU")
    );
    assert!(
        findings[0].title.contains("app_render_thumbnail"),
        "{}",
        findings[0].title
    );
}

#[test]
fn what_a_runtime_does_on_its_own_account_is_not_the_functions_in_which_it_does() {
    // In `module` the application calls the runtime, and that calls this.
    let found_in = |module: &str, runtime: &str, calls: &[&str]| {
        let (mut script, _, _) = server();
        let calls = [&["main", "app_render_thumbnail", runtime][..], calls].concat();
        let stack = script.stack_in(module, &calls);
        script.burns(1, stack, 31, 331);
        script
            .request(2)
            .epoll(EPOLL)
            .ready(40)
            .read(332, 1)
            .answered(333, 1);
        let findings = detect(&Facts::of(&script.model()));
        assert_eq!(findings.len(), 1, "{findings:#?}");
        (
            findings[0].subject["function"].clone(),
            findings[0].fix.contains("allocate less"),
        )
    };
    for (module, call, what) in [
        (
            "/usr/bin/node",
            "v8::internal::Heap::CollectGarbage(int)",
            runtime::COLLECTOR,
        ),
        (
            "/usr/lib/libpython3.so",
            "gc_collect_main",
            runtime::COLLECTOR,
        ),
        (
            "/usr/lib/jvm/libjvm.so",
            "VMThread::execute(VM_Operation*)",
            runtime::PAUSE,
        ),
        (
            "/usr/lib/jvm/libjvm.so",
            "SafepointSynchronize::block(JavaThread*)",
            runtime::PAUSE,
        ),
    ] {
        assert_eq!(found_in(module, call, &[]), (json!(what), true), "{call}");
    }
    let of_application = found_in("/srv/app", "gc_collect_main", &[]);
    assert_eq!(of_application, (json!("gc_collect_main"), false));
}

#[test]
fn a_block_that_nobody_waited_for_is_not_reported() {
    let (mut script, handler, _) = server();
    script.sleeps(1, handler, 31, 331);
    script
        .request(1)
        .epoll(EPOLL)
        .ready(30)
        .read(31, 1)
        .answered(331, 1);
    assert_eq!(detect(&Facts::of(&script.model())), []);
}

#[test]
fn a_loop_that_waits_for_a_cpu_is_not_blocked() {
    let (mut script, _, _) = server();
    script.busy(1, 31, 331, 5_000_000, 290_000_000);
    script
        .request(2)
        .epoll(EPOLL)
        .ready(40)
        .read(332, 1)
        .answered(333, 1);
    assert_eq!(detect(&Facts::of(&script.model())), []);
}

/// A server that is on its CPU from 31 ms to `to_ms` while a request waits. The CPU's clock ticks
/// then only in `ticking`, and later. Whether a loop blocked for that long is reported.
fn is_reported(to_ms: u64, ticking: &[(u64, u64)]) -> bool {
    let (mut script, handler, _) = server();
    script.busy(1, 31, to_ms, (to_ms - 31) * 1_000_000, 0);
    for &(from_ms, to_ms) in ticking {
        script.burns(1, handler, from_ms, to_ms);
    }
    script.burns(1, handler, 100, 120);
    script
        .request(2)
        .epoll(EPOLL)
        .ready(32)
        .read(to_ms + 1, 1)
        .answered(to_ms + 2, 1);
    let length = format!("{} ms", to_ms - 31);
    let findings = detect(&Facts::of(&script.model()));
    findings
        .iter()
        .any(|finding| finding.title.contains(&length))
}

/// Where the record of a wake was lost, the interval between two polls has the sleep in it.
#[test]
fn a_sleep_is_no_second_absence_on_the_cpu() {
    let (mut script, handler, _) = server();
    script.sleeps(1, handler, 35, 330);
    script.busy(1, 31, 331, 40_000_000, 0);
    script
        .request(2)
        .epoll(EPOLL)
        .ready(40)
        .read(332, 1)
        .answered(333, 1);
    let findings = detect(&Facts::of(&script.model()));
    assert_eq!(findings.len(), 1, "{findings:#?}");
    let doing = findings[0].cause.as_ref().map(|cause| cause.doing.as_str());
    assert!(
        doing.is_some_and(|doing| doing.starts_with("asleep")),
        "{doing:?}"
    );
}

#[test]
fn interrupts_that_keep_its_cpu_are_not_the_loops_doing() {
    let found = |frames: &[&str]| {
        let (mut script, ..) = server();
        let kernel = script.stack(frames);
        script.busy(1, 31, 71, 40_000_000, 0);
        script.sampled_in_kernel(1, kernel, 31, 71);
        script
            .request(2)
            .epoll(EPOLL)
            .ready(32)
            .read(72, 1)
            .answered(73, 1);
        detect(&Facts::of(&script.model()))
            .iter()
            .any(|finding| finding.title.contains("40 ms"))
    };
    let in_its_call = [
        "do_syscall_64",
        "tcp_sendmsg",
        "do_softirq",
        "handle_softirqs",
    ];
    assert!(
        found(&in_its_call),
        "what a send sets off is the sender's: a loop blocked for 40 ms was expected"
    );
    let in_an_interrupt = [
        "do_syscall_64",
        "do_epoll_wait",
        "asm_sysvec_apic_timer_interrupt",
        "handle_softirqs",
    ];
    assert!(
        !found(&in_an_interrupt),
        "no blocked loop was expected: the kernel worked for others"
    );
}

#[test]
fn a_machine_that_was_stopped_is_not_the_loops_doing() {
    let ticks_once_when_all_goes_on = is_reported(64, &[(63, 64)]);
    assert!(!ticks_once_when_all_goes_on, "no blocked loop was expected");
    let stopped_in_the_midst_of_work = is_reported(69, &[(31, 37), (68, 69)]);
    assert!(
        !stopped_in_the_midst_of_work,
        "no blocked loop was expected"
    );
    let ticks_all_the_time = is_reported(69, &[(31, 69)]);
    assert!(ticks_all_the_time, "a loop blocked for 38 ms was expected");
}

#[test]
fn a_clock_that_ticks_less_often_bears_out_as_much() {
    // Each of its ticks stands for four.
    let reported_with = |ticks_until_ms: u64| {
        let (mut script, handler, _) = server();
        script.sampled_sparsely(1, handler, 0, ticks_until_ms);
        script.busy(1, 31, 91, 60_000_000, 0);
        script.burns(1, handler, 100, 120);
        script
            .request(2)
            .epoll(EPOLL)
            .ready(32)
            .read(92, 1)
            .answered(93, 1);
        detect(&Facts::of(&script.model()))
            .iter()
            .any(|finding| finding.title.contains("60 ms"))
    };
    assert!(reported_with(91), "a loop blocked for 60 ms was expected");
    assert!(
        !reported_with(31),
        "no blocked loop was expected: the clock stood still meanwhile"
    );
}

#[test]
fn serving_one_after_the_other_is_load() {
    let (mut script, _, _) = server();
    // Every read and write ends an interval, so the loop has no long one, though requests wait.
    for n in 0..20 {
        script
            .request(n)
            .epoll(EPOLL)
            .ready(30)
            .read(31 + n * 5, 1)
            .answered(35 + n * 5, 1);
        script.busy(1, 31 + n * 5, 35 + n * 5, 4_000_000, 0);
    }
    assert_eq!(detect(&Facts::of(&script.model())), []);
}

#[test]
fn of_two_causes_the_one_that_costs_more_comes_first() {
    let (mut script, handler, _) = server();
    let other = script.stack(&["_start", "Py_RunMain", "app_read_config", "read"]);
    script.sleeps(1, other, 31, 51);
    script
        .request(2)
        .epoll(EPOLL)
        .ready(32)
        .read(51, 1)
        .answered(52, 1);
    script.sleeps(1, handler, 60, 360);
    script
        .request(3)
        .epoll(EPOLL)
        .ready(61)
        .read(361, 1)
        .answered(362, 1);
    let findings = detect(&Facts::of(&script.model()));
    assert_eq!(findings.len(), 2);
    assert!(
        findings[0].title.contains("app_render_thumbnail"),
        "{}",
        findings[0].title
    );
    assert_eq!(findings[1].severity, Severity::Note, "20 ms are a remark");
}

#[test]
fn what_is_rare_is_said_if_it_made_a_request_take_long() {
    let beside_much = |until| {
        let (mut script, handler, _) = server();
        script.sleeps(1, handler, 31, until);
        let request = script.request(2).epoll(EPOLL).ready(32);
        request.read(until, 1).answered(until + 1, 1);
        script
            .counter("requests.count", 100_000)
            .counter("requests.total-ns", 60_000_000_000);
        let found = detect(&Facts::of(&script.model()));
        found.first().map(|finding| finding.severity)
    };
    assert_eq!(beside_much(80), None);
    assert_eq!(beside_much(140), Some(Severity::Error));
}

#[test]
fn what_was_so_once_among_many_slow_requests_is_an_accident() {
    let absences = |times: u64| {
        let (mut script, handler, _) = server();
        // Others take their time for another reason.
        for n in 0..60 {
            let request = script.request(100 + n).epoll(EPOLL).ready(1_000);
            request.read(1_000, 1).answered(1_050, 1);
        }
        for n in 0..times {
            let at = 2_000 + n * 100;
            script.sleeps(1, handler, at, at + 40);
            let request = script.request(2 + n).epoll(EPOLL).ready(at + 1);
            request.read(at + 40, 1).answered(at + 41, 1);
        }
        script.ends(3_000);
        let found = detect(&Facts::of(&script.model()));
        found.first().map(|finding| finding.severity)
    };
    assert_eq!(absences(1), None);
    assert_eq!(absences(2), Some(Severity::Warning));
}

#[test]
fn a_short_absence_beside_much_work_is_not_worth_a_remark() {
    let (mut script, handler, _) = server();
    script.sleeps(1, handler, 31, 51);
    script
        .request(2)
        .epoll(EPOLL)
        .ready(32)
        .read(51, 1)
        .answered(52, 1);
    assert_eq!(
        detect(&Facts::of(&script.model()))[0].severity,
        Severity::Note
    );
    script
        .counter("requests.count", 100_000)
        .counter("requests.total-ns", 60_000_000_000);
    assert_eq!(detect(&Facts::of(&script.model())), []);
}

#[test]
fn a_runtime_that_compiles_once_as_it_starts_is_not_worth_a_remark() {
    let (mut script, ..) = server();
    let compiled = script.stack(&["_start", UNNAMED_JIT]);
    let mut away = |socket, from_ms| {
        script.sleeps(1, compiled, from_ms, from_ms + 20);
        script
            .request(socket)
            .epoll(EPOLL)
            .ready(from_ms + 1)
            .read(from_ms + 20, 1)
            .answered(from_ms + 21, 1);
        detect(&Facts::of(&script.model())).len()
    };
    assert_eq!(away(2, 31), 0);
    assert_eq!(away(3, 81), 1, "twice is no start");
}

/// The table of descriptors of a process with several threads grows at 64 of them, at 256, and so
/// on, and `accept` waits until the kernel may free the former one.
#[test]
fn a_grace_period_as_the_table_of_descriptors_grows_is_not_worth_a_remark() {
    let (mut script, ..) = server();
    let accepts = script.stack(&["_start", "main", "uv__server_io", "accept4"]);
    let grows = script.stack_in(
        "[kernel]",
        &["__sys_accept4", "expand_files", "synchronize_rcu_normal"],
    );
    let mut away = |socket, from_ms| {
        let wait = script.wait(1, 288, from_ms, from_ms + 20);
        wait.stack(accepts).kernel(grows).uninterruptible().done();
        script
            .request(socket)
            .epoll(EPOLL)
            .ready(from_ms + 1)
            .read(from_ms + 20, 1)
            .answered(from_ms + 21, 1);
        detect(&Facts::of(&script.model())).len()
    };
    assert_eq!(away(2, 31), 0);
    assert_eq!(away(3, 81), 1, "twice within a second it is something else");
}

#[test]
fn a_close_notify_that_wants_no_answer_waits_for_nothing() {
    let (mut script, handler, _) = server();
    // A backend of a database: the client says goodbye, and what the thread does before it ends is
    // that one's own.
    script
        .request(1)
        .epoll(EPOLL)
        .ready(30)
        .read(31, 1)
        .unanswered();
    script.sleeps(1, handler, 40, 66);
    script.sleeps(1, handler, 70, 98);
    script.ends(100);
    assert_eq!(detect(&Facts::of(&script.model())), []);
}

#[test]
fn a_request_that_is_not_read_when_the_recording_ends_waits_for_the_loop() {
    let (mut script, handler, _) = server();
    script.request(1).epoll(EPOLL).ready(30).unanswered();
    script.sleeps(1, handler, 30, 130);
    script.ends(130);
    let findings = detect(&Facts::of(&script.model()));
    assert_eq!(findings.len(), 1, "nobody has read it for 100 ms");
    assert_eq!(findings[0].saving.at_most_ns, 100_000_000);
}

#[test]
fn a_client_that_leaves_is_spared_nothing_and_waits_no_longer() {
    let (mut script, handler, _) = server();
    let answered = script.request(1).epoll(EPOLL).ready(30);
    answered.read(331, 1).answered(340, 1);
    script.request(2).epoll(EPOLL).ready(30).gone(90);
    script.sleeps(1, handler, 30, 330);
    // Long after both.
    script.sleeps(1, handler, 400, 4_400);
    script.ends(5_000);
    let model = script.model();
    let findings = detect(&Facts::of(&model));
    let saving = &findings[0].saving;
    assert!(
        saving.at_most_ns <= model.time_of_requests_ns(),
        "{saving:?}"
    );
    assert_eq!(saving.requests, 1, "the other one has no latency");
    let waited = &findings[0].evidence[1];
    assert_eq!(waited.ns, Some(300_000_000), "{waited:?}");
}

/// Thread 1 reads what four clients send, who ask again as soon as they have an answer, and never
/// waits for them. `serve` says what it does for each request, from when until when.
fn saturated(script: &mut Script, each_ms: u64, serve: &mut dyn FnMut(&mut Script, u64, u64, u64)) {
    for n in 0..20 {
        let read_ms = 100 + n * each_ms;
        let answered_ms = read_ms + each_ms - 1;
        serve(script, n, read_ms, answered_ms);
        script
            .request(n % 4)
            .epoll(EPOLL)
            .ready(read_ms.saturating_sub(3 * each_ms))
            .read(read_ms, 1)
            .answered(answered_ms, 1);
    }
}

#[test]
fn a_loop_that_is_blocked_all_the_time_never_polls() {
    let mut script = Script::new();
    script.thread(1, "python3");
    let handler = script.stack(&["_start", "Py_RunMain", "look_up_rate", "clock_nanosleep"]);
    saturated(&mut script, 41, &mut |script, _, from_ms, to_ms| {
        script.sleeps(1, handler, from_ms, to_ms);
    });
    let findings = detect(&Facts::of(&script.model()));
    assert_eq!(findings.len(), 1, "{findings:#?}");
    let finding = &findings[0];
    assert_eq!(finding.severity, Severity::Error);
    assert_eq!(finding.subject["function"], json!("look_up_rate"));
    assert_eq!(
        finding.saving.requests, 20,
        "the first has nobody before it, but work of its own"
    );
    assert_eq!(
        finding.saving.each_at_most_ns[0], 160_000_000,
        "three times others' work, and its own: no more has gone since its client's last answer"
    );
    assert!(
        finding.evidence[0].text.contains("alone reads"),
        "{}",
        finding.evidence[0].text
    );
}

#[test]
fn a_loop_that_computes_all_the_time_never_polls_either() {
    let mut script = Script::new();
    script.thread(1, "server");
    let handler = script.stack(&["_start", "main", "parse_document"]);
    saturated(&mut script, 41, &mut |script, _, from_ms, to_ms| {
        script.burns(1, handler, from_ms, to_ms);
    });
    let findings = detect(&Facts::of(&script.model()));
    assert_eq!(findings.len(), 1, "{findings:#?}");
    assert_eq!(findings[0].subject["function"], json!("parse_document"));
}

#[test]
fn a_loop_that_is_full_of_short_requests_is_not_blocked() {
    let mut script = Script::new();
    script.thread(1, "server");
    let handler = script.stack(&["_start", "main", "parse_document"]);
    saturated(&mut script, 3, &mut |script, _, from_ms, to_ms| {
        script.burns(1, handler, from_ms, to_ms);
    });
    assert_eq!(detect(&Facts::of(&script.model())), []);
}

#[test]
fn a_worker_that_has_one_connection_after_the_other_is_no_loop() {
    let mut script = Script::new();
    script.thread(1, "worker");
    let handler = script.stack(&["_start", "main", "look_up_rate", "clock_nanosleep"]);
    for n in 0..10 {
        script.sleeps(1, handler, 100 + n * 41, 140 + n * 41);
        script
            .request(n)
            .epoll(EPOLL)
            .ready(99 + n * 41)
            .read(100 + n * 41, 1)
            .answered(140 + n * 41, 1);
    }
    let model = script.model();
    assert!(model.pools.is_empty(), "{:?}", model.pools);
    assert_eq!(detect(&Facts::of(&model)), []);
}

const POLL: u32 = 7;
const RECV: u32 = 45;
/// A client's descriptor.
const CLIENT: u64 = 9;
const ACCEPT: u32 = 43;
const URING: u32 = 426;

/// A thread that sleeps for 40 ms in each request, by turns for three connections: the findings'
/// first evidence. `idles` says where it sleeps besides.
fn without_epoll(idles: impl Fn(&mut Script)) -> Option<String> {
    let sleeps = |script: &mut Script, stack, from_ms, to_ms| {
        script.sleeps(1, stack, from_ms, to_ms);
    };
    without_epoll_that(sleeps, idles)
}

/// The same, where `blocks` says how a request sleeps in the stack that it is given.
fn without_epoll_that(
    blocks: impl Fn(&mut Script, StackId, u64, u64),
    idles: impl Fn(&mut Script),
) -> Option<String> {
    let mut script = Script::new();
    script.thread(1, "server").thread(2, "helper");
    let handler = script.stack(&["_start", "main", "look_up_rate", "clock_nanosleep"]);
    idles(&mut script);
    for n in 0..10 {
        let read_ms = 100 + n * 41;
        blocks(&mut script, handler, read_ms, read_ms + 40);
        script
            .request(n % 3)
            .descriptor(CLIENT as i32)
            .ready(read_ms - 60)
            .read(read_ms, 1)
            .answered(read_ms + 40, 1);
    }
    let findings = detect(&Facts::of(&script.model()));
    let finding = findings.first()?;
    assert!(finding.subject.get("epoll").is_none(), "it has none");
    Some(finding.evidence[0].text.clone())
}

#[test]
fn a_loop_need_not_have_an_epoll_instance() {
    let polls = |tid: u32, descriptors: u64| {
        move |script: &mut Script| {
            let wait = script.wait(tid, POLL, 20, 30);
            wait.args([0x7f00_0000_0000, descriptors]).done();
        }
    };
    let said = without_epoll(polls(1, 4)).expect("it polls four at a time");
    assert!(
        said.contains("alone polls its connections by poll or select"),
        "{said}"
    );
    assert_eq!(
        without_epoll(polls(2, 4)),
        None,
        "another one polls, and may hand it what it reads"
    );
    assert_eq!(
        without_epoll(polls(1, 1)),
        without_epoll(|_| ()),
        "a poll for one descriptor says nothing"
    );
}

#[test]
fn a_loop_that_polls_for_one_descriptor_waits_for_none_of_the_others() {
    let idles = |script: &mut Script| {
        let wait = script.wait(1, POLL, 20, 30);
        wait.args([0x7f00_0000_0000, 4]).done();
    };
    let polls = |descriptor, descriptors| {
        move |script: &mut Script, stack, from_ms, to_ms| {
            let wait = script.wait(1, POLL, from_ms, to_ms).stack(stack);
            wait.args([descriptor, descriptors]).done();
        }
    };
    let said = without_epoll_that(polls(6, 1), idles).expect("a library polls for its connection");
    assert!(said.contains("asleep in poll"), "{said}");
    assert_eq!(
        without_epoll_that(polls(0x7f00_0000_0000, 4), idles),
        None,
        "that is its own poll"
    );
}

#[test]
fn who_reads_alone_by_turns_was_not_seen_to_poll_and_blocks_nowhere_else() {
    let said = without_epoll(|_| ()).expect("nobody else polls or reads");
    assert!(said.contains("was never seen to wait for them"), "{said}");
    for (call, descriptor) in [(ACCEPT, 3), (URING, 4), (RECV, CLIENT)] {
        let sleeps = |script: &mut Script| {
            let wait = script.wait(1, call, 20, 30);
            wait.args([descriptor, 0]).done();
        };
        assert_eq!(
            without_epoll(sleeps),
            None,
            "it sleeps in system call {call}"
        );
    }
}

#[test]
fn readers_that_are_several_are_no_single_threaded_loop() {
    let mut script = Script::new();
    script.thread(1, "server").thread(2, "server");
    let handler = script.stack(&["_start", "main", "look_up_rate", "clock_nanosleep"]);
    saturated(&mut script, 41, &mut |script, _, from_ms, to_ms| {
        script.sleeps(1, handler, from_ms, to_ms);
    });
    script
        .request(9)
        .epoll(EPOLL)
        .ready(100)
        .read(101, 2)
        .answered(102, 2);
    assert_eq!(detect(&Facts::of(&script.model())), []);
}

/// What is found of a loop that is blocked by these in turn.
fn blocked_by(stacks: &[&[&str]]) -> Vec<String> {
    let (mut script, ..) = server();
    let stacks: Vec<StackId> = stacks.iter().map(|calls| script.stack(calls)).collect();
    for (n, stack) in (0..).zip(stacks.iter().cycle().take(12)) {
        let at_ms = 100 + n * 60;
        script.burns(1, *stack, at_ms, at_ms + 40);
        script
            .request(n)
            .epoll(EPOLL)
            .ready(at_ms + 1)
            .read(at_ms + 41, 1)
            .answered(at_ms + 42, 1);
    }
    let findings = detect(&Facts::of(&script.model()));
    let function = |finding: &Finding| finding.subject["function"].as_str().map(str::to_owned);
    findings.iter().filter_map(function).collect()
}

#[test]
fn one_function_behind_several_leaves_is_one_finding() {
    let keys: &[&str] = &["main", "aeMain", "call", "keysCommand"];
    let next: &[&str] = &["main", "aeMain", "call", "keysCommand", "dictNext"];
    let found = blocked_by(&[keys, next, next, next]);
    assert_eq!(found, ["keysCommand"]);
}

#[test]
fn two_functions_of_one_caller_are_two_findings() {
    let keys: &[&str] = &["main", "aeMain", "call", "keysCommand"];
    let sort: &[&str] = &["main", "aeMain", "call", "sortCommand"];
    assert_eq!(blocked_by(&[keys, sort]).len(), 2);
}

#[test]
fn an_absence_is_in_the_function_that_lasts() {
    let (mut script, ..) = server();
    let stacks = ["dictNext", "stringmatchlen", "sdslen"]
        .map(|leaf| script.stack(&["main", "aeMain", "call", "keysCommand", leaf]));
    script.busy(1, 100, 160, 60_000_000, 0);
    for (at_ms, stack) in (100..160).step_by(5).zip(stacks.iter().cycle()) {
        script.sampled(1, *stack, at_ms, at_ms + 1);
    }
    script
        .request(2)
        .epoll(EPOLL)
        .ready(101)
        .read(161, 1)
        .answered(162, 1);
    let findings = detect(&Facts::of(&script.model()));
    assert_eq!(findings.len(), 1, "{findings:#?}");
    assert_eq!(findings[0].subject["function"], json!("keysCommand"));
}

#[test]
fn a_little_time_in_code_that_nothing_names_counts_to_what_such_code_calls() {
    let parse: &[&str] = &["main", UNNAMED_JIT, "Builtin_JsonParse"];
    let clock: &[&str] = &["main", UNNAMED_JIT];
    let times = |parses: usize| {
        let mut stacks = vec![parse; parses];
        stacks.push(clock);
        blocked_by(&stacks)
    };
    assert_eq!(times(11), ["Builtin_JsonParse"]);
    assert_eq!(times(3).len(), 2, "it has a part of its own");
}

#[test]
fn a_stack_of_the_interpreter_alone_counts_to_the_function_that_is_known() {
    let (mut script, handler, _) = server();
    let native = script.stack_in(
        "/usr/bin/python3.11",
        &["Py_RunMain", "task_step_impl", "clock_nanosleep"],
    );
    for (n, stack) in (0..).zip([handler, native, handler]) {
        let at_ms = 100 + n * 60;
        script.sleeps(1, stack, at_ms, at_ms + 40);
        script
            .request(n)
            .epoll(EPOLL)
            .ready(at_ms + 1)
            .read(at_ms + 41, 1)
            .answered(at_ms + 42, 1);
    }
    let findings = detect(&Facts::of(&script.model()));
    assert_eq!(findings.len(), 1, "{findings:#?}");
    assert_eq!(
        findings[0].subject["function"],
        json!("app_render_thumbnail")
    );
    assert_eq!(findings[0].saving.requests, 3);
}

#[test]
fn sleeps_without_a_user_stack_count_to_the_function_that_makes_the_same_call() {
    const NANOSLEEP: u32 = 230;
    const PWRITE: u32 = 18;
    let found_with = |syscall: u32, kernel: &[&str]| {
        let (mut script, handler, _) = server();
        let kernel = script.stack(kernel);
        let mut at_ms = 31;
        for known in [true, false, true] {
            let stay = if known {
                script.wait(1, NANOSLEEP, at_ms, at_ms + 100).stack(handler)
            } else {
                script.wait(1, syscall, at_ms, at_ms + 100).kernel(kernel)
            };
            stay.by_timer().done();
            script
                .request(at_ms)
                .epoll(EPOLL)
                .ready(at_ms + 1)
                .read(at_ms + 101, 1)
                .answered(at_ms + 102, 1);
            at_ms += 110;
        }
        detect(&Facts::of(&script.model()))
    };
    let sleep = ["do_syscall_64", "do_nanosleep", "hrtimer_nanosleep"];
    let findings = found_with(NANOSLEEP, &sleep);
    assert_eq!(findings.len(), 1, "{findings:#?}");
    assert!(
        findings[0].title.contains("blocked 3 times")
            && findings[0].title.contains("app_render_thumbnail"),
        "{}",
        findings[0].title
    );
    let findings = found_with(PWRITE, &["do_syscall_64", "ksys_pwrite64"]);
    assert_eq!(findings.len(), 2, "another call is another reason");
}

#[test]
fn the_same_in_the_loops_of_all_workers_is_one_finding() {
    let mut script = Script::new();
    let handler = script.stack(&["_start", "main", "look_up_rate", "clock_nanosleep"]);
    for pid in 100..104 {
        script.thread_of(pid, pid, "gunicorn");
        script.polls(pid, EPOLL, 0, 10);
        script.sleeps(pid, handler, 31, 131);
        script
            .request(u64::from(pid))
            .of(pid)
            .epoll(EPOLL)
            .ready(40)
            .read(132, pid)
            .answered(133, pid);
    }
    let findings = detect(&Facts::of(&script.model()));
    assert_eq!(findings.len(), 1, "{findings:#?}");
    let finding = &findings[0];
    assert_eq!(finding.saving.requests, 4);
    assert_eq!(finding.subject["pids"], json!([100, 101, 102, 103]));
    assert!(
        finding
            .title
            .starts_with("the event loops of 4 processes gunicorn were blocked 4 times"),
        "{}",
        finding.title
    );
}

/// Two requests that each ask a peer for 200 ms and then compute for 40 ms. The second one's reply
/// comes 10 ms after the first's. With the calls, or without.
fn asks_and_computes(with_calls: bool) -> Vec<Finding> {
    let (mut script, handler, _) = server();
    script.burns(1, handler, 231, 271);
    script.burns(1, handler, 272, 312);
    // Another one's work, while both are with the peer.
    script.burns(1, handler, 100, 140);
    for (n, read, came, read_reply, answered) in [
        (1, 30, 230, 230, 271),
        (2, 31, 240, 271, 312),
        (3, 20, 90, 99, 141),
    ] {
        let request = script.request(n).epoll(EPOLL).ready(read);
        request.read(read, 1).answered(answered, 1);
        if with_calls {
            script.exchange(&Exchange {
                socket: 100 + n,
                tgid: TGID,
                fd: 20,
                peer: 1,
                first_send_ns: ms(read + 1),
                last_send_ns: ms(read + 1),
                arrived_ns: Some(ms(came)),
                first_read_ns: Some(ms(read_reply)),
                last_read_ns: Some(ms(read_reply)),
                ..Exchange::default()
            });
        }
    }
    detect(&Facts::of(&script.model()))
}

#[test]
fn what_a_loop_does_while_a_request_is_with_its_peer_keeps_it_from_nothing() {
    let findings = asks_and_computes(false);
    assert_eq!(
        findings[0].saving.each_at_most_ns,
        [120_000_000, 80_000_000, 40_000_000],
        "of each its own 40 ms, and others' before that"
    );
    let findings = asks_and_computes(true);
    assert_eq!(
        findings[0].saving.each_at_most_ns,
        [71_000_000, 40_000_000, 40_000_000],
        "one reply lay there from 240 to 271; the rest is their own work"
    );
}

/// Eight clients that ask again as soon as they are answered. Each request makes the loop sleep for
/// so much of the 6 ms that it takes.
fn short_calls(asleep_ms: u64) -> Vec<Finding> {
    let (mut script, handler, _) = server();
    for turn in 0..60 {
        let from = 40 + turn * 6;
        script
            .request(1 + turn % 8)
            .epoll(EPOLL)
            .ready((from - 6).saturating_sub(36).max(30))
            .read(from, 1)
            .answered(from + 6, 1);
        script.sleeps(1, handler, from, from + asleep_ms);
    }
    detect(&Facts::of(&script.model()))
}

#[test]
fn a_short_call_in_each_request_blocks_the_others_as_well() {
    let findings = short_calls(5);
    assert_eq!(findings.len(), 1, "{findings:#?}");
    let finding = &findings[0];
    assert_eq!(finding.severity, Severity::Warning, "each waits 35 ms");
    assert!(
        finding.title.contains("blocked 60 times for up to 5 ms"),
        "{}",
        finding.title
    );
    // What they wait besides is work, which is not away.
    let latency_ns: u64 = 60 * 48_000_000;
    assert!(finding.saving.at_most_ns <= latency_ns, "{finding:#?}");
    assert!(finding.saving.at_most_ns > latency_ns / 2, "{finding:#?}");
}

#[test]
fn a_loop_that_mostly_works_is_not_blocked_by_short_calls() {
    assert!(short_calls(2).is_empty());
}

#[test]
fn the_stack_that_is_shown_has_the_function_that_is_named() {
    let (mut script, handler, _) = server();
    // The stack of the longest one was not read in time.
    for (n, (stack, asleep)) in [(handler, 100), (handler, 100), (0, 150)]
        .into_iter()
        .enumerate()
    {
        let from = 40 + n as u64 * 200;
        let request = script.request(1 + n as u64).epoll(EPOLL).ready(from);
        request.read(from, 1).answered(from + asleep, 1);
        script.sleeps(1, stack, from, from + asleep);
        let waits = script.request(11 + n as u64).epoll(EPOLL).ready(from + 1);
        waits.read(from + asleep, 1).answered(from + asleep + 1, 1);
    }
    let findings = detect(&Facts::of(&script.model()));
    let of_handler = |one: &&Finding| one.subject["function"] == json!("app_render_thumbnail");
    let finding = findings.iter().find(of_handler).expect("a finding");
    let cause = finding.cause.as_ref().expect("a cause");
    let named = cause
        .stack
        .iter()
        .any(|name| name == "app_render_thumbnail");
    assert!(named, "{findings:#?}");
}
