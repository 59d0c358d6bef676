//! Where the requests' time went, their latency, and the critical path of the slowest.

use whywait_model::cpu::CpuHolderRow;
use whywait_model::requests::{
    AcceptQueue, Http2Streams, Jobs, Latency, Multiplexed, OngoingResponses, OwnRequests,
    Percentile, Requests, Slow, Time, Wire,
};
use whywait_model::rings::RingRow;
use whywait_words::{bytes, columns, count, counted, duration, duration_range, percent};

use super::by_calls;
use super::page::{Page, Style};
use super::rings;
use super::slowest;
use super::{sentences, task_waits, tasks, words};

/// Parts of less than this share are summed up in one line.
const SMALL_PERMILLE: u64 = 5;
/// Names have at least that width, so that short tables look alike.
const LEAST_NAME: usize = 17;
/// Less of the time without a CPU needs no line that says who had it.
const NO_CPU_PERMILLE: u64 = 50;
/// Beside requests, responses under way are worth a line when the oldest is so old.
const UNDER_WAY_NS: u64 = 1_000_000_000;
/// So many of those who had it are shown.
const MAX_HOLDERS: usize = 4;

pub(super) fn render(page: &mut Page, requests: &Requests, rings: &[RingRow]) {
    let late = requests.open.as_ref().map_or(0, |open| open.late);
    if requests.count == 0 && late == 0 {
        if rings::short(page, rings) {
            return;
        }
        // The note on those that were read and not answered stands above.
        let besides = requests.datagrams.is_some() || requests.streams.is_some();
        let none = match (&requests.open, &requests.under_way, besides) {
            (Some(_), ..) => "none answered",
            (None, Some(_), _) => "none, but for responses under way",
            (None, None, true) => "none answered, but for what is below",
            (None, None, false) => "none seen",
        };
        page.paragraph(
            "",
            "  ",
            &[(Style::Strong, "requests: "), (Style::Plain, none)],
        );
        under_way(page, requests);
        datagrams(page, requests);
        streams(page, requests);
        if let Some(some) = &requests.jobs {
            jobs(page, some);
        }
        return;
    }
    let several = requests
        .multiplexed
        .as_ref()
        .filter(|several| several.prevail);
    let all = requests.count.saturating_add(late);
    let mut of = match several {
        Some(several) if several.exchanges < all => format!(
            "{}, {} of them exchanges of several",
            works(requests, all),
            count(several.exchanges)
        ),
        Some(_) => counted(all, "exchange"),
        None => works(requests, all),
    };
    if late > 0 {
        of.push_str(&format!(", {} of them still open", count(late)));
    }
    let total_ns = total_ns(&requests.time);
    let totals = by_calls::totals(requests, total_ns);
    if let Some(totals) = totals {
        by_calls::table(page, requests, totals, &of);
        if page.verbose() {
            tasks::sure(page, totals);
            by_threads(page, &requests.time);
        }
        latencies(page, requests);
        facts_besides(page, requests);
    } else {
        let called = sentences::time_is_called(requests);
        time(page, &requests.time, called, Some(&of));
        facts(page, requests);
    }
    if let Some(slowest) = requests.slowest.first() {
        slowest::render(page, slowest, totals.is_some());
    }
}

/// What is said of requests besides where their time went.
pub(super) fn facts(page: &mut Page, requests: &Requests) {
    latencies(page, requests);
    tasks::short(page, requests.tasks.as_ref());
    facts_besides(page, requests);
}

fn latencies(page: &mut Page, requests: &Requests) {
    let several = requests.multiplexed.as_ref();
    match several.filter(|several| several.prevail) {
        Some(several) => exchanges(page, requests, several),
        None => latency(page, requests),
    }
}

