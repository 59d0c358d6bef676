//! Typical reports.

use serde_json::json;
use whywait_findings::{
    Cause, Code, Confidence, Dominant, Evidence, Finding, Saving, SavingKind, Severity, Shape,
    Verdict,
};
use whywait_model::calls::links::{LinkCounts, PeerTime, Range, TaskTime, TaskTotals};
use whywait_model::cpu::CpuHolderRow;
use whywait_model::path::Step;
use whywait_model::requests::{
    Latency, Multiplexed, OngoingResponses, OpenReader, OpenRequests, OwnRequests, Percentile,
    ReadyUnserved, Requests, Slow, Time,
};
use whywait_model::rings::{Bounds, OpcodeRow, PendingRow, RingRow, Stage};
use whywait_model::{Coverage, Incomplete, Lack, Stopped, Target};
use whywait_report::Report;

pub(crate) const MS: u64 = 1_000_000;

pub(crate) fn strings(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

pub(crate) fn code(name: &str) -> Code {
    Code::from_name(name).expect("a code of the catalogue")
}

pub(crate) fn evidence(text: &str, ns: Option<u64>) -> Evidence {
    Evidence {
        text: text.to_owned(),
        ns,
        of_fix: false,
    }
}

pub(crate) fn step(state: &str, tid: u32, thread: &str, ns: u64) -> Step {
    Step {
        state: state.to_owned(),
        tid,
        thread: thread.to_owned(),
        ns,
        ..Step::default()
    }
}

fn coverage() -> Coverage {
    Coverage {
        events: 48_213,
        frames_symbolised: Some(0.987_654_321),
        tier: "waits".to_owned(),
        complete: true,
        ..Coverage::default()
    }
}

const HANDLER_STACK: &[&str] = &[
    "clock_nanosleep",
    "std::sys::thread::unix::sleep",
    "std::thread::sleep",
    "tokio_images::render",
    "tokio_images::image::{{closure}}",
    "<F as axum::handler::Handler<(M,T1),S>>::call::{{closure}}",
    "<core::pin::Pin<P> as core::future::future::Future>::poll",
    "<axum::util::MapIntoResponseFuture<F> as core::future::future::Future>::poll",
    "hyper::proto::h1::dispatch::Dispatcher<D,Bs,I,T>::poll_catch",
    "tokio::runtime::task::harness::Harness<T,S>::poll",
    "tokio::runtime::scheduler::multi_thread::worker::Context::run_task",
    "tokio::runtime::scheduler::multi_thread::worker::run",
    "std::sys::backtrace::__rust_begin_short_backtrace",
    "start_thread",
    "clone3",
];

/// A loop that asks two services, and is busy itself.
pub(crate) fn by_calls() -> Report {
    let ns = |at_least_ms, at_most_ms| Range {
        at_least: at_least_ms * MS,
        at_most: at_most_ms * MS,
    };
    let peer = |peer: &str, ns| PeerTime {
        number: 0,
        peer: peer.to_owned(),
        ns,
    };
    let time = TaskTime {
        calls: LinkCounts {
            certain: 5,
            undecided: 1,
            ..LinkCounts::default()
        },
        one_call_at_a_time: true,
        unserved_ns: 7_992 * MS + 310_000,
        upstream_ns: ns(4_000, 7_500),
        peers: vec![
            peer("10.0.0.7:5432 (postgres)", ns(4_000, 4_000)),
            peer("10.0.0.8:6379 (redis\u{1b}[31m)", ns(0, 3_500)),
        ],
        network_ns: ns(0, 3),
        reply_unserved_ns: ns(1_500, 1_500),
        queued_ns: ns(600, 4_100),
        own_ns: ns(0, 40),
    };
    let tasks = Some(TaskTotals {
        requests: 6,
        total_ns: 18_006 * MS,
        threads_wait: false,
        time,
    });
    let mut report = stranded();
    report.requests.tasks = tasks;
    report
}

/// Case 1: ready I/O ignored while workers sleep.
pub(crate) fn stranded() -> Report {
    let target = Target {
        pid: 1234,
        command: "./target/release/tokio-images --port 8080".to_owned(),
        duration_ns: 5_012 * MS,
        threads: 6,
        ..Target::default()
    };
    let (requests, finding) = (stranded_requests(), stranded_finding());
    Report {
        looked_at: strings(&["readiness of 1 epoll instance", "polls of 4 threads"]),
        ..Report::new(target, requests, vec![finding], coverage())
    }
}

fn stranded_requests() -> Requests {
    let slowest = Slow {
        id: "12:0".to_owned(),
        name: None,
        port: Some(8080),
        broker: None,
        at_ns: 510 * MS,
        latency_ns: 3_999 * MS,
        open: false,
        time: Time::default(),
        path: vec![
            step("ready-unserved", 0, "", 1_998 * MS),
            Step {
                stack: strings(HANDLER_STACK),
                ..step("timer", 1236, "tokio-runtime-w", 2_000 * MS)
            },
            Step {
                woken_by: Some(1235),
                ..step("on-cpu", 1236, "tokio-runtime-w", 900_000)
            },
        ],
        calls: None,
        tasks: None,
        task_waits: None,
        sending: None,
    };
    Requests {
        count: 6,
        open: None,
        accept_queues: Vec::new(),
        under_way: None,
        multiplexed: None,
        datagrams: None,
        streams: None,
        jobs: None,
        own: OwnRequests::default(),
        slow: 5,
        slow_threshold_ns: MS,
        latency_ns: Some(Latency {
            p50: 3_998 * MS,
            p99: 3_999 * MS,
            max: 3_999 * MS,
            ..Latency::default()
        }),
        time: Time {
            ready_unserved: ReadyUnserved {
                stranded: Some(5_994 * MS),
                pool_busy: Some(1_998 * MS),
                wakeup: Some(310_000),
            },
            on_cpu: Some(4 * MS),
            runnable: Some(150_000),
            timer: Some(10_000 * MS),
            network: Some(0),
            unknown: Some(2 * MS),
            ..Time::default()
        },
        held: None,
        routes: None,
        wire: None,
        cpu_holders: Vec::new(),
        closure: Some(0.999_888_88),
        tasks: None,
        task_waits: None,
        slowest: vec![slowest],
    }
}

fn stranded_finding() -> Finding {
    Finding {
        code: code("stranded-readiness"),
        severity: Severity::Error,
        confidence: Confidence::High,
        title:
            "4 requests waited unread for up to 2.00 s while 3 capable threads sat idle and nobody \
                polled"
                .to_owned(),
        subject: json!({"pid": 1234, "epoll": 1, "port": 8080, "threads": [1236, 1237, 1238]})
            .as_object()
            .unwrap()
            .clone(),
        saving: Saving {
            kind: SavingKind::Latency,
            at_most_ns: 5_994 * MS,
            requests: 3,
            each_at_most_ns: vec![1_999 * MS, 1_998 * MS, 1_997 * MS],
            effect: None,
        },
        evidence: vec![
            evidence(
                "nobody was in epoll_wait on this instance for 2.00 s, 4 requests became ready \
                 meanwhile",
                Some(1_999 * MS),
            ),
            evidence(
                "3 threads that poll it at other times slept in futex all that time: 1236, 1237, \
                 1238",
                Some(1_999 * MS),
            ),
            evidence(
                "of the 4, one had to wait in any case: the pool has 4 threads",
                None,
            ),
        ],
        cause: Some(Cause {
            tid: 1235,
            thread: "tokio-runtime-w".to_owned(),
            doing: "left the poll and slept in clock_nanosleep for 2.00 s".to_owned(),
            stack: strings(HANDLER_STACK),
            own: Vec::new(),
            spells: None,
            naming: None,
        }),
        fix: "hand the driver over before running the task: tokio >= 1.52 with \
              Builder::enable_eager_driver_handoff() (built with --cfg tokio_unstable); or move \
              the blocking work into spawn_blocking"
            .to_owned(),
        same_waits: Vec::new(),
        explains: Vec::new(),
        not_by_all_fixes_ns: 0,
        as_ever: None,
        requests: Default::default(),
    }
}

/// A single-threaded loop that a synchronous call blocks.
pub(crate) fn blocked_loop() -> Report {
    let mut report = stranded();
    report.target.command = "node server.js".to_owned();
    report.requests.slowest.clear();
    report.findings = vec![Finding {
        code: code("blocked-loop"),
        severity: Severity::Warning,
        confidence: Confidence::Medium,
        title: "the loop of thread 1234 was away from its poll for 182 ms; 41 requests waited"
            .to_owned(),
        subject: json!({"pid": 1234, "thread": 1234, "port": 3000, "epoll": 2})
            .as_object()
            .unwrap()
            .clone(),
        saving: Saving {
            kind: SavingKind::Latency,
            at_most_ns: 3_170 * MS,
            requests: 41,
            each_at_most_ns: (0..41).map(|index| (181 - 4 * index) * MS).collect(),
            effect: None,
        },
        evidence: vec![evidence(
            "182 ms between two polls, 179 ms of them on a CPU",
            Some(182 * MS),
        )],
        cause: Some(Cause {
            tid: 1234,
            thread: "node".to_owned(),
            doing: "was on a CPU".to_owned(),
            stack: strings(&[
                "v8::internal::JsonParse",
                "0x7f8a12",
                "node::Start",
                "main",
                "__libc_start_main",
            ]),
            own: Vec::new(),
            spells: None,
            naming: None,
        }),
        fix: "move the work to a worker thread, or split it".to_owned(),
        same_waits: Vec::new(),
        explains: Vec::new(),
        not_by_all_fixes_ns: 0,
        as_ever: None,
        requests: Default::default(),
    }];
    report
}

/// A healthy server.
pub(crate) fn nothing_wrong() -> Report {
    let target = Target {
        pid: 991,
        command: "redis-server *:6379".to_owned(),
        duration_ns: 10_000 * MS,
        threads: 5,
        ..Target::default()
    };
    let requests = Requests {
        count: 12_345,
        slow_threshold_ns: MS,
        latency_ns: Some(Latency {
            p50: 41_000,
            p99: 310_000,
            max: 940_000,
            ..Latency::default()
        }),
        time: Time {
            ready_unserved: ReadyUnserved {
                stranded: Some(0),
                pool_busy: Some(210 * MS),
                wakeup: Some(120 * MS),
            },
            on_cpu: Some(160 * MS),
            runnable: Some(21 * MS),
            network: Some(400_000),
            unknown: Some(900_000),
            ..Time::default()
        },
        closure: Some(0.9985),
        ..Requests::default()
    };
    Report {
        looked_at: strings(&[
            "readiness of 1 epoll instance",
            "polls of 1 thread",
            "12,345 requests",
        ]),
        ..Report::new(target, requests, vec![], coverage())
    }
}

/// A server in which requests hang when the recording ends.
pub(crate) fn open() -> Report {
    let mut report = nothing_wrong();
    let reader = |tid, oldest_ns| OpenReader {
        tid,
        thread: "worker".to_owned(),
        count: 1,
        oldest_ns,
    };
    report.requests.open = Some(OpenRequests {
        count: 7,
        unread: 2,
        unaccepted: 1,
        in_work: 2,
        set_aside: 3,
        late: 4,
        late_unread: 2,
        late_unaccepted: 1,
        since_before: false,
        oldest_ns: 6_900 * MS,
        oldest_late_ns: 6_900 * MS,
        oldest_set_aside_ns: 5_000 * MS,
        in_work_by: vec![reader(12, 6_900 * MS), reader(13, 6_000 * MS)],
        late_in_work_by: vec![reader(12, 6_900 * MS), reader(13, 6_000 * MS)],
    });
    report.requests.latency_ns = Some(Latency {
        p50: 41_000,
        p99: 310_000,
        max: 6_900 * MS,
        at_least_from: Some(Percentile::Max),
    });
    report.verdict = Verdict::Open;
    report
}

/// A finding in a server in which requests hang.
pub(crate) fn stranded_and_open() -> Report {
    let mut report = stranded();
    report.requests.open = open().requests.open;
    report.verdict = Verdict::Findings;
    report
}

/// A server whose slow requests nothing explains.
pub(crate) fn cannot_tell() -> Report {
    let mut report = no_cpu();
    report.requests.time.runnable = Some(0);
    report.requests.time.network = Some(54_000 * MS);
    report.verdict = Verdict::CannotTell {
        part: Dominant::ReadyUnserved,
        percent: 98,
        shape: Shape {
            at_a_time: 2,
            every_ns: Some(20 * MS),
        },
    };
    report
}

/// A server whose slow requests take what they always take.
pub(crate) fn as_ever() -> Report {
    let mut report = no_cpu();
    report.verdict = Verdict::AsEver { percent: 97 };
    report
}

/// A server whose slow requests have no more than notes.
pub(crate) fn notes() -> Report {
    let mut report = no_cpu();
    report.verdict = Verdict::Notes { percent: 84 };
    report
}

/// A server of long polls.
pub(crate) fn awaits_events() -> Report {
    let mut report = no_cpu();
    report.verdict = Verdict::AwaitsEvents { percent: 97 };
    report
}

/// A server whose clients do not read.
pub(crate) fn awaits_clients() -> Report {
    let mut report = no_cpu();
    report.verdict = Verdict::AwaitsClients { percent: 92 };
    report
}

/// A server that somebody stopped.
pub(crate) fn stopped() -> Report {
    let mut report = no_cpu();
    report.target.stopped = Some(Stopped {
        ns: 2_033 * MS,
        how: "stopped",
        since_before: true,
        to_the_end: true,
    });
    report.verdict = Verdict::Stopped;
    report
}

/// A server on a crowded machine.
pub(crate) fn no_cpu() -> Report {
    let mut report = nothing_wrong();
    report.requests.slow = 310;
    report.requests.time.runnable = Some(1_400 * MS);
    report
}

/// The same, with who had the CPUs.
pub(crate) fn no_cpu_by_others() -> Report {
    let mut report = no_cpu();
    let holder = |who, pids, name: Option<&str>, ns| CpuHolderRow {
        who,
        pids,
        name: name.map(str::to_owned),
        cgroup: None,
        ns,
    };
    report.requests.cpu_holders = vec![
        holder("processes", vec![4242], Some("batch-job"), 1_120 * MS),
        holder("own-threads", Vec::new(), None, 280 * MS),
    ];
    report
}

/// A worker whose jobs are done by threads that never wait for one.
pub(crate) fn handed_on() -> Report {
    let mut report = nothing_wrong();
    report.verdict = Verdict::HandedOn {
        jobs_ns: 46 * MS,
        besides_ns: 12_400 * MS,
    };
    report
}

/// A server of which all requests, or some, come several at once on a connection.
pub(crate) fn multiplexed(all: bool) -> Report {
    let mut report = nothing_wrong();
    report.verdict = Verdict::Multiplexed;
    let requests = &mut report.requests;
    requests.slow = 96;
    requests.closure = None;
    requests.multiplexed = Some(Multiplexed {
        connections: 20,
        http2: if all { 20 } else { 18 },
        overlapping: if all { 0 } else { 2 },
        may_be_tls: !all,
        exchanges: if all { requests.count } else { 314 },
        prevail: true,
        exchange_ns: requests.latency_ns.take(),
    });
    report
}

/// A process that served nothing while it was watched.
pub(crate) fn no_requests() -> Report {
    let mut report = nothing_wrong();
    report.looked_at.pop();
    report.requests = Requests {
        slow_threshold_ns: MS,
        ..Requests::default()
    };
    report.notes = strings(&["datagrams that nobody answers are no requests"]);
    report
}

/// A program whose only traffic are downloads.
pub(crate) fn under_way() -> Report {
    const S: u64 = 1_000_000_000;
    let mut report = no_requests();
    report.verdict = Verdict::UnderWay;
    report.requests.under_way = Some(OngoingResponses {
        count: 3,
        before: 3,
        to_the_end: 2,
        oldest_ns: 14 * S,
        bytes: 4_500_000,
        ns: 30 * S,
        client_ns: 29 * S,
        server_ns: S,
        writers_on_cpu_percent: Some(1),
        ..OngoingResponses::default()
    });
    report
}

/// A program without requests, whose ring is busy.
pub(crate) fn operations() -> Report {
    let mut report = no_requests();
    report.verdict = Verdict::Operations;
    report.notes.clear();
    report.looked_at = strings(&["1 io_uring ring", "5 threads"]);
    report.uring = vec![RingRow {
        ring: 1,
        pid: 991,
        user: Some(992),
        user_name: "flush".to_owned(),
        sq_entries: 32,
        cq_entries: 64,
        submitted: 46_213,
        batches: 1_444,
        rate: 4_621.3,
        kernel_ns: Some(62_000),
        unreaped_ns: Some(Bounds {
            at_least: 1_000,
            at_most: 3_000,
        }),
        dominant: Some(Stage::Kernel),
        slots: 16.2,
        max_slots: 32,
        pending: Some(PendingRow {
            operations: 2,
            oldest_ns: 2_900 * MS,
            opcodes: [("recv", 2)].into(),
        }),
        opcodes: vec![
            OpcodeRow {
                opcode: "write",
                files: vec!["file"],
                completed: 46_000,
                ..OpcodeRow::default()
            },
            OpcodeRow {
                opcode: "fsync",
                files: vec!["file"],
                completed: 211,
                failed: 7,
                errors: [("EIO".to_owned(), 7)].into(),
                ..OpcodeRow::default()
            },
        ],
        ..RingRow::default()
    }];
    report
}

/// A recording that lost events.
pub(crate) fn incomplete() -> Report {
    let mut report = nothing_wrong();
    report.coverage = Coverage {
        lost: 1_207,
        lost_by_reason: [("ring-full".to_owned(), 1_200), ("no-stack".to_owned(), 7)].into(),
        unmatched_wakes: 12,
        unmatched_wakes_ns: 41_000_000,
        calls_without_row: 31,
        truncated_stacks: 3,
        complete: false,
        incomplete: Some(Incomplete {
            matters: true,
            what: "1,207 events were lost: findings may be missing, and figures too small"
                .to_owned(),
            lacks: vec![
                Lack {
                    what: "lost, ring-full: 1,200".to_owned(),
                    affects: "single waits, requests and calls may be missing, findings with them"
                        .to_owned(),
                },
                Lack {
                    what: "the recording was not finished: it was cut off".to_owned(),
                    affects: "all but its end is there".to_owned(),
                },
            ],
            remedy: "record for a shorter time, or with a higher --threshold".to_owned(),
        }),
        ..coverage()
    };
    report
}

/// A name that tries to move the cursor, to turn the direction of writing and to hide.
pub(crate) const HOSTILE: &str =
    "\x1b[2J\x1b[H\u{202e}nothing wrong found\r\n\u{9b}31m\u{200b}\u{feff}\t\x07\0";

/// Every string from outside tries to do harm.
pub(crate) fn hostile() -> Report {
    const NAME: &str = HOSTILE;
    let long = format!("app::{}", "very_long::".repeat(300));
    let mut report = stranded();
    report.target.command = format!("/srv/{NAME} --flag");
    report.coverage.tier = NAME.to_owned();
    report.coverage.lost = 1;
    report.coverage.lost_by_reason = [(NAME.to_owned(), 1)].into();
    report.notes = strings(&[NAME]);
    let finding = &mut report.findings[0];
    finding.title = format!("4 requests of {NAME} were ready");
    finding.subject.insert(NAME.to_owned(), json!(NAME));
    finding
        .subject
        .insert("threads".to_owned(), json!([NAME, 1, null, {"a": NAME}]));
    finding.evidence = vec![evidence(NAME, None), evidence(&"x".repeat(5_000), None)];
    finding.fix = NAME.to_owned();
    finding.cause = Some(Cause {
        tid: 1,
        thread: NAME.to_owned(),
        doing: NAME.to_owned(),
        stack: vec![
            NAME.to_owned(),
            long.clone(),
            "日本::語".to_owned(),
            String::new(),
        ],
        own: Vec::new(),
        spells: None,
        naming: None,
    });
    let step = &mut report.requests.slowest[0].path[1];
    (step.state, step.thread, step.stack) = (NAME.to_owned(), NAME.to_owned(), vec![long]);
    report
}

/// More findings than anybody reads.
pub(crate) fn many(count: usize) -> Report {
    let mut report = stranded();
    let finding = report.findings[0].clone();
    report.findings = vec![finding; count];
    report
}

/// Figures at the ends of their ranges.
pub(crate) fn extreme() -> Report {
    let mut report = stranded();
    let requests = &mut report.requests;
    (requests.count, requests.slow, requests.slow_threshold_ns) = (u64::MAX, u64::MAX, u64::MAX);
    requests.latency_ns = Some(Latency {
        p50: u64::MAX,
        p99: u64::MAX,
        max: u64::MAX,
        ..Latency::default()
    });
    requests.time.on_cpu = Some(u64::MAX);
    requests.time.disk = Some(u64::MAX);
    requests.closure = Some(f64::NAN);
    requests.slowest[0].latency_ns = u64::MAX;
    requests.slowest[0].path = vec![step("x", u32::MAX, "y", u64::MAX); 20];
    let saving = &mut report.findings[0].saving;
    (saving.at_most_ns, saving.requests, saving.each_at_most_ns) =
        (u64::MAX, u64::MAX, vec![0, u64::MAX]);
    report.coverage.events = u64::MAX;
    report.coverage.frames_symbolised = Some(f64::INFINITY);
    report
}
