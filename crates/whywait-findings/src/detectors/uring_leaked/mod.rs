//! `uring-leaked`: operations that never complete hold their slots for good.
//!
//! **Invariant.** An operation completes, or is cancelled, or waits for something that may come.
//!
//! **Evidence.** The operations that the kernel still had when it was looked at last (each two
//! seconds, and in the end), each with the time of its submission: on descriptors that the program
//! has closed since, where nothing can complete them any more but what happens at the other end; or
//! several on one descriptor, on which no operation ended.
//!
//! **Cost.** Not known as a time: a slot, a buffer and a file each. Saving 0.
//!
//! **Guards.** Accepting, timers and multishot operations wait by design, and so does one operation
//! on each of many idle connections, pipes or eventfds, for however long. Several receives of
//! datagrams may be posted ahead: those count only if more were added for half a second while none
//! ended. What is younger than a second does not count, nor less than three operations. A ring with
//! overflows, or with fewer operations under way than were seen, is not judged: then ends of some
//! were missed.

use std::collections::BTreeMap;

use whywait_events::uring::{RingOrigin, opcode_name};
use whywait_model::Model;
use whywait_model::rings::{PendingGroup, RingState};
use whywait_words::{counted, duration};

use crate::declaration::Declaration;
use crate::facts::Facts;
use crate::finding::{Cause, Evidence, Finding, Saving, SavingKind, Severity};
use crate::numbers::{LEAKED, LEAKED_OVER_NS, SHOWN};
use crate::shared::intervals::sum;
use crate::shared::rings;

/// What it is.
pub(crate) static DECLARATION: Declaration = Declaration {
    code: "uring-leaked",
    meaning: "operations of an io_uring ring never complete and hold their slots for good",
    severities: &[(Severity::Warning, "")],
    invariant: "an operation completes, is cancelled, or waits for something that may come",
    explain: include_str!("explain.md"),
    waits: None,
    detect,
};

const POLL_ADD: u32 = 6;
const STREAM: u32 = 1;
const ANONYMOUS: u32 = 0;
const PIPE: u32 = 1;
const NO_FILE: u32 = 16;

/// How operations are lost.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum How {
    /// The program has closed the descriptor.
    Closed,
    /// There are several on one descriptor, and nothing ends them.
    Piled,
}

/// Operations that are lost.
struct Leak<'a> {
    how: How,
    opcode: u32,
    fd: i32,
    count: u64,
    group: &'a PendingGroup,
}

fn detect(facts: &Facts<'_>) -> Vec<Finding> {
    let model = facts.model;
    model
        .rings
        .values()
        .filter_map(|state| finding(model, state))
        .collect()
}

/// Whether operations of the opcode wait by design: TIMEOUT, ACCEPT, LINK_TIMEOUT, FUTEX_WAIT,
/// FUTEX_WAITV, WAITID and EPOLL_WAIT.
fn waits_by_design(opcode: u32) -> bool {
    matches!(opcode, 11 | 13 | 15 | 50 | 51 | 53 | 59)
}

/// Whether the ends of operations may have been missed.
fn is_uncertain(state: &RingState) -> bool {
    let pending = &state.pending;
    state.ring.overflows > 0
        || (state.ring.origin == RingOrigin::Created && pending.count() > pending.in_flight)
}

fn leaks(state: &RingState) -> Vec<Leak<'_>> {
    let mut leaks = Vec::new();
    for ((opcode, fd), group) in &state.pending.groups {
        let leak = |how, count| Leak {
            how,
            opcode: *opcode,
            fd: *fd,
            count,
            group,
        };
        if group.kind == NO_FILE || waits_by_design(*opcode) {
            continue;
        }
        if group.closed > 0 {
            leaks.push(leak(How::Closed, group.closed));
        } else if is_piled(state, *opcode, *fd, group) {
            leaks.push(leak(How::Piled, group.count));
        }
    }
    leaks
}

