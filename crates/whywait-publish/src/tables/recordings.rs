//! The table `recordings`.

use whywait_events::recording::{ReadError, SCHEMA};
use whywait_findings::Severity;

use crate::Source;
use crate::table::{WallClock, published};
use crate::text::joined;

published! {
    /// A recording: what was watched and how, what its report says first, and what was lost. Its
    /// file comes last: a recording that is here has all its rows in the other tables.
    "recordings": struct RecordingRow {
        /// When it began.
        ts: WallClock,
        /// When it ended; NULL: it was cut off, or was going on.
        ended: Option<WallClock>,
        /// How long it was.
        duration_ns: u64,
        /// The wall clock less the monotonic one as it began: what all its moments were converted
        /// with. A clock that was set meanwhile does not show.
        clock_offset_ns: i64,
        /// The program, without its arguments.
        program: String,
        /// The program's build-id; NULL: not known.
        build_id: Option<String>,
        /// Its process id.
        pid: u64,
        /// Kernel release.
        kernel: String,
        /// Architecture.
        arch: String,
        /// Online CPUs.
        cpus: u64,
        /// Memory of the machine, bytes.
        memory_bytes: u64,
        /// The whywait that recorded.
        whywait: String,
        /// The whywait that published.
        published_by: String,
        /// The recording's schema.
        schema_version: u64,
        /// How much was recorded: `waits` or `full`.
        tier: String,
        /// Requests from this on were recorded one by one.
        threshold_ns: u64,
        /// The sampling clock's rate on each CPU.
        sample_hz: u64,
        /// It ended in order, and nothing of it is damaged.
        complete: bool,
        /// Threads that were seen.
        threads: u64,
        /// Requests that were answered.
        requests: u64,
        /// Requests that were late and open in the end. They count in the tables of requests.
        late_requests: u64,
        /// Requests that were open in the end, the late ones among them.
        open_requests: u64,
        /// Of those that count: that took the threshold or longer.
        slow_requests: u64,
        /// Of these: that have no row of their own in `requests`, because there were too many.
        slow_without_row: u64,
        /// Whether requests can be told apart. Where they cannot (HTTP/2, pipelines), what counts
        /// as a request need not be one.
        told_apart: bool,
        /// Median latency; NULL: no requests, or they cannot be told apart.
        p50_ns: Option<u64>,
        /// … of the slowest in a hundred.
        p99_ns: Option<u64>,
        /// … of the slowest.
        max_ns: Option<u64>,
        /// The time of all requests.
        request_ns: u64,
        /// CPU time of all threads; NULL: not recorded.
        cpu_ns: Option<u64>,
        /// What may be said of it as a whole: `findings`, `nothing-wrong`, `no-requests`, …
        verdict: String,
        /// Rows that it has in `findings`.
        findings: u64,
        /// The worst severity among them: `note`, `warning`, `error`; NULL: there are none.
        severity: Option<&'static str>,
        /// Kernel events that were handled.
        events: u64,
        /// Things lost, for any reason.
        lost: u64,
        /// The same by reason: a JSON object.
        losses: String,
        /// Remarks that are not findings, what it lacks, and what could not be read.
        notes: String,
    }
}

pub(super) fn rows(source: &Source<'_>) -> Result<Vec<RecordingRow>, ReadError> {
    let (meta, report) = (&source.model.meta, source.report);
    let (requests, coverage) = (&report.requests, &report.coverage);
    let open = requests.open.as_ref();
    let multiplexed = requests.multiplexed.as_ref();
    let worst = report.findings.iter().map(|finding| finding.severity).max();
    let verdict = serde_json::to_value(report.verdict).unwrap_or_default();
    let verdict = verdict.get("kind").and_then(|kind| kind.as_str());
    let incomplete = coverage
        .incomplete
        .as_ref()
        .map(|incomplete| &incomplete.what);
    let notes = report
        .notes
        .iter()
        .chain(incomplete)
        .chain(&source.model.damaged);
    Ok(vec![RecordingRow {
        ts: source.identity.started(),
        ended: source.identity.ended(),
        duration_ns: report.target.duration_ns,
        clock_offset_ns: source.identity.clock_offset_ns(),
        program: source.identity.program().to_owned(),
        build_id: source.identity.build_id().map(str::to_owned),
        pid: report.target.pid.into(),
        kernel: meta.host.kernel.clone(),
        arch: meta.host.arch.clone(),
        cpus: meta.host.cpus.into(),
        memory_bytes: meta.host.memory_bytes,
        whywait: meta.whywait.clone(),
        published_by: env!("CARGO_PKG_VERSION").to_owned(),
        schema_version: if meta.schema == 0 {
            SCHEMA
        } else {
            meta.schema
        }
        .into(),
        tier: coverage.tier.clone(),
        threshold_ns: meta.options.threshold_ns,
        sample_hz: meta.options.sample_hz.into(),
        complete: coverage.complete,
        threads: report.target.threads.into(),
        requests: requests.count,
        late_requests: open.map_or(0, |open| open.late),
        open_requests: open.map_or(0, |open| open.count),
        slow_requests: requests.slow,
        slow_without_row: source.model.summed_up().slow,
        told_apart: multiplexed.is_none_or(|several| !several.prevail),
        p50_ns: requests.latency_ns.map(|latency| latency.p50),
        p99_ns: requests.latency_ns.map(|latency| latency.p99),
        max_ns: requests.latency_ns.map(|latency| latency.max),
        request_ns: source.model.time_of_requests_ns(),
        cpu_ns: report.cpu.as_ref().map(|cpu| cpu.total_ns),
        verdict: verdict.unwrap_or("unknown").to_owned(),
        findings: report.findings.len() as u64,
        severity: worst.map(Severity::name),
        events: coverage.events,
        lost: coverage.lost,
        losses: serde_json::to_string(&coverage.lost_by_reason).unwrap_or_default(),
        notes: joined(notes.map(String::as_str)),
    }])
}
