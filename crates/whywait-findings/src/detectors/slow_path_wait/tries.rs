//! Sleeps that a request makes again and again in one function: it looks whether something is as
//! it wants, and sleeps for a time if it is not. Where what the requests do afterwards is never
//! done by two of them at a time, and others were at it meanwhile, that something is a lock.

use std::collections::{BTreeMap, BTreeSet};

use whywait_events::{Ns, Part, StackId, WorkKind};
use whywait_model::{PathStep, RequestRef};
use whywait_words::{counted, duration, percent};

use super::{Dominated, OfRequest, WaitStep, by_ns};
use crate::facts::Facts;
use crate::finding::{Cause, Evidence};
use crate::numbers::{BY_CHANCE, MIN_REQUESTS, MOST, NEARLY_ALL, Share, TRIES};
use crate::shared::intervals::{Covered, Interval, merged, sum, union_ns};
use crate::shared::locked_files::LockedMeanwhile;
use crate::shared::slow_paths::{self, is_sleep};

/// What is known of them.
pub(super) struct Tries<'a> {
    /// How often a request slept, at the median.
    times: usize,
    /// For how long each time, likewise.
    each_ns: u64,
    /// Some sleep there more often than others: what ends it is neither a count nor a time.
    until_it_is_so: bool,
    /// What those who have the lock do, if it is one.
    pub(super) lock: Option<PolledLock<'a>>,
    /// The file that others had locked meanwhile.
    locked: Option<LockedMeanwhile<'a>>,
}

/// What was done one at a time after the last of these sleeps.
pub(super) struct PolledLock<'a> {
    holds: usize,
    median_ns: u64,
    /// So long requests slept, and of that while another one was at it.
    slept_ns: u64,
    meanwhile_ns: u64,
    /// What takes most of it.
    longest: Option<(&'a PathStep, String)>,
}

impl<'a> Tries<'a> {
    /// `None`: they are not of that kind.
    pub(super) fn of(facts: &'a Facts<'_>, group: &'a Dominated<'a>) -> Option<Self> {
        let own = own_sleeps(group);
        let stacks = tried_in(&own);
        let again: Vec<Vec<u64>> = own
            .iter()
            .filter(|own| tries_again(own, &stacks))
            .map(|own| tried(own, &stacks).map(|step| step.step.ns()).collect())
            .collect();
        let mut each = again.concat();
        // By time: who finds it free at once, and has it then, may be more than those who try.
        let all_ns = sum(group.iter().map(|(_, wait)| wait.ns));
        if Share::new(sum(each.iter().copied()), all_ns).is_below(*MOST) {
            return None;
        }
        let mut times: Vec<usize> = again.iter().map(Vec::len).collect();
        times.sort_unstable();
        each.sort_unstable();
        let until_it_is_so = !times.iter().any(|count| {
            Share::counted(as_often(&times, *count), times.len()).is_at_least(*NEARLY_ALL)
        });
        let lock = held(facts, group, &stacks);
        // A job may be several messages, each of which sleeps once.
        if lock.is_none() && group.iter().any(|(slow, _)| is_job(slow.request.kind)) {
            return None;
        }
        let sleeps: Vec<(u32, Interval)> = group
            .iter()
            .flat_map(|(slow, wait)| wait.steps.iter().map(move |step| (slow, step.step)))
            .filter(|(_, step)| stacks.contains(&step.stack))
            .map(|(slow, step)| (slow.request.tgid, (step.from_ns, step.to_ns)))
            .collect();
        Some(Self {
            locked: LockedMeanwhile::of(facts.model, &sleeps),
            until_it_is_so,
            times: *times.get(times.len() / 2)?,
            each_ns: *each.get(each.len() / 2)?,
            lock,
        })
    }

    /// ` for a lock of labels.db, again and again, typically 7 times for 5.08 ms`.
    pub(super) fn title(&self) -> String {
        let lock = match (&self.lock, &self.locked) {
            (Some(_), Some(locked)) => format!(" for a lock of {}", locked.name()),
            (Some(_), None) => " for a lock".to_owned(),
            (None, _) => String::new(),
        };
        format!(
            "{lock}, again and again, typically {} for {}",
            counted(self.times, "time"),
            duration(self.each_ns)
        )
    }

    /// Whether they wait for something that others bring about, and not for a time: then it could
    /// be otherwise, however long it takes as a rule.
    pub(super) fn await_something(&self) -> bool {
        self.lock.is_some() || self.locked.is_some() || self.until_it_is_so
    }

    pub(super) fn evidence(&self) -> impl Iterator<Item = Evidence> {
        let text = format!(
            "one request sleeps there {} with hardly anything in between, at the median: it looks \
             whether something is as it wants, and tries again if not",
            counted(self.times, "time")
        );
        let lock = self.lock.as_ref().map(PolledLock::evidence);
        let locked = self.locked.as_ref().map(LockedMeanwhile::evidence);
        [Evidence::new(text)].into_iter().chain(lock).chain(locked)
    }

