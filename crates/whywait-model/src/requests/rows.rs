//! The slow requests as a list.

use schemars::JsonSchema;
use serde::Serialize;

use crate::calls::CallsWithin;
use crate::calls::links::TaskTime;
use crate::model::Model;

/// A slow request in the list of all of them. The field names are those of the JSON report
/// (schema 1).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, JsonSchema)]
pub struct RequestRow {
    /// Names it: `SOCKET:SEQ`.
    pub id: String,
    /// What it is called; absent: that is not known. Hostile.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Local port, `None` for unix sockets.
    pub port: Option<u16>,
    /// From the start of the recording to its first byte.
    pub at_ns: u64,
    /// From its first byte in the kernel to the last byte of its response; while it is open, to
    /// the recording's end.
    pub latency_ns: u64,
    /// Whether it is still open.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub open: bool,
    /// Bytes read.
    pub bytes_in: u64,
    /// Bytes written.
    pub bytes_out: u64,
    /// How its time splits by its calls; absent: its process made none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tasks: Option<TaskTime>,
    /// The calls that were made meanwhile; absent: none are known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub calls: Option<CallsWithin>,
}

impl Model {
    /// The requests that are looked at one by one and count, the slowest first.
    pub fn request_rows(&self) -> Vec<RequestRow> {
        let mut rows: Vec<RequestRow> = self
            .requests()
            .filter(|request| request.counts())
            .map(|request| RequestRow {
                id: request.id(),
                name: request.name().map(str::to_owned),
                port: (request.local_port != 0).then_some(request.local_port),
                at_ns: request.ready_ns.saturating_sub(self.meta.started_ns),
                latency_ns: request.age_ns(),
                open: request.is_open(),
                bytes_in: request.bytes_in,
                bytes_out: request.bytes_out,
                tasks: request.task_time(),
                calls: request.calls_within(),
            })
            .collect();
        rows.sort_by_key(|row| (std::cmp::Reverse(row.latency_ns), row.at_ns));
        rows
    }
}