/// Who had the CPUs while requests were without one, where that is worth a line.
fn cpu_holders(page: &mut Page, requests: &Requests) {
    let time = &requests.time;
    let without = [time.runnable, time.ready_unserved.wakeup];
    let without_ns = without.into_iter().flatten().fold(0, u64::saturating_add);
    let total_ns = total_ns(time);
    if requests.cpu_holders.is_empty()
        || u128::from(without_ns) * 1_000 < u128::from(total_ns) * u128::from(NO_CPU_PERMILLE)
    {
        return;
    }
    // The table has the two apart.
    let without = percent(without_ns, total_ns);
    let also = match time.runnable.map(|ns| percent(ns, total_ns)) {
        Some(served) if served == without => "",
        _ => ", waking up included",
    };
    let text = format!(
        "{without} of the time{also}; who had it: {}",
        held_cpus(page, requests).join("; ")
    );
    page.paragraph(
        "",
        "  ",
        &[(Style::Strong, "without a CPU: "), (Style::Plain, &text)],
    );
}

/// `python3 (pid 4242) 80 %`, `own threads 15 %`: those who had the CPUs for long.
pub(super) fn held_cpus(page: &Page, requests: &Requests) -> Vec<String> {
    let holders = &requests.cpu_holders;
    let all_ns = holders
        .iter()
        .map(|row| row.ns)
        .fold(0, u64::saturating_add);
    let large = holders
        .iter()
        .filter(|row| u128::from(row.ns) * 1_000 >= u128::from(all_ns) * u128::from(SMALL_PERMILLE))
        .take(MAX_HOLDERS);
    large
        .map(|row| format!("{} {}", holder(page, row), percent(row.ns, all_ns)))
        .collect()
}

fn holder(page: &Page, row: &CpuHolderRow) -> String {
    let name = page.cut(row.name.as_deref().unwrap_or_default(), 40);
    let cgroup = row.cgroup.as_ref().map(|path| page.cut(path, 60));
    match (row.who, &row.pids[..], cgroup) {
        ("processes", [pid], None) => format!("{name} (pid {pid})"),
        ("processes", [pid], Some(cgroup)) => format!("{name} (pid {pid}, cgroup {cgroup})"),
        ("processes", pids, None) => format!("{} processes {name}", pids.len()),
        ("processes", pids, Some(cgroup)) => {
            format!("{} processes {name} (cgroup {cgroup})", pids.len())
        }
        ("own-threads", ..) => "own threads".to_owned(),
        ("kernel-threads", ..) => "threads of the kernel".to_owned(),
        ("quota", ..) => "the cgroup's limit".to_owned(),
        ("host", ..) => "the virtual machine's host".to_owned(),
        _ => "nobody".to_owned(),
    }
}

/// What is said of requests besides their time and latency.
fn facts_besides(page: &mut Page, requests: &Requests) {
    task_waits::of_all(page, requests.task_waits.as_ref());
    wire(page, requests.wire.as_ref());
    cpu_holders(page, requests);
    accept_queues(page, &requests.accept_queues);
    half_made(page, &requests.accept_queues);
    under_way(page, requests);
    datagrams(page, requests);
    streams(page, requests);
    if let Some(some) = &requests.jobs {
        jobs(page, some);
    }
    own(page, requests.own);
}

/// The accept queues that turned connections away, or would now.
fn accept_queues(page: &mut Page, queues: &[AcceptQueue]) {
    for queue in queues {
        let mut said = Vec::new();
        if queue.overflows > 0 {
            let dropped = counted(queue.overflows, "packet");
            said.push(format!("{dropped} of connections dropped"));
        }
        if queue.is_full() {
            let queued = counted(queue.queued, "connection");
            said.push(format!("full in the end with {queued}"));
        }
        if said.is_empty() {
            continue;
        }
        let of = queue
            .port
            .map_or_else(String::new, |port| format!(" of port {port}"));
        let text = format!("{} (limit {})", said.join("; "), count(queue.limit));
        page.paragraph(
            "",
            "  ",
            &[
                (Style::Strong, &format!("accept queue{of}: ")),
                (Style::Plain, &text),
            ],
        );
    }
}

