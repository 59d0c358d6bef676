//! Every view of some typical reports, held against committed snapshots.
//!
//! After a wanted change: `INSTA_UPDATE=always cargo test -p whywait-report`, then read the
//! difference before you commit it.

mod convoy;
mod reports;

use whywait_findings::Verdict;
use whywait_model::requests::{Datagrams, Latency, OpenRequests, OwnRequests};
use whywait_report::text::{TextOptions, render, request, sentences, waits};
use whywait_report::{
    BRIEF_BYTES, Report, brief_schema, brief_to_json, request_to_json, to_json, waits_to_json,
};
use whywait_words::Charset;

const WIDE: TextOptions = TextOptions {
    width: 110,
    colour: false,
    charset: Charset::Unicode,
    verbose: true,
    ends_with_answer: false,
};
const NARROW: TextOptions = TextOptions {
    width: 48,
    colour: false,
    charset: Charset::Unicode,
    verbose: true,
    ends_with_answer: false,
};
const COLOUR: TextOptions = TextOptions {
    width: 100,
    colour: true,
    charset: Charset::Unicode,
    verbose: false,
    ends_with_answer: true,
};
const ASCII: TextOptions = TextOptions {
    width: 80,
    colour: false,
    charset: Charset::Ascii,
    verbose: false,
    ends_with_answer: false,
};

fn snapshot(name: &str, report: &Report) {
    texts(name, |options| render(report, options));
    insta::assert_snapshot!(
        format!("{name}.json"),
        to_json(report).expect("a report is always JSON")
    );
}

/// The text at several widths and in colour.
fn texts(name: &str, view: impl Fn(TextOptions) -> String) {
    let text = |options| {
        let text = view(options);
        hold(&text, options);
        text
    };
    insta::assert_snapshot!(format!("{name}.wide"), text(WIDE));
    insta::assert_snapshot!(format!("{name}.narrow"), text(NARROW));
    insta::assert_snapshot!(format!("{name}.ascii"), text(ASCII));
    // Escape sequences would make the snapshot itself a thing that one cannot safely print.
    insta::assert_snapshot!(format!("{name}.colour"), text(COLOUR).replace('\x1b', "␛"));
}

/// What holds for every text: it keeps within the width and ends with a newline, without a blank at
/// any line's end.
fn hold(text: &str, options: TextOptions) {
    assert!(text.ends_with('\n') && !text.ends_with("\n\n"));
    if options.colour {
        return;
    }
    for line in text.lines() {
        assert!(
            unicode_width::UnicodeWidthStr::width(line) <= options.width,
            "too wide: {line}"
        );
        assert_eq!(line.trim_end(), line);
        assert!(!line.contains(char::is_control));
        assert!(options.charset == Charset::Unicode || line.is_ascii());
    }
}

#[test]
fn briefs() {
    for (name, report) in [
        ("stranded", reports::stranded()),
        ("cannot_tell", reports::cannot_tell()),
        ("no_requests", reports::no_requests()),
        ("hostile", reports::hostile()),
    ] {
        let json = brief_to_json(&report).expect("a brief is always JSON");
        insta::assert_snapshot!(format!("{name}.brief"), json);
    }
}

#[test]
fn a_brief_is_short_whatever_is_said() {
    let mut long = reports::many(40);
    for finding in &mut long.findings {
        finding.title = "\u{1F980}\u{7f}\"".repeat(1_000);
        finding.fix.clone_from(&finding.title);
    }
    long.target.command = "\u{202e}\\".repeat(1_000);
    for report in [long, reports::hostile(), reports::extreme()] {
        let json = brief_to_json(&report).expect("a brief is always JSON");
        assert!(json.len() < BRIEF_BYTES, "{} bytes: {json}", json.len());
        assert!(
            !json.contains(|c: char| c.is_control() && c != '\n'),
            "{json:?}"
        );
        assert!(!json.contains('\u{202e}'), "{json}");
    }
}

