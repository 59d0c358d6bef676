//! Scripts of events that must, or must not, be `serial-work`.

use serde_json::json;
use whywait_events::{Burst, BurstCall, Cpu};
use whywait_model::script::{Script, TGID};

use super::*;
use crate::finding::Severity;

const API: u32 = 1;
const WORKER: u32 = 2;
const EPOLL: u32 = 7;
const FUTEX: u32 = 202;

/// An API thread, 1, and a worker, 2, that computes for it.
struct Server {
    script: Script,
    parked: u32,
    compact: u32,
    checksum: u32,
}

fn server() -> Server {
    let mut script = Script::new();
    script.thread(API, "api").thread(WORKER, "worker");
    let parked = script.stack(&["serve", "recv_answer", "syscall"]);
    let compact = script.stack(&["run_worker", "compact_index"]);
    let checksum = script.stack(&["run_worker", "checksum_pages"]);
    Server {
        script,
        parked,
        compact,
        checksum,
    }
}

impl Server {
    /// A thread sleeps on a word of its own until another wakes it.
    fn parks(&mut self, tid: u32, from: u64, to: u64, by: u32) {
        self.script
            .wait(tid, FUTEX, from, to)
            .stack(self.parked)
            .word(0x1000 * u64::from(tid))
            .by(by)
            .done();
    }

    /// The API reads a request at `at`, the worker burns for it, and wakes it.
    fn request(&mut self, socket: u64, at: u64, checksum_ms: u64, compact_ms: u64) {
        let begun = at + 1;
        let between = begun + checksum_ms;
        let done = between + compact_ms;
        self.parks(WORKER, at.saturating_sub(5), begun, API);
        self.script
            .burns(WORKER, self.checksum, begun, between)
            .burns(WORKER, self.compact, between, done);
        self.parks(WORKER, done, done + 1, API);
        self.parks(API, begun, done, WORKER);
        self.script
            .request(socket)
            .ready(at)
            .read(at, API)
            .answered(done + 1, API);
    }
}

fn the_finding(script: &Script) -> Finding {
    let findings = detect(&Facts::of(&script.model()));
    assert_eq!(findings.len(), 1, "{findings:#?}");
    findings.into_iter().next().unwrap()
}

fn said(finding: &Finding) -> String {
    let texts: Vec<&str> = finding
        .evidence
        .iter()
        .map(|evidence| evidence.text.as_str())
        .collect();
    texts.join("\n")
}

#[test]
fn a_worker_on_the_cpu_dominates_every_request() {
    let mut server = server();
    for n in 0..10 {
        server.request(n + 1, 10 + n * 300, 20, 180);
    }
    let finding = the_finding(&server.script);
    assert_eq!(
        (finding.severity, finding.confidence),
        (Severity::Warning, Confidence::High)
    );
    assert_eq!(
        finding.title,
        "10 slow requests spent 99 % of their time on the CPU, most of it in compact_index (thread \
         worker)"
    );
    assert_eq!(finding.saving.each_at_most_ns, [200_000_000; 10]);
    assert_eq!(
        finding.evidence[0].text,
        "the slowest of them, 202 ms: api (1) waits for worker (2), which is on the CPU for 200 \
         ms, 180 ms of them in compact_index"
    );
    assert_eq!(
        finding.subject.get("growth"),
        None,
        "it is the same each time"
    );
    assert!(
        said(&finding).contains("by samples: compact_index 90 %; checksum_pages 10 %"),
        "{}",
        said(&finding)
    );
    let cause = finding.cause.unwrap();
    assert_eq!((cause.tid, cause.doing.as_str()), (WORKER, "on CPU"));
    assert_eq!(cause.stack[0], "compact_index");
}

