//! Scripts of events that must, or must not, be `slow-path-wait`.

use serde_json::json;
use whywait_events::{FileLock, PeerSums};
use whywait_model::script::{RequestLine, Script, TGID, ms};

use super::*;
use crate::declaration::Code;
use crate::detectors::lock_contention;
use crate::finding::{Confidence, Evidence};

const READ: u32 = 0;
const FSYNC: u32 = 74;
const WRITE: u32 = 1;
const POLL: u32 = 7;
const FUTEX: u32 = 202;
const RECVFROM: u32 = 45;
const EPOLL_WAIT: u32 = 232;
const EPOLL: u32 = 7;
const API: u32 = 1;
const WORKER: u32 = 2;
const SIBLING: u32 = 3;

/// An API thread, 1, and a worker, 2, that writes for it; a sibling, 3.
struct Server {
    script: Script,
    parked: u32,
    user: u32,
    journal: u32,
    throttled: u32,
}

fn server() -> Server {
    let mut script = Script::new();
    script
        .thread(API, "api")
        .thread(WORKER, "worker")
        .thread(SIBLING, "copier");
    let parked = script.stack(&["serve", "recv_answer", "syscall"]);
    let user = script.stack(&["run_worker", "write_snapshot", "fsync"]);
    let journal = script.stack(&[
        "do_syscall_64",
        "__x64_sys_fsync",
        "do_fsync",
        "ext4_sync_file",
        "jbd2_log_wait_commit",
    ]);
    let throttled = script.stack(&[
        "do_syscall_64",
        "ksys_write",
        "ext4_da_write_begin",
        "balance_dirty_pages_ratelimited",
    ]);
    Server {
        script,
        parked,
        user,
        journal,
        throttled,
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

    /// The worker sleeps in a sync, and has a CPU again only at `on_cpu_at`.
    fn syncs(&mut self, from: u64, to: u64, on_cpu_at: u64) {
        self.script
            .wait(WORKER, FSYNC, from, to)
            .stack(self.user)
            .kernel(self.journal)
            .for_io()
            .on_cpu_at(on_cpu_at)
            .done();
    }

    /// The API reads a request, the worker sleeps in these calls from `at + 2` on, one after the
    /// other, and wakes it.
    fn request(&mut self, socket: u64, at: u64, sleeps: &[(u32, u64)]) {
        let mut now = at + 2;
        self.parks(WORKER, at.saturating_sub(5), at + 1, API);
        for (syscall, ms) in sleeps {
            let kernel = if *syscall == FSYNC {
                self.journal
            } else {
                self.throttled
            };
            self.script
                .wait(WORKER, *syscall, now, now + ms)
                .stack(self.user)
                .kernel(kernel)
                .for_io()
                .done();
            now += ms;
        }
        self.parks(API, at + 1, now + 1, WORKER);
        self.script
            .request(socket)
            .ready(at)
            .read(at, API)
            .answered(now + 2, API);
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
fn an_fsync_in_another_thread_dominates_every_request() {
    let mut server = server();
    for n in 0..10 {
        server.request(n + 1, 10 + n * 300, &[(FSYNC, 180)]);
    }
    let finding = the_finding(&server.script);
    assert_eq!(
        (finding.severity, finding.confidence),
        (Severity::Warning, Confidence::High)
    );
    assert_eq!(
        finding.title,
        "10 slow requests waited 98 % of their time for fsync in write_snapshot (thread worker)"
    );
    assert_eq!(finding.saving.at_most_ns, 1_800_000_000);
    assert_eq!(finding.saving.each_at_most_ns, [180_000_000; 10]);
    assert_eq!(
        finding.evidence[0].text,
        "the slowest of them, 184 ms: api (1) waits for worker (2), which sleeps 180 ms in fsync \
         (journal commit): jbd2_log_wait_commit < ext4_sync_file < do_fsync"
    );
    let subject = json!(finding.subject);
    assert_eq!(subject["tid"], WORKER);
    assert_eq!(subject["kind"], "fsync (journal commit)");
    assert_eq!(subject["function"], "write_snapshot");
    assert_eq!(subject["port"], 8080);
    let cause = finding.cause.unwrap();
    assert_eq!(
        (cause.tid, cause.doing.as_str()),
        (WORKER, "asleep in fsync")
    );
    assert!(finding.fix.contains("group commit"), "{}", finding.fix);
}

#[test]
fn the_bound_has_those_that_are_not_slow() {
    let mut server = server();
    for n in 0..10 {
        server.request(n + 1, 10 + n * 300, &[(FSYNC, 180)]);
    }
    for n in 0..5 {
        server.request(n + 20, 4_000 + n * 300, &[(FSYNC, 5)]);
    }
    let finding = the_finding(&server.script);
    assert!(
        finding.title.starts_with("10 slow requests"),
        "{}",
        finding.title
    );
    assert_eq!(finding.saving.requests, 15);
    assert_eq!(finding.saving.at_most_ns, 1_825_000_000);
}

#[test]
fn a_thread_that_had_not_slept_would_not_have_waited_for_a_cpu_either() {
    let mut server = server();
    server.parks(WORKER, 5, 11, API);
    server.syncs(12, 112, 132);
    server.parks(API, 11, 133, WORKER);
    server
        .script
        .request(1)
        .ready(10)
        .read(10, API)
        .answered(134, API);
    let finding = the_finding(&server.script);
    assert_eq!(
        finding.title,
        "1 slow request waited 81 % of its time for fsync in write_snapshot (thread worker)",
        "the wait itself is 100 ms"
    );
    assert_eq!(
        finding.saving.each_at_most_ns,
        [120_000_000],
        "without it 20 ms for a CPU may be gone, too"
    );
    assert!(
        said(&finding).contains("besides, another 20 ms for a CPU"),
        "{}",
        said(&finding)
    );
}

#[test]
fn short_sleeps_for_the_disk_are_in_the_bound() {
    let mut server = server();
    server.parks(WORKER, 5, 11, API);
    server.syncs(12, 112, 112);
    server
        .script
        .wait(WORKER, FUTEX, 132, 133)
        .stack(server.parked)
        .after(Part::OnCpu, 15)
        .after(Part::Disk, 5)
        .by(API)
        .done();
    server.parks(API, 11, 132, WORKER);
    server
        .script
        .request(1)
        .ready(10)
        .read(10, API)
        .answered(133, API);
    let finding = the_finding(&server.script);
    assert_eq!(
        finding.saving.each_at_most_ns,
        [105_000_000],
        "a quarter of the 20 ms after the sync were sleeps that were too short to be recorded"
    );
}

#[test]
fn the_fixed_twin_syncs_off_the_path() {
    let mut server = server();
    for n in 0..10 {
        let at = 10 + n * 300;
        server
            .script
            .wait(WORKER, FSYNC, at + 2, at + 182)
            .stack(server.user)
            .kernel(server.journal)
            .for_io()
            .done();
        server
            .script
            .request(n + 1)
            .ready(at)
            .read(at, API)
            .answered(at + 3, API);
    }
    assert_eq!(detect(&Facts::of(&server.script.model())), []);
}

#[test]
fn throttled_writes_and_syncs_are_one_wait_for_the_disk() {
    let mut server = server();
    for n in 0..4 {
        // Neither is half of it.
        server.request(n + 1, 10 + n * 300, &[(WRITE, 90), (FSYNC, 80)]);
    }
    let finding = the_finding(&server.script);
    assert!(
        finding
            .title
            .contains("for the disk (dirty page throttling 53 %, fsync 47 %) in write_snapshot"),
        "{}",
        finding.title
    );
    assert!(
        said(&finding).contains("of which dirty page throttling 53 %; fsync"),
        "{}",
        said(&finding)
    );
    assert!(finding.fix.contains("posix_fallocate"), "{}", finding.fix);
    assert!(finding.fix.contains("write less"), "{}", finding.fix);
    assert!(!finding.fix.contains("sync less"), "{}", finding.fix);
}

#[test]
fn who_else_used_the_disk_is_reported() {
    let mut server = server();
    server.request(1, 10, &[(FSYNC, 180)]);
    for n in 0..4 {
        server
            .script
            .wait(SIBLING, WRITE, 20 + n * 40, 50 + n * 40)
            .kernel(server.throttled)
            .for_io()
            .done();
    }
    let finding = the_finding(&server.script);
    assert!(
        said(&finding).contains("at the same time copier (3) waited for the disk too, 4 times"),
        "{}",
        said(&finding)
    );
}

#[test]
fn many_requests_with_a_little_of_the_disk_are_healthy() {
    let mut server = server();
    for n in 0..50 {
        server.request(n + 1, 10 + n * 20, &[(FSYNC, 2)]);
    }
    assert_eq!(detect(&Facts::of(&server.script.model())), []);
}

#[test]
fn what_is_less_than_half_of_a_request_does_not_dominate_it() {
    let mut server = server();
    let at = 10;
    let user = server.user;
    // Two waits of a third each, for different things; the rest on the CPU.
    server.script.sleeps(API, user, at, at + 100);
    server
        .script
        .wait(API, FSYNC, at + 100, at + 200)
        .stack(user)
        .kernel(server.journal)
        .for_io()
        .done();
    server
        .script
        .request(1)
        .ready(at)
        .read(at, API)
        .answered(at + 310, API);
    assert_eq!(detect(&Facts::of(&server.script.model())), []);
}

#[test]
fn twenty_milliseconds_each_are_a_remark() {
    let mut server = server();
    for n in 0..10 {
        server.request(n + 1, 10 + n * 100, &[(FSYNC, 20)]);
    }
    assert_eq!(the_finding(&server.script).severity, Severity::Note);
}

#[test]
fn a_rare_wait_is_reported_only_when_it_is_long() {
    for (ms, expected) in [(60, 0), (150, 1)] {
        let mut server = server();
        // Many others are slow for reasons of their own.
        for n in 0..40 {
            server
                .script
                .request(100 + n)
                .ready(10 + n * 60)
                .read(10 + n * 60, API)
                .answered(60 + n * 60, API);
        }
        server.request(1, 5000, &[(FSYNC, ms)]);
        let findings = detect(&Facts::of(&server.script.model()));
        assert_eq!(findings.len(), expected, "{ms}: {findings:#?}");
        assert!(
            findings
                .iter()
                .all(|finding| finding.severity == Severity::Note)
        );
    }
}

#[test]
fn a_sleep_of_the_program_is_its_own() {
    let mut server = server();
    let stack = server
        .script
        .stack(&["serve", "look_up", "clock_nanosleep"]);
    server.script.sleeps(API, stack, 11, 311);
    server
        .script
        .request(1)
        .ready(10)
        .read(11, API)
        .answered(312, API);
    let finding = the_finding(&server.script);
    assert_eq!(
        finding.title,
        "1 slow request slept 99.3 % of its time in look_up (clock_nanosleep, thread api)"
    );
    assert!(finding.fix.contains("own sleep"), "{}", finding.fix);
}

/// What it polls for is one thing that is to come, and did not: it is no sleep that the program
/// wants.
#[test]
fn a_poll_for_one_descriptor_that_times_out_is_no_sleep_of_its_own() {
    let mut script = Script::new();
    let stack = script.stack(&["serve", "look_up", "poll"]);
    for n in 0..10 {
        let at = 10 + 300 * n;
        script
            .thread(API, "api")
            .wait(API, POLL, at + 1, at + 251)
            .args([9, 1])
            .stack(stack)
            .by_timer()
            .done();
        script
            .request(n)
            .ready(at)
            .read(at, API)
            .answered(at + 252, API);
    }
    script.peer(&PeerSums {
        id: 1,
        address: "10.0.0.7".to_owned(),
        port: 7001,
        failed: 10,
        ..PeerSums::default()
    });
    let finding = the_finding(&script);
    assert!(
        finding.title.contains("for a timeout (poll) in look_up"),
        "{}",
        finding.title
    );
    assert_eq!(finding.as_ever, None, "a timeout takes as long each time");
    assert_eq!(
        finding.fix,
        format!(
            "{}; not made meanwhile: 10 connections to 10.0.0.7:7001",
            fix::TIMED_OUT
        )
    );
}

/// Twelve requests on three threads: each sleeps seven times for 5 ms in `take_lease`, and then
/// works for 19 ms in `print_label`. With `apart` ms between two of these works, or less than none.
fn tries_for_a_lease(apart: i64) -> Script {
    let mut script = Script::new();
    for tid in [API, WORKER, SIBLING] {
        script.thread(tid, &format!("conn-{tid}"));
    }
    let tries = script.stack(&["serve", "take_lease", "usleep"]);
    let works = script.stack(&["serve", "print_label", "usleep"]);
    for n in 0..12_u64 {
        let tid = [API, WORKER, SIBLING][n as usize % 3];
        let at = 200 + n * 20_u64.saturating_add_signed(apart);
        for sleep in 0..7 {
            let from = at - 35 + 5 * sleep;
            script.sleeps(tid, tries, from, from + 5);
        }
        script.sleeps(tid, works, at, at + 19);
        script
            .request(n + 1)
            .ready(at - 40)
            .read(at - 39, tid)
            .answered(at + 19, tid);
    }
    script
}

#[test]
fn who_tries_again_and_again_for_what_only_one_has_waits_for_a_lock() {
    let finding = the_finding(&tries_for_a_lease(0));
    assert_eq!(finding.code, Code::of(&lock_contention::DECLARATION));
    assert_eq!(
        finding.title,
        "12 slow requests slept 59 % of their time in take_lease for a lock, again and again, \
         typically 7 times for 5 ms; who has it sleeps in print_label"
    );
    let cause = finding.cause.as_ref().expect("who has it is seen");
    assert_eq!(cause.doing, "has the lock, and sleeps in print_label");
    assert!(!finding.fix.contains("own sleep"), "{}", finding.fix);
}

#[test]
fn what_it_tries_for_again_and_again_may_be_no_lock() {
    // Nobody is at it while they sleep: something else ends that.
    let finding = the_finding(&tries_for_a_lease(60));
    assert_eq!(finding.code, Code::of(&DECLARATION));
    assert_eq!(
        finding.title,
        "12 slow requests slept 59 % of their time in take_lease, again and again, typically 7 \
         times for 5 ms (clock_nanosleep, 3 threads conn*)"
    );
    assert!(!finding.fix.contains("own sleep"), "{}", finding.fix);
}

/// Four requests every 10 ms, each of which waits for 50 ms. A thread that serves none sleeps until
/// the next one's time has come, and wakes its thread then.
fn waits_for_a_timer_of_all() -> Script {
    let mut script = Script::new();
    let stack = script.stack(&["loop", "park"]);
    let idle = script.stack(&["take", "park"]);
    let timer = SIBLING;
    script.thread(timer, "timer");
    script.sleeps(timer, stack, 5, 10);
    for n in 0..25 {
        script.sleeps(timer, stack, 12 + 10 * n, 20 + 10 * n);
    }
    for n in 0..80_u64 {
        let (tid, at) = (100 + n as u32, 10 + 10 * (n / 4));
        script.thread(tid, &format!("carrier-{n}"));
        let wait = script.wait(tid, FUTEX, at + 1, at + 51).stack(idle);
        wait.word(0x1000 + n).by(timer).done();
        let request = script.request(n + 1).ready(at);
        request.read(at, tid).answered(at + 52, tid);
    }
    script
}

#[test]
fn the_thread_of_a_timer_tries_for_nothing() {
    let findings = detect(&Facts::of(&waits_for_a_timer_of_all().model()));
    let [finding] = &findings[..] else {
        panic!("one is expected: {findings:#?}");
    };
    assert!(
        !finding.title.contains("again and again"),
        "{}",
        finding.title
    );
    assert!(finding.as_ever.is_some(), "50 ms each: {finding:#?}");
}

/// Twelve requests that each sleep for 25 ms, so many times, in `unixSleep`, and answer.
fn polls_for_something(times: fn(u64) -> u64) -> Script {
    polls(times, |request| request)
}

fn polls(times: fn(u64) -> u64, kind: for<'a> fn(RequestLine<'a>) -> RequestLine<'a>) -> Script {
    let mut script = Script::new();
    script.thread(API, "api");
    let tries = script.stack(&["serve", "unixSleep", "usleep"]);
    for n in 0..12_u64 {
        let at = 100 + n * 500;
        for sleep in 0..times(n) {
            script.sleeps(API, tries, at + 25 * sleep, at + 25 * (sleep + 1));
        }
        let answered = at + 25 * times(n) + 1;
        let request = script.request(n + 1).ready(at - 1).read(at - 1, API);
        kind(request).answered(answered, API);
    }
    script
}

/// Four sleeps of a request each, and a file that another process has locked so many times, seen
/// in so many of 60 looks.
fn polls_while_locked(times: u64, looks: u32) -> Finding {
    let mut script = polls_for_something(|_| 4);
    script.ends(6_000).counter("file-locks.looks", 60);
    for n in 0..times {
        let from_ms = 120 + n * 500;
        script.file_lock(&FileLock {
            tgid: TGID,
            by_tgid: 4711,
            by_name: "importer".to_owned(),
            from_ns: ms(from_ms),
            to_ns: ms(from_ms + 60),
            looks,
            path: "/srv/shop.db".to_owned(),
            waiters: 0,
        });
    }
    the_finding(&script)
}

#[test]
fn who_has_a_file_locked_while_requests_try_again_is_named() {
    let finding = polls_while_locked(12, 1);
    assert_eq!(finding.severity, Severity::Warning);
    assert!(
        finding
            .title
            .ends_with("; importer (pid 4711) had shop.db locked during 100 % of these sleeps"),
        "{}",
        finding.title
    );
    let all: Vec<&str> = finding.evidence.iter().map(|one| &*one.text).collect();
    let wanted = "in 12 of 60 looks at the kernel's list of locks, others had /srv/shop.db \
                  locked, which was open here: importer (pid 4711) in 12 looks; during 100 % of \
                  these sleeps";
    assert!(all.contains(&wanted), "{all:#?}");
    assert!(
        finding.fix.contains("have the file locked for less"),
        "{}",
        finding.fix
    );
}

#[test]
fn a_lock_seldom_seen_or_never_free_is_not_what_requests_try_for() {
    // A few of these sleeps only, or a lock that a service has for as long as it runs.
    for (times, looks) in [(4, 1), (12, 5)] {
        let finding = polls_while_locked(times, looks);
        assert!(!finding.title.contains("shop.db"), "{}", finding.title);
    }
}

#[test]
fn a_job_of_several_messages_tries_for_nothing() {
    // Each message sleeps once: whoever fetches them gives several at once.
    let finding = the_finding(&polls(|n| 5 + n % 3, |job| job.handed(API)));
    assert!(
        !finding.title.contains("again and again"),
        "{}",
        finding.title
    );
    assert!(!finding.fix.contains("tries for"), "{}", finding.fix);
}

#[test]
fn who_polls_until_something_is_free_could_be_spared_that() {
    let finding = the_finding(&polls_for_something(|n| 5 + n % 3));
    assert_eq!(finding.code, Code::of(&DECLARATION));
    assert_eq!(finding.severity, Severity::Warning);
    assert_eq!(finding.as_ever, None, "{}", finding.title);
    // So many times and no more is a time to wait.
    let finding = the_finding(&polls_for_something(|n| 6 + n % 12 / 6 * (n % 2)));
    assert!(finding.as_ever.is_some(), "{}", finding.title);
}

#[test]
fn a_peer_outside_is_medium_confidence() {
    let mut server = server();
    let stack = server.script.stack(&["serve", "query_database", "recv"]);
    server
        .script
        .wait(API, RECVFROM, 11, 111)
        .stack(stack)
        .by_softirq()
        .done();
    server
        .script
        .request(1)
        .ready(10)
        .read(11, API)
        .answered(112, API);
    let finding = the_finding(&server.script);
    assert_eq!(
        (finding.severity, finding.confidence),
        (Severity::Warning, Confidence::Medium)
    );
    assert!(
        finding
            .title
            .contains("a peer (recvfrom) in query_database"),
        "{}",
        finding.title
    );
}

#[test]
fn a_pipe_without_room_has_a_slow_reader() {
    let mut server = server();
    let stack = server.script.stack(&["serve", "write_log", "write"]);
    let full = server.script.stack(&[
        "do_syscall_64",
        "ksys_write",
        "vfs_write",
        "anon_pipe_write",
    ]);
    for n in 0..6 {
        let at = 10 + 300 * n;
        let wait = server.script.wait(API, WRITE, at + 1, at + 101);
        wait.stack(stack).kernel(full).by_softirq().done();
        let request = server.script.request(n + 1).ready(at);
        request.read(at + 1, API).answered(at + 102, API);
    }
    let finding = the_finding(&server.script);
    assert!(
        finding
            .title
            .contains("for room in a pipe (pipe write) in write_log"),
        "{}",
        finding.title
    );
    assert!(finding.fix.contains("who reads it"), "{}", finding.fix);
    assert_eq!(finding.as_ever, None, "its reader could be quicker");
}

/// What is found where a thread sleeps in a call for 100 ms before it answers.
fn found_of_a_sleep(call: u32, args: [u64; 2]) -> Finding {
    let mut server = server();
    let stack = server.script.stack(&["serve", "read_body", "read"]);
    server
        .script
        .wait(API, call, 11, 111)
        .stack(stack)
        .args(args)
        .by_softirq()
        .done();
    server
        .script
        .request(1)
        .ready(10)
        .read(11, API)
        .answered(112, API);
    the_finding(&server.script)
}

#[test]
fn its_own_client_is_a_remark() {
    // Descriptor 10 is that of the request, in scripts.
    for (call, args) in [(READ, [10, 0]), (POLL, [10, 1])] {
        let finding = found_of_a_sleep(call, args);
        assert_eq!(finding.severity, Severity::Note);
        assert!(
            finding.title.contains("the client that asked"),
            "{}",
            finding.title
        );
    }
    // Another descriptor; several, said at an address.
    for (call, args) in [(READ, [11, 0]), (POLL, [11, 1]), (POLL, [0x7ffc_0000, 2])] {
        let finding = found_of_a_sleep(call, args);
        assert_eq!(finding.severity, Severity::Warning);
        assert!(finding.title.contains("a peer"), "{}", finding.title);
    }
}

/// A place in memory, and what is polled was not read there.
#[test]
fn a_poll_whose_descriptor_was_not_read_is_no_peer() {
    let finding = found_of_a_sleep(POLL, [0x7ffc_0000, 1]);
    assert_eq!(
        (finding.severity, finding.confidence),
        (Severity::Note, Confidence::Low),
        "{}",
        finding.title
    );
}

#[test]
fn where_requests_cannot_be_told_apart_nothing_is_promised() {
    let found = |several: bool| {
        let mut server = server();
        let stack = server.script.stack(&["serve", "render", "clock_nanosleep"]);
        for n in 0..3 {
            let at = 10 + n * 200;
            server.script.sleeps(API, stack, at + 1, at + 101);
            let request = server.script.request(n + 1).ready(at).read(at, API);
            let request = match several {
                true => request.multiplexed(),
                false => request,
            };
            request.answered(at + 102, API);
        }
        the_finding(&server.script)
    };
    let (one, several) = (found(false), found(true));
    assert_eq!(
        (one.confidence, one.saving.requests),
        (Confidence::High, 3),
        "{}",
        one.title
    );
    assert_eq!(
        (several.confidence, several.saving),
        (Confidence::Low, crate::Saving::none())
    );
}

#[test]
fn a_loop_that_answers_already_may_wait_for_its_client() {
    let found_with = |first_ms: u64| {
        let mut server = server();
        server.script.polls(API, EPOLL, 12, 112);
        server
            .script
            .request(1)
            .epoll(EPOLL)
            .ready(10)
            .read(11, API)
            .begins_to_answer(first_ms)
            .answered(113, API);
        let finding = the_finding(&server.script);
        (finding.severity, finding.confidence)
    };
    assert_eq!(found_with(12), (Severity::Note, Confidence::Low));
    assert_eq!(found_with(112), (Severity::Warning, Confidence::Medium));
}

#[test]
fn a_loop_that_serves_others_meanwhile_may_wait_for_anything() {
    let mut server = server();
    // Two long polls on one loop: packets for one end the sleeps in which the other is under way.
    for n in 0..4 {
        server.script.polls(API, EPOLL, 20 + n * 100, 120 + n * 100);
    }
    for socket in [1, 2] {
        server
            .script
            .request(socket)
            .epoll(EPOLL)
            .ready(10 + socket)
            .read(20, API)
            .answered(420 + socket, API);
    }
    let finding = the_finding(&server.script);
    assert_eq!(
        (finding.severity, finding.confidence),
        (Severity::Note, Confidence::Low)
    );
}

/// A loop that polls until a time, again and again, for one request; then, if so, until a packet
/// comes.
fn ticking(ticks_ms: u64, packet_ms: u64) -> Script {
    let mut server = server();
    let stack = server.script.stack(&["main", "aeMain", "epoll_wait"]);
    let mut now = 11;
    for _ in 0..3 {
        server
            .script
            .wait(API, EPOLL_WAIT, now, now + ticks_ms)
            .stack(stack)
            .epoll(EPOLL)
            .timeout()
            .by_timer()
            .done();
        now += ticks_ms + 1;
    }
    if packet_ms > 0 {
        server
            .script
            .wait(API, EPOLL_WAIT, now, now + packet_ms)
            .stack(stack)
            .epoll(EPOLL)
            .timeout()
            .by_softirq()
            .done();
        now += packet_ms + 1;
    }
    server
        .script
        .request(1)
        .epoll(EPOLL)
        .ready(10)
        .read(10, API)
        .answered(now, API);
    server.script
}

#[test]
fn the_ticks_of_a_loop_are_no_sleep_of_the_program() {
    let finding = the_finding(&ticking(100, 30));
    assert_eq!(
        (finding.severity, finding.confidence),
        (Severity::Note, Confidence::Low)
    );
    assert!(
        finding
            .title
            .contains("99 % of its time for a peer or a timer"),
        "the ticks and what came after them: {}",
        finding.title
    );
    // The packet alone is half of it: that is what it waited for.
    let finding = the_finding(&ticking(100, 400));
    assert!(
        finding.title.contains("a peer (epoll_wait)"),
        "{}",
        finding.title
    );
    // It answers when its time is up: it waited for that.
    let finding = the_finding(&ticking(100, 0));
    assert!(
        finding.title.contains("a timeout (epoll_wait)"),
        "{}",
        finding.title
    );
}

#[test]
fn requests_that_are_not_read_wait_for_something_else() {
    let mut server = server();
    // The thread sleeps in its file until the request is read: stranded, or queued, but not on the
    // request's way.
    server
        .script
        .wait(API, FSYNC, 0, 300)
        .stack(server.user)
        .kernel(server.journal)
        .for_io()
        .done();
    server
        .script
        .request(1)
        .ready(10)
        .read(301, API)
        .answered(303, API);
    // And one that nobody answers.
    server.script.request(2).ready(10).unanswered();
    assert_eq!(detect(&Facts::of(&server.script.model())), []);
}

#[test]
fn a_wait_for_a_lock_is_another_findings() {
    let mut server = server();
    let stack = server.script.stack(&["serve", "lock_table", "syscall"]);
    server.script.parks(API, stack, 11, 311, SIBLING);
    server
        .script
        .request(1)
        .ready(10)
        .read(11, API)
        .answered(312, API);
    assert_eq!(detect(&Facts::of(&server.script.model())), []);
}

#[test]
fn what_a_loop_slept_in_for_others_is_theirs() {
    // One thread reads three requests, and sleeps 100 ms for each in turn: the second and third
    // wait for their turn.
    let mut server = server();
    let stack = server.script.stack(&["serve", "render", "clock_nanosleep"]);
    for n in 0..3 {
        server
            .script
            .sleeps(API, stack, 11 + n * 101, 111 + n * 101);
        server
            .script
            .request(n + 1)
            .epoll(EPOLL)
            .ready(10)
            .read(10, API)
            .answered(112 + n * 101, API);
    }
    let finding = the_finding(&server.script);
    let behind = |evidence: &Evidence| {
        evidence.ns == Some(300_000_000) && evidence.text.contains("wait for each other")
    };
    assert!(
        finding.evidence.iter().any(behind),
        "each has its own sleep, and not those of the others: {:?}",
        finding.evidence
    );
    assert_eq!(
        finding.saving.each_at_most_ns,
        [300_000_000, 200_000_000, 100_000_000],
        "each waits for those before it, and a fix spares it that, too"
    );
}

/// Processes of these names, forked ahead, of which each syncs a file of its own for each of its
/// ten requests.
fn prefork(names: &[&str]) -> Script {
    let sync_ms = 40;
    let Server {
        mut script,
        user,
        journal,
        ..
    } = server();
    for (pid, name) in (100..).zip(names) {
        script.thread_of(pid, pid, name);
        for n in 0..10 {
            let at = 100 + n * 100 + u64::from(pid % 10);
            script
                .wait(pid, FSYNC, at + 1, at + 1 + sync_ms)
                .stack(user)
                .kernel(journal)
                .args([u64::from(pid), 0])
                .for_io()
                .done();
            script
                .request(u64::from(pid) * 100 + n)
                .of(pid)
                .ready(at)
                .read(at, pid)
                .answered(at + 2 + sync_ms, pid);
        }
    }
    script
}

#[test]
fn what_is_the_same_in_every_process_is_one_finding() {
    let script = prefork(&["httpd"; 16]);
    let findings = detect(&Facts::of(&script.model()));
    assert_eq!(findings.len(), 1, "{findings:#?}");
    let finding = &findings[0];
    assert_eq!(finding.severity, Severity::Warning);
    assert_eq!(finding.saving.requests, 160);
    assert!(
        finding
            .title
            .contains("write_snapshot (16 processes httpd)"),
        "{}",
        finding.title
    );
    assert_eq!(
        finding.subject["pids"],
        json!((100..116).collect::<Vec<_>>())
    );
    assert!(finding.subject["pid"].is_u64());
    assert!(!finding.subject.contains_key("fd"), "each has its own");
}

#[test]
fn processes_of_other_programs_are_findings_of_their_own() {
    let findings = detect(&Facts::of(&prefork(&["httpd", "httpd", "logger"]).model()));
    let requests: Vec<u64> = findings
        .iter()
        .map(|finding| finding.saving.requests)
        .collect();
    assert_eq!(requests, [20, 10]);
}

#[test]
fn a_function_that_is_known_of_some_stands_for_the_disks_waits() {
    let Server {
        mut script,
        user,
        journal,
        ..
    } = server();
    let native = script.stack_in("/usr/bin/python3.11", &["Py_RunMain", "os_fsync", "fsync"]);
    for (n, stack) in (0..12).zip([user, native, native].into_iter().cycle()) {
        let at = 100 + n * 100;
        script
            .wait(API, FSYNC, at + 1, at + 41)
            .stack(stack)
            .kernel(journal)
            .for_io()
            .done();
        script
            .request(n)
            .ready(at)
            .read(at, API)
            .answered(at + 42, API);
    }
    let findings = detect(&Facts::of(&script.model()));
    assert_eq!(findings.len(), 1, "{findings:#?}");
    assert!(
        findings[0].title.contains(" in write_snapshot "),
        "{}",
        findings[0].title
    );
}

#[test]
fn a_stack_of_the_interpreter_alone_counts_to_the_function_that_is_known() {
    let mut server = server();
    let named = server.script.stack(&["serve", "render_page", "recv"]);
    let native = server
        .script
        .stack_in("/usr/bin/python3.11", &["Py_RunMain", "sock_recv", "recv"]);
    for (n, stack) in (0..10).zip([named, native].into_iter().cycle()) {
        let at = 100 + n * 100;
        server
            .script
            .wait(API, RECVFROM, at + 1, at + 41)
            .stack(stack)
            .args([33, 0])
            .by_softirq()
            .done();
        server
            .script
            .request(n)
            .ready(at)
            .read(at, API)
            .answered(at + 42, API);
    }
    let findings = detect(&Facts::of(&server.script.model()));
    assert_eq!(findings.len(), 1, "{findings:#?}");
    assert_eq!(findings[0].subject["function"], json!("render_page"));
    assert_eq!(findings[0].saving.requests, 10);
}

/// Four requests, each with a thread of its own; the first one syncs for all of them, and answers
/// its own before the others do.
#[test]
fn all_who_wait_for_one_sync_count() {
    let mut server = server();
    let (user, journal) = (server.user, server.journal);
    let waits = server.script.stack(&["serve", "await_commit", "syscall"]);
    for tid in 11..=14 {
        server.script.thread(tid, "handler");
    }
    let sync = server.script.wait(11, FSYNC, 10, 110);
    sync.stack(user).kernel(journal).for_io().done();
    for tid in 12..=14 {
        server.script.parks(tid, waits, 12, 110, 11);
    }
    for tid in 11..=14 {
        server
            .script
            .request(u64::from(tid))
            .ready(9)
            .read(9, tid)
            .answered(100 + u64::from(tid), tid);
    }
    let finding = the_finding(&server.script);
    assert_eq!(finding.saving.requests, 4);
    assert!(
        finding.title.starts_with("4 slow requests waited"),
        "{}",
        finding.title
    );
    assert!(
        finding.saving.at_most_ns >= 390_000_000,
        "{:?}",
        finding.saving
    );
}

/// Two workers: one sleeps for 200 ms in the first request, the other one in the second, while four
/// more wait for either.
#[test]
fn who_waits_for_a_worker_behind_them_counts() {
    let mut server = server();
    let sleeping = server
        .script
        .stack(&["work", "write_report", "clock_nanosleep"]);
    for tid in [11, 12] {
        server.script.thread(tid, "worker");
        server.script.sleeps(tid, sleeping, 11, 211);
    }
    for (number, ready, read, answered) in [
        (1, 10, 10, 212),
        (2, 10, 10, 212),
        (3, 60, 212, 215),
        (4, 60, 212, 215),
        (5, 70, 215, 218),
        (6, 70, 215, 218),
    ] {
        server
            .script
            .request(number)
            .ready(ready)
            .read(read, 11 + (number % 2) as u32)
            .answered(answered, 11 + (number % 2) as u32);
    }
    let finding = the_finding(&server.script);
    assert_eq!(
        finding.saving.each_at_most_ns,
        [200, 200, 152, 152, 145, 145].map(|ms: u64| ms * 1_000_000)
    );
}

/// Six workers with a request each, who let each other go on in turn: each sleeps in this function
/// for 100 ms then, before it answers.
fn in_turn(function: &str) -> Finding {
    let mut server = server();
    let stack = server.script.stack(&["work", "with_the_place", function]);
    for (nth, tid) in (11..17).enumerate() {
        let at = 11 + 101 * nth as u64;
        server.script.thread(tid, "worker");
        if nth > 0 {
            server.parks(tid, 10, at, tid - 1);
        }
        if function == "recv" {
            let wait = server.script.wait(tid, RECVFROM, at, at + 100);
            wait.stack(stack).by_softirq().done();
        } else {
            server.script.sleeps(tid, stack, at, at + 100);
        }
        let request = server.script.request(u64::from(tid)).ready(9);
        request.read(9, tid).answered(at + 102, tid);
    }
    the_finding(&server.script)
}

#[test]
fn what_others_sleep_in_turn_is_not_ones_own() {
    let slept = in_turn("clock_nanosleep");
    assert!(
        slept.title.contains("for other requests, which slept in"),
        "{}",
        slept.title
    );
    let called = in_turn("recv");
    assert_eq!(called.code.name(), "slow-path-wait");
    assert!(
        called.title.contains("for other requests, which waited"),
        "{}",
        called.title
    );
    assert_eq!(called.as_ever, None);
    for finding in [slept, called] {
        assert!(finding.fix.contains("in hand"), "{}", finding.fix);
    }
}