#[test]
fn the_schema_of_a_brief_names_what_is_in_one() {
    let json = |text: &str| serde_json::from_str::<serde_json::Value>(text).expect("JSON");
    let schema = json(&brief_schema().expect("JSON"));
    let brief = json(&brief_to_json(&reports::stranded()).expect("JSON"));
    for key in brief.as_object().expect("an object").keys() {
        assert!(schema["properties"][key].is_object(), "{key}: {schema}");
    }
    let suspect = &schema["$defs"]["BriefFinding"]["properties"];
    for key in brief["suspects"][0].as_object().expect("an object").keys() {
        assert!(suspect[key].is_object(), "{key}: {suspect}");
    }
}

#[test]
fn stranded_readiness() {
    snapshot("stranded", &reports::stranded());
}

#[test]
fn by_calls() {
    snapshot("by_calls", &reports::by_calls());
}

#[test]
fn a_target_has_its_programs_name_and_no_title() {
    for (command, name) in [
        ("nginx: master process /usr/sbin/nginx", "nginx"),
        ("php-fpm: pool www", "php-fpm"),
        ("/usr/bin/postgres -D /var/lib/postgres", "postgres"),
        ("", "the target"),
    ] {
        let mut report = reports::stranded();
        report.target.command = command.to_owned();
        let text = render(&report, TextOptions::default());
        assert!(text.starts_with(&format!("{name} (pid 1234)")), "{text}");
    }
}

#[test]
fn blocked_loop() {
    snapshot("blocked_loop", &reports::blocked_loop());
}

#[test]
fn requests_that_lacked_a_cpu_say_so() {
    let wide = TextOptions { width: 400, ..WIDE };
    let text = render(&reports::no_cpu(), wide);
    let said = "310 took 1 ms or longer, and no finding explains them: for 80 % of the requests' \
                time";
    assert!(text.contains(said), "{said}: {text}");
    assert!(!text.contains("host"), "nothing was stolen: {text}");
    let text = render(&reports::no_cpu_by_others(), wide);
    let who = "without a CPU: 80 % of the time, waking up included; who had it: batch-job (pid \
               4242) 80 %; own threads 20 %";
    assert!(text.contains(who), "{who}: {text}");
    let mut stolen = reports::no_cpu();
    stolen.coverage.stolen_ns = stolen.target.duration_ns / 10;
    let text = render(&stolen, wide);
    let said = "without a CPU; the virtual machine's host took CPUs away";
    assert!(text.contains(said), "{said}: {text}");
}

#[test]
fn what_the_host_took_is_reported_when_it_is_much() {
    let wide = TextOptions { width: 400, ..WIDE };
    let reported = |stolen_ns: u64| {
        let mut report = reports::no_cpu();
        report.coverage.stolen_ns = stolen_ns;
        render(&report, wide)
            .contains("the virtual machine's host took threads' CPUs away for 885 ms")
    };
    assert!(reported(885_000_000), "885 ms are a reason");
    assert!(!reported(0) && !reported(5_000_000), "5 ms are not");
}

#[test]
fn nothing_wrong() {
    snapshot("nothing_wrong", &reports::nothing_wrong());
}

#[test]
fn own_requests() {
    let options = TextOptions::default();
    let mut report = reports::nothing_wrong();
    assert!(!render(&report, options).contains("own requests"));
    for (count, counted, said) in [
        (
            1,
            false,
            "own requests: 1 more is the program's own, to itself",
        ),
        (
            318,
            false,
            "own requests: 318 more are the program's own, to itself",
        ),
        (
            7,
            true,
            "own requests: all of them are the program's own, to itself",
        ),
    ] {
        report.requests.own = OwnRequests { count, counted };
        let text = render(&report, options);
        assert!(text.contains(said), "{text}");
    }
    let json: serde_json::Value =
        serde_json::from_str(&to_json(&report).expect("JSON")).expect("JSON");
    assert_eq!(json["requests"]["own"]["count"], 7);
}

#[test]
fn open_requests() {
    snapshot("open", &reports::open());
    texts("stranded_and_open", |options| {
        render(&reports::stranded_and_open(), options)
    });
}

#[test]
fn requests_that_cannot_be_told_apart() {
    snapshot("multiplexed", &reports::multiplexed(true));
    texts("multiplexed_some", |options| {
        render(&reports::multiplexed(false), options)
    });
}

