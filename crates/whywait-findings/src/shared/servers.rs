//! Replays requests onto servers that take one at a time: what more servers would have saved.
//!
//! Arrivals are those of the recording, but for a request that its client could only send after
//! another one was answered: that one comes as long after the replayed answer as it did after the
//! real one. Without that a replay would flatter: of clients that wait for their answers the same
//! few come again and again.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use whywait_events::Ns;

/// A request, as a server sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Job {
    /// When it came.
    pub(crate) ready_ns: Ns,
    /// When a server took it.
    pub(crate) taken_ns: Ns,
    /// When it was answered.
    pub(crate) answered_ns: Ns,
    /// When its server could take the next one: not before the answer.
    pub(crate) free_ns: Ns,
}

impl Job {
    fn service_ns(&self) -> u64 {
        self.answered_ns.saturating_sub(self.taken_ns)
    }

    fn held_ns(&self) -> u64 {
        self.free_ns
            .max(self.answered_ns)
            .saturating_sub(self.taken_ns)
    }
}

/// A client that comes back within this was waiting for its answer.
const COMES_BACK_WITHIN_NS: u64 = 20_000_000;

/// For each job the one whose answer its client waited for before it sent it, if one did: the last
/// answer before it came, of those that no other job follows. `jobs` are in the order in which they
/// came.
fn follows(jobs: &[Job]) -> Vec<Option<usize>> {
    let mut answers: Vec<(Ns, usize)> = jobs
        .iter()
        .enumerate()
        .map(|(at, job)| (job.answered_ns, at))
        .collect();
    answers.sort_unstable();
    let mut next = 0;
    let mut open: Vec<(Ns, usize)> = Vec::new();
    jobs.iter()
        .map(|job| {
            while next < answers.len() && answers[next].0 <= job.ready_ns {
                open.push(answers[next]);
                next += 1;
            }
            let (at_ns, before) = *open.last()?;
            if job.ready_ns - at_ns > COMES_BACK_WITHIN_NS {
                open.clear();
                return None;
            }
            open.pop();
            Some(before)
        })
        .collect()
}

/// How long each job is under way with so many servers, from its arrival to its answer:
/// nanoseconds. Jobs are taken in the order in which they come. `jobs` are in that order, too.
pub(crate) fn latencies(jobs: &[Job], servers: usize) -> Vec<u64> {
    let follows = follows(jobs);
    let mut latencies = vec![0; jobs.len()];
    let mut followers: Vec<Vec<usize>> = vec![Vec::new(); jobs.len()];
    let mut arrivals: BinaryHeap<Reverse<(Ns, usize)>> = BinaryHeap::new();
    for (at, before) in follows.iter().enumerate() {
        match before {
            Some(before) => followers[*before].push(at),
            None => arrivals.push(Reverse((jobs[at].ready_ns, at))),
        }
    }
    let mut free: BinaryHeap<Reverse<Ns>> = (0..servers.max(1)).map(|_| Reverse(0)).collect();
    while let Some(Reverse((ready_ns, at))) = arrivals.pop() {
        let Reverse(free_ns) = free.pop().unwrap_or(Reverse(0));
        let taken_ns = ready_ns.max(free_ns);
        let answered_ns = taken_ns.saturating_add(jobs[at].service_ns());
        free.push(Reverse(taken_ns.saturating_add(jobs[at].held_ns())));
        latencies[at] = answered_ns.saturating_sub(ready_ns);
        for follower in std::mem::take(&mut followers[at]) {
            let pause_ns = jobs[follower].ready_ns.saturating_sub(jobs[at].answered_ns);
            arrivals.push(Reverse((answered_ns.saturating_add(pause_ns), follower)));
        }
    }
    latencies
}

/// The middle one of some durations; 0 without any.
pub(crate) fn median_ns(mut all: Vec<u64>) -> u64 {
    all.sort_unstable();
    all.get(all.len() / 2).copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// Clients that each wait for their answer before they ask again.
    fn closed(clients: u64, servers: u64, service_ms: u64, rounds: u64) -> Vec<Job> {
        let mut ready: Vec<u64> = vec![0; clients as usize];
        let mut free: Vec<u64> = vec![0; servers as usize];
        let mut jobs = Vec::new();
        for _ in 0..clients * rounds {
            let client = (0..ready.len()).min_by_key(|at| ready[*at]).expect("one");
            let server = (0..free.len()).min_by_key(|at| free[*at]).expect("one");
            let taken = ready[client].max(free[server]);
            let answered = taken + service_ms;
            jobs.push(Job {
                ready_ns: ready[client] * MS,
                taken_ns: taken * MS,
                answered_ns: answered * MS,
                free_ns: answered * MS,
            });
            ready[client] = answered + 1;
            free[server] = answered;
        }
        jobs.sort_by_key(|job| job.ready_ns);
        jobs
    }

    #[test]
    fn as_many_servers_as_there_were_give_what_was() {
        let jobs = closed(8, 2, 200, 6);
        let real: Vec<u64> = jobs
            .iter()
            .map(|job| job.answered_ns - job.ready_ns)
            .collect();
        let replayed = latencies(&jobs, 2);
        assert_eq!(median_ns(replayed) / MS, median_ns(real) / MS);
    }

    #[test]
    fn clients_that_wait_for_answers_come_again_sooner() {
        let jobs = closed(8, 2, 200, 12);
        for (servers, ms) in [(3, 500..601), (4, 380..420), (8, 200..201)] {
            let median = median_ns(latencies(&jobs, servers)) / MS;
            assert!(
                ms.contains(&median),
                "8 clients of {servers} servers that take 200 ms: expected {ms:?}, got {median}"
            );
        }
    }

    #[test]
    fn more_servers_never_make_it_worse_when_clients_do_not_wait() {
        // A deterministic mixture of arrivals and services.
        let mut state = 7_u64;
        let mut random = |below: u64| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1);
            (state >> 33) % below
        };
        for _ in 0..200 {
            let mut free = [0_u64; 2];
            let mut at = 0;
            let jobs: Vec<Job> = (0..50)
                .map(|_| {
                    at += 30 + random(60);
                    let server = usize::from(free[1] < free[0]);
                    let taken = free[server].max(at);
                    free[server] = taken + 20 + random(150);
                    Job {
                        ready_ns: at * MS,
                        taken_ns: taken * MS,
                        answered_ns: free[server] * MS,
                        free_ns: free[server] * MS,
                    }
                })
                .collect();
            let sum = |servers| latencies(&jobs, servers).iter().sum::<u64>();
            let waited: u64 = jobs.iter().map(|job| job.taken_ns - job.ready_ns).sum();
            let all: u64 = jobs.iter().map(|job| job.answered_ns - job.ready_ns).sum();
            assert!(
                sum(2) >= sum(3) && sum(3) >= sum(6),
                "more servers, less time"
            );
            assert!(
                all.saturating_sub(sum(50)) <= waited,
                "what is saved at most is what was waited"
            );
        }
    }
}
