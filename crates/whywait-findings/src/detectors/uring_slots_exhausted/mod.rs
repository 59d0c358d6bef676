//! `uring-slots-exhausted`: all slots of a ring are taken, and its thread comes back with nothing
//! that it can submit.
//!
//! **Invariant.** A program that has something to submit has a slot for it.
//!
//! **Evidence.** How many slots were taken over time, against the entries of the submission queue,
//! beyond which the ring was never seen to go; waits for completions that the thread left and came
//! back to with all slots taken, with nothing submitted and nothing completed in between: it had
//! been woken for something else. The parts of the operations' life say what holds the slots: the
//! kernel or the device; or sockets, where most of the time is that of sends that wait for room in
//! a buffer.
//!
//! **Cost.** Time of the loop. In the part of the time in which a slot was free something else
//! limited it, and still would with more slots; so the same operations take at least that part, and
//! what the ring was full for is the most that is saved. And it cannot do more than its CPU time
//! allows: with all of a CPU, so many times more. The smaller gain of these two is the bound of the
//! rate. Where sockets hold the slots more of them change nothing: the peer takes what it takes,
//! and the bound holds for a peer that does not have to be waited for.
//!
//! **Guards.** A program that keeps so many operations under way and no more, such as a benchmark
//! or a scan, has all slots taken all of the time, and nothing else to do: it does not come back
//! before something has completed. One operation at a time is how a synchronous program works. A
//! program that had more under way than the submission queue has entries does not stop there, so
//! that this is not what limits it; what the completion queue has no room for is
//! `uring-overflow`'s. Where the kernel's or the device's part is not the longest, it is another
//! finding's.

use whywait_events::uring::Ring;
use whywait_model::Model;
use whywait_model::rings::{RingState, Stage};
use whywait_words::{count, counted, duration, percent};

use crate::declaration::Declaration;
use crate::facts::Facts;
use crate::finding::{Confidence, Evidence, Finding, Saving, SavingKind, Severity};
use crate::numbers::{MOST, RING_MIN_OPERATIONS, SLOTS_COUNTED_TWICE, SLOTS_STALLED, Share};
use crate::shared::rings;

/// What it is.
pub(crate) static DECLARATION: Declaration = Declaration {
    code: "uring-slots-exhausted",
    meaning: "all slots of an io_uring ring are taken, and its thread has more to submit and \
         cannot",
    severities: &[(Severity::Warning, "")],
    invariant: "a program that has something to submit has a slot for it",
    explain: include_str!("explain.md"),
    waits: None,
    detect,
};

fn detect(facts: &Facts<'_>) -> Vec<Finding> {
    let model = facts.model;
    model
        .rings
        .values()
        .filter_map(|state| finding(model, state))
        .collect()
}

/// Whether it never had (many) more under way than the submission queue has entries. An operation
/// that is just being completed on another CPU may have been counted twice, for an instant.
fn stops_at_depth(ring: &Ring) -> bool {
    let entries = u64::from(ring.sq_entries);
    u64::from(ring.max_slots) <= entries + SLOTS_COUNTED_TWICE.of(entries) + 1
}

/// By how much the rate rises at most, in percent: as if all the time in which the ring was full
/// were gone, but for what the thread needs of its CPU.
fn gain(state: &RingState) -> u64 {
    let ring = &state.ring;
    let free_ns = ring.observed_ns.saturating_sub(ring.at_depth_ns).max(1);
    let by_slots = times_100(ring.observed_ns, free_ns);
    let by_cpu = state
        .cpu_of(state.thread())
        .filter(|(cpu_ns, _, seen_ns)| {
            *cpu_ns > 0 && Share::new(*seen_ns, ring.observed_ns).is_at_least(*MOST)
        })
        .map_or(u64::MAX, |(cpu_ns, _, seen_ns)| times_100(seen_ns, cpu_ns));
    by_slots.min(by_cpu).saturating_sub(100)
}

