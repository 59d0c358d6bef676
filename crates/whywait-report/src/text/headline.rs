//! The first line when nothing is wrong. (When something is, the first line is the finding's.)

use std::slice;

use whywait_findings::{Dominant, Finding, SavingKind, Shape, Verdict};
use whywait_model::Stopped;
use whywait_model::requests::{Multiplexed, OpenRequests, Percentile, Time};
use whywait_words::{count, counted, duration, figure, percent, program_name, rate};

use super::page::{Page, Style};
use super::requests::{held_cpus, limits, percentile, total_ns, works};
use super::{coverage, finding, run, task_waits, words};
use crate::Report;

/// When a virtual machine's host took at least this part of the time (one in so many) from threads,
/// the reader should look there first: requests queue behind it.
const MUCH_STOLEN: u64 = 20;
/// Of less a rate says nothing.
const SECOND_NS: u64 = 1_000_000_000;
/// The 99th percentile is not among fewer than one in so many.
const FEW_ARE_ONE_IN: u64 = 100;
/// Requests that were set aside are worth a word from this age on.
const SET_ASIDE_NS: u64 = 1_000_000_000;

pub(super) fn nothing_wrong(page: &mut Page, report: &Report) {
    verdict(page, report);
    let requests = &report.requests;
    let open = requests.open.as_ref();
    let jobs = requests.jobs.as_ref().filter(|_| requests.count == 0);
    // Messages were read, and that none was seen to be done says nothing of how long they took.
    let hidden = jobs.is_some_and(|jobs| jobs.counted && jobs.count == 0);
    if let Some(open) = open.filter(|_| !hidden) {
        still_open(page, open, report.verdict != Verdict::Open);
    }
    if let Some(several) = requests
        .multiplexed
        .as_ref()
        .filter(|_| report.verdict != Verdict::Multiplexed)
    {
        multiplexed(page, several);
    }
    if report.verdict == Verdict::Stopped {
        return;
    }
    if matches!(
        report.verdict,
        Verdict::Operations
            | Verdict::UnderWay
            | Verdict::Run
            | Verdict::AsEver { .. }
            | Verdict::Notes { .. }
            | Verdict::AwaitsEvents { .. }
            | Verdict::AwaitsClients { .. }
    ) {
        return;
    }
    if matches!(report.verdict, Verdict::HandedOn { .. }) {
        let hint = "who has a message may hand it to a thread or a process that always finds \
                    another one, and never waits for it: that does not show, and the figures below \
                    are of those who hand on. Attach before there is a backlog; --waits and \
                    --calls say what others did meanwhile";
        page.gutter();
        page.paragraph(
            "   = ",
            "     ",
            &[(Style::Help, "help: "), (Style::Plain, hint)],
        );
    } else if requests.count == 0 && (open.is_none() || hidden) {
        let hint = "a request starts when data arrives on a socket, and ends when the target \
                    has read it and written an answer. Check that there was load while \
                    whywait watched, that this process served it, and in the notes below that \
                    this kernel tells of requests";
        let quic = requests.datagrams.filter(|datagrams| datagrams.quic > 0);
        let asks = hidden || jobs.is_some_and(|jobs| jobs.fetches > 0);
        let hint = match (quic, asks) {
            (Some(_), _) => {
                "it speaks QUIC (HTTP/3), whose requests are not followed. Those that come over \
                 TCP are"
            }
            (None, true) => {
                "it has messages from a broker, and who works on them does not show: tasks of one \
                 thread hand them to each other (goroutines, coroutines), or nothing came. --calls \
                 and --waits say what it asked of others, and where its threads slept"
            }
            (None, false) => hint,
        };
        page.gutter();
        page.paragraph(
            "   = ",
            "     ",
            &[(Style::Help, "help: "), (Style::Plain, hint)],
        );
    } else if requests.slow > 0 {
        let (slow, threshold) = (count(requests.slow), duration(requests.slow_threshold_ns));
        let mut text = format!("{slow} took {threshold} or longer, and no finding explains them: ");
        match mostly_without_cpu(&requests.time) {
            Some(percent) => {
                text.push_str(&format!(
                    "for {percent} % of the requests' time threads were without a CPU; "
                ));
                let who = held_cpus(page, requests);
                if report.coverage.stolen_ns >= report.target.duration_ns / MUCH_STOLEN {
                    text.push_str("the virtual machine's host took CPUs away");
                } else if who.is_empty() {
                    text.push_str("who had them was not recorded");
                } else {
                    text.push_str(&format!("who had it: {}", who.join("; ")));
                }
            }
            None => text.push_str("see below where their time went"),
        }
        page.gutter();
        page.paragraph(
            "   = ",
            "     ",
            &[(Style::Strong, "note: "), (Style::Plain, &text)],
        );
    }
}