#[test]
fn jobs_that_others_work_on() {
    texts("handed_on", |options| {
        render(&reports::handed_on(), options)
    });
}

#[test]
fn what_nothing_explains() {
    snapshot("cannot_tell", &reports::cannot_tell());
}

#[test]
fn a_target_that_was_stopped() {
    snapshot("stopped", &reports::stopped());
}

#[test]
fn no_requests() {
    snapshot("no_requests", &reports::no_requests());
}

#[test]
fn requests_in_quic_are_said_not_to_be_seen() {
    let mut report = reports::no_requests();
    report.requests.datagrams = Some(Datagrams {
        quic: 1_234,
        ..Datagrams::default()
    });
    let text = render(&report, WIDE);
    assert!(text.contains("help: it speaks QUIC (HTTP/3)"), "{text}");
    let line = "datagrams: 0 questions answered; 1,234 of QUIC, in which requests are not seen";
    assert!(text.contains(line), "{text}");
    assert!(!text.contains("Check that there was load"), "{text}");
}

/// Others may be open for as long as such take: neither counts them.
#[test]
fn as_many_are_said_to_be_open_in_all_places() {
    let mut report = reports::open();
    let open = report.requests.open.as_mut().expect("some are");
    (open.in_work, open.late) = (6, 3);
    open.late_in_work_by.truncate(1);
    let latency = report.requests.latency_ns.as_mut().expect("known");
    latency.max = 7_000_000_000;
    let text = render(&report, WIDE);
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    for said in [
        "3 requests are still open, the oldest for 6.9 s: 2 unread, 1 of them on connections not \
         accepted; 1 read by worker (12)",
        "(12,348 requests, 3 of them still open,",
        // One that was answered took as long, and who is open may yet take longer.
        "max at least 7 s;",
    ] {
        assert!(text.contains(said), "{said}: {text}");
    }
}

#[test]
fn requests_that_nobody_answered_were_seen() {
    let mut report = reports::no_requests();
    report.requests.open = Some(OpenRequests {
        count: 2,
        set_aside: 2,
        oldest_ns: 9_000_000_000,
        oldest_set_aside_ns: 9_000_000_000,
        ..OpenRequests::default()
    });
    let text = render(&report, WIDE);
    assert!(
        text.contains("2 requests were read and not answered"),
        "{text}"
    );
    assert!(text.contains("requests: none answered"), "{text}");
    assert!(!text.contains("none seen"), "{text}");
}

#[test]
fn operations_without_requests() {
    snapshot("operations", &reports::operations());
}

#[test]
fn an_incomplete_recording() {
    snapshot("incomplete", &reports::incomplete());
}

#[test]
fn hostile_names() {
    snapshot("hostile", &reports::hostile());
}

#[test]
fn a_convoy() {
    snapshot("convoy", &convoy::report());
    texts("harmless", |options| render(&convoy::harmless(), options));
}

#[test]
fn the_table_of_waits() {
    let rows = convoy::waits();
    texts("waits", |options| waits(&rows, options));
    insta::assert_snapshot!("waits.json", waits_to_json(&rows).expect("JSON"));
    insta::assert_snapshot!("waits_none", waits(&[], WIDE));
    insta::assert_snapshot!("waits_none.json", waits_to_json(&[]).expect("JSON"));
}

#[test]
fn a_request_step_by_step() {
    let slow = convoy::slow();
    texts("request", |options| request(&slow, options));
    insta::assert_snapshot!("request.json", request_to_json(&slow).expect("JSON"));
}

#[test]
fn hostile_waits_and_paths() {
    let (rows, slow) = (convoy::hostile_waits(), convoy::hostile_slow());
    insta::assert_snapshot!("waits_hostile", waits(&rows[..1], ASCII));
    for width in [0, 40, 41, 59, 60, 61, 83, 84, 85, 99, 120, 160, 200, 300] {
        for charset in [Charset::Unicode, Charset::Ascii] {
            let options = TextOptions {
                width,
                colour: false,
                charset,
                ..WIDE
            };
            let held = TextOptions {
                width: width.max(TextOptions::MIN_WIDTH),
                ..options
            };
            hold(&waits(&rows, options), held);
            hold(&waits(&convoy::waits(), options), held);
            hold(&request(&slow, options), held);
            hold(&request(&convoy::slow(), options), held);
            let mut report = convoy::report();
            report.requests.slowest = vec![slow.clone()];
            hold(&render(&report, options), held);
        }
    }
    waits_to_json(&rows).expect("JSON");
    request_to_json(&slow).expect("JSON");
}

