//! The JSON view, schema 1.

use schemars::generate::SchemaSettings;
use serde::Serialize;
use whywait_model::calls::PeerRow;
use whywait_model::cpu::CpuSummary;
use whywait_model::requests::{RequestRow, RouteRow, Slow};
use whywait_model::rings::RingRow;
use whywait_model::waits::WaitRow;

use crate::Report;

/// The report as indented JSON with a newline at its end.
///
/// Keys have a fixed order, so that two reports can be compared line by line. What is not known is
/// `null`. Strings from outside are as they were seen: JSON's own escaping makes them safe to
/// parse, not safe to print.
///
/// # Errors
/// Fails only if a value cannot be written as JSON, which no field of a report allows.
pub fn to_json(report: &Report) -> serde_json::Result<String> {
    let mut report = report.clone();
    // Shares are ratios of large counts: more digits say nothing, and differ between two runs of
    // the same analysis when the sums are made in another order.
    for share in [
        &mut report.requests.closure,
        &mut report.coverage.frames_symbolised,
    ]
    .into_iter()
    .flatten()
    {
        *share = rounded(*share);
    }
    report.calls = report.calls.iter().map(rounded_peer).collect();
    for row in &mut report.statements {
        row.per_request = row.per_request.map(rounded);
    }
    report.uring = report.uring.iter().map(rounded_ring).collect();
    pretty(&report)
}

/// The schema of what [`to_json`] writes, as JSON Schema (draft 2020-12) with a newline at its end.
///
/// # Errors
/// Fails only if a value cannot be written as JSON, which no schema allows.
pub fn json_schema() -> serde_json::Result<String> {
    let settings = SchemaSettings::draft2020_12().for_serialize();
    pretty(&settings.into_generator().into_root_schema_for::<Report>())
}

/// The table of waits, as [`to_json`] writes a report: all rows.
///
/// # Errors
/// Fails only if a value cannot be written as JSON, which no field of a row allows.
pub fn waits_to_json(rows: &[WaitRow]) -> serde_json::Result<String> {
    let mut waits = rows.to_vec();
    for row in &mut waits {
        row.critical_share = row.critical_share.map(rounded);
    }
    pretty(&Waits {
        schema: Report::SCHEMA,
        waits,
    })
}

/// The table of io_uring rings, as [`to_json`] writes a report: all rows.
///
/// # Errors
/// Fails only if a value cannot be written as JSON, which no field of a row allows.
pub fn rings_to_json(rows: &[RingRow]) -> serde_json::Result<String> {
    pretty(&Rings {
        schema: Report::SCHEMA,
        uring: rows.iter().map(rounded_ring).collect(),
    })
}

/// The table of calls, as [`to_json`] writes a report: all peers.
///
/// # Errors
/// Fails only if a value cannot be written as JSON, which no field of a row allows.
pub fn calls_to_json(rows: &[PeerRow]) -> serde_json::Result<String> {
    pretty(&Calls {
        schema: Report::SCHEMA,
        calls: rows.iter().map(rounded_peer).collect(),
    })
}

/// What CPU time was for, as [`to_json`] writes a report; `null` when the recording does not say.
///
/// # Errors
/// Fails only if a value cannot be written as JSON, which no field allows.
pub fn cpu_to_json(cpu: Option<&CpuSummary>) -> serde_json::Result<String> {
    pretty(&Cpu {
        schema: Report::SCHEMA,
        cpu,
    })
}

/// The list of slow requests, as [`to_json`] writes a report: all of them.
///
/// # Errors
/// Fails only if a value cannot be written as JSON, which no field of a row allows.
pub fn request_list_to_json(rows: &[RequestRow]) -> serde_json::Result<String> {
    pretty(&Requests {
        schema: Report::SCHEMA,
        requests: rows,
    })
}

/// The requests of one name, as [`to_json`] writes a report.
///
/// # Errors
/// Fails only if a value cannot be written as JSON, which no field of a row allows.
pub fn route_to_json(row: &RouteRow) -> serde_json::Result<String> {
    pretty(&Route {
        schema: Report::SCHEMA,
        route: row,
    })
}

/// One slow request with its critical path, as [`to_json`] writes a report.
///
/// # Errors
/// Fails only if a value cannot be written as JSON, which no field of a request allows.
pub fn request_to_json(request: &Slow) -> serde_json::Result<String> {
    pretty(&Request {
        schema: Report::SCHEMA,
        request,
    })
}

#[derive(Serialize)]
struct Waits {
    schema: u32,
    waits: Vec<WaitRow>,
}

#[derive(Serialize)]
struct Cpu<'a> {
    schema: u32,
    cpu: Option<&'a CpuSummary>,
}

#[derive(Serialize)]
struct Request<'a> {
    schema: u32,
    request: &'a Slow,
}

#[derive(Serialize)]
struct Route<'a> {
    schema: u32,
    route: &'a RouteRow,
}

#[derive(Serialize)]
struct Requests<'a> {
    schema: u32,
    requests: &'a [RequestRow],
}

#[derive(Serialize)]
struct Rings {
    schema: u32,
    uring: Vec<RingRow>,
}

#[derive(Serialize)]
struct Calls {
    schema: u32,
    calls: Vec<PeerRow>,
}

fn rounded_peer(row: &PeerRow) -> PeerRow {
    PeerRow {
        rate: rounded(row.rate),
        in_flight: rounded(row.in_flight),
        ..row.clone()
    }
}

fn rounded_ring(row: &RingRow) -> RingRow {
    RingRow {
        rate: rounded(row.rate),
        slots: rounded(row.slots),
        at_max: rounded(row.at_max),
        at_depth: rounded(row.at_depth),
        allowed_rate: row.allowed_rate.map(|rates| rates.map(rounded)),
        ..row.clone()
    }
}

pub(crate) fn rounded(share: f64) -> f64 {
    (share * 1e6).round() / 1e6
}

pub(crate) fn pretty(value: &impl Serialize) -> serde_json::Result<String> {
    let mut text = serde_json::to_string_pretty(value)?;
    text.push('\n');
    Ok(text)
}