/// What was found, and what was seen.
pub(super) fn verdict(page: &mut Page, report: &Report) {
    if let (Verdict::Run, Some(run)) = (report.verdict, &report.run) {
        let (text, mut besides) = (run::headline(page, report, run), run::besides(run));
        if !run.ended {
            besides.push_str(&calls_made(report));
        }
        page.paragraph(
            "",
            "  ",
            &[(Style::Strong, &text), (Style::Plain, &besides)],
        );
        coverage::short(page, report);
        return;
    }
    let (style, verdict) = in_words(page, report);
    let mut text = what_was_seen(page, report);
    if !report.looked_at.is_empty() {
        text.push_str("; looked at ");
        text.push_str(&report.looked_at.join(", "));
    }
    page.paragraph("", "  ", &[(style, &verdict), (Style::Strong, &text)]);
    coverage::short(page, report);
}

/// The verdict alone.
pub(super) fn answer(page: &mut Page, report: &Report) {
    let (style, verdict) = in_words(page, report);
    page.paragraph("", "  ", &[(style, &verdict)]);
}

/// What it comes to for those who ask: the service, how much it does, how slow it is, and how slow
/// it would be without the first finding.
pub(super) fn impact(page: &mut Page, report: &Report, first: &Finding) {
    let (requests, watched_ns) = (&report.requests, report.target.duration_ns);
    let mut text = target_on_host(page, report);
    text.push_str(&format!(", watched for {}", duration(watched_ns)));
    let (all, saving) = (finding::all(requests), &first.saving);
    if all > 0 {
        text.push_str(&format!(": {}", works(requests, all)));
        if watched_ns >= SECOND_NS {
            let per_second = all as f64 * 1e9 / watched_ns as f64;
            text.push_str(&format!(" ({}/s)", rate(per_second)));
        }
        if saving.kind == SavingKind::Latency && (1..=all).contains(&saving.requests) {
            text.push_str(&format!(", {} slowed", percent(saving.requests, all)));
        }
    }
    let of_all = |name, which| {
        let latency = requests.latency_ns?;
        Some(format!("{name} {}", percentile(requests, &latency, which)))
    };
    // So few are slowed that percentiles say hardly anything of them.
    let few = saving.kind == SavingKind::Latency
        && (1..all.div_ceil(FEW_ARE_ONE_IN)).contains(&saving.requests);
    let max = of_all("max", Percentile::Max).filter(|_| few);
    let effect = finding::effect(saving).or_else(|| of_all("p99", Percentile::P99));
    let figures: Vec<String> = max.into_iter().chain(effect).collect();
    if !figures.is_empty() {
        text.push_str(&format!(": {}", figures.join("; ")));
    }
    page.paragraph("", "    ", &[(Style::Strong, &text)]);
}

