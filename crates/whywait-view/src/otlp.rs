//! Slow requests as traces: OTLP/JSON, as a collector takes it at `/v1/traces`.
//!
//! Names of fields are those of `opentelemetry/proto/trace/v1/trace.proto`, in JSON's spelling;
//! numbers of 64 bits are texts there, and identifiers hexadecimal. Names of attributes are those
//! of OpenTelemetry's semantic conventions; what these have none for begins with `whywait.`.

use std::net::SocketAddr;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use whywait_model::Model;
use whywait_model::calls::CallWithin;
use whywait_model::path::Step;
use whywait_model::requests::Slow;
use whywait_report::text::{sentences, words};
use whywait_words::{Charset, escape, program_name};

/// The conventions that attributes follow.
const SCHEMA_URL: &str = "https://opentelemetry.io/schemas/1.37.0";
/// Requests that become traces, the slowest.
const MAX_REQUESTS: usize = 1_000;
/// Spans of a request's path: the longest steps.
const MAX_STEPS: usize = 200;
/// Longer names are cut in their middle.
const MAX_NAME: usize = 400;

/// `SPAN_KIND_INTERNAL`, `SPAN_KIND_SERVER`, `SPAN_KIND_CLIENT`.
const INTERNAL: u32 = 1;
const SERVER: u32 = 2;
const CLIENT: u32 = 3;

/// The slowest requests as spans; their children are the steps of their critical paths and the
/// calls that were made meanwhile.
///
/// # Errors
/// Fails only if a value cannot be written as JSON, which no field allows.
pub fn otlp(model: &Model) -> serde_json::Result<String> {
    let mut requests: Vec<_> = model
        .requests()
        .filter_map(|request| Some((request.took_ns()?, request)))
        .collect();
    requests.sort_by_key(|(ns, request)| (std::cmp::Reverse(*ns), request.ready_ns));
    let spans: Vec<Value> = requests
        .into_iter()
        .take(MAX_REQUESTS)
        .flat_map(|(_, request)| RequestTrace::new(model, &request.slow()).spans())
        .collect();
    let meta = &model.meta;
    let service = program_name(&meta.command);
    let resource = [
        attribute("service.name", text(service)),
        attribute("host.name", text(&meta.host.hostname)),
        attribute("host.arch", text(architecture(&meta.host.arch))),
        attribute("os.type", text("linux")),
        attribute("process.pid", number(meta.pid.unwrap_or(0).into())),
    ];
    let document = json!({
        "resourceSpans": [{
            "resource": { "attributes": resource },
            "schemaUrl": SCHEMA_URL,
            "scopeSpans": [{
                "schemaUrl": SCHEMA_URL,
                "scope": { "name": "whywait", "version": env!("CARGO_PKG_VERSION") },
                "spans": spans,
            }],
        }],
    });
    let mut text = serde_json::to_string_pretty(&document)?;
    text.push('\n');
    Ok(text)
}

/// A request, on its way to spans.
struct RequestTrace<'a> {
    slow: &'a Slow,
    /// The same from one run to the next, and apart for each recording and request.
    id: String,
    started_unix_ns: u64,
    children: u64,
}

impl<'a> RequestTrace<'a> {
    fn new(model: &Model, slow: &'a Slow) -> Self {
        let meta = &model.meta;
        let key = format!(
            "{}\0{}\0{}\0{}",
            meta.host.hostname,
            meta.started_wall_unix_ns,
            meta.pid.unwrap_or(0),
            slow.id
        );
        Self {
            slow,
            id: hex(&Sha256::digest(key.as_bytes())[..16]),
            started_unix_ns: meta.started_wall_unix_ns.saturating_add(slow.at_ns),
            children: 0,
        }
    }

    /// The identifier of its nth span; 0: the request's own.
    fn span_id(&self, number: u64) -> String {
        let key = format!("{}\0{number}", self.id);
        hex(&Sha256::digest(key.as_bytes())[..8])
    }

