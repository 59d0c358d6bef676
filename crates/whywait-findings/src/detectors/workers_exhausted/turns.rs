//! Jobs whose workers do not show, as goroutines that take messages from a channel. How many are
//! worked on at a time is told by when the jobs came and were done.
//!
//! **Evidence.** If so many are worked on at a time, in the order in which they were read, then
//! each begins when it is read, or when one of as many before it is over. What jobs take from then
//! on is as long for those that waited as for those that found a worker free. With fewer at a time
//! those that waited would have been quicker than these, with more slower. Of the numbers with
//! which it is as long, it is the one with which they differ least, among themselves and from the
//! others; then it may be one more or less.
//!
//! **Cost.** What each waited for its turn.
//!
//! **Guards.** Too few jobs that found a worker free do not show how long one takes. Jobs that
//! compute, or wait for a CPU, share the CPUs, not workers. With more calls under way than jobs are
//! worked on at a time there are more workers than that.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use whywait_events::{Ns, Part, WorkKind};
use whywait_model::{Model, RequestRef};
use whywait_words::{counted, duration, list};

use super::{DECLARATION, MoreWorkers, is_worth_it};
use crate::facts::Facts;
use crate::finding::{Confidence, Evidence, Finding, Saving};
use crate::numbers::{MIN_REQUESTS, MOST, QUEUE_FEW, QUEUE_PAIRED, QUEUE_SERVES, SLOW_NS, Share};
use crate::shared::intervals::{most_at_a_time, sum};
use crate::shared::replay::median_ns;
use crate::shared::slow_paths::Shares;
use crate::shared::traffic::whole;

/// A job, and when it was its turn.
#[derive(Clone, Copy)]
struct Turn<'m> {
    job: RequestRef<'m>,
    began_ns: Ns,
    ended_ns: Ns,
}

impl Turn<'_> {
    fn waited_ns(&self) -> u64 {
        self.began_ns.saturating_sub(self.job.served_ns())
    }

    fn took_ns(&self) -> u64 {
        self.ended_ns.saturating_sub(self.began_ns)
    }
}

/// Jobs, so many of which are worked on at a time.
struct Turns<'m> {
    workers: usize,
    all: Vec<Turn<'m>>,
    /// What one takes that found a worker free, and how many did, and one that waited; in the
    /// middle.
    alone_ns: u64,
    alone: usize,
    later_ns: u64,
    /// How much those that waited differ among themselves, and the one of them in the middle from
    /// one that found a worker free.
    differ_ns: u64,
    /// With another number it is as long, too.
    about: bool,
}

/// Why jobs are not compared with so many at a time.
enum Unlike {
    /// Some would have been over before they began.
    Impossible,
    /// Too few would have found a worker free: it may be this number.
    FewAlone,
    /// Too few would have waited.
    FewWaited,
}

