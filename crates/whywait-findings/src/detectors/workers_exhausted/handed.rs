//! Workers behind a thread that reads: it hands each request on, and a worker answers it (a loop
//! that reads whole requests before a thread gets them, an acceptor that looks at what they are).
//!
//! Who answered is the worker, so that its job is certain. It began when the worker's answer before
//! was out, or when the worker got it after a sleep in which it waited for work.

use crate::numbers::{HANDED_ON, SLOW_NS, Share};
use std::collections::{BTreeMap, BTreeSet};

use whywait_model::{Model, RequestRef};

use super::Backlog;
use super::executors::{Done, began, crew_of};
use crate::facts::Facts;

/// The crews: for each thread that reads the threads that answer.
pub(super) fn crews<'m>(facts: &Facts<'m>) -> Vec<Backlog<'m>> {
    let readers = facts.readers().iter();
    readers
        .filter_map(|(tid, requests)| {
            let read = requests.iter().filter(|request| request.recv_ns.is_some());
            crew(facts.model, *tid, read.copied().collect())
        })
        .collect()
}

fn crew<'m>(model: &'m Model, tid: u32, mut requests: Vec<RequestRef<'m>>) -> Option<Backlog<'m>> {
    requests.sort_by_key(|request| request.ready_ns);
    let mut answers: BTreeMap<u32, Vec<RequestRef<'m>>> = BTreeMap::new();
    for request in requests.iter().filter(|request| request.is_answered()) {
        answers.entry(request.send_tid).or_default().push(*request);
    }
    let all: usize = answers.values().map(Vec::len).sum();
    answers.remove(&tid);
    answers.remove(&0);
    let by_others: usize = answers.values().map(Vec::len).sum();
    let workers: BTreeSet<u32> = answers.keys().copied().collect();
    let few = Share::counted(by_others, all).is_below(*HANDED_ON);
    if few || workers.is_empty() || requests.len() <= workers.len() || several(&answers) {
        return None;
    }
    let mut jobs = Vec::new();
    for (worker, answered) in &mut answers {
        answered.sort_by_key(|request| request.answered_ns());
        let mut before_ns = 0;
        for request in answered {
            let to_ns = request.answered_ns()?;
            let read_ns = request.recv_ns?;
            // What was over soon says nothing of a queue.
            if request.latency_ns().is_some_and(|ns| ns >= *SLOW_NS) {
                let from_ns = began(model, *worker, before_ns, to_ns).unwrap_or(read_ns);
                let done = Done {
                    tid: *worker,
                    from_ns: from_ns.max(read_ns).min(to_ns),
                    to_ns,
                };
                jobs.push((*request, done));
            }
            before_ns = to_ns;
        }
    }
    jobs.sort_by_key(|(request, _)| request.ready_ns);
    Some(crew_of(model, tid, &requests, workers, &jobs))
}

/// Whether some of them write answers of several connections in turns, as loops do: no thread that
/// has one job at a time begins an answer before it is done with the one before.
fn several(answers: &BTreeMap<u32, Vec<RequestRef<'_>>>) -> bool {
    let overlaps = |answered: &Vec<RequestRef<'_>>| {
        let mut spans: Vec<_> = answered
            .iter()
            .filter_map(|request| Some((request.first_send_ns?, request.answered_ns()?)))
            .collect();
        spans.sort_unstable();
        spans.windows(2).any(|pair| pair[1].0 < pair[0].1)
    };
    answers.values().any(overlaps)
}
