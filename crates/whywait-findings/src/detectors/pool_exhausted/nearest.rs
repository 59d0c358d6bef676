//! Whose connections requests wait for, where as many are open to several peers: those of the peer
//! that is called where they wait. A library that hands out connections, and then uses them, is
//! called by the same function of the program, at the same line.

use std::collections::{BTreeMap, BTreeSet};

use whywait_events::{ModuleKind, StackId};
use whywait_model::calls::PeerRow;
use whywait_model::{FrameOrigin, Label, Model, Peer, origin};

use crate::numbers::{MOST, Share};
use crate::shared::intervals::sum;
use crate::shared::queues::Queue;
use crate::shared::traffic::{length, served};

/// The nearest of some peers.
pub(super) struct Nearest<'a> {
    pub(super) row: &'a PeerRow,
    /// Where the requests wait.
    pub(super) function: String,
}

/// Which of these other peers is called where the queue's requests wait; `None`: none, or it does
/// not show.
pub(super) fn of<'a>(
    model: &Model,
    queue: &Queue<'_>,
    rivals: &'a [PeerRow],
) -> Option<Nearest<'a>> {
    if rivals.is_empty() {
        return None;
    }
    let waits_in = waits_in(model, queue)?;
    let calls = calls_in(model, queue.traffic.tgid);
    let depth = |address: &str| {
        let stacks = calls.get(address)?;
        let depths = stacks
            .iter()
            .map(|stack| in_common(model, *stack, waits_in));
        depths.max()
    };
    let own = depth(&queue.traffic.peer.address())?;
    let rivals = rivals
        .iter()
        .filter_map(|row| Some((depth(&row.peer)?, row)));
    let mut rivals: Vec<(usize, &PeerRow)> = rivals.collect();
    rivals.sort_by_key(|(depth, _)| std::cmp::Reverse(*depth));
    let (first, row) = *rivals.first()?;
    let second = rivals.get(1).map_or(0, |(depth, _)| *depth);
    (first > own.max(second)).then_some(Nearest {
        row,
        function: within(model, waits_in, first)?,
    })
}

/// The innermost function that is none of its language's own, within a stack without so many of its
/// outermost frames: a library's, as a rule.
fn within(model: &Model, stack: StackId, outermost: usize) -> Option<String> {
    let labels = &model.stacks.get(stack)?.labels;
    let within = labels.get(..labels.len().checked_sub(outermost)?)?;
    let named = within
        .iter()
        .find(|label| label.named && !is_languages(label));
    named.map(|label| label.name.to_string())
}

/// Whether a function is of its language's own library.
fn is_languages(label: &Label) -> bool {
    let begins = |those: &[&str]| those.iter().any(|one| label.name.starts_with(one));
    match label.kind {
        ModuleKind::Jit => begins(&["java.", "jdk.", "sun.", "node:"]),
        ModuleKind::Python => {
            let installed = ["/site-packages/", "/dist-packages/"];
            let installed = installed.iter().any(|part| label.file.contains(part));
            origin(label) != FrameOrigin::App && !installed
        }
        ModuleKind::Ruby => label.file.is_empty() || label.file.starts_with("<internal:"),
        _ => origin(label) != FrameOrigin::App,
    }
}

/// The stack in which the requests' threads slept for most of the time in which these waited, by
/// their own sleeps: the path of a request may lead over the one that ended its sleep instead, and
/// to what that one waited for.
fn waits_in(model: &Model, queue: &Queue<'_>) -> Option<StackId> {
    let mut stacks: BTreeMap<StackId, u64> = BTreeMap::new();
    for victim in &queue.victims {
        let request = victim.request;
        let thread = model.threads.get(&request.recv_tid);
        let (Some(thread), Some((from_ns, until_ns))) = (thread, served(&request)) else {
            continue;
        };
        for wait in thread.timeline.overlapping(from_ns, until_ns) {
            if wait.user_stack != 0 && model.class_of(wait).is_some() {
                let slept = (wait.out_ns.max(from_ns), wait.woken_ns().min(until_ns));
                *stacks.entry(wait.user_stack).or_default() += length(slept);
            }
        }
    }
    let (stack, ns) = stacks.iter().max_by_key(|(_, ns)| **ns)?;
    let waited_ns = sum(queue.victims.iter().map(|victim| victim.waited_ns));
    Share::new(*ns, waited_ns)
        .is_at_least(*MOST)
        .then_some(*stack)
}

/// In which stacks the process waits for which peer's replies.
fn calls_in(model: &Model, tgid: u32) -> BTreeMap<String, BTreeSet<StackId>> {
    let mut calls: BTreeMap<String, BTreeSet<StackId>> = BTreeMap::new();
    let threads = model.threads.values().filter(|thread| thread.tgid == tgid);
    for wait in threads.flat_map(|thread| thread.timeline.waits()) {
        let peer = model
            .awaited_peer(wait)
            .map(|peer: Peer<'_>| peer.address());
        if let Some(peer) = peer.filter(|_| wait.user_stack != 0) {
            calls.entry(peer).or_default().insert(wait.user_stack);
        }
    }
    calls
}

/// How many frames, from the outermost on, two stacks have in common.
fn in_common(model: &Model, one: StackId, other: StackId) -> usize {
    let frames = |id: StackId| model.stacks.get(id).filter(|stack| !stack.truncated);
    let (Some(one), Some(other)) = (frames(one), frames(other)) else {
        return 0;
    };
    let both = one.labels.iter().rev().zip(other.labels.iter().rev());
    let place = |label: &Label| (label.name.clone(), label.line);
    both.take_while(|(a, b)| place(a) == place(b)).count()
}
