//! `push-held-up`: a message went to some connections only when another one had room for it.
//!
//! **Invariant.** A client that reads slowly delays nobody else's messages.
//!
//! **Evidence.** Rounds in which a thread writes to one connection after another, none of which
//! asked for anything. In one that counts the kernel had no room for more on a connection; the
//! thread wrote to no other one until that had, and then, in one go, to those that were left.
//!
//! **Cost.** How much later these had it. It is no part of what requests take, and no saving of
//! theirs.
//!
//! **Guards.** At least [`MIN_RESPONSES`] rounds that one connection held up, or a part of the
//! recording ([`PUSH_HELD`]), each for [`READER_NS`] as a rule. That a thread wrote to others when
//! it next woke is no evidence.

use std::collections::BTreeMap;

use whywait_events::Push;
use whywait_model::Model;
use whywait_words::{counted, duration};

use crate::declaration::{Declaration, Has, Waits};
use crate::facts::Facts;
use crate::finding::{Evidence, Finding, Severity};
use crate::numbers::{MIN_RESPONSES, PUSH_HELD, READER_NS, Share};
use crate::shared::intervals::sum;
use crate::shared::tails::median;
use crate::shared::threads::named;

/// What it is.
pub(crate) static DECLARATION: Declaration = Declaration {
    code: "push-held-up",
    meaning: "messages waited until a client that reads slowly had room for its own",
    severities: &[(Severity::Warning, "")],
    invariant: "a client that reads slowly delays nobody else's messages",
    explain: include_str!("explain.md"),
    waits: Some(Waits {
        who: "messages to other clients",
        what: "for room at one of them",
        has: Has::Said("a client that reads slowly"),
    }),
    detect,
};

fn detect(facts: &Facts<'_>) -> Vec<Finding> {
    let model = facts.model;
    let mut by_holder: BTreeMap<(u32, u64), Vec<&Push>> = BTreeMap::new();
    for row in model.pushes.iter().filter(|row| row.holder != 0) {
        by_holder
            .entry((row.tgid, row.holder))
            .or_default()
            .push(row);
    }
    let mut found: Vec<(u64, Finding)> = by_holder
        .values()
        .filter_map(|rows| finding(model, rows))
        .collect();
    found.sort_by_key(|(ns, _)| std::cmp::Reverse(*ns));
    found.into_iter().map(|(_, finding)| finding).collect()
}

fn finding(model: &Model, rows: &[&Push]) -> Option<(u64, Finding)> {
    let median_ns = median(rows.iter().map(|row| row.held_ns).collect())?;
    let held_ns = sum(rows.iter().map(|row| row.held_ns));
    let of_all = Share::new(held_ns, model.target().duration_ns);
    let is_few = rows.len() < *MIN_RESPONSES && of_all.is_below(*PUSH_HELD);
    if is_few || median_ns < *READER_NS {
        return None;
    }
    let longest = rows.iter().max_by_key(|row| row.held_ns)?;
    let client = match (&longest.peer, longest.peer_port) {
        (peer, _) if peer.is_empty() => "a client on a unix socket".to_owned(),
        (peer, 0) => peer.clone(),
        (peer, port) if peer.contains(':') => format!("[{peer}]:{port}"),
        (peer, port) => format!("{peer}:{port}"),
    };
    let title = format!(
        "{} waited for messages, up to {} at least, until one client that reads slowly had room \
         for its own: {client}",
        counted(longest.after, "connection"),
        duration(longest.held_ns),
    );
    let rounds = format!(
        "{} to several connections waited for it, for {} (median), {} in all; the kernel had no \
         room for more on its connection, and nobody else was written to until it had",
        counted(rows.len(), "message"),
        duration(median_ns),
        duration(held_ns),
    );
    let text = format!(
        "the longest: {} wrote to {}, and {} after it had begun to the last of them",
        named(model, longest.tid),
        counted(longest.connections, "connection"),
        duration(longest.last_ns.saturating_sub(longest.first_ns)),
    );
    let finding = Finding::new(&DECLARATION, Severity::Warning, title)
        .about_known(
            "port",
            (longest.local_port != 0).then_some(longest.local_port),
        )
        .about("pid", longest.tgid)
        .about("client", client)
        .about("messages", rows.len())
        .about("held_ns", held_ns)
        .evidence([
            Evidence::of_ns(held_ns, rounds),
            Evidence::of_ns(longest.held_ns, text),
        ])
        .fix(
            "do not wait for one subscriber before the next has the message: give each a queue of \
             its own with a limit, and drop messages for who falls behind, or close its connection \
             (websockets for Python: broadcast(); ws for node: look at bufferedAmount and do not \
             await send)",
        );
    Some((held_ns, finding))
}

#[cfg(test)]
mod tests;
