//! Replays requests onto servers that take one at a time: what more servers would have saved.
//!
//! Arrivals are those of the recording, but for a request that its client could only send after
//! another one was answered: that one comes as long after the replayed answer as it did after the
//! real one. Without that a replay would flatter: of clients that wait for their answers the same
//! few come again and again.

use crate::numbers::{CLIENT_COMES_BACK_NS, REPLAY_OFF};
use std::collections::HashMap;

use whywait_events::Ns;
use whywait_replay::{Average, Relaxation, Reproduced, Resource, Schedule, Step, What, Work};

/// A request, as a server sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Worked {
    /// The connection that it came on.
    pub(crate) socket: u64,
    /// When it came.
    pub(crate) ready_ns: Ns,
    /// When a server took it.
    pub(crate) taken_ns: Ns,
    /// When it was answered.
    pub(crate) answered_ns: Ns,
    /// When its server could take the next one: not before the answer.
    pub(crate) free_ns: Ns,
}

/// For each job the one whose answer its client waited for before it sent it, if one did: the
/// answer before it on its connection, if that connection waits for answers most of its time; or
/// else the last answer before it came, of those that no other job follows. `jobs` are in the order
/// in which they came.
pub(super) fn follows(jobs: &[Worked]) -> Vec<Option<usize>> {
    let mut answers: Vec<(Ns, usize)> = jobs
        .iter()
        .enumerate()
        .map(|(at, job)| (job.answered_ns, at))
        .collect();
    answers.sort_unstable();
    let mut next = 0;
    let mut open: Vec<(Ns, usize)> = Vec::new();
    let mut on_its_connection: HashMap<u64, usize> = HashMap::new();
    let mut followed = vec![false; jobs.len()];
    jobs.iter()
        .enumerate()
        .map(|(number, job)| {
            while next < answers.len() && answers[next].0 <= job.ready_ns {
                open.push(answers[next]);
                next += 1;
            }
            if let Some(before) = on_its_connection.insert(job.socket, number)
                && comes_back(&jobs[before], job)
            {
                followed[before] = true;
                return Some(before);
            }
            while open.last().is_some_and(|(_, at)| followed[*at]) {
                open.pop();
            }
            let (at_ns, before) = *open.last()?;
            if job.ready_ns - at_ns > *CLIENT_COMES_BACK_NS {
                open.clear();
                return None;
            }
            open.pop();
            Some(before)
        })
        .collect()
}

/// Whether a client that had its answer on this connection came back for the next one. A client
/// that takes longer than it waited may as well be another one, of a pool of connections.
fn comes_back(before: &Worked, job: &Worked) -> bool {
    let waited_ns = before.answered_ns.saturating_sub(before.ready_ns);
    let away_ns = job.ready_ns.checked_sub(before.answered_ns);
    away_ns.is_some_and(|ns| ns <= waited_ns.max(*CLIENT_COMES_BACK_NS))
}

/// Jobs on servers that take one at a time, where so many servers bring about what was.
pub(crate) struct ServersAsTheyWere(Reproduced);

impl ServersAsTheyWere {
    /// `None`: on average they do not. `jobs` are in the order in which they come.
    pub(crate) fn of(jobs: &[Worked], servers: usize, average: Average) -> Option<Self> {
        let schedule = schedule(jobs, servers);
        let reproduced = schedule.reproduced_on(average, REPLAY_OFF.of(100));
        reproduced.ok().map(Self)
    }

    /// The same where jobs are taken in another order than that in which they come: in the recorded
    /// one, and each as late as it was at most. `None`: not even so.
    pub(crate) fn in_recorded_order(jobs: &[Worked], servers: usize) -> Option<Self> {
        let reproduced = schedule(jobs, servers).reproduced(REPLAY_OFF.of(100));
        reproduced.ok().map(Self)
    }

    /// How long each job is under way with so many more, from its arrival to its answer:
    /// nanoseconds.
    pub(crate) fn latencies(&self, more: usize) -> Vec<u64> {
        self.0.latencies(&Relaxation::default().more(0, more))
    }
}

fn schedule(jobs: &[Worked], servers: usize) -> Schedule {
    let works = jobs.iter().zip(follows(jobs));
    Schedule {
        resources: vec![Resource::of(servers)],
        works: works
            .map(|(job, follows)| scheduled(job, follows))
            .collect(),
    }
}