/// The verdict and how it looks.
fn in_words(page: &Page, report: &Report) -> (Style, String) {
    let requests = &report.requests;
    let incomplete = report.coverage.incomplete.is_some();
    let open = requests.open.as_ref();
    let stopped = report.target.stopped.as_ref();
    match (report.verdict, open, incomplete) {
        (Verdict::Stopped, ..) if let Some(stopped) = stopped => (
            Style::Warning,
            format!("the target {}", stopped_for(stopped)),
        ),
        (Verdict::Run, ..) if let Some(run) = &report.run => {
            (Style::Strong, run::headline(page, report, run))
        }
        (Verdict::Open, Some(open), _) => (Style::Warning, late(page, open)),
        (Verdict::CannotTell { .. }, ..)
            if let Some(waits) = task_waits::dominant(page, requests) =>
        {
            let verdict =
                format!("most of the slow requests' time is one wait of their tasks: {waits}");
            (Style::Warning, verdict)
        }
        (
            Verdict::CannotTell {
                part,
                percent,
                shape,
            },
            ..,
        ) => {
            let (part, shape) = (words::dominant(part), shaped(part, shape));
            let verdict =
                format!("cannot tell: {percent} % of the slow requests' time is {part}{shape}");
            (Style::Warning, verdict)
        }
        (Verdict::AsEver { percent }, ..) => {
            let verdict = format!(
                "slow, but nothing wrong found: {percent} % of the slow requests' time is in the \
                 first note, and nothing shows that it could be otherwise"
            );
            (Style::Strong, verdict)
        }
        (Verdict::Notes { percent }, ..) => {
            let saves = |finding: &&Finding| {
                finding.saving.kind == SavingKind::Latency && finding.saving.at_most_ns > 0
            };
            let fix = match report.findings.iter().filter(saves).count() {
                1 => "a fix of the first saves",
                _ => "fixing them saves",
            };
            // What waits behind the requests of a note is in it, too.
            let verdict =
                format!("only notes: {fix} at most {percent} % of the slow requests' time");
            (Style::Strong, verdict)
        }
        (Verdict::AwaitsEvents { percent }, ..) => {
            let verdict = format!(
                "slow requests waited for something from outside for {percent} % of their time, as \
                 long polls wait for another client"
            );
            (Style::Strong, verdict)
        }
        (Verdict::AwaitsClients { percent }, ..) => {
            let verdict = format!(
                "slow, but not by the server: for {percent} % of the requests' time their clients \
                 had no room for more of the responses"
            );
            (Style::Strong, verdict)
        }
        (Verdict::Multiplexed, ..) => (Style::Warning, "requests cannot be told apart".to_owned()),
        (
            Verdict::HandedOn {
                jobs_ns,
                besides_ns,
            },
            ..,
        ) => {
            let verdict = format!(
                "cannot tell who works on the jobs: those who have the messages are done with \
                 them in {} altogether, and the target worked for {} besides",
                duration(jobs_ns),
                duration(besides_ns)
            );
            (Style::Warning, verdict)
        }
        (Verdict::UnderWay, ..) if let Some(responses) = &requests.under_way => {
            let responses = counted(responses.count, "response");
            (
                Style::Warning,
                format!("{responses} under way, and no other requests"),
            )
        }
        _ if requests.count == 0 && report.verdict != Verdict::Operations => {
            let seen = if open.is_some() { "answered" } else { "seen" };
            let incomplete = if incomplete {
                ", and the recording is incomplete"
            } else {
                ""
            };
            (Style::Warning, format!("no requests {seen}{incomplete}"))
        }
        (_, _, false) => (Style::Good, "nothing wrong found".to_owned()),
        (_, _, true) => (
            Style::Warning,
            "nothing wrong found in what was recorded, but the recording is incomplete".to_owned(),
        ),
    }
}

/// `; at most 2 calls at a time; an answer every 20 ms`.
fn shaped(part: Dominant, shape: Shape) -> String {
    let what = match part {
        Dominant::Queued => "call",
        _ => "request",
    };
    let mut text = match shape.at_a_time {
        0 => String::new(),
        most => format!("; at most {} in hand at a time", counted(most, what)),
    };
    if let Some(ns) = shape.every_ns {
        text.push_str(&format!("; an answer every {}", duration(ns)));
    }
    text
}

/// `; it made 309 calls to 10.0.0.7:7001 (stock), 0.99 under way on average, 1 at most`: those that
/// took most time.
fn calls_made(report: &Report) -> String {
    let Some(row) = report.calls.iter().max_by_key(|row| row.total_ns) else {
        return String::new();
    };
    let most = row.most_in_flight.map(|most| format!(", {most} at most"));
    format!(
        "; it made {} to {}, {} under way on average{}",
        counted(row.calls, "call"),
        row.name(),
        figure(row.in_flight),
        most.unwrap_or_default()
    )
}