impl<'m> Turns<'m> {
    /// With so many at a time. `jobs` are in the order of their reading.
    fn with(jobs: &[RequestRef<'m>], workers: usize) -> Result<Self, Unlike> {
        let mut free: BinaryHeap<Reverse<Ns>> = (0..workers).map(|_| Reverse(0)).collect();
        let mut all = Vec::new();
        let mut alone = Vec::new();
        let mut later = Vec::new();
        let mut impossible = 0;
        for job in jobs {
            let Reverse(free_ns) = free.pop().unwrap_or(Reverse(0));
            let turn = Turn {
                job: *job,
                began_ns: job.served_ns().max(free_ns),
                ended_ns: job.end_ns(),
            };
            free.push(Reverse(turn.ended_ns.max(turn.began_ns)));
            impossible += usize::from(turn.took_ns() == 0);
            if Share::counted(jobs.len() - impossible, jobs.len()).is_below(*QUEUE_PAIRED) {
                return Err(Unlike::Impossible);
            }
            if turn.waited_ns() == 0 {
                alone.push(turn.took_ns());
            } else if turn.waited_ns() >= *SLOW_NS {
                later.push(turn.took_ns());
            }
            all.push(turn);
        }
        if later.len() < *MIN_REQUESTS {
            return Err(Unlike::FewWaited);
        }
        if alone.len() < *QUEUE_FEW {
            return Err(Unlike::FewAlone);
        }
        later.sort_unstable();
        let (few, many) = (later.len() / 10, later.len() - 1 - later.len() / 10);
        let (range_ns, later_ns) = (later[many] - later[few], later[later.len() / 2]);
        let found = alone.len();
        let alone_ns = median_ns(alone);
        Ok(Self {
            workers,
            all,
            alone: found,
            differ_ns: range_ns.saturating_add(later_ns.abs_diff(alone_ns)),
            alone_ns,
            later_ns,
            about: false,
        })
    }

    /// Whether those that waited then took as long as those that did not.
    fn take_as_long(&self) -> bool {
        let (less, more) = (
            self.alone_ns.min(self.later_ns),
            self.alone_ns.max(self.later_ns),
        );
        Share::new(less, more).is_at_least(*QUEUE_SERVES)
    }

    /// As many at a time as there are.
    fn of(jobs: &[RequestRef<'m>]) -> Option<Self> {
        let most = most_at_a_time(jobs.iter().map(|job| (job.served_ns(), job.end_ns())));
        let mut likely = Vec::new();
        for workers in 1..most {
            match Self::with(jobs, workers) {
                Ok(turns) if turns.take_as_long() => likely.push((turns.differ_ns, workers)),
                // With more than there are it takes longer and longer.
                Ok(turns) if turns.later_ns > turns.alone_ns => break,
                Ok(_) | Err(Unlike::Impossible) => {}
                Err(Unlike::FewAlone) => return None,
                Err(Unlike::FewWaited) => break,
            }
        }
        let (_, workers) = likely.iter().min()?;
        Some(Self {
            about: likely.len() > 1,
            ..Self::with(jobs, *workers).ok()?
        })
    }

    /// Whether jobs compute, or wait for a CPU, for most of their time.
    fn compute(&self) -> bool {
        let accounts = || self.all.iter().map(|turn| turn.job.account());
        let on_cpu = accounts().map(|account| {
            account.service[Part::OnCpu].saturating_add(account.service[Part::Runnable])
        });
        let all_ns = sum(accounts().map(|account| account.service.total_ns()));
        Share::new(sum(on_cpu), all_ns).is_at_least(*MOST)
    }

    /// `3`, or `some 3`.
    fn many(&self) -> String {
        let some = if self.about { "some " } else { "" };
        format!("{some}{}", self.workers)
    }

    fn evidence(&self, jobs: &[RequestRef<'m>]) -> Evidence {
        let other = |workers: usize| {
            let turns = Self::with(jobs, workers).ok()?;
            Some(format!("{} with {workers}", duration(turns.later_ns)))
        };
        let others = [self.workers - 1, self.workers + 1];
        let others: Vec<String> = others
            .into_iter()
            .filter(|workers| *workers > 0)
            .filter_map(other)
            .collect();
        let others = match others.is_empty() {
            true => String::new(),
            false => format!("; it would have been {}", list(&others)),
        };
        let waited = self.all.iter().filter(|turn| turn.waited_ns() >= *SLOW_NS);
        Evidence::new(format!(
            "who works on them does not show; that it is {} at a time is told by when they came \
             and were done: in the order in which they were read, the {} that waited took {} \
             (median) once it was their turn, and the {} that found a worker free {}{others}",
            self.many(),
            waited.count(),
            duration(self.later_ns),
            self.alone,
            duration(self.alone_ns),
        ))
    }

    /// What the middle job takes with so many more workers. It comes when it came: its broker waits
    /// for no answer.
    fn with_more(&self, more: usize) -> u64 {
        let workers = self.workers + more;
        let mut free: BinaryHeap<Reverse<Ns>> = (0..workers).map(|_| Reverse(0)).collect();
        let latencies = self.all.iter().filter_map(|turn| {
            let Reverse(free_ns) = free.pop()?;
            let ended_ns = turn
                .job
                .served_ns()
                .max(free_ns)
                .saturating_add(turn.took_ns());
            free.push(Reverse(ended_ns));
            Some(ended_ns.saturating_sub(turn.job.ready_ns))
        });
        median_ns(latencies.collect())
    }

    fn more_workers(&self) -> Option<MoreWorkers> {
        let real = self.all.iter().map(|turn| turn.job.age_ns());
        MoreWorkers::with(self.workers, median_ns(real.collect()), |more| {
            self.with_more(more)
        })
    }
}

/// The jobs of each process, by the broker that they came from, of most of which no thread shows
/// that it works on them: in the order in which they were read.
fn without_a_thread(model: &Model) -> BTreeMap<(u32, u32), Vec<RequestRef<'_>>> {
    let mut all: BTreeMap<(u32, u32), Vec<RequestRef<'_>>> = BTreeMap::new();
    let jobs = model.requests().filter(|job| job.kind == WorkKind::Job);
    for job in jobs.filter(|job| job.is_answered() && job.recv_ns.is_some()) {
        all.entry((job.tgid, job.broker)).or_default().push(job);
    }
    let hidden = |job: &&RequestRef<'_>| {
        let unknown = Share::new(job.service[Part::Unknown], job.service.total_ns());
        unknown.is_at_least(*MOST)
    };
    all.retain(|_, jobs| {
        let hidden = jobs.iter().filter(hidden).count();
        Share::counted(hidden, jobs.len()).is_at_least(*MOST)
    });
    for jobs in all.values_mut() {
        jobs.sort_by_key(|job| (job.served_ns(), job.ready_ns, job.socket));
    }
    all
}

/// The most calls to another peer than this broker that a process had under way at a time.
fn most_calls(facts: &Facts<'_>, (tgid, broker): (u32, u32)) -> usize {
    let traffic = facts.traffic().iter();
    let others = traffic.filter(|one| one.tgid == tgid && one.peer.number() != broker);
    let calls = others.map(|one| most_at_a_time(one.calls.iter().map(|call| whole(call))));
    calls.max().unwrap_or(0)
}

/// Finds them.
pub(super) fn find(facts: &Facts<'_>, slow_ns: u64) -> Vec<Finding> {
    let all = without_a_thread(facts.model).into_iter();
    all.filter_map(|(of, jobs)| {
        let turns = Turns::of(&jobs)?;
        let busier = most_calls(facts, of) > turns.workers;
        if busier || turns.compute() {
            return None;
        }
        finding(of.0, &turns, &jobs, slow_ns)
    })
    .collect()
}

fn finding(pid: u32, turns: &Turns<'_>, jobs: &[RequestRef<'_>], slow_ns: u64) -> Option<Finding> {
    let waited = || turns.all.iter().filter(|turn| turn.waited_ns() > 0);
    let victims = || waited().filter(|turn| turn.waited_ns() >= *SLOW_NS);
    if !is_worth_it(victims().map(Turn::waited_ns), slow_ns) {
        return None;
    }
    let shares = Shares::new(victims().map(|turn| (turn.waited_ns(), turn.job.age_ns())));
    let severity = shares.severity(slow_ns)?;
    let many = turns.many();
    let workers = match many.as_str() {
        "1" => "until the only worker was free".to_owned(),
        many => format!("until one of {many} workers was free"),
    };
    let title = format!(
        "{} waited {} of their time {workers}",
        counted(shares.each_ns.len(), "job"),
        shares.percent()
    );
    let replayed = turns.more_workers();
    let finding = Finding::new(&DECLARATION, severity, title)
        .confidence(Confidence::Medium)
        .about("pid", pid)
        .about("at_a_time", turns.workers)
        .about_known("replay", replayed.as_ref().map(MoreWorkers::rows))
        .saving(Saving::latency(waited().map(Turn::waited_ns).collect()))
        .concerns(waited().map(|turn| (turn.job, turn.waited_ns())))
        .evidence([
            Evidence::of_ns(shares.ns, shares.spread(slow_ns)),
            turns.evidence(jobs),
        ])
        .evidence(replayed.map(|more| more.evidence("job")))
        .fix(format!(
            "more workers (goroutines, tasks), if what they wait for can do more at once; if there \
             are more of them already, see what only {many} have at a time: a lock, a semaphore, a \
             pool"
        ));
    Some(finding)
}