fn scheduled(job: &Worked, follows: Option<usize>) -> Work {
    let work = |from_ns: Ns, to_ns: Ns| Step {
        at_ns: from_ns,
        what: What::Spends {
            ns: to_ns.saturating_sub(from_ns),
            cause: None,
        },
    };
    let step = |at_ns, what| Step { at_ns, what };
    Work {
        ready_ns: job.ready_ns,
        answered_ns: job.answered_ns,
        follows,
        steps: vec![
            step(job.ready_ns, What::Takes(0)),
            work(job.taken_ns, job.answered_ns),
            step(job.answered_ns, What::Answers),
            work(job.answered_ns, job.free_ns),
        ],
    }
}

/// The middle one of some durations; 0 without any.
pub(crate) fn median_ns(all: Vec<u64>) -> u64 {
    Average::Median.of(&all)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// Of two servers.
    fn as_they_were(jobs: &[Worked]) -> ServersAsTheyWere {
        ServersAsTheyWere::of(jobs, 2, Average::Median).expect("what was")
    }

    /// Clients that each wait for their answer before they ask again.
    fn closed(clients: u64, servers: u64, service_ms: u64, rounds: u64) -> Vec<Worked> {
        closed_with(1, clients, servers, service_ms, rounds)
    }

    /// … for so long.
    fn closed_with(
        pause_ms: u64,
        clients: u64,
        servers: u64,
        service_ms: u64,
        rounds: u64,
    ) -> Vec<Worked> {
        let mut ready: Vec<u64> = vec![0; clients as usize];
        let mut free: Vec<u64> = vec![0; servers as usize];
        let mut jobs = Vec::new();
        for _ in 0..clients * rounds {
            let client = (0..ready.len()).min_by_key(|at| ready[*at]).expect("one");
            let server = (0..free.len()).min_by_key(|at| free[*at]).expect("one");
            let taken = ready[client].max(free[server]);
            let answered = taken + service_ms;
            jobs.push(Worked {
                socket: client as u64,
                ready_ns: ready[client] * MS,
                taken_ns: taken * MS,
                answered_ns: answered * MS,
                free_ns: answered * MS,
            });
            ready[client] = answered + pause_ms;
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
        let replayed = as_they_were(&jobs).latencies(0);
        assert_eq!(median_ns(replayed) / MS, median_ns(real) / MS);
    }

    /// Two jobs of one server that is idle for so long between them, though the second one waits.
    fn with_a_gap(gap_ms: u64) -> Vec<Worked> {
        let job = |ready_ms: u64, taken_ms: u64| Worked {
            socket: ready_ms,
            ready_ns: ready_ms * MS,
            taken_ns: taken_ms * MS,
            answered_ns: (taken_ms + 100) * MS,
            free_ns: (taken_ms + 100) * MS,
        };
        vec![job(0, 0), job(10, 100 + gap_ms)]
    }

    #[test]
    fn what_replays_as_it_nearly_was_says_something() {
        let says = |gap_ms, average| ServersAsTheyWere::of(&with_a_gap(gap_ms), 1, average);
        assert!(says(5, Average::Median).is_some());
        assert!(says(90, Average::Median).is_none());
    }

    #[test]
    fn clients_that_wait_for_answers_come_again_sooner() {
        let jobs = closed(8, 2, 200, 12);
        for (servers, ms) in [(3, 500..601), (4, 380..420), (8, 200..201)] {
            let median = median_ns(as_they_were(&jobs).latencies(servers - 2)) / MS;
            assert!(
                ms.contains(&median),
                "8 clients of {servers} servers that take 200 ms: expected {ms:?}, got {median}"
            );
        }
    }

    #[test]
    fn clients_that_take_their_time_come_again_sooner_too() {
        let jobs = closed_with(60, 20, 2, 50, 12);
        for servers in [3, 4] {
            let median = median_ns(as_they_were(&jobs).latencies(servers - 2)) / MS;
            let ideal = 20 * 50 / servers as u64 - 60;
            assert!(
                median.abs_diff(ideal) * 10 <= ideal,
                "20 clients of {servers} servers that take 50 ms, and ask again after 60 ms: \
                 expected {ideal}, got {median}"
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
            let jobs: Vec<Worked> = (0..50)
                .map(|_| {
                    at += 30 + random(60);
                    let server = usize::from(free[1] < free[0]);
                    let taken = free[server].max(at);
                    free[server] = taken + 20 + random(150);
                    Worked {
                        socket: at,
                        ready_ns: at * MS,
                        taken_ns: taken * MS,
                        answered_ns: free[server] * MS,
                        free_ns: free[server] * MS,
                    }
                })
                .collect();
            let two = as_they_were(&jobs);
            let sum = |servers: usize| two.latencies(servers - 2).iter().sum::<u64>();
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