/// `: 12,345 requests to redis-server (pid 991) in 10 s, p99 310 us, max 940 us`.
fn what_was_seen(page: &Page, report: &Report) -> String {
    let requests = &report.requests;
    let target = target_on_host(page, report);
    let watched = duration(report.target.duration_ns);
    if report.verdict == Verdict::Operations {
        let rings = &report.uring;
        let done = rings.iter().map(|ring| ring.submitted);
        let done = counted(done.fold(0, u64::saturating_add), "io_uring operation");
        return format!(": {target} had no requests, and {done} in {watched}");
    }
    if report.verdict == Verdict::UnderWay
        && let Some(responses) = &requests.under_way
    {
        return format!(
            ": of {target}, watched for {watched}: {}",
            limits(responses)
        );
    }
    if requests.count == 0 {
        let threads = counted(report.target.threads, "thread");
        let events = counted(report.coverage.events, "kernel event");
        let calls = calls_made(report);
        return format!(": {target} was watched for {watched}: {threads}, {events}{calls}");
    }
    let all = works(requests, requests.count);
    let are_jobs = requests.jobs.as_ref().is_some_and(|jobs| jobs.counted);
    let to = if are_jobs { "done by" } else { "to" };
    if let Some(several) = requests
        .multiplexed
        .as_ref()
        .filter(|several| several.prevail)
    {
        let exchanges = match several.exchanges {
            some if some >= requests.count => counted(some, "exchange"),
            some => format!("{all}, {} of them exchanges,", count(some)),
        };
        let hint = match several.may_be_tls {
            true => " (in TLS: record with --tls)",
            false => "",
        };
        return format!(
            ": {exchanges} with {target} in {watched}, on {}; how many requests these were, and \
             how long each took, is not known{hint}",
            carriers(several)
        );
    }
    // Theirs are those of who hands them on.
    let are_whole = !matches!(report.verdict, Verdict::HandedOn { .. });
    match requests.latency_ns.filter(|_| are_whole) {
        Some(latency) => {
            let [p99, max] = [Percentile::P99, Percentile::Max]
                .map(|which| percentile(requests, &latency, which));
            let wire = requests.wire.as_ref().and_then(|wire| wire.latency_ns);
            let wire = wire.map_or_else(String::new, |wire| {
                let (p99, max) = (duration(wire.p99), duration(wire.max));
                format!("; with the wire p99 {p99}, max {max}")
            });
            format!(": {all} {to} {target} in {watched}, p99 {p99}, max {max}{wire}")
        }
        None => format!(": {all} {to} {target} in {watched}"),
    }
}

/// `20 connections that may carry several requests at once (HTTP/2)`.
fn carriers(several: &Multiplexed) -> String {
    const OVERLAPPING: &str = "clients send before they have all of a response";
    let connections = counted(several.connections, "connection");
    let how = match (several.http2, several.overlapping) {
        (_, 0) => "HTTP/2".to_owned(),
        (0, _) => OVERLAPPING.to_owned(),
        (http2, overlapping) => format!(
            "{} HTTP/2; on {} {OVERLAPPING}",
            count(http2),
            count(overlapping)
        ),
    };
    format!("{connections} that may carry several requests at once ({how})")
}

/// That some of what counts as requests may be several, as a note of its own.
pub(super) fn multiplexed(page: &mut Page, several: &Multiplexed) {
    if several.exchanges == 0 {
        return;
    }
    let so = if several.prevail {
        "latency of requests is not known"
    } else {
        "figures over all requests hold nevertheless"
    };
    let text = format!(
        "{} that count as requests were on {}: {so}",
        counted(several.exchanges, "exchange"),
        carriers(several)
    );
    page.gutter();
    page.paragraph(
        "   = ",
        "     ",
        &[(Style::Strong, "note: "), (Style::Plain, &text)],
    );
}

/// `was stopped (by a signal or a debugger) for 2.033 s`.
fn stopped_for(stopped: &Stopped) -> String {
    let how = match stopped.how {
        "stopped" => "stopped (by a signal, as SIGSTOP, or a debugger)",
        how => how,
    };
    let least = if stopped.since_before {
        "at least "
    } else {
        ""
    };
    let still = if stopped.to_the_end {
        ", and still was at the end"
    } else {
        ""
    };
    format!("was {how} for {least}{}{still}", duration(stopped.ns))
}

/// What belongs to the first finding that is a problem: notes that it does not have.
pub(super) fn besides(page: &mut Page, report: &Report) {
    if let Some(target) = &report.target.stopped {
        stopped(page, target);
    }
    if let Some(open) = &report.requests.open {
        still_open(page, open, true);
    }
    if let Some(several) = &report.requests.multiplexed {
        multiplexed(page, several);
    }
}