/// Whether more and more operations wait on one descriptor, and none ends.
fn is_piled(state: &RingState, opcode: u32, fd: i32, group: &PendingGroup) -> bool {
    let one_at_a_time = match group.kind {
        ANONYMOUS | PIPE => true,
        _ => group.socket_type == STREAM,
    };
    let grows = group.spread_ns() >= *LEAKED_OVER_NS;
    group.count >= *LEAKED
        && state.has_all_results()
        && !state.succeeded.contains_key(&(opcode, fd))
        && (grows || (one_at_a_time && opcode != POLL_ADD))
}

fn finding(model: &Model, state: &RingState) -> Option<Finding> {
    if is_uncertain(state) {
        return None;
    }
    let mut leaks = leaks(state);
    let closed = leaks.iter().filter(|leak| leak.how == How::Closed);
    // A few may be about to end.
    if sum(closed.map(|leak| leak.count)) < *LEAKED {
        leaks.retain(|leak| leak.how != How::Closed);
    }
    leaks.sort_by_key(|leak| (std::cmp::Reverse(leak.count), leak.opcode, leak.fd));
    let most = leaks.first()?;
    let all = sum(leaks.iter().map(|leak| leak.count));
    let oldest_ns = leaks.iter().map(|leak| leak.group.oldest_ns()).max()?;
    let title = format!(
        "{} operations of {} never complete, the oldest for {}: they hold their slots for good",
        all,
        rings::thread(model, state.thread()),
        duration(oldest_ns)
    );
    let slots = format!(
        "{} were under way when they were seen last, of {} submitted, in a ring of {} entries",
        counted(state.pending.in_flight, "operation"),
        state.ring.submitted,
        state.ring.sq_entries
    );
    let doing = format!("submitted {} operations", opcode_name(most.opcode));
    let finding = rings::about(state, Finding::new(&DECLARATION, Severity::Warning, title))
        .about("operations", all)
        .saving(Saving::sum(SavingKind::Latency, 0, all))
        .evidence(evidence(&leaks))
        .evidence([Evidence::new(slots)])
        .cause(Cause::new(model, most.group.tid, doing, 0))
        .fix(fix(most.how));
    Some(finding)
}

/// A line for those on closed descriptors, and one for each descriptor with several.
fn evidence(leaks: &[Leak<'_>]) -> Vec<Evidence> {
    let mut lines = Vec::new();
    let mut closed: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
    for leak in leaks.iter().filter(|leak| leak.how == How::Closed) {
        let (number, oldest_ns) = closed.entry(leak.opcode).or_default();
        *number = number.saturating_add(leak.count);
        *oldest_ns = (*oldest_ns).max(leak.group.oldest_ns());
    }
    for (opcode, (number, oldest_ns)) in closed {
        let text = format!(
            "{number} {} operations are on descriptors that the program has closed since, the \
             oldest for {}: closing a descriptor does not end them",
            opcode_name(opcode),
            duration(oldest_ns)
        );
        lines.push(Evidence::of_ns(oldest_ns, text));
    }
    let piled = leaks.iter().filter(|leak| leak.how == How::Piled);
    for leak in piled.take(*SHOWN) {
        let text = format!(
            "{} {} operations are on descriptor {}, submitted over {}, the oldest {} ago; none \
             that is recorded ended there",
            leak.count,
            opcode_name(leak.opcode),
            leak.fd,
            duration(leak.group.spread_ns()),
            duration(leak.group.oldest_ns())
        );
        lines.push(Evidence::of_ns(leak.group.oldest_ns(), text));
    }
    lines
}

fn fix(how: How) -> &'static str {
    match how {
        How::Closed => {
            "cancel the operations of a descriptor before it is closed (IORING_OP_ASYNC_CANCEL \
             with IORING_ASYNC_CANCEL_FD | IORING_ASYNC_CANCEL_ALL), or shut the socket down, \
             which ends them"
        }
        How::Piled => {
            "submit the next operation on a descriptor when the one before has completed, or take \
             it back (IORING_OP_ASYNC_CANCEL); bound it with a linked timeout \
             (IORING_OP_LINK_TIMEOUT)"
        }
    }
}

#[cfg(test)]
mod tests;
