//! A trace for Perfetto: a track for each thread and for each slow request, arrows from who woke to
//! who was woken, counters.
//!
//! Fields are those of `protos/perfetto/trace/` in github.com/google/perfetto: `TracePacket`,
//! `TrackDescriptor`, `TrackEvent`.

use whywait_events::{Ns, Wait, WakeContext};
use whywait_model::path::Step;
use whywait_model::requests::Slow;
use whywait_model::{Model, RequestRef, Thread};
use whywait_report::text::words;
use whywait_words::{Charset, escape};

use crate::otlp::own_calls;
use crate::protobuf::Message;

/// Requests with a track of their own, the slowest.
const MAX_REQUESTS: usize = 2_000;
/// Waits that are drawn; of more than these the trace would be for no browser.
const MAX_WAITS: usize = 500_000;
/// Longer names are cut in their middle.
const MAX_NAME: usize = 200;

/// Fields of `TracePacket`.
const TIMESTAMP: u32 = 8;
const SEQUENCE: u32 = 10;
const TRACK_EVENT: u32 = 11;
const SEQUENCE_FLAGS: u32 = 13;
const TRACK_DESCRIPTOR: u32 = 60;
/// Values of `TrackEvent.type`.
const BEGIN: u64 = 1;
const END: u64 = 2;
const INSTANT: u64 = 3;
const COUNTER: u64 = 4;
/// Fields of `TrackEvent`.
const ANNOTATION: u32 = 4;
const TYPE: u32 = 9;
const TRACK: u32 = 11;
const CATEGORY: u32 = 22;
const NAME: u32 = 23;
const COUNTER_VALUE: u32 = 30;
const FLOW: u32 = 47;
const FLOW_END: u32 = 48;

/// Identifiers of tracks: of threads by their number, of requests by their place.
const THREADS: u64 = 1 << 32;
const REQUESTS: u64 = 2 << 32;
const REQUESTS_PARENT: u64 = 1;
const RUNNABLE: u64 = 2;
const IN_FLIGHT: u64 = 3;

/// The trace.
pub fn perfetto(model: &Model) -> Vec<u8> {
    let mut trace = Trace::default();
    let windows = windows(model);
    trace.named_track(REQUESTS_PARENT, "Slow requests", None);
    // Those who wake are named before they do.
    for thread in model.threads.values() {
        trace.thread_track(thread);
    }
    let mut left = MAX_WAITS;
    for thread in model.threads.values() {
        trace.thread(model, thread, &windows, &mut left);
    }
    trace.requests(model);
    trace.counters(model);
    trace.bytes.into_bytes()
}

/// The times in which slow requests were under way, merged and in order: only then waits are known
/// one by one. Without any request all waits are.
fn windows(model: &Model) -> Vec<(Ns, Ns)> {
    let mut spans: Vec<(Ns, Ns)> = model
        .requests()
        .map(|request| (request.ready_ns, request.end_ns()))
        .collect();
    if spans.is_empty() {
        return vec![(model.meta.started_ns, model.end_ns)];
    }
    spans.sort_unstable();
    let mut merged: Vec<(Ns, Ns)> = Vec::new();
    for (from, to) in spans {
        match merged.last_mut() {
            Some(last) if from <= last.1 => last.1 = last.1.max(to),
            _ => merged.push((from, to)),
        }
    }
    merged
}

/// A piece of a track.
struct Slice<'a> {
    track: u64,
    from_ns: Ns,
    to_ns: Ns,
    name: &'a str,
    category: &'a str,
    /// Where an arrow ends.
    flow: Option<u64>,
    notes: &'a [(&'a str, String)],
}

#[derive(Default)]
struct Trace {
    bytes: Message,
    begun: bool,
    flows: u64,
}

impl Trace {
    fn packet(&mut self, packet: &mut Message) {
        packet.number(SEQUENCE, 1);
        if !self.begun {
            // Nothing before this packet counts.
            packet.number(SEQUENCE_FLAGS, 1);
            self.begun = true;
        }
        self.bytes.message(1, packet);
    }

    fn event(&mut self, at_ns: Ns, event: &Message) {
        let mut packet = Message::default();
        packet.value(TIMESTAMP, at_ns).message(TRACK_EVENT, event);
        self.packet(&mut packet);
    }

    fn track(&mut self, track: &Message) {
        let mut packet = Message::default();
        packet.message(TRACK_DESCRIPTOR, track);
        self.packet(&mut packet);
    }

    fn named_track(&mut self, id: u64, name: &str, parent: Option<u64>) {
        let mut track = Message::default();
        track.number(1, id).text(2, &shown(name));
        track.number(5, parent.unwrap_or(0));
        self.track(&track);
    }

    fn slice(&mut self, slice: &Slice<'_>) {
        self.begin(slice);
        self.end(slice.track, slice.to_ns);
    }

