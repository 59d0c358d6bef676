//! `small-send-buffer`: the server could not write because its send buffer was full, though its
//! clients had room.
//!
//! **Invariant.** A server waits for its clients to read, not for the acknowledgement of what is on
//! its way already.
//!
//! **Evidence.** How long a connection had sent all that its send buffer held while somebody waited
//! to write more, as the kernel counts it. Or how long the thread that wrote slept because the
//! buffer was full, where the program has set the buffer's size and the peer had room for more.
//!
//! **Cost.** That time, of each response.
//!
//! **Guards.** At least [`MIN_RESPONSES`] on a port, [`BUFFER_NS`] each as a rule, and no
//! less than the peer's window held them back.

use whywait_events::Tail;
use whywait_model::{Model, wait_kind};
use whywait_words::{counted, duration};

use crate::declaration::{Declaration, Has, Waits};
use crate::facts::Facts;
use crate::finding::{Evidence, Finding, Saving, Severity};
use crate::numbers::{BUFFER_NS, MIN_RESPONSES, MOST, RESPONSE_ERROR_NS, Share};
use crate::shared::intervals::{overlap_ns, sum};
use crate::shared::tails::{by_port, clients, median, of_all};
use crate::shared::threads::named;

/// What it is.
pub(crate) static DECLARATION: Declaration = Declaration {
    code: "small-send-buffer",
    meaning: "responses waited for room in the server's own send buffer, though the clients had \
              room for them",
    severities: &[
        (
            Severity::Error,
            "when that was most of the time of these requests, 30 ms or longer each",
        ),
        (Severity::Warning, "otherwise"),
    ],
    invariant: "a server waits for its clients to read, and not for the acknowledgement of what is \
                on its way already",
    explain: include_str!("explain.md"),
    waits: Some(Waits {
        who: "ends of responses",
        what: "for room in the send buffer",
        has: Has::Said("{buffer_bytes} bytes that clients have not acknowledged"),
    }),
    detect,
};

/// The wait of a thread that writes, as the model calls it.
const BUFFER_FULL: &str = "network send (buffer full)";

fn detect(facts: &Facts<'_>) -> Vec<Finding> {
    let model = facts.model;
    let held = |tail: &&Tail| {
        let ns = held_ns(model, tail);
        ns >= *BUFFER_NS && ns >= tail.window_ns
    };
    by_port(model.tails.rows().iter().filter(held))
        .into_iter()
        .filter_map(|(port, tails)| finding(model, port, &tails))
        .collect()
}

/// For how long the send buffer held a response back.
fn held_ns(model: &Model, tail: &Tail) -> u64 {
    if !tail.buffer_set || tail.buffer_bytes >= tail.room_bytes {
        return tail.buffer_ns;
    }
    let from_ns = tail.written_ns.saturating_sub(tail.latency_ns);
    let waits = model
        .threads
        .get(&tail.tid)
        .map(|thread| thread.timeline.waits());
    let full = waits.unwrap_or_default().iter().filter(|wait| {
        let stack = model.stacks.get(wait.kernel_stack);
        let kind = stack.and_then(|stack| wait_kind(wait, stack));
        kind.is_some_and(|kind| kind.name == BUFFER_FULL)
    });
    let slept = full.map(|wait| {
        let in_ns = wait.in_ns.unwrap_or(wait.out_ns);
        overlap_ns((from_ns, tail.written_ns), (wait.out_ns, in_ns))
    });
    sum(slept).max(tail.buffer_ns)
}

fn finding(model: &Model, port: u16, tails: &[&Tail]) -> Option<Finding> {
    let each: Vec<u64> = tails.iter().map(|tail| held_ns(model, tail)).collect();
    let median_ns = median(each.clone())?;
    if tails.len() < *MIN_RESPONSES {
        return None;
    }
    let took = sum(tails.iter().map(|tail| tail.latency_ns));
    let most = Share::new(sum(each.iter().copied()), took).is_at_least(*MOST);
    let severity = if most && median_ns >= *RESPONSE_ERROR_NS {
        Severity::Error
    } else {
        Severity::Warning
    };
    let longest = tails.iter().max_by_key(|tail| held_ns(model, tail))?;
    let longest_ns = held_ns(model, longest);
    let title = format!(
        "{}{} waited for room in the send buffer, for {} (median): it takes {}, and the clients \
         had room for more",
        counted(tails.len(), "response"),
        of_all(model.requests_count()),
        duration(median_ns),
        counted(longest.buffer_bytes, "byte"),
    );
    let text = format!(
        "the longest, {} of {}: {} wrote {}, and waited for what was on its way to be acknowledged",
        duration(longest_ns),
        duration(longest.latency_ns),
        named(model, longest.tid),
        counted(longest.bytes_out, "byte"),
    );
    Some(
        Finding::new(&DECLARATION, severity, title)
            .about_known("port", (port != 0).then_some(port))
            .about("pid", longest.tgid)
            .about("thread", longest.tid)
            .about("responses", tails.len())
            .about("buffer_bytes", longest.buffer_bytes)
            .saving(Saving::latency(each))
            .evidence([Evidence::of_ns(longest_ns, text)])
            .evidence(clients(tails).map(Evidence::new))
            .fix(
                "do not set SO_SNDBUF (the kernel then sizes the buffer itself, up to the last \
                 value of net.ipv4.tcp_wmem), or make it as large as what a round trip can take",
            ),
    )
}

#[cfg(test)]
mod tests;