/// Connections that were begun and not made: more than the kernel keeps.
fn half_made(page: &mut Page, queues: &[AcceptQueue]) {
    // Each has what is counted of all.
    let cookies = queues.iter().map(|queue| queue.syn_cookies).max();
    let refused = queues.iter().map(|queue| queue.syns_refused).max();
    let (cookies, refused) = (cookies.unwrap_or(0), refused.unwrap_or(0));
    if cookies == 0 && refused == 0 {
        return;
    }
    let text = format!(
        "{} answered with a cookie, {} dropped: more connections were begun than made, as in a \
         flood of SYNs, or when an accept queue is full",
        counted(cookies, "SYN"),
        count(refused),
    );
    page.paragraph(
        "",
        "  ",
        &[(Style::Strong, "half-made: "), (Style::Plain, &text)],
    );
}

/// The parts of a request's time under the names that a reader sees.
pub(super) fn parts(time: &Time) -> [(&'static str, Option<u64>); 13] {
    let times = [
        time.ready_unserved.stranded,
        time.ready_unserved.pool_busy,
        time.ready_unserved.wakeup,
        time.on_cpu,
        time.runnable,
        time.lock,
        time.thread,
        time.disk,
        time.network,
        time.timer,
        time.uring,
        time.page_fault,
        time.unknown,
    ];
    std::array::from_fn(|at| (words::PARTS[at].name, times[at]))
}

pub(super) fn total_ns(time: &Time) -> u64 {
    let known = parts(time).into_iter().filter_map(|(_, ns)| ns);
    known.fold(0, u64::saturating_add)
}

/// The parts of a time with a bar each, under a title that says of how many requests (if of
/// several).
pub(super) fn time(page: &mut Page, time: &Time, title: &str, of: Option<&str>) {
    let parts = parts(time);
    let total = total_ns(time);
    let sum = duration(total);
    let of = of.map_or_else(String::new, |of| format!(" ({of}, {sum} in all)"));
    page.paragraph("", "  ", &[(Style::Strong, title), (Style::Plain, &of)]);
    let mut large: Vec<(&str, u64)> = Vec::new();
    let mut small: Vec<&str> = Vec::new();
    let mut small_ns = 0_u64;
    for (name, ns) in parts
        .into_iter()
        .filter_map(|(name, ns)| Some((name, ns.filter(|ns| *ns > 0)?)))
    {
        if u128::from(ns) * 1_000 >= u128::from(total) * u128::from(SMALL_PERMILLE) {
            large.push((name, ns));
        } else {
            small_ns = small_ns.saturating_add(ns);
            small.push(name);
        }
    }
    large.sort_by_key(|(_, ns)| std::cmp::Reverse(*ns));
    let figures: Vec<String> = large
        .iter()
        .map(|(_, ns)| format!("{:>7}  {:>8}", percent(*ns, total), duration(*ns)))
        .collect();
    let widest = figures.iter().map(String::len).max().unwrap_or(0);
    // "  ", a blank, at least a column of the bar, a blank.
    let room = page.width().saturating_sub(widest + 5);
    let names = large.iter().map(|(name, _)| columns(name));
    let name_width = names.max().unwrap_or(0).max(LEAST_NAME).min(room);
    let bar_width = (room - name_width + 1).clamp(1, 40);
    let largest = large.first().map_or(1, |(_, ns)| *ns);
    for ((name, ns), figures) in large.into_iter().zip(figures) {
        let bar = bar(ns, largest, bar_width, page.unicode());
        let filler = " ".repeat(bar_width - columns(&bar));
        let style = if name == words::STRANDED {
            Style::Bad
        } else {
            Style::Bar
        };
        page.row(&[
            (
                Style::Plain,
                &format!("  {:<name_width$} ", page.cut(name, name_width)),
            ),
            (style, &bar),
            (Style::Plain, &format!("{filler} {figures}")),
        ]);
    }
    if !small.is_empty() && page.verbose() {
        let text = format!("{} together: {}", duration(small_ns), small.join("; "));
        page.paragraph("  ", "    ", &[(Style::Dim, &text)]);
    }
}

/// What the threads did that served requests, whoever they did it for: in a line.
fn by_threads(page: &mut Page, time: &Time) {
    let total_ns = total_ns(time);
    let worth = |ns: &u64| u128::from(*ns) * 100 >= u128::from(total_ns);
    let mut parts: Vec<(&str, u64)> = parts(time)
        .into_iter()
        .filter_map(|(name, ns)| Some((name, ns.filter(worth)?)))
        .collect();
    parts.sort_by_key(|(_, ns)| std::cmp::Reverse(*ns));
    let parts: Vec<String> = parts
        .into_iter()
        .map(|(name, ns)| format!("{name} {}", percent(ns, total_ns)))
        .collect();
    let text = format!("{}; the threads served others meanwhile", parts.join("; "));
    let strong = (Style::Strong, "by threads: ");
    page.paragraph("", "  ", &[strong, (Style::Plain, &text)]);
}

/// A bar of `ns` against `largest`, at least a sliver.
pub(super) fn bar(ns: u64, largest: u64, width: usize, unicode: bool) -> String {
    let steps = if unicode { 8 } else { 1 };
    let all = width as u128 * steps;
    let filled = (u128::from(ns) * all / u128::from(largest.max(1))).clamp(1, all);
    let (whole, eighths) = ((filled / steps) as usize, (filled % steps) as usize);
    if !unicode {
        return "#".repeat(whole);
    }
    let mut bar = "█".repeat(whole);
    bar.extend((eighths > 0).then(|| ['▏', '▎', '▍', '▌', '▋', '▊', '▉'][eighths - 1]));
    bar
}

/// A percentile: `at least 6.9 s` where requests among those above it are still open, and with
/// `(still open)` where the longest is.
pub(super) fn percentile(requests: &Requests, latency: &Latency, which: Percentile) -> String {
    let ns = match which {
        Percentile::P50 => latency.p50,
        Percentile::P99 => latency.p99,
        Percentile::Max => latency.max,
    };
    let oldest_ns = requests.open.as_ref().map_or(0, |open| open.oldest_late_ns);
    match (latency.at_least(which), which) {
        (false, _) => duration(ns),
        (true, Percentile::Max) if oldest_ns >= ns => {
            format!("at least {} (still open)", duration(ns))
        }
        (true, _) => format!("at least {}", duration(ns)),
    }
}

fn latency(page: &mut Page, requests: &Requests) {
    let Some(latency) = requests.latency_ns else {
        return;
    };
    let text = figures(requests, &latency);
    page.paragraph(
        "",
        "  ",
        &[(Style::Strong, "latency: "), (Style::Plain, &text)],
    );
}

/// Why responses went out late, and how much later, the most first.
pub(super) fn late(wire: &Wire) -> Vec<(&'static str, u64)> {
    let sending = &wire.sending;
    let mut parts = vec![
        ("Nagle's algorithm", sending.nagle_ns),
        ("the client had no room", sending.window_ns),
        ("lost and sent again", sending.lost_ns),
        ("the network", sending.network_ns),
    ];
    parts.retain(|(_, ns)| *ns > 0);
    parts.sort_by_key(|(_, ns)| std::cmp::Reverse(*ns));
    parts
}

/// What the clients waited for besides, before their connection was made and after their response
/// was written.
fn wire(page: &mut Page, wire: Option<&Wire>) {
    let Some(wire) = wire else {
        return;
    };
    if let Some(latency) = wire.latency_ns {
        let sending = &wire.sending;
        let parts: Vec<String> = late(wire)
            .into_iter()
            .map(|(what, ns)| format!("{what} {}", duration(ns)))
            .collect();
        let text = format!(
            "p50 {}, p99 {}, max {}; mean {} for the clients, {} in the server: {} went out late \
             after they were written ({})",
            duration(latency.p50),
            duration(latency.p99),
            duration(latency.max),
            duration(wire.mean_ns),
            duration(wire.server_mean_ns),
            counted(sending.count, "response"),
            parts.join("; "),
        );
        page.paragraph(
            "",
            "  ",
            &[(Style::Strong, "with the wire: "), (Style::Plain, &text)],
        );
    }
    if let Some(connecting) = wire.connecting {
        let text = format!(
            "{} of clients dropped: they waited {} together, which is in no latency here",
            counted(connecting.dropped, "packet"),
            duration_range(connecting.at_least_ns, connecting.at_most_ns),
        );
        page.paragraph(
            "",
            "  ",
            &[(Style::Strong, "connecting: "), (Style::Plain, &text)],
        );
    }
}

/// Where requests cannot be told apart.
fn exchanges(page: &mut Page, requests: &Requests, several: &Multiplexed) {
    let mut text = "not known of requests".to_owned();
    if let Some(latency) = several.exchange_ns {
        let figures = figures(requests, &latency);
        text.push_str(&format!(
            "; an exchange, from a read to the last write before the next one, took {figures}"
        ));
    }
    page.paragraph(
        "",
        "  ",
        &[(Style::Strong, "latency: "), (Style::Plain, &text)],
    );
}

fn figures(requests: &Requests, latency: &Latency) -> String {
    let [p50, p99, max] = [Percentile::P50, Percentile::P99, Percentile::Max]
        .map(|which| percentile(requests, latency, which));
    let slow = match requests.slow {
        0 => "none".to_owned(),
        slow => count(slow),
    };
    let threshold = duration(requests.slow_threshold_ns);
    format!("p50 {p50}, p99 {p99}, max {max}; {slow} took {threshold} or longer")
}

/// Responses that were under way when the recording began or ended, where that is worth a line.
fn under_way(page: &mut Page, requests: &Requests) {
    let Some(responses) = &requests.under_way else {
        return;
    };
    let alone = requests.count == 0;
    if !alone && responses.oldest_ns < UNDER_WAY_NS {
        return;
    }
    let count = count(responses.count);
    let text = format!("{count}: {}; {}", whose(responses), limits(responses));
    page.paragraph(
        "",
        "  ",
        &[
            (Style::Strong, "responses under way: "),
            (Style::Plain, &text),
        ],
    );
}

/// `3 asked for before the recording, 2 not over at its end, the oldest for 14.2 s`.
fn whose(responses: &OngoingResponses) -> String {
    let mut said = Vec::new();
    if responses.before > 0 {
        let before = count(responses.before);
        said.push(format!("{before} asked for before the recording"));
    }
    if responses.to_the_end > 0 {
        let to_the_end = count(responses.to_the_end);
        said.push(format!("{to_the_end} went on until the recording's end"));
    }
    let oldest = duration(responses.oldest_ns);
    said.push(format!("the oldest for {oldest}"));
    said.join(", ")
}

/// How much of them the clients got, how fast, and who was the limit.
pub(super) fn limits(responses: &OngoingResponses) -> String {
    let a_second = responses.bytes as f64 * 1e9 / responses.ns.max(1) as f64;
    let mut limits = vec![
        ("the client, which reads slowly", responses.client_ns),
        ("the server's send buffer", responses.buffer_ns),
        ("the network", responses.network_ns),
        ("the server, which writes slowly", responses.server_ns),
    ];
    limits.retain(|(_, ns)| *ns > 0);
    limits.sort_by_key(|(_, ns)| std::cmp::Reverse(*ns));
    let mut limits: Vec<String> = limits
        .into_iter()
        .map(|(who, ns)| format!("{who} {}", percent(ns, responses.ns)))
        .collect();
    if let Some(percent) = responses.writers_on_cpu_percent {
        limits.push(format!("its writing threads were on a CPU for {percent} %"));
    }
    format!(
        "{} went out, {} a second each; the limit was {}",
        bytes(responses.bytes as f64),
        bytes(a_second),
        limits.join("; ")
    )
}

/// Questions in datagrams.
fn datagrams(page: &mut Page, requests: &Requests) {
    let Some(datagrams) = requests.datagrams else {
        return;
    };
    let mut said = vec![match datagrams.answered {
        all if all >= requests.count => format!("{} answered", counted(all, "question")),
        some => format!(
            "{} of {}",
            count(some),
            counted(requests.count, "answered request")
        ),
    }];
    for (more, what) in [
        (datagrams.unanswered, "read and not answered"),
        (datagrams.retried, "asked again before their answer"),
        (datagrams.dropped, "dropped: their queue had no room"),
        (datagrams.untimed, "for which arrival is not known"),
        (datagrams.by_thread, "paired with their answer by thread"),
        (datagrams.quic, "of QUIC, in which requests are not seen"),
    ] {
        if more > 0 {
            said.push(format!("{} {what}", count(more)));
        }
    }
    page.paragraph(
        "",
        "  ",
        &[
            (Style::Strong, "datagrams: "),
            (Style::Plain, &said.join("; ")),
        ],
    );
}

/// Streams of HTTP/2.
fn streams(page: &mut Page, requests: &Requests) {
    let Some(streams) = requests.streams else {
        return;
    };
    let Http2Streams {
        connections,
        went_on,
        ..
    } = streams;
    let answered = match streams.answered {
        all if all >= requests.count => format!("{} answered", counted(all, "stream")),
        some => format!(
            "{} of {}",
            count(some),
            counted(requests.count, "answered request")
        ),
    };
    let mut said = vec![format!(
        "{answered} on {}",
        counted(connections, "connection")
    )];
    if went_on > 0 {
        said.push(format!(
            "{} went on after their first message, with which their latency ends, for {} on \
             average",
            count(went_on),
            duration(streams.lasted_ns.unwrap_or(0)),
        ));
    }
    for (more, what) in [
        (streams.reset, "given up by their client before an answer"),
        (streams.open, "open at the end"),
        (streams.untimed, "for which arrival is not known"),
        (streams.unfollowed, "of which the end is not known"),
        (
            streams.connections_lost,
            "connections of which frames could not be read",
        ),
        (
            streams.connections_not_followed,
            "connections not followed, as there were too many",
        ),
    ] {
        if more > 0 {
            said.push(format!("{} {what}", count(more)));
        }
    }
    page.paragraph(
        "",
        "  ",
        &[
            (Style::Strong, "HTTP/2: "),
            (Style::Plain, &said.join("; ")),
        ],
    );
}

/// `40 requests`; `40 jobs` where these are what there is.
pub(super) fn works(requests: &Requests, many: u64) -> String {
    let are_jobs = requests.jobs.as_ref().is_some_and(|jobs| jobs.counted);
    counted(many, if are_jobs { "job" } else { "request" })
}

/// Messages from brokers.
fn jobs(page: &mut Page, jobs: &Jobs) {
    let brokers: Vec<String> = jobs.brokers.iter().map(|name| page.cut(name, 60)).collect();
    let from = match &brokers[..] {
        [] => "a broker".to_owned(),
        some => some.join("; "),
    };
    let mut text = match (jobs.counted, jobs.count) {
        (true, _) => format!(
            "each is a message from {from}, or several at once, until its worker acknowledged it \
             or asked for more; waits there are in no figure"
        ),
        (false, 0) => format!("none were seen of those that {from} was asked for"),
        (false, more) => format!(
            "{} more, from {from}, took {} in all, and are in no other figure",
            count(more),
            duration(jobs.total_ns)
        ),
    };
    if jobs.fetches > 0 {
        text.push_str(&format!(
            "; asked {} times, none for {}",
            count(jobs.fetches),
            duration(jobs.waited_ns)
        ));
    }
    page.paragraph(
        "",
        "  ",
        &[(Style::Strong, "jobs: "), (Style::Plain, &text)],
    );
}

/// Requests of the program to itself.
fn own(page: &mut Page, own: OwnRequests) {
    let text = match (own.count, own.counted) {
        (0, _) => return,
        (_, true) => "all of them are the program's own, to itself".to_owned(),
        (more, false) => format!(
            "{} more {} the program's own, to itself; what they take is a part of the others, and \
             is not counted again",
            count(more),
            if more == 1 { "is" } else { "are" },
        ),
    };
    page.paragraph(
        "",
        "  ",
        &[(Style::Strong, "own requests: "), (Style::Plain, &text)],
    );
}

/// `3.999 s on port 8080, 510 ms into the recording`.
/// Hostile in the name of a broker.
pub(super) fn when(slow: &Slow) -> String {
    let place = match (slow.port, &slow.broker) {
        (Some(port), _) => format!("on port {port}"),
        (None, Some(broker)) => format!("from {broker}"),
        (None, None) => "on a unix socket".to_owned(),
    };
    let open = if slow.open { ", still open" } else { "" };
    format!(
        "{} {place}, {}{open}",
        duration(slow.latency_ns),
        began(slow.at_ns)
    )
}

/// When a request began: `510 ms into the recording`. Those that were there already have no time in
/// it.
pub(super) fn began(at_ns: u64) -> String {
    match at_ns {
        0 => "from before the recording".to_owned(),
        _ => format!("{} into the recording", duration(at_ns)),
    }
}

#[cfg(test)]
mod tests {
    use whywait_words::Charset;

    use super::super::TextOptions;
    use super::*;

    #[test]
    fn a_request_that_was_there_before_has_no_time_in_the_recording() {
        assert_eq!(began(510_000_000), "510 ms into the recording");
        assert_eq!(began(0), "from before the recording");
    }

    #[test]
    fn bars() {
        assert_eq!(bar(100, 100, 4, true), "████");
        assert_eq!(bar(50, 100, 4, true), "██");
        assert_eq!(bar(0, 100, 4, true), "▏");
        assert_eq!(bar(13, 100, 4, true), "▌");
        assert_eq!(bar(50, 100, 4, false), "##");
        assert_eq!(bar(u64::MAX, u64::MAX, 4, false), "####");
    }

    #[test]
    fn what_is_a_job_is_said() {
        let said = |some: Jobs| {
            let mut page = Page::new(TextOptions {
                width: 400,
                colour: false,
                charset: Charset::Unicode,
                ..TextOptions::default()
            });
            jobs(&mut page, &some);
            page.into_text()
        };
        let some = Jobs {
            count: 40,
            counted: true,
            total_ns: 1_600_000_000,
            brokers: vec!["192.0.2.7:6379 (redis)".to_owned()],
            fetches: 41,
            waited_ns: 2_000_000_000,
        };
        assert_eq!(
            said(some.clone()),
            "jobs: each is a message from 192.0.2.7:6379 (redis), or several at once, until its \
             worker acknowledged it or asked for more; waits there are in no figure; asked 41 \
             times, none for 2 s\n"
        );
        assert_eq!(
            said(Jobs {
                counted: false,
                fetches: 0,
                ..some
            }),
            "jobs: 40 more, from 192.0.2.7:6379 (redis), took 1.6 s in all, and are in no other \
             figure\n"
        );
    }

    #[test]
    fn a_flood_of_syns_is_called_so() {
        let half_made_of = |syn_cookies| {
            let mut page = Page::new(TextOptions {
                width: 200,
                colour: false,
                charset: Charset::Unicode,
                ..TextOptions::default()
            });
            let queue = AcceptQueue {
                syn_cookies,
                ..AcceptQueue::default()
            };
            // Each listener has the count of all.
            half_made(&mut page, &[queue.clone(), queue]);
            page.into_text()
        };
        assert_eq!(
            half_made_of(17_871),
            "half-made: 17,871 SYNs answered with a cookie, 0 dropped: more connections were begun \
             than made, as in a flood of SYNs, or when an accept queue is full\n"
        );
        assert_eq!(half_made_of(0), "");
    }
}