    fn begin(&mut self, slice: &Slice<'_>) {
        let mut event = Message::default();
        event
            .number(TYPE, BEGIN)
            .number(TRACK, slice.track)
            .text(CATEGORY, slice.category)
            .text(NAME, &shown(slice.name));
        if let Some(flow) = slice.flow {
            event.fixed(FLOW_END, flow);
        }
        for (key, value) in slice.notes {
            let mut note = Message::default();
            note.text(10, key).text(6, &shown(value));
            event.message(ANNOTATION, &note);
        }
        self.event(slice.from_ns, &event);
    }

    fn end(&mut self, track: u64, at_ns: Ns) {
        let mut event = Message::default();
        event.number(TYPE, END).number(TRACK, track);
        self.event(at_ns, &event);
    }

    fn thread_track(&mut self, thread: &Thread) {
        let mut of_thread = Message::default();
        of_thread
            .number(1, thread.tgid.into())
            .number(2, thread.tid.into())
            .text(5, &shown(&thread.name));
        let mut descriptor = Message::default();
        descriptor
            .number(1, THREADS | u64::from(thread.tid))
            .message(4, &of_thread);
        self.track(&descriptor);
    }

    /// What a thread did in the windows, piece by piece; what is between them is a piece, too.
    fn thread(&mut self, model: &Model, thread: &Thread, windows: &[(Ns, Ns)], left: &mut usize) {
        let track = THREADS | u64::from(thread.tid);
        let begins_ns = thread.started.map_or(model.meta.started_ns, |(ns, _)| ns);
        let ends_ns = thread.ended_ns.unwrap_or(model.end_ns).max(begins_ns);
        let mut at_ns = begins_ns;
        for (from_ns, to_ns) in windows {
            let (from_ns, to_ns) = ((*from_ns).max(at_ns), (*to_ns).min(ends_ns));
            if from_ns >= to_ns {
                continue;
            }
            self.unseen(track, at_ns, from_ns);
            self.within(model, thread, (from_ns, to_ns), left);
            at_ns = to_ns;
        }
        self.unseen(track, at_ns, ends_ns);
    }

    fn unseen(&mut self, track: u64, from_ns: Ns, to_ns: Ns) {
        if from_ns < to_ns {
            self.slice(&Slice {
                track,
                from_ns,
                to_ns,
                name: "no slow request: only sums are known",
                category: "unseen",
                flow: None,
                notes: &[],
            });
        }
    }

    /// A thread's waits in a window, and what is between them.
    fn within(
        &mut self,
        model: &Model,
        thread: &Thread,
        (from_ns, to_ns): (Ns, Ns),
        left: &mut usize,
    ) {
        let track = THREADS | u64::from(thread.tid);
        let mut at_ns = from_ns;
        for wait in thread.timeline.overlapping(from_ns, to_ns) {
            if *left == 0 {
                break;
            }
            *left -= 1;
            let out_ns = wait.out_ns.max(at_ns);
            let in_ns = wait.end_ns().min(to_ns);
            let woken_ns = wait
                .wake_ns
                .unwrap_or(in_ns)
                .clamp(out_ns, in_ns.max(out_ns));
            self.active(track, at_ns, out_ns);
            if out_ns < woken_ns {
                self.asleep(model, track, wait, out_ns, woken_ns);
            }
            if woken_ns < in_ns {
                let flow = self.woken(model, thread, wait);
                self.slice(&Slice {
                    track,
                    from_ns: woken_ns,
                    to_ns: in_ns,
                    name: "runnable",
                    category: "runnable",
                    flow,
                    notes: &[],
                });
            }
            at_ns = in_ns.max(at_ns);
        }
        self.active(track, at_ns, to_ns);
    }

    fn active(&mut self, track: u64, from_ns: Ns, to_ns: Ns) {
        if from_ns < to_ns {
            self.slice(&Slice {
                track,
                from_ns,
                to_ns,
                name: "active (no long wait)",
                category: "active",
                flow: None,
                notes: &[],
            });
        }
    }

    fn asleep(&mut self, model: &Model, track: u64, wait: &Wait, from_ns: Ns, to_ns: Ns) {
        let key = model.key_of(wait);
        let class = model.class_of(wait).map_or("wait", |class| class.name());
        let kind = model.kind_of(wait).map(|kind| kind.name.to_owned());
        let name = kind.unwrap_or_else(|| key.object.name());
        let mut notes = vec![("class", class.to_owned())];
        if let Some(function) = model.stacks.telling(wait.user_stack) {
            notes.push(("in", function));
        }
        self.slice(&Slice {
            track,
            from_ns,
            to_ns,
            name: &name,
            category: "asleep",
            flow: None,
            notes: &notes,
        });
    }

