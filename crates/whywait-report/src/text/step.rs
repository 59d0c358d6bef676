//! How the views of a critical path describe a step.

use std::collections::HashMap;

use whywait_model::path::Step;
use whywait_words::duration;

use super::page::Page;
use super::stack::telling;
use super::words;

/// More of a thread's name is not shown: the kernel's own limit is 15 bytes.
const MAX_NAME: usize = 24;
/// A function with more type parameters than that is cut in its middle.
const MAX_FUNCTION: usize = 60;
/// Steps within steps within steps: beyond this depth they are not followed.
const MAX_DEPTH: usize = 8;
/// So many of a holder's steps are shown in its line.
const MAX_HOLDER_STEPS: usize = 2;

/// The names of the threads that a path speaks of.
pub(super) struct Names<'a>(HashMap<u32, &'a str>);

impl<'a> Names<'a> {
    pub(super) fn of(path: &'a [Step]) -> Self {
        let mut names = Names(HashMap::new());
        names.add(path, MAX_DEPTH);
        names
    }

    fn add(&mut self, path: &'a [Step], depth: usize) {
        for step in path {
            if step.tid != 0 && !step.thread.is_empty() {
                self.0.entry(step.tid).or_insert(&step.thread);
            }
            if let (Some(tid), Some(waker)) = (step.woken_by, &step.waker) {
                self.0.entry(tid).or_insert(waker);
            }
            if depth > 0 {
                self.add(&step.meanwhile, depth - 1);
            }
        }
    }

    /// `tokio-rt-worker (1234)`, or the number alone of a thread without a name.
    pub(super) fn who(&self, page: &Page, tid: u32) -> String {
        match self.0.get(&tid) {
            Some(name) => format!("{} ({tid})", page.cut(name, MAX_NAME)),
            None => tid.to_string(),
        }
    }
}

/// The thread that a step is about; empty when it is about none.
pub(super) fn thread(page: &Page, step: &Step) -> String {
    match (step.tid, step.thread.is_empty()) {
        (0, _) => String::new(),
        (tid, true) => format!("thread {tid}"),
        (tid, false) => format!("{} ({tid})", page.cut(&step.thread, MAX_NAME)),
    }
}

/// What the time of a step was, in the words of the other tables.
pub(super) fn state(page: &Page, step: &Step) -> String {
    const MAX_STATE: usize = 20;
    page.cut(words::name_of(&step.state), MAX_STATE)
}

/// ` in app::save: fsync (journal commit)`: the application's function, and what the kernel did for
/// it.
pub(super) fn place(page: &Page, step: &Step) -> String {
    let mut text = String::new();
    if let Some(function) = step.function.as_deref().or_else(|| telling(&step.stack)) {
        text.push_str(&format!(" in {}", page.cut(function, MAX_FUNCTION)));
    }
    text.push_str(&kind(page, step));
    text.push_str(&peer(page, step));
    text
}

/// ` from 127.0.0.1:5432 (postgres)`, or nothing.
pub(super) fn peer(page: &Page, step: &Step) -> String {
    const MAX_PEER: usize = 60;
    step.peer.as_deref().map_or_else(String::new, |peer| {
        format!(" from {}", page.cut(peer, MAX_PEER))
    })
}

/// `: fsync (journal commit)`, or nothing.
pub(super) fn kind(page: &Page, step: &Step) -> String {
    const MAX_KIND: usize = 40;
    step.kind
        .as_deref()
        .filter(|kind| !kind.is_empty())
        .map_or_else(String::new, |kind| {
            format!(": {}", page.cut(kind, MAX_KIND))
        })
}

/// `, woken by saver (1240)`, or nothing.
pub(super) fn woken_by(page: &Page, step: &Step, names: &Names) -> String {
    step.woken_by.map_or_else(String::new, |tid| {
        format!(", woken by {}", names.who(page, tid))
    })
}

/// The thread that held the lock for which a step waited: of several the one that did for longest.
pub(super) fn holder(page: &Page, step: &Step) -> Option<String> {
    step.meanwhile
        .iter()
        .find(|inner| Some(inner.tid) == step.woken_by)
        .or(step.meanwhile.last())
        .map(|inner| thread(page, inner))
        .filter(|who| !who.is_empty())
}

/// `held by saver (1240): 1.402 s disk in app::flush: fsync; 3 ms on-cpu`; `None` for steps that
/// are no waits for a lock.
pub(super) fn held_by(page: &Page, step: &Step) -> Option<String> {
    let last = step.meanwhile.last()?;
    let holder_tid = step.woken_by.unwrap_or(last.tid);
    let (kept, _) = longest(&step.meanwhile, MAX_HOLDER_STEPS);
    let mut did: Vec<String> = kept
        .iter()
        .map(|index| &step.meanwhile[*index])
        .map(|inner| {
            let other = if inner.tid == holder_tid {
                String::new()
            } else {
                format!(" {}", thread(page, inner))
            };
            let state = state(page, inner);
            format!(
                "{} {state}{other}{}",
                duration(inner.ns),
                place(page, inner)
            )
        })
        .collect();
    if kept.len() < step.meanwhile.len() {
        did.push("…".to_owned());
    }
    let who = holder(page, step).unwrap_or_else(|| "another thread".to_owned());
    Some(format!("held by {who}: {}", did.join("; ")))
}

/// The indices of the `max` longest steps in the order in which they happened, and the time of the
/// others.
pub(super) fn longest(path: &[Step], max: usize) -> (Vec<usize>, u64) {
    let mut by_length: Vec<usize> = (0..path.len()).collect();
    by_length.sort_by_key(|index| std::cmp::Reverse(path[*index].ns));
    // A single short step takes the line that would say that it was left out.
    let keep = if path.len() == max + 1 {
        path.len()
    } else {
        path.len().min(max)
    };
    let (kept, left) = by_length.split_at(keep);
    let mut kept = kept.to_vec();
    kept.sort_unstable();
    let rest_ns = left
        .iter()
        .map(|index| path[*index].ns)
        .fold(0, u64::saturating_add);
    (kept, rest_ns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_ended_a_wait_has_a_name_though_it_is_not_on_the_path() {
        let step = Step {
            woken_by: Some(7),
            waker: Some("saver".to_owned()),
            ..Step::default()
        };
        let page = super::super::page(Default::default());
        let path = [step];
        let said = woken_by(&page, &path[0], &Names::of(&path));
        assert_eq!(said, ", woken by saver (7)");
    }

    #[test]
    fn the_longest_steps_keep_their_order() {
        let path: Vec<Step> = [5, 90, 1, 80, 2, 70, 60, 50]
            .map(|ns| Step {
                ns,
                ..Step::default()
            })
            .to_vec();
        assert_eq!(longest(&path, 5), (vec![1, 3, 5, 6, 7], 8));
        assert_eq!(longest(&path[..6], 5).0.len(), 6);
        assert_eq!(longest(&[], 5), (vec![], 0));
    }
}