    fn spans(mut self) -> Vec<Value> {
        let slow = self.slow;
        let place = slow
            .port
            .map_or_else(|| "unix socket".to_owned(), |port| format!("port {port}"));
        let mut attributes = vec![attribute("whywait.request", text(&slow.id))];
        if let Some(port) = slow.port {
            attributes.push(attribute("server.port", number(port.into())));
        }
        let times = sentences::parts(&slow.time).into_iter();
        for (word, (_, ns)) in words::PARTS.iter().zip(times) {
            if let Some(ns) = ns.filter(|ns| *ns > 0) {
                let part = word.key.replace('-', "_");
                attributes.push(attribute(&format!("whywait.time.{part}"), number(ns)));
            }
        }
        if slow.open {
            attributes.push(attribute("whywait.open", json!({ "boolValue": true })));
        }
        let named = slow.name.clone();
        let name = named.unwrap_or_else(|| format!("request on {place}"));
        let mut spans = vec![self.span(0, SERVER, &name, 0, slow.latency_ns, attributes)];
        let mut longest: Vec<usize> = (0..slow.path.len()).collect();
        longest.sort_by_key(|index| std::cmp::Reverse(slow.path[*index].ns));
        longest.truncate(MAX_STEPS);
        longest.sort_unstable();
        let mut at_ns = 0u64;
        for (index, step) in slow.path.iter().enumerate() {
            if longest.binary_search(&index).is_ok() {
                spans.push(self.step(step, at_ns));
            }
            at_ns = at_ns.saturating_add(step.ns);
        }
        // Others' calls are no part of this trace.
        for call in own_calls(slow) {
            let mut attributes = peer(&call.peer);
            attributes.push(attribute("whywait.with_peer_ns", number(call.with_peer_ns)));
            let named = call.name.clone();
            let name = named.unwrap_or_else(|| format!("call to {}", call.peer));
            self.children += 1;
            spans.push(self.span(
                self.children,
                CLIENT,
                &name,
                call.at_ns,
                call.ns,
                attributes,
            ));
        }
        spans
    }

    fn step(&mut self, step: &Step, at_ns: u64) -> Value {
        let mut attributes = vec![
            attribute("thread.id", number(step.tid.into())),
            attribute("thread.name", text(&step.thread)),
        ];
        if let Some(function) = &step.function {
            attributes.push(attribute("code.function.name", text(function)));
        }
        if !step.stack.is_empty() {
            let frames = step.stack.iter();
            let frames = frames.map(|frame| escape(frame, Charset::Unicode, MAX_NAME));
            let stack = frames.collect::<Vec<_>>().join("\n");
            let stack: String = stack.chars().take(MAX_NAME * 20).collect();
            attributes.push(attribute(
                "code.stacktrace",
                json!({ "stringValue": stack }),
            ));
        }
        if let Some(tid) = step.woken_by {
            attributes.push(attribute("whywait.woken_by", number(tid.into())));
        }
        let state = words::name_of(&step.state);
        let name = match &step.kind {
            Some(kind) => format!("{state}: {kind}"),
            None => state.to_owned(),
        };
        self.children += 1;
        self.span(self.children, INTERNAL, &name, at_ns, step.ns, attributes)
    }

    fn span(
        &self,
        number: u64,
        kind: u32,
        name: &str,
        at_ns: u64,
        ns: u64,
        attributes: Vec<Value>,
    ) -> Value {
        let from_ns = self.started_unix_ns.saturating_add(at_ns);
        let parent = match number {
            0 => String::new(),
            _ => self.span_id(0),
        };
        json!({
            "traceId": self.id,
            "spanId": self.span_id(number),
            "parentSpanId": parent,
            "name": escape(name, Charset::Unicode, MAX_NAME),
            "kind": kind,
            "startTimeUnixNano": from_ns.to_string(),
            "endTimeUnixNano": from_ns.saturating_add(ns).to_string(),
            "attributes": attributes,
        })
    }
}

/// The calls that are certainly a request's own.
pub(crate) fn own_calls(slow: &Slow) -> impl Iterator<Item = &CallWithin> {
    let calls = slow.calls.iter();
    calls.flat_map(|calls| {
        let longest = calls.longest.iter();
        longest.filter(|call| calls.own || call.link.is_some())
    })
}

/// Who was called: `127.0.0.1:5432 (postgres)`, `/run/db.sock`.
fn peer(peer: &str) -> Vec<Value> {
    let (address, service) = match peer.split_once(" (") {
        Some((address, service)) => (address, service.strip_suffix(')')),
        None => (peer, None),
    };
    let mut attributes = match address.parse::<SocketAddr>() {
        Ok(socket) => vec![
            attribute("network.transport", text("tcp")),
            attribute("network.peer.address", text(&socket.ip().to_string())),
            attribute("network.peer.port", number(socket.port().into())),
        ],
        Err(_) if address.starts_with(['/', '@']) => vec![
            attribute("network.transport", text("unix")),
            attribute("network.peer.address", text(address)),
        ],
        // Several, of which there is no address.
        Err(_) => Vec::new(),
    };
    attributes.extend(service.map(|service| attribute("peer.service", text(service))));
    attributes
}

/// A processor's architecture as the conventions name it.
fn architecture(machine: &str) -> &str {
    match machine {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

fn attribute(key: &str, value: Value) -> Value {
    json!({ "key": key, "value": value })
}

fn text(value: &str) -> Value {
    json!({ "stringValue": escape(value, Charset::Unicode, MAX_NAME) })
}

fn number(value: u64) -> Value {
    // It is signed there.
    json!({ "intValue": i64::try_from(value).unwrap_or(i64::MAX).to_string() })
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