#[test]
fn the_waits_of_consequence_are_among_the_rows_shown() {
    let text = waits(&convoy::many_waits(60), WIDE);
    assert!(text.contains("the one that counts"), "{text}");
    assert!(text.contains("… and 40 more rows"), "{text}");
    assert!(text.lines().count() <= 60, "{text}");
}

#[test]
fn a_long_path_is_told_by_its_long_steps() {
    let text = request(&convoy::long_slow(), WIDE);
    assert!(text.lines().count() <= 90, "{text}");
    assert!(
        text.contains("300 ms") && text.contains("shorter steps"),
        "{text}"
    );
}

#[test]
fn notes_come_last_and_are_short() {
    let text = render(&convoy::report(), WIDE);
    assert!(answer(&text).starts_with("error["), "{text}");
    let at = |what: &str| {
        text.find(what)
            .unwrap_or_else(|| panic!("no {what:?} in {text}"))
    };
    assert!(at("for ever") < at("harmless"));
    assert!(!text.contains("at most 0") && !text.contains("nobody needs"));
    assert!(text.lines().count() <= 75, "{text}");
}

#[test]
fn the_first_line_is_the_answer() {
    for (report, start) in [
        (
            reports::stranded(),
            "error[stranded-readiness]: 4 requests waited unread for up to 2.00 s",
        ),
        (reports::blocked_loop(), "warning[blocked-loop]: "),
        (
            reports::nothing_wrong(),
            "nothing wrong found: 12,345 requests",
        ),
        (reports::no_requests(), "no requests seen: "),
        (
            reports::under_way(),
            "3 responses under way, and no other requests: of redis-server (pid 991), watched for",
        ),
        (
            reports::operations(),
            "nothing wrong found: redis-server (pid 991) had no requests, and 46,213 io_uring",
        ),
        (
            reports::open(),
            "4 requests are still open, the oldest for 6.9 s: 2 unread, 1 of them on",
        ),
        (
            reports::multiplexed(true),
            "requests cannot be told apart: 12,345 exchanges with redis-server (pid 991) in 10 s",
        ),
        (
            reports::cannot_tell(),
            "cannot tell: 98 % of the slow requests' time is waiting unread; at most 2 requests",
        ),
        (
            reports::as_ever(),
            "slow, but nothing wrong found: 97 % of the slow requests' time is in the first",
        ),
        (
            reports::notes(),
            "only notes: fixing them saves at most 84 % of the slow requests' time",
        ),
        (
            reports::awaits_events(),
            "slow requests waited for something from outside for 97 % of their time, as long polls",
        ),
        (
            reports::awaits_clients(),
            "slow, but not by the server: for 92 % of the requests' time their clients had no room",
        ),
        (reports::stopped(), "the target was stopped (by a signal, "),
        (
            reports::incomplete(),
            "nothing wrong found in what was recorded, but the recording is incomplete: ",
        ),
    ] {
        let text = render(&report, WIDE);
        assert!(answer(&text).starts_with(start), "{text}");
    }
}

/// A report without what comes before the first finding: one line, what it does to requests.
fn answer(text: &str) -> &str {
    let (first, rest) = text.split_once('\n').expect("a line");
    match rest.starts_with("error[") || rest.starts_with("warning[") {
        true => {
            assert!(first.contains(", watched for "), "{first}");
            rest
        }
        false => text,
    }
}