#[cfg(test)]
mod tests {
    use whywait_events::Exchange;
    use whywait_model::script::Script;

    use super::*;
    use crate::shared::queues::script::{call, peer};

    const LIBRARY: u32 = 1;

    /// Jobs that a library reads, in order: when they come, and how long they take, milliseconds.
    /// So many are worked on at a time.
    fn jobs(workers: usize, each: &[(u64, u64)]) -> Script {
        let mut script = Script::new();
        script.thread(LIBRARY, "consumer");
        let mut free = vec![0_u64; workers];
        for (n, (came, takes)) in each.iter().enumerate() {
            let next = (0..workers).min_by_key(|at| free[*at]).expect("one");
            let done = free[next].max(*came) + takes;
            free[next] = done;
            let job = script.request(n as u64 + 1).hidden_job(9).ready(*came);
            let job = job.read(*came, LIBRARY);
            job.spent(Part::Unknown, done - came)
                .answered(done, LIBRARY);
        }
        script
    }

    /// Six come one by one, and then many.
    fn flood(takes: impl Fn(u64) -> u64) -> Vec<(u64, u64)> {
        let alone = (0..6).map(|n| 10 + 100 * n);
        let many = (0..60).map(|n| 700 + 10 * n);
        let all = alone.chain(many).enumerate();
        all.map(|(n, came)| (came, takes(n as u64))).collect()
    }

