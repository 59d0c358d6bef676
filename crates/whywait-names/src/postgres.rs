//! PostgreSQL's protocol: simple queries, and those that are parsed first (protocol 3, "Message
//! Formats").

use std::hash::{DefaultHasher, Hash, Hasher};

use crate::Said;
use crate::front::Front;
use crate::sql::{self, Dialect};

/// What a statement is called by which later ones run it. The one without a name has one, too.
fn key(name: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    hasher.finish()
}

/// What messages that a client sends say. The first that has a statement, or names one, counts.
pub(crate) fn said(bytes: &[u8], total: u64) -> Option<Said> {
    let mut front = Front(bytes);
    loop {
        let kind = front.byte()?;
        let length = front.take(4)?;
        let length = u32::from_be_bytes([length[0], length[1], length[2], length[3]]);
        let done = (bytes.len() - front.0.len()) as u64;
        let content = u64::from(length).checked_sub(4)?;
        if done + content > total {
            return None;
        }
        // What is there of it: the last one may be cut.
        let there = usize::try_from(content).ok()?.min(front.0.len());
        let whole = there as u64 == content;
        let mut message = Front(front.take(there)?);
        match kind {
            b'Q' => {
                let text = statement(&mut message, whole)?;
                return Some(Said::Statement(text));
            }
            b'P' => {
                let (name, known) = message.text();
                let text = known.then(|| statement(&mut message, whole))??;
                return Some(Said::Prepares(Some(key(name)), text));
            }
            b'B' => {
                let (_, portal_known) = message.text();
                let (name, known) = message.text();
                return (portal_known && known).then(|| Said::Runs(key(name)));
            }
            // Close, Describe, Execute, Flush and Sync have none.
            b'C' | b'D' | b'E' | b'H' | b'S' if whole => {}
            _ => return None,
        }
    }
}

/// The statement at the front of a message. One that does not end in it is none.
fn statement(message: &mut Front<'_>, whole: bool) -> Option<String> {
    let (text, ends) = message.text();
    (ends || !whole)
        .then(|| sql::template(text, ends, Dialect::Postgres))
        .flatten()
}