    /// `; who has it sleeps in print_label`.
    pub(super) fn holder_in_title(&self) -> String {
        match (&self.lock, &self.locked) {
            (Some(lock), _) => lock.title(),
            (None, Some(locked)) => locked.title(),
            (None, None) => String::new(),
        }
    }

    pub(super) fn fix(&self) -> &'static str {
        match (&self.lock, &self.locked) {
            (None, Some(_)) => {
                "if it tries for that lock, have the file locked for less: make what its holder \
                 does shorter (a transaction: commit more often), or do that before or after it; \
                 and take a lock that wakes who waits for it, since who sleeps for a time finds it \
                 free too late"
            }
            (Some(_), _) => {
                "have the lock for less: make what its holder does shorter, or do that before or \
                 after it; and take one that wakes who waits for it, since who sleeps for a time \
                 finds it free too late"
            }
            (None, None) => {
                "find out what it tries for (a lock, a row, a file) and who has that meanwhile; \
                 wait for the event instead, or for shorter times"
            }
        }
    }
}

impl PolledLock<'_> {
    /// `; who has it sleeps in print_label`.
    pub(super) fn title(&self) -> String {
        match &self.longest {
            Some((_, doing)) => format!("; who has it {doing}"),
            None => String::new(),
        }
    }

    fn evidence(&self) -> Evidence {
        let text = format!(
            "what {} do after the last of these sleeps is never done by two at a time ({} each at \
             the median): they try for a lock; {} of these sleeps were while another one was at it",
            counted(self.holds, "request"),
            duration(self.median_ns),
            percent(self.meanwhile_ns, self.slept_ns)
        );
        Evidence::of_ns(self.meanwhile_ns, text)
    }

    pub(super) fn cause(&self, facts: &Facts<'_>) -> Option<Cause> {
        let (step, doing) = self.longest.as_ref()?;
        let doing = format!("has the lock, and {doing}");
        Some(Cause::new(facts.model, step.tid, doing, step.stack))
    }
}

fn is_job(kind: WorkKind) -> bool {
    matches!(kind, WorkKind::Job | WorkKind::HandedJob)
}

/// How many of these sleep so often, or once more: who sleeps until a time, for a while each, may
/// miss it once.
fn as_often(times: &[usize], count: usize) -> usize {
    let as_often = |times: &&usize| (count..=count + 1).contains(*times);
    times.iter().filter(as_often).count()
}

/// The sleeps of each request, but for those of a thread that serves none and sleeps for several of
/// them at once: a timer's, which sleeps until the next one's time. These wait for it but once.
fn own_sleeps<'a>(group: &'a Dominated<'a>) -> Vec<Vec<&'a WaitStep<'a>>> {
    let mut on_paths: BTreeMap<(u32, Ns), usize> = BTreeMap::new();
    let sleep = |step: &WaitStep<'_>| (step.step.tid, step.step.to_ns);
    for step in group.iter().flat_map(|(_, wait)| &wait.steps) {
        *on_paths.entry(sleep(step)).or_default() += 1;
    }
    let of_request = |(slow, wait): &'a OfRequest<'a>| {
        let serves = [slow.request.recv_tid, slow.request.send_tid];
        let is_own = |step: &&WaitStep<'_>| {
            serves.contains(&step.step.tid) || on_paths.get(&sleep(step)) == Some(&1)
        };
        wait.steps.iter().filter(is_own).collect()
    };
    group.iter().map(of_request).collect()
}

/// Those in these stacks.
fn tried<'a>(
    own: &'a [&'a WaitStep<'a>],
    stacks: &'a BTreeSet<StackId>,
) -> impl DoubleEndedIterator<Item = &'a WaitStep<'a>> {
    let own = own.iter().copied();
    own.filter(|step| stacks.contains(&step.step.stack))
}