    fn found(script: &Script) -> Vec<Finding> {
        super::super::detect(&Facts::of(&script.model()))
    }

    #[test]
    fn jobs_whose_workers_do_not_show_tell_how_many_there_are() {
        for workers in 1..=3 {
            // Each takes another time, in no order.
            let findings = found(&jobs(workers, &flood(|n| 36 + 7 * n % 11)));
            let [finding] = &findings[..] else {
                panic!("one is expected with {workers}: {findings:#?}");
            };
            assert_eq!(finding.subject["at_a_time"], workers);
            assert!(finding.title.contains("free"), "{}", finding.title);
            assert_eq!(finding.confidence, Confidence::Medium);
        }
    }

    #[test]
    fn jobs_that_differ_much_tell_it_too() {
        for workers in 2..=4 {
            let findings = found(&jobs(workers, &flood(|n| 20 + 37 * n % 61)));
            let [finding] = &findings[..] else {
                panic!("one is expected with {workers}: {findings:#?}");
            };
            let says = format!("{workers} workers was free");
            assert!(finding.title.ends_with(&says), "{}", finding.title);
        }
    }

    #[test]
    fn what_it_would_be_with_more_of_them_is_said() {
        let findings = found(&jobs(3, &flood(|_| 40)));
        let texts = findings[0].evidence.iter().map(|one| &*one.text);
        let texts: Vec<&str> = texts.collect();
        let told = "the 57 that waited took 40 ms (median) once it was their turn";
        assert!(texts.iter().any(|text| text.contains(told)), "{texts:#?}");
        let more = "by replay a job would typically take 40 ms with 4";
        assert!(texts.iter().any(|text| text.contains(more)), "{texts:#?}");
    }

    #[test]
    fn jobs_that_do_not_wait_are_no_lack_of_workers() {
        // As many as come; and some that take longer than others.
        for takes in [
            |_: u64| 40,
            |n: u64| 20 + 37 * n % 101,
            |n: u64| 10 + (n * n) % 300,
        ] {
            let findings = found(&jobs(100, &flood(takes)));
            assert!(findings.is_empty(), "{findings:#?}");
        }
    }

    #[test]
    fn with_more_calls_than_that_at_a_time_there_are_more_workers() {
        let mut script = jobs(3, &flood(|_| 40));
        for n in 0..40 {
            let row = call(100 + n, 0, 700 + 10 * n, 760 + 10 * n);
            script.exchange(&Exchange {
                send_tid: LIBRARY,
                ..row
            });
        }
        script.peer(&peer(40, 6));
        assert!(found(&script).is_empty());
    }

    #[test]
    fn where_it_may_be_a_number_that_cannot_be_compared_none_is_said() {
        // Four of them found a worker free with three, and more with four.
        let few: Vec<(u64, u64)> = flood(|_| 40).into_iter().skip(5).collect();
        let findings = found(&jobs(3, &few));
        assert!(findings.is_empty(), "{findings:#?}");
    }

    #[test]
    fn those_whose_thread_shows_are_jobs_like_the_others() {
        let mut script = jobs(3, &flood(|_| 40).split_off(6));
        for n in 0..6 {
            let at = 10 + 100 * n;
            let job = script.request(1_000 + n).hidden_job(9).ready(at);
            let job = job.read(at, LIBRARY).spent(Part::Timer, 40);
            job.answered(at + 40, LIBRARY);
        }
        let findings = found(&script);
        assert_eq!(findings[0].subject["at_a_time"], 3, "{findings:#?}");
    }

    #[test]
    fn of_a_backlog_from_before_nothing_shows_how_long_a_job_takes() {
        let at_once: Vec<(u64, u64)> = (0..60).map(|_| (10, 40)).collect();
        let findings = found(&jobs(3, &at_once));
        assert!(findings.is_empty(), "{findings:#?}");
    }
}