/// `ns` by `of_ns`, in percent, without a limit.
fn times_100(ns: u64, of_ns: u64) -> u64 {
    u64::try_from(u128::from(ns) * 100 / u128::from(of_ns.max(1))).unwrap_or(u64::MAX)
}

fn finding(model: &Model, state: &RingState) -> Option<Finding> {
    let ring = &state.ring;
    let full = Share::new(ring.at_depth_ns, ring.observed_ns);
    let stalled = Share::new(ring.stalled_waits, ring.waits);
    let holder = state.dominant();
    if ring.sq_entries < 2
        || ring.submitted < *RING_MIN_OPERATIONS
        || full.is_below(*MOST)
        || stalled.is_below(*SLOTS_STALLED)
        || ring.stalled_waits < *RING_MIN_OPERATIONS
        || !stops_at_depth(ring)
        || !matches!(holder, Some(Stage::Kernel | Stage::Socket))
    {
        return None;
    }
    let by_socket = holder == Some(Stage::Socket);
    let title = title(state, by_socket)?;
    let evidence = [
        rings::life(state),
        came_back_in_vain(model, state),
        Evidence::of_ns(
            ring.flight_ns,
            format!(
                "the slots are held by the kernel or the device for {} of their time, not by \
                 completions that nobody takes",
                percent(ring.flight_ns, ring.slot_ns)
            ),
        ),
        Evidence::of_ns(
            ring.at_depth_ns,
            format!(
                "never more than {} were taken at once, of {} entries to submit and {} to \
                 complete; how many the device, or the peer, takes at a time, and how much there \
                 was to submit, shows in nothing: the bound is for as many as there may be",
                ring.max_slots, ring.sq_entries, ring.cq_entries
            ),
        ),
    ];
    let saving = Saving::sum(SavingKind::Throughput, ring.at_depth_ns, ring.submitted);
    let finding = rings::about(state, Finding::new(&DECLARATION, Severity::Warning, title))
        .about("held_by", if by_socket { "socket" } else { "kernel" })
        .about("throughput_at_most_percent", gain(state))
        .confidence(Confidence::Medium)
        .saving(saving)
        .evidence(evidence)
        .evidence(rings::sockets(state))
        .fix(fix(by_socket));
    Some(finding)
}

fn title(state: &RingState, by_socket: bool) -> Option<String> {
    let slots = state.ring.sq_entries;
    let kernel_ns = state.kernel_ns()?;
    let full = percent(state.ring.at_depth_ns, state.ring.observed_ns);
    if by_socket {
        return Some(format!(
            "the {slots} slots of a ring are all taken for {full} of the time, held by sends \
             that wait for room in their socket's buffer"
        ));
    }
    let allowed = u64::from(slots).saturating_mul(1_000_000_000) / kernel_ns.max(1);
    Some(format!(
        "the {slots} slots of a ring are all taken for {full} of the time: at {} an operation \
         they allow {} a second",
        duration(kernel_ns),
        count(allowed),
    ))
}

fn came_back_in_vain(model: &Model, state: &RingState) -> Evidence {
    Evidence::new(format!(
        "{} came back {} ({} of its waits) with all slots taken and nothing \
         completed since: what it had been woken for could not be submitted",
        rings::thread(model, state.thread()),
        counted(state.ring.stalled_waits, "time"),
        percent(state.ring.stalled_waits, state.ring.waits),
    ))
}

fn fix(by_socket: bool) -> &'static str {
    if by_socket {
        "the peer, or the network, takes less than is sent: have it read faster, or send it less \
         (drop, or stop taking in what is for it); a deeper ring or a larger SO_SNDBUF only takes \
         up bursts. Keep slots for other peers from one that is slow"
    } else {
        "make the ring deeper, as long as the device takes more at a time without slowing down; \
         beyond that only a faster device helps"
    }
}

#[cfg(test)]
mod tests;