/// The stacks in which some request slept several times. In others, of the same function, those
/// may sleep who have what is tried for.
fn tried_in(all: &[Vec<&WaitStep<'_>>]) -> BTreeSet<StackId> {
    let mut stacks = BTreeSet::new();
    for own in all {
        let mut times: BTreeMap<StackId, usize> = BTreeMap::new();
        for step in own {
            *times.entry(step.step.stack).or_default() += 1;
        }
        let again = times.into_iter().filter(|(_, times)| *times >= *TRIES);
        stacks.extend(again.map(|(stack, _)| stack));
    }
    stacks
}

/// Whether a request slept several times in these stacks with hardly anything in between.
fn tries_again(own: &[&WaitStep<'_>], stacks: &BTreeSet<StackId>) -> bool {
    let sleeps = || tried(own, stacks);
    let (Some(first), Some(last)) = (sleeps().next(), sleeps().next_back()) else {
        return false;
    };
    let all_ns = last.step.to_ns.saturating_sub(first.step.from_ns);
    let between_ns = all_ns.saturating_sub(sum(sleeps().map(|step| step.step.ns())));
    sleeps().count() >= *TRIES
        && sleeps().all(|step| is_sleep(step.wait))
        && Share::new(between_ns, all_ns).is_below(*BY_CHANCE)
}

/// From the last of a request's sleeps in one of these stacks, or from its reading, to its answer.
fn after(request: RequestRef<'_>, stacks: &BTreeSet<StackId>) -> Option<Interval> {
    let is_try = |step: &&&PathStep| step.part == Some(Part::Timer) && stacks.contains(&step.stack);
    let path = request.path();
    let last = path.steps.iter().rev().find(is_try);
    let from_ns = last.map_or(request.served_ns(), |step| step.to_ns);
    let until_ns = request.answered_ns()?;
    (from_ns < until_ns).then_some((from_ns, until_ns))
}

/// What requests do after these sleeps, if they do it one at a time, and slept while others did:
/// all that came in at the same place, or these alone where others do something else.
fn held<'a>(
    facts: &Facts<'_>,
    group: &'a Dominated<'a>,
    stacks: &BTreeSet<StackId>,
) -> Option<PolledLock<'a>> {
    let places: BTreeSet<_> = group.iter().map(|(slow, _)| slow.request.place()).collect();
    let of_places = places.iter().filter_map(|place| facts.places().get(place));
    let all = of_places
        .flatten()
        .filter_map(|request| after(*request, stacks));
    let alone = group
        .iter()
        .filter_map(|(slow, _)| after(slow.request, stacks));
    [all.collect(), alone.collect()]
        .into_iter()
        .find_map(|each| one_at_a_time(facts, group, stacks, each))
}

fn one_at_a_time<'a>(
    facts: &Facts<'_>,
    group: &'a Dominated<'a>,
    stacks: &BTreeSet<StackId>,
    each: Vec<Interval>,
) -> Option<PolledLock<'a>> {
    let mut lengths: Vec<u64> = each
        .iter()
        .map(|(from_ns, to_ns)| to_ns - from_ns)
        .collect();
    lengths.sort_unstable();
    let all_ns = sum(lengths.iter().copied());
    let at_once_ns = all_ns.saturating_sub(union_ns(each.clone()));
    if each.len() < *MIN_REQUESTS || !Share::new(at_once_ns, all_ns).is_below(*BY_CHANCE) {
        return None;
    }
    let covered = Covered::new(merged(each));
    let steps = || {
        let steps = group.iter().flat_map(|(_, wait)| &wait.steps);
        steps.filter(|step| stacks.contains(&step.step.stack))
    };
    let slept_ns = sum(steps().map(|step| step.step.ns()));
    let meanwhile = steps().map(|step| covered.within((step.step.from_ns, step.step.to_ns)));
    let meanwhile_ns = sum(meanwhile);
    Share::new(meanwhile_ns, slept_ns)
        .is_at_least(*MOST)
        .then(|| PolledLock {
            holds: lengths.len(),
            median_ns: lengths[lengths.len() / 2],
            slept_ns,
            meanwhile_ns,
            longest: longest(facts, group, stacks),
        })
}

/// What takes most of the time after these sleeps, and how it reads.
fn longest<'a>(
    facts: &Facts<'_>,
    group: &'a Dominated<'a>,
    stacks: &BTreeSet<StackId>,
) -> Option<(&'a PathStep, String)> {
    let model = facts.model;
    let mut steps: BTreeMap<(Part, StackId), &'a PathStep> = BTreeMap::new();
    let mut times: Vec<((Part, StackId), u64)> = Vec::new();
    for one in group {
        let Some((from_ns, to_ns)) = after(one.0.request, stacks) else {
            continue;
        };
        let path = slow_paths::steps(one.0);
        let own = path.filter(|(_, step)| step.from_ns >= from_ns && step.to_ns <= to_ns);
        for (part, step) in own {
            times.push(((part, step.stack), step.ns()));
            steps.entry((part, step.stack)).or_insert(step);
        }
    }
    let ((part, stack), _) = by_ns(times).into_iter().next()?;
    let step = steps.remove(&(part, stack))?;
    let place = slow_paths::function(model, stack).map(|name| format!(" in {name}"));
    let place = place.unwrap_or_default();
    let doing = match part {
        Part::OnCpu => format!("computes{place}"),
        Part::Timer => format!("sleeps{place}"),
        part => format!("waits{place} ({})", part.name()),
    };
    Some((step, doing))
}