/// A request at 10 ms for which the worker is on a CPU from 11 ms to `done`, sampled as `sampled`
/// has it.
fn computed_until(done: u64, sampled: impl Fn(&mut Server)) -> Finding {
    let mut server = server();
    server.parks(WORKER, 0, 11, API);
    server.parks(API, 11, done, WORKER);
    server
        .script
        .busy(WORKER, 11, done, (done - 11) * 1_000_000, 0);
    sampled(&mut server);
    server.parks(WORKER, done, 900, API);
    server
        .script
        .request(1)
        .ready(10)
        .read(10, API)
        .answered(done + 1, API);
    the_finding(&server.script)
}

#[test]
fn samples_of_a_clock_that_ticked_less_often_weigh_more() {
    let finding = computed_until(211, |server| {
        server
            .script
            .sampled_sparsely(WORKER, server.compact, 11, 171)
            .sampled(WORKER, server.checksum, 171, 211);
    });
    assert!(
        said(&finding).contains("by samples: compact_index 80 %; checksum_pages 20 %"),
        "160 ms were sampled every 20 ms, and 40 ms every 5: {}",
        said(&finding)
    );
}

#[test]
fn two_samples_of_four_periods_are_two() {
    let finding = computed_until(51, |server| {
        server
            .script
            .sampled_sparsely(WORKER, server.compact, 11, 51);
    });
    assert_eq!(
        finding.subject.get("function"),
        None,
        "two samples are too few to name a function: {}",
        finding.title
    );
}

#[test]
fn requests_with_too_few_samples_each_are_known_from_all_of_them() {
    let mut server = server();
    for n in 0..30 {
        let (checksum_ms, compact_ms) = if n % 3 == 0 { (10, 0) } else { (0, 10) };
        server.request(n + 1, 10 + n * 100, checksum_ms, compact_ms);
    }
    let finding = the_finding(&server.script);
    assert!(
        said(&finding).contains("by samples: compact_index 67 %; checksum_pages 33 %"),
        "two samples of each of 30 requests say in which functions they were: {}",
        said(&finding)
    );
    assert_eq!(finding.subject["function"], "compact_index");
}

#[test]
fn work_that_grows_says_where_and_how_fast() {
    let mut server = server();
    let mut at = 10;
    for n in 0..10 {
        server.request(n + 1, at, 40, 30 * (n + 1));
        at += 500;
    }
    let finding = the_finding(&server.script);
    let growth = &finding.subject["growth"];
    assert_eq!(growth["per_episode_ns"], 30_000_000);
    assert_eq!(growth["r2"], 1.0);
    assert_eq!(growth["episodes"], 10);
    assert_eq!(growth["function"], "compact_index");
    assert!(
        finding.title.ends_with(
            "on the CPU, most of it in compact_index (thread worker), 30 ms more with each"
        ),
        "{}",
        finding.title
    );
    assert_eq!(
        finding.evidence[0].text,
        "it grows: from 70 ms to 340 ms over 10 requests, 30 ms more with each (R² 1); \
         compact_index accounts for all of it"
    );
    // 2050 ms altogether, ten times 70 if it had not grown.
    assert!(
        said(&finding).contains("1.35 s of the 2.05 s would be gone, and 70 ms remain of each"),
        "{}",
        said(&finding)
    );
    assert!(finding.fix.contains("compact_index"), "{}", finding.fix);
}

#[test]
fn growth_is_reported_of_the_function_that_grows_not_of_the_largest() {
    let mut server = server();
    for n in 0..10 {
        server.request(n + 1, 10 + n * 700, 400, 20 * (n + 1));
    }
    // 20 ms more each time on top of 400 is a third more at the end: not half of the mean.
    assert_eq!(the_finding(&server.script).subject.get("growth"), None);

    let mut server = self::server();
    for n in 0..10 {
        server.request(n + 1, 10 + n * 700, 200, 30 * (n + 1));
    }
    let finding = the_finding(&server.script);
    assert_eq!(finding.subject["growth"]["function"], "compact_index");
    assert_eq!(finding.subject["function"], "compact_index");
}