#[test]
fn the_first_line_has_the_largest_latency_where_percentiles_are_of_others() {
    let mut report = reports::blocked_loop();
    report.requests.count = 41 * 100;
    report.requests.latency_ns = Some(Latency {
        p50: 2_000_000,
        p99: 9_000_000,
        max: 182_000_000,
        at_least_from: None,
    });
    let first = |report: &Report| {
        let text = render(report, TextOptions { width: 400, ..WIDE });
        text.lines().next().expect("a line").to_owned()
    };
    assert!(
        first(&report).ends_with("1.0 % slowed: p99 9 ms"),
        "{}",
        first(&report)
    );
    report.requests.count += 1;
    let said = first(&report);
    assert!(
        said.ends_with("1.0 % slowed: max 182 ms; p99 9 ms"),
        "{said}"
    );
}

#[test]
fn the_last_line_on_a_terminal_is_the_answer() {
    for report in [reports::stranded(), reports::nothing_wrong()] {
        let options = TextOptions {
            ends_with_answer: true,
            ..WIDE
        };
        let text = render(&report, options);
        let last = text.rsplit("\n\n").next().expect("a paragraph");
        let start = answer(&text).get(..15).expect("a line");
        assert!(last.starts_with(start), "{text}");
    }
}

#[test]
fn without_v_it_is_short_and_says_that_there_is_more() {
    let short = TextOptions {
        verbose: false,
        ..WIDE
    };
    let text = render(&reports::many(40), short);
    assert!(text.contains("37 more findings: -v shows more"), "{text}");
    let (short, all) = (
        render(&convoy::report(), short),
        render(&convoy::report(), WIDE),
    );
    assert!(
        all.contains("harmless") && !short.contains("harmless"),
        "{short}"
    );
    assert!(
        short.lines().count() * 3 < all.lines().count() * 2,
        "{short}"
    );
}

#[test]
fn responses_under_way_stand_beside_requests_when_they_are_old() {
    let mut report = reports::under_way();
    let line = "responses under way: 3: 3 asked for before the recording, 2 went on until the \
                recording's end, the oldest for 14 s; 4.5 MB went out, 150 kB a second each; the \
                limit was the client, which reads slowly 97 %; the server, which writes slowly \
                3.3 %; its writing threads were on a CPU for 1 %";
    let render = |report: &Report| render(report, WIDE).replace("\n  ", " ");
    let text = render(&report);
    assert!(text.contains(line) && !text.contains("none seen"), "{text}");
    assert!(!text.contains("Check that there was load"), "{text}");
    report.requests.count = 5;
    report.verdict = Verdict::NothingWrong;
    let text = render(&report);
    assert!(text.contains(line), "{text}");
    if let Some(responses) = &mut report.requests.under_way {
        responses.oldest_ns = 20_000_000;
    }
    let text = render(&report);
    assert!(!text.contains("under way"), "{text}");
}

#[test]
fn a_report_fits_a_screen() {
    for report in [
        reports::stranded(),
        reports::blocked_loop(),
        reports::many(40),
        reports::hostile(),
    ] {
        let lines = render(&report, WIDE).lines().count();
        assert!(lines <= 60, "{lines} lines");
    }
}

#[test]
fn what_a_recording_lacks_follows_the_verdict() {
    let mut report = reports::stranded();
    report.coverage = reports::incomplete().coverage;
    let text = render(&report, WIDE);
    let line = text.find("\n  incomplete: ").expect("a line of its own");
    assert!(
        answer(&text).starts_with("error[stranded-readiness]"),
        "{text}"
    );
    assert!(line < text.find("  --> ").expect("where"), "{text}");
    assert!(
        text.contains("\n  lost, ring-full: 1,200: single waits"),
        "{text}"
    );
    let headline = sentences::headline(&report);
    assert!(
        headline.notes[0].starts_with("incomplete: "),
        "{headline:?}"
    );
}

#[test]
fn extreme_figures_do_not_upset_it() {
    let text = render(&reports::extreme(), NARROW);
    hold(&text, NARROW);
}

#[test]
fn json_keeps_the_order_of_the_contract() {
    let text = to_json(&reports::stranded()).expect("a report is always JSON");
    let keys = [
        "schema",
        "target",
        "requests",
        "findings",
        "coverage",
        "notes",
        "looked_at",
    ];
    let places: Vec<_> = keys
        .iter()
        .map(|key| {
            text.find(&format!("\n  \"{key}\""))
                .expect("the key is there")
        })
        .collect();
    assert!(places.is_sorted(), "{places:?}");
}