    /// An arrow from the thread that ended a wait, if it is one of the target.
    fn woken(&mut self, model: &Model, thread: &Thread, wait: &Wait) -> Option<u64> {
        let by_target = wait.wake_context == WakeContext::Task
            && wait.waker_tid != thread.tid
            && model.threads.contains_key(&wait.waker_tid);
        let at_ns = wait.wake_ns.filter(|_| by_target)?;
        self.flows += 1;
        let mut event = Message::default();
        event
            .number(TYPE, INSTANT)
            .number(TRACK, THREADS | u64::from(wait.waker_tid))
            .text(CATEGORY, "wake")
            .text(NAME, &shown(&format!("wakes {}", thread.name)))
            .fixed(FLOW, self.flows);
        self.event(at_ns, &event);
        Some(self.flows)
    }

    fn requests(&mut self, model: &Model) {
        let mut requests: Vec<(u64, RequestRef<'_>)> = model
            .requests()
            .filter_map(|request| Some((request.took_ns()?, request)))
            .collect();
        requests.sort_by_key(|(ns, request)| (std::cmp::Reverse(*ns), request.ready_ns));
        requests.truncate(MAX_REQUESTS);
        requests.sort_by_key(|(_, request)| request.ready_ns);
        for (index, (_, request)) in requests.into_iter().enumerate() {
            self.request(request.ready_ns, &request.slow(), index as u64);
        }
    }

    fn request(&mut self, ready_ns: Ns, slow: &Slow, index: u64) {
        let track = REQUESTS + index;
        self.named_track(track, "request", Some(REQUESTS_PARENT));
        let name = format!("request {}", slow.id);
        let whole = Slice {
            track,
            from_ns: ready_ns,
            to_ns: ready_ns.saturating_add(slow.latency_ns),
            name: &name,
            category: "request",
            flow: None,
            notes: &[],
        };
        self.begin(&whole);
        let mut at_ns = ready_ns;
        for step in &slow.path {
            let to_ns = at_ns.saturating_add(step.ns);
            if step.ns > 0 {
                self.step(track, step, at_ns, to_ns);
            }
            at_ns = to_ns;
        }
        self.end(track, whole.to_ns);
        for (call_index, call) in own_calls(slow).enumerate() {
            let track = track | (call_index as u64 + 1) << 40;
            self.named_track(track, "call", Some(REQUESTS_PARENT));
            let from_ns = ready_ns.saturating_add(call.at_ns);
            self.slice(&Slice {
                track,
                from_ns,
                to_ns: from_ns.saturating_add(call.ns),
                name: &format!("call to {}", call.peer),
                category: "call",
                flow: None,
                notes: &[("request", slow.id.clone())],
            });
        }
    }

    fn step(&mut self, track: u64, step: &Step, from_ns: Ns, to_ns: Ns) {
        let state = words::name_of(&step.state);
        let name = match &step.kind {
            Some(kind) => format!("{state}: {kind}"),
            None => state.to_owned(),
        };
        let mut notes = vec![("thread", format!("{} ({})", step.thread, step.tid))];
        notes.extend(step.function.clone().map(|function| ("in", function)));
        notes.extend(step.peer.clone().map(|peer| ("peer", peer)));
        self.slice(&Slice {
            track,
            from_ns,
            to_ns,
            name: &name,
            category: "step",
            flow: None,
            notes: &notes,
        });
    }

    /// How many threads had been woken and had no CPU, and how many slow requests were under way.
    fn counters(&mut self, model: &Model) {
        let waits = model.threads.values().flat_map(|t| t.timeline.waits());
        let runnable = waits.filter_map(|wait| Some((wait.wake_ns?, wait.in_ns?)));
        self.counter(RUNNABLE, "threads without a CPU", runnable.take(MAX_WAITS));
        let requests = model.requests();
        let in_flight = requests.map(|request| (request.ready_ns, request.end_ns()));
        self.counter(IN_FLIGHT, "slow requests in flight", in_flight);
    }

    fn counter(&mut self, track: u64, name: &str, spans: impl Iterator<Item = (Ns, Ns)>) {
        let mut descriptor = Message::default();
        descriptor
            .number(1, track)
            .text(2, name)
            .message(8, &Message::default());
        self.track(&descriptor);
        let mut changes: Vec<(Ns, bool)> = spans
            .filter(|(from_ns, to_ns)| from_ns < to_ns)
            .flat_map(|(from_ns, to_ns)| [(from_ns, true), (to_ns, false)])
            .collect();
        changes.sort_unstable();
        let mut value = 0u64;
        for at in changes.chunk_by(|a, b| a.0 == b.0) {
            for (_, more) in at {
                value = if *more {
                    value + 1
                } else {
                    value.saturating_sub(1)
                };
            }
            let mut event = Message::default();
            event
                .number(TYPE, COUNTER)
                .number(TRACK, track)
                .value(COUNTER_VALUE, value);
            self.event(at[0].0, &event);
        }
    }
}

fn shown(name: &str) -> String {
    escape(name, Charset::Unicode, MAX_NAME)
}