#[test]
fn what_goes_up_and_down_does_not_grow() {
    let level = [100, 300, 120, 280, 90, 310, 150, 260];
    let rising = [10, 60, 12, 62, 14, 64, 20, 70].map(|ms| ms * 5);
    for each_ms in [level, rising] {
        let mut server = server();
        for (n, ms) in each_ms.into_iter().enumerate() {
            server.request(n as u64 + 1, 10 + n as u64 * 500, 0, ms);
        }
        assert_eq!(the_finding(&server.script).subject.get("growth"), None);
    }
}

#[test]
fn four_requests_are_too_few_to_tell_growth() {
    let mut server = server();
    for n in 0..4 {
        server.request(n + 1, 10 + n * 500, 0, 50 * (n + 1));
    }
    assert_eq!(the_finding(&server.script).subject.get("growth"), None);
}

#[test]
fn the_fixed_twin_computes_beforehand() {
    let mut server = server();
    for n in 0..10 {
        let at = 10 + n * 300;
        server
            .script
            .burns(WORKER, server.compact, at + 1, at + 200);
        server
            .script
            .request(n + 1)
            .ready(at)
            .read(at, API)
            .answered(at + 4, API);
    }
    assert_eq!(detect(&Facts::of(&server.script.model())), []);
}

#[test]
fn work_split_over_threads_is_not_one_threads() {
    // Each of four threads of different roles has a quarter of it, one after the other.
    let mut script = Script::new();
    script.thread(API, "api");
    let parked = script.stack(&["serve", "syscall"]);
    let work = script.stack(&["stage", "transform"]);
    for (n, name) in ["parse", "plan", "fetch", "render"].into_iter().enumerate() {
        let n = n as u64;
        let tid = 2 + n as u32;
        script.thread(tid, name);
        let by = if n == 0 { API } else { tid - 1 };
        script.parks(tid, parked, 0, 11 + n * 50, by);
        script.burns(tid, work, 11 + n * 50, 61 + n * 50);
        script.parks(tid, parked, 61 + n * 50, 900, API);
    }
    script.parks(API, parked, 11, 211, 5);
    script.request(1).ready(10).read(10, API).answered(212, API);
    assert_eq!(detect(&Facts::of(&script.model())), []);
}

#[test]
fn an_interval_of_short_sleeps_is_not_work() {
    // A thread that was hardly ever seen on a CPU between its long sleeps.
    let mut server = server();
    server.parks(WORKER, 0, 11, API);
    server.parks(WORKER, 311, 900, API);
    server.parks(API, 11, 311, WORKER);
    server.script.burns(WORKER, server.compact, 11, 20);
    server
        .script
        .request(1)
        .ready(10)
        .read(10, API)
        .answered(312, API);
    assert_eq!(detect(&Facts::of(&server.script.model())), []);
}

#[test]
fn a_busy_loop_with_small_requests_is_load() {
    // Twenty requests come at once, and are answered one after the other, 20 ms of work each.
    let mut server = server();
    let compact = server.compact;
    for n in 0..20 {
        server
            .script
            .request(n + 1)
            .epoll(EPOLL)
            .ready(10)
            .read(10 + n * 20, API)
            .answered(30 + n * 20, API);
        server.script.burns(API, compact, 10 + n * 20, 30 + n * 20);
    }
    let findings = detect(&Facts::of(&server.script.model()));
    // The first two have little else; the others wait for their turn.
    assert!(
        findings
            .iter()
            .all(|finding| finding.severity == Severity::Note && finding.saving.requests <= 2),
        "{findings:#?}"
    );
    // All read at once: what a thread does before its last answer was for others.
    let mut server = self::server();
    for n in 0..20 {
        server
            .script
            .request(n + 1)
            .epoll(EPOLL)
            .ready(10)
            .read(10, API)
            .answered(16 + n * 6, API);
        server.script.burns(API, compact, 10 + n * 6, 16 + n * 6);
    }
    assert_eq!(detect(&Facts::of(&server.script.model())), []);
}

