//! The table `requests`.

use whywait_events::recording::ReadError;
use whywait_model::{PathStep, RequestRef};

use crate::Source;
use crate::table::{WallClock, published};
use crate::text::name;

published! {
    /// A slow request, or many that were only counted.
    ///
    /// Each row stands for `weight` requests. A request that was recorded one by one has a row of
    /// its own, of weight 1. The others have one for each bucket of the kernel's histogram, of
    /// 12 % width, without `request`: `latency_ns` is the bucket's middle, and `at` when the
    /// recording began. So `sum(weight)` is the report's number of requests, the late ones
    /// included.
    "requests": struct RequestRow {
        /// When the kernel had the first byte.
        ts: WallClock,
        /// Names it within the recording, for `whywait report --request`; NULL: many.
        request: Option<String>,
        /// What it is called, as `GET /orders/{id}`; NULL: no names were asked for, it is not
        /// known, or many.
        name: Option<String>,
        /// How many requests the row stands for.
        weight: u64,
        /// From the first byte in the kernel to the last byte of the response; of a late one its
        /// age.
        latency_ns: u64,
        /// It was open in the end, and had waited for longer than requests take: its latency is at
        /// least that.
        late: bool,
        /// Local port; NULL: a unix socket, or many requests.
        port: Option<u64>,
        /// The thread that read it, each number in its name as `N`; NULL: none, or many.
        thread: Option<String>,
        /// Until the target read it; NULL: many.
        unserved_ns: Option<u64>,
        /// Bytes read; NULL: many.
        bytes_in: Option<u64>,
        /// Bytes written; NULL: many.
        bytes_out: Option<u64>,
        /// Where it was for longest: the state of that step of its critical path, as in
        /// `whywait report --request`; NULL: many.
        longest: Option<String>,
        /// … and how long; NULL: many.
        longest_ns: Option<u64>,
        /// … and the function of that step; NULL: not known, or many.
        function: Option<String>,
        /// … and what was waited for: a peer, or a kind of wait; NULL: not known, or many.
        waited_for: Option<String>,
    }
}

pub(super) fn rows(source: &Source<'_>) -> Result<Vec<RequestRow>, ReadError> {
    let requests = source.model.requests().filter(|request| request.counts());
    let mut rows: Vec<RequestRow> = requests.map(|request| row(source, request)).collect();
    let summed_up = source.model.summed_up();
    rows.extend(
        summed_up
            .latencies
            .iter()
            .map(|(latency_ns, count)| RequestRow {
                ts: source.identity.started(),
                request: None,
                name: None,
                weight: *count,
                latency_ns: *latency_ns,
                late: false,
                port: None,
                thread: None,
                unserved_ns: None,
                bytes_in: None,
                bytes_out: None,
                longest: None,
                longest_ns: None,
                function: None,
                waited_for: None,
            }),
    );
    rows.sort_by_key(|row| (source.identity.hour(row.ts), row.request.is_some(), row.ts));
    Ok(rows)
}

fn row(source: &Source<'_>, request: RequestRef<'_>) -> RequestRow {
    let model = source.model;
    let path = request.path();
    let longest = path.steps.into_iter().max_by_key(|step| step.ns());
    let waited_for = |step: &PathStep| match model.peer_of_step(step) {
        Some(peer) => Some(peer.to_string()),
        None => step.kind.map(|kind| kind.name.to_owned()),
    };
    RequestRow {
        ts: source.identity.at(request.ready_ns),
        request: Some(request.id()),
        name: request.name().map(name),
        weight: 1,
        latency_ns: request.age_ns(),
        late: request.is_late(),
        port: (request.local_port != 0).then_some(request.local_port.into()),
        thread: (request.recv_tid != 0).then(|| model.role_name(request.recv_tid)),
        unserved_ns: Some(request.served_ns() - request.ready_ns),
        bytes_in: Some(request.bytes_in),
        bytes_out: Some(request.bytes_out),
        longest: longest.map(|step| step.state.to_owned()),
        longest_ns: longest.map(|step| step.ns()),
        function: longest
            .and_then(|step| model.stacks.telling(step.stack))
            .map(|function| name(&function)),
        waited_for: longest.and_then(waited_for),
    }
}