/// That the target was stopped, as a note of its own.
pub(super) fn stopped(page: &mut Page, stopped: &Stopped) {
    let text = format!("the target {}", stopped_for(stopped));
    page.gutter();
    page.paragraph(
        "   = ",
        "     ",
        &[(Style::Strong, "note: "), (Style::Plain, &text)],
    );
}

/// What is still open, as a note of its own: requests that are late, and those that were set aside.
pub(super) fn still_open(page: &mut Page, open: &OpenRequests, with_late: bool) {
    let late = (with_late && open.late > 0).then(|| late(page, open));
    let set_aside = (open.oldest_set_aside_ns >= SET_ASIDE_NS).then(|| {
        let (requests, were) = match open.set_aside {
            1 => ("1 request".to_owned(), "was"),
            n => (format!("{} requests", count(n)), "were"),
        };
        format!(
            "{requests} {were} read and not answered for {} by the end; if they wait for an event, \
             that is as it should be",
            match open.since_before {
                true => format!("{} or longer", duration(open.oldest_set_aside_ns)),
                false => format!("up to {}", duration(open.oldest_set_aside_ns)),
            }
        )
    });
    for text in late.into_iter().chain(set_aside) {
        page.gutter();
        page.paragraph(
            "   = ",
            "     ",
            &[(Style::Strong, "note: "), (Style::Plain, &text)],
        );
    }
}

/// `4 requests are still open, the oldest for 6.9 s: 2 unread; 2 read by worker (12)`.
fn late(page: &Page, open: &OpenRequests) -> String {
    const READERS: usize = 3;
    let (requests, are) = match open.late {
        1 => ("1 request".to_owned(), "is"),
        n => (format!("{} requests", count(n)), "are"),
    };
    let mut who: Vec<String> = Vec::new();
    match (open.late_unread, open.late_unaccepted) {
        (0, _) => {}
        (unread, 0) => who.push(format!("{} unread", count(unread))),
        (unread, unaccepted) if unread == unaccepted => {
            who.push(format!("{} on connections not accepted", count(unaccepted)))
        }
        (unread, unaccepted) => who.push(format!(
            "{} unread, {} of them on connections not accepted",
            count(unread),
            count(unaccepted)
        )),
    }
    let in_work = open.late.saturating_sub(open.late_unread);
    if in_work > 0 {
        let mut readers: Vec<String> = open
            .late_in_work_by
            .iter()
            .take(READERS)
            .map(|reader| format!("{} ({})", page.cut(&reader.thread, 40), reader.tid))
            .collect();
        if let Some(more @ 1..) = open.late_in_work_by.len().checked_sub(READERS) {
            readers.push(format!("{more} more"));
        }
        who.push(format!(
            "{} read by {}",
            count(in_work),
            readers.join(" and ")
        ));
    }
    let least = if open.since_before { "at least " } else { "" };
    let one_of_them = if open.late == 1 { "" } else { "the oldest " };
    let oldest = format!("{one_of_them}for {least}{}", duration(open.oldest_late_ns));
    format!("{requests} {are} still open, {oldest}: {}", who.join("; "))
}

/// How many percent of the requests' time the threads that worked for them had no CPU, if that is
/// most of it.
fn mostly_without_cpu(time: &Time) -> Option<u64> {
    let without = [time.runnable, time.ready_unserved.wakeup];
    let without_ns = without.into_iter().flatten().fold(0, u64::saturating_add);
    let total_ns = total_ns(time);
    (total_ns > 0 && without_ns.saturating_mul(2) >= total_ns)
        .then(|| (u128::from(without_ns) * 100 / u128::from(total_ns)) as u64)
}

/// `redis-server (pid 1234) on db-1`.
pub(super) fn target_on_host(page: &Page, report: &Report) -> String {
    let target = target(page, report);
    match &report.target.host {
        Some(host) => format!("{target} on {}", page.cut(host, 40)),
        None => target,
    }
}

/// `redis-server (pid 1234)`, or `redis-server (pid 1234, 1 in its PID namespace)`.
pub(super) fn target(page: &Page, report: &Report) -> String {
    const MAX_WIDTH: usize = 40;
    // The program alone: its arguments can be long, and can hold secrets. JSON has more.
    let name = match program_name(slice::from_ref(&report.target.command)) {
        "" => "the target",
        name => name,
    };
    let number = whywait_words::pid(report.target.pid, report.target.inner_pid);
    format!("{} (pid {number})", page.cut(name, MAX_WIDTH))
}