#[test]
fn a_loop_between_sleeps_works_for_the_one_that_it_answers_next() {
    // Three requests are read; for each the loop computes 60 ms, then writes to its log, which
    // takes 2 ms.
    let mut server = server();
    let compact = server.compact;
    for n in 0..3 {
        let at = 10 + n * 62;
        server.script.burns(API, compact, at, at + 60);
        server
            .script
            .wait(API, 1, at + 60, at + 62)
            .stack(server.parked)
            .done();
        server
            .script
            .request(n + 1)
            .epoll(EPOLL)
            .ready(10)
            .read(10, API)
            .answered(at + 62, API);
    }
    // Each has its own 60 ms, and not those of the others …
    let finding = the_finding(&server.script);
    let behind = |evidence: &&Evidence| evidence.text.contains("wait for each other");
    let behind = finding
        .evidence
        .iter()
        .find(behind)
        .expect("what they wait");
    assert_eq!(behind.ns, Some((60 + 120) * 1_000_000));
    // … but waits for those of the others, too, which a fix shortens as well.
    assert_eq!(
        finding.saving.each_at_most_ns,
        [180_000_000, 120_000_000, 60_000_000]
    );
}

#[test]
fn a_stranded_request_is_another_findings() {
    let mut server = server();
    let compact = server.compact;
    server.script.burns(API, compact, 0, 300);
    server
        .script
        .request(1)
        .ready(10)
        .read(301, API)
        .answered(303, API);
    assert_eq!(detect(&Facts::of(&server.script.model())), []);
}

#[test]
fn an_idle_loop_works_for_nobody() {
    let mut script = Script::new();
    script.thread(API, "api");
    for n in 0..10 {
        script.polls(API, EPOLL, n * 100, n * 100 + 99);
        script
            .request(n + 1)
            .epoll(EPOLL)
            .ready(n * 100 + 99)
            .read(n * 100 + 99, API)
            .answered(n * 100 + 100, API);
    }
    assert_eq!(detect(&Facts::of(&script.model())), []);
}

#[test]
fn a_line_is_that_of_least_squares() {
    let fit = line(&[10, 20, 30, 40]).unwrap();
    assert!((fit.slope - 10.0).abs() < 1e-9 && (fit.r2 - 1.0).abs() < 1e-9);
    assert!((fit.first - 10.0).abs() < 1e-9);
    assert_eq!(line(&[5, 5, 5]), None);
    assert_eq!(line(&[5]), None);
    assert_eq!(line(&[]), None);
}

/// A request of 200 ms, of which its thread is on a CPU for 110, in the kernel's count.
fn of_a_loop(preempted: &[(u64, u64)]) -> Script {
    let mut script = Script::new();
    script.thread(API, "api");
    let stack = script.stack(&["serve", "render"]);
    let mut at = 10;
    for (from, to) in preempted.iter().copied().chain([(210, 210)]) {
        script
            .preempted(API, from, to)
            .sampled(API, stack, at, from);
        at = to;
    }
    let on_cpu_ns = 110_000_000;
    script.busy(API, 10, 210, on_cpu_ns, 200_000_000 - on_cpu_ns);
    script.request(1).ready(10).read(10, API).answered(210, API);
    script.ends(300);
    script
}

#[test]
fn time_without_a_cpu_is_counted_once() {
    // Told one by one, as one piece, in part, and not at all.
    for preempted in [
        [(20, 50), (60, 120)].as_slice(),
        &[(100, 190)],
        &[(30, 75)],
        &[],
    ] {
        let finding = the_finding(&of_a_loop(preempted));
        let spread = |evidence: &&Evidence| evidence.text.contains("1 slow request took");
        let spread = finding.evidence.iter().find(spread).expect("its share");
        let ns = spread.ns.expect("a time");
        assert!(
            ns.abs_diff(110_000_000) <= 1_000,
            "110 ms on a CPU, not {ns} ns, when these are known: {preempted:?}"
        );
        // Work that is not there does not wait for a CPU either.
        let ns = finding.saving.at_most_ns;
        assert!(
            ns.abs_diff(200_000_000) <= 1_000,
            "200 ms are saved at most, not {ns} ns, when these are known: {preempted:?}"
        );
    }
}

#[test]
fn going_round_in_a_poll_is_no_work() {
    // Of a request, 40 samples are its work's.
    let found_with = |futile_ns: u64, polls: u64| {
        let mut script = of_a_loop(&[]);
        let in_poll = script.stack(&["do_syscall_64", "__x64_sys_epoll_wait", "ep_poll"]);
        script.sampled_in_kernel(API, in_poll, 10, 10 + 5 * polls);
        script.cpu(&Cpu {
            tgid: TGID,
            tid: API,
            port: -1,
            on_cpu_ns: 110_000_000,
            futile_ns,
            ..Cpu::default()
        });
        let futile = Burst {
            burst: 1,
            tid: API,
            tgid: TGID,
            turns: 1000,
            spins: 1000,
            cycle_turns: 1000,
            cycle_length: 1,
            ..Burst::default()
        };
        let poll = BurstCall {
            burst: 1,
            tid: API,
            syscall: 232,
            fd: 5,
            ret: 1,
            ..BurstCall::default()
        };
        script.burst(&futile, &[poll]);
        detect(&Facts::of(&script.model())).len()
    };
    let (most, little) = (100_000_000, 20_000_000);
    assert_eq!(found_with(most, 20), 0, "it spun nearly all the time");
    assert_eq!(
        found_with(most, 10),
        1,
        "it spun nearly all the time, but worked for this request"
    );
    assert_eq!(found_with(little, 20), 1, "it spun at times, and worked");
    assert_eq!(
        found_with(little, 40),
        0,
        "it spun at times, and for this request"
    );
}

#[test]
fn what_every_process_computes_is_one_finding() {
    let mut server = server();
    for pid in 100..104 {
        server.script.thread_of(pid, pid, "httpd");
        for n in 0..5 {
            let at = 100 + n * 100;
            server.script.burns(pid, server.compact, at, at + 60);
            server
                .script
                .request(u64::from(pid) * 100 + n)
                .of(pid)
                .ready(at)
                .read(at, pid)
                .answered(at + 60, pid);
        }
    }
    let finding = the_finding(&server.script);
    assert_eq!(finding.saving.requests, 20);
    assert_eq!(finding.subject["pids"], json!([100, 101, 102, 103]));
    assert!(
        finding.title.contains("(4 processes httpd)"),
        "{}",
        finding.title
    );
}

#[test]
fn a_name_says_more_than_code_that_has_none() {
    let ns = |name: &str, ns| (Some(name.to_owned()), ns);
    let of = |functions: &[(Option<String>, u64)]| dominant(None, functions);
    let named = Some("render".to_owned());
    assert_eq!(of(&[ns(COMPILED, 60), ns("render", 40)]), named);
    assert_eq!(of(&[(None, 50), ns(COMPILED, 25), ns("render", 25)]), named);
    assert_eq!(
        of(&[ns(COMPILED, 80), ns("render", 20)]).as_deref(),
        Some(COMPILED)
    );
}

/// Two threads share a CPU: one computes for 100 ms for its request, and the other one, which is
/// woken for another, has no CPU until that is over.
#[test]
fn who_has_no_cpu_meanwhile_is_spared_that() {
    let mut script = Script::new();
    script.thread(1, "handler").thread(2, "handler");
    let stack = script.stack(&["serve", "render"]);
    let reads = script.stack(&["serve", "recv"]);
    script.burns(1, stack, 10, 110);
    script.request(1).ready(10).read(10, 1).answered(110, 1);
    let wait = script.wait(2, 45, 0, 40).stack(reads).by_softirq();
    wait.on_cpu_at(110).done();
    script.request(2).ready(40).read(110, 2).answered(111, 2);
    script.ends(300);
    let finding = the_finding(&script);
    assert_eq!(
        finding.saving.each_at_most_ns,
        [100_000_000, 71_000_000],
        "the work, and what the other one waited for a CPU besides its own 1 ms"
    );
}
